"""Results are moved between workers: what there is to move, and moves carried out without losing a copy.

A move is a copy first, and the old copy goes only when the scheduler knows the new one. Of Dask's two ways
we take the one of its Active Memory Manager (``acquire-replicas``, ``remove-replicas``), not that of
``rebalance()`` (``gather``, ``free-keys``): it passes through the same ordered stream as tasks, so the
scheduler never believes in a copy that is gone; a worker knows what it fetches, whoever asks; and
``free-keys`` would take the data from under a running task. Its price is that nobody says when a copy has
arrived: we look every 20 ms, or sooner while much happens.

Up to a thousand results are asked for at once: together, if they are small (``bundles``).
However many there are, nothing here computes for more than a few milliseconds at once: what is done for each
is done by turns, and plans for very many are made in a thread.

Failure conditions:

1. The worker at either end dies, or the target pauses: another copy serves, else the key is reported.
2. A key is released meanwhile: nobody wants it, so it is done.
3. Dask's ReduceReplicas, which drops surplus copies at will, drops the new one instead of the old: the
   worker is asked again.
4. A task on the source uses the old copy: it stays until that task is done. If the source takes no new
   tasks (it is held, paused or leaving) the move is done with both copies there: ReduceReplicas spares
   the new one then.
5. Nothing arrives for long: the key is reported, and if it comes after all, ReduceReplicas drops the surplus.
6. A source that leaves is not told what it no longer has: that takes it as long as all the rest. If it stays
   after all, it is reminded (``Untold``).
"""

import asyncio
import logging
import sys
from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from time import perf_counter, time
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from dask_hpc import dask as compat
from dask_hpc.cluster.worker.bundles import MOVE, BundlePlugin
from dask_hpc.model.units import counted, show_duration, show_large
from dask_hpc.planning.moves.leaving import MovableBlock, Move

#: bytes on their way from or to one worker. At one look per 20 ms this allows 3 GB/s, more than most
#: networks, and is little beside a worker's memory; a larger block travels alone.
WINDOW = 64 * 2**20
#: results that one message asks for, and those on their way to one worker: enough to keep it busy
BATCH, AT_ONCE = 1000, 4000
#: bytes of the largest result that travels in a bundle, and how many results are none yet
SMALL, FEW = 16 * 2**10, 5
#: how full a worker may be after a move: what remains is for the tasks that run there
FULL = 0.8
LOOK = 0.02  # seconds
#: seconds of the scheduler's time at once; then others have their turn
MOMENT = 0.002
_SHORTEST = 0.001  # seconds between looks while much happens
_SWITCH = 0.0002  # seconds that a thread waits for another one that computes
_MANY = 100  # moves of one batch that are not all looked at every time
_AGAIN = 2.0  # seconds after which a worker is asked again, as Dask's own retirement does
_PATIENCE = 30.0  # seconds a block may take, and more if it is large:
_SLOWEST = 10e6  # bytes per second
_NEWS = 3.0  # seconds in which a worker tells of its memory, if it can at all
_ENDLESS = 2**62  # the room of a worker without a memory limit
logger = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")
_LOST = "lost with the worker that had it"
_NOBODY = "the worker meant to take it takes nothing now"
_TOO_LATE = "it did not arrive in time"
_IN_USE = "still in use where it was"
_ACTOR = "an actor stays where it is"

#: copies that workers still have and the scheduler has forgotten, by worker
Untold = dict[str, list[Hashable]]

#: how long threads let each other wait but for us, once for each call that makes it less now
_usual: list[float] = []
#: bytes on their way to each worker, by scheduler
_coming: WeakKeyDictionary[Any, Counter[str]] = WeakKeyDictionary()


async def blocks_on(scheduler: Any, addresses: Iterable[str]) -> list[MovableBlock]:
    """All results that these workers hold, but no actors."""
    return await by_turns(_each_block_on(scheduler, addresses))


def _each_block_on(scheduler: Any, addresses: Iterable[str]) -> Iterator[MovableBlock | None]:
    seen = set()
    for address in addresses:
        for task in compat.tasks_on(scheduler, address):
            block = block_of(task)
            yield None if block is None or block.key in seen else block
            if block is not None:
                seen.add(block.key)


def blocks_of(scheduler: Any, keys: Iterable[Hashable], wanted: bool = False) -> Iterator[MovableBlock]:
    """Those of the keys that are results in memory when they are asked for; ``wanted``: and that a client
    holds."""
    for key in keys:
        task = compat.find_task(scheduler, key)
        if task is not None and (not wanted or compat.is_wanted(task)) and (block := block_of(task)):
            yield block


