"""A law from past runs: those that were done, and those that were cut off, which would have taken longer.

Candidates are fitted by maximum likelihood, cut runs included. Forty runs rarely tell a gamma law from a
Weibull one, so the answer is not one candidate but all that may be right, weighted by their AIC: what is
planned is good for each of them. Few runs say little; what cannot be said is said.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, isfinite, log, pi, sqrt
from typing import Any

import numpy as np

from dask_hpc.model.errors import InputError, is_number, shown
from dask_hpc.model.units import counted, show_duration
from dask_hpc.planning.reservation.law import (
    ContinuousLaw,
    EmpiricalLaw,
    Law,
    mixed,
    of_mean_and_std,
    read_time,
)

_LONGEST = 1e12
_FEW = 5  # runs: with fewer the spread is not believed
_LEAST_SPREAD = 0.15  # of the mean
_MANY = 50  # runs: from here on they may stand for themselves
_UNLIKELY = 0.02  # share of a candidate that is left out
_ALIKE = 1e-3  # spread, as a share of the mean, of runs that take the same time
_MORE = 0.1  # than the one time that is known


@dataclass(frozen=True, slots=True)
class FittedLaw:
    """A law, the runs that it is from, and what to know of it."""

    law: Law
    reason: str
    warnings: tuple[str, ...] = ()
    #: seconds, oldest first
    done: tuple[float, ...] = ()
    cut: tuple[float, ...] = ()


def read_runs(found: Iterable[Any], where: str = "runs") -> tuple[list[float], list[float]]:
    """Seconds of runs that were done and of those that were cut off, from numbers and texts: ``3600``,
    ``"1h"``, and ``">1h"`` for a run that was cut off then."""
    done: list[float] = []
    cut: list[float] = []
    for number, one in enumerate(found, 1):
        is_cut = isinstance(one, str) and one.strip().startswith(">")
        value = one.strip().removeprefix(">").strip() if isinstance(one, str) else one
        try:
            seconds = float(value)
        except (TypeError, ValueError):
            seconds = read_time(value, f"{where}: {number}")
        if isinstance(one, bool) or not (is_number(seconds, 0, _LONGEST) and seconds > 0):
            raise InputError(f"{where}: {number}", f"found {shown(one)}", "seconds, more than 0")
        (cut if is_cut else done).append(seconds)
    return done, cut


def fit_law(done: Sequence[float], cut: Sequence[float] = ()) -> FittedLaw:
    """The law of runs: ``done`` took so many seconds, ``cut`` would have taken more."""
    ended, longer = read_runs(done)[0], read_runs(cut)[0]
    if not ended:
        runs = f"found {counted(len(longer), 'run')}, all cut off" if longer else "found none"
        raise InputError("runs", runs, "at least one run that was done")
    runs = counted(len(ended), "run") + (f" and {len(longer)} that were cut off" if longer else "")
    alike = float(np.std(ended)) <= _ALIKE * float(np.mean(ended))
    if alike and max(ended) >= max(longer, default=0.0):
        law: Law = EmpiricalLaw.of([max(ended) * (1 + _MORE)])
        reason = f"{'all of ' if len(ended) > 1 else ''}{runs} took {show_duration(max(ended))}"
    elif alike or len(ended) < _FEW:
        law, reason = _of_few(ended, longer), f"lognormal, from {runs}"
    else:
        sample = _Sample(np.asarray(ended), np.asarray(longer))
        law = sample.best()
        reason = f"{law.name}, from {runs}"
    return FittedLaw(law, reason, tuple(_warnings(ended, longer)), tuple(ended), tuple(longer))


def _warnings(done: Sequence[float], cut: Sequence[float]) -> Iterator[str]:
    if len(done) < _FEW:
        yield f"{counted(len(done), 'run')} that ended: too few to know how long others may take"
    if len(cut) > len(done):
        yield f"more runs were cut off ({len(cut)}) than ended ({len(done)}): how long they take is a guess"


def _of_few(done: Sequence[float], cut: Sequence[float]) -> Law:
    """Lognormal, with a spread that few runs cannot show to be smaller."""
    seconds = [*done, *(max(one * (1 + _MORE), max(done)) for one in cut)]
    mean = float(np.mean(seconds))
    std = max(float(np.std(seconds, ddof=1)) if len(seconds) > 1 else 0.0, _LEAST_SPREAD * mean)
    return ContinuousLaw("lognormal", *of_mean_and_std("lognormal", mean, std))


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A law of some runs, and how well it explains them for what it costs (AIC)."""

    law: Law
    aic: float


