"""What is known of how long a job takes: the laws of times that a plan of reservations is made for.

A law is read from words (``lognormal mean=21h std=20h max=80h``), fitted to past runs (``fit``), or is those
runs. Whatever it is, it may be cut: what is known after so many hours is the same law, given that it takes
longer. Means and moments of what is left are closed forms (seed 004, Table B.1), good far out in a tail.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import exp, inf, isfinite, log, sqrt
from typing import Any

import numpy as np

from dask_hpc.model.errors import InputError, insist, is_number, shown
from dask_hpc.model.safe_yaml import nearest
from dask_hpc.model.units import parse_quantity

#: seconds, or many of them
Times = Any


class Law(ABC):
    """The law of a time X in seconds. Functions take a number or an array."""

    __slots__ = ()

    #: what people call it
    name: str
    #: X lies from ``low`` to ``high``, which may be inf
    low: float
    high: float

    @abstractmethod
    def sf(self, t: Times) -> Any:
        """The probability of X > t."""

    @abstractmethod
    def pdf(self, t: Times) -> Any:
        """The density at t."""

    @abstractmethod
    def isf(self, q: Times) -> Any:
        """The least time that is exceeded with probability q at most."""

    @abstractmethod
    def quantile(self, q: Times) -> Any:
        """The least time within which the job ends with probability q at least."""

    @abstractmethod
    def moment(self, power: int, after: Times) -> Any:
        """The mean of X to the power of 1 or 2, given X > after; nan if that cannot be."""

    @abstractmethod
    def given(self, after: float) -> "Law":
        """The law of X given X > after."""

    @abstractmethod
    def until(self, longest: float) -> "Law":
        """The law of X given X <= longest."""

    def cdf(self, t: Times) -> Any:
        """The probability of X <= t."""
        return 1.0 - self.sf(t)

    @property
    def mean(self) -> float:
        """Of X."""
        return float(self.moment(1, -inf))

    @property
    def std(self) -> float:
        """Of X; inf if it has none."""
        mean, square = self.mean, float(self.moment(2, -inf))
        return inf if square == inf else sqrt(max(0.0, square - mean * mean))

    def conditional_mean(self, t: Times) -> Any:
        """The mean of X given X > t; t where nothing is longer."""
        found = self.moment(1, t)
        return np.where(np.isfinite(found) & (found > t), found, t)[()]


# -- families --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Family:
    """A family of laws, in a unit of its own: ``scale`` and ``shift`` make seconds of it."""

    #: in scipy.stats
    scipy: str
    #: names of the shapes, as a user writes them
    shapes: tuple[str, ...]
    #: the mean of Z to the power of k where Z > z, times the probability of that; of 0: this probability
    tail: Callable[..., Any]


def _exponential(k: int, z: Any) -> Any:
    return _gamma(k, z, 1.0)


def _gamma(k: int, z: Any, a: float) -> Any:
    from scipy.special import gammaincc, poch

    return poch(a, k) * gammaincc(a + k, np.maximum(z, 0.0))


def _weibull(k: int, z: Any, c: float) -> Any:
    from scipy.special import gamma, gammaincc

    return gamma(1 + k / c) * gammaincc(1 + k / c, np.maximum(z, 0.0) ** c)


def _lognormal(k: int, z: Any, sigma: float) -> Any:
    from scipy.special import ndtr

    with np.errstate(divide="ignore"):
        return np.exp(k * k * sigma * sigma / 2) * ndtr(k * sigma - np.log(np.maximum(z, 0.0)) / sigma)


def _normal(k: int, z: Any) -> Any:
    from scipy.special import ndtr

    z = np.asarray(z, float)
    if k == 0:
        return ndtr(-z)
    density = np.exp(-z * z / 2) / sqrt(2 * np.pi)
    if k == 1:
        return density
    return np.where(np.isfinite(z), z, 0.0) * density + ndtr(-z)


def _pareto(k: int, z: Any, a: float) -> Any:
    if a <= k:
        return np.full(np.shape(z), inf)[()]
    return a * np.maximum(z, 1.0) ** (k - a) / (a - k)


def _uniform(k: int, z: Any) -> Any:
    return (1 - np.clip(z, 0.0, 1.0) ** (k + 1)) / (k + 1)


def _beta(k: int, z: Any, a: float, b: float) -> Any:
    from scipy.special import betainc, poch

    return poch(a, k) / poch(a + b, k) * betainc(b, a + k, 1 - np.clip(z, 0.0, 1.0))


FAMILIES: Mapping[str, Family] = {
    "exponential": Family("expon", (), _exponential),
    "weibull": Family("weibull_min", ("shape",), _weibull),
    "gamma": Family("gamma", ("shape",), _gamma),
    "lognormal": Family("lognorm", ("sigma",), _lognormal),
    "normal": Family("norm", (), _normal),
    "pareto": Family("pareto", ("shape",), _pareto),
    "uniform": Family("uniform", (), _uniform),
    "beta": Family("beta", ("a", "b"), _beta),
}


@lru_cache(256)
def _frozen(family: str, shapes: tuple[float, ...]) -> Any:
    from scipy import stats

    return getattr(stats, FAMILIES[family].scipy)(*shapes)


#: a probability with too few digits left to divide by
_NEARLY_NONE = 1e-200


@dataclass(frozen=True, slots=True)
class ContinuousLaw(Law):
    """``shift + scale Z`` with Z of a family, given that it lies above ``above`` and not above ``below``."""

    family: str
    shapes: tuple[float, ...] = ()
    scale: float = 1.0
    shift: float = 0.0
    above: float = -inf
    below: float = inf

    @property
    def name(self) -> str:  # type: ignore[override]
        if self.family == "normal" and isfinite(self.above):
            return "truncnormal"
        return "boundedpareto" if self.family == "pareto" and isfinite(self.below) else self.family

    @property
    def low(self) -> float:  # type: ignore[override]
        return max(self.above, float(self.shift + self.scale * self._z.support()[0]))

    @property
    def high(self) -> float:  # type: ignore[override]
        return min(self.below, float(self.shift + self.scale * self._z.support()[1]))

    @property
    def _z(self) -> Any:
        return _frozen(self.family, self.shapes)

    def _at(self, t: Times) -> Any:
        with np.errstate(over="ignore"):
            return (np.asarray(t, float) - self.shift) / self.scale

    @property
    def _cut(self) -> tuple[float, float]:
        """The probabilities of the family to lie above each end."""
        above = float(self._tail(0, self._at(self.above))) if isfinite(self.above) else 1.0
        return above, float(self._tail(0, self._at(self.below))) if isfinite(self.below) else 0.0

    @np.errstate(over="ignore")  # far out, where all is 0
    def sf(self, t: Times) -> Any:
        above, below = self._cut
        return np.clip((self._tail(0, self._at(t)) - below) / (above - below), 0.0, 1.0)[()]

    @np.errstate(over="ignore")  # far out, where all is 0
    def pdf(self, t: Times) -> Any:
        above, below = self._cut
        t = np.asarray(t, float)
        inside = (t >= self.low) & (t <= self.high)
        return np.where(inside, self._z.pdf(self._at(t)) / (self.scale * (above - below)), 0.0)[()]

    def isf(self, q: Times) -> Any:
        above, below = self._cut
        found = self.shift + self.scale * self._z.isf(below + np.asarray(q, float) * (above - below))
        return np.clip(found, self.low, self.high)[()]

    def quantile(self, q: Times) -> Any:
        above, below = self._cut
        share = np.asarray(q, float) * (above - below)
        # near its begin a law that is not cut there keeps its digits
        z = self._z.ppf(share) if above == 1.0 else self._z.isf(above - share)
        return np.clip(self.shift + self.scale * z, self.low, self.high)[()]

    @np.errstate(over="ignore")  # far out, where all is 0
    def moment(self, power: int, after: Times) -> Any:
        low = np.maximum(np.asarray(after, float), self.above)
        start, end = self._at(low), self._at(self.below)
        parts = [self._tail(k, start) - self._tail(k, end) for k in range(power + 1)]
        mass, a, b = parts[0], self.shift, self.scale
        whole = (
            a * mass + b * parts[1] if power == 1 else a * a * mass + 2 * a * b * parts[1] + b * b * parts[2]
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(mass > 0, whole / mass, np.nan)[()]

    def _tail(self, k: int, z: Any) -> Any:
        found = FAMILIES[self.family].tail(k, z, *self.shapes)
        return np.where(np.asarray(z) == inf, 0.0, found)

    def given(self, after: float) -> "ContinuousLaw":
        self._insist_on(after, inf)
        return self if after <= self.low else replace(self, above=float(after))

    def until(self, longest: float) -> "ContinuousLaw":
        self._insist_on(-inf, longest)
        return self if longest >= self.high else replace(self, below=float(longest))

    def _insist_on(self, above: float, below: float) -> None:
        start, end = (
            float(self._tail(0, self._at(t))) for t in (max(above, self.above), min(below, self.below))
        )
        if not start - end > _NEARLY_NONE:
            raise InputError("law", f"{self} leaves nothing from {above:g} s to {below:g} s", "another cut")

    def __str__(self) -> str:
        """As ``read_law`` reads it, to the last digit."""
        shapes = zip(FAMILIES[self.family].shapes, self.shapes, strict=True)
        words = [self.family, *(f"{name}={value!r}" for name, value in shapes)]
        if self.family == "normal":
            words += [f"mean={self.shift!r}s", f"std={self.scale!r}s"]
        else:
            words += [f"scale={self.scale!r}s", *([f"shift={self.shift!r}s"] if self.shift else [])]
        words += [f"min={self.above!r}s"] if isfinite(self.above) else []
        words += [f"max={self.below!r}s"] if isfinite(self.below) else []
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class EmpiricalLaw(Law):
    """One of these times, each with its probability."""

    values: tuple[float, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in zip(self.values, self.values[1:], strict=False))
        fine = rising and len(self.values) == len(self.weights) > 0 and all(w > 0 for w in self.weights)
        insist(fine and isfinite(self.values[-1]), "law", self.values, "rising times, each with its weight")

    @classmethod
    def of(cls, times: Iterable[float], weights: Iterable[float] | None = None) -> "EmpiricalLaw":
        """Each of these, equally likely unless weights say otherwise."""
        found = np.asarray(list(times), float)
        share = np.ones(len(found)) if weights is None else np.asarray(list(weights), float)
        values, where = np.unique(found[share > 0], return_inverse=True)
        sums: np.ndarray = np.bincount(where, share[share > 0])
        total = float(sums.sum())
        # what sums up to 1 but for rounding stays as it is, to the last digit
        sums = sums if abs(total - 1) < 1e-12 else sums / total
        return cls(tuple(map(float, values)), tuple(map(float, sums)))

    @property
    def name(self) -> str:  # type: ignore[override]
        return "empirical"

    @property
    def low(self) -> float:  # type: ignore[override]
        return self.values[0]

    @property
    def high(self) -> float:  # type: ignore[override]
        return self.values[-1]

    @property
    def _above(self) -> np.ndarray:
        """The probability to lie above each value, and first above none."""
        tails = np.concatenate([np.cumsum(self.weights[::-1])[::-1], [0.0]])
        return tails / tails[0]

    def sf(self, t: Times) -> Any:
        return self._above[np.searchsorted(self.values, t, side="right")]

    def pdf(self, t: Times) -> Any:
        """There is none: all of it lies in single times."""
        return np.zeros(np.shape(t))[()]

    def isf(self, q: Times) -> Any:
        falling = self._above[1:]
        place = np.searchsorted(-falling, -np.asarray(q, float) - 1e-12)
        return np.asarray(self.values)[np.minimum(place, len(self.values) - 1)]

    def quantile(self, q: Times) -> Any:
        return self.isf(1.0 - np.asarray(q, float))

    def moment(self, power: int, after: Times) -> Any:
        values, weights = np.asarray(self.values), np.asarray(self.weights)
        sums = np.concatenate([np.cumsum((values**power * weights)[::-1])[::-1], [0.0]])
        mass = np.concatenate([np.cumsum(weights[::-1])[::-1], [0.0]])
        place = np.searchsorted(values, after, side="right")
        with np.errstate(divide="ignore", invalid="ignore"):
            return (sums[place] / mass[place])[()]

    def given(self, after: float) -> "EmpiricalLaw":
        return self._where(lambda value: value > after)

    def until(self, longest: float) -> "EmpiricalLaw":
        return self._where(lambda value: value <= longest)

    def _where(self, keep: Callable[[float], bool]) -> "EmpiricalLaw":
        kept = [(v, w) for v, w in zip(self.values, self.weights, strict=True) if keep(v)]
        if not kept:
            raise InputError("law", "nothing is left of the runs that are known", "another cut")
        return self if len(kept) == len(self.values) else EmpiricalLaw.of(*zip(*kept, strict=True))

    def __str__(self) -> str:
        """As ``read_law`` reads it, to the last digit."""
        each = (f"{v!r}s*{w!r}" for v, w in zip(self.values, self.weights, strict=True))
        return " ".join(["empirical", *each])


@dataclass(frozen=True, slots=True)
class MixtureLaw(Law):
    """One of several laws, each with its probability: what is not known is which."""

    parts: tuple[Law, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        fine = len(self.parts) == len(self.weights) > 0 and all(weight > 0 for weight in self.weights)
        insist(fine, "law", self.weights, "laws, each with a weight of more than 0")

    @property
    def name(self) -> str:  # type: ignore[override]
        return " or ".join(dict.fromkeys(part.name for part in self.parts))

    @property
    def low(self) -> float:  # type: ignore[override]
        return min(part.low for part in self.parts)

    @property
    def high(self) -> float:  # type: ignore[override]
        return max(part.high for part in self.parts)

    def _mean_of(self, each: Callable[[Law], Any]) -> Any:
        total = sum(self.weights)
        return sum(each(part) * (weight / total) for part, weight in self._pairs())

    def _pairs(self) -> Iterable[tuple[Law, float]]:
        return zip(self.parts, self.weights, strict=True)

    def sf(self, t: Times) -> Any:
        return np.clip(self._mean_of(lambda part: part.sf(t)), 0.0, 1.0)[()]

    def pdf(self, t: Times) -> Any:
        return self._mean_of(lambda part: part.pdf(t))

    def isf(self, q: Times) -> Any:
        ends = np.array([np.asarray(part.isf(q), float) for part in self.parts])
        return self._between(ends, lambda t: self.sf(t) <= q)

    def quantile(self, q: Times) -> Any:
        ends = np.array([np.asarray(part.quantile(q), float) for part in self.parts])
        return self._between(ends, lambda t: self.cdf(t) >= q)

    def _between(self, ends: np.ndarray, enough: Callable[[np.ndarray], Any]) -> Any:
        """The least times that are enough. The parts' own lie on both sides of them."""
        low, high = ends.min(axis=0), ends.max(axis=0)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            fine = enough(middle)
            low, high = np.where(fine, low, middle), np.where(fine, middle, high)
        return high[()]

    def moment(self, power: int, after: Times) -> Any:
        shares = [np.asarray(part.sf(after)) * weight for part, weight in self._pairs()]
        with np.errstate(divide="ignore", invalid="ignore"):
            parts = [
                np.where(share > 0, share * part.moment(power, after), 0.0)
                for part, share in zip(self.parts, shares, strict=True)
            ]
            return np.asarray(sum(parts) / sum(shares))[()]

    def given(self, after: float) -> Law:
        return self._cut(lambda part: float(part.sf(after)), lambda part: part.given(after))

    def until(self, longest: float) -> Law:
        return self._cut(lambda part: float(part.cdf(longest)), lambda part: part.until(longest))

    def _cut(self, left: Callable[[Law], float], cut: Callable[[Law], Law]) -> Law:
        shares = [(part, weight * left(part)) for part, weight in self._pairs()]
        kept = [(cut(part), share) for part, share in shares if share > 0]
        if not kept:
            raise InputError("law", f"{self.name} leaves nothing there", "another cut")
        return mixed(kept)

    def __str__(self) -> str:
        """As ``read_law`` reads it, to the last digit."""
        return _OR.join(f"{weight!r} * {part}" for part, weight in self._pairs())


