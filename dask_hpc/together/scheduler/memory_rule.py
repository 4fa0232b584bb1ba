"""How many tasks of a kind may run at once in the memory of a worker: what the policy's ``memory`` strategy
says, of what workers tell and what is remembered of earlier programs."""

import asyncio
from collections.abc import Iterable, Mapping
from time import time
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler.service import Context
from dask_hpc.cluster.worker.farewell import in_thread
from dask_hpc.history.kinds import KindHistory, PastKind
from dask_hpc.model.errors import InputError, one_line
from dask_hpc.model.story import Explanation
from dask_hpc.model.units import show_bytes
from dask_hpc.strategies.memory.memory_view import KindMemory, WorkerMemory
from dask_hpc.strategies.strategy import MemoryStrategy
from dask_hpc.together.scheduler.peaks import KindPeaks
from dask_hpc.together.scheduler.worker_memory import WorkerMemories
from dask_hpc.together.worker.peaks import TOPIC

_UNHEARD = 5.0  # seconds after the end of a kind's first task, when nobody will say what it needed
_PATIENCE = 5.0  # seconds that a disk has when control ends
_TOLD = 1000  # kinds of which it is remembered what was told
_SHOWN = 50  # kinds that the status has, those that need most


class MemoryRule:
    """What is known of the memory of kinds and workers, and what follows from it."""

    def __init__(self, context: Context, strategy: MemoryStrategy) -> None:
        self._context = context
        self._strategy = strategy
        self.peaks = KindPeaks()
        self.memories = WorkerMemories(context.scheduler, self.peaks)
        #: kinds that tasks have ended of, of which nobody has said what they need, and since when
        self._unheard: dict[str, float] = {}
        self._told: dict[str, str] = {}
        self._is_told_of_nonsense = False
        self._history = KindHistory.of(context.settings["history"])
        self._writing: asyncio.Task[None] | None = None

    # what happens

    def ended(self, kind: str) -> list[str]:
        """A task of that kind has a result. Of which kinds that says something."""
        if self.peaks.ended(kind):
            return [kind]
        if not self.peaks.is_known(kind):
            self._unheard.setdefault(kind, self._context.clock())
        return []

    def worker_died(self, address: str, kinds: Mapping[str, int]) -> list[str]:
        """It did not say good-bye, and had tasks of these kinds. If several may have run, it may have been
        too much for its memory: of which kinds nothing is believed for now."""
        if sum(kinds.values()) < 2 or address in self.memories.silent:
            return []
        self.peaks.doubt(kinds)
        return list(kinds)

    def becomes(self, strategy: MemoryStrategy) -> None:
        """Another strategy, or other parameters: what was heard is still so."""
        self._strategy = strategy
        self._told.clear()

    def worker_joins(self) -> bool:
        """Whether it is the first that can tell what tasks need, or may be able to."""
        nobody_told = self.memories.nobody_told
        self.memories.changed()
        return nobody_told and self.memories.least() is not None

    def worker_leaves(self, address: str) -> None:
        """It is gone."""
        self.memories.forget(address)

    def hear(self, message: Mapping[str, Any]) -> list[str]:
        """What a worker has to say at once. Of which kinds more is known now. Whoever may log events may say
        anything: what makes no sense is not heard."""
        news: list[str] = []
        try:
            if kinds := message.get("kinds"):
                news += self._heard(str(message["worker"]), kinds)
            if running := message.get("running"):
                news += self.peaks.hear_running(running, self._context.clock())
        except (AttributeError, KeyError, TypeError, ValueError):
            if not self._is_told_of_nonsense:
                self._is_told_of_nonsense = True
                self._context.tell("warning", f"an event {TOPIC} makes no sense; such are not heard")
        return news

    def hear_heartbeat(self, address: str, said: Any) -> list[str]:
        """What it says of all kinds every so often."""
        if said is None:
            return []
        if said["kinds"] is None:
            self.memories.cannot_tell(address, str(said["how"]))
            return []
        self.memories.can_tell(address)
        if "base" in said:
            self.memories.at_rest(address, float(said["base"]))
        self.peaks.hear_growth(said.get("growth", {}), self._context.clock())
        return self._heard(address, said["kinds"])

    def _heard(self, worker: str, kinds: Mapping[str, Any]) -> list[str]:
        for kind in kinds:
            self._unheard.pop(kind, None)
        return self.peaks.hear_kinds(worker, kinds)

    def look(self) -> list[str]:
        """Time has passed. Of which kinds more is known now."""
        self.memories.look()
        now = self._context.clock()
        late = [kind for kind, since in self._unheard.items() if now - since > _UNHEARD]
        for kind in late:
            del self._unheard[kind]
            self.peaks.assume(kind, 0.0)
        return late

    # what follows

    def keeps(self, kind: str) -> bool:
        """Whether tasks of that kind are let pass one by one."""
        least = self.memories.least()
        if least is None:  # perhaps the only worker has died
            return self.peaks.is_doubted(kind)
        return self._strategy.keeps(self._known(kind), least)

    def fits(
        self, room: compat.WorkerRoom, kind: str, kept: Mapping[str, int], there: Mapping[str, int]
    ) -> bool:
        """Whether one more may begin on that worker. ``there``: how many tasks of each kind it has; ``kept``:
        of those that are let pass one by one."""
        if not self.memories.is_told(room):
            return True
        memory = self.memories.now(room, self._strategy, kept, there, kind)
        return self._strategy.fits(self._known(kind), memory)

    def _known(self, kind: str) -> KindMemory:
        return self.peaks.of(kind)

    def tell(self, kinds: Iterable[str]) -> None:
        """What has changed for these since it was told last."""
        least = self.memories.least()
        for kind in kinds:
            if least is None or not self.peaks.is_known(kind) or not self.keeps(kind):
                continue
            known = self._known(kind)
            words = f"{self._strategy.at_once(known, least)} at once on a worker"
            if self._told.get(kind) != words:
                self._told.pop(kind, None)
                self._told[kind] = words
                if len(self._told) > _TOLD:
                    del self._told[next(iter(self._told))]
                need, limit = show_bytes(known.peak or 0.0), show_bytes(least.limit)
                inputs = {"one needs": need, "limit": limit, "taken when idle": show_bytes(least.base)}
                why = Explanation(f"memory: {self._strategy.name}", inputs, ())
                self._context.tell("memory-lane", f"{kind}: {words}: one needs {need} of {limit}", why)

    def status(self) -> dict[str, Any]:
        """What is known of the kinds that need most, on the worker that has least for each thread."""
        least = self.memories.least()
        known = sorted(self.peaks.known(), key=lambda one: -one[1].bytes)[:_SHOWN]
        return {
            "why_not": sorted(set(self.memories.silent.values())),
            "worker": _plain(least) if least else None,
            "kinds": [
                {
                    "kind": kind,
                    "peak": one.bytes,
                    "remembered": one.is_old,
                    "at_once": self._strategy.at_once(self._known(kind), least) if least else None,
                }
                for kind, one in known
            ],
        }

    # between programs

    async def recall(self) -> list[str]:
        """What was known in earlier programs is known of kinds that nobody has told of yet. Which these
        are."""
        if self._history is None:
            return []
        try:
            found = await in_thread(self._history.read)
        except InputError as problem:
            self._context.tell("warning", one_line(f"{problem}; goes without what kinds needed before"))
            return []
        self.peaks.recall({kind: one.peak for kind, one in found.items()})
        return list(found)

    def write(self) -> None:
        """What was seen in this program is remembered."""
        seen = {kind: PastKind(known.bytes, time()) for kind, known in self.peaks.measured()}
        if self._history is not None and seen and self._writing is None:
            self._writing = self._context.do("the history of kinds", self._save(self._history, seen))

    async def settle(self) -> None:
        """It is, if the disk answers in time."""
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=_PATIENCE)

    async def _save(self, history: KindHistory, seen: Mapping[str, PastKind]) -> None:
        try:
            await in_thread(history.add, seen)
        except OSError as problem:
            words = f"{history.path}: cannot be written: {problem}; kinds are not remembered"
            self._context.tell("warning", one_line(words))
        finally:
            self._writing = None


def _plain(worker: WorkerMemory) -> dict[str, float]:
    """What it has, and what it has it for."""
    return {"limit": worker.limit, "base": worker.base, "threads": worker.threads}
