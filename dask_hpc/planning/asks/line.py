"""Which of our units that wait in a queue to take back, and why.

Those that were asked for less than ``gain`` seconds ago are left alone: a queue takes a moment to plan them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean

from dask_hpc.planning.asks.replay import Starts
from dask_hpc.planning.asks.shapes import AskShape, FoundShape, WantedWork, done_after, show_wait

_MORE = 1.25  # of the work that is known: so much is worth waiting for


@dataclass(frozen=True, slots=True)
class WaitingAsk:
    """A unit of ours that waits in the queue. ``job`` is its id there, if it has one yet."""

    unit: str
    shape: AskShape
    asked: float
    job: str = ""
    #: it was asked for because it would start at once
    is_filler: bool = False


@dataclass(slots=True)
class AskLine:
    """Our units in the queue by their jobs, when they would start, and what was said against those that are
    to be taken back. Each method finds more of these."""

    units: Mapping[str, WaitingAsk]
    starts: Mapping[str, Starts]
    work: WantedWork
    now: float
    gain: float
    #: reasons by unit
    withdrawn: dict[str, str] = field(default_factory=dict)

    def late(self, job: str) -> float:
        """How long it would still wait, most likely."""
        return self.starts[job].at(0.5) - self.now if job in self.starts else 0.0

    def useful(self, job: str) -> float:
        """Seconds of work that it is good for."""
        return self.units[job].shape.walltime - self.work.overhead

    @property
    def left(self) -> dict[str, WaitingAsk]:
        """Those that stay, by job."""
        return {job: ask for job, ask in self.units.items() if ask.unit not in self.withdrawn}

    def is_old(self, job: str) -> bool:
        """Whether it may be taken back."""
        return self.now - self.units[job].asked >= self.gain

    def drop_surplus(self) -> None:
        """The last ones, without which the others do all the work, and more."""
        spare = _MORE * self.work.seconds - sum(map(self.useful, self.units))
        for job in sorted(self.starts, key=lambda job: -self.starts[job].at(0.5)):
            spare += self.useful(job)
            if spare > 0 or not self.is_old(job):
                break
            words = "not needed any more: the work is done without it"
            self.withdrawn[self.units[job].unit] = words

    def drop_holeless(self) -> None:
        """Those that were to start at once and will not."""
        for job, ask in self.units.items():
            if ask.is_filler and self.is_old(job) and self.late(job) > self.gain:
                words = f"the hole that it was for is gone, it would start {show_wait(self.late(job))}"
                self.withdrawn.setdefault(ask.unit, words)

    def give_way(self, starting: int, submit: int) -> None:
        """To so many that start now, of which ``submit`` have room already: who is expected last goes, who
        is expected first keeps his place."""
        order = sorted(self.starts, key=lambda job: (self.late(job), job))
        for job in filter(self.is_old, order[:0:-1]):
            if starting <= submit + len(self.withdrawn) or self.late(job) <= self.gain:
                break
            words = f"overtaken: others start now, it would {show_wait(self.late(job))}"
            self.withdrawn.setdefault(self.units[job].unit, words)

    def drop_overtaken(self, best: FoundShape, todo: WantedWork, margin: float) -> int:
        """Those in place of which others start sooner, if ``todo`` is done sooner by these, by such a share.
        How many."""
        starts = {job: self.starts[job] for job in self.left if job in self.starts and self.is_old(job)}
        if not starts:
            return 0
        shape = self.units[next(iter(starts))].shape
        courses = zip(*(found.courses for found in starts.values()), strict=True)
        done = fmean(done_after([time - self.now for (time,) in course], shape, todo) for course in courses)
        if not self._is_sooner(best.done, done, margin):
            return 0
        before, last = len(self.withdrawn), len(best.starts.courses[0]) - 1
        order = sorted(starts, key=self.late)
        for place, job in enumerate(order[: best.count]):
            soon, ask = best.starts.at(0.5, min(place, last)) - self.now, self.units[job]
            if ask.shape != best.shape and self._is_sooner(soon, self.late(job), margin):
                words = f"{best.shape} starts {show_wait(soon)}, it would {show_wait(self.late(job))}"
                self.withdrawn[ask.unit] = f"overtaken: {words}"
        return len(self.withdrawn) - before

    def _is_sooner(self, ours: float, theirs: float, margin: float) -> bool:
        return ours < min(theirs * (1 - margin), theirs - self.gain)
