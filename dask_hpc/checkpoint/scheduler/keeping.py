"""What is protected stays so: copies that were lost, or could not be made at first, are made later.

Something happened (an agent died or came, a result was loaded again beside its only copy, or is in nobody's
memory any more, an agent had no room): what it may concern is looked at, and copied again if it is in too few
failure domains. A content is safe if it is in one more of them than the number of copies that is wanted, the
domain of one of Dask's own holders included: then so many may die at once. So what nobody has in memory has
one copy more; and a copy beside one of several holders does not count while another domain is free, as Dask
drops what tasks have needed without telling, and that result may soon be the only one. If there is no room it
is told once, and tried again when some comes.

Every few seconds all is looked at, a few hundred keys at a time: Dask moves results without telling anybody.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from time import monotonic, perf_counter
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.checkpoint.scheduler.agents import Agents, Calling
from dask_hpc.checkpoint.scheduler.catalogue import Catalogue
from dask_hpc.checkpoint.scheduler.copies import Copying, Made, Order
from dask_hpc.checkpoint.scheduler.diary import Diary

_LOOK = 5.0  # seconds between looks at everything
_SHARE = 0.01  # of the scheduler's time that they may take
_AT_ONCE = 512  # contents that are looked at before others may work
_FIRST_PAUSE, _LAST_PAUSE = 0.5, 30.0  # seconds before what found no room is tried again


class Keeping:
    """``copies_of`` says how many copies of a key are wanted; ``nobody_has(key)`` is called when all copies
    of a key that is in nobody's memory are gone; ``also()`` is awaited at each look at everything."""

    def __init__(
        self,
        scheduler: Any,
        catalogue: Catalogue,
        agents: Agents,
        copying: Copying,
        copies_of: Callable[[Hashable], int],
        nobody_has: Callable[[Hashable], None],
        diary: Diary,
        tell: Callable[[str, str], None],
        also: Callable[[], Coroutine[Any, Any, None]],
        count_error: Callable[[str, BaseException], None],
    ) -> None:
        self._scheduler = scheduler
        self._catalogue = catalogue
        self._agents = agents
        self._copying = copying
        self._copies_of = copies_of
        self._nobody_has = nobody_has
        self._diary = diary
        self._tell = tell
        self._also = also
        self._count_error = count_error
        #: contents to be looked at; keys that were to be copied, and have no content yet
        self._doubtful: dict[str, None] = {}
        self.owed: dict[Hashable, None] = {}
        #: contents of which copies are being made, and those of them that somebody looked at meanwhile
        self._coming: set[str] = set()
        self._passed_over: set[str] = set()
        self._pause = _FIRST_PAUSE
        self._is_short = False
        #: seconds that the last look at everything took
        self._took = 0.0
        self._wake = asyncio.Event()
        self._task = asyncio.ensure_future(self._go_on())

    def close(self) -> None:
        """Nothing is looked at any longer."""
        self._task.cancel()

    # what happened

    def look_at(self, contents: Iterable[str]) -> None:
        """These may be on too few agents."""
        self._doubtful.update(dict.fromkeys(contents))
        self._wake.set()

    def arrived(self, address: str, keys: Iterable[Hashable]) -> None:
        """A worker fetched these results. If it has copies of some, Dask may soon drop the other ones."""
        domain = self._agents.domain_of(address)
        for key in keys:
            content, where = self._catalogue.where(key)
            if any(self._agents.domain_of(agent) == domain for agent in where):
                self.look_at([content])

    def owes(self, keys: Iterable[Hashable]) -> None:
        """These were to be copied, and nobody took them."""
        self.owed.update(dict.fromkeys(keys))
        self._say_short(len(self.owed), "results have no copy yet")

    def room_comes(self) -> None:
        """There is another agent, or more room."""
        self._pause = _FIRST_PAUSE
        if self._is_short or self.owed:
            self.look_at(self._catalogue.contents)

    def forget(self, key: Hashable) -> None:
        """Nobody wants it any longer."""
        self.owed.pop(key, None)

    async def set_apart(self, keys: Iterable[Hashable]) -> None:
        """These were copied just now: results may have moved meanwhile to where the copies went. Have such
        copied once more, elsewhere; what is short of room then is left for later."""
        contents = iter({self._catalogue.content_of.get(key, ""): None for key in keys})
        while some := list(islice(contents, _AT_ONCE)):
            if orders := list(self._orders(some)):
                made = await self._make(orders)
                self.look_at(order.content for order in made.left)
            await asyncio.sleep(0)

    # what follows

    async def _go_on(self) -> None:
        clock = asyncio.get_running_loop().time
        next_look = clock() + _LOOK
        while True:
            until = min(next_look, clock() + self._pause) if self._is_short or self.owed else next_look
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await self._wake.wait()
            self._wake.clear()
            try:
                if clock() >= until:
                    self._doubtful.update(dict.fromkeys(self._catalogue.contents))
                    await self._also()
                self._took = 0.0
                await self.catch_up()
                next_look = clock() + max(_LOOK, self._took / _SHARE)
            except OSError:  # a worker that has gone, of which we shall hear
                continue
            except Exception as error:
                self._count_error("keeping copies", error)

    async def catch_up(self) -> None:
        """Look at all that is doubtful, and copy what is on too few agents."""
        was_short, self._is_short = self._is_short, False
        missing = 0
        while self._doubtful:
            some = list(islice(self._doubtful, _AT_ONCE))
            for content in some:
                del self._doubtful[content]
            begun = perf_counter()
            orders = list(self._orders(some))
            surplus = self._surplus(some)
            self._took += perf_counter() - begun
            if orders:
                made = await self._make(orders)
                missing += len(made.left)
                if made.copies:
                    self._diary.copied_again(made.copies, made, made.seconds)
            await self._copying.drop(surplus)
            await asyncio.sleep(0)
        if self.owed:
            made = await self._copying.make(
                self._copying.orders(list(self.owed), self._copies_of), is_wanted=self._is_wanted
            )
            for key in list(self.owed):
                if self._catalogue.content_of.get(key) or not self._copying.holders(key):
                    self.owed.pop(key, None)
        if missing:
            self._say_short(missing, "more copies are wanted than agents take", was_short)
        if missing or self.owed:
            self._is_short = True
            self._pause = min(2 * self._pause, _LAST_PAUSE)
        elif was_short:
            self._pause = _FIRST_PAUSE
            self._tell("agents", "all that is protected is on as many agents again as is wanted")

    async def _make(self, orders: list[Order]) -> Made:
        """Meanwhile nobody else orders the same; who wanted to looks again afterwards."""
        contents = {order.content for order in orders}
        self._coming |= contents
        try:
            return await self._copying.make(orders)
        finally:
            self._coming -= contents
            if again := self._passed_over & contents:
                self._passed_over -= again
                self.look_at(again)

    def _is_wanted(self, key: Hashable) -> bool:
        return self._copies_of(key) > 0

    def _say_short(self, number: int, what: str, is_told: bool = False) -> None:
        if not self._is_short and not is_told:
            self._tell("agents", f"{number} {what}; tried again when there may be room")
        self._is_short = True

    def _orders(self, contents: Iterable[str]) -> Iterator[Order]:
        """What is to be copied again."""
        for content in contents:
            copies = self._catalogue.contents.get(content)
            keys = self._catalogue.keys_of(content)
            if copies is None or any(map(self._copying.is_busy_with, keys)):
                continue
            if content in self._coming:
                self._passed_over.add(content)
                continue
            holders = self._holders(content)
            if not copies.where and not holders:
                for key in keys:
                    self._nobody_has(key)
                continue
            if not holders and copies.where and any(map(self._is_coming, keys)):
                continue  # it is looked at when it has been loaded
            lacking = self.lacking(content, holders)
            if lacking:
                is_choosy = len(copies.where) >= copies.wanted
                key = next((key for key in keys if not copies.where and self._copying.holders(key)), None)
                wanted = copies.wanted
                yield Order(key, content, copies.nbytes, lacking, wanted, set(copies.where), is_choosy)

    def _is_coming(self, key: Hashable) -> bool:
        task = compat.find_task(self._scheduler, key)
        return task is not None and compat.is_unfinished(task)

    def lacking(self, content: str, holders: Iterable[str]) -> int:
        """In how many more failure domains it is to be, as far as there are any."""
        copies = self._catalogue.contents[content]
        there = {self._agents.domain_of(one) for one in copies.where}
        held = {self._agents.domain_of(one) for one in holders}
        least = max(0, copies.wanted + 1 - len(there | held), 0 if there else 1)
        wished = copies.wanted + 1 - len(there - held) - min(1, len(held))
        return least if wished <= least else max(least, min(wished, self._agents.free_of(there | held)))

    def _surplus(self, contents: Iterable[str]) -> dict[str, list[str]]:
        """Copies that are more than is wanted, in a failure domain where the result itself is."""
        found: dict[str, list[str]] = {}
        for content in contents:
            copies = self._catalogue.contents.get(content)
            if copies is None or len(copies.where) <= copies.wanted:
                continue
            held = {self._agents.domain_of(one) for one in self._holders(content)}
            beside = [one for one in sorted(copies.where) if self._agents.domain_of(one) in held]
            apart = {self._agents.domain_of(one) for one in copies.where if self._agents.is_able(one)} - held
            if len(apart) >= copies.wanted:
                found[content] = beside[: len(copies.where) - copies.wanted]
                for agent in found[content]:
                    self._catalogue.lost(agent, [content])
        return found

    def _holders(self, content: str) -> set[str]:
        keys = self._catalogue.keys_of(content)
        return {address for key in keys for address in self._copying.holders(key)}

    # agents that leave

    async def drain(self, addresses: Iterable[str]) -> None:
        """Make sure that others have as many copies of all that these agents have."""
        leaving = set(addresses)
        with self._agents.without(leaving):
            contents = {one for address in leaving for one in self._catalogue.on(address)}
            if contents:
                made = await self._copying.make(self._leaving_orders(sorted(contents), leaving))
                left = f"; for {len(made.left)} there is no room" if made.left else ""
                moved = f"{made.copies} copies from {len(leaving)} agents"
                self._tell("drain", f"{moved} that leave are on others now{left}")

    def _leaving_orders(self, contents: Iterable[str], leaving: set[str]) -> Iterator[Order]:
        for content in contents:
            copies = self._catalogue.contents.get(content)
            if copies is None:
                continue
            missing = min(copies.wanted, len(copies.where)) - len(copies.where - leaving)
            if missing > 0:
                not_to = copies.where | leaving
                yield Order(None, content, copies.nbytes, missing, copies.wanted, not_to)


