"""Checkpoint agents as a policy chooses them: how many, where, and how many nodes there are for them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Annotated, ClassVar, Literal

from dask_hpc.model.checkpoint import AgentNode, GiveBack, ItemAgents, MoreNodes
from dask_hpc.model.parameter import Parameter
from dask_hpc.strategies.checkpoint.agent_count import by_sign, climb
from dask_hpc.strategies.checkpoint.agent_place import Deal, Rank, place, ranked

#: seconds before agents that did not answer are tried again, at first and at most
FIRST_WAIT, LONGEST_WAIT = 0.5, 60.0


def overhead_published(
    probe: float, new_agents: float, elapsed: float, slow: float, fast: float, period: float
) -> float:
    """Seconds that a failure costs, as equations 6.13 (``elapsed``: tries times waits) and 6.14 (``elapsed``:
    to the end of the program) have it. ``slow`` and ``fast`` are a checkpoint with and without the store."""
    return probe + new_agents + elapsed * (slow - fast) / period


def overhead(
    probe: float, tries: int, elapsed: float, slow: float, fast: float, period: float, new_agents: float = 0.0
) -> float:
    """Seconds that a failure costs: so many tries, ``new_agents`` if the last one succeeds, and the
    checkpoints that meanwhile took the slow way, one each ``period``."""
    return tries * probe + new_agents + max(0.0, slow - fast) * elapsed / period


def pays(probe: float, new_agents: float, slow: float, fast: float, commits_left: float) -> bool:
    """Whether to try agents again: the commits that are left make up for it."""
    gained = max(0.0, slow - fast)
    return gained > 0 and (commits_left == inf or gained * commits_left > probe + new_agents)


@dataclass(frozen=True, slots=True)
class Direct:
    """What is remembered of the time without agents: the tries since, and when to try again."""

    since: float
    tries: int
    again_at: float


def failed(known: Direct | None, now: float) -> Direct:
    """No agent could be reached: everything goes to the store directly for a while, each time for longer."""
    if known is None:
        return Direct(now, 0, now + FIRST_WAIT)
    tries = known.tries + 1
    return replace(known, tries=tries, again_at=now + min(FIRST_WAIT * 2.0**tries, LONGEST_WAIT))


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


@dataclass(frozen=True, slots=True)
class AgentRule:
    """The rules of 000, 6 and 7, each in the file that is named after it."""

    concern: ClassVar[str] = "checkpoint"
    name: ClassVar[str] = "agents"

    count: Annotated[
        Literal["climb", "by-sign", "fixed"],
        Parameter("how the number of an item's agents follows the time that its commits take"),
    ] = "climb"
    start: Annotated[
        Literal["all", "nodes"],
        Parameter("agents of an item to begin with: all there are, or as many as nodes that hold its data"),
    ] = "all"
    factor: Annotated[int, Parameter("by what that number changes in a step", low=2, high=16)] = 2
    change: Annotated[
        float, Parameter("what a change of agents costs, which later commits must make up for", "s", low=0)
    ] = 0.1
    resize: Annotated[
        Literal["malleable", "rigid"],
        Parameter("whether an item has more agents when its data is on more nodes, and fewer on fewer"),
    ] = "malleable"
    rank: Annotated[
        Rank,
        Parameter("which agents come first: most room, least traffic, fewest commits, least power"),
    ] = "memory"
    deal: Annotated[Deal, Parameter("how an item's agents are dealt to nodes")] = "round-robin"
    candidates: Annotated[
        int, Parameter("among how many of the first an item's agents are dealt; 0: all", low=0)
    ] = 0
    per_node: Annotated[int, Parameter("agents of all items that one node has at most", low=1)] = 8
    low: Annotated[
        float, Parameter("share of its room from which on an agent counts as crowded", low=0, high=1)
    ] = 0.8
    high: Annotated[
        float, Parameter("share of its room from which on another node is asked for", low=0, high=1)
    ] = 0.9
    busy: Annotated[
        float, Parameter("share of its link from which on another node is asked for", low=0, high=1)
    ] = 0.9
    idle: Annotated[
        float, Parameter("how long nothing is kept on a node before it is given back", "s", low=0)
    ] = 300.0
    window: Annotated[
        float, Parameter("bytes that are on their way at a time, and kept in memory for it", "B", low=2**20)
    ] = 2.0**30
    transfer: Annotated[
        Literal["pull", "push"],
        Parameter("whether agents fetch blocks, at their own pace, or workers send them"),
    ] = "pull"
    gather: Annotated[
        Literal["worker", "host"],
        Parameter("whether each worker gives its blocks, or one of a host sends those of all there"),
    ] = "worker"

    def first(self, nodes: int, most: int) -> ItemAgents:
        """An item whose data is on so many nodes; there could be ``most`` agents."""
        return ItemAgents(max(1, nodes if self.start == "nodes" else most), nodes)

    def resized(self, item: ItemAgents, nodes: int) -> ItemAgents:
        """Its data is on so many nodes now."""
        if nodes == item.nodes or item.agents > max(nodes, item.nodes):
            return item  # that there are more of them than nodes has nothing to do with their number
        if self.resize == "rigid":
            agents = rigid(item.agents, nodes)
        else:
            agents = malleable(item.agents, item.nodes, nodes)
        return ItemAgents(agents, nodes)

    def committed(
        self, item: ItemAgents, agents: int, seconds: float, most: int, commits_left: float
    ) -> ItemAgents:
        """A commit of it took so long with so many agents; there could be ``most``."""
        if self.count == "fixed":
            return item
        if self.count == "by-sign":
            number = by_sign(agents, seconds, item.seconds, self.factor, most)
            return ItemAgents(number, item.nodes, seconds)
        search = climb(
            item.search, agents, seconds, most=most, factor=self.factor, change=self.change,
            commits_left=commits_left,
        )  # fmt: skip
        return ItemAgents(search.trying, item.nodes, seconds, search)

    def order(self, nodes: Sequence[AgentNode]) -> list[AgentNode]:
        """The best first."""
        return ranked(nodes, self.rank)

    def slots(
        self, count: int, nodes: Sequence[AgentNode], nbytes: float, domains: Collection[str]
    ) -> tuple[str, ...]:
        """Where the agents of an item are, each of which keeps so many bytes."""
        most = self.candidates or len(nodes)
        return place(
            count, nodes, by=self.rank, deal=self.deal, candidates=most, per_node=self.per_node,
            nbytes=nbytes, domains=domains,
        )  # fmt: skip

    def more_nodes(self, nodes: Sequence[AgentNode]) -> MoreNodes | None:
        """Whether another node is needed."""
        return more_nodes(nodes, low=self.low, high=self.high, busy=self.busy)

    def idle_nodes(self, nodes: Sequence[AgentNode]) -> tuple[GiveBack, ...]:
        """Nodes that nobody uses."""
        return idle_nodes(nodes, self.idle)