def mixed(shares: Iterable[tuple[Law, float]]) -> Law:
    """One of these laws, as likely as its share says; mixtures among them are taken apart."""
    flat: list[tuple[Law, float]] = []
    for law, share in shares:
        if isinstance(law, MixtureLaw):
            whole = sum(law.weights)
            flat += [
                (part, share * weight / whole) for part, weight in zip(law.parts, law.weights, strict=True)
            ]
        elif share > 0:
            flat.append((law, share))
    total = sum(share for _, share in flat)
    if len(flat) == 1:
        return flat[0][0]
    return MixtureLaw(tuple(law for law, _ in flat), tuple(float(share / total) for _, share in flat))


_OR = " + "
_HALVINGS = 60


# -- from words ------------------------------------------------------------------------------------------

_CUT = ("shift", "min", "max")
_ALLOWED: Mapping[str, tuple[str, ...]] = {
    "exponential": ("mean", "scale"),
    "weibull": ("mean", "std", "shape", "scale"),
    "gamma": ("mean", "std", "shape", "scale"),
    "lognormal": ("mean", "std", "median", "sigma", "scale"),
    "normal": ("mean", "std"),
    "truncnormal": ("mean", "std"),
    "pareto": ("shape", "scale"),
    "boundedpareto": ("shape", "scale"),
    "uniform": ("scale",),
    "beta": ("a", "b", "scale"),
}
_PURE = ("shape", "sigma", "a", "b")  # numbers without a unit
_EXAMPLE = '"lognormal mean=21h std=20h max=80h"'


