"""Copies are made and kept: what ``placement`` says is carried out, and what comes of it is told there.

No more than a window of bytes is on its way at a time, and only that is pinned in memory. An agent that is
full or silent is passed over for the next one; a source that has nothing any more for another. What nobody
takes is told once, and tried again when there may be room.

Blocks are dealt a few hundred at a time, so that the scheduler is never kept from its work for long. Every
few seconds all is looked at, a few hundred keys at a time: Dask moves results without telling anybody.
"""

import asyncio
from collections.abc import Callable, Collection, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from time import perf_counter
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.checkpoint.scheduler.agents import AgentChoice, Agents, Disks
from dask_hpc.checkpoint.scheduler.catalogue import Dealer
from dask_hpc.checkpoint.scheduler.context import ControllerContext, HasGone, Tally, WorkerCalls
from dask_hpc.checkpoint.scheduler.placement import CopyPlacement, Drops, Order, Steps
from dask_hpc.checkpoint.scheduler.recipes import Recipes
from dask_hpc.model.errors import one_line
from dask_hpc.strategies.checkpoint.agent_rule import to_remove

_AT_ONCE = 256  # blocks that are dealt before others may work
_BATCH, _BATCH_BYTES = 64, 64 * 2**20  # blocks and bytes that an agent is asked for at once
_TRIES, _PAUSE = 3, 0.05  # of a block that could not be had, and seconds before the second one
_SLOWEST = 2**20  # bytes per second; slower than that an answer does not come
_PATIENCE = 120.0  # seconds for an answer beside the time for the bytes
_PINS = "dask-hpc-checkpoint"


@dataclass
class Made(Tally):
    """What came of orders."""

    #: blocks for which there was no agent
    left: list[Order] = field(default_factory=list)
    #: whether only keys that somebody wishes to be copied matter
    is_for_wishes: bool = False
    #: whether somebody was waited for who does not answer: how long it took says nothing of the next time
    is_hindered: bool = False

    def lacks(self, why: str, order: Order) -> None:
        self.failed[why] += 1
        self.left.append(order)


