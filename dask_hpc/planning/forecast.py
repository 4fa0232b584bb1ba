"""What power will do over the coming horizon, and how sure that is.

Several models run along with the samples; the one that was best lately answers (seed 000, 2.12: the
lowest MAPE on recent data; only the least and the most over the horizon are used). The seed gives no
interval; ours is calibrated on the errors that the models made on samples they had not seen.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import floor, inf, isfinite
from typing import Any

import numpy as np

from dask_hpc.model.errors import InputError, insist, is_number
from dask_hpc.model.power import PowerRange
from dask_hpc.planning.forecast_models import MODELS, Array, LinearModel, Unfit, fit, season_length


class TrackRecord:
    """Every value is compared with what the model said of it one, two, ... ``horizon`` steps before.

    All tables are rings: the row of a value is its place in the series modulo the length of the table.
    """

    def __init__(self, model: LinearModel, horizon: int, memory: int, lately: int) -> None:
        self._steps = np.arange(horizon)
        self._said = np.full((horizon, horizon), np.nan)
        #: value less forecast; a row for each of the newest values, a column for each step of the horizon
        self.errors = np.full((memory, horizon), np.nan)
        #: the least of ``horizon`` values less the least forecast of them, and the same of the most
        self.extremes = np.full((2, memory, 1), np.nan)
        #: the absolute errors as a share of the value, averaged over the steps; of fewer values
        self.shares = np.full(lately, np.nan)
        self.take(model)

    def take(self, model: LinearModel) -> None:
        """The model is fitted anew: another one, with the same past."""
        self.model = model
        self._ahead = model.ahead(len(self._steps))
        self.path: Array = self._ahead @ model.state

    @property
    def known(self) -> int:
        """How many errors are known at every step of the horizon."""
        return int(np.count_nonzero(np.isfinite(self.errors[:, -1])))

    def see(self, place: int, value: float, least: float, most: float, floor: float) -> None:
        """The next value; ``least`` and ``most`` of the newest ``horizon`` ones, itself included.
        Shares are taken of no less than ``floor``."""
        horizon = len(self._steps)
        row = place % len(self.errors)
        origins = (place - 1 - self._steps) % horizon
        errors = value - self._said[origins, self._steps]
        self.errors[row] = errors
        known = errors[~np.isnan(errors)]
        share = np.abs(known).mean() / max(abs(value), floor) if len(known) else np.nan
        self.shares[place % len(self.shares)] = share
        whole = self._said[place % horizon]
        self.extremes[:, row, 0] = least - whole.min(), most - whole.max()
        self.model = self.model.after(value)
        self.path = self._ahead @ self.model.state
        self._said[place % horizon] = self.path


_PACE = 0.01  # how far one miss moves the share of errors that are left out


class Edge:
    """The lower (``sign`` -1) or the upper edge (+1) of intervals, one per column of errors.

    Conformal prediction: the edge is an empirical quantile of errors made before. It is adaptive (Gibbs
    and Candes 2021, "Adaptive conformal inference under distribution shift"): each miss makes the share of
    errors that are left out smaller, and hits bring it back, so that the promise holds even if the series
    changes. Ours leaves out more than the promise allows only by as much as it left out less of the newest
    ``lately`` values: it grows narrow where errors were larger before than they are now, and is back at the
    promise once it missed what it had spared. With 0 it never leaves out more, or it would grow narrow
    between two rare steps and miss each of them. Where even the largest error was not enough, it widens in
    proportion.
    Errors of which ``overlap`` in a row are about the same values are that much fewer, and the quantile
    is taken further out for it.
    """

    def __init__(self, sign: int, columns: int, miss: float, overlap: float = 1.0, lately: int = 0) -> None:
        self._sign = sign
        self._miss = miss
        self._overlap = overlap
        self._share = np.full(columns, miss)
        #: how many misses fewer than promised there were: of each of the newest values, and together
        self._spared = np.zeros((lately, columns))
        self._spare = np.zeros(columns)
        self._learned = 0

    def offsets(self, errors: Array) -> Array:
        """What to add to forecasts: ``errors`` are those made lately (rows), NaN where there is none."""
        outward = np.sort(self._sign * errors, axis=0)  # NaN last
        count = np.count_nonzero(~np.isnan(outward), axis=0)
        rank = np.ceil((1 - np.maximum(self._share, 0.0)) * (count + self._overlap)).astype(int)
        columns = np.arange(errors.shape[1])
        edge = outward[np.clip(rank - 1, 0, np.maximum(count - 1, 0)), columns]
        short = np.maximum(-self._share, 0.0) / self._miss
        return self._sign * (edge + short * np.maximum(edge, 0.0))

    def learn(self, missed: Array, known: Array) -> None:
        """Whether values lay beyond this edge; ``known`` is where there was one."""
        spared = np.where(known, self._miss - missed, 0.0)
        most: Array | float = self._miss
        if lately := len(self._spared):
            row = self._learned % lately
            self._spare += spared - self._spared[row]
            self._spared[row] = spared
            self._learned += 1
            most = self._miss + np.maximum(self._spare, 0.0) / lately
        moved = self._share + _PACE * spared
        self._share = np.where(known, np.clip(moved, -self._miss, most), self._share)


_LATELY = 0.5  # of the window: so much of the past counts in a choice; of errors, all of it in an interval
_HELD_BACK = 2  # a model without a past is fitted to the older half, and its errors in the newer count
LEAST_ERRORS = 20  # at each step of the horizon, before an interval is dared
_FLOOR = 0.01  # of the mean: what a share of a smaller value is taken of, or zeros would rule MAPE
_NEW = "too few errors of it are known yet"
_GAP = 10  # missing samples in a row that are taken to have been like the last before them


@dataclass(frozen=True, slots=True)
class Forecast:
    """The coming steps, as one model sees them; step ``i`` is at ``time + (i + 1) * period``."""

    #: of the last sample it knows
    time: float
    period: float
    #: the share of values that are to be between ``lower`` and ``upper``, at each step
    level: float
    mean: tuple[float, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    #: what the least and the most of the whole horizon are to be within, at the same level
    range: PowerRange
    #: the model that answers, and the season it knows of, in steps
    model: str
    season: float | None
    #: mean absolute percentage errors lately, of each model in use
    mape: Mapping[str, float] = field(default_factory=dict)
    #: models not in use, and why
    dropped: Mapping[str, str] = field(default_factory=dict)

    @property
    def times(self) -> tuple[float, ...]:
        """When the steps are."""
        return tuple(self.time + (step + 1) * self.period for step in range(len(self.mean)))


class Forecaster:
    """Takes samples one by one and always has a forecast; costs well under a millisecond a sample.

    Only ``refit`` takes long: call it now and then (and first when there are some dozens of samples). Without
    it, the last value answers, with an interval. Nothing here reads a clock.
    """

    def __init__(
        self,
        horizon: int = 30,
        *,
        period: float = 1.0,
        level: float = 0.9,
        window: int = 600,
        season: float | None = None,
        models: Iterable[str] = MODELS,
        budget: int = 50,
    ) -> None:
        _check("horizon", horizon, 1, 1000)
        _check("window", window, 2 * (horizon + LEAST_ERRORS), 100_000)
        _check("budget", budget, 1, 100_000)
        fine = season is None or is_number(season, 2, window / 2)
        insist(fine, "season", season, f"from 2 to {window // 2} periods")
        insist(0 < level < 1, "level", level, "a share between 0 and 1")
        insist(0 < period < inf, "period", period, "seconds above 0")
        # The last value needs nothing and cannot fail.
        self.models = tuple(dict.fromkeys(("last value", *models)))
        for name in self.models:
            insist(name in MODELS, "models", name, ", ".join(MODELS))
        self.horizon, self.period, self.level, self.window = horizon, period, level, window
        self._season, self._budget = season, budget
        self._fitted_at = -inf
        self._start_over()

    def _start_over(self) -> None:
        miss = (1 - self.level) / 2
        self._values: deque[float] = deque(maxlen=self.window)
        self._place = 0  # of the next value since the start: its row in every ring
        self._origin = 0.0  # the time of the first value
        self._records: dict[str, TrackRecord] = {}
        self.dropped: dict[str, str] = dict.fromkeys(self.models, "not fitted yet")
        self.season = self._season
        lately = int(_LATELY * self.window)
        self._edges = [Edge(sign, self.horizon, miss, lately=lately) for sign in (-1, 1)]
        # Those who are to stay inside go by the range: what is rare counts there.
        self._ends = [Edge(sign, 1, miss, self.horizon / 2) for sign in (-1, 1)]
        # What was answered: a row for each of the newest places, a column for each step ahead of them.
        self._answered = np.full((2, self.horizon, self.horizon), np.nan)
        self._answered_range = np.full((2, self.horizon), np.nan)
        self._steps = np.arange(self.horizon)
        self._model = ""
        self._mape: dict[str, float] = {}

    @property
    def values(self) -> Array:
        """The window, one value for each period."""
        return np.array(self._values)

    @property
    def paths(self) -> dict[str, Array]:
        """What each model in use says of the coming steps."""
        return {name: record.path for name, record in self._records.items()}

    def add(self, time: float, watts: float) -> bool:
        """A sample; whether it was used. Of several in one period the first counts; a short gap is filled
        with the last value before it, and a longer one is the end of what was known."""
        if not (isfinite(time) and isfinite(watts)):
            return False
        if not self._place:
            self._origin = time
        missing = floor((time - self._origin) / self.period + 0.5) - self._place
        if missing < 0:
            return False
        if missing > _GAP:
            self._start_over()
            self._origin, missing = time, 0
        for _ in range(missing):
            self._step(self._values[-1])
        self._step(watts)
        return True

    def refit_when_due(self, every: float) -> bool:
        """Fit if that was so many seconds ago, and there are samples enough for a model to answer from.
        Answers whether it was done."""
        now = self._origin + (self._place - 1) * self.period
        if len(self._values) < 2 * (self.horizon + LEAST_ERRORS) or now - self._fitted_at < every:
            return False
        self.refit()
        self._fitted_at = now
        return True

    def refit(self) -> None:
        """Fit all models to the window; those that cannot be are dropped until the next time."""
        values = self.values
        if not len(values):
            return
        self.season = self._season or season_length(values)
        past = len(values) // _HELD_BACK
        if past < self.horizon + LEAST_ERRORS:
            past = 0  # its errors would not be enough
        for name in self.models:
            known = self._records.get(name)
            try:
                older = values[:-past] if known is None and past else values
                model = fit(name, older, self.season, self._budget)
            except Unfit as error:
                self._drop(name, str(error))
                continue
            if known is None:
                self._records[name] = self._replayed(model, values, past)
            else:
                known.take(model)
            self.dropped.pop(name, None)
        self._answer()

    def forecast(self) -> Forecast | None:
        """What is known now; None before there are enough errors to tell how sure it is."""
        if not self._model:
            return None
        row = (self._place - 1) % self.horizon
        lower, upper = self._answered[:, row]
        least, most = (float(end) for end in self._answered_range[:, row])
        mean = np.clip(self._records[self._model].path, lower, upper)
        return Forecast(
            time=self._origin + (self._place - 1) * self.period,
            period=self.period,
            level=self.level,
            mean=tuple(mean.tolist()),
            lower=tuple(lower.tolist()),
            upper=tuple(upper.tolist()),
            range=PowerRange(least, most),
            model=self._model,
            season=self.season,
            mape=dict(self._mape),
            dropped={**self.dropped, **dict.fromkeys(self._records.keys() - self._mape, _NEW)},
        )

    def _step(self, value: float) -> None:
        self._score(value)
        self._values.append(value)
        values = self.values
        if not self._place:
            self._records["last value"] = self._record(fit("last value", values, None, self._budget))
            del self.dropped["last value"]
        self._see(self._records.values(), self._place, values)
        self._place += 1
        for name in [name for name, record in self._records.items() if not np.isfinite(record.path).all()]:
            self._drop(name, "its forecast ran away")
        self._answer()

    def _see(self, records: Iterable[TrackRecord], place: int, values: Array) -> None:
        """The last of these values is the one at that place."""
        newest = values[-self.horizon :]
        least, most = float(newest.min()), float(newest.max())
        floor = _FLOOR * float(np.abs(values).mean()) or 1.0
        for record in records:
            record.see(place, float(values[-1]), least, most, floor)

    def _record(self, model: LinearModel) -> TrackRecord:
        return TrackRecord(model, self.horizon, self.window, int(_LATELY * self.window))

    def _replayed(self, model: LinearModel, values: Array, past: int) -> TrackRecord:
        """A model that was fitted without the newest values, and its errors on them."""
        record = self._record(model)
        for back in range(past, 0, -1):
            self._see([record], self._place - back, values[: len(values) - back + 1])
        return record

    def _drop(self, name: str, why: str) -> None:
        if name != "last value":
            self._records.pop(name, None)
            self.dropped[name] = why

    def _choose(self) -> str:
        """The model with the lowest mean error lately, on values of which all said something."""
        ready = {name: record for name, record in self._records.items() if record.known >= LEAST_ERRORS}
        shares = np.array([record.shares for record in ready.values()])
        mape = 100 * shares[:, np.isfinite(shares).all(axis=0)].mean(axis=1) if ready else []
        self._mape = dict(zip(ready, mape, strict=True))
        return min(ready, key=lambda name: self._mape[name], default="")

    def _answer(self) -> None:
        """From now on this is the forecast."""
        row = (self._place - 1) % self.horizon
        self._answered[:, row] = self._answered_range[:, row] = np.nan
        self._model = self._choose()
        if not self._model:
            return
        record = self._records[self._model]
        least, most = record.path.min(), record.path.max()
        for side in (0, 1):
            self._answered[side, row] = record.path + self._edges[side].offsets(record.errors)
            offset = self._ends[side].offsets(record.extremes[side])[0]
            self._answered_range[side, row] = (least, most)[side] + offset
        # No power is below nothing, and ends are in order, however little was seen.
        self._answered[:, row] = np.sort(np.maximum(self._answered[:, row], 0.0), axis=0)
        self._answered_range[:, row] = np.sort(np.maximum(self._answered_range[:, row], 0.0))

    def _score(self, value: float) -> None:
        """How the answers of before fare with the next value: the edges learn from it."""
        origins = (self._place - 1 - self._steps) % self.horizon
        said = self._answered[:, origins, self._steps]
        known = np.isfinite(said[0])
        for edge, missed in zip(self._edges, (value < said[0], value > said[1]), strict=True):
            edge.learn(missed, known)
        least, most = self._answered_range[:, self._place % self.horizon]
        newest = [*islice(reversed(self._values), self.horizon - 1), value]
        known = np.array([np.isfinite(least)])
        for edge, missed in zip(self._ends, (min(newest) < least, max(newest) > most), strict=True):
            edge.learn(np.array([missed]), known)


def forecast(samples: Iterable[tuple[float, float]], horizon: int = 30, **parameters: Any) -> Forecast | None:
    """Of samples (time, watts), with the parameters of ``Forecaster``. Models are fitted to the older half of
    the window and calibrated on the newer. None if there are too few samples."""
    forecaster = Forecaster(horizon, **parameters)
    for time, watts in samples:
        forecaster.add(time, watts)
    forecaster.refit()
    return forecaster.forecast()


def _check(name: str, value: Any, least: int, most: int) -> None:
    fine = isinstance(value, int) and least <= value <= most
    insist(fine, name, value, f"an integer from {least} to {most}")


@dataclass(frozen=True, slots=True)
class Backtest:
    """Of all forecasts made in the newer half whose whole horizon is known."""

    #: the share of values inside their intervals, over all steps of the horizon
    coverage: float
    #: the share of forecasts of which all values were inside the range
    range_coverage: float
    #: the mean absolute percentage error of what was answered
    mape: float
    #: and of each model, had it been alone (the last value wherever it was dropped)
    alone: Mapping[str, float]
    #: how often each model answered
    chosen: Mapping[str, int]

    @property
    def behind(self) -> float:
        """How much larger our error is than the best single model's, as a share of that."""
        best = min(self.alone.values())
        return self.mape / best - 1 if best else 0.0


