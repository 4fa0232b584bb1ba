"""Copies are made: blocks are dealt to agents, agents are asked to take them, and answers are noted.

No more than a window of bytes is on its way at a time, and only that is pinned in memory. An agent that is
full or silent is passed over for the next one; a source that has nothing any more for another. What nobody
takes is told once and left to ``keeping``, which tries again when there may be room.

Blocks are dealt a few hundred at a time, so that the scheduler is never kept from its work for long.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from time import perf_counter, thread_time
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.checkpoint.scheduler.agents import Agents, Calling
from dask_hpc.checkpoint.scheduler.catalogue import Catalogue, Dealing
from dask_hpc.checkpoint.scheduler.diary import Tally
from dask_hpc.model.errors import one_line


async def pushed(
    calling: Calling, agent: str, blocks: Sequence[dict[str, Any]], host_of: Callable[[str], str] | None
) -> list[dict[str, Any]]:
    """Have blocks sent to an agent, each by its ``source``, or if hosts are known by one worker of its host.
    Answers as the agent would if it had fetched them."""
    by_host: dict[str, list[int]] = {}
    for place, block in enumerate(blocks):
        source = block["source"]
        by_host.setdefault(source if host_of is None else host_of(source), []).append(place)
    answers: list[dict[str, Any]] = [{} for _ in blocks]

    async def from_one(places: Sequence[int]) -> None:
        theirs = [blocks[place] for place in places]
        sender = theirs[0]["source"]
        try:
            said = await calling.call(sender, "hpc_agent_send", blocks=theirs, to=agent)
            error = {"error": f"{sender} has no agent"}
        except OSError as wrong:
            said, error = None, {"error": one_line(str(wrong))}
        for number, place in enumerate(places):
            answers[place] = error if said is None else said[number]

    await asyncio.gather(*map(from_one, by_host.values()))
    return answers


_AT_ONCE = 256  # blocks that are dealt before others may work
_BATCH, _BATCH_BYTES = 64, 64 * 2**20  # blocks and bytes that an agent is asked for at once
_TRIES, _PAUSE = 3, 0.05  # of a block that could not be had, and seconds before the second one
_SLOWEST = 2**20  # bytes per second; slower than that an answer does not come
_PATIENCE = 120.0  # seconds for an answer beside the time for the bytes
_PINS = "dask-hpc-checkpoint"


@dataclass(slots=True)
class Order:
    """A block that so many more agents are to have, of ``wanted`` in all: that of a key, or a copy of a
    content. A key's may be ``like`` what an agent has already."""

    key: Hashable | None
    content: str
    nbytes: int
    copies: int
    wanted: int = 1
    #: agents that have it or could not take it
    not_to: set[str] = field(default_factory=set)
    #: whether only an agent in another failure domain will do
    is_choosy: bool = False
    like: str = ""
    errors: int = 0

    def one(self) -> "Order":
        """The same block, for one agent of them."""
        return self if self.copies == 1 else replace(self, copies=1)


@dataclass
class Made(Tally):
    """What came of it, and how long it took."""

    seconds: float = 0.0
    #: blocks for which there was no agent
    left: list[Order] = field(default_factory=list)
    #: whether a key still matters
    is_wanted: Callable[[Hashable], bool] = lambda key: True

    def lacks(self, why: str, order: Order) -> None:
        """One copy was not made."""
        self.failed[why] += 1
        self.left.append(order)


@dataclass(eq=False)
class _Question:
    """What an agent was asked for and has not answered: from which workers it is to have it, and what it was
    told to drop meanwhile."""

    agent: str
    sources: set[str]
    dropped: set[str]


