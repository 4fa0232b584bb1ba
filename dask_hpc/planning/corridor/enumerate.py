"""The corridor's best distribution by looking at every one of them, those that are alike only once."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_hpc.planning.corridor.problem import TINY, CorridorProblem, Distribution, Part

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_FEW = 20_000  # are not worth a search for those that are alike


def enumerate_all(
    problem: CorridorProblem, parts: Sequence[Part], limit: int, proven: Distribution | None = None
) -> dict[str, int] | None:
    """Sizes of the best distribution, or None if more than ``limit`` would have to be looked at.

    Two ways to size some of the parts are alike if they use the same nodes and the same power; of these
    only the one that changes fewest nodes can be part of an optimum. ``proven`` has as few idle nodes as the
    optimum: then that number is not looked for, nor what changes more nodes.
    """
    idle_nodes = None if proven is None else proven.idle_nodes
    most_changed = np.inf if proven is None else proven.changed
    used, changed = np.zeros(1, np.int64), np.zeros(1, np.int64)
    least, most = np.full(1, problem.constant.least), np.full(1, problem.constant.most)
    most_sizes = max((len(part.sizes) for part in parts), default=0)
    # The size of the last follows from the number of idle nodes. Equal power side by side: alike at once.
    order = sorted(parts, key=lambda part: (len(part.sizes) == most_sizes, part.power))
    needed = sum(part.sizes[0] for part in order)
    steps: list[tuple[Ints, Ints]] = []
    for part in order:
        sizes = _array(part.sizes)
        needed -= part.sizes[0]
        if part is order[-1] and idle_nodes is not None:
            size = problem.nodes - idle_nodes - used
            before = np.flatnonzero(np.isin(size, sizes))
            size = size[before]
        elif len(used) * len(sizes) > 4 * limit:
            return None
        else:
            before, chosen = np.nonzero(used[:, None] + sizes + needed <= problem.nodes)
            size = sizes[chosen]
        allowed = changed[before] + abs(size - part.now) <= most_changed
        before, size = before[allowed], size[allowed]
        used, changed = used[before] + size, changed[before] + abs(size - part.now)
        least, most = least[before] + part.power.least * size, most[before] + part.power.most * size
        if len(used) > _FEW:
            keep = _unlike(used, least, most, changed)
            used, changed, least, most = used[keep], changed[keep], least[keep], most[keep]
            before, size = before[keep], size[keep]
        if len(used) > limit:
            return None
        steps.append((before, size))
    idle = problem.nodes - used
    best = best_index(problem, idle, changed, least + idle * problem.idle, most + idle * problem.idle)
    found: dict[str, int] = {}
    for part, (before, size) in zip(reversed(order), reversed(steps), strict=True):
        found[part.id] = int(size[best])
        best = int(before[best])
    return found


def _array(sizes: Sequence[int]) -> Ints:
    if isinstance(sizes, range):  # much faster than through its numbers
        return np.arange(sizes.start, sizes.stop, sizes.step, dtype=np.int64)
    return np.asarray(sizes, np.int64)


def best_index(problem: CorridorProblem, idle: Ints, changed: Ints, least: Floats, most: Floats) -> int:
    """The first in the order of the program: nearest to the corridor, fewest idle, fewest changed, slack."""
    slack = np.minimum(least - problem.floor, problem.ceiling - most)
    outside = np.where(slack >= -TINY, 0.0, -slack)
    at = np.arange(len(idle))
    for level in (outside, idle, changed, -slack):
        values = level[at]
        at = at[values <= values.min() + TINY]
    return int(at[0])


def _unlike(used: Ints, least: Floats, most: Floats, changed: Ints) -> Ints:
    """One of each kind, the one that changes fewest nodes."""
    keys: list[Any] = [np.rint(most / TINY), np.rint(least / TINY), used]
    order = np.lexsort([changed, *keys])
    is_new = np.ones(len(order), bool)
    is_new[1:] = np.logical_or.reduce([np.diff(key[order]) != 0 for key in keys])
    kept: Ints = order[is_new]
    return kept
