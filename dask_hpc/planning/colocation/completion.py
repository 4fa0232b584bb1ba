"""When tasks that slow each other will end (seed 003, 2.6.2)."""

from collections.abc import Callable, Sequence
from math import inf, isnan

from dask_hpc.model.errors import InputError, insist, is_number

#: how many times as long a task takes beside these others, all by their places in the list of tasks
Beside = Callable[[int, frozenset[int]], float]


def completions(work: Sequence[float], slowdown: Beside) -> list[float]:
    """Seconds from now at which each task ends, of tasks on one node each of which has so many seconds of
    ``work`` left, as they would take alone. ``slowdown`` is asked for a task and the set of others that still
    run; less than 1 is taken for 1. It may be inf: then a task stands still until somebody leaves.

    The seed's Algorithm 3 stretches wall-clock intervals that are stretched already, and does not end for
    slowdowns of 2 or more (digest, G1): see ``printed_completions``. This one keeps the work that is left and
    goes from end to end, in as many steps as there are tasks, without a tolerance.
    """
    left = list(map(float, work))
    for place, seconds in enumerate(work):
        insist(is_number(seconds, 0, inf), f"work: {place}", seconds, "seconds, 0 or more")
    ends = [inf] * len(left)
    running = frozenset(range(len(left)))
    now = 0.0
    while running:
        slower = {place: _asked(slowdown, place, running) for place in running}
        needs = {place: left[place] * slower[place] if left[place] else 0.0 for place in running}
        step = min(needs.values())
        if step == inf:
            break
        now += step
        for place in running:
            left[place] = max(0.0, left[place] - step / slower[place])
            if needs[place] <= step:
                ends[place] = now
        running = frozenset(place for place in running if needs[place] > step)
    return ends


def _asked(slowdown: Beside, place: int, running: frozenset[int]) -> float:
    found = slowdown(place, running - {place})
    if isnan(found):
        raise InputError("slowdown", f"found nan for task {place}", "1 or more")
    return max(1.0, found)


def printed_completions(
    work: Sequence[float], slowdown: Beside, tolerance: float = 1.0, rounds: int = 10_000
) -> list[float]:
    """Algorithm 3 as it is printed, for comparison: seconds from now, inf for what has not come to an end
    after so many ``rounds``. One task beside others that outlast it, with a constant slowdown of 1 + p, ends
    after w / (1 - p), not after w (1 + p); for p of 1 or more never."""
    estimate = dict(enumerate(map(float, work)))
    ends = [inf] * len(estimate)
    began = 0.0
    for _ in range(rounds):
        if not estimate:
            break
        until = min(estimate.values())
        if until == inf:
            break
        together = frozenset(estimate)
        for place in together:
            estimate[place] += (_asked(slowdown, place, together) - 1) * (until - began)
        for place in together:
            if until + tolerance >= estimate[place]:
                ends[place] = estimate.pop(place)
        began = until
    return ends
