"""The least and the most power that any distribution of the nodes can have, exactly."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np

from dask_hpc.planning.corridor.enumerate import Floats
from dask_hpc.planning.corridor.problem import TINY, CorridorProblem, Part, runs


def reachable(problem: CorridorProblem) -> tuple[float, float]:
    """The lowest power (most) and the highest (least) there can be; what lies between may still have holes.

    A corridor is out of reach if its upper bound is below the first or its lower bound above the second.
    """
    base = problem.nodes * problem.idle
    saved = [problem.idle - part.power.most for part in problem.parts]
    added = [part.power.least - problem.idle for part in problem.parts]
    lowest = base + problem.constant.most - most_gain(problem, saved)
    highest = base + problem.constant.least + most_gain(problem, added)
    return lowest, highest


def most_gain(problem: CorridorProblem, gains: Sequence[float]) -> float:
    """The largest sum of gain times size there is, ``gains`` being watts per node of each part.

    If every part could stop at any size, nodes would go to those that gain most: that is a bound. To give
    each in turn what it can use is a distribution. If the two differ, parts that would have to lose
    more than the difference to have another size keep theirs, and for the others the best use of every number
    of nodes is computed part by part.
    """
    parts = problem.parts
    room = left = free = problem.nodes - sum(part.sizes[0] for part in parts)
    total = sum(gain * part.sizes[0] for part, gain in zip(parts, gains, strict=True))
    bound = reached = last = 0.0
    filled: list[tuple[Part, float, int]] = []
    for loss, number in sorted((-gain, n) for n, gain in enumerate(gains) if gain > 0):
        part, gain = parts[number], -loss
        more = min(left, part.sizes[-1] - part.sizes[0])
        if 0 < left == more:
            last = gain
        filled.append((part, gain, more))
        left -= more
        bound += gain * more
        used = part.sizes[bisect_right(part.sizes, part.sizes[0] + free) - 1] - part.sizes[0]
        free -= used
        reached += gain * used
    if bound - reached <= TINY:
        return total + reached
    open_parts = []
    for part, gain, more in filled:
        if part.is_contiguous or abs(gain - last) * _to_another(part, more) <= bound - reached + TINY:
            open_parts.append((part, gain))
        else:
            room -= more
            total += gain * more
    return total + _by_every_room(open_parts, room)


def _to_another(part: Part, more: int) -> int:
    """From so many nodes beyond the least size to the nearest other size."""
    size = part.sizes[0] + more
    below, above = bisect_left(part.sizes, size), bisect_right(part.sizes, size)
    if below == above:
        return 0  # this is no allowed size at all
    others = [abs(part.sizes[n] - size) for n in (below - 1, above) if 0 <= n < len(part.sizes)]
    return min(others, default=part.sizes[-1] + size)


def _by_every_room(parts: Sequence[tuple[Part, float]], room: int) -> float:
    """The most that ``parts`` (those that gain most first) gain beyond their least sizes."""
    smooth = np.zeros(room + 1)  # of the parts that stop anywhere, by the nodes they get
    at = 0
    for part, gain in parts:
        if part.is_contiguous and at < room:
            more = min(room - at, part.sizes[-1] - part.sizes[0])
            smooth[at + 1 : at + more + 1] = smooth[at] + gain * np.arange(1, more + 1)
            at += more
    smooth[at:] = smooth[at]
    best = smooth
    for part, gain in parts:
        if not part.is_contiguous:
            nodes = np.arange(room + 1) * gain
            before, best = best - nodes, np.full(room + 1, -np.inf)
            for low, high in runs(part.sizes):
                low, high = low - part.sizes[0], min(high - part.sizes[0], room)
                if low <= room:
                    window = _sliding_most(before, high - low + 1)
                    best[low:] = np.maximum(best[low:], window[: room + 1 - low])
            best += nodes
    return float(best[-1])


def _sliding_most(values: Floats, width: int) -> Floats:
    """At each place the largest of it and the ``width - 1`` values before it."""
    most, done = values.copy(), 1
    while done < width:
        step = min(done, width - done)
        most[step:] = np.maximum(most[step:], most[:-step])
        done += step
    return most
