"""Checkpoint agents as a policy chooses them: how many, where, and how many nodes there are for them.

Where (000, 7.1.2, algorithm 6): nodes are ranked by one criterion, the best few are candidates, and agents
are dealt among them. Deviations: nodes in the failure domain of the data come last (in the document agents
have nodes of their own); nodes that are full are left out, as it says in prose only; and a block of agents is
as long as makes it even.

How many: more of them as long as an item's commits get faster by it. ``by_sign`` is the document's rule (000,
7.1.1, algorithm 5). It looks at whether the last commit was faster than the one before, not at what had been
changed between them: after fewer agents turned out to be better it takes more again, and so for ever.
``climb`` multiplies the direction of the last step by the sign of what it brought, takes noise for what it
is, and stops where a step brought nothing, as the document says in prose.

A change costs time, so there must be enough commits left to make up for it. The document's break-even (its
equation 6.12) is right only if the new agents are exactly twice as fast; ``break_even`` is for any. The same
decides whether it pays to go back to agents that could not be reached (6.5.2, 9.4.1.4). How many commits are
left is known of a loop that knows its end; of anything else there may be any number.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, inf
from typing import Annotated, Any, ClassVar, Literal

from dask_hpc.model.parameter import Parameter
from dask_hpc.strategies.checkpoint.agents import AgentNode, Direct, GiveBack, ItemAgents, MoreNodes
from dask_hpc.strategies.strategy import CheckpointStrategy

Rank = Literal["memory", "bandwidth", "frequency", "power"]
Deal = Literal["block", "round-robin", "fill"]

#: smallest first
_RANKS: dict[Rank, Callable[[AgentNode], float]] = {
    "memory": lambda node: -node.free,
    "bandwidth": lambda node: node.traffic - node.link if node.link < inf else node.traffic,
    "frequency": lambda node: node.commits,
    "power": lambda node: node.watts,
}
#: seconds before agents that did not answer are tried again, at first and at most
FIRST_WAIT, LONGEST_WAIT = 0.5, 60.0


def failed(known: Direct | None, now: float) -> Direct:
    """No agent could be reached: everything goes to the store directly for a while, each time for longer."""
    tries = 0 if known is None else known.tries + 1
    return Direct(tries, now + min(FIRST_WAIT * 2.0**tries, LONGEST_WAIT))


def tries_again(
    known: Direct, now: float, *, change: float, past_agents: float, to_agents: float, commits_left: float
) -> bool:
    """Whether a commit tries agents now. A commit past them and one to them take so many seconds, and
    ``change`` it takes to have agents again.

    000, equations 6.13 and 6.14: with agents again the slow commits end, without them they go on to the end,
    so the change pays from ``break_even`` commits on. Deviation: where commits past agents are no slower,
    agents are not tried for speed but for copies in memory, now and then.
    """
    if past_agents <= to_agents:
        return now >= known.again_at + LONGEST_WAIT
    return now >= known.again_at and commits_left > break_even(change, past_agents, to_agents)


def to_remove(nodes: Sequence[AgentNode], count: int) -> tuple[str, ...]:
    """Which nodes can be missed most easily: those that are among the emptiest and among those with fewest
    agents, then the emptiest. One always stays."""
    count = max(0, min(count, len(nodes) - 1))
    emptiest = sorted(nodes, key=lambda node: -node.free)[:count]
    calmest = {node.name for node in sorted(nodes, key=lambda node: node.agents)[:count]}
    both = [node.name for node in emptiest if node.name in calmest]
    return tuple([*both, *(node.name for node in emptiest if node.name not in calmest)][:count])


def shares(nodes: int, agents: int) -> tuple[int, ...]:
    """How many nodes each agent serves."""
    each, rest = divmod(nodes, agents)
    return tuple(each + (number < rest) for number in range(agents))


def served(nodes: Sequence[str], agents: Sequence[str]) -> dict[str, str]:
    """For each node, where the agent is that serves it: by turns, and if that can be on another node."""
    free = deque((agent, share) for agent, share in zip(agents, shares(len(nodes), len(agents)), strict=True))
    found = {}
    for node in nodes:
        agent, left = free.popleft()
        found[node] = agent
        if left > 1:
            free.append((agent, left - 1))
    for node in nodes:
        if found[node] == node:
            other = next((one for one, agent in found.items() if agent != node), node)
            found[node], found[other] = found[other], node
    return found


#: commits that differ by less, as a share, took equally long
BAND = 0.05
#: a settled number is looked at again once commits take so much longer or less
_DRIFT = 0.25


def break_even(change: float, before: float, after: float) -> float:
    """After how many commits a change that took ``change`` seconds has paid off."""
    return change / (before - after) if after < before else inf


def break_even_published(change: float, before: float, after: float) -> float:
    """As the document's equations 6.11 and 6.12 have it."""
    if not before or not after:
        return inf  # nothing is faster than that
    missed = (change + after) / before - 1
    return missed * before / after + 1


