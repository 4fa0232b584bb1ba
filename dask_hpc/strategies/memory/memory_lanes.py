"""Memory lanes: tasks that would take a worker over its limit together do not run together."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from dask_hpc.model.parameter import Parameter
from dask_hpc.strategies.memory.memory_view import KindMemory, WorkerMemory
from dask_hpc.strategies.strategy import MemoryStrategy


@dataclass(frozen=True, slots=True)
class MemoryLanes(MemoryStrategy):
    """As many tasks at once on a worker as its memory has room for, by what tasks of their kind needed.

    A kind of which as many tasks fit as the worker has threads is left alone. One that nobody knows shows
    what it needs with one task on each worker; if that takes long, by what it has grown to, once it does not
    grow any more: what fills its memory for seconds says nothing before. A task that needs more than there is
    runs alone: it may be lucky, and the worker is Dask's to end.

    Dask itself stops a worker from starting tasks when memory is short (at 80 %), which is too late for those
    that run, and ends it at 95 %.
    """

    name: ClassVar[str] = "memory-lanes"
    essential = ("most", "probe")

    most: Annotated[
        float, Parameter("share of a worker's memory limit that its tasks may come to", low=0.1, high=1)
    ] = 0.9
    probe: Annotated[bool, Parameter("let a kind that nobody knows begin with one task on each worker")] = (
        True
    )
    patience: Annotated[
        float,
        Parameter("so long without growth, and a kind that nobody knows is judged by it", "s", low=0),
    ] = 1.0

    def need(self, kind: KindMemory, worker: WorkerMemory) -> float:
        """Bytes to count with for a task of this kind there: half of all there is, if nobody knows."""
        if kind.peak is not None:
            return kind.peak
        return 2 * kind.grown if self._is_judged(kind) else self._room(worker) / 2

    def keeps(self, kind: KindMemory, worker: WorkerMemory) -> bool:
        """Whether tasks of this kind are let pass one by one, as this worker could not run one on each
        thread."""
        if kind.peak is None and not self._is_judged(kind):
            return True
        return self.need(kind, worker) * worker.threads > self._room(worker)

    def fits(self, kind: KindMemory, worker: WorkerMemory) -> bool:
        """Whether one more may begin there now."""
        if kind.peak is None and worker.of_kind and not self._is_judged(kind):
            return False
        return not worker.running or worker.needed + self.need(kind, worker) <= self._room(worker)

    def at_once(self, kind: KindMemory, worker: WorkerMemory) -> int:
        """How many of them run there at once, if nothing else does."""
        if kind.peak is None and not self._is_judged(kind):
            return 1
        need, room = self.need(kind, worker), self._room(worker)
        return worker.threads if need * worker.threads <= room else max(1, int(room / need))

    def _room(self, worker: WorkerMemory) -> float:
        return max(0.0, self.most * worker.limit - worker.base)

    def _is_judged(self, kind: KindMemory) -> bool:
        """Of a kind none of which has ended: whether what it has grown to counts."""
        return not self.probe or kind.still >= self.patience
