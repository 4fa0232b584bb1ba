"""How good forecasts would have been on a series that is known: on its newer half, as if it were live."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dask_hpc.model.errors import InputError
from dask_hpc.planning.forecast.forecaster import Forecaster
from dask_hpc.planning.forecast.models import Array


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
