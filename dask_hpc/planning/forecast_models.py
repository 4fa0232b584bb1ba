"""The models of a series of power: how each is fitted, and what each needs for that.

ARIMA, SARIMAX and Holt-Winters are fitted by statsmodels (seed 000, 2.12, which gives no orders). Our
choices: ARIMA(1, 1, 1), which holds the mean of pure noise (its moving average goes to -1) as well as a
series that wanders; SARIMAX the same with the season as sines and cosines among its regressors, which
costs the same for seasons of any length; Holt-Winters additive, with a damped trend, and with a season if
there is one.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_hpc.model.errors import one_line

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LinearModel:
    """The innovations form: ``value = look . state + error``, ``next = move . state + gain . error``."""

    move: Array
    look: Array
    gain: Array
    #: what is known before the next value
    state: Array

    def after(self, value: float) -> "LinearModel":
        """The same model, one value later."""
        error = value - self.look @ self.state
        return replace(self, state=self.move @ self.state + self.gain * error)

    def scaled(self, middle: float, scale: float) -> "LinearModel":
        """The model of ``middle + scale * value``: one more state, which stays, is the middle."""
        return LinearModel(
            side_by_side(self.move, np.ones((1, 1))),
            np.append(self.look, 1.0),
            np.append(self.gain, 0.0),
            np.append(self.state * scale, middle),
        )

    def ahead(self, steps: int) -> Array:
        """The matrix that turns a state into the values expected in the coming steps."""
        rows = np.empty((steps, len(self.look)))
        row = self.look
        for step in range(steps):
            rows[step] = row
            row = row @ self.move
        return rows


def last_value(values: Array, season: float | None = None, steps: int = 0) -> LinearModel:
    """All stays as it is."""
    one = np.ones(1)
    return LinearModel(np.ones((1, 1)), one, one, values[-1:].copy())


def seasonal_naive(values: Array, season: float | None, steps: int = 0) -> LinearModel:
    """All is as it was one season ago."""
    assert season is not None
    size = round(season)
    return LinearModel(shift(size), first(size), first(size)[::-1], values[-size:].copy())


def shift(size: int) -> Array:
    """A ring: what was second is first, what was first is last."""
    return np.roll(np.eye(size), 1, axis=1)


def first(size: int) -> Array:
    """The row that reads the first of a ring."""
    return np.eye(size)[0]


def side_by_side(*parts: Array) -> Array:
    """One block matrix of square ones: their states do not touch."""
    size = sum(len(part) for part in parts)
    whole = np.zeros((size, size))
    at = 0
    for part in parts:
        whole[at : at + len(part), at : at + len(part)] = part
        at += len(part)
    return whole


_LEAST_LAG = 4  # a shorter season is no season of power: one sample each second or so
_SEASONS = 3  # so many must be in sight before one is believed
_PROMINENCE = 0.25  # by how much the autocorrelation must rise again, as a share of the variance
_HARMONICS = 4
_SAME = 0.9  # of two peaks so close in height the shorter lag is the season, the other a multiple


def season_length(values: Array) -> float | None:
    """How many steps a season has, a number with a fraction; None if there is none.

    It is near the lag at which the autocorrelation of the detrended values peaks again. A series of steps
    has an autocorrelation that only falls, and noise one that stays near zero: neither has a season. The
    peak must stand out from the valley before it.
    """
    count = len(values)
    if count < _SEASONS * _LEAST_LAG:
        return None
    places = np.arange(count, dtype=float)
    centred = places - places.mean()
    rest = values - values.mean()
    rest = rest - centred * (centred @ rest) / (centred @ centred)
    variance = float(rest @ rest)
    if variance <= 1e-12 * max(float(values @ values), 1e-300):
        return None
    spectrum = np.fft.rfft(rest, 2 * count)
    products = np.fft.irfft(spectrum * np.conj(spectrum), 2 * count)[: count // _SEASONS + 2]
    # Fewer pairs at longer lags: without this correction peaks would sink with the lag.
    lags = np.arange(len(products))
    correlation = products / variance * count / (count - lags)
    inner = np.arange(_LEAST_LAG, len(products) - 1)
    is_peak = (correlation[inner] >= correlation[inner - 1]) & (correlation[inner] >= correlation[inner + 1])
    peaks = inner[is_peak]
    valleys = np.minimum.accumulate(correlation)
    peaks = peaks[correlation[peaks] - np.minimum(valleys[peaks], 1.0) >= _PROMINENCE]
    peaks = peaks[correlation[peaks] > _PROMINENCE]
    if not len(peaks):
        return None
    high = correlation[peaks] >= _SAME * correlation[peaks].max()
    return _refined(rest, int(peaks[high][0]))


def waves(season: float, count: int) -> Array:
    """A season as columns: cosines of it and of its first harmonics, then sines of the same."""
    turns = np.outer(np.arange(count), angles(season))
    return np.column_stack([np.cos(turns), np.sin(turns)])


def angles(season: float) -> Array:
    """By how much each of these waves turns in one step."""
    harmonics = np.arange(1, min(_HARMONICS, int((season - 1) // 2)) + 1, dtype=np.float64)
    return 2 * np.pi * harmonics / season


def _refined(rest: Array, lag: int) -> float:
    """The season within a step of ``lag`` whose waves explain most: first in steps that cannot miss the
    peak, which is as narrow as there are seasons in sight, and then near the best of these."""
    step = min(0.25, lag**2 / len(rest) / 2)
    season = float(lag)
    for reach, each in ((1.0, step), (step, step / 10)):
        tries = season + np.arange(-round(reach / each), round(reach / each) + 1) * each
        tries = tries[tries >= _LEAST_LAG - 0.5]
        season = float(tries[np.argmax([_explained(rest, one) for one in tries])])
    return season


def _explained(rest: Array, season: float) -> float:
    columns = waves(season, len(rest))
    weights = np.linalg.lstsq(columns, rest, rcond=None)[0]
    return float(np.sum((columns @ weights) ** 2))


_LEAST = 30  # samples, for a fit
_CONSTANT = 1e-9  # a spread of this share of the values is none


class Unfit(Exception):
    """A model cannot be fitted to these values; the message says why, to a person."""


def _arima(values: Array, season: float | None, steps: int) -> LinearModel:
    from statsmodels.tsa.statespace.sarimax import SARIMAX

    fitted = _maximise(SARIMAX(values, order=(1, 1, 1)), steps)
    parts = fitted.filter_results
    return LinearModel(
        parts.transition[:, :, -1].copy(),
        parts.design[0, :, -1].copy(),
        parts.kalman_gain[:, 0, -1].copy(),
        parts.predicted_state[:, -1].copy(),
    )


def _sarimax(values: Array, season: float | None, steps: int) -> LinearModel:
    from statsmodels.tsa.statespace.sarimax import SARIMAX

    assert season is not None
    regressors = waves(season, len(values))
    # The coefficients are states, so the search is as short as without them.
    fitted = _maximise(SARIMAX(values, exog=regressors, order=(1, 1, 1), mle_regression=False), steps)
    parts = fitted.filter_results
    plain = parts.transition.shape[0] - regressors.shape[1]
    state = parts.predicted_state[:, -1]
    cosines, sines = np.split(state[plain:], 2)
    # From here on each wave turns by itself: no clock is needed to know where in the season we are.
    turn = angles(season)
    now = len(values) * turn
    pairs = np.column_stack(
        [cosines * np.cos(now) + sines * np.sin(now), sines * np.cos(now) - cosines * np.sin(now)]
    )
    turning = [np.array([[np.cos(a), np.sin(a)], [-np.sin(a), np.cos(a)]]) for a in turn]
    return LinearModel(
        side_by_side(parts.transition[:plain, :plain, -1], *turning),
        np.concatenate([parts.design[0, :plain, -1], np.tile([1.0, 0.0], len(turn))]),
        np.concatenate([parts.kalman_gain[:plain, 0, -1], np.zeros(2 * len(turn))]),
        np.concatenate([state[:plain], pairs.ravel()]),
    )


def _holt_winters(values: Array, season: float | None, steps: int) -> LinearModel:
    from statsmodels.tsa.holtwinters import ExponentialSmoothing

    places = round(season) if season else None
    model = ExponentialSmoothing(
        values,
        trend="add",
        damped_trend=True,
        seasonal="add" if places else None,
        seasonal_periods=places,
        initialization_method="heuristic",
    )
    fitted = model.fit(minimize_kwargs={"options": {"maxiter": steps}})
    if not fitted.mle_retvals.success:
        raise Unfit("did not converge")
    given = fitted.params
    level, trend = float(given["smoothing_level"]), float(given["smoothing_trend"])
    damping = float(given["damping_trend"])
    move = np.array([[1.0, damping], [0.0, damping]])
    look = np.array([1.0, damping])
    gain = np.array([level, level * trend])
    state = np.array([fitted.level[-1], fitted.trend[-1]])
    if not places:
        return LinearModel(move, look, gain, state)
    # What the season was last time; its ring turns so that its first is the place we are at.
    ring = np.zeros(places)
    ring[-1] = float(given["smoothing_seasonal"])
    return LinearModel(
        side_by_side(move, shift(places)),
        np.concatenate([look, first(places)]),
        np.concatenate([gain, ring]),
        np.concatenate([state, fitted.season[-places:]]),
    )


def _maximise(model: Any, steps: int) -> Any:
    """The likeliest parameters, without the covariances nobody asks for.

    Powell's search needs no gradient. Those that do stop early here, often on the way to a moving average of
    -1, where the likelihood is flat, and find less likely parameters in more time.
    """
    fitted = model.fit(disp=False, method="powell", maxiter=steps, cov_type="none")
    if not fitted.mle_retvals["converged"]:
        raise Unfit("did not converge")
    return fitted


@dataclass(frozen=True, slots=True)
class _Kind:
    fit: Callable[[Array, float | None, int], LinearModel]
    needs_season: bool = False
    #: fitted in no time, without statsmodels
    is_cheap: bool = False


#: simple ones first: of two that are equally good the first is taken
_KINDS: Mapping[str, _Kind] = {
    "last value": _Kind(last_value, is_cheap=True),
    "seasonal naive": _Kind(seasonal_naive, needs_season=True, is_cheap=True),
    "holt-winters": _Kind(_holt_winters),
    "arima": _Kind(_arima),
    "sarimax": _Kind(_sarimax, needs_season=True),
}
MODELS = tuple(_KINDS)
BASELINES = tuple(name for name, kind in _KINDS.items() if kind.is_cheap)


def fit(name: str, values: Array, season: float | None, steps: int) -> LinearModel:
    """A model fitted to values, in at most ``steps`` steps of its search; ``Unfit`` says why not.

    statsmodels warns through Python's filters of warnings, which belong to the whole process: call this in a
    thread only if no other cares for warnings (a live cluster has a process for it).
    """
    kind = _KINDS[name]
    if kind.needs_season and season is None:
        raise Unfit("no season found")
    if season and len(values) < 2 * round(season):
        raise Unfit(f"{len(values)} samples, fewer than two seasons")
    if not kind.is_cheap:
        if len(values) < _LEAST:
            raise Unfit(f"{len(values)} samples, fewer than {_LEAST}")
        if np.ptp(values) <= _CONSTANT * np.abs(values).max():
            raise Unfit("the power is constant")
    # Searches work best on numbers near one.
    middle, scale = (0.0, 1.0) if kind.is_cheap else (float(values.mean()), float(values.std()))
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            model = kind.fit((values - middle) / scale, season, steps)
    except ImportError:
        raise Unfit('needs statsmodels: pip install "dask-hpc[power]"') from None
    except Unfit:
        raise
    except Exception as error:  # whatever a search may run into
        raise Unfit(one_line(f"{type(error).__name__}: {error}")) from None
    if not all(np.isfinite(part).all() for part in (model.move, model.look, model.gain, model.state)):
        raise Unfit("the fit is not finite")
    return model.scaled(middle, scale)
