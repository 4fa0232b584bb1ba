"""How much memory a task of a kind takes, from those that were seen: rather too much than too little."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

#: how an estimate came about, the least sure first: nobody knew what its neighbours took, or they were known,
#: or all were of its kind, or it had none
HOWS = ("shared", "rest", "alike", "alone")
_SLOW = 0.05  # of the way down to the newest, for each task
_UNSURE = 0.1  # of the way up to what was seen less surely
_TELL = 0.2  # an estimate that has grown by that is told at once
_ENOUGH = 1 << 20  # bytes; less is nobody's trouble
_MOST = 200  # kinds, the newest


@dataclass(slots=True)
class Estimate:
    """Of one kind. ``bytes``: how far a task lets its process grow, with its result, without its inputs."""

    bytes: float = 0.0
    mean: float = 0.0
    #: what was brought to its worker for it, and its result
    inputs: float = 0.0
    result: float = 0.0
    tasks: int = 0
    rank: int = -1
    told: float = -1.0

    def learn(self, peak: float, rank: int) -> None:
        """One more task has ended."""
        self.tasks += 1
        if rank > self.rank:
            self.bytes = self.mean = peak
            self.rank = rank
        elif rank == self.rank:
            self.bytes = _leaning_up(self.bytes, peak)
            self.mean += max(_SLOW, 1 / self.tasks) * (peak - self.mean)
        elif peak > self.bytes:
            self.bytes += _UNSURE * (peak - self.bytes)

    def has_news(self) -> bool:
        """Whether it is to be told at once."""
        return self.told < 0 or self.bytes - self.told > max(_TELL * self.told, _ENOUGH)

    def tell(self) -> dict[str, Any]:
        """For the scheduler."""
        self.told = self.bytes
        return {
            "bytes": int(self.bytes),
            "mean": int(self.mean),
            "inputs": int(self.inputs),
            "result": int(self.result),
            "tasks": self.tasks,
            "how": HOWS[self.rank],
        }


def _leaning_up(known: float, new: float) -> float:
    return new if new >= known else known - _SLOW * (known - new)


@dataclass(slots=True, eq=False)
class TaskRun:
    """A task that runs, or has just ended."""

    key: Hashable
    kind: str
    start: float
    #: how far the process has grown for it: now, and at most; and for all that ran beside it, at most
    level: float = 0.0
    peak: float = 0.0
    most: float = 0.0
    #: how sure the most is; whether it has been alone all the time
    rank: int = -1
    alone: bool = True
    #: bytes that were told last
    told: float = 0.0

    def is_unsure(self) -> None:
        """Something else may have been taken for its growth."""
        self.alone = False
        self.rank = min(self.rank, HOWS.index("alike"))

    def take(self, share: float, rank: int) -> None:
        """Its share of how far the process has grown, at most since the last time."""
        self.level = share
        if share > self.peak or self.rank < 0:
            self.peak, self.rank = max(share, self.peak), rank


@dataclass(slots=True)
class Estimates:
    """Of all kinds that a worker has run, and who of those that run takes how much."""

    kinds: dict[str, Estimate] = field(default_factory=dict)

    def knows(self, kind: str) -> bool:
        """Whether tasks of that kind have ended."""
        found = self.kinds.get(kind)
        return found is not None and found.tasks > 0

    def share(self, grown: float, runs: list[TaskRun]) -> None:
        """The process has grown by so much while these ran.

        One alone has taken all of it. Several of one kind have taken the same. Else those whose kind was seen
        alone, or with its like, have taken what these take on the average, and the others share the rest; if
        there are no others, in proportion.
        """
        for run in runs:
            run.most = max(run.most, grown)
        if len(runs) == 1:
            runs[0].take(grown, HOWS.index("alone") if runs[0].alone else HOWS.index("alike"))
            return
        for run in runs:
            run.alone = False
        if len({run.kind for run in runs}) == 1:
            self._give(runs, [grown / len(runs)] * len(runs), HOWS.index("alike"))
            return
        usual = [self._usual(run.kind) for run in runs]
        known = sum(one for one in usual if one is not None)
        unknown = usual.count(None)
        if not unknown:
            parts = [(one or 0.0) / known if known > 0 else 1 / len(runs) for one in usual]
            self._give(runs, [grown * part for part in parts], HOWS.index("shared"))
            return
        left = max(0.0, grown - known) / unknown
        rank = HOWS.index("rest") if unknown < len(runs) else HOWS.index("shared")
        scale = min(1.0, grown / known) if known > 0 else 0.0
        for run, one in zip(runs, usual, strict=True):
            if one is None:
                run.take(left, rank)
            else:
                run.take(one * scale, HOWS.index("shared"))

    def _usual(self, kind: str) -> float | None:
        found = self.kinds.get(kind)
        return found.mean if found is not None and found.rank >= HOWS.index("alike") else None

    @staticmethod
    def _give(runs: list[TaskRun], shares: list[float], rank: int) -> None:
        for run, share in zip(runs, shares, strict=True):
            run.take(share, rank)

    def end(self, run: TaskRun, result: int, inputs: int) -> Estimate:
        """A task has ended, with a result of so many bytes, and so much had been brought here for it."""
        found = self.kinds.pop(run.kind, None) or Estimate()
        self.kinds[run.kind] = found  # the newest is the last
        if len(self.kinds) > _MOST:
            del self.kinds[next(iter(self.kinds))]
        peak = run.peak
        if run.rank < HOWS.index("alone"):
            peak = max(peak, min(float(result), run.most))  # its own, if it is no view of its inputs
        found.inputs = _leaning_up(found.inputs, inputs)
        found.result = _leaning_up(found.result, result)
        found.learn(peak, max(0, run.rank))
        return found

    def tell(self, most: int, skip: int = 0) -> Mapping[str, dict[str, Any]]:
        """So many of them, others the next time: ``skip`` grows from one time to the next."""
        names = list(self.kinds)
        if len(names) > most:
            begin = skip * most % len(names)
            names = (names + names)[begin : begin + most]
        return {name: self.kinds[name].tell() for name in names}