def read_law(found: Any) -> Law:
    """A law from words: the name of a family, and what it takes. ``mean`` and ``std`` are those of the whole
    family; ``min`` and ``max`` cut it, ``shift`` moves it."""
    if isinstance(found, Law):
        return found
    if isinstance(found, str) and _OR in found:
        return _read_mixture(found.split(_OR))
    words = found.split() if isinstance(found, str) else []
    if not words:
        raise InputError("law", f"found {shown(found)}", f"words such as {_EXAMPLE}")
    family = words[0].lower()
    if family == "empirical":
        return _read_empirical(words[1:])
    if family not in _ALLOWED:
        known = (*_ALLOWED, "empirical")
        raise InputError("law", f"found {shown(words[0])}{nearest(family, known)}", ", ".join(known))
    given: dict[str, float] = {}
    known = (*_ALLOWED[family], *_CUT)
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if not equals or key not in known:
            raise InputError("law", f"found {shown(word)} of {family}", " ".join(f"{one}=" for one in known))
        if key in given:
            raise InputError(f"law: {key}", "is said twice", "once")
        given[key] = _number(f"law: {key}", value) if key in _PURE else read_time(value, f"law: {key}")
    return _law(family, given)


def read_time(value: Any, where: str) -> float:
    """Seconds, finite; in a text only with a unit, unless it is 0."""
    seconds = parse_quantity(value, "s", where)
    insist(isfinite(seconds), where, value, "a finite time")
    if isinstance(value, str) and seconds and re.fullmatch(r"[\d.eE+-]+", value.strip()):
        raise InputError(where, f"found {shown(value)} without a unit", f'"{value.strip()}h" or "...min"')
    return seconds


