"""How a running job proceeds: at a steady pace, or through the phases of its application.

The engine asks ``proceed`` what comes next and comes back when that is over.
"""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from math import floor, inf, nan
from typing import NamedTuple

from dask_hpc.model.job import Job
from dask_hpc.simulator.application import Application, Task
from dask_hpc.simulator.in_situ.run import PipelineRun
from dask_hpc.simulator.platform import Platform
from dask_hpc.simulator.power_trace import PowerRecord
from dask_hpc.simulator.workload import Arrival


class Wait(NamedTuple):
    """Nothing happens for so many seconds."""

    seconds: float


class Transfer(NamedTuple):
    """So many nodes read or write so many bytes each."""

    nodes: int
    bytes_per_node: float


class Ask(NamedTuple):
    """An evolving job asks for so many nodes."""

    nodes: int


class Point(NamedTuple):
    """A scheduling point: the job can change its size here."""


Step = Wait | Transfer | Ask | Point


class Steady:
    """Work that proceeds at a pace that the speed-up model knows for each size."""

    __slots__ = ("_arrival", "_asked", "_done", "_since", "nodes")

    def __init__(self, arrival: Arrival, done: float = 0.0) -> None:
        self._arrival = arrival
        self._done = done
        self._since = 0.0
        self.nodes = 0
        self._asked = sum(share <= done for share, _ in arrival.requests)

    def begin(self, now: float, nodes: int) -> None:
        """Go on from ``now`` on so many nodes."""
        self._since, self.nodes = now, nodes

    def stand_still(self, now: float) -> None:
        """Stop working, to go on with ``begin``."""
        self._done = self.done(now)
        self._since = inf

    @property
    def stands_still(self) -> bool:
        """Whether it was stopped, and not begun again."""
        return self._since == inf

    def proceed(self, now: float) -> Step | None:
        """What comes next; None at the end."""
        self._done, self._since = self.done(now), now
        duration = self._duration
        nothing = 1e-9 * max(now, 1.0)  # a rounding error of the clock is not work left to do
        requests = self._arrival.requests
        if self._asked < len(requests):
            share, nodes = requests[self._asked]
            wait = (share - self._done) * duration
            if wait > nothing:
                return Wait(wait)
            self._asked += 1
            return Ask(nodes)
        left = (1.0 - self._done) * duration
        return Wait(left) if left > nothing else None

    def done(self, now: float) -> float:
        """The share of the work that is done."""
        if now <= self._since or not self.nodes:
            return self._done
        duration = self._duration
        return min(1.0, self._done + (now - self._since) / duration) if duration else 1.0

    def saved(self, now: float, interval: float) -> float:
        """The share of the work that the last checkpoint holds."""
        runtime = self._arrival.runtime
        if not interval or not runtime:
            return 0.0
        return floor(self.done(now) * runtime / interval) * interval / runtime

    def mtct(self) -> float | None:
        """Communication over compute time at this size."""
        return self._arrival.speedup.mtct(self.nodes)

    @property
    def _duration(self) -> float:
        arrival = self._arrival
        if self.nodes == arrival.job.nodes:
            return arrival.runtime
        speedup = arrival.speedup
        return arrival.runtime * speedup.factor(arrival.job.nodes) / speedup.factor(self.nodes)


@dataclass(slots=True)
class _Measured:
    compute: float = 0.0
    other: float = 0.0


