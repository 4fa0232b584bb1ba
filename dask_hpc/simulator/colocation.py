"""Serial tasks with deadlines on nodes whose cores slow each other (seed 003, 2.6.1): a small world of its
own.

Tasks of a few kinds come at random to identical nodes and wait until a heuristic gives them a core. What runs
together slows each other by a table that is the truth; a heuristic may be told another one. A task that runs
when its deadline comes is removed, and was missed; one that waits then was never assigned.

    world = ColocationWorld(SlowdownTable.of(kinds, 4, law), {"cg": 250.0, "ep": 180.0}, nodes=500)
    run = play_colocation(world, "aware", seed=1, predicted=world.table.disturbed(0.03, rng))
    run.share("completed"), run.mean_of("CU", 100.0, 800.0)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import Literal, get_args

import numpy as np

from dask_hpc.model.errors import InputError, insist, is_number, shown
from dask_hpc.planning.colocation.consolidate import (
    Assigned,
    NodeTable,
    WaitingTask,
    WaitingTasks,
    aware_slack,
    naive_slack,
)
from dask_hpc.planning.colocation.table import SlowdownTable

Heuristic = Literal["naive", "aware", "perfect"]
#: what becomes of a task
Fate = Literal["completed", "missed", "unassigned"]
#: what *aware slack* knows of work that is left: what it predicted itself, or what is true
Progress = Literal["predicted", "observed"]
#: active cores of all cores; nodes with an active core of all nodes; active cores of those of active nodes
Usage = Literal["CU", "NU", "CUAN"]

_ROUNDING = 1e-9  # seconds by which an end may be after its deadline


@dataclass(frozen=True, slots=True)
class ColocationWorld:
    """Nodes, what runs on them, and how it comes."""

    #: the true slowdowns, on nodes with as many cores as it has
    table: SlowdownTable
    #: of a task of each kind, alone
    seconds: Mapping[str, float]
    nodes: int = 500
    tasks: int = 8000
    #: mean seconds between two arrivals
    gap: float = 0.1
    #: deadlines are so many times the seconds of a task after it came, evenly drawn between these
    deadlines: tuple[float, float] = (1.2, 2.0)

    def __post_init__(self) -> None:
        for name in ("nodes", "tasks"):
            value = getattr(self, name)
            insist(isinstance(value, int) and value >= 1, name, value, "a whole number, 1 or more")
        insist(is_number(self.gap, 0, 1e9) and self.gap > 0, "gap", self.gap, "more than 0 seconds")
        least, most = self.deadlines
        fine = is_number(least, 0, inf) and is_number(most, least, inf)
        insist(fine, "deadlines", self.deadlines, "two numbers, the smaller one first")
        for kind in self.table.kinds:
            if kind not in self.seconds:
                raise InputError("seconds", f"found none of {shown(kind)}", "seconds of each kind")
            value = self.seconds[kind]
            insist(is_number(value, 0, inf) and value > 0, f"seconds: {kind}", value, "more than 0 seconds")

    @property
    def alone(self) -> tuple[float, ...]:
        """Seconds of each kind, in the order of the table."""
        return tuple(float(self.seconds[kind]) for kind in self.table.kinds)

    def draw(self, seed: int) -> "DrawnTasks":
        """One pattern of arrivals: Poisson, kinds evenly."""
        rng = np.random.default_rng((seed, 0))
        arrivals = np.cumsum(rng.exponential(self.gap, self.tasks))
        arrivals -= arrivals[0]
        kinds = rng.integers(len(self.table.kinds), size=self.tasks)
        least, most = self.deadlines
        due = arrivals + rng.uniform(least, most, self.tasks) * np.array(self.alone)[kinds]
        return DrawnTasks(arrivals, kinds, due)


@dataclass(frozen=True, slots=True)
class DrawnTasks:
    """When each task comes, of which kind it is, and when it is due."""

    arrivals: np.ndarray
    kinds: np.ndarray
    deadlines: np.ndarray

    def waiting(self, number: int, alone: Sequence[float]) -> WaitingTask:
        """A task that comes."""
        kind, deadline = int(self.kinds[number]), float(self.deadlines[number])
        return WaitingTask(deadline - alone[kind], number, kind, deadline)


@dataclass(frozen=True, slots=True)
class ColocationRun:
    """What became of each task, and how many cores and nodes were active from when on."""

    fates: Mapping[Fate, int]
    #: seconds at which something changed, and what was active from then on
    times: np.ndarray
    active_cores: np.ndarray
    active_nodes: np.ndarray
    cores: int
    nodes: int
    #: when the last task came
    last_arrival: float

    def share(self, fate: Fate) -> float:
        """Of all tasks."""
        return self.fates[fate] / sum(self.fates.values())

    def series(self, usage: Usage) -> np.ndarray:
        """From each time on; CUAN of no active node is 0."""
        if usage == "CU":
            return self.active_cores / (self.cores * self.nodes)
        if usage == "NU":
            return self.active_nodes / self.nodes
        return self.active_cores / (self.cores * np.maximum(self.active_nodes, 1))

    def mean_of(self, usage: Usage, begin: float, end: float) -> float:
        """Over this time."""
        insist(begin < end, "begin", begin, f"before {end}")
        edges = np.clip(np.append(self.times, inf), begin, end)
        return float(np.diff(edges) @ self.series(usage)) / (end - begin)

    def peak_of(self, usage: Usage) -> float:
        """The most at any time."""
        return float(self.series(usage).max())


def play_colocation(
    world: ColocationWorld,
    heuristic: Heuristic,
    seed: int = 0,
    predicted: SlowdownTable | None = None,
    progress: Progress = "predicted",
) -> ColocationRun:
    """One run. The arrivals depend on the seed alone. *aware* needs the table that it is told
    (``predicted``); with the true one, it is *perfect*. Unless its ``progress`` is "observed", what it
    believes of work that is left follows from its own predictions, as in the seed; who it believes to have
    ended but has not is about to."""
    insist(heuristic in get_args(Heuristic), "heuristic", heuristic, ", ".join(get_args(Heuristic)))
    insist(progress in get_args(Progress), "progress", progress, ", ".join(get_args(Progress)))
    if (predicted is None) == (heuristic == "aware"):
        raise InputError("predicted", "found none" if predicted is None else "found one", "for aware, only")
    play = _Placements(world, world.draw(seed), heuristic, predicted, progress)
    return play.run()


@dataclass(slots=True)
class _Placements:
    """A run that goes on."""

    world: ColocationWorld
    tasks: DrawnTasks
    heuristic: Heuristic
    predicted: SlowdownTable | None
    progress: Progress
    fates: dict[Fate, int] = field(init=False)
    _true: NodeTable = field(init=False)
    _believed: NodeTable | None = field(init=False, default=None)
    _waiting: WaitingTasks = field(init=False)
    _ends: list[tuple[float, int, int]] = field(init=False, default_factory=list)
    _changes: list[int] = field(init=False)
    _active: list[tuple[float, int, int]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.fates = dict.fromkeys(get_args(Fate), 0)
        self._true = NodeTable(self.world.table, self.world.nodes)
        if self.predicted is not None and self.progress == "predicted":
            self._believed = NodeTable(self.predicted, self.world.nodes)
        self._waiting = WaitingTasks(len(self.world.table.kinds))
        self._changes = [0] * self.world.nodes

    def run(self) -> ColocationRun:
        """To the end of the last task."""
        alone, arrivals = self.world.alone, self.tasks.arrivals.tolist()
        cores = nodes = 0
        came = 0
        while came < len(arrivals) or self._ends:
            if self._ends and (came == len(arrivals) or self._ends[0][0] <= arrivals[came]):
                now, node, change = heappop(self._ends)
                if change != self._changes[node]:
                    continue  # something else has begun or ended there since
                self._end(node, now)
                cores -= 1
                nodes -= int(self._true.free[node] == self.world.table.cores)
            else:
                now = arrivals[came]
                self._waiting.add(self.tasks.waiting(came, alone))
                came += 1
            self.fates["unassigned"] += len(self._waiting.drop_late(now))
            for task, node in self._decided(now):
                nodes += int(self._true.free[node] == self.world.table.cores)
                cores += 1
                self._start(task, node, now)
            self._active.append((now, cores, nodes))
        self.fates["unassigned"] += len(self._waiting)
        times, active_cores, active_nodes = map(np.array, zip(*self._active, strict=True))
        return ColocationRun(
            self.fates,
            times,
            active_cores,
            active_nodes,
            self.world.table.cores,
            self.world.nodes,
            arrivals[-1],
        )

    def _decided(self, now: float) -> list[Assigned]:
        if not len(self._waiting):
            return []
        if self.heuristic == "naive":
            return naive_slack(self._waiting, self._true.free, now)
        if self._believed is not None:
            return aware_slack(self._waiting, self._believed, now, self.world.alone)
        return aware_slack(self._waiting, self._true, now, self.world.alone, self.predicted)

    def _start(self, task: WaitingTask, node: int, now: float) -> None:
        self._waiting.remove(task)
        work = self.world.alone[task.kind]
        for table in self._tables():
            table.start(node, task.kind, work, task.deadline, now)
        self._look_ahead(node)

    def _end(self, node: int, now: float) -> None:
        _, core = self._true.next_end(node)
        in_time = self._true.ends(node)[core] <= self._true.deadlines[node, core] + _ROUNDING
        self.fates["completed" if in_time else "missed"] += 1
        for table in self._tables():
            table.end(node, core, now)
        self._look_ahead(node)

    def _look_ahead(self, node: int) -> None:
        self._changes[node] += 1
        time, _ = self._true.next_end(node)
        if time < inf:
            heappush(self._ends, (time, node, self._changes[node]))

    def _tables(self) -> list[NodeTable]:
        return [self._true] if self._believed is None else [self._true, self._believed]
