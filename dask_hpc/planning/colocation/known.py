"""What is known of kinds beside others, from runs that were measured, counters, or a word of somebody.

Three ways to say how much slower a task is beside others: by what each of these costs it (*pairs*, and where
a pair was never measured, the law of ``law.py``), by a linear model, or by a network of what counters say.
Which one is best is tried on runs that are held out, if there are enough of them. What was measured exactly
so is not predicted.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean
from typing import Any, Protocol

import numpy as np

from dask_hpc.model.errors import InputError, insist, is_number, shown
from dask_hpc.model.interference import ClassAverages, TaskKind
from dask_hpc.model.units import counted
from dask_hpc.planning.colocation.features import columns_of, features, richest_set
from dask_hpc.planning.colocation.law import InterferenceLaw, weight_of
from dask_hpc.planning.colocation.linear import LinearPredictor
from dask_hpc.planning.colocation.metrics import Predictor, divided, mpe
from dask_hpc.planning.colocation.network import NetworkPredictor

_SPLITS = 20
_LEAST = 10  # runs: with fewer, nothing is compared
_LEAST_FEATURES = 30  # runs, from which on models of features are tried
_SETS = "CDEF"  # what says nothing of the others is of no use here


@dataclass(frozen=True, slots=True)
class RunBeside:
    """A task of a kind took so long beside so many of others."""

    kind: str
    others: Mapping[str, int]
    seconds: float


class Slower(Protocol):
    """A way to say how much slower a task is."""

    def slowdown(self, kind: str, others: Mapping[str, int]) -> float:
        """How many times as long it takes as alone; 1 or more."""


@dataclass(frozen=True, slots=True)
class PairsAndLaw:
    """Each task beside costs a task of some kind so much; of pairs that nobody measured, a law says it. Of
    kinds with neither counters nor a class, what tasks cost others on the average of all runs stands for it.
    """

    #: what a task of the second kind adds to the slowdown of one of the first
    excess: Mapping[tuple[str, str], float]
    weights: Mapping[str, float]
    law: InterferenceLaw
    #: the mean of all runs; None: there were none
    typical: float | None = None

    @classmethod
    def fit(cls, kinds: Mapping[str, TaskKind], runs: Sequence[RunBeside]) -> "PairsAndLaw":
        """Least squares, kind by kind; nobody makes another faster. The strength of the law is that of these
        runs, too, if they say something of it."""
        excess: dict[tuple[str, str], float] = {}
        for name, kind in kinds.items():
            own = [run for run in runs if run.kind == name]
            beside = sorted({other for run in own for other in run.others})
            if beside:
                counts = np.array([[run.others.get(other, 0) for other in beside] for run in own], float)
                more = np.array([run.seconds / kind.seconds - 1 for run in own])
                found, *_ = np.linalg.lstsq(counts, more, rcond=None)
                excess |= {
                    (name, other): max(0.0, float(one)) for other, one in zip(beside, found, strict=True)
                }
        averages = ClassAverages.of(kinds.values())
        uses = {name: averages.use(kind).intensity for name, kind in kinds.items()}
        weights = {name: weight_of(intensity) for name, intensity in uses.items() if intensity is not None}
        each = [(run.seconds / kinds[run.kind].seconds - 1) / sum(run.others.values()) for run in runs]
        typical = max(0.0, fmean(each)) if each else None
        return cls(excess, weights, _law_of(kinds, runs, weights), typical)

    def strange(self, kinds: Iterable[str]) -> list[tuple[str, str]]:
        """Pairs of which neither a run nor the law says anything."""
        names = list(kinds)
        pairs = ((one, other) for one in names for other in names)
        return [pair for pair in pairs if pair not in self.excess and not self._has_weights(*pair)]

    def lawful(self, kinds: Iterable[str]) -> list[tuple[str, str]]:
        """Pairs of which only the law says something."""
        names = list(kinds)
        pairs = ((one, other) for one in names for other in names)
        return [pair for pair in pairs if pair not in self.excess and self._has_weights(*pair)]

    def _has_weights(self, one: str, other: str) -> bool:
        return one in self.weights and other in self.weights

    def slowdown(self, kind: str, others: Mapping[str, int]) -> float:
        """1, what each of the others costs, and of the rest what the law or the mean of all says."""
        more = 0.0
        rest: dict[str, int] = {}
        for other, count in others.items():
            if (kind, other) in self.excess:
                more += self.excess[kind, other] * count
            elif self._has_weights(kind, other):
                rest[other] = count
            else:
                more += (self.typical or 0.0) * count
        return more + (self.law.of_kinds(self.weights, kind, rest) if rest else 1.0)


def _law_of(
    kinds: Mapping[str, TaskKind], runs: Iterable[RunBeside], weights: Mapping[str, float]
) -> InterferenceLaw:
    """With the strength that these runs have, if they say something of it."""
    unit = InterferenceLaw(strength=1.0)
    usable = [run for run in runs if {run.kind, *run.others} <= weights.keys()]
    shape = np.array([unit.of_kinds(weights, run.kind, run.others) - 1 for run in usable])
    more = np.array([run.seconds / kinds[run.kind].seconds - 1 for run in usable])
    if not (shape > 1e-3).any():
        return InterferenceLaw()
    return InterferenceLaw(max(0.0, float(shape @ more / (shape @ shape))))


@dataclass(frozen=True, slots=True)
class ByFeatures:
    """A predictor of seconds, of what is known of kinds by counters and classes."""

    kinds: Mapping[str, TaskKind]
    averages: ClassAverages
    name: str
    predictor: Predictor

    @classmethod
    def fit(
        cls,
        kinds: Mapping[str, TaskKind],
        runs: Sequence[RunBeside],
        learn: Callable[[np.ndarray, np.ndarray], Predictor],
    ) -> "ByFeatures":
        """With the richest set of features that is known of all of them."""
        averages = ClassAverages.of(kinds.values())
        rows = np.array([_row(kinds, run.kind, run.others, averages) for run in runs])
        name = richest_set(rows)
        seconds = np.array([run.seconds for run in runs])
        return cls(kinds, averages, name, learn(columns_of(rows, name), seconds))

    def slowdown(self, kind: str, others: Mapping[str, int]) -> float:
        """What is predicted, over the time alone; never less than 1."""
        row = np.array(_row(self.kinds, kind, others, self.averages))
        seconds = float(self.predictor.predict(columns_of(row, self.name))[0])
        return max(1.0, seconds / self.kinds[kind].seconds)


def _row(
    kinds: Mapping[str, TaskKind], kind: str, others: Mapping[str, int], averages: ClassAverages
) -> tuple[float, ...]:
    beside = [kinds[other] for other, count in others.items() for _ in range(count)]
    return features(kinds[kind], beside, averages)


@dataclass(frozen=True, slots=True)
class KnownInterference:
    """How much slower tasks of these kinds are beside each other, and how that is known."""

    kinds: Mapping[str, TaskKind]
    runs: tuple[RunBeside, ...]
    way: Slower
    #: mean error on runs that were held out, by way, in per cent; empty: nothing was compared
    errors: Mapping[str, float]
    chosen: str
    _measured: Mapping[tuple[str, frozenset[tuple[str, int]]], float] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        kinds: Iterable[TaskKind],
        runs: Iterable[RunBeside] = (),
        rng: Any = None,
        progress: Callable[[int], None] | None = None,
    ) -> "KnownInterference":
        """From kinds, and runs beside others. With a numpy generator, ways to predict are compared on runs
        held out, if there are ten or more (of features: 30); ``progress`` is told how many of 20 splits are
        done."""
        table = {kind.name: kind for kind in kinds}
        given = tuple(_checked(table, run) for run in runs)
        pairs = PairsAndLaw.fit(table, given)
        if pairs.typical is None and (strange := pairs.strange(table)):
            one, other = strange[0]
            found = f"nothing says how {shown(one)} runs beside {shown(other)}"
            raise InputError("kinds", found, "a run beside others, or counters or mem_class of both")
        ways = _ways(table, given, rng)
        errors = _compared(table, given, ways, rng, progress)
        chosen = min(errors, key=errors.__getitem__) if errors else "pairs"
        way = ways[chosen](given) if chosen != "pairs" else pairs
        return cls(table, given, way, errors, chosen, _means(table, given))

    def slowdown(self, kind: str, others: Mapping[str, int]) -> float:
        """How many times as long a task takes beside others as alone; as measured, if just that was."""
        for name in (kind, *others):
            if name not in self.kinds:
                raise InputError("kind", f"found {shown(name)}", ", ".join(self.kinds))
        there = {name: count for name, count in others.items() if count}
        if not there:
            return 1.0
        measured = self._measured.get((kind, frozenset(there.items())))
        return max(1.0, self.way.slowdown(kind, there) if measured is None else measured)

    @property
    def assumed(self) -> list[tuple[str, str]]:
        """Pairs of which only the law says something."""
        return self.way.lawful(self.kinds) if isinstance(self.way, PairsAndLaw) else []

    @property
    def basis(self) -> str:
        """What the predictions rest on, for a person."""
        words = f"{counted(len(self.runs), 'run')} beside others" if self.runs else "no run beside others"
        if isinstance(self.way, ByFeatures):
            words += f", and the {self.chosen} of them with the features of set {self.way.name}"
        elif isinstance(self.way, PairsAndLaw):
            words += self._of_pairs(self.way)
        if self.errors:
            others = ", ".join(
                f"{name} {error:.1f} %" for name, error in self.errors.items() if name != self.chosen
            )
            words += f"; {self.errors[self.chosen]:.1f} % off on average on runs held out"
            words += f" ({others})" if others else ""
        return words

    def _of_pairs(self, way: PairsAndLaw) -> str:
        words = ""
        if by_law := len(way.lawful(self.kinds)):
            of = "all pairs" if by_law == len(self.kinds) ** 2 else counted(by_law, "pair")
            how = "fitted" if self.runs and way.law != InterferenceLaw() else "assumed"
            words += (
                f"; of {of} a law, 1 + {way.law.strength:.2g} m (sum of m beside) ** {way.law.power:g}, "
                f"m by misses per instruction, its strength {how}: measure some to be sure"
            )
        if strange := len(way.strange(self.kinds)):
            words += f"; of {counted(strange, 'pair')} nothing but the mean of all runs"
        return words


def _checked(kinds: Mapping[str, TaskKind], run: RunBeside) -> RunBeside:
    for name in (run.kind, *run.others):
        if name not in kinds:
            raise InputError(
                "beside", f"found {shown(name)}, of which no run alone is known", ", ".join(kinds)
            )
    fine = is_number(run.seconds, 0, 1e15) and run.seconds > 0
    insist(fine, "seconds", run.seconds, "more than 0 seconds")
    for name, count in run.others.items():
        fine = isinstance(count, int) and not isinstance(count, bool) and count >= 1
        insist(fine, f"beside: {name}", count, "a whole number, 1 or more")
    insist(bool(run.others), "beside", run.others, "one task or more")
    return run


def _means(
    kinds: Mapping[str, TaskKind], runs: Iterable[RunBeside]
) -> dict[tuple[str, frozenset[tuple[str, int]]], float]:
    found: dict[tuple[str, frozenset[tuple[str, int]]], list[float]] = {}
    for run in runs:
        key = run.kind, frozenset(run.others.items())
        found.setdefault(key, []).append(run.seconds / kinds[run.kind].seconds)
    return {key: fmean(values) for key, values in found.items()}


def _ways(
    kinds: Mapping[str, TaskKind], runs: Sequence[RunBeside], rng: Any
) -> Mapping[str, Callable[[Sequence[RunBeside]], Slower]]:
    """What can be learned from so many runs."""
    ways: dict[str, Callable[[Sequence[RunBeside]], Slower]] = {"pairs": partial(PairsAndLaw.fit, kinds)}
    averages = ClassAverages.of(kinds.values())
    if rng is not None and len(runs) >= _LEAST_FEATURES:
        rows = np.array([_row(kinds, run.kind, run.others, averages) for run in runs])
        everything = np.array([features(kind, list(kinds.values()), averages) for kind in kinds.values()])
        if richest_set(np.concatenate([rows, everything])) in _SETS:
            ways["linear model"] = partial(ByFeatures.fit, kinds, learn=LinearPredictor.fit)
            ways["network"] = partial(ByFeatures.fit, kinds, learn=partial(NetworkPredictor.fit, rng=rng))
    return ways


def _compared(
    kinds: Mapping[str, TaskKind],
    runs: Sequence[RunBeside],
    ways: Mapping[str, Callable[[Sequence[RunBeside]], Slower]],
    rng: Any,
    progress: Callable[[int], None] | None,
) -> dict[str, float]:
    """The mean error of each way on runs that it has not seen; the same splits for all."""
    if rng is None or len(runs) < _LEAST:
        return {}
    found: dict[str, list[float]] = {name: [] for name in ways}
    for split in range(_SPLITS):
        train, test = divided(rng.permutation(len(runs)))
        seen, unseen = [runs[place] for place in train], [runs[place] for place in test]
        actual = np.array([run.seconds for run in unseen])
        for name, learn in ways.items():
            way = learn(seen)
            predicted = [way.slowdown(run.kind, run.others) * kinds[run.kind].seconds for run in unseen]
            found[name].append(mpe(np.array(predicted), actual))
        if progress is not None:
            progress(split + 1)
    return {name: fmean(errors) for name, errors in found.items() if errors}
