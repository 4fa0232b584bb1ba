"""What the parts of a pipeline cost, from what their tasks took: the planner's figures, by measurement.

The planner's model of a part is a single-core time and a share of it that does not spread. Measured are the
processor time of every task, and seconds from beginning to end of the simulation, of all analyses in situ
and of all in transit, as the client saw them: Dask's own cost and the way to and fro included. What the
tasks do not explain is counted as time that does not spread. So the planner's formula gives what was
measured for the partition in force, and for others what the blocks allow.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from math import ceil, inf
from statistics import median
from typing import NamedTuple

from dask_hpc.in_situ.client.iteration import Finished
from dask_hpc.in_situ.worker import TaskRecord
from dask_hpc.planning.in_situ.partition import Analysis, EqualNodes, Partition, Phases, Simulation

#: the part of an iteration that is no analysis
SIMULATION = ""
WINDOW = 5  # iterations that a median is taken of
_MOST = 64  # nodes and cores that the fit of a granularity looks at


class Timing(NamedTuple):
    """One task, as the worker that ran it measured it."""

    #: ``SIMULATION``, or the name of an analysis
    part: str
    worker: str
    #: seconds of the clock and of processor time
    wall: float
    busy: float
    #: between how many blocks its work could be divided; 0 if it could not
    blocks: int = 1
    #: bytes that it made and, if they are not the simulation's, read
    memory: int = 0


class Fetched(NamedTuple):
    """What an analysis in transit fetched from the simulation's nodes."""

    part: str
    nbytes: int
    seconds: float


class ObservedIteration(NamedTuple):
    """One iteration."""

    timings: Sequence[Timing]
    moves: Sequence[Fetched]
    #: from the beginning of each to its end, waiting for one another not included
    phases: Phases


class PartCost(NamedTuple):
    """Seconds on one core of what spreads over more and of what does not, tasks, and bytes."""

    spreads: float
    stays: float
    tasks: int = 0
    memory: float = 0.0
    #: seconds that the tasks lasted beyond their processor time
    idle: float = 0.0

    @property
    def time(self) -> float:
        return self.spreads + self.stays

    @property
    def serial(self) -> float:
        return self.stays / self.time if self.time else 0.0


@cache
def granularity(blocks: int, nodes: int, cores: int) -> float:
    """The share of the time of so many equal blocks that does not spread, as nearly as a share can say it.

    The blocks of a node take turns on its cores, ``ceil(ceil(blocks / n) / k)`` of them; this is the
    least-squares fit of ``serial + (1 - serial) / (n k)`` to that for every n and k up to the machine's.
    """
    above = below = 0.0
    for n in range(1, min(nodes, _MOST) + 1):
        for k in range(1, min(cores, _MOST) + 1):
            apart = 1 - 1 / (n * k)
            above += (ceil(ceil(blocks / n) / k) / blocks - 1 / (n * k)) * apart
            below += apart * apart
    return min(1.0, max(0.0, above / below)) if below else 0.0


def cost(timings: Sequence[Timing], machine: EqualNodes) -> PartCost:
    """What one part of one iteration costs by its tasks alone."""
    divided = sum(one.busy for one in timings if one.blocks)
    alone = sum(one.busy for one in timings if not one.blocks)
    blocks = sum(one.blocks for one in timings)
    share = granularity(blocks, machine.count, machine.cores) if blocks else 0.0
    memory = float(sum(one.memory for one in timings))
    idle = sum(max(0.0, one.wall - one.busy) for one in timings)
    return PartCost((1 - share) * divided, share * divided + alone, len(timings), memory, idle)


def fitted(costs: Mapping[str, PartCost], cores: float, seconds: float) -> dict[str, PartCost]:
    """The same costs, such that together they take these seconds on so many cores.

    Of time that is missing, tasks that waited (for a file, a lock, a core) are given what they waited first,
    and the rest does not spread: it is what Dask needs for each task. Where parts took less than they would
    one after another, more of them spreads than was thought.
    """
    if cores <= 0 or not costs:
        return dict(costs)
    missing = seconds - _together(costs, cores)
    if missing >= 0:
        return _longer(costs, cores, missing)
    stays = sum(one.stays for one in costs.values())
    moved = min(1.0, -missing / (stays * (1 - 1 / cores))) if stays and cores > 1 else 0.0
    spread = {
        name: one._replace(spreads=one.spreads + moved * one.stays, stays=(1 - moved) * one.stays)
        for name, one in costs.items()
    }
    now = _together(spread, cores)
    less = min(1.0, seconds / now) if now else 1.0
    return {
        name: one._replace(spreads=less * one.spreads, stays=less * one.stays) for name, one in spread.items()
    }