class Phased:
    """An application's tasks, one after the other, evaluated for the size at hand."""

    __slots__ = ("_application", "_extra", "_is_last", "_iterations", "_measured", "_platform", "_rounds",
                 "_steps", "nodes")  # fmt: skip

    def __init__(self, application: Application, platform: Platform, done: float = 0.0) -> None:
        self._application = application
        self._platform = platform
        self.nodes = 0
        self._extra: list[Task] = []  # after a resize, before the next iteration
        self._measured = _Measured()
        self._iterations = sum(phase.iterations for phase in application.phases)
        #: iterations ended so far
        self._rounds = round(done * self._iterations)
        #: whether the task at hand is its iteration's last
        self._is_last = False
        self._steps = self._run()

    def begin(self, now: float, nodes: int) -> None:
        """Go on on so many nodes."""
        if self.nodes:
            self._extra = list(self._application.on_resize)
            if nodes > self.nodes:
                self._extra += self._application.on_expansion
        self.nodes = nodes

    def stand_still(self, now: float) -> None:
        """The step at hand stops; used between steps only."""

    def proceed(self, now: float) -> Step | None:
        """What comes next; None at the end."""
        return next(self._steps, None)

    def done(self, now: float) -> float:
        """The share of the iterations that are done."""
        return self._rounds / self._iterations if self._iterations else 1.0

    def reached(self) -> float:
        """The same at the end of the task at hand."""
        return (self._rounds + self._is_last) / self._iterations if self._iterations else 1.0

    def saved(self, now: float, interval: float) -> float:
        """With checkpoints, the iterations that are done are safe."""
        return self.done(now) if interval else 0.0

    def mtct(self) -> float | None:
        """Everything but computing over computing, since the job started; None before it computed."""
        return self._measured.other / self._measured.compute if self._measured.compute else None

    def _run(self) -> Iterator[Step]:
        for task in self._application.on_start:
            yield from self._step(task)
        skipped, first = self._rounds, True
        for phase in self._application.phases:
            for _ in range(phase.iterations):
                if skipped:
                    skipped -= 1
                    continue
                if phase.request is not None:
                    yield Ask(int(phase.request(self.nodes)))
                if phase.scheduling_point and not first:
                    yield Point()
                first = False
                while self._extra:
                    yield from self._step(self._extra.pop(0))
                for place, task in enumerate(phase.tasks, 1):
                    self._is_last = place == len(phase.tasks)
                    yield from self._step(task)
                self._is_last = False
                self._rounds += 1

    def _step(self, task: Task) -> Iterator[Step]:
        amount = max(0.0, task.amount(self.nodes))
        platform = self._platform
        if task.kind in ("read", "write"):
            yield Transfer(1 if task.root_only else self.nodes, amount)
            return
        rate = {"compute": platform.speed, "communicate": platform.link, "idle": 1.0}[task.kind]
        seconds = amount / rate
        if task.kind == "compute":
            self._measured.compute += seconds
        else:
            self._measured.other += seconds
        yield Wait(seconds)


STATES = ("waiting", "running", "completed", "killed", "cancelled", "rejected")


@dataclass(slots=True)
class Details:
    """What only some jobs have: those that were resized, stopped, or drew power of their own."""

    node_seconds: float = 0.0
    resizes: int = 0
    moved_bytes: float = 0.0
    restarts: int = 0
    #: node-seconds of work that failures undid
    lost: float = 0.0
    commits: int = 0
    #: seconds of standing still for commits, and for reading them back
    commit_time: float = 0.0
    commit_bytes: float = 0.0


class Record:
    """Columns of machine numbers, 29 bytes a job beside its name.

    With ``allotments`` also who held which nodes from when on, which a picture needs: ``(time, row,
    nodes)``, with no nodes at the end.
    """

    __slots__ = ("allotments", "details", "drawn", "end", "id", "nodes", "pipelines", "power", "start",
                 "state", "submit", "transfer")  # fmt: skip

    def __init__(self, *, allotments: bool = False) -> None:
        self.allotments: list[tuple[float, int, tuple[str, ...]]] | None = [] if allotments else None
        self.id: list[str] = []
        self.submit = array("d")
        self.start = array("d")
        self.end = array("d")
        self.nodes = array("i")
        self.state = bytearray()
        self.details: dict[int, Details] = {}
        #: what in situ pipelines did
        self.pipelines: dict[int, PipelineRun] = {}
        #: watts per node of jobs that say so
        self.power: dict[int, float] = {}
        #: the machine's power over time, if that is followed
        self.drawn: PowerRecord | None = None
        #: mean seconds of a read or write on the shared file system
        self.transfer = nan

    def submitted(self, row: int, job: Job) -> None:
        """A new row."""
        self.id.append(job.id)
        self.submit.append(job.submitted)
        self.start.append(nan)
        self.end.append(nan)
        self.nodes.append(job.nodes)
        self.state.append(0)
        if job.power is not None:
            self.power[row] = (job.power.least + job.power.most) / 2

    def started(self, row: int, time: float, nodes: tuple[str, ...]) -> None:
        """It left the queue; only the first time counts as its start."""
        if not self.state[row]:
            self.start[row] = time
            self.state[row] = 1
        if self.allotments is not None:
            self.allotments.append((time, row, nodes))

    def held(self, row: int, time: float, nodes: tuple[str, ...]) -> None:
        """From now on it holds these nodes."""
        if self.allotments is not None:
            self.allotments.append((time, row, nodes))

    def ended(self, row: int, time: float, state: str) -> None:
        """It is over: completed, killed, cancelled or rejected."""
        if state != "rejected":
            self.end[row] = time
        self.state[row] = STATES.index(state)
        if self.allotments is not None:
            self.allotments.append((time, row, ()))

    def detail(self, row: int) -> Details:
        """The details of a row, made when they are first asked for."""
        found = self.details.get(row)
        if found is None:
            found = self.details[row] = Details()
        return found
