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
_TENTH = NormalDist().inv_cdf(0.9)


@dataclass(frozen=True, slots=True)
class PredictedWait:
    """Seconds from now: the median, and bounds that hold it in four cases of five."""

    median: float
    low: float
    high: float

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

    def new(self, view: QueueView) -> list[str]:
        """Waiting jobs that no prediction was made for yet: those to predict now."""
        return [ask.id for ask in view.pending if ask.id not in self._open and not ask.is_held]

    def predicted(self, job: str, now: float, starts: Starts) -> None:
        """A prediction for a job that waits, as a replay makes it."""
        raw = _raw(starts, now)
        if job not in self._open and raw.median < inf and len(self._open) < _OPEN:
            self._open[job] = (now, raw)

    def look(self, view: QueueView) -> None:
        """Check the predictions for jobs that have started; forget those that are gone."""
        started = {job.id: job.started for job in view.running}
        waiting = {ask.id for ask in view.pending}
        for job, (made, wait) in list(self._open.items()):
            if job in started:
                if wait.high > self.grain:  # what starts at once is no test
                    self._misses.append(wait.miss(max(0.0, started[job] - made), self.grain))
                del self._open[job]
            elif job not in waiting:
                del self._open[job]

    @property
    def checked(self) -> int:
        """How many predictions came true or did not."""
        return len(self._misses)

    def wait(self, starts: Starts, now: float, unit: int = 0) -> PredictedWait:
        """A prediction whose bounds are as wide as they had to be lately."""
        raw = _raw(starts, now, unit)
        if raw.high <= 0 or raw.median == inf:
            return PredictedWait(raw.median, raw.low, max(raw.high, self.grain))
        guess = [NormalDist().inv_cdf((at + 0.5) / _GUESSES) / _TENTH for at in range(_GUESSES)]
        misses = sorted((*self._misses, *guess))
        middle = log(raw.median + self.grain)
        bounds = []
        for level, bound in ((0.1, raw.low), (0.9, raw.high)):
            width = max(abs(log(bound + self.grain) - middle), _FLOOR) if bound < inf else inf
            bounds.append(exp(middle + _quantile(misses, level) * width) - self.grain if width < inf else inf)
        low, high = max(0.0, bounds[0]), max(bounds[1], 0.0)
        return PredictedWait(min(max(raw.median, low), high), low, high)


def _raw(starts: Starts, now: float, unit: int = 0) -> PredictedWait:
    low, high = starts.interval(unit)
    return PredictedWait(*(max(0.0, time - now) for time in (starts.at(0.5, unit), low, high)))


def _quantile(ordered: list[float], level: float) -> float:
    place = level * (len(ordered) - 1)
    at = min(int(place), len(ordered) - 2)
    return ordered[at] + (place - at) * (ordered[at + 1] - ordered[at])
