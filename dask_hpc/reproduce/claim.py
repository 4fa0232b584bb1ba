"""What a source claims beside what we get, and when the two count as the same."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, nan
from typing import Any, TypeVar

import numpy as np

from dask_hpc.policy import Policy
from dask_hpc.reproduce.band import Band
from dask_hpc.simulator import Platform, Workload, study
from dask_hpc.simulator.study import mean_and_half_width


@dataclass(frozen=True, slots=True)
class Claim:
    """One published statement.

    ``published`` is a number, or words where the source gives none. ``low`` to ``high`` is the band in
    which ours counts as reproduced. It follows from how the source states its value, never from what we
    got: the note says how.
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

    @property
    def reached(self) -> bool:
        """Whether ours (the mean, where something is random) lies in the band."""
        slack = 1e-9 * max(1.0, abs(self.ours))  # a rounding error is no miss
        if self.direction and isfinite(self.half_width):
            slack -= self.half_width
        return self.low - slack <= self.ours <= self.high + slack


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

    claims: tuple[Claim, ...]
    #: what we put where the source is silent
    assumptions: tuple[str, ...]
    beside: tuple[Figure, ...] = ()


@dataclass(frozen=True, slots=True)
class Measured:
    """A mean, and half of its 95 % interval."""

    mean: float
    half_width: float = nan

    @property
    def negative(self) -> "Measured":
        """A change as a reduction."""
        return Measured(-self.mean, self.half_width)


def claim(
    text: str,
    published: float | str,
    ours: float | Measured,
    band: Band,
    unit: str = "",
    note: str = "",
    scale: Callable[[float], float] = float,
) -> Claim:
    """A claim from what was measured; ``scale`` turns it into the published unit."""
    if isinstance(ours, Measured):
        half_width = abs(scale(ours.half_width))
        return Claim(text, published, scale(ours.mean), *band, unit, half_width, note)
    return Claim(text, published, scale(float(ours)), *band, unit, nan, note)


def figure(text: str, ours: Measured, unit: str = "", scale: float = 1.0) -> Figure:
    """A figure of ours from what was measured."""
    return Figure(text, ours.mean * scale, unit, ours.half_width * scale)


def direction(text: str, published: str, ours: Measured, band: Band, unit: str = "%") -> Claim:
    """A direction, and nothing more, is published: our whole interval must lie on that side."""
    note = "a direction only: our whole interval must lie on that side"
    return Claim(text, published, ours.mean, *band, unit, ours.half_width, note, direction=True)


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
        if self.client is None:
            found = []
            for one in arguments:
                found.append(function(*one))
                self._one_more()
            return found
        futures = [self.client.submit(function, *one, pure=False) for one in arguments]
        answers = []
        for future in futures:
            answers.append(future.result())
            self._one_more()
        return answers

    def _one_more(self) -> None:
        self._done += 1
        if self.progress is not None:
            self.progress(self._done)


def mean(values: np.ndarray) -> Measured:
    """Over the seeds."""
    return Measured(*mean_and_half_width(np.asarray(values, float)))


def change(ours: np.ndarray, baseline: np.ndarray) -> Measured:
    """The relative change against a baseline, in per cent, seed by seed and then averaged."""
    return mean(100.0 * (np.asarray(ours, float) / np.asarray(baseline, float) - 1.0))