def block_of(task: Any) -> MovableBlock | None:
    """The result of a task, if it is in memory and no actor."""
    there = compat.holders(task)
    return (
        MovableBlock(compat.key_of(task), compat.size(task), there)
        if there and not compat.is_actor(task)
        else None
    )


async def by_turns(things: Iterable[T | None]) -> list[T]:
    """All of these that are not None, made for a moment at a time: between, others have their turns on the
    event loop."""
    found, until = [], perf_counter() + MOMENT
    for thing in things:
        if thing is not None:
            found.append(thing)
        if perf_counter() > until:
            await asyncio.sleep(0)
            until = perf_counter() + MOMENT
    if len(found) > BATCH:  # whoever wants them goes on with a moment of its own
        await asyncio.sleep(0)
    return found


async def beside(work: Callable[P, T], count: int, *args: P.args, **kwargs: P.kwargs) -> T:
    """What this gives, of so many results: if they are many it is called in a thread, so what it looks at
    does not change. Meanwhile threads wait for each other less than usual: the event loop would get its turn
    5 ms late at each of its messages."""
    if count <= BATCH:
        return work(*args, **kwargs)
    _usual.append(_usual[0] if _usual else sys.getswitchinterval())
    sys.setswitchinterval(min(_usual[0], _SHORTEST))
    try:
        return await asyncio.to_thread(work, *args, **kwargs)
    finally:
        usual = _usual.pop()
        if not _usual:
            sys.setswitchinterval(usual)


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
    untold: Untold | None = None,
) -> set[Hashable]:
    """Do these moves, and tell the story. Answers the keys that did not reach their target. ``is_copy``:
    sources keep what they have; ``done`` hears of each move; ``untold``: the sources leave, and need not be
    told what they no longer have, which is noted there.

    May be cancelled at any time: then each key is where a copy is.
    """
    carrying, tally = _Carrying(scheduler, is_copy, untold), _Tally()
    clock = asyncio.get_running_loop().time
    since, rest = clock(), _SHORTEST
    try:
        await by_turns(map(carrying.add, moves))
        while True:
            before, changes = len(carrying.done), carrying.changes
            is_busy = carrying.step(started := clock())
            for move in carrying.done[before:]:
                tally.add(move)
                done(move)
            if not is_busy:
                break
            # A step is short, and after each others have their turn: while much happens a short one too, else
            # nearly all of the scheduler's time.
            took = clock() - started
            is_still = carrying.changes == changes
            rest = max(min(2 * rest, LOOK), 9 * took) if is_still else max(_SHORTEST, took / 4)
            await asyncio.sleep(rest)
    finally:
        carrying.let_go()
        if tally.number:
            tell("copy" if is_copy else "move", f"{tally} in {show_duration(clock() - since)}: {why}")
        for reason, left in carrying.failed.items():
            tell("not-moved", f"{_Tally().add(*left)}: {reason} ({why})")
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


class _Tally:
    """What the story tells of moves."""

    def __init__(self) -> None:
        self.number = self._nbytes = 0
        self._sources: set[str] = set()
        self._targets: set[str] = set()

    def add(self, *moves: Move) -> "_Tally":
        """And of these."""
        self.number += len(moves)
        for move in moves:
            self._nbytes += move.nbytes
            self._sources.add(move.source)
            self._targets.add(move.target)
        return self

    def __str__(self) -> str:
        way = f"from {counted(len(self._sources), 'worker')} to {counted(len(self._targets), 'worker')}"
        return f"{counted(self.number, 'result')} ({show_large(self._nbytes, 'B')}) {way}"


@dataclass(slots=True)
class _Batch:
    """Moves from one worker to another that were asked for together, without those that are over."""

    source: str
    target: str
    asked: float
    deadline: float
    moves: dict[Hashable, Move] = field(default_factory=dict)
    #: those whose copy has arrived, while the old one is in use
    arrived: set[Hashable] = field(default_factory=set)
    #: on their way: how many, and bytes; and what of it the account of all batches has
    number: int = 0
    nbytes: int = 0
    counted: tuple[int, int] = (0, 0)
    #: small ones that come together
    bundle: asyncio.Task[None] | None = None


