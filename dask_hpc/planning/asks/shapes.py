"""Which shape of batch jobs waits least for the work to be done: walltime x nodes of a job x partition x
quality of service.

The objective. There is so much work (seconds of one node), to be done by at most so many nodes at once. A
unit that starts works from ``overhead`` after its start (its workers connect and load) to the end of its
walltime; when the work is not done by then, a successor takes its place, asked for when the unit began. Of
each shape it is found when the work is done and how long its jobs wait, in each course of a ``Replay``.
Shapes with which the work is done later than with the usual one are out, unless they are about the first of
all (worse by no more than ``tie``). Of the others those are kept whose jobs wait about the least, then those
that are about the first to be done. Among them the first of the qualities of service as the user lists them,
then fewer node-seconds, then fewer jobs. A shape whose work is done late because it starts late, and one
that is done late because its walltimes are all overhead, lose alike.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heapreplace
from math import ceil, floor, inf
from statistics import fmean

from dask_hpc.model.errors import insist, is_number
from dask_hpc.model.units import show_duration
from dask_hpc.planning.asks.queue import QueuePartition, QueueQos, QueueView
from dask_hpc.planning.asks.replay import AskFamily, Replay, Starts

#: minutes; between two neighbours there is no use in asking
LADDER = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 40, 60, 90, 120, 180, 240, 360, 480, 720, 1440, 2880, 4320)
_KEPT = 10  # shapes that are played in all courses; the others lose in the first
_HOLES = 4  # holes of a partition that a walltime is cut for
_ALIKE, _ENOUGH = 3.0, 5  # walltimes up to that factor; so many of them
_SPARE = 1.25  # a walltime is so much longer than the work that is known
_FEW = 40  # units that are played; more start as the last of them


@dataclass(frozen=True, slots=True)
class AskShape:
    """What one batch job asks for."""

    walltime: float
    partition: str = ""
    qos: str = ""
    nodes: int = 1

    def __str__(self) -> str:
        words = show_duration(self.walltime)
        words += f" x {self.nodes} nodes" if self.nodes > 1 else ""
        words += f" on {self.partition}" if self.partition else ""
        return words + (f" as {self.qos}" if self.qos else "")


@dataclass(frozen=True, slots=True)
class WantedWork:
    """What is to be done: seconds of work of one node, by at most ``most`` nodes at once."""

    seconds: float
    most: int
    #: seconds of each unit in which nothing is done
    overhead: float = 60.0
    #: no walltime is shorter: the longest task has to fit
    least: float = 60.0
    #: node-seconds that may be asked for
    budget: float = inf
    #: how long jobs lately waited: their walltimes, and the waits
    waits: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        insist(is_number(self.seconds, 0, 1e15), "work", self.seconds, "seconds, 0 or more")
        insist(type(self.most) is int and self.most >= 1, "most nodes", self.most, "a whole number >= 1")
        insist(is_number(self.overhead, 0, 1e9), "overhead", self.overhead, "seconds, 0 or more")

    def wait_again(self, walltime: float) -> float:
        """What a successor has to reckon with, who finds no hole that is there today: the mean wait of those
        who asked for about as much lately."""
        alike = [wait for limit, wait in self.waits if walltime / _ALIKE <= limit <= walltime * _ALIKE]
        found = alike if len(alike) >= _ENOUGH else [wait for _, wait in self.waits]
        return fmean(found) if found else 0.0


@dataclass(frozen=True, slots=True)
class FoundShape:
    """A shape, how many jobs of it, when they would start, and when the work would be done (seconds from now,
    the mean of all courses)."""

    shape: AskShape
    count: int
    starts: Starts
    now: float
    done: float
    #: how long its jobs wait, the mean
    waits: float = 0.0
    #: jobs that it takes in all, successors too
    jobs: int = 1

    @property
    def node_seconds(self) -> float:
        """Asked for by all its jobs, successors too."""
        return self.jobs * self.shape.nodes * self.shape.walltime

    def wait(self, level: float = 0.5) -> float:
        """Until its first job starts."""
        return max(0.0, self.starts.at(level) - self.now)

    def interval(self, unit: int = 0) -> tuple[float, float]:
        """Seconds from now that hold the start of that job in four of five courses."""
        low, high = self.starts.interval(unit)
        return max(0.0, low - self.now), max(0.0, high - self.now)

    def __str__(self) -> str:
        wait = self.wait()
        when = "now" if wait < 1 else "never" if wait == inf else f"in {show_duration(wait)}"
        return f"{self.count} x {self.shape} starts {when}"


@dataclass(frozen=True, slots=True)
class ShapeChoice:
    """The best shape, the one that would have been asked for otherwise, and all that were looked at."""

    best: FoundShape
    usual: FoundShape | None
    others: tuple[FoundShape, ...] = ()

    @property
    def why(self) -> str:
        """In one line."""
        usual = self.usual
        if usual is None or usual.shape == self.best.shape:
            rival = next((one for one in self.others if one.shape != self.best.shape), None)
            words = f"; {rival} at best".replace(" starts ", " would start ") if rival else ""
            return f"{self.best}{words}"
        return f"{self.best}; {usual}".replace(f"{usual}", f"{usual}".replace(" starts ", " would start "))


def best_shape(
    replay: Replay,
    work: WantedWork,
    *,
    usual: AskShape | None = None,
    partitions: Sequence[str] = (),
    qos: Sequence[str] = (),
    nodes: Sequence[int] = (1,),
    resolution: float = 60.0,
    tie: float = 0.05,
) -> ShapeChoice | None:
    """The shape that waits least of those with which the work is done no later than with the usual one, or
    None if no job would ever start. ``partitions`` and ``qos`` are those that may be named; with none, all
    partitions that are up, and the default quality."""
    shapes = list(shapes_of(replay, work, partitions, qos, nodes, resolution))
    if usual is not None and usual not in shapes:
        shapes.append(usual)
    if len(shapes) > _KEPT:
        rough = replace(replay, courses=1)
        found = [one for one in _judged(rough, work, shapes, qos) if one.done < inf]
        found.sort(key=lambda one: one.done)
        soonest = sorted(found[_KEPT // 2 :], key=lambda one: (one.waits, one.done))
        kept = [one.shape for one in (found[: _KEPT // 2] + soonest)[:_KEPT]]
        shapes = kept if usual is None or usual in kept else [*kept, usual]
    judged = [one for one in _judged(replay, work, shapes, qos) if one.starts.courses]
    good = [one for one in judged if one.done < inf]
    if not good:
        return None
    expected = next((one for one in judged if one.shape == usual), None)
    least = min(one.done for one in good)
    late = max(_about(least, tie), expected.done if expected is not None and expected.done < inf else 0.0)
    close = [one for one in good if one.done <= late]
    soon = _about(min(one.waits for one in close), tie) + replay.latency
    close = [one for one in close if one.waits <= soon]
    least = _about(min(one.done for one in close), tie)
    close = [one for one in close if one.done <= least]
    order = {name: place for place, name in enumerate(qos)}
    best = min(close, key=lambda one: (order.get(one.shape.qos, 0), one.node_seconds, one.jobs, one.done))
    others = tuple(sorted((one for one in good if one is not best), key=lambda one: one.done))
    return ShapeChoice(best, expected, others)


def _about(least: float, tie: float) -> float:
    return least * (1 + tie) + 1.0


def fillers(
    replay: Replay,
    work: WantedWork,
    *,
    partitions: Sequence[str] = (),
    qos: Sequence[str] = (),
    resolution: float = 60.0,
) -> list[AskShape]:
    """Units that start now where nobody waits for the nodes, each as long as it may be there if the batch
    system looks a ``latency`` from now, and no longer than the work needs: first those that may stay longest.
    None that would spend more than a quarter on ``overhead``."""
    view = replay.view
    profile, _ = replay.plan()
    least = max(work.least, 4 * work.overhead, resolution)
    found: list[AskShape] = []
    left, budget = work.seconds, work.budget
    room = [(part, profile.free_for(replay.pieces.in_partition(part))) for part in _named(view, partitions)]
    ends = [
        (min(seen_end(end, resolution) - view.now - replay.latency, part.max_time), part, name)
        for part, holes in room
        if part.min_nodes <= 1
        for name in _qualities(part, qos)
        for at, (end, count) in enumerate(holes)
        for _ in range(count - (holes[at + 1][1] if at + 1 < len(holes) else 0))
    ]
    order = {name: place for place, name in enumerate(qos)}
    ends.sort(key=lambda one: (-one[0], order.get(one[2], 0)))
    taken: dict[str, int] = {}
    usable = min(work.most, max((holes[0][1] for _, holes in room if holes), default=0))
    for longest, part, name in ends:
        if left <= 0 or len(found) >= work.most or longest < least:
            break
        quality = view.qos.get(name, QueueQos(name))
        if taken.get(part.name, 0) >= next(holes[0][1] for other, holes in room if other is part):
            continue
        if sum(one.qos == name for one in found) >= min(quality.user_jobs, quality.user_nodes):
            continue
        enough = work.overhead + _SPARE * left / max(1, usable - len(found))
        share = max(budget / max(1, usable - len(found)), min(least, budget))
        step = min(longest, quality.max_time, share, ceil(max(enough, least) / resolution) * resolution)
        step = whole(step, resolution)
        if step < least:
            continue
        for other, holes in room:
            if holes and not set(other.nodes).isdisjoint(part.nodes):
                taken[other.name] = taken.get(other.name, 0) + 1
        found.append(AskShape(step, part.name, name))
        left -= step - work.overhead
        budget -= step
    return found


def seen_end(end: float, resolution: float) -> float:
    """When a hole is over for the batch system: Slurm plans who waits at whole steps of the clock (its
    ``bf_resolution``, a minute), from the one before the time that walltimes say."""
    return whole(end, resolution)


def whole(seconds: float, resolution: float) -> float:
    """In whole steps, no more than that."""
    return seconds if seconds == inf else floor(seconds / resolution) * resolution


def _qualities(part: QueuePartition, qos: Sequence[str]) -> list[str]:
    """Those of the named ones that may be named there."""
    return [name for name in qos or ("",) if not (part.qos and name and name not in part.qos)]


def shapes_of(
    replay: Replay,
    work: WantedWork,
    partitions: Sequence[str],
    qos: Sequence[str],
    nodes: Sequence[int],
    resolution: float,
) -> Iterator[AskShape]:
    """All that can be asked for within the limits of partitions and qualities of service."""
    view = replay.view
    profile, _ = replay.plan()
    enough = work.overhead + work.seconds  # one unit needs no longer
    for part in _named(view, partitions):
        holes = profile.free_for(replay.pieces.in_partition(part))[-_HOLES - 1 :]
        cut = [whole(seen_end(end, resolution) - view.now, resolution) for end, _ in holes if end < inf]
        for name in _qualities(part, qos):
            quality = view.qos.get(name, QueueQos(name))
            longest = min(part.max_time, quality.max_time)
            steps = {minutes * resolution for minutes in LADDER} | set(cut)
            if longest < inf:
                steps.add(whole(longest, resolution))
            fitting = sorted(step for step in steps if max(work.least, resolution) <= step <= longest)
            # the first that is enough for all, and no longer ones
            useful = fitting[: next((at + 1 for at, step in enumerate(fitting) if step >= enough), None)]
            for size in nodes:
                if part.min_nodes <= size <= min(part.max_nodes, quality.max_nodes, work.most):
                    yield from (AskShape(step, part.name, name, size) for step in useful)


def _named(view: QueueView, partitions: Sequence[str]) -> list[QueuePartition]:
    if partitions:
        return [view.partitions[name] for name in partitions if name in view.partitions]
    return [part for part in view.partitions.values() if part.is_up and part.is_open]


def units_needed(work: WantedWork, shape: AskShape, quality: QueueQos | None = None) -> int:
    """How many jobs of a shape are asked for at once: as many as the work keeps busy for a walltime."""
    useful = max(shape.walltime - work.overhead, 0.0) * shape.nodes
    if not useful:
        return 0
    count = min(ceil(work.seconds / useful), work.most // shape.nodes)
    if quality is not None:
        count = int(min(count, quality.user_jobs, quality.user_nodes // shape.nodes))
    if work.budget < inf:
        count = min(count, floor(work.budget / (shape.walltime * shape.nodes)))
    return max(count, 0) if work.seconds else min(1, count)


def _judged(
    replay: Replay, work: WantedWork, shapes: Iterable[AskShape], qos: Sequence[str]
) -> list[FoundShape]:
    view = replay.view
    counts = {shape: units_needed(work, shape, view.qos.get(shape.qos)) for shape in shapes}
    families = [
        AskFamily(str(at), min(count, _FEW), shape.nodes, shape.walltime, *_place(replay, shape))
        for at, (shape, count) in enumerate(counts.items())
        if count
    ]
    starts, _ = replay.starts(families)
    found = []
    for at, (shape, count) in enumerate(counts.items()):
        if count:
            ours = starts[str(at)]
            ends = [_done(course, shape, count, work, view.now) for course in ours.courses]
            useful = (shape.walltime - work.overhead) * shape.nodes
            jobs = max(count, ceil(work.seconds / useful))
            waits = fmean(time - view.now for course in ours.courses for time in course)
            found.append(FoundShape(shape, count, ours, view.now, fmean(ends), waits, jobs))
    return found


def _place(replay: Replay, shape: AskShape) -> tuple[int, int]:
    """The pieces that a shape may take, and its tier."""
    part = replay.view.partitions.get(shape.partition)
    if part is None:
        part = next((one for one in replay.view.partitions.values() if one.is_default), None)
    if part is None:
        return replay.pieces.all, 1
    return replay.pieces.in_partition(part), part.tier


def _done(course: Sequence[float], shape: AskShape, count: int, work: WantedWork, now: float) -> float:
    starts = [time - now for time in course]
    return done_after([*starts, *[starts[-1]] * (count - len(starts))], shape, work)


def done_after(starts: Sequence[float], shape: AskShape, work: WantedWork) -> float:
    """When the work is done by units that start after so many seconds each, and their successors."""
    useful = shape.walltime - work.overhead
    if useful <= 0:
        return inf
    left = work.seconds
    spans: list[tuple[float, float]] = []  # (begins to work, ends)
    again = work.wait_again(shape.walltime)
    waiting = [(start, max(start, again)) for start in starts if start < inf]  # (start, wait of the next)
    if not waiting:
        return inf
    heapify(waiting)
    while left > 0:
        start, waited = waiting[0]
        begin, end = start + work.overhead, start + shape.walltime
        spans.append((begin, end))
        left -= useful * shape.nodes
        # its successor is asked for as long before the end as jobs wait, but not before half of its life
        heapreplace(waiting, (end + max(0.0, waited - shape.walltime / 2), waited))
    # there is enough now; units that start later might still help before the last of these is done
    last = max(end for _, end in spans)
    spans += [(start + work.overhead, start + shape.walltime) for start, _ in waiting if start < last]
    return _time_of(spans, work.seconds / shape.nodes)


def _time_of(spans: Iterable[tuple[float, float]], needed: float) -> float:
    """When so much time has gone by within the spans together."""
    edges = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
    done = 0.0
    before, active = 0.0, 0
    for time, change in edges:
        if active and done + active * (time - before) >= needed:
            return before + (needed - done) / active
        done += active * (time - before)
        before, active = time, active + change
    return before if needed <= done + 1e-6 else inf


def show_wait(seconds: float) -> str:
    """For a person: "now", "in 4.0 min", "never"."""
    return "now" if seconds < 1 else "never" if seconds == inf else f"in {show_duration(seconds)}"
