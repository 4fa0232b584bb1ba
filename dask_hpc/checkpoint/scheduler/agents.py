"""The agents of a cluster for whoever has copies made: what each said last and was promised since, which of
them an item has, how many nodes there are to be for their sake, and what they have on disk.

A heartbeat may be seconds old when blocks are dealt. What was dealt meanwhile is in our own books: what the
catalogue says an agent has, and what is on its way to it.

An agent is a worker's process, with a connection of its own to each worker that it fetches blocks from. It is
there for all items, and an item has it or not. So "agents per node" (000, 7.1.2, algorithm 6) means how many
of a node's workers fetch the blocks of an item, and a strategy's bound on those of all items counts a worker
once for each item that has it. Deviation: nobody launches agents, they are there. A node has no more of them
for an item than it has workers, and an item that comes when all nodes are at that bound still has one.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain, cycle, islice
from math import ceil, inf
from time import monotonic
from typing import Any
from weakref import WeakKeyDictionary

from dask_hpc import dask as compat
from dask_hpc.checkpoint.scheduler.catalogue import Dealer
from dask_hpc.checkpoint.scheduler.context import BORROWS, ControllerContext, Tally, WorkerCalls, holders
from dask_hpc.checkpoint.scheduler.placement import CopyPlacement
from dask_hpc.checkpoint.worker.agent import METRIC, NAME, Agent
from dask_hpc.cluster.scheduler.service import context_of
from dask_hpc.model.lending import NodeDesk, NodesReturned
from dask_hpc.strategies.checkpoint.agent_rule import AgentRule
from dask_hpc.strategies.checkpoint.agents import AgentNode, ItemAgents, MoreNodes
from dask_hpc.strategies.checkpoint.scaler import Scaling, scale

_PATIENCE = 5.0  # seconds for agents to come, or to go
_FIRST_PAUSE, _LAST_PAUSE = 0.5, 30.0  # seconds in which an agent that did not answer is not asked
_MINUTE = 60.0


@dataclass
class _Known:
    """Of one agent."""

    #: what it said first; its heartbeats say more
    said: dict[str, Any]
    #: bytes on their way, how often it was asked for copies, and since when
    promised: float = 0.0
    asked: int = 0
    since: float = inf
    #: how much it kept when it said that it was full
    full_at: float | None = None
    #: until when it is not asked, and how long it is left alone if it does not answer
    silent_until: float = 0.0
    pause: float = _FIRST_PAUSE
    #: how much it kept at which time, and how fast that grew before
    kept: tuple[float, float, float] | None = None


class Agents:
    """All agents, by address."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._known: dict[str, _Known] = {}
        self._leaving: Counter[str] = Counter()
        self._new_agent = asyncio.Event()

    def ready(self, address: str, facts: dict[str, Any]) -> None:
        self._known.setdefault(address, _Known(facts)).said = facts
        self.answers(address)
        self._context.catalogue.joins(address)
        self._new_agent.set()

    def gone(self, address: str) -> None:
        self._known.pop(address, None)

    def facts(self) -> dict[str, dict[str, Any]]:
        """All agents by address, with what each said last."""
        heard = dict(compat.metrics(self._context.scheduler, METRIC))
        said = {address: one for address, one in heard.items() if isinstance(one, dict)}
        return {address: known.said | said.get(address, {}) for address, known in self._known.items()}

    def __contains__(self, address: object) -> bool:
        return address in self._known

    # what copies depend on: see ``placement.View``

    def holders(self, key: Hashable) -> tuple[str, ...]:
        return holders(self._context, key)

    def nbytes(self, key: Hashable) -> int:
        return compat.size(compat.find_task(self._context.scheduler, key))

    def is_coming(self, key: Hashable) -> bool:
        task = compat.find_task(self._context.scheduler, key)
        return task is not None and compat.is_unfinished(task)

    def is_able(self, address: str) -> bool:
        known = self._known.get(address)
        if known is None or not (
            compat.is_running(self._context.scheduler, address) or self._is_only_kept(address)
        ):
            return False
        return not self._leaving[address] and known.silent_until <= monotonic()

    def _expected(self) -> set[str]:
        context = self._context
        own = (address for name in context.own_nodes for address in context.nodes.workers(name))
        return compat.running_workers(context.scheduler).union(own)

    def _is_only_kept(self, address: str) -> bool:
        """Whether it is on a node that is there for copies alone: it is held, and keeps them all the same."""
        if compat.worker_status(self._context.scheduler, address) != "paused":
            return False
        return self._context.nodes.node_of(address) in self._context.own_nodes

    def domain_of(self, address: str) -> str:
        """What fails together with a worker: the outermost part of the machine that it is in, if there are
        several; else its node; where there is but one, its process."""
        nodes = self._context.nodes
        if len(nodes) <= 1:
            return address
        name, managed = nodes.node_of(address), context_of(self._context.scheduler)
        return name if managed is None else managed.indices.part_of(name)

    def free_of(self, domains: Collection[str]) -> int:
        return len({self.domain_of(one) for one in self._known if self.is_able(one)}.difference(domains))

    def able(self, watts: Mapping[str, float] | None = None) -> list[AgentNode]:
        node_of, drawn = self._context.nodes.node_of, watts or {}
        facts = [(address, said) for address, said in self.facts().items() if self.is_able(address)]
        return [self._as_node(one, said, drawn.get(node_of(one), 0.0)) for one, said in facts]

    def together(self, nodes: Mapping[str, Collection[str]]) -> list[AgentNode]:
        """Of each node all its agents as one."""
        facts, found = self.facts(), []
        for node, addresses in nodes.items():
            there = [self._as_node(one, facts[one], 0.0) for one in addresses if one in facts]
            budget, used = sum(one.budget for one in there), sum(one.used for one in there)
            found.append(AgentNode(node, budget, used))
        return found

    def _as_node(self, address: str, said: Mapping[str, Any], watts: float) -> AgentNode:
        known = self._known[address]
        kept = _total(said, "used", "disk_used")
        budget = _total(said, "budget", "disk_budget")
        booked = self._context.catalogue.nbytes_on(address) + known.promised
        if known.full_at is not None:
            if kept < known.full_at:
                known.full_at = None
            else:
                kept = budget
        return AgentNode(
            address,
            budget,
            max(kept, booked),
            traffic=_total(said, "traffic"),
            link=_total(said, "link", default=inf),
            commits=_total(said, "commits"),
            filling=_filling(known, max(kept, booked)),
            watts=watts,
            joined=int(monotonic() - known.since < _MINUTE and known.since < inf),
            idle_for=_total(said, "idle_for"),
            domain=self.domain_of(address),
        )

    def asked(self, address: str) -> int | None:
        """How often it was asked for copies so far; None while some are on their way."""
        known = self._known.get(address)
        if known is None:
            return 0
        return None if known.promised else known.asked

    def promised(self, address: str) -> float:
        """Bytes that are on their way to it."""
        known = self._known.get(address)
        return 0.0 if known is None else known.promised

    def promise(self, address: str, nbytes: float) -> None:
        """Bytes are on their way to an agent; or, if there are less than none, have arrived or never will."""
        if (known := self._known.get(address)) is not None:
            known.promised = max(0.0, known.promised + nbytes)
            known.since = min(known.since, monotonic())
            known.asked += 1

    def is_full(self, address: str) -> None:
        """It said so; until its heartbeats say otherwise."""
        if (known := self._known.get(address)) is not None:
            known.full_at = _total(self.facts()[address], "used", "disk_used")

    def is_silent(self, address: str) -> None:
        """It did not answer: it is left alone for a while, each time for longer."""
        if (known := self._known.get(address)) is not None:
            known.silent_until = monotonic() + known.pause
            known.pause = min(2 * known.pause, _LAST_PAUSE)

    def answers(self, address: str) -> None:
        if (known := self._known.get(address)) is not None:
            known.silent_until, known.pause = 0.0, _FIRST_PAUSE

    @property
    def leaving(self) -> set[str]:
        """Those to which nothing new goes now."""
        return set(self._leaving)

    @contextmanager
    def without(self, addresses: Collection[str]) -> Iterator[None]:
        """Nothing new goes to these meanwhile."""
        self._leaving.update(addresses)
        try:
            yield
        finally:
            self._leaving -= Counter(addresses)

    async def come(self) -> None:
        """Until all workers that run or only keep copies have an agent, for a few seconds at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                while not self._expected() <= self._known.keys():
                    self._new_agent.clear()
                    await self._new_agent.wait()


def _filling(known: _Known, kept: float) -> float:
    """Bytes per second, over the last second or more."""
    now = monotonic()
    before, since, rate = known.kept or (kept, now, 0.0)
    if now - since >= 1.0:
        rate = (kept - before) / (now - since)
        before, since = kept, now
    known.kept = (before, since, rate)
    return rate


def _total(said: Mapping[str, Any], *names: str, default: float = 0.0) -> float:
    found = (said.get(name) for name in names)
    return sum(float(one) if isinstance(one, int | float) else default for one in found)


def _as_one(node: str, workers: Sequence[AgentNode], agents: int) -> AgentNode:
    """They share the node's link and its power, and fail together."""

    def total(what: str) -> float:
        return float(sum(getattr(one, what) for one in workers))

    return AgentNode(
        node,
        total("budget"),
        total("used"),
        filling=total("filling"),
        traffic=total("traffic"),
        link=max(one.link for one in workers),
        commits=total("commits"),
        watts=max(one.watts for one in workers),
        agents=agents,
        joined=sum(one.joined for one in workers),
        idle_for=min(one.idle_for for one in workers),
        domain=workers[0].domain,
        most=len(workers),
    )


