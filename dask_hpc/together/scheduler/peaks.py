"""What tasks of each kind need of a worker's memory, as workers tell it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from dask_hpc.strategies.memory.memory_view import KindMemory
from dask_hpc.together.worker.peaks import NOISE

_CLEARED = 3  # tasks that must end after a worker has died with some of their kind
_GROWS = 1.1  # times what it had grown to before: less is no growth
_MOST = 1000  # kinds, those that were heard of last


@dataclass(slots=True)
class HeardPeak:
    """Of one kind."""

    #: bytes above what its worker has, and who said so last
    bytes: float
    worker: str
    tasks: int = 0
    #: whether it is of an earlier program, and nobody has said anything in this one
    is_old: bool = False


@dataclass(slots=True)
class KindGrowth:
    """Of a kind none of which has ended: by how much those that run have grown. A worker says so: what was
    sent may wait there, or for what it imports first."""

    bytes: float
    #: since when it has not grown, how far it had grown then, and until when anybody has said so: a worker of
    #: which nothing is heard may grow
    since: float
    level: float
    heard: float


class KindPeaks:
    """Of all kinds. The most that any worker says counts, until that one says less."""

    def __init__(self) -> None:
        self._heard: dict[str, HeardPeak] = {}
        self._growing: dict[str, KindGrowth] = {}
        #: kinds that ran on a worker that died, and how many of their tasks have to end before what is known
        #: of them is believed again
        self._doubted: dict[str, int] = {}

    def doubt(self, kinds: Iterable[str]) -> None:
        """Several tasks of these ran on a worker that died, perhaps of what they needed."""
        for kind in kinds:
            self._doubted.pop(kind, None)
            self._doubted[kind] = _CLEARED
            self._growing.pop(kind, None)
        _keep_newest(self._doubted)

    def is_doubted(self, kind: str) -> bool:
        """Whether a worker has died with some of them, and nothing is known again."""
        return kind in self._doubted

    def ended(self, kind: str) -> bool:
        """A task of that kind has a result. Whether what is known of it is believed again."""
        left = self._doubted.get(kind, 0) - 1
        if left > 0:
            self._doubted[kind] = left
            return False
        return self._doubted.pop(kind, None) is not None

    def hear_kinds(self, worker: str, kinds: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """What a worker says of kinds of which tasks have ended. Which of them are known better than before,
        or need another amount."""
        news = []
        for kind, said in kinds.items():
            need = float(said["bytes"]) + float(said["inputs"])
            before = self._heard.pop(kind, None)
            if before is None or before.is_old or need >= before.bytes or before.worker == worker:
                found = HeardPeak(need, worker, int(said["tasks"]))
                if before is not None and before.is_old:
                    found.bytes = max(need, before.bytes) if found.tasks < 3 else need
            else:
                found = before
            self._heard[kind] = found  # the newest last
            self._growing.pop(kind, None)
            if before is not None and found.bytes > before.bytes:
                self._doubted.pop(kind, None)  # that is what it was
            if before is None or found.bytes != before.bytes:
                news.append(kind)
        _keep_newest(self._heard)
        return news

    def hear_running(self, rows: list[Any], now: float) -> list[str]:
        """How far tasks that run have grown. Of which kinds that says something new."""
        news = []
        for _, kind, _, grown in rows:
            known = self._heard.get(kind)
            if known is not None:
                if grown > known.bytes:
                    known.bytes = float(grown)
                    news.append(kind)
                continue
            self._grows(kind, now, now, float(grown))
            news.append(kind)
        return news

    def hear_growth(self, growth: Mapping[str, Any], now: float) -> None:
        """Of kinds of which none has ended on a worker: for how long one runs, and how far it has grown."""
        for kind, (seconds, grown) in growth.items():
            if kind not in self._heard:
                self._grows(kind, now - float(seconds), now, float(grown))

    def _grows(self, kind: str, began: float, now: float, grown: float) -> None:
        known = self._growing.pop(kind, None) or KindGrowth(0.0, began, 0.0, now)
        if grown > _GROWS * known.level + NOISE:
            known.since, known.level = now, grown
        known.bytes, known.heard = max(known.bytes, grown), now
        self._growing[kind] = known
        _keep_newest(self._growing)

    def assume(self, kind: str, need: float) -> None:
        """Nobody will say what it needs: tasks of it have ended, and their worker cannot tell."""
        self._heard.setdefault(kind, HeardPeak(need, ""))
        self._growing.pop(kind, None)
        _keep_newest(self._heard)

    def recall(self, kinds: Mapping[str, float]) -> None:
        """What was known in earlier programs."""
        for kind, need in kinds.items():
            self._heard.setdefault(kind, HeardPeak(need, "", is_old=True))

    def is_known(self, kind: str) -> bool:
        """Whether tasks of that kind have ended, and what is known of them is believed."""
        return kind in self._heard and kind not in self._doubted

    def of(self, kind: str) -> KindMemory:
        """What is known of it."""
        known = self._heard.get(kind)
        if known is not None and kind not in self._doubted:
            return KindMemory(kind, known.bytes)
        growing = self._growing.get(kind)
        if growing is None:
            return KindMemory(kind)
        return KindMemory(kind, None, growing.bytes, growing.heard - growing.since)

    def measured(self) -> Iterator[tuple[str, HeardPeak]]:
        """Those of which workers have said in this program what their tasks needed."""
        return ((kind, found) for kind, found in self._heard.items() if found.worker and found.tasks)

    def known(self) -> Iterator[tuple[str, HeardPeak]]:
        """Those of which tasks have ended, in this program or before."""
        return iter(self._heard.items())


def _keep_newest(kinds: dict[str, Any]) -> None:
    """No more than ``_MOST``."""
    for kind in list(islice(kinds, max(0, len(kinds) - _MOST))):
        del kinds[kind]