def _longer(costs: Mapping[str, PartCost], cores: float, missing: float) -> dict[str, PartCost]:
    waited = {name: _with_idle(one) for name, one in costs.items()}
    idle = _together(waited, cores) - _together(costs, cores)
    share = min(1.0, missing / idle) if idle else 0.0
    rest = max(0.0, missing - share * idle)  # no share may be less than nothing, be it by rounding
    tasks = sum(one.tasks for one in costs.values())
    return {
        name: one._replace(
            spreads=one.spreads + share * (waited[name].spreads - one.spreads),
            stays=one.stays
            + share * (waited[name].stays - one.stays)
            + rest * (one.tasks / tasks if tasks else 1 / len(costs)),
        )
        for name, one in costs.items()
    }


def _with_idle(one: PartCost) -> PartCost:
    """As if what its tasks waited were work like theirs."""
    serial = one.serial if one.time else 1.0
    return one._replace(spreads=one.spreads + (1 - serial) * one.idle, stays=one.stays + serial * one.idle)


def _together(costs: Mapping[str, PartCost], cores: float) -> float:
    return sum(one.stays + one.spreads / cores for one in costs.values())


class PipelineCosts:
    """The last iterations of a pipeline, and what they say of its parts."""

    def __init__(self, declared: Iterable[Analysis] = ()) -> None:
        #: what analyses are said to cost, until they were measured
        self._declared = {one.name: one for one in declared}
        self._iterations: deque[ObservedIteration] = deque(maxlen=WINDOW)
        self._costs: dict[str, PartCost] = {}
        self._moved: dict[str, int] = {}
        #: bytes per second that a staging node fetched; inf as long as none did
        self.bandwidth = inf
        #: iterations since the partition came into force
        self.count = 0

    def restart(self) -> None:
        """Another partition comes into force: phases say nothing of it, what parts cost stays known."""
        self._iterations.clear()
        self.count = 0

    def add(self, one: ObservedIteration, machine: EqualNodes, partition: Partition) -> None:
        """One more iteration was measured under the partition in force."""
        self._iterations.append(one)
        self.count += 1
        self._moved.update((move.part, move.nbytes) for move in one.moves)
        rates = [
            sum(move.nbytes for move in seen.moves) / seconds
            for seen in self._iterations
            if (seconds := sum(move.seconds for move in seen.moves)) > 0
        ]
        self.bandwidth = median(rates) if rates else self.bandwidth
        costs = [self._costs_in(seen, machine) for seen in self._iterations]
        known = {part: [seen[part] for seen in costs if part in seen] for seen in costs for part in seen}
        medians = {part: PartCost(*map(median, zip(*found, strict=True))) for part, found in known.items()}
        phases = self.phases
        assert phases is not None
        moving = sum(self._moved.get(name, 0) for name in partition.in_transit) / self.bandwidth
        staging = max(0.0, machine.count - partition.nodes)
        in_transit = max(0.0, phases.in_transit - (moving / staging if staging else 0.0))
        sides = (
            ((SIMULATION,), phases.simulation),
            (partition.in_situ, phases.in_situ),
            (partition.in_transit, in_transit),
        )
        for names, seconds in sides:
            side = {name: medians[name] for name in names if name in medians}
            if side:
                self._costs |= fitted(side, cores_of(names[0], machine, partition), seconds)

    @property
    def phases(self) -> Phases | None:
        """Seconds of each part of an iteration under the partition in force (medians). None before any."""
        if not self._iterations:
            return None
        return Phases(
            *(median(column) for column in zip(*(one.phases for one in self._iterations), strict=True))
        )

    @property
    def simulation(self) -> Simulation:
        """The simulation as measured; it costs nothing as long as it was not."""
        known = self._costs.get(SIMULATION, PartCost(0.0, 0.0))
        return Simulation(time=known.time, memory=known.memory, serial=known.serial)

    def analyses(self, names: Iterable[str]) -> tuple[Analysis, ...]:
        """Analyses as measured, or as declared before; without either they cost nothing."""
        return tuple(self._analysis(name) for name in names)

    def _analysis(self, name: str) -> Analysis:
        said = self._declared.get(name, Analysis(name=name, time=0.0))
        known = self._costs.get(name)
        if known is None:
            return said
        memory = max(known.memory, said.memory)
        moved = self._moved.get(name, said.moved)
        return Analysis(name=name, time=known.time, memory=memory, moved=moved, serial=known.serial)

    @staticmethod
    def _costs_in(one: ObservedIteration, machine: EqualNodes) -> dict[str, PartCost]:
        by_part: dict[str, list[Timing]] = {}
        for timing in one.timings:
            by_part.setdefault(timing.part, []).append(timing)
        return {part: cost(timings, machine) for part, timings in by_part.items()}