def backtest(values: Sequence[float], forecaster: Forecaster, retrain: int = 120) -> Backtest:
    """Run a new forecaster along a series, fitting it every ``retrain`` steps from the middle on."""
    horizon, half = forecaster.horizon, len(values) // 2
    if len(values) - half <= horizon:
        raise InputError("values", f"found {len(values)}", f"more than {2 * horizon}")
    series = np.asarray(values, dtype=float)
    if not (np.isfinite(series).all() and series.min() > 0):
        raise InputError("values", "found one that is not", "finite values above 0")
    inside, inside_range, ours = [], [], []
    theirs: dict[str, list[float]] = {name: [] for name in forecaster.models}
    chosen: Counter[str] = Counter()
    for place, value in enumerate(values):
        coming = series[place : place + horizon]
        if place >= half and len(coming) == horizon:
            if (place - half) % retrain == 0:
                forecaster.refit()
            found = forecaster.forecast()
            if found is None:
                raise InputError(
                    "values", f"found {len(values)}", "so many that half of them allow a forecast"
                )
            inside.append(np.mean((found.lower <= coming) & (coming <= found.upper)))
            inside_range.append(found.range.least <= coming.min() and coming.max() <= found.range.most)
            ours.append(_error(np.array(found.mean), coming))
            chosen[found.model] += 1
            paths = forecaster.paths
            for name, errors in theirs.items():
                errors.append(_error(paths.get(name, paths["last value"]), coming))
        forecaster.add(place * forecaster.period, value)
    return Backtest(
        float(np.mean(inside)),
        float(np.mean(inside_range)),
        float(np.mean(ours)),
        {name: float(np.mean(errors)) for name, errors in theirs.items()},
        dict(chosen),
    )


def _error(path: Array, coming: Array) -> float:
    """Percent of the values that came, which must be above zero."""
    return float(100 * np.mean(np.abs(coming - path) / coming))
