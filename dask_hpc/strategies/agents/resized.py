"""How many agents an item has after its job changed size (000, 7.2).

Rigid agents (MA-RA) stay as many, and each serves more nodes or fewer; malleable agents (MA-MA) keep the
ratio of nodes to agents. Deviations: fewer nodes than rigid agents would leave some without any, which the
document forbids and its rule does not prevent, so they become as many as nodes; and where the ratio is no
whole number it is rounded down (its algorithm 7 does not say), the rest dealt one by one.
"""


def rigid(agents: int, nodes: int) -> int:
    """MA-RA: as many as before, but none without a node."""
    return max(1, min(agents, nodes))


def malleable(agents: int, nodes_before: int, nodes: int) -> int:
    """MA-MA: as many as keep the ratio, one for each node if it was so before."""
    if agents == nodes_before:
        return max(1, nodes)
    return max(1, min(nodes, agents * nodes // max(1, nodes_before)))


def shares(nodes: int, agents: int) -> tuple[int, ...]:
    """How many nodes each agent serves."""
    each, rest = divmod(nodes, agents)
    return tuple(each + (number < rest) for number in range(agents))
