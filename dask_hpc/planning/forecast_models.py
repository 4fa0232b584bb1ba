"""The models of a series of power: how each is fitted, and what each needs for that.

ARIMA, SARIMAX and Holt-Winters are fitted by statsmodels (seed 000, 2.12, which gives no orders). Our
choices: ARIMA(1, 1, 1), which holds the mean of pure noise (its moving average goes to -1) as well as a
series that wanders; SARIMAX the same with the season as sines and cosines among its regressors, which
costs the same for seasons of any length; Holt-Winters additive, with a damped trend, and with a season if
there is one.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_hpc.model.errors import one_line
from dask_hpc.planning.linear_models import (
    Array,
    LinearModel,
    first,
    last_value,
    seasonal_naive,
    shift,
    side_by_side,
)
from dask_hpc.planning.seasons import angles, waves

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


def _last(values: Array, season: float | None, steps: int) -> LinearModel:
    return last_value(values)


def _seasonal(values: Array, season: float | None, steps: int) -> LinearModel:
    assert season is not None
    return seasonal_naive(values, round(season))


@dataclass(frozen=True, slots=True)
class _Kind:
    fit: Callable[[Array, float | None, int], LinearModel]
    needs_season: bool = False
    #: fitted in no time, without statsmodels
    is_cheap: bool = False


#: simple ones first: of two that are equally good the first is taken
_KINDS: Mapping[str, _Kind] = {
    "last value": _Kind(_last, is_cheap=True),
    "seasonal naive": _Kind(_seasonal, needs_season=True, is_cheap=True),
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
