"""The scheduler's half of a redistribution: it knows who has what, and has whole chunks moved from worker to
worker. Installed by whoever redistributes; gone with the last that does.
"""

import logging
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from distributed.diagnostics.plugin import SchedulerPlugin

from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler.moves import carry_out, settle_on
from dask_hpc.cluster.scheduler.service import Context, context_of
from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.node import Nodes
from dask_hpc.planning.moves.leaving import Move

logger = logging.getLogger(__name__)

NAME = "dask-hpc-redistribution"


class RedistributionPlugin(SchedulerPlugin):
    """One for a cluster. ``node_mode`` is ``hpc.node``, where no control says what a node is."""

    name = NAME
    idempotent = True

    def __init__(self, node_mode: str = "auto") -> None:
        self._node_mode = node_mode

    def start(self, scheduler: Any) -> None:
        """Nothing here waits: two that come at once find one plugin."""
        self._scheduler = scheduler
        #: redistributions under way and their clients, and how many bytes each has moved
        self._clients: dict[str, str] = {}
        self._moved: Counter[str] = Counter()
        self._calls: dict[str, Callable[..., Any]] = {
            "hpc_redistribute_join": self._join,
            "hpc_redistribute_leave": self._leave,
            "hpc_redistribute_look": self._look,
            "hpc_redistribute_move": self._move,
            "hpc_redistribute_moved": lambda run: self._moved[run],
            "hpc_redistribute_free": self._free,
            "hpc_redistribute_tidy": lambda targets: settle_on(scheduler, targets),
        }
        compat.add_calls(scheduler, self._calls)

    def remove_client(self, scheduler: Any, client: str) -> None:
        for run in [run for run, one in self._clients.items() if one == client]:
            self._scheduler.loop.add_callback(self._leave, run)

    def _join(self, run: str, client: str) -> str:
        self._clients[run] = client
        return "OK"

    def _leave(self, run: str) -> str:
        self._clients.pop(run, None)
        self._moved.pop(run, None)
        if not self._clients:
            compat.remove_calls(self._scheduler, self._calls)
            if self._scheduler.plugins.get(NAME) is self:
                self._scheduler.remove_plugin(NAME)
        return "OK"

    def _look(self, keys: Sequence[Hashable], workers: Any = None) -> dict[str, Any]:
        """Who holds these results; the node of each worker; the workers that take data; and which of them are
        meant if nobody says: those of the job that the results belong to, else those that no job has."""
        scheduler, managed = self._scheduler, self._managed()
        nodes = managed.nodes if managed else Nodes.of(self._node_mode, compat.worker_identities(scheduler))
        able = [one for one in compat.workers_by_name(scheduler) if compat.is_running(scheduler, one)]
        allotted = set()
        if managed:
            owners = {managed.owner.get(key) for key in keys}
            running = [job for job in owners if job is not None and job.state == "running"]
            groups = dict(managed.groups())
            allotted = {address for job in (running or (None,)) for address in groups.get(job, ())}
        return {
            "holders": [self._holders(key) for key in keys],
            "nodes": {address: nodes.node_of(address) for address in scheduler.workers},
            "able": able,
            "pool": [address for address in able if address in allotted] or able,
            "asked": None if workers is None else self._named(workers, able),
        }

    def _holders(self, key: Hashable) -> Sequence[str]:
        task = compat.find_task(self._scheduler, key)
        return () if task is None else compat.holders(task)

    async def _move(self, run: str, targets: Sequence[Any], why: str) -> list[Hashable]:
        """Bring these results, each with the workers meant for it, to where they are not yet; copies, if
        several are meant. Gives the keys that did not arrive."""
        single = {key: workers[0] for key, workers in targets if len(workers) == 1}
        copies = {key: workers for key, workers in targets if len(workers) > 1}
        compat.SparedCopies.give_up(self._scheduler, single)
        compat.SparedCopies.spare(self._scheduler, copies)
        sent: Counter[str] = Counter()  # bytes that each worker has to send: whoever sends least does

        def move(key: Hashable, target: str) -> Move | None:
            there = self._holders(key)
            if not there or target in there:
                return None
            nbytes = compat.size(compat.find_task(self._scheduler, key))
            source = min(there, key=lambda worker: sent[worker])
            sent[source] += nbytes
            return Move(key, nbytes, source, target)

        def done(move: Move) -> None:
            self._moved[run] += move.nbytes

        moves = [one for key, target in single.items() if (one := move(key, target))]
        failed = await carry_out(self._scheduler, moves, why, self._tell, done=done)
        # Each round makes one more copy of everything, so that more and more workers can give it.
        for turn in range(max(map(len, copies.values()), default=0)):
            ready = (move(key, workers[turn]) for key, workers in copies.items() if len(workers) > turn)
            failed |= await carry_out(
                self._scheduler, filter(None, ready), why, self._tell, is_copy=True, done=done
            )
        return list(failed)

    def _free(self, keys: Iterable[Hashable], everywhere: bool) -> str:
        """These tasks may run anywhere, if the worker they were meant for takes no tasks; ``everywhere``:
        in any case."""
        managed = self._managed()
        freed = []
        for key in keys:
            task = compat.find_task(self._scheduler, key)
            where = compat.restriction(task) if task is not None else None
            if where and (everywhere or not any(compat.is_running(self._scheduler, one) for one in where)):
                job = managed.owner.get(key) if managed else None
                if job is not None:
                    job.wishes.pop(key, None)
                compat.restrict(task, job.gate if job is not None and job.state == "running" else None)
                freed.append(key)
        compat.nudge(self._scheduler, freed, "hpc-redistribute")
        return "OK"

    def _managed(self) -> Context | None:
        """What is known of a cluster whose jobs are controlled, or None."""
        context = context_of(self._scheduler)
        return context if context is not None and context.is_on and not context.is_dry else None

    def _named(self, workers: Any, able: Sequence[str]) -> list[str]:
        found = compat.named_workers(self._scheduler, workers)
        wrong = [name for name, there in found.items() if not there or not set(there) <= set(able)]
        if wrong:
            raise InputError(
                "redistribute: workers", f"found {shown(wrong)}", "workers that are connected and take data"
            )
        return list(dict.fromkeys(address for there in found.values() for address in there))

    def _tell(self, decision: str, reason: str) -> None:
        managed = self._managed()
        if managed is not None:
            managed.tell(decision, reason)
        logger.debug("%s: %s", decision, reason)
