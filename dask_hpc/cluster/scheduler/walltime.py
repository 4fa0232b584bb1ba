"""No task starts on a worker that will end before the task does.

Dask gives a worker more tasks than it has threads, and the next one starts without asking. So a worker whose
end is known is held as soon as a kind of task that waits could not finish there, started when a thread is
free, with the drain budget to spare; holding it gives what it has not started to others. It works again when
all that waits would fit. Of a kind that has never run, a worker in its last ten minutes starts a task only
once. A held worker that is empty, and where nothing that waits would fit, leaves early, if another that works
lasts longer; its results go to others first.

While no worker's end is known nothing here runs: no clock, no look at any task.
"""

import asyncio
from collections.abc import Iterable
from math import inf
from time import monotonic, perf_counter
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler.holds import Holds
from dask_hpc.cluster.scheduler.service import Context, Timer
from dask_hpc.model.errors import InputError, insist, is_number, shown
from dask_hpc.model.units import show_duration
from dask_hpc.planning.walltime import Durations, may_start

_WHY = "its time ends"
_NEAR = 600.0  # seconds before its end from which a worker tries each unknown kind of tasks only once
_AGAIN = 5.0  # seconds after which a hold that was refused is asked for again
_CALM = 0.1  # seconds between looks while no end is near
_SOON = 0.02  # seconds that a clock may be early
_SHOWN = 3  # kinds named in the story


