"""Jobs spread over the machine, so that no part of it takes a job down as a whole."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from dask_hpc.model.job import Job
from dask_hpc.model.node import Node
from dask_hpc.model.snapshot import Neighbourhood, Picked
from dask_hpc.strategies.strategy import NodesStrategy


@dataclass(frozen=True, slots=True)
class SpreadOut(NodesStrategy):
    """One node after the other from the part of the machine in which the job has least so far.

    Parts are the outermost ones, cabinets for instance, and within them the next ones.
    """

    name: ClassVar[str] = "spread"

    def pick(
        self, job: Job, count: int, idle: Sequence[str], held: Sequence[str], around: Neighbourhood
    ) -> Picked:
        """The nodes to take, in order."""
        nodes, has = around.nodes, Counter[tuple[str, ...]]()
        for name in held:
            _count(has, nodes[name])
        parts: dict[tuple[str, ...], list[str]] = {}
        for name in reversed(idle):
            parts.setdefault(nodes[name].place, []).append(name)
        order = dict.fromkeys(nodes[name].place for name in idle)  # the first of equals
        chosen: list[str] = []
        while len(chosen) < count:
            part = min((one for one in order if parts[one]), key=lambda one: _load(has, one))
            name = parts[part].pop()
            chosen.append(name)
            _count(has, nodes[name])
        return Picked(chosen)


def _count(has: Counter[tuple[str, ...]], node: Node) -> None:
    for depth in range(1, len(node.place) + 1):
        has[node.place[:depth]] += 1


def _load(has: Counter[tuple[str, ...]], part: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(has[part[:depth]] for depth in range(1, len(part) + 1))
