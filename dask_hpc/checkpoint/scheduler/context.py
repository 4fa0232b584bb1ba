"""What all parts of the controller share: scheduler, books, each other, calls to workers, and what is told:
counts, and one line of the story for each event, however many blocks it is about."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Protocol

from dask_hpc import dask as compat
from dask_hpc.checkpoint.scheduler.catalogue import Catalogue
from dask_hpc.checkpoint.scheduler.schedule import FailureCounts, Recoveries
from dask_hpc.cluster.scheduler.service import Guard, Timer, context_of
from dask_hpc.model.errors import one_line
from dask_hpc.model.node import Nodes
from dask_hpc.model.units import show_duration, show_large

_TOGETHER = 1.0  # seconds in which copies that are made again are one event
SETTLED = ("memory", "erred", "forgotten")
_COUNTS = (
    "commits", "copies", "moved", "unchanged", "failed", "recoveries", "recovered", "unrecovered", "damaged",
)  # fmt: skip


@dataclass
class Tally:
    """What came of copies that agents were asked for at one go."""

    copies: int = 0
    #: bytes that went from one worker to another, and those that were there already
    moved: int = 0
    unchanged: int = 0
    #: why there is no copy, and how often
    failed: Counter[str] = field(default_factory=Counter)
    #: how long it took
    seconds: float = 0.0

    def copied(self, nbytes: int, moved: int) -> None:
        self.copies += 1
        self.moved += moved
        self.unchanged += nbytes - moved

    def add(self, other: "Tally") -> None:
        self.copies += other.copies
        self.moved += other.moved
        self.unchanged += other.unchanged
        self.failed += other.failed
        self.seconds += other.seconds

    def __str__(self) -> str:
        took = f"in {show_duration(self.seconds)}"
        parts = [f"{_many(self.copies, 'copy', 'copies')}, {show_large(self.moved, 'B')} moved, {took}"]
        if self.unchanged:
            parts.append(f"{show_large(self.unchanged, 'B')} unchanged")
        if self.failed:
            why, _ = self.failed.most_common(1)[0]
            parts.append(f"{_many(self.failed.total(), 'copy', 'copies')} not made: {why}")
        return "; ".join(parts)


@dataclass
class _Recovery:
    """From the first result that is missing until none is."""

    began: float
    missing: set[Hashable] = field(default_factory=set)
    workers: dict[str, None] = field(default_factory=dict)
    loaded: int = 0
    #: results that no intact copy was left of, and copies that could not be read
    without: int = 0
    damaged: int = 0
    why: str = ""

    def __str__(self) -> str:
        where = (
            f", lost with {' and '.join(f'worker {one}' for one in self.workers)}," if self.workers else ""
        )
        took = show_duration(monotonic() - self.began)
        parts = [f"{_many(self.loaded, 'result', 'results')}{where} loaded from copies in {took}"]
        if self.without:
            parts.append(f"{_many(self.without, 'result', 'results')} without an intact copy")
        if self.damaged:
            parts.append(f"{_many(self.damaged, 'copy', 'copies')} could not be read")
        return "; ".join(parts) + (f": {self.why}" if self.why else "")


class Diary:
    """What happened, in numbers and words."""

    def __init__(self, context: "ControllerContext") -> None:
        self._context = context
        self._timer = Timer(context, "the story of copies", self._tell_of_copies)
        #: copies that were made again lately
        self._again: Tally | None = None
        #: see ``as_plain``
        self.counts: Counter[str] = Counter()
        #: when the last one of each name ended, the newest last, and what is told of it
        self._commits: dict[str, tuple[float, dict[str, Any]]] = {}
        #: what was not made of a name when it was last tried
        self._lacking: dict[str, Counter[str]] = {}
        self._recovery: _Recovery | None = None

    def committed(self, name: str, tally: Tally) -> None:
        """All that was ready of a name is copied, if there was anything to be copied. Another try that comes
        to nothing for the same reasons is none."""
        is_news = tally.copies or tally.failed != self._lacking.get(name, Counter())
        self._lacking[name] = tally.failed
        if is_news and (tally.copies or tally.failed):
            told = {"seconds": tally.seconds, "moved": tally.moved, "unchanged": tally.unchanged}
            self._commits.pop(name, None)
            self._commits[name] = (monotonic(), told)
            self.counts["commits"] += 1
            self._count(tally)
            self._say("commit", f"{name}: {tally}")

    def copied_again(self, tally: Tally) -> None:
        """Copies that were lost were made again, as far as there is anything to make them from."""
        self._count(tally)
        if not tally.copies and not tally.failed:
            return
        if self._again is None:
            self._again = Tally()
            self._timer.set(_TOGETHER)  # of one death one line
        self._again.add(tally)

    def _tell_of_copies(self) -> None:
        tally, self._again = self._again, None
        if tally is not None:
            self._say("agents", f"some blocks had too few copies; made again: {tally}")

    def moves(self, key: Hashable, start: str, finish: str) -> None:
        """A result that is loaded from a copy when it is lost changes its state."""
        recovery = self._recovery
        if start == "memory" and finish != "forgotten":
            if recovery is None:
                recovery = self._recovery = _Recovery(monotonic())
            recovery.missing.add(key)
        elif recovery is not None and key in recovery.missing and finish in SETTLED:
            recovery.loaded += finish == "memory"
            self._settles(recovery, key)

    def worker_is_gone(self, worker: str) -> None:
        if self._recovery is not None:
            self._recovery.workers[worker] = None

    def cannot_be_read(self, agent: str, why: str) -> None:
        """A copy is damaged, or its agent does not answer."""
        self.counts["damaged"] += 1
        if self._recovery is None:
            self._say("recovery", f"a copy on {agent} could not be read: {why}")
        else:
            self._recovery.damaged += 1
            self._recovery.why = self._recovery.why or why

    def cannot_be_loaded(self, key: Hashable, why: str) -> None:
        """There is no intact copy: the result is computed again, if that is possible."""
        self.counts["unrecovered"] += 1
        recovery = self._recovery
        if recovery is None or key not in recovery.missing:
            self._say("recovery", f"no copy of {key!r} could be loaded: {why}")
        else:
            recovery.without += 1
            recovery.why = recovery.why or why
            self._settles(recovery, key)

    def last_commit(self, name: str) -> dict[str, Any] | None:
        """Of a name: how long ago, and what it took and moved."""
        if name not in self._commits:
            return None
        ended, told = self._commits[name]
        return {"ago": monotonic() - ended, **told}

    def as_plain(self) -> dict[str, Any]:
        """The last commit of all, and how often what happened: ``copies``, ``moved`` and ``unchanged``
        (bytes), ``failed`` (copies that were not made), ``recovered`` (results), ``unrecovered`` (results
        without an intact copy), ``damaged`` (copies that could not be read)."""
        return {
            "last_commit": self.last_commit(next(reversed(self._commits), "")),
            "counts": {name: self.counts[name] for name in _COUNTS},
        }

    def _settles(self, recovery: _Recovery, key: Hashable) -> None:
        """If that was the last one that was missing, say how it went."""
        recovery.missing.discard(key)
        if recovery.missing:
            return
        self._recovery = None
        if recovery.loaded or recovery.without:
            self.counts["recoveries"] += 1
            self.counts["recovered"] += recovery.loaded
            if not recovery.without:
                self._context.recoveries.loaded(monotonic() - recovery.began)
            self._say("recovery", str(recovery))

    def _count(self, tally: Tally) -> None:
        failed = tally.failed.total()
        self.counts.update(copies=tally.copies, moved=tally.moved, unchanged=tally.unchanged, failed=failed)

    def _say(self, decision: str, reason: str) -> None:
        self._context.tell(decision, one_line(reason))


def _many(number: int, one: str, more: str) -> str:
    return f"{number} {one if number == 1 else more}"


NAME = "dask-hpc-checkpoint"
#: the name under which nodes are asked for that only keep copies
BORROWS = "checkpoint"


class Tenant(Protocol):
    """Another service that keeps blocks with the agents: see ``tenant_blocks``."""

    def agents_change(self) -> None:
        """Some have come, or gone."""

    def lost(self, agent: str, contents: Sequence[str]) -> None:
        """An agent is gone, and had these."""

    def announced(self, agents: Collection[str]) -> Mapping[str, Collection[str]]:
        """These are about to go, and nothing more is announced for them. What they still expect."""

    def leaving(self, agents: Collection[str]) -> Mapping[str, str]:
        """These are about to go. By content, who is to have what they have."""

    async def prepare(self, agents: Collection[str]) -> None:
        """These are about to go: what is kept back there is given to agents."""

    def is_over(self, reason: str) -> None:
        """There are no agents any more."""


class ControllerContext(Guard):
    """The controller, as its parts see it."""

    concern = "checkpoint: "
    farewell = "checkpoints are off after {} errors; all results are plain ones"
    nodes: Nodes
    catalogue: Catalogue
    diary: Diary
    failures: FailureCounts

    def __init__(self, scheduler: Any) -> None:
        super().__init__(scheduler)
        self.recoveries = Recoveries()
        #: other services that keep blocks with the agents
        self.tenants: list[Tenant] = []
        self._next_commits: dict[str, asyncio.Event] = {}

    def next_commit(self, names: Iterable[str]) -> Awaitable[object]:
        """From now on: the next commit of one of these names is complete, or there is none any more."""
        events = [self._next_commits.setdefault(name, asyncio.Event()) for name in names]
        waiting = [asyncio.ensure_future(event.wait()) for event in events]

        async def first() -> None:
            try:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for one in waiting:
                    one.cancel()

        return first()

    def is_kept(self, name: str) -> None:
        """What there was of a name is kept, or will not be."""
        if (event := self._next_commits.pop(name, None)) is not None:
            event.set()

    @property
    def own_nodes(self) -> tuple[str, ...]:
        """The nodes that are there for copies alone."""
        managed = context_of(self.scheduler)
        known = managed.indices.borrowers.get(BORROWS) if managed is not None else None
        return () if known is None else tuple(one.node for one in known.lent)

    def tell(self, decision: str, reason: str) -> None:
        """Put it into the story, if the cluster is managed; else into Dask's event log."""
        if (managed := context_of(self.scheduler)) is not None:
            managed.tell(decision, reason)
        else:
            self.scheduler.log_event(NAME, {"decision": decision, "reason": reason})

    def _ended(self, where: str, task: asyncio.Task[None]) -> None:
        """That a worker that was asked has gone is no error of ours."""
        self._tasks.discard(task)
        if task.cancelled() or not isinstance(task.exception(), OSError):
            super()._ended(where, task)

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()


