"""How far predictions are off, on data that a predictor has not seen (seed 003, 2.4.4 and 2.5.1)."""

from typing import Protocol

import numpy as np

from dask_hpc.model.errors import insist, is_number

#: of the data, held out of each split
HELD_OUT = 0.3


class Predictor(Protocol):
    """What has learned."""

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """One value for each row."""


def mpe(predicted: np.ndarray, actual: np.ndarray) -> float:
    """Mean error relative to what was measured, in per cent (equation 2.4)."""
    predicted, actual = _pair(predicted, actual)
    insist(bool((actual != 0).all()), "actual", 0, "no zeros")
    return 100 * float(np.abs((predicted - actual) / actual).mean())


def nrmse(predicted: np.ndarray, actual: np.ndarray) -> float:
    """Root of the mean squared error over the range of what was measured (equation 2.5)."""
    predicted, actual = _pair(predicted, actual)
    span = float(actual.max() - actual.min())
    insist(span > 0, "actual", span, "values that differ")
    return float(np.sqrt(((predicted - actual) ** 2).mean())) / span


def _pair(predicted: np.ndarray, actual: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    predicted, actual = np.asarray(predicted, float), np.asarray(actual, float)
    same = predicted.shape == actual.shape and actual.size > 0
    insist(same, "predicted", predicted.shape, f"one for each measured value, {actual.shape}")
    return predicted, actual


def divided(order: np.ndarray, held_out: float = HELD_OUT) -> tuple[np.ndarray, np.ndarray]:
    """Which rows are learned from, and which are held out; at least one each."""
    insist(len(order) >= 2, "rows", len(order), "two or more")
    insist(is_number(held_out, 0, 1), "held_out", held_out, "a share from 0 to 1")
    count = min(max(1, round(held_out * len(order))), len(order) - 1)
    return order[count:], order[:count]