def _of_lognormal(z: np.ndarray, sigma: float) -> Any:
    return -np.log(z * sigma) - np.log(z) ** 2 / (2 * sigma * sigma) - log(2 * pi) / 2


def _beyond_lognormal(z: np.ndarray, sigma: float) -> Any:
    from scipy.special import log_ndtr

    return log_ndtr(-np.log(z) / sigma)


def _of_gamma(z: np.ndarray, shape: float) -> Any:
    from scipy.special import gammaln

    return (shape - 1) * np.log(z) - z - gammaln(shape)


def _beyond_gamma(z: np.ndarray, shape: float) -> Any:
    from scipy.special import gammaincc

    return np.log(gammaincc(shape, z))


def _of_weibull(z: np.ndarray, shape: float) -> Any:
    return log(shape) + (shape - 1) * np.log(z) - z**shape


def _beyond_weibull(z: np.ndarray, shape: float) -> Any:
    return -(z**shape)


#: logarithms of a family's density, and of the probability of more
_LOGARITHMS: Mapping[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "lognormal": (_of_lognormal, _beyond_lognormal),
    "gamma": (_of_gamma, _beyond_gamma),
    "weibull": (_of_weibull, _beyond_weibull),
}


def _least(surprise: Callable[[np.ndarray], float], start: Any) -> Any:
    """Where a function of two numbers is least."""
    from scipy.optimize import minimize

    with np.errstate(all="ignore"):
        return minimize(surprise, start, method="Nelder-Mead", options={"xatol": 1e-5, "fatol": 1e-6}).x


#: of times that are alike, the spread of their logarithms
_LEAST_LOG = 1e-3
#: parameters, in units of the mean, that are out of this world
_LEAST_NUMBER = 1e-7
#: a law whose mean is so many times the longest run is made of nothing
_FAR = 10.0
_FITTED = ("exponential", "lognormal", "gamma", "weibull")
#: a normal law whose mean lies further below 0, in its standard deviations, is an exponential one
_DEEPEST = -3.0
#: the two ends of a uniform law fit the runs at hand too well: each counts twice
_ENDS = 4
_ODD = 1.36  # over the root of the number of runs: no distribution of theirs is so far from a law