def _number(where: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    insist(0 < value < inf, where, text, "a number, more than 0")
    return value


def _read_empirical(words: Sequence[str]) -> Law:
    pairs = [(read_time(time, "law"), _number("law", weight or "1")) for time, _, weight in
             (word.partition("*") for word in words)]  # fmt: skip
    insist(bool(pairs), "law", "empirical", "empirical 1h 2h 2.5h*3")
    return EmpiricalLaw.of(*zip(*pairs, strict=True))


def _read_mixture(texts: Sequence[str]) -> Law:
    shares = []
    for text in texts:
        weight, star, law = text.partition(" * ")
        insist(bool(star), "law", text, "a weight and a law: 0.9 * uniform min=1h max=2h + 0.1 * ...")
        shares.append((read_law(law), _number("law: weight", weight.strip())))
    return MixtureLaw(tuple(law for law, _ in shares), tuple(weight for _, weight in shares))


def _law(family: str, given: Mapping[str, float]) -> Law:
    """From what was said, in seconds."""
    above, below, shift = given.get("min", -inf), given.get("max", inf), given.get("shift", 0.0)
    if not above < below:
        raise InputError("law", f"found min={above:g} s and max={below:g} s", "min less than max")
    if family == "truncnormal":
        family, above = "normal", max(above, 0.0)
    if family in ("pareto", "boundedpareto"):
        family = "pareto"
        if "scale" not in given:
            _insist_given(family, given, "min")
            given, above = {**given, "scale": above}, -inf
    if family in ("uniform", "beta") and "scale" not in given:
        _insist_given(family, given, "max")
        shift = max(above, 0.0)
        given, above, below = {**given, "scale": below - shift}, -inf, inf
    shapes, scale = _shapes(family, given)
    insist(is_number(scale, 1e-9, 1e15), "law", f"a scale of {scale:g} s", "times that a job can take")
    law = ContinuousLaw(family, shapes, scale, given["mean"] if family == "normal" else shift)
    return law.given(above).until(below)


def _insist_given(family: str, given: Mapping[str, float], *keys: str) -> None:
    for key in keys:
        if key not in given:
            raise InputError(f"law: {key}", f"is missing for {family}", " ".join(f"{one}=" for one in keys))


def _shapes(family: str, given: Mapping[str, float]) -> tuple[tuple[float, ...], float]:
    """The shapes and the scale."""
    own = FAMILIES[family].shapes
    if family == "lognormal" and "median" in given:
        given = {**given, "scale": given["median"]}
    if family == "exponential" and "mean" in given:
        given = {**given, "scale": given["mean"]}
    if family == "normal":
        _insist_given(family, given, "mean", "std")
        return (), given["std"]
    if "scale" in given:
        _insist_given(family, given, *own)
        return tuple(given[name] for name in own), given["scale"]
    if family not in ("lognormal", "gamma", "weibull"):
        _insist_given(family, given, *own, "scale")
    _insist_given(family, given, "mean", "std")
    return of_mean_and_std(family, given["mean"], given["std"])


def of_mean_and_std(family: str, mean: float, std: float) -> tuple[tuple[float, ...], float]:
    """The shape and scale of a lognormal, gamma or weibull law."""
    insist(mean > 0 and std > 0, "law", f"mean={mean:g} s std={std:g} s", "both more than 0")
    ratio = std / mean
    if family == "lognormal":
        sigma = sqrt(log(1 + ratio * ratio))
        return (sigma,), mean * exp(-sigma * sigma / 2)
    if family == "gamma":
        return (1 / ratio**2,), mean * ratio**2
    from scipy.optimize import brentq
    from scipy.special import gammaln

    def square(shape: float) -> float:
        return float(gammaln(1 + 2 / shape) - 2 * gammaln(1 + 1 / shape)) - log(1 + ratio * ratio)

    shape = float(brentq(square, 0.05, 1e4)) if square(0.05) > 0 > square(1e4) else 0.0
    insist(shape > 0, "law", f"std={std:g} s", "from 0.02 % of the mean to some million times of it")
    return (shape,), mean / exp(float(gammaln(1 + 1 / shape)))