_RETURN = 20.0  # seconds in which an agent that died is followed by another, if at all


@dataclass
class OnDisk:
    """What came of writing copies: contents that are on a disk now, bytes of those, and what went wrong."""

    there: set[str]
    nbytes: int
    seconds: float
    problem: str


class Disks:
    """Which copies are there. ``look_at(contents)`` hears which are not waited for any longer."""

    def __init__(
        self, calling: Calling, catalogue: Catalogue, look_at: Callable[[Iterable[str]], None]
    ) -> None:
        self._calling = calling
        self._catalogue = catalogue
        self._look_at = look_at
        #: by agent, what it has on disk
        self._on: dict[str, set[str]] = {}
        #: contents on disks of agents that died, and until when they may come back
        self._until: dict[str, float] = {}
        self._came = asyncio.Event()

    async def keep(self, keys: Iterable[Hashable]) -> OnDisk:
        """Have agents write the copies of these keys' blocks to their disks."""
        by_agent: dict[str, set[str]] = {}
        for key in keys:
            content, agents = self._catalogue.where(key)
            for agent in agents:
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
            said = await self._calling.call(agent, "hpc_agent_keep", contents=new)
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
        """It has died, or left for good."""
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
        self._look_at(gone)

    def agent_has(self, contents: Iterable[str]) -> None:
        """An agent has come, with these copies."""
        for content in contents:
            self._until.pop(content, None)
        self._came.set()

    def may_return(self, content: str) -> bool:
        """Whether a copy is on the disk of an agent that may come back."""
        return content in self._until

    async def returned(self, content: str) -> None:
        """Until that is decided."""
        while content in self._until:
            self._came.clear()
            await self._came.wait()


