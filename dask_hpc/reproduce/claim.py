"""What a source claims beside what we get, and when the two count as the same."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, isfinite, nan
from typing import Any, TypeVar

import numpy as np

from dask_hpc.policy import Policy
from dask_hpc.simulator import Platform, Workload, study
from dask_hpc.simulator.comparison import mean_and_half_width

#: in which a figure of ours counts as reproduced: from how a source states its value
Band = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Claim:
    """One published statement.

    ``published`` is a number, or words where the source gives none. ``low`` to ``high`` is the band in
    which ours counts as reproduced. It follows from how the source states its value, never from what we
    got: the note says how. What agrees because something was fitted to it, or because what is compared is
    what we put in, says so: ``by_construction``.
    """

    claim: str
    published: float | str
    ours: float
    low: float
    high: float
    unit: str = ""
    #: half of our 95 % interval; nan if nothing is random
    half_width: float = nan
    note: str = ""
    #: a mere direction: the whole interval must lie in the band, not only the mean
    direction: bool = False
    #: why agreement shows nothing: what was fitted to this, picked for it, or typed in; empty: it was not
    by_construction: str = ""

    @property
    def is_strict(self) -> bool:
        """Whether the band is one side of zero: then nothing has changed at zero, and a tie is no gain."""
        return (self.low == 0 and self.high == inf) or (self.high == 0 and self.low < 0)

    @property
    def reached(self) -> bool:
        """Whether ours (the mean, where something is random) lies in the band."""
        slack = 1e-9 * max(1.0, abs(self.ours))  # a rounding error is no miss, and no gain
        reach = self.half_width if self.direction and isfinite(self.half_width) else 0.0
        least, most = self.ours - reach, self.ours + reach
        if self.is_strict and not (least > slack or most < -slack):
            return False
        return self.low - slack <= least and most <= self.high + slack


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of ours that no source claims: another baseline, another assumption, our own policy."""

    figure: str
    ours: float
    unit: str = ""
    half_width: float = nan
    note: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one experiment."""

    claims: Sequence[Claim]
    beside: Sequence[Figure] = ()
    #: what we put where the source is silent
    assumptions: Sequence[str] = ()

    @property
    def tally(self) -> "ClaimCount":
        """How many claims were reached, of how many, and how many of them by construction."""
        return ClaimCount.of(self.claims)


@dataclass(frozen=True, slots=True)
class ClaimCount:
    """What came of many claims."""

    reached: int = 0
    claims: int = 0
    #: of those that were reached
    by_construction: int = 0

    @classmethod
    def of(cls, claims: Iterable[Claim]) -> "ClaimCount":
        """Of these."""
        rows = list(claims)
        reached = [one for one in rows if one.reached]
        return cls(len(reached), len(rows), sum(bool(one.by_construction) for one in reached))

    def __add__(self, other: "ClaimCount") -> "ClaimCount":
        return ClaimCount(
            self.reached + other.reached,
            self.claims + other.claims,
            self.by_construction + other.by_construction,
        )

    def __str__(self) -> str:
        built = f", of which {self.by_construction} by construction"
        return f"reached {self.reached} of {self.claims}{built}"


#: one value, or one for each seed: then what counts is their mean, with its interval
Ours = float | np.ndarray


def _mean(ours: Ours) -> tuple[float, float]:
    """And half of its 95 % interval."""
    return mean_and_half_width(ours) if isinstance(ours, np.ndarray) else (float(ours), nan)


def claim(
    text: str,
    published: float | str,
    ours: Ours,
    band: Band,
    unit: str = "",
    note: str = "",
    by_construction: str = "",
) -> Claim:
    """A claim from what was measured, in the published unit."""
    mean, half_width = _mean(ours)
    low, high = map(float, band)
    return Claim(text, published, mean, low, high, unit, half_width, note, by_construction=by_construction)


def figure(text: str, ours: Ours, unit: str = "", note: str = "") -> Figure:
    """A figure of ours from what was measured."""
    mean, half_width = _mean(ours)
    return Figure(text, mean, unit, half_width, note)


def direction(
    text: str, published: str, ours: Ours, band: Band, unit: str = "%", by_construction: str = ""
) -> Claim:
    """A direction, and nothing more, is published: our whole interval must lie on that side."""
    note = "a direction only: our whole interval must lie on that side"
    return replace(claim(text, published, ours, band, unit, note, by_construction), direction=True)


def change(ours: np.ndarray, baseline: np.ndarray) -> np.ndarray:
    """The relative change against a baseline, in per cent, seed by seed."""
    return 100.0 * (np.asarray(ours, float) / np.asarray(baseline, float) - 1.0)


def rounded(value: float, unit: float = 1.0) -> Band:
    """A printed figure: whatever rounds to it, ``unit`` being the worth of its last digit."""
    return value - unit / 2, value + unit / 2


def exactly(value: float) -> Band:
    """A count, or a time in an example that gives every input."""
    return value, value


def around(value: float, by: float) -> Band:
    """``by`` either way."""
    return value - by, value + by


def at_least(value: float) -> Band:
    """A lower bound; of zero: more than nothing."""
    return value, inf


def at_most(value: float) -> Band:
    """An upper bound; of zero: less than nothing."""
    return -inf, value


T = TypeVar("T")
#: metric -> its values, one per seed
Columns = Mapping[str, np.ndarray]


@dataclass
class Bench:
    """``client`` is a Dask client or None, ``progress`` is told the number of simulations that are done."""

    seeds: int = 20
    client: Any = None
    progress: Callable[[int], None] | None = None
    _done: int = field(default=0, init=False)

    def study(
        self,
        workload: str | Workload,
        policies: Sequence[str | Policy],
        platform: Platform | None = None,
        malleable: float | None = None,
    ) -> dict[str, Columns]:
        """Every policy with every seed: its metrics by the policy's name."""
        before = self._done

        def tell(done: int, _: int) -> None:
            self._done = before + done
            if self.progress is not None:
                self.progress(self._done)

        found = study(
            workload,
            policies,
            seeds=self.seeds,
            platform=platform,
            malleable=malleable,
            client=self.client,
            progress=tell,
        )
        return {
            str(name): {metric: group[metric].to_numpy() for metric in group.columns if metric != "policy"}
            for name, group in found.runs.groupby("policy", sort=False)
        }

    def columns(self, function: Callable[[int], Mapping[str, float]]) -> dict[str, np.ndarray]:
        """A row of figures for each seed, as columns."""
        rows = self.each(function, [(seed,) for seed in range(self.seeds)])
        return {name: np.array([row[name] for row in rows]) for name in rows[0]}

    def each(self, function: Callable[..., T], arguments: Sequence[tuple[Any, ...]]) -> list[T]:
        """A pure function of each, for what ``study`` does not measure."""
        calls: Any = (partial(function, *one) for one in arguments)
        if self.client is not None:
            calls = [self.client.submit(function, *one, pure=False).result for one in arguments]
        answers = []
        for call in calls:
            answers.append(call())
            self._done += 1
            if self.progress is not None:
                self.progress(self._done)
        return answers