class _Carrying:
    """The moves of one plan. ``step`` looks at what arrived, drops old copies and asks for new ones."""

    def __init__(self, scheduler: Any, is_copy: bool = False, untold: Untold | None = None) -> None:
        self._scheduler = scheduler
        self._is_copy = is_copy
        self._untold = untold
        self._coming = _coming.setdefault(scheduler, Counter())
        self._queues: dict[tuple[str, str], deque[Move]] = {}
        #: bytes that workers of this plan have still to give, and what they have now beyond what they had
        self._owed: Counter[str] = Counter()
        self._gained: Counter[str] = Counter()
        self._batches: deque[_Batch] = deque()
        self._under_way: set[Hashable] = set()
        #: on their way of this plan, by worker: bytes, and how many
        self._sent: Counter[str] = Counter()
        self._received: Counter[str] = Counter()
        self._number: Counter[str] = Counter()
        #: grows whenever something was asked for or is over
        self.changes = 0
        self.done: list[Move] = []
        self.failed: dict[str, list[Move]] = {}

    def add(self, move: Move) -> None:
        """It is to be done as well."""
        if move.source != move.target:
            self._queues.setdefault((move.source, move.target), deque()).append(move)
            self._owed[move.source] += self._given(move)

    def step(self, now: float) -> bool:
        """One look, as far as it goes in a moment; the next one goes on. Whether anything is left to do."""
        self._until = perf_counter() + MOMENT
        self._look(now)
        self._ask_for_more(now)
        return bool(self._batches or self._queues)

    def _given(self, move: Move) -> int:
        """Bytes that the source has no more when it is done."""
        return 0 if self._is_copy else move.nbytes

    def let_go(self) -> None:
        """No more of it."""
        while self._batches:
            batch = self._batches.pop()
            for move in list(batch.moves.values()):
                self._end(batch, move)
                self._gained[batch.target] -= move.nbytes
            self._count(batch)

    def _look(self, now: float) -> None:
        drop: dict[str, list[Hashable]] = {}
        for _ in range(len(self._batches)):
            batch = self._batches.popleft()
            self._look_at(batch, now, drop)
            if batch.moves:
                self._batches.append(batch)
            if perf_counter() > self._until:
                break
        for address, keys in drop.items():
            if self._untold is None or compat.has_spilled(self._scheduler, address):
                compat.drop_from(self._scheduler, address, keys, MOVE)
            else:
                compat.forget_copies(self._scheduler, address, keys)
                self._untold.setdefault(address, []).extend(keys)

    def _look_at(self, batch: _Batch, now: float, drop: dict[str, list[Hashable]]) -> None:
        """Of many, those behind one that has not come are looked at only when they are asked for again:
        they come together, or in this order."""
        is_taking = compat.is_running(self._scheduler, batch.target)
        is_late = now > batch.asked + _AGAIN and batch.bundle is None
        has_many = len(batch.moves) > _MANY
        again: list[Hashable] = []
        for key in list(batch.moves):  # no tuples: see ``in_rows``
            move = batch.moves[key]
            task = compat.find_task(self._scheduler, key)
            there = compat.holders(task) if task is not None else ()
            if batch.target in there:
                if self._is_over(move, task, there, drop):
                    self._end(batch, move)
                    self.done.append(move)
                    self._gained[move.source] -= self._given(move)
                elif now > batch.deadline:
                    self._fail(batch, move, _IN_USE)
                elif key not in batch.arrived:
                    batch.arrived.add(key)
                    batch.number -= 1
                    batch.nbytes -= move.nbytes
            elif not there:
                self._fail(batch, move, _LOST if task is not None and not compat.is_new(task) else "")
            elif not is_taking or now > batch.deadline:
                self._fail(batch, move, _TOO_LATE if is_taking else _NOBODY)
            elif is_late or key in batch.arrived:
                if key in batch.arrived:
                    batch.arrived.discard(key)
                    batch.number += 1
                    batch.nbytes += move.nbytes
                again.append(key)
            elif has_many:
                break
        self._count(batch)
        if again:
            batch.asked = now
            compat.copy_to(self._scheduler, batch.target, again, MOVE)

    def _is_over(
        self, move: Move, task: Any, there: Collection[str], drop: dict[str, list[Hashable]]
    ) -> bool:
        """Whether all is done for a copy that has arrived, if the old one is dropped now."""
        if not self._is_copy and move.source in there:
            if not compat.is_used_on(task, move.source):
                drop.setdefault(move.source, []).append(move.key)
            elif compat.is_running(self._scheduler, move.source):
                return False
        return True

    def _ask_for_more(self, now: float) -> None:
        """Who has to give as well gives first, or it would hold more than before; unless all wait for it."""
        for pair in list(self._queues):
            if perf_counter() > self._until:
                return
            self._ask(pair, now)
        if not self._under_way:
            for pair in list(self._queues):
                self._ask(pair, now, in_any_case=True)

    def _ask(self, pair: tuple[str, str], now: float, in_any_case: bool = False) -> None:
        queue, (source, target) = self._queues[pair], pair
        batch = _Batch(source, target, now, now + _PATIENCE)
        is_taking, has_given = compat.is_running(self._scheduler, target), self._owed[target] <= 0
        most, gained = max(self._sent[source], self._received[target]), self._gained[target]
        number = min(BATCH, AT_ONCE - self._number[target])
        while queue and len(batch.moves) < number:
            nbytes = queue[0].nbytes
            is_too_much = most and most + nbytes > WINDOW
            if is_too_much or not (has_given or gained + nbytes <= 0 or in_any_case):
                break
            move = queue.popleft()
            self.changes += 1
            if self._may_move(move, is_taking):
                batch.moves[move.key] = move
                self._under_way.add(move.key)
                most += nbytes
                gained += nbytes
            else:
                self._owed[source] -= self._given(move)
        batch.number, batch.nbytes = len(batch.moves), gained - self._gained[target]
        self._gained[target] = gained
        if batch.moves:
            batch.deadline += batch.nbytes / _SLOWEST
            self._count(batch)
            self._batches.append(batch)
            self._ask_for(batch)
        if not queue:
            del self._queues[pair]

    def _ask_for(self, batch: _Batch) -> None:
        keys: Collection[Hashable] = batch.moves
        small = [key for key, move in batch.moves.items() if move.nbytes <= SMALL]
        if len(small) > FEW and compat.has_worker_plugin(self._scheduler, BundlePlugin.name):
            batch.bundle = asyncio.ensure_future(self._bring(batch, small))
            keys = [key for key, move in batch.moves.items() if move.nbytes > SMALL]
        if keys:
            compat.copy_to(self._scheduler, batch.target, keys, MOVE)

    async def _bring(self, batch: _Batch, small: list[Hashable]) -> None:
        """Together; what does not come so is asked for as the others are, if it is still to be moved."""
        left: Collection[Hashable] = small
        try:
            left = await compat.bring_together(self._scheduler, batch.target, batch.source, small)
        except Exception as error:  # no such plugin there, or no worker any more
            logger.debug("dask-hpc: %d results come one by one: %r", len(small), error)
        batch.bundle = None
        if keys := [key for key in left if key in batch.moves and self._is_to_come(batch, key)]:
            compat.copy_to(self._scheduler, batch.target, keys, MOVE)

    def _is_to_come(self, batch: _Batch, key: Hashable) -> bool:
        """A request for what runs there now would make its end pass unheard."""
        task = compat.find_task(self._scheduler, key)
        there = compat.holders(task) if task is not None else ()
        return bool(there) and batch.target not in there

    def _may_move(self, move: Move, is_taking: bool) -> bool:
        """Whether it can be asked for, of a worker that takes results or does not."""
        task = compat.find_task(self._scheduler, move.key)
        if task is None or compat.is_new(task) or move.key in self._under_way:
            return False
        there = compat.holders(task)
        if there and move.source not in there:
            return False  # moved by somebody else since the plan was made
        reason = "" if is_taking else _NOBODY
        reason = _ACTOR if compat.is_actor(task) else reason if there else _LOST
        if reason:
            self._note(reason, move)
        return not reason

    def _count(self, batch: _Batch) -> None:
        """Write down what has changed of that which is on its way."""
        number, nbytes = batch.number - batch.counted[0], batch.nbytes - batch.counted[1]
        batch.counted = batch.number, batch.nbytes
        self._number[batch.target] += number
        self._sent[batch.source] += nbytes
        self._received[batch.target] += nbytes
        self._coming[batch.target] += nbytes

    def _end(self, batch: _Batch, move: Move) -> None:
        """It is under way no more."""
        if move.key in batch.arrived:
            batch.arrived.discard(move.key)
        else:
            batch.number -= 1
            batch.nbytes -= move.nbytes
        del batch.moves[move.key]
        self._under_way.discard(move.key)
        self._owed[move.source] -= self._given(move)
        self.changes += 1

    def _fail(self, batch: _Batch, move: Move, reason: str) -> None:
        """It has not come, for this reason, or it is nobody's any more."""
        self._end(batch, move)
        self._gained[move.target] -= move.nbytes
        if reason:
            self._note(reason, move)

    def _note(self, reason: str, move: Move) -> None:
        self.failed.setdefault(reason, []).append(move)