_SAMPLE = 2000  # keys that say on which nodes an item's data is
_LEAST = 2**20  # bytes; what takes the time of a smaller commit is not the agents
_DEFAULT = AgentRule()


class AgentChoice:
    """Which agents an item (what is protected under a name) has, as the policy in force says, from what its
    commits have taken so far; and how many nodes the copies of all items need."""

    def __init__(self, context: ControllerContext, agents: Agents) -> None:
        self._context = context
        self._agents = agents
        #: by name: how many agents it has; how many it had in its last commit; bytes that stand for one
        self.known: dict[str, ItemAgents] = {}
        self._had: dict[str, int] = {}
        #: how many it could have, and the workers that they are
        self._most: dict[str, int] = {}
        self._seats: dict[str, list[str]] = {}
        self._usual: dict[str, float] = {}
        #: so many nodes there are to be
        self.wanted = 0
        self._told = ""
        self._idle: set[str] = set()
        #: how nodes are asked for that are for copies alone
        self.scaling = Scaling()

    @property
    def rule(self) -> Any:
        """The strategy in force: that of the policy, if the cluster is managed and it has one."""
        managed = context_of(self._context.scheduler)
        return (managed and managed.policy.checkpoint) or _DEFAULT

    def dealer(self, item: str, keys: Iterable[Hashable]) -> Dealer:
        """How blocks of an item, which has these keys, are dealt now; those of no item go to all agents by
        turns."""
        managed, rule = context_of(self._context.scheduler), self.rule
        # Somebody may read what nodes draw; not every rule wants to know.
        knowing = managed.services if managed and rule.rank == "power" else ()
        able = self._agents.able({name: w for one in knowing for name, w in one.watts().items()})
        nodes = rule.order(able)
        if not item or not able:
            return Dealer(nodes)
        domains: set[str] = set()
        nbytes, some = 0, list(islice(keys, _SAMPLE))
        for key in some:
            if (task := compat.find_task(self._context.scheduler, key)) is not None:
                nbytes += compat.size(task)
                domains.update(map(self._agents.domain_of, compat.holders(task)))
        # It is on the nodes of its job, if it is one's, else on those that hold it.
        job = next((managed.owner[key] for key in some if key in managed.owner), None) if managed else None
        size = len(job.nodes if job else ()) or len(domains) or 1
        hosts = self._hosts(item, nodes)
        seen = [one for one, _ in hosts.values()]
        most = self._most[item] = max(1, len(rule.slots(len(able), seen, 0.0, domains)))
        known = self.known.get(item)
        now = rule.first(size, most, seen, domains) if known is None else rule.resized(known, size)
        if known is not None and now.agents != known.agents:
            self._context.tell("agents", f"{item}: {now.why or f'{now.agents} agents'}")
        self.known[item] = now
        count = max(1, min(now.agents, most))
        found = rule.slots(count, seen, nbytes / count, domains)
        if not found and not rule.slots(1, seen, 0.0, domains):  # others have all that nodes may have
            found = rule.slots(1, [replace(one, agents=0) for one in seen], 0.0, domains)
        turns = {node: cycle(workers) for node, (_, workers) in hosts.items()}
        slots = self._seats[item] = [next(turns[node]) for node in found]
        self._had[item] = len(slots) or len(able)
        return Dealer(nodes, slots)

    def _hosts(self, item: str, workers: Iterable[AgentNode]) -> dict[str, tuple[AgentNode, list[str]]]:
        """By node: its workers as the one node that they are, with the agents that other items have there;
        and their addresses, the item's own first, then those with most room."""
        node_of, mine = self._context.nodes.node_of, self._seats.get(item, ())
        by_node: dict[str, list[AgentNode]] = {}
        for one in sorted(workers, key=lambda one: (one.name not in mine, -one.free)):
            by_node.setdefault(node_of(one.name), []).append(one)
        others = (seats for other, seats in self._seats.items() if other != item)
        taken = Counter(map(node_of, chain.from_iterable(others)))
        return {
            node: (_as_one(node, theirs, taken[node]), [one.name for one in theirs])
            for node, theirs in by_node.items()
        }

    def committed(self, item: str, tally: Tally, commits_left: float = inf) -> None:
        known = self.known.get(item)
        if known is None or tally.moved < _LEAST or not tally.copies or tally.failed:
            return
        usual = self._usual.setdefault(item, float(tally.moved))
        most = self._most[item]
        seconds = tally.seconds * usual / tally.moved
        now = self.rule.committed(known, self._had[item], seconds, most, commits_left)
        self.known[item] = now
        if now.agents != known.agents:
            self._context.tell("agents", f"{item}: {now.why or f'{now.agents} agents'}")

    def forget(self, item: str) -> None:
        for known in (self.known, self._had, self._usual, self._most, self._seats):
            known.pop(item, None)

    def look(self) -> None:
        """At the room there is, and at what uses it."""
        nodes = self._agents.able()
        there = len({node.domain for node in nodes})
        more = self.rule.more_nodes(nodes)
        self.wanted = there + 1 if more is not None else self._needed(nodes)
        told = ""
        if more is not None:
            told = more.reason.partition(" ")[0]
            if told != self._told:
                when = "when there is one to spare"
                if more.is_urgent:
                    when = "without delay: commits fail soon"
                self._context.tell("more-nodes", f"1 more for copies, {when}: {more.reason}")
        self._told = told
        idle = self.rule.idle_nodes(nodes)
        for one in idle:
            if one.node not in self._idle:
                self._context.tell("idle-agent", f"{one.node} is not needed for copies: {one.reason}")
        self._idle = {one.node for one in idle}
        managed = context_of(self._context.scheduler)
        if managed is not None and managed.policy.lending is not None:
            self._scale(managed.get(NodeDesk), more)

    def give_all_back(self) -> None:
        """Nothing is protected any more: no node is needed for copies."""
        managed, own = context_of(self._context.scheduler), self._context.own_nodes
        if managed is not None and own:
            managed.get(NodeDesk).receive(NodesReturned(BORROWS, own, "nothing is protected any more"))

    def _scale(self, desk: NodeDesk, more: MoreNodes | None) -> None:
        """Nodes for copies alone are asked for, and given back when nothing was kept there for long."""
        says, self.scaling = scale(self.scaling, BORROWS, more, monotonic())
        if says is not None:
            desk.receive(says)
        own, nodes = self._context.own_nodes, self._context.nodes
        unused = [name for name in own if self._idle.issuperset(nodes.workers(name))][: len(own) - 1]
        if unused and more is None:
            desk.receive(NodesReturned(BORROWS, tuple(unused), "nothing was kept there for long"))

    def _needed(self, nodes: list[AgentNode]) -> int:
        """The fewest that hold all copies, none of them crowded; the data is on at least one other."""
        used = sum(node.used for node in nodes)
        if not used:
            return 0
        of_one = sum(node.budget for node in nodes) / len({node.domain for node in nodes})
        return 1 + ceil(used / (self.rule.low * of_one)) if of_one else 1


