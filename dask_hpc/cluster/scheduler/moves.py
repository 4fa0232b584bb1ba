"""Results are moved between workers: what there is to move, and moves carried out without losing a copy.

A move is a copy first, and the old copy goes only when the scheduler knows the new one. Of Dask's two ways
we take the one of its Active Memory Manager (``acquire-replicas``, ``remove-replicas``), not that of
``rebalance()`` (``gather``, ``free-keys``): it passes through the same ordered stream as tasks, so the
scheduler never believes in a copy that is gone; a worker fetches a key once even if a task there needs it
too; and ``free-keys`` would take the data from under a running task. Its price is that nobody says when a
copy has arrived: we look every 20 ms.

Failure conditions:

1. The worker at either end dies, or the target pauses: another copy serves, else the key is reported.
2. A key is released meanwhile: nobody wants it, so it is done.
3. Dask's ReduceReplicas, which drops surplus copies at will, drops the new one instead of the old: the
   worker is asked again.
4. A task on the source uses the old copy: it stays until that task is done. If the source takes no new
   tasks (it is held, paused or leaving) the move is done with both copies there: ReduceReplicas spares
   the new one then.
5. Nothing arrives for long: the key is reported, and if it comes after all, ReduceReplicas drops the surplus.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass
from time import time
from typing import Any
from weakref import WeakKeyDictionary

from dask_hpc import dask as compat
from dask_hpc.model.units import counted, show_duration, show_large
from dask_hpc.planning.moves.leaving import MovableBlock, Move

#: bytes on their way from or to one worker. At one look per 20 ms this allows 3 GB/s, more than most
#: networks, and is little beside a worker's memory; a larger block travels alone.
WINDOW = 64 * 2**20
#: how full a worker may be after a move: what remains is for the tasks that run there
FULL = 0.8
LOOK = 0.02  # seconds
_AGAIN = 2.0  # seconds after which a worker is asked again, as Dask's own retirement does
_PATIENCE = 30.0  # seconds a block may take, and more if it is large:
_SLOWEST = 10e6  # bytes per second
_NEWS = 3.0  # seconds in which a worker tells of its memory, if it can at all
_ENDLESS = 2**62  # the room of a worker without a memory limit
_LOST = "lost with the worker that had it"
_NOBODY = "the worker meant to take it takes nothing now"

#: bytes on their way to each worker, by scheduler
_coming: WeakKeyDictionary[Any, Counter[str]] = WeakKeyDictionary()


def blocks_on(scheduler: Any, addresses: Iterable[str]) -> list[MovableBlock]:
    """All results that these workers hold, but no actors."""
    keys = dict.fromkeys(key for address in addresses for key in compat.keys_on(scheduler, address))
    return blocks_of(scheduler, keys)


def blocks_of(scheduler: Any, keys: Iterable[Hashable], wanted: bool = False) -> list[MovableBlock]:
    """Those of the keys that are results in memory; ``wanted``: and that a client holds."""
    found = []
    for key in keys:
        task = compat.find_task(scheduler, key)
        if task is None or compat.is_actor(task) or (wanted and not compat.is_wanted(task)):
            continue
        if there := compat.holders(task):
            found.append(MovableBlock(key, compat.size(task), there))
    return found


def rooms_on(scheduler: Any, addresses: Iterable[str], at_worst: bool = False) -> dict[str, int]:
    """How many bytes each of these workers can take until it is 80 % full, with what is on its way there.

    Left out are those that take nothing now: not connected, paused, held, leaving. What a worker says of its
    memory is up to a second old (``measured`` waits for news); ``at_worst`` counts on the worst, which is
    that all its results have come since.
    """
    coming = _coming.get(scheduler, Counter[str]())
    rooms = {}
    for address in addresses:
        if compat.is_running(scheduler, address):
            limit, used = compat.memory_of(scheduler, address, at_worst)
            rooms[address] = max(0, int(limit * FULL) - used - coming[address]) if limit else _ENDLESS
    return rooms


async def measured(scheduler: Any, addresses: Iterable[str]) -> None:
    """Wait until each of these workers has told how much memory it uses now, for a few seconds at most."""
    waiting, now = set(addresses), time()
    while waiting and time() < now + _NEWS:
        waiting = {address for address in waiting if compat.measured_at(scheduler, address) < now}
        await asyncio.sleep(LOOK)


async def carry_out(
    scheduler: Any,
    moves: Iterable[Move],
    why: str,
    tell: Callable[[str, str], None],
    *,
    is_copy: bool = False,
    done: Callable[[Move], None] = lambda move: None,
) -> set[Hashable]:
    """Do these moves, and tell the story. Answers the keys that did not reach their target. ``is_copy``:
    sources keep what they have; ``done`` hears of each move.

    May be cancelled at any time: then each key is where a copy is.
    """
    carrying = _Carrying(scheduler, moves, is_copy)
    clock = asyncio.get_running_loop().time
    since = clock()
    try:
        while True:
            before = len(carrying.done)
            is_busy = carrying.step(started := clock())
            for move in carrying.done[before:]:
                done(move)
            if not is_busy:
                break
            # However many there are, nine tenths of the scheduler's time are for others.
            await asyncio.sleep(max(LOOK, 9 * (clock() - started)))
    finally:
        carrying.let_go()
        if carrying.done:
            tell(
                "copy" if is_copy else "move",
                f"{_told(carrying.done)} in {show_duration(clock() - since)}: {why}",
            )
        for reason, left in carrying.failed.items():
            tell("not-moved", f"{_told(left)}: {reason} ({why})")
    return {move.key for left in carrying.failed.values() for move in left}


def settle_on(scheduler: Any, places: Iterable[tuple[Hashable, Collection[str]]]) -> list[Hashable]:
    """These results are to be on these workers and nowhere else: copies that are elsewhere go, unless they
    are used there, and where several are meant Dask keeps them all. Gives those that are not in place.

    Who counts a result as in place where it is one copy of several has to do this, or Dask may drop that one.
    """
    missing: list[Hashable] = []
    many: dict[bool, list[Hashable]] = {True: [], False: []}
    surplus: dict[str, list[Hashable]] = {}
    for key, wanted in places:
        task = compat.find_task(scheduler, key)
        there = compat.holders(task) if task is not None else ()
        if not set(wanted) <= set(there):
            missing.append(key)
            continue
        many[len(wanted) > 1].append(key)
        for address in there:
            if address not in wanted and not compat.is_used_on(task, address):
                surplus.setdefault(address, []).append(key)
    compat.SparedCopies.spare(scheduler, many[True])
    compat.SparedCopies.give_up(scheduler, many[False])
    for address, keys in surplus.items():
        compat.drop_from(scheduler, address, keys, "hpc-settle")
    return missing


def _told(moves: list[Move]) -> str:
    sources, targets = {move.source for move in moves}, {move.target for move in moves}
    size = show_large(sum(move.nbytes for move in moves), "B")
    way = f"from {counted(len(sources), 'worker')} to {counted(len(targets), 'worker')}"
    return f"{counted(len(moves), 'result')} ({size}) {way}"


@dataclass(slots=True)
class _Copy:
    """A move under way."""

    move: Move
    asked: float
    deadline: float
    is_there: bool = True  # until it is asked for


class _Carrying:
    """The moves of one plan. ``step`` looks at what arrived, drops old copies and asks for new ones."""

    def __init__(self, scheduler: Any, moves: Iterable[Move], is_copy: bool) -> None:
        self._scheduler = scheduler
        self._is_copy = is_copy
        self._coming = _coming.setdefault(scheduler, Counter())
        self._queues: dict[tuple[str, str], deque[Move]] = {}
        #: bytes that workers of this plan have still to give, and what they have now beyond what they had
        self._owed: Counter[str] = Counter()
        self._gained: Counter[str] = Counter()
        for move in moves:
            if move.source != move.target:
                self._queues.setdefault((move.source, move.target), deque()).append(move)
                self._owed[move.source] += self._given(move)
        self._under_way: dict[Hashable, _Copy] = {}
        #: bytes on their way of this plan, by worker
        self._sent: Counter[str] = Counter()
        self._received: Counter[str] = Counter()
        self.done: list[Move] = []
        self.failed: dict[str, list[Move]] = {}

    def step(self, now: float) -> bool:
        """One look. Whether anything is left to do."""
        self._look(now)
        self._ask_for_more(now)
        return bool(self._under_way or self._queues)

    def _given(self, move: Move) -> int:
        """Bytes that the source has no more when it is done."""
        return 0 if self._is_copy else move.nbytes

    def let_go(self) -> None:
        """No more of it."""
        for key in list(self._under_way):
            self._end(key)

    def _look(self, now: float) -> None:
        again: dict[str, list[Hashable]] = {}
        drop: dict[str, list[Hashable]] = {}
        for key, copy in list(self._under_way.items()):
            move, task = copy.move, compat.find_task(self._scheduler, key)
            there = compat.holders(task) if task is not None else ()
            if not there:
                self._end(key)
                if task is not None and not compat.is_new(task):
                    self._fail(_LOST, move)
            elif move.target in there:
                self._set_there(copy, True)
                if self._is_copy:
                    pass
                elif move.source in there and compat.is_used_on(task, move.source):
                    if compat.is_running(self._scheduler, move.source):
                        if now > copy.deadline:
                            self._fail("still in use where it was", self._end(key))
                        continue
                elif move.source in there:
                    drop.setdefault(move.source, []).append(key)
                self.done.append(self._end(key))
                self._gained[move.target] += move.nbytes  # which ``_end`` took back
                self._gained[move.source] -= self._given(move)
            elif not compat.is_running(self._scheduler, move.target):
                self._fail(_NOBODY, self._end(key))
            elif now > copy.deadline:
                self._fail("it did not arrive in time", self._end(key))
            elif copy.is_there or now > copy.asked + _AGAIN:
                self._set_there(copy, False)
                copy.asked = now
                again.setdefault(move.target, []).append(key)
        for address, keys in drop.items():
            compat.drop_from(self._scheduler, address, keys, "hpc-move")
        for address, keys in again.items():
            compat.copy_to(self._scheduler, address, keys, "hpc-move")

    def _ask_for_more(self, now: float) -> None:
        """Who has to give as well gives first, or it would hold more than before; unless all wait for it."""
        ask: dict[str, list[Hashable]] = {}
        for pair in list(self._queues):
            self._ask(pair, ask, now)
        if not self._under_way:
            for pair in list(self._queues):
                self._ask(pair, ask, now, in_any_case=True)
        for address, keys in ask.items():
            compat.copy_to(self._scheduler, address, keys, "hpc-move")

    def _ask(
        self,
        pair: tuple[str, str],
        ask: dict[str, list[Hashable]],
        now: float,
        in_any_case: bool = False,
    ) -> None:
        queue, (source, target) = self._queues[pair], pair
        while queue:
            nbytes = queue[0].nbytes
            coming = (self._sent[source], self._received[target])
            has_given = self._owed[target] <= 0 or self._gained[target] + nbytes <= 0
            if any(sum_ and sum_ + nbytes > WINDOW for sum_ in coming) or not (has_given or in_any_case):
                break
            move = queue.popleft()
            if self._may_move(move):
                self._under_way[move.key] = copy = _Copy(move, now, now + _PATIENCE + nbytes / _SLOWEST)
                self._gained[move.target] += move.nbytes
                self._set_there(copy, False)
                ask.setdefault(move.target, []).append(move.key)
            else:
                self._owed[move.source] -= self._given(move)
        if not queue:
            del self._queues[pair]

    def _may_move(self, move: Move) -> bool:
        task = compat.find_task(self._scheduler, move.key)
        if task is None or compat.is_new(task) or move.key in self._under_way:
            return False
        there = compat.holders(task)
        if not there:
            self._fail(_LOST, move)
        elif move.source not in there:
            return False  # moved by somebody else since the plan was made
        elif compat.is_actor(task):
            self._fail("an actor stays where it is", move)
        elif not compat.is_running(self._scheduler, move.target):
            self._fail(_NOBODY, move)
        else:
            return True
        return False

    def _set_there(self, copy: _Copy, is_there: bool) -> None:
        """Keep account of the bytes on their way."""
        if copy.is_there != is_there:
            copy.is_there = is_there
            nbytes = -copy.move.nbytes if is_there else copy.move.nbytes
            self._sent[copy.move.source] += nbytes
            self._received[copy.move.target] += nbytes
            self._coming[copy.move.target] += nbytes

    def _end(self, key: Hashable) -> Move:
        copy = self._under_way.pop(key)
        self._set_there(copy, True)
        self._owed[copy.move.source] -= self._given(copy.move)
        self._gained[copy.move.target] -= copy.move.nbytes
        return copy.move

    def _fail(self, reason: str, move: Move) -> None:
        self.failed.setdefault(reason, []).append(move)