class Copying:
    """``copied(key)`` is called when a key's block has a copy; ``dealing`` says how the blocks of an item are
    dealt now; ``window`` is the bytes that may be on their way; ``rule`` is the strategy in force."""

    def __init__(
        self,
        scheduler: Any,
        catalogue: Catalogue,
        agents: Agents,
        copied: Callable[[Hashable], None],
        dealing: Callable[[str], Dealing],
        window: Callable[[], float],
        rule: Callable[[], Any],
        calling: Calling,
    ) -> None:
        self._scheduler = scheduler
        self._catalogue = catalogue
        self._agents = agents
        self._copied = copied
        self._dealing = dealing
        self._window = window
        self._rule = rule
        self._calling = calling
        self._in_flight = 0.0
        self._has_left = asyncio.Event()
        #: keys that somebody has copied right now
        self._coming: set[Hashable] = set()
        self._has_ended = asyncio.Event()
        self._asking: dict[asyncio.Future[list[dict[str, Any]]], _Question] = {}
        #: by agent, what it is being told to drop
        self._dropping: defaultdict[str, Counter[str]] = defaultdict(Counter)
        #: by content, agents that took it for nothing
        self._leftovers: dict[str, list[str]] = {}
        #: how often each key is pinned
        self._pins: dict[Hashable, int] = {}
        #: seconds of its processor in which the scheduler could do nothing else, at worst
        self.longest_pause = 0.0

    async def copy(
        self, keys: Iterable[Hashable], number: int = 1, like: Mapping[Hashable, str] | None = None
    ) -> Made:
        """Give those of the keys that are in memory so many copies each; they stay in memory until then.
        ``like`` has the contents that some of them probably have: those need not move."""
        return await self.make(self.orders(keys, lambda key: number, like))

    def orders(
        self,
        keys: Iterable[Hashable],
        number: Callable[[Hashable], int],
        like: Mapping[Hashable, str] | None = None,
    ) -> Iterator[Order | None]:
        """What there is to be done for each key; nothing if it is not in memory, or has all its copies."""
        for key in keys:
            wanted = number(key)
            content, there = self._catalogue.content_of.get(key, ""), 0
            if copies := self._catalogue.contents.get(content):
                there = len(copies.where)
            if wanted > there and self.holders(key):
                nbytes = compat.size(compat.find_task(self._scheduler, key))
                similar = (like or {}).get(key, "")
                yield Order(key, content, nbytes, wanted - there, wanted, like=similar)
            else:
                yield None

    async def make(
        self,
        orders: Iterable[Order | None],
        item: str = "",
        is_wanted: Callable[[Hashable], bool] = lambda key: True,
    ) -> Made:
        """Have these copies made, on the agents of an item. Ends when all are there, or nobody takes what is
        left. What arrives of a key that nobody wants by then is dropped."""
        made, since = Made(is_wanted=is_wanted), perf_counter()
        todo = iter(orders)
        while later := await self._make_now(todo, item, made):
            while not self._coming.isdisjoint(later):  # somebody else has them copied
                self._has_ended.clear()
                await self._has_ended.wait()
            todo = self.orders(list(later), later.__getitem__)
        made.seconds = perf_counter() - since
        await self.drop(self._catalogue.unneeded())
        await self._drop_leftovers()
        return made

    async def _make_now(self, todo: Iterator[Order | None], item: str, made: Made) -> dict[Hashable, int]:
        """All but keys that are on their way already: on how many agents these are wanted."""
        sending: list[asyncio.Task[None]] = []
        dealing: Dealing | None = None
        mine: set[Hashable] = set()
        later: dict[Hashable, int] = {}
        try:
            while (some := self._next(todo)) is not None:
                if some:
                    dealing = dealing or await self._begin(item)
                    some = self._without_coming(some, mine, later)
                    await self._make_room()
                    for agent, parcel in self._deal(some, dealing, made):
                        await self._make_room()
                        self._enter(parcel)
                        sending.append(asyncio.ensure_future(self._send(agent, parcel, dealing, made)))
                await asyncio.sleep(0)
            await asyncio.gather(*sending)
        finally:
            for task in sending:
                task.cancel()
            self._coming -= mine
            self._has_ended.set()
        return later

    def _without_coming(
        self, some: Iterable[Order], mine: set[Hashable], later: dict[Hashable, int]
    ) -> list[Order]:
        """What nobody else has copied right now; these are ``mine`` from now on."""
        found = []
        for order in some:
            if order.key is not None and order.key in self._coming and order.key not in mine:
                later[order.key] = order.wanted
                continue
            if order.key is not None:
                mine.add(order.key)
                self._coming.add(order.key)
            found.append(order)
        return found

    async def _begin(self, item: str) -> Dealing:
        await self._agents.come()
        return self._dealing(item)

    async def drop(self, contents: Mapping[str, Iterable[str]]) -> None:
        """Agents need not keep these contents any longer, unless somebody needs them again by now."""
        by_agent: dict[str, list[str]] = {}
        for content, agents in contents.items():
            for agent in agents:
                by_agent.setdefault(agent, []).append(content)
        for agent, theirs in by_agent.items():
            unneeded = [one for one in theirs if one not in self._catalogue.on(agent)]
            if unneeded and agent in self._agents:
                await self._drop_from(agent, unneeded)

    async def _drop_from(self, agent: str, contents: list[str]) -> None:
        """What it says meanwhile that it has of these is not believed."""
        for question in self._asking.values():
            if question.agent == agent:
                question.dropped.update(contents)
        self._dropping[agent].update(contents)
        self._agents.promise(agent, 1.0)
        try:
            with suppress(OSError):
                await self._scheduler.rpc(agent).hpc_agent_drop(contents=contents)
        finally:
            self._agents.promise(agent, -1.0)
            self._dropping[agent] -= Counter(contents)
            if not self._dropping[agent]:
                del self._dropping[agent]

    def holders(self, key: Hashable) -> tuple[str, ...]:
        """The workers that have a key's result."""
        task = compat.find_task(self._scheduler, key)
        return () if task is None or compat.is_actor(task) else compat.holders(task)

    def worker_is_gone(self, address: str) -> None:
        """Nobody waits for an agent that tries to have something from there: that takes half a minute."""
        for asking, question in self._asking.items():
            if address in question.sources:
                asking.cancel()

    def is_busy_with(self, key: Hashable) -> bool:
        """Whether its block is on its way."""
        return key in self._pins

    def close(self) -> None:
        """Nothing is kept in memory for this any longer."""
        self._pins.clear()
        compat.unpin_all(self._scheduler, _PINS)

    # dealing

    def _next(self, orders: Iterator[Order | None]) -> list[Order] | None:
        """The next few; None if there are no more."""
        begun = thread_time()
        found = list(islice(orders, _AT_ONCE))
        self.longest_pause = max(self.longest_pause, thread_time() - begun)
        return [order for order in found if order is not None] if found else None

    def _deal(self, orders: Iterable[Order], dealing: Dealing, made: Made) -> list[tuple[str, list[Order]]]:
        """What each agent is asked for, in parcels of a size that is handy."""
        begun = thread_time()
        parcels: list[tuple[str, list[Order]]] = []
        open_: dict[str, list[Order]] = {}
        room: dict[str, float] = {}
        for order in orders:
            where = self._deal_one(order, dealing, made)
            for agent in where:
                parcel = open_.get(agent)
                if parcel is None or len(parcel) == _BATCH or room[agent] < order.nbytes:
                    parcel = open_[agent] = []
                    room[agent] = _BATCH_BYTES
                    parcels.append((agent, parcel))
                parcel.append(order.one())
                room[agent] -= order.nbytes
        self.longest_pause = max(self.longest_pause, thread_time() - begun)
        return parcels

    def _deal_one(self, order: Order, dealing: Dealing, made: Made) -> list[str]:
        """Agents for a block, outside of where it is already."""
        having = self._having(order)
        domains = {self._agents.domain_of(address) for address in having}
        found = self._alike(order, domains)
        domains.update(map(self._agents.domain_of, found))
        not_to = order.not_to.union(having, found)
        number = order.copies - len(found)
        found += dealing.deal(order.nbytes, number, domains, not_to, order.is_choosy) if number else []
        if len(found) < order.copies and not order.is_choosy:
            found += self._beside_results(order, dealing, found)
        for _ in range(order.copies - len(found)):
            made.lacks("no agent has room", order.one())
        order.not_to.update(found)
        for agent in found:
            self._agents.promise(agent, order.nbytes)
        return found

    def _beside_results(self, order: Order, dealing: Dealing, found: Sequence[str]) -> list[str]:
        """Agents where the result itself is: if it is in several failure domains, a copy in one of them is as
        good as one elsewhere, and nobody else may have room."""
        held = (
            {self._agents.domain_of(one) for one in self.holders(order.key)} if order.key is not None else ()
        )
        if len(held) < 2:
            return []
        copies = self._catalogue.contents.get(order.content)
        there = {*found, *(copies.where if copies is not None else ())}
        domains = {self._agents.domain_of(one) for one in there}
        return dealing.deal(order.nbytes, order.copies - len(found), domains, order.not_to | there)

    def _alike(self, order: Order, domains: set[str]) -> list[str]:
        """Agents that have probably the same already, outside of these failure domains."""
        copies = self._catalogue.contents.get(order.like)
        found: list[str] = []
        for agent in sorted(copies.where) if copies and not order.errors else ():
            is_apart = self._agents.domain_of(agent) not in domains and agent not in order.not_to
            if is_apart and len(found) < order.copies and self._agents.is_able(agent):
                found.append(agent)
        return found

    def _having(self, order: Order) -> set[str]:
        having = set(self.holders(order.key)) if order.key is not None else set()
        if copies := self._catalogue.contents.get(order.content):
            having |= copies.where
            if order.key is None:
                having.update(*(self.holders(key) for key in self._catalogue.keys_of(order.content)))
        return having

    # the window

    async def _make_room(self) -> None:
        while self._in_flight >= self._window():
            self._has_left.clear()
            await self._has_left.wait()

    def _enter(self, parcel: Sequence[Order]) -> None:
        self._in_flight += sum(order.nbytes for order in parcel)
        new = []
        for order in parcel:
            if order.key is not None and compat.find_task(self._scheduler, order.key) is not None:
                self._pins[order.key] = self._pins.get(order.key, 0) + 1
                if self._pins[order.key] == 1:
                    new.append(order.key)
        if new:
            compat.pin(self._scheduler, new, _PINS)

    def _leave(self, parcel: Sequence[Order]) -> None:
        self._in_flight -= sum(order.nbytes for order in parcel)
        free = []
        for order in parcel:
            if order.key in self._pins:
                self._pins[order.key] -= 1
                if not self._pins[order.key]:
                    del self._pins[order.key]
                    free.append(order.key)
        if free:
            compat.unpin(self._scheduler, free, _PINS)
        self._has_left.set()

    # asking

    async def _send(self, agent: str, parcel: list[Order], dealing: Dealing, made: Made) -> None:
        try:
            await self._send_on(agent, parcel, dealing, made)
        finally:
            self._leave(parcel)

    async def _send_on(self, agent: str, parcel: list[Order], dealing: Dealing, made: Made) -> None:
        """Ask an agent, and then others for what it did not take."""
        again: list[Order] = []
        try:
            for order, said in await self._ask(agent, parcel, made):
                if (why := self._note(agent, order, said, dealing, made)) is None:
                    continue
                if order.errors < _TRIES:
                    again.append(order)
                else:
                    made.lacks(why, order)
        finally:
            self._agents.promise(agent, -float(sum(order.nbytes for order in parcel)))
        if again:
            await asyncio.sleep(_PAUSE * 2 ** max(order.errors for order in again))
            again = [order for order in again if order.key is None or self.holders(order.key)]
            for other, rest in self._deal(again, dealing, made):
                await self._send_on(other, rest, dealing, made)

    async def _ask(self, agent: str, parcel: list[Order], made: Made) -> list[tuple[Order, dict[str, Any]]]:
        blocks, asked = [], []
        for order in parcel:
            wanted = self._as_asked(order, agent)
            if wanted is not None:
                blocks.append(wanted)
                asked.append(order)
        if not blocks:
            return []
        if compat.worker_status(self._scheduler, agent) is None:  # Dask would try for long to reach it
            return [(order, {"silent": "it has gone"}) for order in asked]
        patience = _PATIENCE + sum(order.nbytes for order in asked) / _SLOWEST
        asking = asyncio.ensure_future(self._transfer(agent, blocks))
        dropped = set(self._dropping.get(agent, ()))
        self._asking[asking] = _Question(agent, {block["source"] for block in blocks}, dropped)
        try:
            async with asyncio.timeout(patience):
                await asyncio.wait([asking])
            if asking.cancelled():
                return [(order, {"error": "whoever had it is gone"}) for order in asked]
            found = asking.result()
        except (OSError, TimeoutError) as error:
            self._agents.is_silent(agent)
            return [(order, {"silent": one_line(str(error))}) for order in asked]
        finally:
            asking.cancel()
            del self._asking[asking]
        self._agents.answers(agent)
        doubtful = {"error": "it was told to drop it"}
        said = (doubtful if one.get("content") in dropped else one for one in found)
        return list(zip(asked, said, strict=True))

    async def _transfer(self, agent: str, blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """As the strategy in force says; what one worker of a host gathers it sends."""
        rule = self._rule()
        if rule.transfer == "pull" and rule.gather == "worker":
            said: list[dict[str, Any]] = await self._scheduler.rpc(agent).hpc_agent_take(blocks=blocks)
            return said
        host_of = self._agents.node_of if rule.gather == "host" else None
        return await pushed(self._calling, agent, blocks, host_of)

    def _as_asked(self, order: Order, agent: str) -> dict[str, Any] | None:
        """A block as an agent is asked for it: from the nearest that has it. None if nobody has."""
        node = self._agents.domain_of(agent)
        copies = self._catalogue.contents.get(order.content)
        keys = [order.key] if order.key is not None else self._catalogue.keys_of(order.content)
        for key in keys:
            if there := self.holders(key):
                source = there[order.errors % len(there)]
                return {"key": key, "source": source, "have": [order.like or order.content]}
        if copies and copies.where:
            there = tuple(sorted(copies.where, key=lambda one: (self._agents.domain_of(one) != node, one)))
            return {"content": order.content, "source": there[order.errors % len(there)]}
        return None

    def _note(
        self, agent: str, order: Order, said: Mapping[str, Any], dealing: Dealing, made: Made
    ) -> str | None:
        """What an agent says of a block. Why it has no copy, if so."""
        if "content" not in said:
            dealing.gives_back(agent, order.nbytes)
            if "full" in said:
                dealing.is_full(agent)
                self._agents.is_full(agent)
                return str(said["full"])
            if "silent" in said:
                dealing.is_full(agent)
                return f"{agent} does not answer: {said['silent']}"
            order.errors += 1
            order.not_to.discard(agent)  # it was perhaps the source's fault
            return f"{agent}: {said.get('error')}"
        content, nbytes = said["content"], said["nbytes"]
        made.copied(nbytes, said.get("moved", 0))
        if not self._is_noted(agent, order, content, nbytes, made):
            self._drop_soon(content, agent)
        return None

    def _is_noted(self, agent: str, order: Order, content: str, nbytes: int, made: Made) -> bool:
        if order.key is None:
            return self._catalogue.add(content, agent)
        if not made.is_wanted(order.key) or compat.find_task(self._scheduler, order.key) is None:
            return False
        if not self._catalogue.copied(order.key, content, nbytes, agent, order.wanted):
            return False
        self._copied(order.key)
        return True

    def _drop_soon(self, content: str, agent: str) -> None:
        """It was taken for nothing, unless somebody else needs the same."""
        self._leftovers.setdefault(content, []).append(agent)

    async def _drop_leftovers(self) -> None:
        known = self._catalogue.contents
        taken, self._leftovers = self._leftovers, {}
        await self.drop(
            {
                c: [a for a in agents if c not in known or a not in known[c].where]
                for c, agents in taken.items()
            }
        )
