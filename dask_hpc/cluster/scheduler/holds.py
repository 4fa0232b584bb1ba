"""Holds: workers that are kept from starting tasks for a while, so that nothing is stranded or run twice.

A hold exists on the scheduler only, where the worker counts as paused. The worker itself goes on: it serves
its data, finishes what it runs, and starts what nobody else may run. Everything else it has not started is
given to other workers. What a worker says of itself meanwhile (its memory monitor pauses and resumes it) is
remembered, not obeyed, and is in force when the hold ends. A worker that paused itself is drained too: Dask
would leave its tasks there until it has memory again.

Refused is a hold

1. of a worker that is not there, or is leaving;
2. that would leave no worker running but those that close;
3. of a worker that a plugin needs where it is, as Dask's shuffles do;
4. that would leave a task that must still run with no running worker it may run on.

A shuffle that begins leaves held workers out. If one is needed all the same (a task that feeds the shuffle
runs there), it works on until the shuffle is over, and is held again. A task that arrives later and may run
on held workers only waits; status and story say so.
"""

from collections import deque
from collections.abc import Collection, Hashable, Iterable, Iterator
from itertools import islice
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler.service import Context, Timer
from dask_hpc.model.node import Nodes

_EVERY = 0.2  # seconds between looks at held workers: tasks in flight still arrive, shuffles begin and end
_SHOWN = 10  # tasks named in the status
_LOOKED_AT = 100  # tasks that a task has submitted