class Walltime:
    """The workers whose end is known."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._scheduler = context.scheduler
        #: when workers will end, by the monotonic clock; empty while none is known
        self.ends_at: dict[str, float] = {}
        self._durations = Durations()
        #: by worker, the kinds of which it has started a task, and when it was given each task it has
        self._tried: dict[str, set[str]] = {}
        self._given: dict[str, dict[Any, float]] = {}
        self._retiring: dict[str, asyncio.Future[Any]] = {}
        #: by worker, before when not to ask again for a hold that was refused
        self._refused: dict[str, float] = {}
        #: whether some worker's end may matter now, and what the last look cost
        self._near = True
        self._took = 0.0
        self._next = Timer(context, "minding the walltime", self._decide)
        self._timer = Timer(context, "minding the walltime", self.look)

    def close(self) -> None:
        """No clock is left. Holds end with control."""
        self._stop_clocks()
        for retiring in self._retiring.values():
            retiring.cancel()
        self._retiring.clear()
        self.ends_at.clear()
        self._tried.clear()
        self._given.clear()

    # remote calls

    def worker_ends(self, address: Any = None, left: Any = None) -> str:
        """A worker knows that it ends in so many seconds."""
        if not isinstance(address, str) or compat.worker_status(self._scheduler, address) is None:
            raise InputError("worker ends: address", f"found {shown(address)}", "a connected worker")
        insist(is_number(left, float("-inf"), 1e10), "worker ends: left", left, "seconds")
        self.ends_at[address] = monotonic() + left
        self._context.tell("worker-ends", f"worker {address} ends in {left:.0f} s")
        self.look()
        return "OK"

    # what happens

    def graph_arrives(self, keys: Iterable[Any]) -> None:
        """Tasks were submitted and have not moved yet: hold those who may not start them before they do."""
        if self.ends_at:
            self._decide({self._kind(key) for key in keys})

    def task_moves(self, key: Any, start: str, finish: str, startstops: Any) -> None:
        """A task changed its state, while some worker's end is known."""
        if start == "processing" and finish == "memory":
            for step in startstops or ():
                if step["action"] == "compute":
                    self._durations.add(self._kind(key), step["stop"] - step["start"])
        self.look()

    def worker_leaves(self, address: str) -> None:
        """A worker is gone."""
        self.ends_at.pop(address, None)
        self._tried.pop(address, None)
        self._given.pop(address, None)
        self._retiring.pop(address, None)
        self._refused.pop(address, None)

    def look(self) -> None:
        """Something happened: decide, but spend no more than a tenth of the time on it."""
        if self.ends_at and not self._next.is_set:
            wait = 9 * self._took if self._near else _CALM
            self._next.set(wait)

    # what follows

    def _decide(self, arriving: Iterable[str] = ()) -> None:
        self._stop_clocks()
        if not self.ends_at or not self._context.is_on:
            return
        began = perf_counter()
        after = self._mind_all(set(arriving))
        self._took = perf_counter() - began
        if after is not None:
            self._timer.set(max(after, 0) + _SOON)

    def _mind_all(self, arriving: set[str]) -> float | None:
        """Mind those workers whose end may matter. In how many seconds to look again at the latest."""
        kinds = compat.kinds(self._scheduler, compat.UNFINISHED) | arriving
        waiting = compat.kinds(self._scheduler, compat.UNFINISHED - {"processing"})
        seconds = {kind: self._seconds(kind) for kind in kinds}
        longest = max((runs for runs in seconds.values() if runs is not None), default=0.0)
        horizon = max(_NEAR, self._context.drain + 2 * longest)
        now = monotonic()
        far = [end - now - horizon for end in self.ends_at.values() if end - now > horizon]
        self._near = len(far) < len(self.ends_at)
        nexts: list[float | None] = [min(far)] if far and kinds else []
        if self._near:
            near = [address for address, end in self.ends_at.items() if end - now <= horizon]
            nexts += [self._mind(address, seconds, waiting) for address in near]
        return min((after for after in nexts if after is not None), default=None)

    def _mind(self, address: str, seconds: dict[str, float | None], waiting: set[str]) -> float | None:
        """Hold or release one worker, or let it leave. In how many seconds to look again."""
        if address in self._retiring or compat.worker_status(self._scheduler, address) is None:
            return None
        now = monotonic()
        left = self.ends_at[address] - now
        given = self._note(address, now)
        threads = compat.threads_of(self._scheduler, [address])
        busy_until = sorted(since + (self._seconds(kind) or 0.0) for since, kind in given)
        first_free = max(0.0, busy_until[0] - now) if len(busy_until) >= threads else 0.0
        tried = self._tried[address] if left < _NEAR else ()
        verdict = may_start(left, self._context.drain, seconds, tried, first_free)
        holds = self._context.get(Holds)
        is_held = _WHY in holds.reasons.get(address, ())
        if verdict.misfits and not is_held:
            misfits = ", ".join(sorted(verdict.misfits)[:_SHOWN])
            if now < self._refused.get(address, 0):
                return self._refused[address] - now
            if holds.hold([address], _WHY):
                self._refused[address] = now + _AGAIN
                return _AGAIN
            words = f"has {show_duration(left)} left: too little for {misfits}"
            self._context.tell("walltime", f"worker {address} {words}")
            return None
        elif is_held and not verdict.misfits:
            holds.release(address, _WHY)
        elif (
            is_held
            and not given
            and waiting
            and waiting.issubset(verdict.misfits)
            and self._is_outlasted(address)
        ):
            words = f"leaves {show_duration(left)} early: nothing that waits fits"
            self._context.tell("walltime", f"worker {address} {words}")
            work = self._scheduler.retire_workers(workers=[address], close_workers=True, remove=True)
            self._retiring[address] = self._context.do("a departure at the end of a walltime", work)
        return verdict.again

    def _is_outlasted(self, address: str) -> bool:
        """Whether somebody who works and lasts longer can take its results: or those who end before it would
        soon have nobody to give theirs to."""
        end = self.ends_at[address]
        return any(self.ends_at.get(other, inf) > end for other in compat.running_workers(self._scheduler))

    def _note(self, address: str, now: float) -> list[tuple[float, str]]:
        """Since when the worker has each of its tasks, and their kinds."""
        before = self._given.get(address, {})
        keys = compat.processing(self._scheduler, address)
        self._given[address] = given = {key: before.get(key, now) for key in keys}
        found = [(since, self._kind(key)) for key, since in given.items()]
        self._tried.setdefault(address, set()).update(kind for _, kind in found)
        return found

    def _seconds(self, kind: str) -> float | None:
        known = self._durations.upper(kind)
        return compat.average_duration(self._scheduler, kind) if known is None else known

    def _kind(self, key: Any) -> str:
        return compat.prefix(compat.find_task(self._scheduler, key))

    def _stop_clocks(self) -> None:
        self._next.stop()
        self._timer.stop()
