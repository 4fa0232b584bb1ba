"""How well predicted starts hold, learned from everybody's jobs, and intervals that keep their promise.

A replay knows how differently jobs can end. It does not know what a site's scheduler does otherwise, nor all
who come. But every job that anybody submits is a prediction that can be checked: predicted when it is first
seen, known when it starts. Misses are measured in half-widths of the predicted interval, on each side of the
median and in logarithms of the wait, and intervals are stretched (or tightened) so that a tenth of those
misses lies beyond either bound. To begin with the interval is taken as it is, with the weight of a dozen
jobs.
"""

from collections import deque
from dataclasses import dataclass, field
from math import exp, inf, log
from statistics import NormalDist

from dask_hpc.planning.asks.queue import QueueView
from dask_hpc.planning.asks.replay import Starts

_MOST = 300  # checked predictions remembered, the newest
_OPEN = 500  # predictions that wait to be checked
_GUESSES = 12
_FLOOR = 0.15  # in logarithms of the wait: no half-width counts as less
_WIDEST = 4.0  # half-widths that a bound is moved at most
_OTHERS = 30  # misses of others that count for asks of ours
#: who takes the best of many predictions takes one that is too good: by so many half-widths, and less sure.
#: With these 69 of 86 were in their interval (notebooks/benchmarks/asked_simulated.py)
_CURSE, _DOUBT = 0.5, 1.4
_TENTH = NormalDist().inv_cdf(0.9)


@dataclass(frozen=True, slots=True)
class PredictedWait:
    """Seconds from now: the median, and bounds that hold it in four cases of five."""

    median: float
    low: float
    high: float
    #: the same as the replay had it
    raw: "PredictedWait | None" = None

    @property
    def is_none(self) -> bool:
        """Whether it is to start at once, in a hole that there is now."""
        return self.median == 0.0

    def miss(self, waited: float, grain: float) -> float:
        """By how many half-widths a wait lies beyond the median; negative where it is shorter."""
        beyond = log(waited + grain) - log(self.median + grain)
        bound = self.high if beyond > 0 else self.low
        return beyond / max(abs(log(bound + grain) - log(self.median + grain)), _FLOOR)


@dataclass(slots=True)
class StartRecord:
    """Predictions made, and how they came out. ``grain`` is a wait that is as good as none."""

    grain: float = 60.0
    #: by job: when it was predicted, and what
    _open: dict[str, tuple[float, PredictedWait]] = field(default_factory=dict)
    _misses: deque[float] = field(default_factory=lambda: deque(maxlen=_MOST))
    #: the same of asks that were chosen for what was predicted of them
    _chosen: dict[str, tuple[float, PredictedWait]] = field(default_factory=dict)
    _chosen_misses: deque[float] = field(default_factory=lambda: deque(maxlen=_MOST))

    def new(self, view: QueueView) -> list[str]:
        """Waiting jobs that no prediction was made for yet: those to predict now."""
        return [ask.id for ask in view.pending if ask.id not in self._open and not ask.is_held]

    def predicted(self, job: str, now: float, starts: Starts) -> None:
        """A prediction for a job that waits, as a replay makes it."""
        raw = _raw(starts, now)
        if job not in self._open and raw.median < inf and len(self._open) < _OPEN:
            self._open[job] = (now, raw)

    def chosen(self, job: str, now: float, wait: PredictedWait) -> None:
        """A job was asked for because this was predicted of it."""
        if wait.raw is not None and wait.raw.median < inf:
            self._chosen[job] = (now, wait.raw)

    def look(self, view: QueueView) -> None:
        """Check the predictions for jobs that have started; forget those that are gone."""
        started = {job.id: job.started for job in view.running}
        waiting = {ask.id for ask in view.pending}
        for made, misses in ((self._open, self._misses), (self._chosen, self._chosen_misses)):
            for job, (when, wait) in list(made.items()):
                if job in started and wait.high > self.grain:  # what starts at once is no test
                    misses.append(wait.miss(max(0.0, started[job] - when), self.grain))
                if job in started or (job not in waiting and view.now > when + self.grain):
                    del made[job]

    @property
    def checked(self) -> int:
        """How many predictions came true or did not."""
        return len(self._misses) + len(self._chosen_misses)

    def wait(self, starts: Starts, now: float, unit: int = 0, is_chosen: bool = False) -> PredictedWait:
        """A prediction whose bounds are as wide as they had to be lately: for a job that waits, or for one
        that is chosen among many for what is predicted of it."""
        raw = _raw(starts, now, unit)
        if raw.high <= 0 or raw.median == inf:
            return PredictedWait(raw.median, raw.low, max(raw.high, self.grain), raw)
        guess = [NormalDist().inv_cdf((at + 0.5) / _GUESSES) / _TENTH for at in range(_GUESSES)]
        misses = [*self._misses, *guess]
        if is_chosen:
            others = list(self._misses)[-_OTHERS:]
            doubted = [_CURSE + _DOUBT * miss for miss in (*others, *guess)]
            misses = [*self._chosen_misses, *doubted]
        misses.sort()
        middle = log(raw.median + self.grain)
        bounds = []
        for level, bound in ((0.1, raw.low), (0.9, raw.high)):
            width = max(abs(log(bound + self.grain) - middle), _FLOOR) if bound < inf else inf
            moved = min(max(_quantile(misses, level), -_WIDEST), _WIDEST)
            bounds.append(exp(middle + moved * width) - self.grain if width < inf else inf)
        low, high = max(0.0, bounds[0]), max(bounds[1], 0.0)
        return PredictedWait(min(max(raw.median, low), high), low, high, raw)


def _raw(starts: Starts, now: float, unit: int = 0) -> PredictedWait:
    low, high = starts.interval(unit)
    return PredictedWait(max(0.0, starts.at(0.5, unit) - now), max(0.0, low - now), max(0.0, high - now))


def _quantile(ordered: list[float], level: float) -> float:
    place = level * (len(ordered) - 1)
    at = min(int(place), len(ordered) - 2)
    return ordered[at] + (place - at) * (ordered[at + 1] - ordered[at])