class SubmittedByTasks:
    """The tasks that were submitted by tasks, as far as those may still wait for them."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._by: dict[Hashable, deque[Hashable]] = {}
        self._pruned = 0

    def arrive(self, submitter: Hashable, keys: Iterable[Hashable]) -> None:
        """A task has submitted tasks with these keys."""
        if len(self._by) > 2 * self._pruned + 1000:
            known = (task.key for task in compat.unfinished_among(self._scheduler, self._by))
            self._by = {key: self._by[key] for key in known}
            self._pruned = len(self._by)
        self._by.setdefault(submitter, deque()).extend(keys)

    def only_waits(self, address: str) -> bool:
        """Whether all that runs on a worker waits for tasks that it has submitted, and of which some are
        under way; then the worker is no more than the place where their results are wanted."""
        keys = compat.processing(self._scheduler, address)
        return bool(keys) and all(map(self._waits, keys))

    def _waits(self, submitter: Hashable) -> bool:
        keys = self._by.get(submitter, deque())
        while keys and self._is_over(keys[0]):
            keys.popleft()
        found = (compat.find_task(self._scheduler, key) for key in islice(keys, _LOOKED_AT))
        return any(task is not None and compat.is_sent(task) for task in found)

    def _is_over(self, key: Hashable) -> bool:
        task = compat.find_task(self._scheduler, key)
        return task is None or compat.is_settled(task)

    def clear(self) -> None:
        """Dask cleared all its tasks."""
        self._by.clear()


class Holds:
    """Who is held, and why. Several callers may hold one worker; it works again when the last lets go."""

    def __init__(self, context: Context, scatters: compat.Scatters) -> None:
        self._context = context
        self._scheduler = scheduler = context.scheduler
        #: held workers, and the reasons of each
        self.reasons: dict[str, dict[str, None]] = {}
        #: what held workers last said of themselves
        self._said: dict[str, str] = {}
        #: workers that paused themselves: they have too little memory
        self.paused_themselves: set[str] = set()
        #: workers that close by themselves, whatever is done about it
        self.closing: set[str] = set()
        #: those that were told to run, and have not said yet that they do
        self.coming_back: set[str] = set()
        #: held workers that work on for a plugin's sake
        self._lent: set[str] = set()
        #: tasks restricted by the user that may not have run yet
        self._restricted: dict[Hashable, None] = {}
        self._pruned = 0
        self._submitted = SubmittedByTasks(scheduler)
        #: tasks that only held workers could run
        self.stuck: dict[Hashable, None] = {}
        self._timer = Timer(context, "a hold", self._look)
        self.mover = compat.TaskMover(scheduler)
        if not compat.has_shuffles(scheduler):
            context.tell("warning", "this scheduler has no shuffles of Dask's: nothing is done for them")
        self._end_filter = compat.filter_worker_status(scheduler, self._worker_says)
        #: data from outside that may be on its way to held workers
        self._scatters = scatters
        self._coming: dict[str, set[int]] = {}
        self._end_shuffles = compat.keep_out_of_shuffles(scheduler, lambda: self.reasons)

    # what callers ask for

    def hold(self, addresses: Iterable[str], why: str, *, for_good: bool = False) -> dict[str, str]:
        """Let these workers start no more tasks. Those that cannot be held, and the reason.

        ``for_good``: they are to leave, so a job that has no other worker will wait again, as always when
        its last node goes; that is no reason to refuse.
        """
        refused, new = {}, []
        for address in addresses:
            if address not in self.reasons:
                refusal = self.refusal([address], for_good=for_good)
                if refusal is not None:
                    refused[address] = refusal
                    self._tell("hold-refused", f"worker {address} ({why}): {refusal}")
                    continue
                self._said[address] = compat.worker_status(self._scheduler, address) or "running"
                self.reasons[address] = {}
                self._coming[address] = set(self._scatters.under_way)
                compat.set_worker_status(self._scheduler, address, "paused")
                new.append(address)
            if why not in self.reasons[address]:
                self.reasons[address][why] = None
                self._tell("hold", f"worker {address}: {why}")
        for address in new:  # when all are held: none is to take the tasks of another
            self.mover.drain(address)
        if new:
            self._look_later()
        return refused

    def release(self, address: str, why: str | None = None) -> bool:
        """Let go of the worker for this reason, or for all. Whether it works again."""
        reasons = self.reasons.get(address)
        if reasons is None or (why is not None and why not in reasons):
            return False
        if why is not None:
            del reasons[why]
        if why is None or not reasons:
            self._let_work(address)
            del self.reasons[address]
            del self._said[address]
            del self._coming[address]
            self._lent.discard(address)
            self._tell("release", f"worker {address}: {why or 'all holds are lifted'}")
            return True
        return False

    def is_lent(self, address: str) -> bool:
        """Whether a held worker works on because a plugin needs it."""
        return address in self._lent

    def stands_still(self, address: str) -> bool:
        """Whether the time of a worker that is to leave does: a plugin needs it, or what runs there waits for
        others."""
        is_needed = self.is_lent(address) or compat.veto(self._scheduler, address) is not None
        return is_needed or self._submitted.only_waits(address)

    def is_busy(self, address: str) -> bool:
        """Whether a worker that is to leave has something to do yet: it has tasks, a plugin needs it, or
        something may still come from before it was held (data that was scattered, a task that another one
        gives up for it)."""
        if compat.processing(self._scheduler, address) or self.is_lent(address) or self._is_awaiting(address):
            return True
        return compat.veto(self._scheduler, address) is not None

    def _is_awaiting(self, address: str) -> bool:
        is_scattered = not self._scatters.under_way.isdisjoint(self._coming.get(address, ()))
        return is_scattered or self.mover.is_expecting(address)

    def refusal(self, together: Collection[str], *, for_good: bool = False) -> str | None:
        """Why these workers cannot be held now, all of them; None if they can."""
        others = compat.running_workers(self._scheduler).difference(together, self.closing)
        for address in together:
            status = compat.worker_status(self._scheduler, address)
            if status is None:
                return "no such worker"
            if status == "init":
                continue  # it has only just connected: it has nothing yet, and now begins nothing
            if status not in ("running", "paused"):
                return f"it is leaving already ({status})"
            if not others:
                return "no other worker runs"
            if plugin := compat.veto(self._scheduler, address):
                return f"{plugin} needs it where it is"
        for job in () if for_good else self._context.running_jobs():
            if job.unfinished and not job.workers.isdisjoint(together) and not job.workers & others:
                return f"it is the last running worker of job {job.id}"
        return self.is_needed(together)

    def is_needed(self, together: Collection[str]) -> str | None:
        """A task that must still run, and that no running worker but these may run, in words; None if there
        is none."""
        others = compat.running_workers(self._scheduler).difference(together)
        for task in compat.unfinished_among(self._scheduler, self._restricted):
            with_them = compat.permitted(self._scheduler, task, others.union(together))
            if with_them.intersection(together) and not compat.permitted(self._scheduler, task, others):
                return f"no other running worker may run {compat.key_of(task)!r}"
        return None

    def bring_back(self, address: str) -> None:
        """Dask could not let a worker go after all, and tells it to be again what Dask thinks it was: if it
        is held, paused, by us. It is to run."""
        self.coming_back.add(address)
        if address in self.reasons:
            compat.tell_worker_status(self._scheduler, address, "running")

    def close(self) -> None:
        """Everybody works again, and nothing of ours is left."""
        for address in list(self.reasons):
            self.release(address)
        self._end_filter()
        self._end_shuffles()
        self.mover.close()
        self.cancel()

    def cancel(self) -> None:
        """The scheduler closes."""
        self._timer.stop()

    # what happens

    def graph_arrives(self, annotations: Any, keys: Iterable[Hashable], submitter: Hashable) -> None:
        """Tasks were submitted, perhaps by a task. Those that the user restricted are remembered."""
        if submitter is not None:
            self._submitted.arrive(submitter, keys)
        for name in ("workers", "resources"):
            self._restricted.update(dict.fromkeys(annotations.get(name) or ()))
        if len(self._restricted) > 2 * self._pruned + 1000:
            known = (key for key in self._restricted if compat.find_task(self._scheduler, key))
            self._restricted = dict.fromkeys(known)
            self._pruned = len(self._restricted)

    def task_waits(self, key: Hashable, finish: str) -> None:
        """A task begins to wait for a worker, or no longer does."""
        if finish != "no-worker":
            self.stuck.pop(key, None)
        elif key not in self.stuck:
            task = compat.find_task(self._scheduler, key)
            if compat.permitted(self._scheduler, task, set(self.reasons)):
                self.stuck[key] = None
                if len(self.stuck) <= _SHOWN:  # the story need not name them all
                    self._tell("task-waits", f"only workers that are held may run {key!r}")

    def tasks_vanish(self) -> None:
        """Dask cleared all its tasks."""
        self._restricted.clear()
        self._submitted.clear()
        self.stuck.clear()

    def worker_leaves(self, address: str) -> None:
        """A worker is gone, and with it its holds."""
        self.reasons.pop(address, None)
        self._said.pop(address, None)
        self._coming.pop(address, None)
        self._lent.discard(address)
        self.paused_themselves.discard(address)
        self.coming_back.discard(address)
        self.closing.discard(address)

    def nodes(self, nodes: Nodes, besides: Collection[str]) -> set[str]:
        """The nodes on which no worker may start anything, for other reasons than these."""
        held = {address for address, reasons in self.reasons.items() if reasons.keys() - besides}
        touched = {nodes.node_of(address) for address in held}
        return {name for name in touched if held.issuperset(nodes.workers(name))}

    def in_the_way(self, why: str) -> Iterator[tuple[Hashable, set[str]]]:
        """Tasks that only held workers could run, with those of them that are held for this reason alone."""
        for key in self.stuck:
            task = compat.find_task(self._scheduler, key)
            alone = {address for address, reasons in self.reasons.items() if reasons.keys() == {why}}
            if task is not None and (found := compat.permitted(self._scheduler, task, alone)):
                yield key, found

    def as_status(self) -> dict[str, Any]:
        """Plain data for the status."""
        return {
            "holds": [{"worker": address, "why": list(why)} for address, why in self.reasons.items()],
            "waiting_for_held_workers": [str(key) for key, _ in zip(self.stuck, range(_SHOWN), strict=False)],
        }

    # inner workings

    def _tell(self, decision: str, reason: str) -> None:
        self._context.tell(decision, reason)
        self._context.wake()  # a node may be given away again, or no more

    def _worker_says(self, address: str, status: str) -> str:
        """A worker reports its status. What Dask is to hear: a held worker stays paused."""
        if status == "running":
            self.coming_back.discard(address)
        if status == "paused":
            self.paused_themselves.add(address)
            self._look_later(0)
        else:
            self.paused_themselves.discard(address)
        if address not in self.reasons or status not in ("running", "paused"):
            return status
        self._said[address] = status
        return status if address in self._lent else "paused"

    def _let_work(self, address: str) -> None:
        if self._said[address] == "running" and compat.worker_status(self._scheduler, address) == "paused":
            compat.set_worker_status(self._scheduler, address, "running")

    def _look_later(self, after: float = _EVERY) -> None:
        if not (self._timer.is_set and after):
            self._timer.set(after)

    def _look(self) -> None:
        if self.reasons or self.paused_themselves:
            self._look_later()
        for address in list(self.reasons):
            self._lend_or_take_back(address)
        for address in {*self.reasons, *self.paused_themselves}:
            if compat.worker_status(self._scheduler, address) == "paused":
                self.mover.drain(address)

    def _lend_or_take_back(self, address: str) -> None:
        plugin = compat.veto(self._scheduler, address)
        if plugin and address not in self._lent:
            self._lent.add(address)
            self._let_work(address)
            self._tell("hold", f"worker {address} works on while {plugin} needs it")
        elif not plugin and address in self._lent:
            self._lent.discard(address)
            if compat.worker_status(self._scheduler, address) == "running":
                compat.set_worker_status(self._scheduler, address, "paused")
            self._tell("hold", f"worker {address} is held again: no plugin needs it any more")
