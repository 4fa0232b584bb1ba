"""What past failures say of those to come, and which interval between commits they would have wanted.

Two laws are fitted to the gaps between failures by maximum likelihood: the exponential one, which formulas
for intervals take for granted, and Weibull's, whose shape says whether failures come in bursts (less than 1).
A last gap that nothing has ended counts for the time that it has lasted.

The best interval for these very gaps needs no law. In a gap of g seconds there is room for
floor((g - restart) / (work + commit)) commits, and only the work before the last of them is kept. With less
work between commits the number of them grows one by one, at the lengths (g - restart) / n - commit, and what
is kept is greatest at one of these: the k-th in falling order has just k commits in all. So sorting them is
an exact search.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import exp, expm1, floor, fsum, gamma, inf, isfinite, log, nan
from typing import Any

from dask_hpc.model.errors import InputError, insist, shown
from dask_hpc.model.units import counted, parse_quantity, show_duration
from dask_hpc.planning.interval.best import best_pattern
from dask_hpc.planning.interval.exact import efficiency
from dask_hpc.planning.interval.levels import Level, Pattern
from dask_hpc.planning.interval.single import daly, young

_LEAST = 3  # gaps: with fewer a shape is not told from chance
_SHAPES = (1e-2, 1e3)  # beyond the last one all gaps are alike
_HALVINGS = 200
_TELLING = 2.0  # of AIC: with less between them neither law is the better one
_MOST = 2_000_000  # lengths that are looked at


@dataclass(frozen=True, slots=True)
class FailureLaw:
    """A law of the gaps between failures, as fitted: exp(-(t / scale) ** shape) are longer than t."""

    name: str
    scale: float
    shape: float
    log_likelihood: float
    #: of Akaike: the less, the better
    aic: float
    #: Kolmogorov's: the largest difference of the law's distribution from that of the gaps
    distance: float

    @property
    def mean(self) -> float:
        """Seconds between failures."""
        return self.scale * gamma(1 + 1 / self.shape) if self.shape > 0.01 else inf


@dataclass(frozen=True, slots=True)
class Replayed:
    """An interval, and what would have been kept with it between the failures that there were."""

    name: str
    #: seconds of work between commits; inf: none at all
    work: float
    #: the share of the time of all gaps that is work and was not lost
    efficiency: float
    #: what is expected of it if failures come at random with the same mean; nan: nobody asked
    expected: float = nan


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureFit:
    """Laws of the gaps between failures, and intervals replayed over them."""

    gaps: tuple[float, ...]
    #: seconds since the last failure that none has ended
    open_gap: float
    #: failures that came at the time of another one, and are one with it
    at_once: int
    exponential: FailureLaw
    weibull: FailureLaw
    #: for one level of checkpoints: first what these gaps would have wanted; empty: no commit is known
    intervals: tuple[Replayed, ...] = ()
    reason: str = field(default="", repr=False)

    @property
    def mtbf(self) -> float:
        """Mean time between failures, in seconds."""
        return self.exponential.scale

    @property
    def better(self) -> FailureLaw:
        """The law with the least AIC."""
        return min(self.exponential, self.weibull, key=lambda law: law.aic)


def fit_failures(
    times: Iterable[Any], *, end: Any = None, commit: Any = None, restart: Any = None
) -> FailureFit:
    """Fit the laws of the failures that came at these ``times``, in seconds on any clock and in any order.

    Until ``end``, if it is said, no further one has come. With the time that a ``commit`` takes (and a
    ``restart``, as long as a commit unless said otherwise) the answer also has intervals between commits: the
    one that would have kept most work between these failures, our exact plan, Daly's and Young's.
    """
    moments = _moments(times)
    last = moments[-1] if end is None else _seconds("end", end)
    insist(last >= moments[-1], "end", end, f"not before the last failure, at {moments[-1]:g}")
    gaps = tuple(after - before for before, after in pairwise(moments) if after > before)
    if len(gaps) < _LEAST:
        found = f"{counted(len(gaps) + 1, 'failure')} at different times"
        raise InputError("times", found, f"{_LEAST + 1} or more")
    open_gap = last - moments[-1]
    exponential, weibull = _exponential(gaps, open_gap), _weibull(gaps, open_gap)
    intervals: tuple[Replayed, ...] = ()
    if commit is not None:
        seconds = _seconds("commit", commit)
        insist(seconds > 0, "commit", commit, "more than 0")
        again = seconds if restart is None else _seconds("restart", restart)
        insist(again >= 0, "restart", restart, "0 or more")
        intervals = _intervals(gaps, Level("", seconds, again, 1 / exponential.scale))
    elif restart is not None:
        raise InputError("restart", f"found {shown(restart)} and no commit", "a commit too")
    return FailureFit(
        gaps=gaps,
        open_gap=open_gap,
        at_once=len(moments) - len(gaps) - 1,
        exponential=exponential,
        weibull=weibull,
        intervals=intervals,
        reason=_reason(exponential, weibull, intervals),
    )


def _moments(times: Iterable[Any]) -> list[float]:
    if isinstance(times, str | bytes) or not isinstance(times, Iterable):
        raise InputError("times", f"found {shown(times)}", "a list of seconds")
    found = []
    for number, time in enumerate(times, 1):
        try:
            fine = not isinstance(time, str | bytes | bool) and isfinite(seconds := float(time))
        except (TypeError, ValueError, OverflowError):
            fine = False
        insist(fine and abs(seconds) <= 1e15, f"times: {number}", time, "seconds, finite")
        found.append(seconds)
    if not found:
        raise InputError("times", "no failure is there", f"{_LEAST + 1} or more")
    return sorted(found)


def _seconds(where: str, value: Any) -> float:
    try:
        seconds = parse_quantity(value, "s")
    except InputError as error:
        raise error.at(where) from None
    insist(isfinite(seconds), where, value, "a finite time")
    return seconds


def _exponential(gaps: Sequence[float], open_gap: float) -> FailureLaw:
    scale = (fsum(gaps) + open_gap) / len(gaps)
    return _law("exponential", scale, 1.0, 1, gaps, open_gap)


def _weibull(gaps: Sequence[float], open_gap: float) -> FailureLaw:
    """The derivative of the likelihood, with the best scale for each shape, falls with the shape; so its zero
    is found by halving. Lengths are shares of the longest, lest powers overflow."""
    longest = max(*gaps, open_gap)
    ended = [gap / longest for gap in gaps]
    every = [*ended, open_gap / longest] if open_gap else ended
    logs = [log(gap) for gap in every]
    mean_log = fsum(logs[: len(ended)]) / len(ended)

    def slope(shape: float) -> float:
        powers = [exp(shape * one) for one in logs]
        return (
            1 / shape + mean_log - fsum(p * one for p, one in zip(powers, logs, strict=True)) / fsum(powers)
        )

    low, high = _SHAPES
    if slope(high) > 0:
        raise InputError("times", "all gaps between failures are alike", "failures that vary")
    for _ in range(_HALVINGS):
        middle = (low * high) ** 0.5
        if not low < middle < high:
            break
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    shape = (low * high) ** 0.5
    scale = longest * (fsum(exp(shape * one) for one in logs) / len(ended)) ** (1 / shape)
    return _law("Weibull", scale, shape, 2, gaps, open_gap)


def _law(
    name: str, scale: float, shape: float, parameters: int, gaps: Sequence[float], open_gap: float
) -> FailureLaw:
    risks = fsum((gap / scale) ** shape for gap in (*gaps, open_gap))
    densities = fsum(log(shape / scale) + (shape - 1) * log(gap / scale) for gap in gaps)
    likelihood = densities - risks
    shares = [-expm1(-((gap / scale) ** shape)) for gap in sorted(gaps)]
    count = len(shares)
    distance = max(max(share - k / count, (k + 1) / count - share) for k, share in enumerate(shares))
    return FailureLaw(name, scale, shape, likelihood, 2 * parameters - 2 * likelihood, distance)


def kept(gaps: Iterable[float], work: float, commit: float, restart: float) -> float:
    """The share of these gaps that is work and is not lost, with so much work between commits."""
    total = fsum(gaps := tuple(gaps))
    if not isfinite(work) or not total:
        return 0.0
    # as the search has it: a commit that ends with the gap is just in time, however it is rounded
    room = [(gap - restart) / (work + commit) * (1 + 1e-12) for gap in gaps]
    return work * sum(floor(one) for one in room if one >= 1) / total


def best_interval(gaps: Sequence[float], commit: float, restart: float) -> float:
    """Seconds of work between commits that keep most of these gaps; inf if nothing can be kept of them."""
    rooms = [gap - restart for gap in gaps if gap - restart > commit]
    if not rooms:
        return inf
    # Of the time work / (work + commit) at most is kept, so what is shorter than some interval that is known
    # to be good by so much is no better.
    first = [young(commit, len(gaps) / fsum(gaps)), *(room / 2 - commit for room in rooms)]
    first = [work for work in first if work > 0] or [max(rooms) - commit]
    known = max(kept(gaps, work, commit, restart) for work in first[:100])
    least = commit * known / (1 - known)
    counts = [floor(room / (least + commit)) + 1 for room in rooms]
    if sum(counts) > _MOST:
        raise InputError("commit", f"{commit:g} s is too short for gaps so long", "a longer one")
    works = sorted(
        (
            room / n - commit
            for room, count in zip(rooms, counts, strict=True)
            for n in range(1, count + 1)
            if room / n > commit
        ),
        reverse=True,
    )
    return max((work * k, work) for k, work in enumerate(works, 1))[1]


def _intervals(gaps: Sequence[float], level: Level) -> tuple[Replayed, ...]:
    planned = best_pattern([level])
    works = {
        "these failures": best_interval(gaps, level.commit, level.restart),
        "this plan": planned.work if planned else inf,
        "Daly": daly(level.commit, level.failures),
        "Young": young(level.commit, level.failures),
    }
    return tuple(
        Replayed(
            name,
            work,
            kept(gaps, work, level.commit, level.restart),
            efficiency([level], Pattern(work), inf) if isfinite(work) else 0.0,
        )
        for name, work in works.items()
    )


def _reason(exponential: FailureLaw, weibull: FailureLaw, intervals: Sequence[Replayed]) -> str:
    """For a person: which law fits, and what the plan would have lost."""
    mean = f"a failure every {show_duration(exponential.scale)}"
    less = exponential.aic - weibull.aic
    if less <= _TELLING:
        text = f"{mean}, at random: a shape of {weibull.shape:.2f} fits no better"
    elif weibull.shape < 1:
        text = f"{mean}, in bursts: Weibull's law with shape {weibull.shape:.2f} fits better"
    else:
        text = f"{mean}, more regular than chance: Weibull's law with shape {weibull.shape:.2f} fits better"
    if not intervals:
        return text
    wanted, planned = intervals[0], intervals[1]
    if not wanted.efficiency:
        return f"{text}; no gap between them has room for a restart and a commit"
    lost = wanted.efficiency - planned.efficiency
    return (
        f"{text}; these failures would have wanted a commit every {show_duration(wanted.work)} of work, and "
        f"the plan's {show_duration(planned.work)} would have lost {100 * lost:.2g} % of the time to it"
    )
