"""How many nodes there are for copies: more when memory or bandwidth runs short, fewer when nobody uses them.

The rules are those of 000, 7.3.1 (algorithms 8 and 9). Deviations: thresholds are shares of a node, which its
examples are and its comparisons are not; bandwidth runs short when little of it is *free*, as its algorithm
has it and its prose does not; and a node that nobody used for long is given back, which it wants but neither
of its algorithms does.
"""

from collections.abc import Sequence

from dask_hpc.model.agents import AgentNode, GiveBack, MoreNodes


def more_nodes(
    nodes: Sequence[AgentNode],
    *,
    low: float = 0.8,
    high: float = 0.9,
    filling: float = 0.0,
    busy: float = 0.9,
    frequent: float = 0.0,
) -> MoreNodes | None:
    """Whether another node is needed. Memory comes first: from ``high`` on, if it still fills, commits will
    fail soon, unless what is free elsewhere takes another such node's copies. ``busy`` is the share of a
    link from which on commits wait for each other, if there are more than ``frequent`` of them a second."""
    crowded = [node for node in nodes if node.fill > low]
    elsewhere = sum(node.free for node in nodes if node.fill <= low)
    for node in crowded:
        if node.fill > high and node.filling > filling:
            is_urgent = elsewhere < node.budget
            return MoreNodes(1, is_urgent, f"{node.name} is {node.fill:.0%} full, and fills")
        elsewhere -= node.budget
    for node in nodes:
        if node.traffic > busy * node.link and node.commits > frequent:
            return MoreNodes(1, False, f"{node.name} uses {node.traffic / node.link:.0%} of its link")
    return None


def idle_nodes(nodes: Sequence[AgentNode], idle_timeout: float) -> tuple[GiveBack, ...]:
    """Nodes that nobody used for so many seconds; one node always stays."""
    idle = [node for node in nodes if not node.used and not node.agents and node.idle_for >= idle_timeout]
    spare = idle[: max(0, len(nodes) - 1)]
    return tuple(GiveBack(node.name, f"nothing was kept here for {node.idle_for:.0f} s") for node in spare)


def to_remove(nodes: Sequence[AgentNode], count: int) -> tuple[str, ...]:
    """Which nodes can be missed most easily: those that are among the emptiest and among those with fewest
    agents, then the emptiest. One always stays."""
    count = max(0, min(count, len(nodes) - 1))
    emptiest = sorted(nodes, key=lambda node: -node.free)[:count]
    calmest = {node.name for node in sorted(nodes, key=lambda node: node.agents)[:count]}
    both = [node.name for node in emptiest if node.name in calmest]
    return tuple([*both, *(node.name for node in emptiest if node.name not in calmest)][:count])