class Agreeing:
    """``look_at(contents)`` hears which may be on too few agents."""

    def __init__(
        self,
        scheduler: Any,
        catalogue: Catalogue,
        agents: Agents,
        copying: Copying,
        look_at: Callable[[Iterable[str]], None],
    ) -> None:
        self._scheduler = scheduler
        self._catalogue = catalogue
        self._agents = agents
        self._copying = copying
        self._look_at = look_at
        #: by agent whose number differed at the last look, how often it had been asked for copies by then
        self._doubted: dict[str, int] = {}

    async def has(self, agent: str, contents: Iterable[str]) -> None:
        """These are all copies that an agent has."""
        there, known = set(contents), set(self._catalogue.on(agent))
        unneeded = [one for one in there - known if not self._catalogue.add(one, agent)]
        self._look_at(self._catalogue.lost(agent, known - there))
        if unneeded:
            await self._copying.drop({one: [agent] for one in unneeded})

    async def look(self) -> None:
        """At what heartbeats say."""
        before, self._doubted = self._doubted, {}
        for agent, facts in self._agents.facts().items():
            asked = self._agents.asked(agent)
            if asked is None or facts.get("copies") == len(self._catalogue.on(agent)):
                continue
            if before.get(agent) != asked:
                self._doubted[agent] = asked
                continue
            with suppress(OSError):
                found = await self._scheduler.rpc(agent).hpc_agent_contents()
                if self._agents.asked(agent) == asked:  # nothing has come meanwhile
                    await self.has(agent, found)
