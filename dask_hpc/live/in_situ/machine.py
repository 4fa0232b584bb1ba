"""The nodes that a pipeline has at the moment: those of its job's allotment, or all of the cluster."""

from collections.abc import Collection
from typing import Any

from distributed import Client

from dask_hpc import config
from dask_hpc.model.errors import InputError
from dask_hpc.model.nodes import Nodes
from dask_hpc.model.partition import EqualNodes
from dask_hpc.planning.places import PipelineNode


class Machine:
    """Nodes by name, as the scheduler has them, and what they have in common."""

    def __init__(self, nodes: tuple[PipelineNode, ...], memory: float, bandwidth: float) -> None:
        self.nodes = nodes
        self._memory = memory
        self._bandwidth = bandwidth

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Machine) and self.nodes == other.nodes

    __hash__ = None  # type: ignore[assignment]

    @property
    def workers(self) -> frozenset[str]:
        """Addresses of all workers."""
        return frozenset(address for node in self.nodes for address, _ in node.workers)

    def equal(self, bandwidth: float = float("inf")) -> EqualNodes:
        """The nodes as the planner sees them: all like the one with the fewest cores, and that with the
        least memory. ``bandwidth`` is what was measured, if it was."""
        cores = min(node.cores for node in self.nodes)
        known = bandwidth if bandwidth < float("inf") else self._bandwidth
        return EqualNodes(count=len(self.nodes), cores=cores, memory=self._memory, bandwidth=known)


async def look(
    client: Client,
    bandwidth: float,
    allotted: Collection[str] | None = None,
    leaving: Collection[str] = (),
) -> Machine:
    """The nodes now, of workers that run and are not leaving; those that are allotted, if not all are. None
    at all is an ``InputError``."""
    identity = await client.scheduler.identity(n_workers=-1)
    known = Nodes(config.settings()["node"])
    workers: dict[str, Any] = {
        address: facts for address, facts in identity["workers"].items() if facts["status"] == "running"
    }
    for address in sorted(
        workers, key=lambda one: (len(str(workers[one]["name"])), str(workers[one]["name"]))
    ):
        known.join(address, workers[address]["name"], workers[address]["host"])
    names = list(known)
    if allotted is not None:
        names = [name for name in names if name in allotted]
    nodes = _nodes(known, names, workers, leaving) or _nodes(known, names, workers, ())
    if not nodes:
        raise InputError("pipeline", "found no worker", "at least one")
    memory = min(
        sum(workers[one]["memory_limit"] or float("inf") for one, _ in node.workers) for node in nodes
    )
    return Machine(nodes, memory, bandwidth)


def _nodes(
    known: Nodes, names: list[str], workers: dict[str, Any], leaving: Collection[str]
) -> tuple[PipelineNode, ...]:
    """These nodes, without workers that leave."""
    found = (
        PipelineNode(
            name,
            tuple((one, workers[one]["nthreads"]) for one in known.workers(name) if one not in leaving),
        )
        for name in names
    )
    return tuple(node for node in found if node.workers)
