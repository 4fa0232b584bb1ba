"""The nodes of a cluster, as a client sees them."""

from collections import defaultdict
from typing import Any

from dask_hpc import config


async def nodes_of(client: Any) -> dict[str, list[str]]:
    """The addresses of the workers of each node, in order. A node is a host, or a worker on a cluster within
    one host, unless the configuration ``hpc.node`` says which."""
    workers = (await client.scheduler.identity())["workers"]
    hosts: dict[str, list[str]] = defaultdict(list)
    for address, worker in workers.items():
        hosts[worker["host"]].append(address)
    mode = config.settings()["node"]
    if mode == "host" or (mode == "auto" and len(hosts) > 1):
        return dict(hosts)
    return {address: [address] for address in workers}
