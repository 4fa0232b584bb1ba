"""How workers leave: the one road on which nothing is lost and nothing runs twice.

Whoever retires workers comes here instead of to Dask's own ``Scheduler.retire_workers``, with the same
arguments and the same answer: ``client.retire_workers``, ``cluster.scale`` and ``cluster.adapt``, a worker
whose lifetime ends. The road has five parts:

1. Wait until no plugin needs the worker where it is (a shuffle would have to begin again).
2. Hold it: it is given nothing any more, and what it has not started goes to others.
3. Wait for what runs there, up to the drain budget. What has not ended by then starts again elsewhere. The
   budget is not used up by tasks that only wait for others that they have submitted.
4. Move the results that nobody else has to the workers that stay, neighbours together, none fuller than 80 %.
   What it has for services, such as copies of results, goes to others, too.
5. Let Dask remove it, which by then finds nothing left to move.

Where something has begun there while data moved (a shuffle needs it after all), the road starts anew, in what
is left of the budget.

A worker that runs tasks for a service that nobody else may run is not held before the service has moved away,
which it does when it hears of it; that may take as long as the drain budget, too.

A worker that cannot leave (its data fits nowhere, an actor lives there, nobody else may run a task of its)
is released and works on; it is missing in the answer, and story and event log say why. With it stay the
other workers of its batch job, if that was named as a whole. If no worker stays
at all, as when a cluster is closed, there is nothing to wait for, and Dask alone decides.

Where a wait looks again every few milliseconds instead of being told, it is because what it waits for is a
mixture: tasks, answers of workers, shuffles, workers that die, control that is closed.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import inf
from time import monotonic
from typing import Any

from dask_hpc import config
from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler.holds import Holds
from dask_hpc.cluster.scheduler.moves import (
    Untold,
    beside,
    block_of,
    blocks_on,
    by_turns,
    carry_out,
    measured,
    rooms_on,
)
from dask_hpc.cluster.scheduler.service import Context
from dask_hpc.model.errors import InputError
from dask_hpc.model.units import show_duration
from dask_hpc.planning.moves.leaving import MovableBlock, MovePlan, collection_of, evacuate

logger = logging.getLogger(__name__)

LOOK = 0.02  # seconds between looks
_WHY = "it is leaving"
_SHOWN = 5  # tasks that the story names
_ANSWER = 1.0  # seconds that a worker has to say that it runs again
_ATTEMPTS = 5  # at moving data, before Dask's own retirement does what is left


class Leaving:
    """The workers on their way out. In force from its making to ``close``."""

    def __init__(self, context: Context, holds: Holds) -> None:
        self._context = context
        self._scheduler = scheduler = context.scheduler
        self._holds = holds
        self._is_over = False
        #: by worker, what brings it out
        self._departures: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._doing: set[asyncio.Task[Any]] = set()
        #: those that leave together, and have not been given to Dask
        self._batches: list[_Departure] = []
        self._theirs, self._give_back = compat.replace_retirement(scheduler, self.retire_workers)

    @property
    def addresses(self) -> Collection[str]:
        """The workers that are on their way out."""
        return self._departures.keys()

    def close(self) -> None:
        """Back to Dask's own. What is under way ends at once, as Dask would end it."""
        self._is_over = True
        self._give_back()
        for doing in self._doing:
            doing.cancel()

    async def settle(self) -> None:
        """Everything under way has ended."""
        await asyncio.gather(*self._departures.values(), return_exceptions=True)

    async def retire_workers(
        self,
        workers: Iterable[Any] | None = None,
        *,
        names: Iterable[Any] | None = None,
        close_workers: bool = False,
        remove: bool = True,
        stimulus_id: str | None = None,
        drain: Any = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """As Dask's, with two differences: ``workers`` may also be names, and those of whole batch jobs, as
        ``cluster.scale`` says them; and ``drain`` is the budget for running tasks, if it is to be another
        than ``hpc.drain``.
        """
        how = {"close_workers": close_workers, "remove": remove, "stimulus_id": stimulus_id}
        if self._is_over or (workers is not None) + (names is not None) + bool(kwargs) > 1:
            found: dict[str, Any] = await self._theirs(workers, names=names, **how, **kwargs)
            return found
        try:
            budget = self._context.drain if drain is None else config.live_setting("drain", drain)
            given = workers if names is None else names
            if given is None:
                groups = [[address] for address in self._scheduler.workers_to_close(**kwargs)]
            else:  # addresses of the workers that are to leave; together those that one name means
                given = [given] if isinstance(given, str) else given
                groups = list(compat.named_workers(self._scheduler, given).values())
            return await self._retire(groups, how, budget)
        except InputError:
            raise
        except Exception as error:
            found = await self._theirs(workers, names=names, **how, **kwargs)  # raises what is the caller's
            self._context.count_error("a retirement", error)
            return found

    async def _retire(self, groups: list[list[str]], how: dict[str, Any], budget: float) -> dict[str, Any]:
        answer: dict[str, Any] = {}
        todo = addresses = list(dict.fromkeys(address for group in groups for address in group))
        mates = {address: group for group in groups for address in group if len(group) > 1}
        while todo:
            busy = {self._departures[address] for address in todo if address in self._departures}
            mine = [address for address in todo if address not in self._departures]
            if mine:
                leaving = asyncio.ensure_future(self._bring_out(_Departure(mine, mates, how, budget)))
                self._departures.update(dict.fromkeys(mine, leaving))  # goes on even if the caller goes away
                busy.add(leaving)
            await asyncio.wait(busy)
            for departure in busy:
                answer.update(departure.result())
            # Somebody else may have let them go in a milder way: close_workers=False, remove=False.
            todo = [a for a in todo if a not in mine and a in answer]
            todo = [a for a in todo if compat.worker_status(self._scheduler, a)]
        return {address: answer[address] for address in addresses if address in answer}

    async def _bring_out(self, departure: "_Departure") -> dict[str, Any]:
        left: dict[str, Any] = {}
        if self._batches and not self._others():
            for address in departure.batch:
                self._refuse(departure, address, "nobody else would stay")
        self._batches.append(departure)
        try:
            try:
                while True:
                    await self._hold_and_wait(departure)
                    since = monotonic()
                    await self._move_data(departure)
                    await self._unless_closed(partial(self._drain, departure))
                    departure.excuse(monotonic() - since)
                    if self._is_free(departure):
                        break  # nothing has begun there meanwhile
                self._tell_of_restarts(departure)
            except Exception as error:
                self._context.count_error("a departure", error)  # the rest is Dask's
            self._batches.remove(departure)
            left = await self._remove(departure)
        finally:
            for address in departure.batch:
                compat.remind_of_drops(self._scheduler, address, departure.untold.pop(address, ()))
                # One that was refused may be leaving again by now, with somebody else.
                if self._departures.get(address) is asyncio.current_task():
                    del self._departures[address]
                    try:
                        self._holds.release(address, _WHY)
                    except Exception as error:
                        self._context.count_error("the end of a hold", error)
        self._report(departure, left)
        return left

    def _on_the_way(self, departure: "_Departure") -> list[str]:
        """Those that are still to be brought out with care. None if control or the scheduler is closed, or
        if no worker stays."""
        if self._is_over or compat.is_closing(self._scheduler) or not self._others():
            return []
        return [address for address in departure.ready if compat.worker_status(self._scheduler, address)]

    @property
    def going(self) -> set[str]:
        """The workers that leave: on this road, or because they close."""
        return self._departures.keys() | self._holds.closing

    def _others(self) -> set[str]:
        return set(compat.workers_by_name(self._scheduler)) - self.going

    def keep_somebody(self, why: str) -> None:
        """Nobody works but who is held or on his way out: of those for whom it is not too late the one with
        most room works on."""
        free = {}
        departing = {address: departure for departure in self._batches for address in departure.ready}
        for address in (self._holds.reasons.keys() | departing.keys()) - self._holds.closing:
            is_there = compat.worker_status(self._scheduler, address) is not None
            if is_there and (address in departing or address not in self._departures):
                limit, used = compat.memory_of(self._scheduler, address)
                free[address] = limit - used if limit else inf
        if free:
            address = max(free, key=free.__getitem__)
            if address in departing:
                self._refuse(departing[address], address, why)
            self._holds.release(address)

    async def _hold_and_wait(self, departure: "_Departure") -> None:
        """Parts 1 to 3. The budget of each worker begins when it is held."""
        held, since = departure.held, monotonic()
        while there := self._on_the_way(departure):
            now = monotonic()
            for address in there:
                if compat.has_actors(self._scheduler, address):
                    self._refuse(departure, address, "actors live there, which cannot be moved")
            free = [a for a in departure.ready if a in there and a not in held]
            free = [a for a in free if not self._is_needed(departure, a)]
            is_heard = any(service.hears_who_leaves() for service in self._context.services)
            if now - since < departure.budget and is_heard:
                free = [a for a in free if self._holds.is_needed([a]) is None]
            # One that is on its way out already, but still here, is given nothing anyway.
            works = ("init", "running", "paused")
            stays = [a for a in free if compat.worker_status(self._scheduler, a) in works]
            for address, reason in self._holds.hold(stays, _WHY, for_good=True).items():
                self._refuse(departure, address, reason)
            held |= {address: now for address in free if address not in departure.refused}
            if self._is_free(departure):
                return
            await asyncio.sleep(LOOK)

    def _is_free(self, departure: "_Departure") -> bool:
        """Whether all are held, and nothing is to be waited for any more: it has ended, or the budget has."""
        now, held = monotonic(), departure.held
        there = self._on_the_way(departure)
        # A shuffle may have begun to need one that is held, or what runs there waits for tasks elsewhere.
        held |= {a: now for a in there if a in held and self._holds.stands_still(a)}
        is_busy, budget = self._holds.is_busy, departure.budget
        return all(a in held and (now - held[a] >= budget or not is_busy(a)) for a in there)

    def _is_needed(self, departure: "_Departure", address: str) -> bool:
        plugin = compat.veto(self._scheduler, address)
        if plugin and address not in departure.told:
            departure.told.add(address)
            self._context.tell("leave", f"worker {address} has to wait: {plugin} needs it where it is")
        return plugin is not None

    def _refuse(self, departure: "_Departure", address: str, reason: str) -> None:
        """It stays, so it can run tasks and take the data of others again; and with it its whole batch job,
        of which no part can be given back."""
        for mate in departure.mates.get(address, [address]):
            if mate in departure.ready:
                departure.refused[mate] = reason if mate == address else f"so does {address} of the same job"
                self._departures.pop(mate, None)
                self._holds.release(mate, _WHY)

    async def _move_data(self, departure: "_Departure") -> None:
        """Part 4, more than once if results arrive meanwhile."""
        for _ in range(_ATTEMPTS):
            plan = await self._plan(departure)
            if not plan:
                return
            why, untold = "their worker is leaving", departure.untold
            await self._unless_closed(
                partial(carry_out, self._scheduler, plan.moves, why, self._context.tell, untold=untold)
            )

    async def _unless_closed(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Until it is done, or control is closed."""
        doing = asyncio.ensure_future(work())
        self._doing.add(doing)
        await asyncio.wait([doing])
        self._doing.discard(doing)
        if not doing.cancelled():
            doing.result()  # an error is ours

    async def _plan(self, departure: "_Departure") -> MovePlan:
        """Where the data goes. While it does not fit, the worker with most of what is left over stays.

        Workers are asked how full they are where it may matter.
        """
        is_known = False
        while there := self._on_the_way(departure):
            blocks = await blocks_on(self._scheduler, there)
            staying = compat.running_workers(self._scheduler) - self.going
            blocks = await with_neighbours(self._scheduler, blocks, staying)
            rooms = rooms_on(self._scheduler, staying, at_worst=not is_known)
            plan = await beside(evacuate, len(blocks), blocks, self.going, rooms)
            if not plan.unplaced:
                return plan
            if not is_known:
                await self._unless_closed(partial(measured, self._scheduler, staying))
                is_known = True
                continue
            most = Counter[str]()
            for block in plan.unplaced:
                most.update(dict.fromkeys(set(block.holders).intersection(there), block.nbytes))
            self._refuse(departure, most.most_common(1)[0][0], plan.reason)
        return MovePlan()

    async def _drain(self, departure: "_Departure") -> None:
        """The rest of part 4, as far as the drain budget goes."""
        there = self._on_the_way(departure)
        with suppress(TimeoutError):
            async with asyncio.timeout(departure.budget):
                await drain(self._context, there)

    def _tell_of_restarts(self, departure: "_Departure") -> None:
        for address in self._on_the_way(departure):
            if keys := compat.processing(self._scheduler, address):
                self._context.tell(
                    "restart",
                    f"worker {address}: the drain budget of {show_duration(departure.budget)} is over; "
                    f"{len(keys)} of its tasks start again elsewhere: {', '.join(map(str, keys[:_SHOWN]))}",
                )

    async def _remove(self, departure: "_Departure") -> dict[str, Any]:
        """Part 5."""
        if not departure.ready or compat.is_closing(self._scheduler):
            return {}
        left: dict[str, Any] = await self._theirs(departure.ready, **departure.how)
        for address in departure.ready:
            if address not in left and compat.worker_status(self._scheduler, address):
                departure.refused[address] = "Dask found nobody to take its data"
                self._holds.bring_back(address)
        # A worker that is told to run when it closes already would close twice, and Dask's second close
        # hinders the first. So nobody hears that it stays before it says that it runs.
        limit = monotonic() + _ANSWER
        while monotonic() < limit and not self._holds.coming_back.isdisjoint(departure.refused):
            await asyncio.sleep(LOOK)
        return left

    def _report(self, departure: "_Departure", left: Iterable[str]) -> None:
        for address in left:
            is_there = compat.worker_status(self._scheduler, address) is not None
            how = "is empty and takes no more" if is_there else "has left"
            self._context.tell("leave", f"worker {address} {how}")
        refused = departure.refused
        for address, reason in refused.items():
            self._context.tell("not-retired", f"worker {address} stays: {reason}")
            logger.warning("dask-hpc: worker %s is not retired: %s", address, reason)
        if refused:
            self._scheduler.log_event(["all", *refused], {"action": "could-not-retire", "reasons": refused})


async def drain(context: Context, addresses: Collection[str]) -> None:
    """Others take over what these workers have for services."""
    for service in context.services if addresses else ():
        await service.drain(addresses)


@dataclass
class _Departure:
    """Workers that leave together."""

    batch: list[str]
    #: by worker, those of the same batch job, itself included: they leave together or not at all
    mates: dict[str, list[str]]
    #: what Dask is told
    how: dict[str, Any]
    budget: float
    #: since when the time runs of those that are held
    held: dict[str, float] = field(default_factory=dict)
    #: those that stay after all, and why
    refused: dict[str, str] = field(default_factory=dict)
    #: copies that the scheduler has forgotten, for whom stays after all
    untold: Untold = field(default_factory=dict)
    #: those of which the story says that they have to wait
    told: set[str] = field(default_factory=set)

    @property
    def ready(self) -> list[str]:
        """Those that nobody has refused."""
        return [address for address in self.batch if address not in self.refused]

    def excuse(self, seconds: float) -> None:
        """What took so long was no waiting for tasks."""
        self.held = {address: since + seconds for address, since in self.held.items()}


async def with_neighbours(
    scheduler: Any, blocks: list[MovableBlock], staying: Iterable[str]
) -> list[MovableBlock]:
    """These blocks, and those of the same collections on the workers that stay."""
    names = set(await by_turns(collection_of(block.key) for block in blocks))
    if not names:
        return blocks
    known = {block.key for block in blocks}
    near = (
        task if collection_of(key := compat.key_of(task)) in names and key not in known else None
        for address in staying
        for task in compat.tasks_on(scheduler, address)
    )
    return blocks + await by_turns(map(block_of, dict.fromkeys(await by_turns(near))))