def cores_of(part: str, machine: EqualNodes, partition: Partition) -> float:
    """On how many cores a part of an iteration runs."""
    if part in partition.in_transit:
        return machine.cores * (machine.count - partition.nodes)
    if partition.mode == "sync":
        return machine.cores * partition.nodes
    if part == SIMULATION:
        return (machine.cores - partition.helper_cores) * partition.nodes
    return partition.helper_cores * partition.nodes


_LOOKS = ("analysis", "combine")


class BusySpan(NamedTuple):
    """Seconds of some clock."""

    start: float
    stop: float


class Observer:
    """Makes one observation of each iteration; remembers what the next one has to know of the last."""

    def __init__(self, wholes: Collection[str]) -> None:
        #: the analyses that see the whole state at once
        self._wholes = wholes
        self._stepped = float("-inf")
        self._held = 0.0
        #: by staging worker, until when it was busy with earlier iterations
        self._until: dict[str, float] = {}

    def observe(self, done: Finished) -> ObservedIteration:
        """An iteration is done, the one after the last that was observed."""
        places = done.orders.places
        inside = [one for one in done.records if one.part in _LOOKS and one.side == "in situ"]
        in_situ = max(map(total, spans_by_worker(inside)), default=0.0)
        in_transit, moving = self._staged(done.records)
        step = max(0.0, done.stepped - max(done.submitted, self._stepped))
        if places.mode == "sync":  # it waited for what ran in situ before
            step = max(0.0, step - self._held)
        self._stepped, self._held = done.stepped, in_situ
        timings = [self._timing(one) for one in done.records if one.part not in ("parcel", "carry")]
        moves = _moves(done.records, moving, max(1, len({place.node for place in places.staging})))
        return ObservedIteration(timings, moves, Phases(step, in_situ, in_transit))

    def _staged(self, records: Sequence[TaskRecord]) -> tuple[float, float]:
        """Seconds in which the busiest staging worker was busy, and how long of it nothing ran there."""
        left: dict[str, float] = {}
        for one in records:
            if one.part == "parcel":
                left[one.name] = max(left.get(one.name, one.stop), one.stop)
        by_worker: dict[str, list[TaskRecord]] = {}
        for one in records:
            if one.part in _LOOKS and one.side == "in transit":
                by_worker.setdefault(one.worker, []).append(one)
        found = [(0.0, 0.0)]
        for worker, ran in by_worker.items():
            until = self._until.get(worker, float("-inf"))
            spans = [
                BusySpan(min(one.start, max(until, left.get(one.name, left.get("", one.start)))), one.stop)
                for one in ran
            ]
            busy = total(spans)
            found.append((busy, busy - total([BusySpan(one.start, one.stop) for one in ran])))
            self._until[worker] = max(until, *(one.stop for one in ran))
        return max(found)

    def _timing(self, one: TaskRecord) -> Timing:
        blocks = 0 if one.part == "combine" or one.name in self._wholes else len(one.blocks)
        part = SIMULATION if one.part == "step" else one.name
        return Timing(part, one.worker, one.wall, one.cpu, blocks, one.bytes_in + one.bytes_out)


def total(spans: Iterable[BusySpan]) -> float:
    """Seconds that at least one of them covers."""
    seconds, until = 0.0, float("-inf")
    for span in sorted(spans):
        seconds += max(0.0, span.stop - max(span.start, until))
        until = max(until, span.stop)
    return seconds


def spans_by_worker(records: Iterable[TaskRecord]) -> Iterable[list[BusySpan]]:
    by_worker: dict[str, list[BusySpan]] = {}
    for one in records:
        by_worker.setdefault(one.worker, []).append(BusySpan(one.start, one.stop))
    return by_worker.values()


def _moves(records: Iterable[TaskRecord], seconds: float, staging: int) -> list[Fetched]:
    """By analysis, what left the simulation's nodes for it. A parcel for several is the first one's: it is
    moved once for all of them."""
    sizes: dict[str, int] = {}
    for one in records:
        if one.part == "parcel":
            sizes[one.name] = sizes.get(one.name, 0) + one.bytes_out
    together = sum(sizes.values())
    return [
        Fetched(name, size, staging * seconds * size / together) for name, size in sizes.items() if together
    ]