@dataclass(frozen=True, slots=True)
class _Sample:
    """Runs that a law is wanted for."""

    done: np.ndarray
    cut: np.ndarray

    def best(self) -> Law:
        """All candidates that may be right, each as likely as its AIC makes it: a single one is right too
        rarely, and some are wrong in a dear way. Many runs that this does not describe stand for
        themselves."""
        begin = float(self.done.min()) * (1 - _MORE)
        candidates = [*self._candidates(0.0), *self._candidates(begin)]
        best = min(one.aic for one in candidates)
        shares = [(one.law, exp((best - one.aic) / 2)) for one in candidates]
        total = sum(share for _, share in shares)
        kept = [(law, share / total) for law, share in shares if share > _UNLIKELY * total]
        law = mixed(kept)
        if len(self.done) >= _MANY and self._distance(law) > _ODD / sqrt(len(self.done)):
            return self._as_they_are(law)
        return law

    def _candidates(self, begin: float) -> Iterator[_Candidate]:
        for family in _FITTED:
            if (fitted := self._fitted(family, begin)) is not None:
                yield fitted
        if not begin:
            yield from filter(None, (self._truncnormal(), self._uniform()))

    def _judged(self, law: Law, parameters: int) -> _Candidate | None:
        with np.errstate(all="ignore"):
            likelihood = float(np.sum(np.log(law.pdf(self.done))) + np.sum(np.log(law.sf(self.cut))))
        return _Candidate(law, 2 * parameters - 2 * likelihood) if isfinite(likelihood) else None

    def _fitted(self, family: str, begin: float) -> _Candidate | None:
        """By maximum likelihood, from ``begin`` on."""
        unit = float(np.mean(self.done)) - begin
        # of a run that was cut off before that, nothing is known
        done, cut = (self.done - begin) / unit, (self.cut[self.cut > begin] - begin) / unit
        shapes: tuple[float, ...] = ()
        if family == "exponential":
            scale = float(np.sum(done) + np.sum(cut)) / len(done)
        else:
            density, longer = _LOGARITHMS[family]
            spread = max(float(np.std(np.log(done))), _LEAST_LOG)
            shape = spread if family == "lognormal" else 1 / spread**2 if family == "gamma" else 1 / spread
            start = (shape, 1 / shape if family == "gamma" else 1.0)

            def surprise(of: np.ndarray) -> float:
                shape, scale = np.exp(of)
                seen = np.sum(density(done / scale, shape)) - len(done) * of[1]
                return -float(seen + np.sum(longer(cut / scale, shape)))

            shape, scale = map(float, np.exp(_least(surprise, np.log(start))))
            shapes = (shape,)
        if not all(_LEAST_NUMBER < one < 1 / _LEAST_NUMBER for one in (*shapes, scale)):
            return None
        law = ContinuousLaw(family, shapes, scale * unit, begin)
        longest = max(float(np.max(self.done)), float(np.max(self.cut, initial=0.0)))
        if shapes and law.mean > _FAR * longest:
            return None
        return self._judged(law, len(shapes) + 1 + bool(begin))

    def _truncnormal(self) -> _Candidate | None:
        from scipy.special import log_ndtr

        unit = float(np.mean(self.done))
        done, cut = self.done / unit, self.cut / unit

        def surprise(of: np.ndarray) -> float:
            mean, std = of[0], np.exp(of[1])
            inside = log_ndtr(mean / std)
            seen = np.sum(((done - mean) / std) ** 2) / 2 + len(done) * (of[1] + inside)
            return float(seen - np.sum(log_ndtr((mean - cut) / std) - inside))

        mean, logarithm = map(float, _least(surprise, [1.0, log(float(np.std(done)))]))
        if not (mean > _DEEPEST * exp(logarithm) and abs(logarithm) < -log(_LEAST_NUMBER)):
            return None
        return self._judged(ContinuousLaw("normal", (), exp(logarithm) * unit, mean * unit).given(0.0), 2)

    def _uniform(self) -> _Candidate | None:
        """Uniform up to the longest run; that one more run takes longer than n others has a probability of
        1 / (n + 1), and how much longer is what n runs say of the end of a uniform law: Pareto of shape n."""
        low, high, number = float(self.done.min()), float(self.done.max()), len(self.done)
        if np.any(self.cut >= high):
            return None
        begin = max(0.0, low - (high - low) / number)
        body = ContinuousLaw("uniform", (), high - begin, begin)
        found = self._judged(ContinuousLaw("uniform", (), high - low, low), _ENDS)
        law = mixed([(body, float(number)), (ContinuousLaw("pareto", (float(number),), high), 1.0)])
        return found and replace(found, law=law)

    def _survivors(self) -> tuple[np.ndarray, np.ndarray]:
        """Times of runs that were done, and the share of all runs that take longer than each (Kaplan and
        Meier's estimate)."""
        times, ends = np.unique(self.done, return_counts=True)
        everything = np.sort(np.concatenate([self.done, self.cut]))
        still_there = len(everything) - np.searchsorted(everything, times)
        return times, np.cumprod(1 - ends / still_there)

    def _distance(self, law: Law) -> float:
        """The greatest between the probabilities of a law and those seen (Kolmogorov and Smirnov)."""
        times, after = self._survivors()
        before = np.concatenate([[1.0], after[:-1]])
        told = np.asarray(law.sf(times))
        return float(max(np.max(np.abs(told - after)), np.max(np.abs(told - before))))

    def _as_they_are(self, law: Law) -> Law:
        """The runs, and beyond the longest of them what a law says of the tail."""
        times, after = self._survivors()
        seen = EmpiricalLaw.of(times, -np.diff(after, prepend=1.0))
        beyond = max(float(after[-1]), 1 / (len(self.done) + 1))
        longest = float(times[-1])
        tail = law if law.high > longest and law.sf(longest) > 0 else ContinuousLaw("pareto", (3.0,), longest)
        return mixed([(seen, 1 - beyond), (tail.given(longest), beyond)])
