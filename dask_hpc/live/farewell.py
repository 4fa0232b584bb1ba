"""The scheduler's half of a farewell: what only a leaving worker holds goes to those that stay, in time.

A worker says farewell when it learns that it must go: at SIGTERM, or when it is closed without having been
retired. What would cost most seconds per byte to compute again moves first, and when its time is over the
rest is left to Dask, which computes it again elsewhere. Nothing is moved, and nobody is kept waiting, when

1. nothing is there that others do not have, as after a retirement;
2. nobody stays: the cluster closes, and its workers close together;
3. the scheduler itself closes, or control is off.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterable
from contextlib import suppress
from typing import Any

from dask_hpc.live import compat
from dask_hpc.live.moves import blocks_on, carry_out, rooms_on
from dask_hpc.live.worker_plugin import NAME, FarewellPlugin
from dask_hpc.model.errors import InputError, is_number, shown
from dask_hpc.model.units import show_large
from dask_hpc.planning.moves import Block, evacuate
from dask_hpc.planning.worth import Recipe, dearest_that_fit, worth_first

_ANCESTORS = 100_000  # recipes looked at in one farewell
_MOMENT, _LOOKS = 0.2, 20  # seconds to see whether the others close as well, and looks meanwhile
_PATIENCE = 5.0  # seconds that workers have to take or give back our plugin when control ends
_LONGEST = 3600.0  # seconds that a worker may ask for


class Farewells:
    """What leaving workers say and are answered. ``tell`` adds to the story, ``count_error`` counts."""

    def __init__(
        self,
        scheduler: Any,
        seconds: float,
        tell: Callable[[str, str], None],
        count_error: Callable[[str, Exception], None],
        is_on: Callable[[], bool],
    ) -> None:
        self._scheduler = scheduler
        self._tell = tell
        self._count_error = count_error
        self._is_on = is_on
        self._plugin = compat.by_value(FarewellPlugin(seconds))
        self._tasks: set[asyncio.Task[None]] = set()
        #: why workers close, as they logged it
        self._reasons: dict[str, str] = {}
        #: seconds of the event loop's clock when workers will end, of those that know
        self.ends_at: dict[str, float] = {}

    def start(self) -> None:
        """All workers, now and later, will say farewell."""
        self._spawn(compat.add_worker_plugin(self._scheduler, NAME, self._plugin))

    async def stop(self) -> None:
        """No worker will any more."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_PATIENCE)  # or they would learn of us after this
        self.cancel()
        with suppress(TimeoutError, OSError):  # a worker that does not answer, or has gone
            async with asyncio.timeout(_PATIENCE):
                await compat.remove_worker_plugin(self._scheduler, NAME)

    def cancel(self) -> None:
        """The scheduler closes: nothing of ours goes on."""
        for task in list(self._tasks):
            task.cancel()

    # what happens

    def event(self, topic: str, message: Any) -> None:
        """Something was logged: perhaps that a worker closes, and why."""
        if isinstance(message, dict) and message.get("action") == "closing-worker":
            self._reasons[topic] = str(message.get("reason"))

    def worker_leaves(self, address: str) -> None:
        """A worker is gone."""
        self._reasons.pop(address, None)
        self.ends_at.pop(address, None)

    # remote calls

    def worker_ends(self, address: Any = None, left: Any = None) -> str:
        """A worker knows that it ends in so many seconds."""
        if not isinstance(address, str) or compat.worker_status(self._scheduler, address) is None:
            raise InputError("worker ends: address", f"found {shown(address)}", "a connected worker")
        if not is_number(left, float("-inf"), 1e10):
            raise InputError("worker ends: left", f"found {shown(left)}", "seconds")
        self.ends_at[address] = asyncio.get_running_loop().time() + left
        self._tell("worker-ends", f"worker {address} ends in {left:.0f} s")
        return "OK"

    async def farewell(self, address: Any = None, reason: Any = "", seconds: Any = 0) -> str:
        """A worker leaves, in so many seconds at most. Answers when all is done that can be."""
        if not isinstance(address, str) or not isinstance(reason, str):
            found = f"found {shown(address)}, {shown(reason)}"
            raise InputError("farewell", found, "the address of a worker and a reason")
        if not is_number(seconds, 0, _LONGEST):
            raise InputError("farewell: seconds", f"found {shown(seconds)}", f"0 to {_LONGEST:g}")
        if self._is_on() and not compat.is_closing(self._scheduler):
            try:
                await self._let_go(address, reason, seconds)
            except Exception as error:
                self._count_error("a farewell", error)
        return "OK"

    # deeds

    async def _let_go(self, address: str, reason: str, seconds: float) -> None:
        if self._status(address) is None:
            return
        first = self._only_there(address)
        if first and not self._why(address, reason).startswith("signal"):
            await self._see_who_stays(address)
        order = worth_first(first, self._recipes(first))
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._hand_over(address, [first[key] for key in order])
        if self._status(address) is None:
            return
        reason = self._why(address, reason)
        if first and (self._stays(address) or reason.startswith("signal")):
            self._tell_result(address, reason, first)
        # Going on purpose is no failure: what it ran is not under suspicion.
        await compat.let_worker_go(self._scheduler, address)

    def _why(self, address: str, said: str) -> str:
        """What the worker said, or what it logged; that comes another way, and perhaps a moment later."""
        return said or self._reasons.get(address, "it closes")

    async def _see_who_stays(self, address: str) -> None:
        """A closing cluster closes its workers one after the other, within a moment."""
        for _ in range(_LOOKS):
            if not self._stays(address):
                return
            await asyncio.sleep(_MOMENT / _LOOKS)

    async def _hand_over(self, address: str, blocks: list[Block]) -> None:
        """Move what only this worker holds, the dearest first."""
        rooms = rooms_on(self._scheduler, self._stays(address))
        if blocks and rooms:
            plan = evacuate(blocks, self._leaving(address), rooms)
            if plan.unplaced:
                self._tell("farewell", f"worker {address}: {plan.reason}")
                plan = dearest_that_fit(blocks, rooms)
            await carry_out(self._scheduler, plan.moves, f"worker {address} leaves", self._tell)

    def _tell_result(self, address: str, reason: str, first: dict[Hashable, Block]) -> None:
        lost = self._only_there(address)
        size = sum(block.nbytes for block in first.values())
        size_lost = sum(block.nbytes for key, block in lost.items() if key in first)
        saved = f"{len(first) - len(lost.keys() & first.keys())} of {len(first)} results"
        share = f"{100 * (size - size_lost) / size:.0f} % of {show_large(size, 'B')}" if size else "0 B"
        alone = "" if self._stays(address) else "; nobody stays"
        self._tell("farewell", f"worker {address} leaves ({reason}): {saved} handed over ({share}){alone}")

    def _only_there(self, address: str) -> dict[Hashable, Block]:
        """What is lost with this worker, as nobody has it who stays."""
        leaving = self._leaving(address)
        blocks = blocks_on(self._scheduler, [address])
        return {block.key: block for block in blocks if leaving.issuperset(block.holders)}

    def _recipes(self, keys: Iterable[Hashable]) -> dict[Hashable, Recipe]:
        """Of these results, and of their ancestors that nobody holds."""
        found: dict[Hashable, Recipe] = {}
        todo = list(keys)
        while todo and len(found) < _ANCESTORS:
            key = todo.pop()
            task = compat.find_task(self._scheduler, key)
            if task is not None and key not in found:
                needs = tuple(compat.dependencies(task))
                found[key] = Recipe(compat.usual_seconds(task), compat.size(task), needs)
                todo += [n for n in needs if not compat.holders(compat.find_task(self._scheduler, n))]
        return found

    def _status(self, address: str) -> str | None:
        return compat.worker_status(self._scheduler, address)

    def _leaving(self, address: str) -> set[str]:
        return compat.leaving_workers(self._scheduler) | {address}

    def _stays(self, address: str) -> set[str]:
        return compat.running_workers(self._scheduler) - {address}

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception) and not isinstance(error, OSError):  # one that has gone
            self._count_error("telling workers to say farewell", error)
