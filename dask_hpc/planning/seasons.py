"""How long the season of a series is, if it has one."""

import numpy as np

from dask_hpc.planning.linear_models import Array

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