class CopyMaker:
    """Has agents take copies, and drop them."""

    def __init__(self, context: ControllerContext) -> None:
        self._scheduler = context.scheduler
        self._host_of = context.nodes.node_of
        self._placement, self._agents = context.get(CopyPlacement), context.get(Agents)
        self._choice, self._recipes = context.get(AgentChoice), context.get(Recipes)
        self._calls = context.get(WorkerCalls)
        self._in_flight = 0.0
        self._has_left = asyncio.Event()
        self._has_ended = asyncio.Event()

    async def make(
        self,
        orders: Iterable[Order | None],
        item: str = "",
        keys: Iterable[Hashable] = (),
        is_for_wishes: bool = False,
    ) -> Made:
        """Have these copies made, on the agents of an item, which has these keys; those in memory stay there
        until then. Ends when all are there, or nobody takes what is left."""
        made, since = Made(is_for_wishes=is_for_wishes), perf_counter()
        todo = iter(orders)
        while later := await self._make_now(todo, item, keys, made):
            while not self._placement.claimed.isdisjoint(later):  # somebody else has them copied
                self._has_ended.clear()
                await self._has_ended.wait()
            todo = self._placement.orders(later.items())
        made.seconds = perf_counter() - since
        await self.drop(self._placement.unneeded())
        return made

    async def _make_now(
        self, todo: Iterator[Order | None], item: str, keys: Iterable[Hashable], made: Made
    ) -> dict[Hashable, int]:
        """All but keys that are on their way already: on how many agents these are wanted."""
        sending: list[asyncio.Task[None]] = []
        dealer: Dealer | None = None
        mine: set[Hashable] = set()
        later: dict[Hashable, int] = {}
        try:
            while (some := self._next(todo)) is not None:
                if some:
                    if dealer is None:
                        await self._agents.come()
                        dealer = self._choice.dealer(item, keys)
                    some = self._placement.claim(some, mine, later)
                    await self._make_room()
                    for agent, parcel in self._deal(some, dealer, made):
                        await self._make_room()
                        self._enter(parcel)
                        sending.append(asyncio.ensure_future(self._send(agent, parcel, dealer, made)))
                await asyncio.sleep(0)
            await asyncio.gather(*sending)
        finally:
            for task in sending:
                task.cancel()
            self._placement.claimed -= mine
            self._has_ended.set()
        return later

    async def drop(self, drops: Mapping[str, Iterable[str]]) -> None:
        """Agents need not keep these contents any longer, unless somebody needs them again by now."""
        for agent, contents in self._placement.to_drop(drops).items():
            if agent not in self._agents or not (unneeded := self._placement.drops(agent, contents)):
                continue
            self._agents.promise(agent, 1.0)
            try:
                with suppress(OSError):
                    await self._scheduler.rpc(agent).hpc_agent_drop(contents=unneeded)
            finally:
                self._agents.promise(agent, -1.0)
                self._placement.dropped(agent, unneeded)

    def close(self) -> None:
        compat.unpin_all(self._scheduler, _PINS)

    def _next(self, orders: Iterator[Order | None]) -> list[Order] | None:
        """The next few; None if there are no more."""
        found = list(islice(orders, _AT_ONCE))
        return [order for order in found if order is not None] if found else None

    def _deal(self, orders: Iterable[Order], dealer: Dealer, made: Made) -> list[tuple[str, list[Order]]]:
        """What each agent is asked for, in parcels of a size that is handy."""
        parcels: list[tuple[str, list[Order]]] = []
        open_: dict[str, list[Order]] = {}
        room: dict[str, float] = {}
        for order in orders:
            where = self._placement.deal(order, dealer)
            for _ in range(order.copies - len(where)):
                made.lacks("no agent has room", order.one())
            for agent in where:
                self._agents.promise(agent, order.nbytes)
                parcel = open_.get(agent)
                if parcel is None or len(parcel) == _BATCH or room[agent] < order.nbytes:
                    parcel = open_[agent] = []
                    room[agent] = _BATCH_BYTES
                    parcels.append((agent, parcel))
                parcel.append(order.one())
                room[agent] -= order.nbytes
        return parcels

    async def _make_room(self) -> None:
        while self._in_flight >= self._choice.rule.window:
            self._has_left.clear()
            await self._has_left.wait()

    def _enter(self, parcel: Sequence[Order]) -> None:
        self._in_flight += sum(order.nbytes for order in parcel)
        keys = [order.key for order in parcel if order.key is not None]
        known = [key for key in keys if compat.find_task(self._scheduler, key) is not None]
        if new := self._placement.sends(known):
            compat.pin(self._scheduler, new, _PINS)

    async def _send(self, agent: str, parcel: list[Order], dealer: Dealer, made: Made) -> None:
        try:
            await self._send_on(agent, parcel, dealer, made)
        finally:
            self._leave(parcel)

    def _leave(self, parcel: Sequence[Order]) -> None:
        self._in_flight -= sum(order.nbytes for order in parcel)
        if free := self._placement.sent(order.key for order in parcel):
            compat.unpin(self._scheduler, free, _PINS)
        self._has_left.set()

    async def _send_on(self, agent: str, parcel: list[Order], dealer: Dealer, made: Made) -> None:
        """Ask an agent, and then others for what it did not take."""
        again: list[Order] = []
        try:
            for order, said in await self._ask(agent, parcel):
                if (why := self._note(agent, order, said, dealer, made)) is None:
                    continue
                if order.errors < _TRIES:
                    again.append(order)
                else:
                    made.lacks(why, order)
        finally:
            self._agents.promise(agent, -float(sum(order.nbytes for order in parcel)))
        if again:
            await asyncio.sleep(_PAUSE * 2 ** max(order.errors for order in again))
            again = [order for order in again if order.key is None or self._agents.holders(order.key)]
            for other, rest in self._deal(again, dealer, made):
                await self._send_on(other, rest, dealer, made)

    async def _ask(self, agent: str, parcel: list[Order]) -> list[tuple[Order, dict[str, Any]]]:
        questions = [(order, self._placement.question(order, agent)) for order in parcel]
        asked = [order for order, block in questions if block is not None]
        blocks = [block for _, block in questions if block is not None]
        if not blocks:
            return []
        doubted = self._placement.asks(agent)
        try:
            async with asyncio.timeout(_PATIENCE + sum(order.nbytes for order in asked) / _SLOWEST):
                found = await self._transfer(agent, blocks)
        except (OSError, TimeoutError) as error:
            if isinstance(error, HasGone) and error.address != agent:
                return [(order, {"error": "whoever had it is gone"}) for order in asked]
            self._agents.is_silent(agent)
            return [(order, {"silent": one_line(str(error))}) for order in asked]
        finally:
            self._placement.answers(agent, doubted)
        self._agents.answers(agent)
        doubtful = {"error": "it was told to drop it"}
        said = (doubtful if one.get("content") in doubted else one for one in found)
        return list(zip(asked, said, strict=True))

    async def _transfer(self, agent: str, blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """As the strategy in force says; what one worker of a host gathers it sends."""
        rule = self._choice.rule
        if rule.transfer == "push" or rule.gather == "host":
            host_of = self._host_of if rule.gather == "host" else str
            return await pushed(self._calls, agent, blocks, host_of)
        sources = {block["source"] for block in blocks}
        said: list[dict[str, Any]] | None
        said = await self._calls.call(agent, "hpc_agent_take", needs=sources, blocks=blocks)
        if said is None:
            raise ConnectionError("it has no agent")
        return said

    def _note(
        self, agent: str, order: Order, said: Mapping[str, Any], dealer: Dealer, made: Made
    ) -> str | None:
        """What an agent says of a block. Why it has no copy, if so."""
        if "content" in said:
            made.copied(said["nbytes"], said.get("moved", 0))
            key = order.key
            matters = key in self._placement.wishes or not made.is_for_wishes
            matters = matters and compat.find_task(self._scheduler, key) is not None
            counts = self._placement.is_copied(agent, order, said["content"], said["nbytes"], matters)
            if counts and key is not None:
                self._recipes.load_instead(key)
            return None
        dealer.gives_back(agent, order.nbytes)
        if "full" in said:
            dealer.is_full(agent)
            self._agents.is_full(agent)
            return str(said["full"])
        made.is_hindered = True
        if "silent" in said:
            dealer.is_full(agent)
            return f"{agent} does not answer: {said['silent']}"
        order.errors += 1
        order.not_to.discard(agent)  # it was perhaps the source's fault
        return f"{agent}: {said.get('error')}"


async def pushed(
    calls: WorkerCalls, agent: str, blocks: Sequence[dict[str, Any]], host_of: Callable[[str], str]
) -> list[dict[str, Any]]:
    """Have blocks sent to an agent, those of one host by one worker there. Answers as the agent would if it
    had been asked to take them."""
    by_host: dict[str, list[int]] = {}
    for place, block in enumerate(blocks):
        by_host.setdefault(host_of(block["source"]), []).append(place)
    answers: list[dict[str, Any]] = [{} for _ in blocks]

    async def from_one(places: Sequence[int]) -> None:
        theirs = [blocks[place] for place in places]
        sender = theirs[0]["source"]
        try:
            sources = {agent, *(block["source"] for block in theirs)}
            said = await calls.call(sender, "hpc_agent_send", needs=sources, blocks=theirs, to=agent)
            error = {"error": f"{sender} has no agent"}
        except OSError as wrong:
            said, error = None, {"error": one_line(str(wrong))}
        for number, place in enumerate(places):
            answers[place] = error if said is None else said[number]

    await asyncio.gather(*map(from_one, by_host.values()))
    return answers


_LOOK = 5.0  # seconds between looks at everything
_SHARE = 0.01  # of the scheduler's time that they may take
_ANNOUNCED, _COMING = 5.0, 30.0  # seconds in which what was announced comes, and what is on its way
_LOOKED_AT = 512  # contents that are looked at before others may work
_FIRST_PAUSE, _LAST_PAUSE = 0.5, 30.0  # seconds before what found no room is tried again


class CopyKeeper:
    """Sees that what is protected stays so: copies that were lost, or could not be made at first, are made
    later. ``stored`` is what is in a store."""

    def __init__(self, context: ControllerContext, stored: Container[Hashable]) -> None:
        self._context = context
        self._placement, self._agents = context.get(CopyPlacement), context.get(Agents)
        self._choice, self._recipes = context.get(AgentChoice), context.get(Recipes)
        self._maker, self._disks = context.get(CopyMaker), context.get(Disks)
        self._stored = stored
        #: copies that agents are about to hear they may drop
        self._drops: Drops = {}
        #: by agent whose number of copies differed at the last look, how often it had been asked by then
        self._doubted: dict[str, int] = {}
        self._pause = _FIRST_PAUSE
        self._is_short = False
        #: seconds that the last look at everything took
        self._took = 0.0
        self._wake = self._disks.wake
        self._task = asyncio.ensure_future(self._go_on())

    def close(self) -> None:
        self._task.cancel()

    def look_at(self, contents: Iterable[str]) -> None:
        self._placement.look_at(contents)
        self._wake.set()

    def arrived(self, address: str, keys: Iterable[Hashable]) -> None:
        self._placement.arrived(address, keys)
        self._wake.set()

    def moves(self, key: Hashable, finish: str) -> None:
        if finish == "forgotten":
            self._recipes.forget(key)
            self.release(key)
        elif finish == "memory" and self._placement.is_back(key):
            self.owes([key])
        elif finish in ("memory", "released"):
            self._placement.in_memory(key)
            self._wake.set()

    async def commit(
        self,
        item: str,
        wanted: Iterable[tuple[Hashable, int]],
        keys: Iterable[Hashable],
        like: Mapping[Hashable, str] | None = None,
        is_for_wishes: bool = False,
        commits_left: float = inf,
    ) -> Made:
        """Have copies made of what of an item is in memory: see ``CopyMaker.make``. Of wishes, what nobody
        took is tried again later. So many more commits are to come."""
        made = await self._maker.make(self._placement.orders(wanted, like), item, keys, is_for_wishes)
        self._choice.committed(item, made, commits_left)
        self._context.diary.committed(item, made)
        if is_for_wishes:
            self.look_at([order.content for order in made.left if order.content])
            if owed := [order.key for order in made.left if order.key is not None and not order.content]:
                self.owes(owed)
        return made

    def owes(self, keys: Iterable[Hashable]) -> None:
        self._placement.owes(keys)
        self._say_short(len(self._placement.owed), "results have no copy yet")

    def room_comes(self) -> None:
        self._pause = _FIRST_PAUSE
        if self._is_short or self._placement.owed:
            self.look_at(self._context.catalogue.contents)

    def release(self, key: Hashable) -> None:
        self.drop_soon(self._placement.release(key))

    def lapse(self, key: Hashable) -> bool:
        """A key has no copy any more. Whether it can be computed."""
        self.drop_soon(self._placement.lapse(key))
        return self._recipes.no_copy(key)

    def drop_soon(self, drops: Drops) -> None:
        """Copies may go: all at once what was released in the same moment."""
        if drops:
            self._drops.update(drops)
            if len(self._drops) == len(drops):
                self._context.do("a copy", self._drop())

    async def _drop(self) -> None:
        drops, self._drops = self._drops, {}
        await self._maker.drop(drops)

    async def set_apart(self, keys: Iterable[Hashable]) -> None:
        """These were copied just now: results may have moved meanwhile to where the copies went. Have such
        copied once more, elsewhere; what is short of room then is left for later."""
        content_of = self._context.catalogue.content_of
        contents = iter({content_of.get(key, ""): None for key in keys})
        while some := list(islice(contents, _LOOKED_AT)):
            steps = self._placement.steps(some)
            await self._follow(steps)
            if steps.orders:
                made = await self._make(steps.orders)
                self.look_at(order.content for order in made.left)
            await asyncio.sleep(0)

    async def _go_on(self) -> None:
        clock = asyncio.get_running_loop().time
        next_look = clock() + _LOOK
        while True:
            is_short = self._is_short or self._placement.owed
            until = min(next_look, clock() + self._pause) if is_short else next_look
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await self._wake.wait()
            self._wake.clear()
            try:
                if clock() >= until:
                    self._placement.look_at()
                    self._choice.look()
                    await self.ask_who_differs()
                self._took = 0.0
                await self._catch_up()
                next_look = clock() + max(_LOOK, self._took / _SHARE)
            except OSError:  # a worker that has gone, of which we shall hear
                continue
            except Exception as error:
                self._context.count_error("keeping copies", error)

    async def _catch_up(self) -> None:
        """Look at all that is doubtful, and copy what is on too few agents."""
        was_short, self._is_short = self._is_short, False
        missing = 0
        begun = perf_counter()
        while (steps := self._placement.next_few(_LOOKED_AT)) is not None:
            self._took += perf_counter() - begun
            if steps.orders:
                made = await self._make(steps.orders)
                missing += len(made.left)
                if made.copies:
                    self._context.diary.copied_again(made)
            await self._follow(steps)
            await asyncio.sleep(0)
            begun = perf_counter()
        if self._placement.owed:
            owed = [(key, self._placement.wanted(key)) for key in self._placement.owed]
            await self._maker.make(self._placement.orders(owed), is_for_wishes=True)
            self._placement.pay()
        if missing:
            self._say_short(missing, "more copies are wanted than agents take", was_short)
        if missing or self._placement.owed:
            self._is_short = True
            self._pause = min(2 * self._pause, _LAST_PAUSE)
        elif was_short:
            self._pause = _FIRST_PAUSE
            self._context.tell("agents", "all that is protected is on as many agents again as is wanted")

    async def _follow(self, steps: Steps) -> None:
        """All but the orders."""
        for key in steps.gone:
            self._nobody_has(key)
        await self._maker.drop(steps.drops)

    async def _make(self, orders: list[Order]) -> Made:
        contents = self._placement.makes_again(orders)
        try:
            return await self._maker.make(orders)
        finally:
            self._placement.made_again(contents)
            self._wake.set()

    def _nobody_has(self, key: Hashable) -> None:
        """All copies of a key are gone, and it is in nobody's memory."""
        if self._disks.may_return(self._context.catalogue.content_of.get(key, "")):
            return
        task = compat.find_task(self._context.scheduler, key)
        if key in self._stored:  # it is loaded from there, and copied again then
            self.drop_soon(self._placement.lapse(key))
        elif task is not None and task.state == "released":  # else its worker will say so
            is_lost = "" if self.lapse(key) else ", and it cannot be computed again"
            self._context.tell("lost", one_line(f"all copies of {key!r} are gone{is_lost}"))

    def _say_short(self, number: int, what: str, is_told: bool = False) -> None:
        if not self._is_short and not is_told:
            self._context.tell("agents", f"{number} {what}; tried again when there may be room")
        self._is_short = True

    async def agent_has(self, agent: str, contents: Iterable[str]) -> None:
        drops = self._placement.has(agent, contents)
        self._wake.set()
        await self._maker.drop(drops)

    async def ask_who_differs(self) -> None:
        """Agents whose heartbeats say twice that they have more or fewer copies than we know of."""
        before, self._doubted = self._doubted, {}
        for agent, facts in self._agents.facts().items():
            asked = self._agents.asked(agent)
            if asked is None or facts.get("copies") == len(self._context.catalogue.on(agent)):
                continue
            if before.get(agent) != asked:
                self._doubted[agent] = asked
                continue
            with suppress(OSError):
                found = await self._context.scheduler.rpc(agent).hpc_agent_contents()
                if self._agents.asked(agent) == asked:  # nothing has come meanwhile
                    await self.agent_has(agent, found)

    async def vacate(self, nodes: Mapping[str, Sequence[str]], count: int) -> tuple[list[str], str]:
        """So many of these nodes, each of which has some agents, are to keep no copies any more: seed 000,
        section 7.3.1.2, Algorithm 9. Which of them do not, and why not more.

        What they have goes to others first, none of which is about to go as well; nothing is dropped before
        others have it. There, it is written to the parallel file system instead, and read back from there.
        """
        chosen = to_remove(self._agents.together(nodes), count)
        leaving = {agent for name in chosen for agent in nodes[name]}
        found: list[str] = []
        with self._agents.without(leaving):
            made = await self._maker.make(self._placement.leaving(leaving))
            for name in chosen:
                gone = {agent for one in (*found, name) for agent in nodes[one]}
                if self._placement.can_do_without(gone):
                    found.append(name)
            vacated = [agent for name in found for agent in nodes[name]]
            await self._maker.drop(self._placement.forget(vacated))
        told, stay = f"{made.copies} copies are on others now", [one for one in chosen if one not in found]
        if stay:
            told += f"; for what is on {', '.join(stay)} there is no room elsewhere"
        return found, told

    async def _what_is_on_its_way(self, leaving: Collection[str]) -> None:
        """Until these agents have what they were asked to take, and what others are giving them, whether
        those have said so or not; for a while at most."""
        clock, catalogue = asyncio.get_running_loop().time, self._context.catalogue
        begun = clock()
        while True:
            announced: dict[str, set[str]] = {agent: set() for agent in leaving if agent in self._agents}
            for tenant in self._context.tenants:
                for agent, contents in tenant.announced(leaving).items():
                    announced.get(agent, set()).update(contents)
            coming, nbytes = False, 0.0
            for agent, contents in announced.items():
                given = sum(catalogue.contents[one].nbytes for one in contents if one in catalogue.contents)
                nbytes += max(0.0, self._agents.promised(agent) - given)
                if left := contents - catalogue.on(agent).keys():
                    with suppress(OSError):
                        found = await self._context.scheduler.rpc(agent).hpc_agent_contents()
                        for content in left.intersection(found):
                            catalogue.add(content, agent)
                    coming = coming or not left <= catalogue.on(agent).keys()
            took = clock() - begun
            if not (coming and took < _ANNOUNCED) and not (nbytes and took < _COMING):
                return
            await asyncio.sleep(_PAUSE)

    async def drain(self, agents: Iterable[str]) -> None:
        """These are about to leave: make sure that others have as many copies of all that they have."""
        leaving = set(agents)
        try:
            with self._agents.without(leaving):
                for tenant in self._context.tenants:
                    await tenant.prepare(leaving)
                await self._what_is_on_its_way(leaving)
                if not any(map(self._context.catalogue.on, leaving)):
                    return
                made = Made()
                for _ in range(_TRIES):  # who took some may have begun to leave meanwhile, or died
                    hints: dict[str, str] = {}
                    for tenant in self._context.tenants:
                        hints |= tenant.leaving(leaving)
                    orders = self._placement.leaving(leaving, hints, self._agents.leaving)
                    if not orders:
                        break
                    found = await self._maker.make(orders)
                    made.add(found)
                    made.left = found.left
        except OSError:
            return
        except Exception as error:
            self._context.count_error("a drain", error)
            return
        left = f"; for {len(made.left)} there is no room" if made.left else ""
        moved = f"{made.copies} copies from {len(leaving)} agents"
        self._context.tell("drain", f"{moved} that leave are on others now{left}")
