"""The corridor's best distribution by looking at every one of them, those that are alike only once."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from math import inf, isinf, prod
from typing import Any

import numpy as np

from dask_hpc.model.job import runs
from dask_hpc.planning.corridor.problem import TINY, CorridorProblem, Distribution, Flags, Floats, Ints, Part

_FEW = 20_000  # are not worth a search for those that are alike


def enumerate_all(
    problem: CorridorProblem, parts: Sequence[Part], limit: int, proven: Distribution | None = None
) -> dict[str, int] | None:
    """Sizes of the best distribution, or None if more than ``limit`` would have to be looked at.

    Two ways to size some of the parts are alike if they use the same nodes and the same power; of these
    only the one that changes fewest nodes can be part of an optimum. ``proven`` has as few idle nodes as the
    optimum: then that number is not looked for, nor what changes more nodes.
    """
    most_sizes = max((len(part.sizes) for part in parts), default=0)
    # The size of the last follows from the number of idle nodes. Equal power side by side: alike at once.
    order = sorted(parts, key=lambda part: (len(part.sizes) == most_sizes, part.power))
    if proven is None and prod(len(part.sizes) for part in parts) <= min(_FEW, limit):
        return _best_of_few(problem, order)
    idle_nodes = None if proven is None else proven.idle_nodes
    most_changed = np.inf if proven is None else proven.changed
    used, changed = np.zeros(1, np.int64), np.zeros(1, np.int64)
    least, most = np.full(1, problem.constant.least), np.full(1, problem.constant.most)
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


def _best_of_few(problem: CorridorProblem, order: Sequence[Part]) -> dict[str, int]:
    """The same where there are few of them: all at once, as sums of everything with everything."""
    used, changed = np.zeros(1, np.int64), np.zeros(1, np.int64)
    least, most = np.full(1, problem.constant.least), np.full(1, problem.constant.most)
    for part in order:
        sizes = _array(part.sizes)
        used = np.add.outer(used, sizes).ravel()
        changed = np.add.outer(changed, abs(sizes - part.now)).ravel()
        least = np.add.outer(least, part.power.least * sizes).ravel()
        most = np.add.outer(most, part.power.most * sizes).ravel()
    idle = problem.nodes - used
    fits = np.flatnonzero(idle >= 0)
    if len(fits) < len(idle):
        idle, changed, least, most = idle[fits], changed[fits], least[fits], most[fits]
    watts = idle * problem.idle
    best = fits[best_index(problem, idle, changed, least + watts, most + watts)]
    places = np.unravel_index(best, [len(part.sizes) for part in order]) if order else ()
    return {part.id: int(part.sizes[at]) for part, at in zip(order, places, strict=True)}


def _array(sizes: Sequence[int]) -> Ints:
    if isinstance(sizes, range):  # much faster than through its numbers
        return np.arange(sizes.start, sizes.stop, sizes.step, dtype=np.int64)
    return np.asarray(sizes, np.int64)


def best_index(problem: CorridorProblem, idle: Ints, changed: Ints, least: Floats, most: Floats) -> int:
    """The first in the order of the program: nearest to the corridor, fewest idle, fewest changed, slack."""
    slack = np.minimum(least - problem.floor, problem.ceiling - most)
    outside = np.where(slack >= -TINY, 0.0, -slack)
    at = np.flatnonzero(outside <= outside.min() + TINY)
    for level in (idle, changed, -slack):
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


_CELLS = 200_000  # pairs of nodes and power, for each of which is noted whether it can be reached


def least_outside(problem: CorridorProblem, step: float) -> Floats | None:
    """For every number of idle nodes, from the fewest on, how many watts outside the most power must be.

    Power differs by multiples of ``step`` (see ``common_step``), so there are only so many different sums of
    nodes and power, and which of them there are is found part by part. inf where no sizes add up. None if
    power has no step, or there are too many. Exact if the power of all parts is known, else a bound.
    """
    parts = [part for part in problem.parts if len(part.sizes) > 1]
    free = problem.nodes - sum(part.sizes[0] for part in problem.parts)
    most = sum(part.sizes[-1] - part.sizes[0] for part in parts)
    watts = np.array([part.power.most for part in parts] or [0.0])
    lowest = float(watts.min())
    if not step and watts.max() > lowest:
        return None
    weights = np.rint((watts - lowest) / (step or 1.0)).astype(int).tolist()
    width = free * max(weights) + 1
    if (free + 1) * width > _CELLS:
        return None
    reached = np.zeros((free + 1, width), bool)
    reached[0, 0] = True
    for part, weight in zip(parts, weights, strict=False):
        reached = _reached_with(reached, part, weight)
    idle = np.arange(max(0, free - most), free + 1)
    reached = reached[free - idle]
    fixed = problem.constant.most + sum(part.power.most * part.sizes[0] for part in problem.parts)
    power = fixed + idle * problem.idle + (free - idle) * lowest
    power = power[:, None] + step * np.arange(width)
    outside = np.maximum(power - problem.ceiling, problem.floor - power)
    found: Floats = np.where(reached, np.where(outside > TINY, outside, 0.0), np.inf).min(axis=1)
    return found


def _reached_with(reached: Flags, part: Part, weight: int) -> Flags:
    """What can be reached if this part has one of its sizes, each node of it so many steps of power."""
    least = part.sizes[0]
    if not part.is_contiguous:
        found = np.zeros_like(reached)
        for size in part.sizes:
            _or_shifted(found, reached, size - least, weight)
        return found
    count, done = min(len(part.sizes), len(reached)), 1
    while done < count:
        more = min(done, count - done)
        found = reached.copy()
        _or_shifted(found, reached, more, weight)
        reached, done = found, done + more
    return reached


def _or_shifted(found: Flags, reached: Flags, nodes: int, weight: int) -> None:
    rows, columns = reached.shape
    if nodes < rows and nodes * weight < columns:
        found[nodes:, nodes * weight :] |= reached[: rows - nodes, : columns - nodes * weight]


_SCALES = (1.0, 2.0, 10.0, 100.0, 1000.0)


def common_step(watts: Floats) -> float:
    """The greatest common divisor of the differences: what exchanges of nodes between parts change power by.

    0 if there is none to speak of: watts are then measured ones, or all equal.
    """
    values = np.unique(watts)
    if len(values) < 2:
        return 0.0
    if len(values) == 2:
        return float(values[1] - values[0])
    for scale in _SCALES:
        scaled = (values - values[0]) * scale
        if np.abs(scaled - np.rint(scaled)).max() < TINY / 10:
            return float(np.gcd.reduce(np.rint(scaled).astype(np.int64))) / scale
    return 0.0


def node_step(parts: Sequence[Part]) -> int:
    """The greatest common divisor of all differences of sizes; 0 if no size can change."""
    if any(part.is_contiguous and len(part.sizes) > 1 for part in parts):
        return 1
    steps = {size - part.sizes[0] for part in parts for size in part.sizes}
    return int(np.gcd.reduce(list(steps))) if steps else 0


def down_to(limit: float, known: Floats, step: float) -> Floats:
    """The largest powers not above the limit that are a multiple of the step away from a known one."""
    if not step or isinf(limit):
        return np.full(len(known), limit)
    reached: Floats = known + np.floor((limit - known + TINY) / step) * step
    return reached


def slack_on_steps(edge: float, bound: float, known: float, step: float) -> float:
    """The largest distance from an upper edge, not above the bound, that a power on the steps can have."""
    if isinf(edge):
        return -inf
    return edge + float(down_to(bound - edge, np.array([-known]), step)[0]) if step else bound


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
