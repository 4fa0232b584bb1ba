"""Who tells the loop how the next iteration runs: asked before each, told after each."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

from dask_hpc.in_situ.worker import Record
from dask_hpc.model.in_situ import Mode, Partition, PartitionProblem, PipelineView
from dask_hpc.model.plan import Placement
from dask_hpc.planning.in_situ.phases import placed
from dask_hpc.planning.in_situ.places import Places

#: by analysis, the iterations whose run has not ended, each with what ends with it (without an error)
Running = Mapping[str, Mapping[int, "asyncio.Future[None]"]]


@dataclass(frozen=True, slots=True)
class Orders:
    """How one iteration runs: where, and the analyses that are done."""

    places: Places
    analyses: frozenset[str]
    #: those of them whose data wait in files until the run before has ended
    spilled: frozenset[str] = frozenset()
    #: workers that have nothing to do, each with its node
    idle: tuple[tuple[str, str], ...] = ()

    @property
    def workers(self) -> frozenset[str]:
        """All that may be used."""
        return self.places.addresses | {address for address, _ in self.idle}


@dataclass(frozen=True, slots=True)
class Finished:
    """An iteration that is done, with all of its analyses."""

    iteration: int
    orders: Orders
    #: of every task: steps, parcels, analyses and combines
    records: tuple[Record, ...]
    #: by the client's clock: when it was submitted, when its last step was known to be done, and its last
    #: analysis
    submitted: float
    stepped: float
    ended: float
    results: Mapping[str, Any] = field(default_factory=dict)


class Steering(Protocol):
    """What the loop asks, on the client's event loop, one question at a time."""

    def look_again(self) -> None:
        """Workers are gone: which nodes there are is to be looked at before the next orders."""

    async def orders(self, iteration: int, home: Mapping[int, str], running: Running) -> Orders:
        """How this iteration is to run; ``home`` is where the blocks are (empty before the first).

        Asked once per iteration, in order, before it is submitted; the step of the iteration before may still
        run. To wait here is what holds the simulation back: for the analyses of the last iteration
        but one, or there is a third iteration of the state in memory. Places that differ from the last
        take effect with this iteration: its blocks move with its steps."""

    async def finished(self, done: Finished) -> None:
        """An iteration is done. They come in order, too."""


SIDES = ("in situ", "in transit")


class OneSide:
    """All analyses in situ on a quarter of the cores of every node, or in transit on a quarter of the nodes;
    at least one, at most all but one."""

    concern: ClassVar[str] = "placement"
    name: ClassVar[str] = "one-side"

    def __init__(self, side: str, mode: Mode) -> None:
        self._side = side
        self._mode = mode

    def decide(self, view: PipelineView, memory: Any) -> tuple[Placement | None, Any]:
        """Another partition only if there are other nodes."""
        new = self._partition(replace(view.problem, mode=self._mode))
        if new.runs_like(view.partition):
            return None, None
        return Placement(view.name, new, f"all analyses {self._side}, as asked for"), None

    def _partition(self, problem: PartitionProblem) -> Partition:
        count, cores = problem.nodes.count, problem.nodes.cores
        names = [one.name for one in problem.analyses]
        if self._side == "in situ" or not names or count == 1:
            return placed(problem, count, max(1, cores // 4) if names else 0, names)
        return placed(problem, count - max(1, count // 4), 0, ())


class AsSaid:
    """The partition that the user made, on whatever nodes there are."""

    concern: ClassVar[str] = "placement"
    name: ClassVar[str] = "as-said"

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    def decide(self, view: PipelineView, memory: Any) -> tuple[Placement | None, Any]:
        """That partition, once."""
        if view.partition is not None:
            return None, None
        return Placement(view.name, self._partition, "the partition that was asked for"), None
