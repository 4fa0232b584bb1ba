"""A batch system's queue to ask in: other people's jobs under a policy, and ours among them.

The engine plays it; whoever asks sees what one sees of a real queue (``planning.asks.queue.QueueView``) and
no more, submits, withdraws, and gives nodes back.
"""

from collections.abc import Iterable, Iterator
from math import inf
from pathlib import Path

from dask_hpc.model.job import Job
from dask_hpc.model.plan import Plan
from dask_hpc.planning.asks.queue import PendingAsk, QueueNode, QueuePartition, QueueView, RunningAsk
from dask_hpc.policy import Policy
from dask_hpc.simulator.engine import Engine
from dask_hpc.simulator.platform import Platform
from dask_hpc.simulator.service import MachineService
from dask_hpc.simulator.workload import Arrival

PARTITION = "batch"


class _StartWatch(MachineService):
    """Notes when jobs start."""

    follows_decisions = True

    def __init__(self) -> None:
        self.started: dict[str, float] = {}

    def carried_out(self, plan: Plan) -> None:
        self.started |= dict.fromkeys((start.job for start in plan.starts), self.site.indices.now)


class SimulatedBatchQueue:
    """One partition of whole nodes. Nothing is submitted by others after ``background`` has ended."""

    def __init__(
        self,
        nodes: int,
        background: Iterable[Arrival],
        policy: str | Path | Policy = "conservative-backfill",
        longest: float = inf,
    ) -> None:
        self._watch = _StartWatch()
        self._engine = Engine(Platform(nodes), Policy.load(policy), services=[self._watch])
        self._arrivals = iter(background)
        self._next = next(self._arrivals, None)
        self._longest = longest
        #: of our jobs: how long they run
        self._mine: dict[str, float] = {}
        self.now = 0.0
        #: when each of our jobs started, and when it ends or has ended
        self.started: dict[str, float] = {}
        self.ended: dict[str, float] = {}

    def advance(self, until: float) -> None:
        """Let time go by."""
        self._engine.run(self._until(until), until=until)
        self.now = until
        for name in [name for name in self._mine if name in self._watch.started]:
            self.started[name] = self._watch.started[name]
            self.ended[name] = self.started[name] + self._mine.pop(name)
        self._watch.started.clear()

    def _until(self, until: float) -> Iterator[Arrival]:
        while self._next is not None and self._next.job.submitted <= until:
            yield self._next
            self._next = next(self._arrivals, None)

    def submit(self, name: str, nodes: int, walltime: float, runtime: float = inf) -> None:
        """A job of ours. It runs as long as said, or to its walltime."""
        self._mine[name] = min(runtime, walltime)
        job = Job(id=name, nodes=nodes, walltime=walltime, submitted=self.now, user="me")
        self._engine.run(iter((Arrival(job, self._mine[name]),)), until=self.now)
        self.advance(self.now)

    def withdraw(self, name: str) -> None:
        """A job of ours is not wanted any more, whether it waits or runs."""
        self._engine.withdraw(name)
        self._mine.pop(name, None)
        self.ended[name] = min(self.now, self.ended.get(name, inf))

    def view(self) -> QueueView:
        """The queue as anybody sees it now."""
        indices = self._engine.indices
        idle = set(indices.idle)
        names = tuple(indices.nodes)
        nodes = {name: QueueNode(name, 1, free_cores=int(name in idle)) for name in names}
        running = tuple(
            RunningAsk(one.job.id, one.nodes, one.started, one.job.walltime, submitted=one.job.submitted)
            for one in indices.running.values()
        )
        pending = tuple(
            PendingAsk(job.id, (PARTITION,), job.nodes, job.walltime, submitted=job.submitted)
            for job in indices.waiting
        )
        partition = QueuePartition(PARTITION, names, max_time=self._longest, is_default=True)
        return QueueView(self.now, nodes, {PARTITION: partition}, running, pending, me="me")