_RETURN = 20.0  # seconds in which an agent that died is followed by another, if at all


@dataclass
class OnDisk:
    """What came of writing copies: contents that are on a disk now, bytes of those, and what went wrong."""

    there: set[str]
    nbytes: int
    seconds: float
    problem: str


class Disks:
    """Which copies are on the disks of agents. ``wake`` is set when one is not waited for any longer."""

    def __init__(self, calls: WorkerCalls, placement: CopyPlacement) -> None:
        self._calls = calls
        self._placement = placement
        self._catalogue = placement.catalogue
        self.wake = asyncio.Event()
        #: by agent, what it has on disk
        self._on: dict[str, set[str]] = {}
        #: contents on disks of agents that died, and until when they may come back
        self._until: dict[str, float] = {}
        self._came = asyncio.Event()

    async def keep(self, keys: Iterable[Hashable]) -> OnDisk:
        """Have agents write the copies of these keys' blocks to their disks."""
        return await self.keep_contents(self._catalogue.where(key)[0] for key in keys)

    async def keep_contents(self, contents: Iterable[str]) -> OnDisk:
        """The same of contents."""
        by_agent: dict[str, set[str]] = {}
        for content in contents:
            copies = self._catalogue.contents.get(content)
            for agent in sorted(copies.where) if copies is not None else ():
                by_agent.setdefault(agent, set()).add(content)
        began = monotonic()
        found = OnDisk(set(), 0, 0.0, "")
        await asyncio.gather(*(self._keep(agent, theirs, found) for agent, theirs in by_agent.items()))
        found.seconds = monotonic() - began
        return found

    async def _keep(self, agent: str, contents: set[str], found: OnDisk) -> None:
        known = self._on.setdefault(agent, set())
        known.intersection_update(self._catalogue.on(agent))
        found.there |= contents & known
        if not (new := sorted(contents - known)):
            return
        try:
            said = await self._calls.call(agent, "hpc_agent_keep", contents=new)
        except OSError as error:  # it has gone, and its copies are made again elsewhere
            found.problem = str(error)
            return
        if said is None:  # its agent has gone
            return
        known.update(said["disk"])
        found.there.update(said["disk"])
        there = self._catalogue.contents
        found.nbytes += sum(there[one].nbytes for one in said["disk"] if one in there)
        for content, why in said["trouble"].items():
            found.problem = f"{content[:16]} is not on {agent}'s disk: {why}"

    def agent_is_gone(self, agent: str) -> None:
        theirs = self._on.pop(agent, set()) & self._catalogue.on(agent).keys()
        if theirs:
            until = monotonic() + _RETURN
            self._until.update(dict.fromkeys(theirs, until))
            asyncio.get_running_loop().call_later(_RETURN, self._give_up, theirs)

    def _give_up(self, contents: set[str]) -> None:
        now = monotonic()
        gone = [one for one in contents if self._until.get(one, now + 1) <= now]
        for one in gone:
            del self._until[one]
        self._came.set()
        self._placement.look_at(gone)
        self.wake.set()

    def agent_has(self, contents: Iterable[str]) -> None:
        for content in contents:
            self._until.pop(content, None)
        self._came.set()

    def may_return(self, content: str) -> bool:
        return content in self._until

    async def returned(self, content: str) -> None:
        """Until that is decided."""
        while content in self._until:
            self._came.clear()
            await self._came.wait()


#: by scheduler, what takes agents away
_ENDING: WeakKeyDictionary[Any, "asyncio.Future[None]"] = WeakKeyDictionary()


async def send_agents(scheduler: Any, share: float, disk: str = "") -> None:
    """To all workers, now and later; those that are just being taken away are away first."""
    while (ending := _ENDING.get(scheduler)) is not None:
        await asyncio.wait([ending])
    agent = Agent(share, disk, run=scheduler.id)
    await compat.add_worker_plugin(scheduler, NAME, compat.pickled(agent))


def agents_go(scheduler: Any) -> list["asyncio.Future[None]"]:
    """What takes them away, if they are on their way out."""
    return [ending] if (ending := _ENDING.get(scheduler)) is not None else []


def take_agents_away(scheduler: Any) -> None:
    """A moment later they are gone, with all they keep."""

    async def take_away() -> None:
        with suppress(TimeoutError, OSError):  # a worker that does not answer, or has gone
            async with asyncio.timeout(_PATIENCE):
                await compat.remove_worker_plugin(scheduler, NAME)

    ending = _ENDING[scheduler] = asyncio.ensure_future(take_away())
    ending.add_done_callback(lambda _: _ENDING.pop(scheduler, None))
