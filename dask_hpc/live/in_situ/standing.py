"""Placements that stay as they were said: everything on one side, or a partition that the user made."""

from dataclasses import replace
from typing import Any, ClassVar

from dask_hpc.model.partition import Mode, Partition, PartitionProblem, PipelineView
from dask_hpc.model.plan import Placement
from dask_hpc.planning.partition_phases import placed

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
