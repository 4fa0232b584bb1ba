"""The least and the most power that any distribution of the nodes can have, exactly."""

from collections.abc import Sequence

import numpy as np

from dask_hpc.planning.corridor_enumerate import Floats
from dask_hpc.planning.corridor_problem import CorridorProblem, Part, runs


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

    Nodes go to the parts that gain most. That is exact as long as every part can stop at any size; if the
    one that the nodes run out at cannot, the best use of every number of nodes is computed part by part.
    """
    room = problem.nodes - sum(part.sizes[0] for part in problem.parts)
    total = sum(gain * part.sizes[0] for part, gain in zip(problem.parts, gains, strict=True))
    wanting = sorted((-gain, n) for n, gain in enumerate(gains) if gain > 0)
    left, filled = room, total
    for loss, number in wanting:
        part = problem.parts[number]
        more = min(left, part.sizes[-1] - part.sizes[0])
        if part.sizes[0] + more not in part.sizes:
            break
        left -= more
        filled -= loss * more
    else:
        return filled
    parts = [(problem.parts[number], -loss) for loss, number in wanting]
    return total + _by_every_room(parts, room)


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
