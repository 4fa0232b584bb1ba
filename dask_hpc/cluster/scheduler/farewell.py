"""The scheduler's half of a farewell: what only a leaving worker holds goes to those that stay, in time.

A worker says farewell when it learns that it must go: at SIGTERM, or when it is closed without having been
retired. It is brought out as one that is retired is (``leaving.py``), but in its time and in any case: it
works on while a shuffle needs it, is held then, and ends what it runs. Where time or room may run short,
what would cost most seconds per byte to compute again moves first, and when the time is over the rest is left
to Dask, which computes it again elsewhere. What fits nowhere, or has nowhere to go, the worker writes to a
shelter, if a service has one.
Nothing is moved, and nobody is kept waiting, when

1. nothing is there that others do not have, as after a retirement;
2. nobody stays: the cluster closes, and its workers close together (only where a lifetime ends, or a unit
   that was asked for may come at any moment, the last one waits for whoever joins);
3. the scheduler itself closes, or control is off.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler.holds import Holds
from dask_hpc.cluster.scheduler.leaving import Leaving, drain
from dask_hpc.cluster.scheduler.moves import beside, block_of, by_turns, carry_out, rooms_on
from dask_hpc.cluster.scheduler.service import Context, Shelter, Timer, WorkerSetting
from dask_hpc.cluster.worker.farewell import SHARE, FarewellPlugin, patience
from dask_hpc.model.errors import InputError, insist, is_number, shown
from dask_hpc.model.units import show_large
from dask_hpc.planning.moves.leaving import MovableBlock, Move, RecomputeCost, dearest_first

_ANCESTORS = 100_000  # recipes looked at in one farewell besides those of results
_MOMENT, _OFTEN = 0.2, 0.01  # seconds to see whether the others close as well, and between looks meanwhile
_LOOK = 0.05  # seconds between looks at who closes
_WAITS = 0.75  # of its time, that a worker may wait for what runs there
_WHY = "it closes"
_PATIENCE = 5.0  # seconds for what is under way when control ends
_EVERY = 10.0  # seconds between looks at what workers hold
_LONGEST = 3600.0  # seconds that a worker may ask for
_LEISURE = 3.0  # times what it takes to move all: who has so much time, and room, moves it in any order


class Farewells:
    """What leaving workers say and are answered."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._scheduler = context.scheduler
        shelters = (service.shelter for service in context.services if service.shelter is not None)
        self._shelter = next(shelters, Shelter())
        #: by which workers say farewell
        self._saying = WorkerSetting(context, FarewellPlugin)
        self._waiting = WorkerSetting(context, compat.NannyPatience)
        self._going: dict[str, _Going] = {}
        #: why workers close, as they logged it
        self._reasons: dict[str, str] = {}
        #: workers that hold more than they could hand over
        self._heavy: set[str] = set()
        self._looking = Timer(context, "what workers hold", self._look_what_they_hold)

    def start(self) -> None:
        """All workers, now and later, will say farewell."""
        seconds = self._context.settings["farewell"]
        says_where = self._context.settings["topology"] is not None
        self._saying.set((seconds, self._shelter.for_workers, says_where))
        self._waiting.set(patience(seconds))
        self._looking.set(_EVERY)

    async def stop(self) -> None:
        """No worker will any more."""
        if moving := [going.moving for going in self._going.values() if going.moving is not None]:
            await asyncio.wait(moving, timeout=_PATIENCE)
        for setting in (self._saying, self._waiting):
            setting.set(None)
        for setting in (self._saying, self._waiting):
            await setting.settle()
        self.cancel()

    def cancel(self) -> None:
        """The scheduler closes: nothing of ours goes on."""
        self._saying.cancel()
        self._waiting.cancel()
        self._looking.stop()
        for going in self._going.values():
            if going.moving is not None:
                going.moving.cancel()

    # what happens

    def event(self, topic: str, message: Any) -> None:
        """Something was logged: perhaps that a worker closes, and why."""
        is_closing = isinstance(message, dict) and message.get("action") == "closing-worker"
        if is_closing and self._status(topic) is not None:
            self._closes(topic, str(message.get("reason")))

    def worker_leaves(self, address: str) -> None:
        """A worker is gone."""
        self._reasons.pop(address, None)
        self._heavy.discard(address)
        self._going.pop(address, None)

    def _look_what_they_hold(self) -> None:
        """Say it while there is time to do something about it."""
        self._looking.set(_EVERY)
        given = SHARE * self._context.settings["farewell"]
        for address in compat.running_workers(self._scheduler):
            needed = compat.seconds_to_move(self._scheduler, address)
            if needed > given and address not in self._heavy and self._stays(address):
                self._heavy.add(address)
                words = (
                    f"could hand over {100 * given / needed:.0f} % of what it holds in the time it would have"
                )
                ways = "hpc.farewell gives it more, and of what has a copy elsewhere nothing is lost"
                self._context.tell("warning", f"worker {address}, if it is told to go, {words}: {ways}")
            elif needed < given / 2:
                self._heavy.discard(address)

    # remote calls

    async def farewell(
        self, address: Any = None, reason: Any = "", seconds: Any = 0, stored: Any = (), problem: Any = ""
    ) -> dict[str, Any]:
        """A worker leaves, in so many seconds at most. Answers what it should store, if anything; then the
        worker calls again and says what it stored. The last answer comes when all is done that can be."""
        if not all(isinstance(text, str) for text in (address, reason, problem)):
            found = f"found {shown(address)}, {shown(reason)}, {shown(problem)}"
            raise InputError("farewell", found, "the address of a worker, a reason and a problem")
        insist(is_number(seconds, 0, _LONGEST), "farewell: seconds", seconds, f"0 to {_LONGEST:g}")
        insist(isinstance(stored, list | tuple), "farewell: stored", stored, "keys")
        keys: list[Any] = []
        if (
            self._context.is_on
            and not compat.is_closing(self._scheduler)
            and self._status(address) is not None
        ):
            try:
                if problem:
                    self._shelter.failed(address, problem)
                self._shelter.wrote(stored)
                keys = await self._next(address, reason, seconds)
            except Exception as error:
                self._context.count_error("a farewell", error)
        return {"store": keys}

    # deeds

    def _closes(self, address: str, reason: str) -> None:
        self._context.get(Holds).closing.add(address)
        if reason:
            self._reasons[address] = reason

    async def _next(self, address: str, reason: str, seconds: float) -> list[Hashable]:
        """What the worker should store now; nothing if it may go."""
        going = self._going.get(address)
        if going is None:
            self._closes(address, reason)
            since = asyncio.get_running_loop().time()
            going = self._going[address] = _Going(since + seconds, since + _WAITS * seconds)
            self._hold(address, going)
            moves = await self._plan(address, going)  # of many results it takes this moment
            if going.first or compat.processing(self._scheduler, address):
                await self._see(lambda: address in self._reasons, since)
                await self._see(lambda: not self._stays(address), since)
                if not self._stays(address):
                    why = f"worker {address} has nobody else to give its results to"
                    self._context.get(Leaving).keep_somebody(why)
                    moves = await self._plan(address, going)
            with_copies = _is_told_to_go(self._why(address, reason))
            work = self._hand_over(address, going, moves, with_copies)
            going.moving = self._context.do("a farewell", work)
            if keys := self._to_store(going, self._why(address, reason), going.unplaced):
                return keys  # meanwhile the others fetch what they can
        if going.moving is not None:
            await asyncio.wait([going.moving])
        if self._status(address) is None:
            return []
        reason = self._why(address, reason)
        if asyncio.get_running_loop().time() < going.deadline and (
            keys := self._to_store(going, reason, await self._left(address, going))
        ):
            return keys
        if going.first and (self._stays(address) or _is_told_to_go(reason)):
            await self._tell_result(address, reason, going.first)
        if self._stays(address) and (keys := compat.processing(self._scheduler, address)):
            start_again = f"{len(keys)} of its tasks start again elsewhere"
            self._context.tell("restart", f"worker {address} leaves ({reason}): {start_again}")
        if self._stays(address) and (plugin := compat.veto(self._scheduler, address)):
            anew = f"{plugin} needs it where it is, and begins anew"
            self._context.tell("restart", f"worker {address} leaves ({reason}): {anew}")
        # Going on purpose is no failure: what it ran is not under suspicion.
        await compat.let_worker_go(self._scheduler, address)
        await by_turns(_emptied(going.first))
        return []

    def _to_store(self, going: "_Going", reason: str, keys: Iterable[Hashable]) -> list[Hashable]:
        """Those that the store may take, each asked for once. A cluster that closes stores nothing."""
        if not _is_told_to_go(reason):
            return []
        found = [key for key in keys if key not in going.asked_for and self._shelter.takes(key)]
        going.asked_for.update(found)
        return found

    def _why(self, address: str, said: str) -> str:
        """What the worker said, or what it logged; that comes another way, and perhaps a moment later."""
        return said or self._reasons.get(address, _WHY)

    async def _see(self, found: Callable[[], object], since: float) -> None:
        """Wait a moment for what may be on its way: why the worker closes, and whether the others do as well
        (a closing cluster closes its workers one after the other)."""
        while not found() and asyncio.get_running_loop().time() < since + _MOMENT:
            await asyncio.sleep(_OFTEN)

    async def _left(self, address: str, going: "_Going") -> list[Hashable]:
        """What only this worker holds now, the dearest first, and last what has come since."""
        there = await self._only_there(address)
        return [key for key in going.order if key in there] + [key for key in there if key not in going.first]

    async def _plan(self, address: str, going: "_Going") -> tuple[Move, ...]:
        """Where everything goes that only this worker holds, the dearest first where that matters."""
        there = await self._only_there(address)
        going.first = there | going.first if going.first else there
        has_leisure = self._has_leisure(address, going)
        while True:
            recipes = {} if has_leisure else await self._recipes(there)
            leaving, rooms = self._leaving(address), rooms_on(self._scheduler, self._stays(address))
            going.order, plan = await beside(dearest_first, len(there), there, recipes, leaving, rooms)
            if not (has_leisure and plan.unplaced):
                break
            has_leisure = False
        if plan.unplaced and rooms:
            self._context.tell("farewell", f"worker {address}: {plan.reason}")
        left = {block.key for block in plan.unplaced}
        going.unplaced = [key for key in going.order if key in left] if left else []
        return plan.moves

    def _has_leisure(self, address: str, going: "_Going") -> bool:
        left = going.deadline - asyncio.get_running_loop().time()
        is_there = self._status(address) is not None
        return is_there and _LEISURE * compat.seconds_to_move(self._scheduler, address) < left

    async def _hand_over(
        self, address: str, going: "_Going", moves: tuple[Move, ...], with_copies: bool
    ) -> None:
        """Until nothing is left, or the time is over. If one who should take something closes as well, plan
        anew; also for what only it holds again: a task has ended, or Dask has given up another worker's copy,
        because tasks here seemed to need this one. What it keeps of other workers' results follows."""
        with suppress(OSError):  # the time is over, or one has gone
            async with asyncio.timeout_at(going.deadline):
                while True:
                    await self._move(address, going, moves)
                    has_ended = await self._wait_until_free(address, going)
                    there = (await self._only_there(address)).keys()
                    is_all = there <= set(going.unplaced)
                    if is_all and not await self._is_relieved(address, going, there):
                        if with_copies and self._stays(address):
                            await drain(self._context, [address])
                            with_copies = False
                        if not has_ended or self._is_free(address, going):
                            break  # nothing has begun there meanwhile
                    moves = await self._plan(address, going)
                    await asyncio.sleep(_LOOK)

    async def _wait_until_free(self, address: str, going: "_Going") -> bool:
        """No shuffle needs it any more, what has not started there goes to others, what runs ends, unless
        everybody closes. Some of the time is kept for moving what comes of that. Whether it was enough."""
        clock = asyncio.get_running_loop().time
        last = clock() + _WAITS * (going.deadline - clock())
        limit = min(last, clock() + self._context.drain)
        while not self._is_free(address, going):
            await asyncio.sleep(_LOOK)
            if self._status(address) and self._context.get(Holds).stands_still(address):
                limit = min(last, clock() + self._context.drain)
            if clock() > limit and not going.needed_by:
                return False
        return True

    async def _is_relieved(self, address: str, going: "_Going", there: Collection[Hashable]) -> bool:
        """Whether somebody joins, where nobody stays: at the end of its lifetime others may be starting, for
        whom the last one waits with what would be lost, and works on. By order it goes at once, unless
        somebody was asked for and may come."""
        clock, is_waited_for = asyncio.get_running_loop().time, False
        while self._status(address) and not self._stays(address) and clock() < going.waits_until:
            is_last = there or compat.processing(self._scheduler, address)
            why = self._why(address, "")
            may_come = _is_told_to_go(why) and self._context.clock() < self._context.comes_until
            if not (is_last and (may_come or _is_at_its_end(why))):
                return False
            is_waited_for = True
            await asyncio.sleep(_LOOK)
        going.is_held = going.is_held and not is_waited_for  # nobody could be in its place
        return is_waited_for and bool(self._stays(address))

    def _is_free(self, address: str, going: "_Going") -> bool:
        """Whether there is nothing to wait for: nobody stays who is kept waiting, or nothing runs there."""
        if not (self._stays(address) and self._status(address)):
            return True
        self._hold(address, going)
        return not self._context.get(Holds).is_busy(address)

    def _hold(self, address: str, going: "_Going") -> None:
        """It is given nothing any more, unless a shuffle needs it where it is."""
        needed_by, going.needed_by = going.needed_by, compat.veto(self._scheduler, address)
        if going.needed_by and not needed_by:
            words = f"worker {address} has to wait: {going.needed_by} needs it where it is"
            self._context.tell("leave", words)
        if not (going.needed_by or going.is_held):
            going.is_held = True
            holds = self._context.get(Holds)
            if holds.hold([address], _WHY, for_good=True):  # it may be that nobody else may run its tasks
                holds.mover.drain(address)

    async def _move(self, address: str, going: "_Going", moves: tuple[Move, ...]) -> None:
        while moves:
            targets = {move.target for move in moves}
            why = f"worker {address} leaves"
            work = carry_out(self._scheduler, moves, why, self._context.tell, untold={})
            carrying = asyncio.ensure_future(work)
            try:
                while not carrying.done() and targets.isdisjoint(self._reasons):
                    await asyncio.wait([carrying], timeout=_LOOK)
            finally:
                is_done = not carrying.cancel()
                await asyncio.gather(carrying, return_exceptions=True)
            if is_done:
                carrying.result()
                return
            moves = await self._plan(address, going)

    async def _tell_result(self, address: str, reason: str, first: dict[Hashable, MovableBlock]) -> None:
        """How much of what only this worker held is saved."""
        there = (await self._only_there(address)).keys() & first.keys()
        lost = self._shelter.missing(there)
        size = sum(await by_turns(block.nbytes for block in first.values()))
        kept = size - sum(first[key].nbytes for key in lost)
        words = f"{len(first) - len(there)} of {len(first)} results handed over"
        if self._shelter.for_workers is not None:
            words += f", {len(there) - len(lost)} stored"
        share = f"{100 * kept / size:.0f} % of {show_large(size, 'B')}" if size else "0 B"
        alone = "" if self._stays(address) else "; nobody stays"
        self._context.tell("farewell", f"worker {address} leaves ({reason}): {words} ({share}){alone}")

    async def _only_there(self, address: str) -> dict[Hashable, MovableBlock]:
        """What is lost with this worker, as nobody has it who stays."""
        found: dict[Hashable, MovableBlock] = {}
        await by_turns(self._look_alone(found, address))
        return found

    def _look_alone(self, found: dict[Hashable, MovableBlock], address: str) -> Iterator[None]:
        leaving = self._leaving(address)
        for block in map(block_of, compat.tasks_on(self._scheduler, address)):
            if block and leaving.issuperset(block.holders):
                found[block.key] = block
            yield

    async def _recipes(self, keys: Collection[Hashable]) -> dict[Hashable, RecomputeCost]:
        """Of these results, and of their ancestors that nobody holds. Of what each needs, only those."""
        found: dict[Hashable, RecomputeCost] = {}
        await by_turns(self._look_up(found, keys))
        return found

    def _look_up(self, found: dict[Hashable, RecomputeCost], keys: Collection[Hashable]) -> Iterator[None]:
        todo, seen, left = deque(keys), set(keys), _ANCESTORS
        alike: dict[tuple[Any, ...], RecomputeCost] = {}  # most are: one object is enough
        seconds: dict[str, float] = {}
        while todo:
            yield
            task = compat.find_task(self._scheduler, key := todo.popleft())
            needs = list(compat.dependencies(task)) if task is not None else []
            for need in needs if left else ():
                other = None if need in seen else compat.find_task(self._scheduler, need)
                if other is not None and not compat.holders(other):
                    seen.add(need)
                    todo.append(need)
                    left -= 1
            if task is not None:
                if (kind := compat.prefix(task)) not in seconds:
                    seconds[kind] = compat.average_duration(self._scheduler, kind) or 0.0
                cost = seconds[kind], compat.size(task), tuple([need for need in needs if need in seen])
                found[key] = alike.get(cost) or alike.setdefault(cost, RecomputeCost(*cost))

    def _status(self, address: str) -> str | None:
        return compat.worker_status(self._scheduler, address)

    def _leaving(self, address: str) -> set[str]:
        # A worker that closes may be told meanwhile to go on, and then says that it runs: it does not.
        return compat.leaving_workers(self._scheduler) | self._context.get(Leaving).going | {address}

    def _stays(self, address: str) -> set[str]:
        return compat.running_workers(self._scheduler) - self._context.get(Leaving).going - {address}


@dataclass
class _Going:
    """A worker on its way out."""

    deadline: float
    #: so long it may wait for others
    waits_until: float
    #: what only it held when it said so
    first: dict[Hashable, MovableBlock] = field(default_factory=dict)
    #: its keys, the dearest first
    order: list[Hashable] = field(default_factory=list)
    #: those for which there is no room elsewhere, the dearest first
    unplaced: list[Hashable] = field(default_factory=list)
    asked_for: set[Hashable] = field(default_factory=set)
    moving: asyncio.Task[None] | None = None
    #: the plugin that needs it, and whether it is given nothing any more
    needed_by: str | None = None
    is_held: bool = False


def _emptied(found: dict[Any, Any]) -> Iterator[None]:
    """Nothing is left of it at last. To let go of very many things at once would take long."""
    while found:
        found.popitem()
        yield


def _is_at_its_end(reason: str) -> bool:
    return "lifetime" in reason


def _is_told_to_go(reason: str) -> bool:
    """Whether a worker leaves by somebody's order or at the end of its time, not because all is closed."""
    return reason.startswith("signal") or _is_at_its_end(reason)
