"""Checkpoint agents as a policy chooses them: how many, where, and how many nodes there are for them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from dask_hpc.model.agents import AgentNode, GiveBack, ItemAgents, MoreNodes
from dask_hpc.model.parameter import Parameter
from dask_hpc.strategies.agents import pool
from dask_hpc.strategies.agents.count import by_sign, climb
from dask_hpc.strategies.agents.place import Deal, Rank, place, ranked
from dask_hpc.strategies.agents.resized import malleable, rigid


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
        return pool.more_nodes(nodes, low=self.low, high=self.high, busy=self.busy)

    def idle_nodes(self, nodes: Sequence[AgentNode]) -> tuple[GiveBack, ...]:
        """Nodes that nobody uses."""
        return pool.idle_nodes(nodes, self.idle)