def holders(context: ControllerContext, key: Hashable) -> tuple[str, ...]:
    task = compat.find_task(context.scheduler, key)
    return () if task is None or compat.is_actor(task) else compat.holders(task)


def node_names(context: ControllerContext) -> tuple[str, ...]:
    running = compat.running_workers(context.scheduler)
    return tuple(sorted({context.nodes.node_of(address) for address in running}))


class HasGone(ConnectionError):
    """A worker that was asked, or that is needed for the answer."""

    def __init__(self, address: str) -> None:
        super().__init__(f"{address} has gone")
        self.address = address


class WorkerCalls:
    """What is asked of workers now."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        #: and the workers that are needed for the answer
        self._calls: dict[asyncio.Future[Any], set[str]] = {}

    async def call(self, address: str, name: str, *, needs: Iterable[str] = (), **what: Any) -> Any:
        """The worker's answer, for which it needs others. Raises ``OSError`` if it cannot be had, at once if
        one of them goes: Dask would try for long to reach it."""
        if self._is_gone(address):
            raise HasGone(address)
        call = asyncio.ensure_future(getattr(self._scheduler.rpc(address), name)(**what))
        self._calls[call] = {address, *needs}
        try:
            await asyncio.wait([call])
            if call.cancelled():
                raise HasGone(next(filter(self._is_gone, self._calls[call]), address))
            return call.result()
        finally:
            call.cancel()
            del self._calls[call]

    def worker_is_gone(self, address: str) -> None:
        """Nobody waits for its answers any longer, nor for those of who needs it."""
        for call, needed in self._calls.items():
            if address in needed:
                call.cancel()

    def _is_gone(self, address: str) -> bool:
        return compat.worker_status(self._scheduler, address) is None
