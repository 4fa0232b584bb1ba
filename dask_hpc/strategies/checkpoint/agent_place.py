"""On which nodes the agents of an item run (000, 7.1.2, algorithm 6).

Nodes are ranked by one criterion, the best few are candidates, and agents are dealt among them. Deviations:
nodes in the failure domain of the data come last, as a copy there is lost together with what it is a copy of
(the document's agents have nodes of their own); nodes that are full are left out, as it says in prose only;
and a block of agents is as long as makes it even, unless a length is given.
"""

from collections.abc import Callable, Collection, Sequence
from math import ceil
from typing import Literal

from dask_hpc.model.checkpoint import AgentNode

Rank = Literal["memory", "bandwidth", "frequency", "power"]
Deal = Literal["block", "round-robin", "fill"]

#: smallest first
_RANKS: dict[Rank, Callable[[AgentNode], float]] = {
    "memory": lambda node: -node.free,
    "bandwidth": lambda node: node.traffic - node.link if node.link < float("inf") else node.traffic,
    "frequency": lambda node: node.commits,
    "power": lambda node: node.watts,
}


def ranked(nodes: Sequence[AgentNode], by: Rank, domains: Collection[str] = ()) -> list[AgentNode]:
    """The best first; those in one of these failure domains last."""
    return sorted(
        nodes,
        key=lambda node: (
            bool(node.domain) and node.domain in domains,
            _RANKS[by](node),
            node.joined,
            node.agents,
        ),
    )


def place(
    count: int,
    nodes: Sequence[AgentNode],
    *,
    by: Rank = "bandwidth",
    deal: Deal = "round-robin",
    candidates: int = 5,
    per_node: int = 8,
    block: int = 0,
    nbytes: float = 0.0,
    domains: Collection[str] = (),
) -> tuple[str, ...]:
    """The node of each agent; fewer than ``count`` if there is no room for more. ``nbytes`` is what one
    agent has to keep; ``per_node`` is how many a node takes of all items together."""
    order = ranked([node for node in nodes if node.agents < per_node], by, domains)
    room = {node.name: min(per_node - node.agents, _fitting(node, nbytes)) for node in order}
    chosen = [node.name for node in order if room[node.name] > 0][: max(1, candidates)]
    # Candidates that cannot take all agents are joined by the next best.
    for node in order:
        if sum(room[name] for name in chosen) >= count:
            break
        if room[node.name] > 0 and node.name not in chosen:
            chosen.append(node.name)
    found: list[str] = []
    length = {"round-robin": 1, "fill": per_node, "block": block or ceil(count / max(1, len(chosen)))}[deal]
    while len(found) < count and any(room[name] > 0 for name in chosen):
        for name in chosen:
            here = min(length, room[name], count - len(found))
            room[name] -= here
            found += [name] * here
    return tuple(found)


def _fitting(node: AgentNode, nbytes: float) -> int:
    """How many more copies of that size fit."""
    return int(min(node.free / nbytes, 1e9)) if nbytes > 0 else 10**9