def by_sign(agents: int, seconds: float, before: float, factor: int, most: int) -> int:
    """The next number of agents, by the last two commits alone; ``before`` is inf at first."""
    if seconds > before:
        return max(1, agents // factor)
    if seconds < before:
        return max(1, min(agents * factor, most))
    return agents


@dataclass(frozen=True, slots=True)
class Climb:
    """What is remembered of the search for one item. ``agents`` and ``seconds`` are the best so far."""

    agents: int
    seconds: float
    #: the number that is tried; the best one otherwise
    trying: int
    up: bool = True
    #: directions in which a step brought nothing
    tried_up: bool = False
    tried_down: bool = False


def climb(
    known: Climb | None,
    agents: int,
    seconds: float,
    *,
    most: int,
    factor: float = 2.0,
    change: float = 0.0,
    commits_left: float = inf,
) -> Climb:
    """One step after a commit that took ``seconds`` with so many agents: ``trying`` is the next number."""
    if known is None or agents != known.trying or known.agents > most:
        known = Climb(agents, seconds, agents)
    elif agents == known.agents:
        if abs(seconds - known.seconds) > _DRIFT * known.seconds:  # it is another load now
            known = Climb(agents, seconds, agents, known.up)
    elif seconds < known.seconds * (1 - BAND):
        # what was better than this one lies behind us
        behind = {"tried_down" if known.up else "tried_up": True}
        known = replace(known, agents=agents, seconds=seconds, **behind)
    else:
        known = replace(known, trying=known.agents, **{"tried_up" if known.up else "tried_down": True})
    for up in (known.up, not known.up):
        if known.tried_up if up else known.tried_down:
            continue
        if up:
            step = min(most, max(known.agents + 1, round(known.agents * factor)))
            hoped = known.seconds * known.agents / step
        else:
            step = max(1, min(known.agents - 1, round(known.agents / factor)))
            hoped = known.seconds * (1 - 2 * BAND)
        if step != known.agents and commits_left > break_even(change, known.seconds, hoped):
            return replace(known, trying=step, up=up)
    return replace(known, trying=known.agents)


@dataclass(frozen=True, slots=True)
class AgentRule(CheckpointStrategy):
    """How many agents keep copies, on which nodes, and how many nodes are there for it; seed 000, 6 and 7."""

    name: ClassVar[str] = "agents"
    essential = ("count", "start", "resize", "rank")

    count: Annotated[
        Literal["climb", "by-sign", "fixed"],
        Parameter("how the number of an item's agents follows the time that its commits take"),
    ] = "climb"
    start: Annotated[
        Literal["all", "nodes"],
        Parameter("agents of an item to begin with: all candidates, or as many as nodes that hold its data"),
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
    per_node: Annotated[int, Parameter("agents of all items that one node has at most", low=1)] = 80
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

    def first(self, nodes: int, most: int, seen: Sequence[AgentNode], domains: Collection[str]) -> ItemAgents:
        """An item whose data is on so many nodes, in these domains; on the nodes ``seen`` there could be
        ``most`` agents."""
        agents = nodes
        if self.start == "all":
            room = list(self._room(seen, 0.0, domains).values())
            agents = min(most, sum(room[: self.candidates or len(room)]))
        return ItemAgents(max(1, agents), nodes)

    def resized(self, item: ItemAgents, nodes: int) -> ItemAgents:
        """Its data is on so many nodes now: as many agents as before (MA-RA), or as many as keep the ratio
        (MA-MA), none of them without a node."""
        if nodes == item.nodes or item.agents > max(nodes, item.nodes):
            return item  # that there are more of them than nodes has nothing to do with their number
        agents = item.agents
        if self.resize == "malleable":
            agents = agents * nodes // max(1, item.nodes)
        agents = max(1, min(agents, nodes))
        return ItemAgents(agents, nodes, why=f"{agents} agents, as its data is on {nodes} nodes now")

    def committed(
        self, item: ItemAgents, agents: int, seconds: float, most: int, commits_left: float
    ) -> ItemAgents:
        """A commit of it took so long with so many agents; there could be ``most``."""
        if self.count == "fixed":
            return item
        search: Climb | None = None
        if self.count == "by-sign":
            wish = by_sign(agents, seconds, item.seconds, self.factor, most)
            hoped = min(item.seconds, seconds * agents / wish)
            pays = commits_left > break_even_published(self.change, seconds, hoped)
            number = wish if pays else agents
        else:
            step = partial(
                climb, item.search, agents, seconds, most=most, factor=self.factor, change=self.change
            )
            search, wish = step(commits_left=commits_left), step(commits_left=inf).trying
            number = search.trying
        why = ""
        if number != item.agents:
            why = f"{number} agents instead of {item.agents}: a commit took {seconds:.3g} s"
        elif wish != number:
            why = f"{number} agents stay: {commits_left:g} more commits do not make up for a change"
        return ItemAgents(number, item.nodes, seconds, search, why)

    def tries_again(
        self, known: Direct, now: float, past_agents: float, to_agents: float, commits_left: float
    ) -> bool:
        """Whether a commit tries agents now, which could not be reached before."""
        return tries_again(
            known, now, change=self.change, past_agents=past_agents, to_agents=to_agents,
            commits_left=commits_left,
        )  # fmt: skip

    def order(self, nodes: Sequence[AgentNode], domains: Collection[str] = ()) -> list[AgentNode]:
        """The best first. A copy in one of these failure domains would be lost together with what it is a
        copy of, so those come last."""

        def rank(node: AgentNode) -> tuple[Any, ...]:
            is_near = bool(node.domain) and node.domain in domains
            return is_near, _RANKS[self.rank](node), node.joined, node.agents

        return sorted(nodes, key=rank)

    def slots(
        self, count: int, nodes: Sequence[AgentNode], nbytes: float, domains: Collection[str]
    ) -> tuple[str, ...]:
        """The node of each agent, which keeps so many bytes; fewer than ``count`` if there is no room for
        more."""
        room = self._room(nodes, nbytes, domains)
        order = list(room)
        most = self.candidates or len(nodes)
        # Candidates that cannot take all agents are joined by the next best.
        while most < len(order) and sum(room[name] for name in order[:most]) < count:
            most += 1
        chosen, found = order[:most], list[str]()
        length = {"round-robin": 1, "fill": self.per_node, "block": ceil(count / max(1, len(chosen)))}
        while len(found) < count and any(room[name] for name in chosen):
            for name in chosen:
                here = min(length[self.deal], room[name], count - len(found))
                room[name] -= here
                found += [name] * here
        return tuple(found)

    def _room(self, nodes: Sequence[AgentNode], nbytes: float, domains: Collection[str]) -> dict[str, int]:
        """The best node first: how many agents that keep so many bytes each it takes."""
        room = {}
        for node in self.order([node for node in nodes if node.agents < self.per_node], domains):
            fitting = int(min(node.free / nbytes, 1e9)) if nbytes > 0 else 10**9
            if fitting:
                room[node.name] = int(min(self.per_node - node.agents, node.most, fitting))
        return room

    def more_nodes(self, nodes: Sequence[AgentNode]) -> MoreNodes | None:
        """Whether another node is needed. Memory comes first: from ``high`` on, if it still fills, commits
        will fail soon, unless what is free elsewhere takes another such node's copies. On a link from
        ``busy`` on, commits wait for each other."""
        crowded = [node for node in nodes if node.fill > self.low]
        elsewhere = sum(node.free for node in nodes if node.fill <= self.low)
        for node in crowded:
            if node.fill > self.high and node.filling > 0:
                is_urgent = elsewhere < node.budget
                return MoreNodes(is_urgent, f"{node.name} is {node.fill:.0%} full, and fills")
            elsewhere -= node.budget
        for node in nodes:
            if node.traffic > self.busy * node.link and node.commits > 0:
                return MoreNodes(False, f"{node.name} uses {node.traffic / node.link:.0%} of its link")
        return None

    def idle_nodes(self, nodes: Sequence[AgentNode]) -> tuple[GiveBack, ...]:
        """Nodes that nobody used for that long; one node always stays."""
        idle = [one for one in nodes if not one.used and not one.agents and one.idle_for >= self.idle]
        spare = idle[: max(0, len(nodes) - 1)]
        return tuple(GiveBack(one.name, f"nothing was kept here for {one.idle_for:.0f} s") for one in spare)
