"""What running jobs send, from what is known of each: how much every node of it sends to its others."""

from collections.abc import Iterable, Mapping, Sequence

from dask_hpc.model.snapshot import Running
from dask_hpc.model.topology import Topology
from dask_hpc.planning.network.demands import Traffic


def sent_by(topology: Topology, nodes: Sequence[str], traffic: float | None) -> Traffic | None:
    """Of a job on these nodes, each of which sends so many bytes a second to the others in all, to each of
    them alike; None if that is nothing, or nobody knows.

    Nodes that are not in the topology are left out: nobody knows over which links that goes.
    """
    if not traffic:
        return None
    there = sorted(name for name in nodes if name in topology.places and name not in topology.service)
    return Traffic(tuple(there), rate=traffic / (len(nodes) - 1)) if len(there) > 1 else None


def sent_by_all(topology: Topology, running: Iterable[Running]) -> Mapping[str, Traffic]:
    """By those of these jobs of which it is known."""
    found = {one.job.id: sent_by(topology, one.nodes, one.job.traffic) for one in running}
    return {job: traffic for job, traffic in found.items() if traffic is not None}
