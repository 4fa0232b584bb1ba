"""How far predictions are off, on data that a predictor has not seen (seed 003, 2.4.4 and 2.5.1)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Score:
    """Errors of one predictor on what it has seen, and on what was held out."""

    mpe_train: float
    mpe_test: float
    nrmse_train: float
    nrmse_test: float


def split_scores(
    fit: Callable[[np.ndarray, np.ndarray], Predictor],
    rows: np.ndarray,
    values: np.ndarray,
    permutations: Sequence[np.ndarray],
) -> list[Score]:
    """Repeated random sub-sampling: by each permutation of the rows, the first of them are held out and the
    rest is learned from. Who compares predictors gives the same permutations to all of them."""
    return [_score(fit, rows, values, order) for order in permutations]


def divided(order: np.ndarray, held_out: float = HELD_OUT) -> tuple[np.ndarray, np.ndarray]:
    """Which rows are learned from, and which are held out; at least one each."""
    insist(len(order) >= 2, "rows", len(order), "two or more")
    insist(is_number(held_out, 0, 1), "held_out", held_out, "a share from 0 to 1")
    count = min(max(1, round(held_out * len(order))), len(order) - 1)
    return order[count:], order[:count]


def _score(
    fit: Callable[[np.ndarray, np.ndarray], Predictor],
    rows: np.ndarray,
    values: np.ndarray,
    order: np.ndarray,
) -> Score:
    train, test = divided(order)
    learned = fit(rows[train], values[train])
    seen, unseen = learned.predict(rows[train]), learned.predict(rows[test])
    return Score(mpe(seen, values[train]), mpe(unseen, values[test]),
                 nrmse(seen, values[train]), nrmse(unseen, values[test]))  # fmt: skip
