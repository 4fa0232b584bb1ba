"""Time, or energy, of a task beside others as a weighted sum of features (seed 003, equations 2.1 and
2.2)."""

from dataclasses import dataclass

import numpy as np

from dask_hpc.model.errors import InputError


@dataclass(frozen=True, slots=True)
class Standard:
    """Columns brought to a mean of 0 and a deviation of 1; one that never changes says nothing, and is 0."""

    mean: np.ndarray
    deviation: np.ndarray

    @classmethod
    def of(cls, columns: np.ndarray) -> "Standard":
        """Of these."""
        deviation = columns.std(axis=0)
        # what differs by rounding errors alone does not change
        moves = deviation > 1e-12 * np.abs(columns).max(axis=0)
        return cls(columns.mean(axis=0), np.where(moves, deviation, np.inf))

    def apply(self, columns: np.ndarray) -> np.ndarray:
        """These, standardised."""
        return (columns - self.mean) / self.deviation


@dataclass(frozen=True, slots=True)
class LinearPredictor:
    """Least squares on standardised features."""

    standard: Standard
    weights: np.ndarray
    constant: float

    @classmethod
    def fit(cls, rows: np.ndarray, values: np.ndarray) -> "LinearPredictor":
        """To rows of features and what was measured of each: seconds, or joules."""
        rows, values = checked(rows, values)
        standard = Standard.of(rows)
        constant = float(values.mean())
        weights, *_ = np.linalg.lstsq(standard.apply(rows), values - constant, rcond=None)
        return cls(standard, weights, constant)

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """One value for each row. It may be less than a task takes alone; who needs a slowdown cuts it
        off."""
        return self.standard.apply(np.atleast_2d(np.asarray(rows, float))) @ self.weights + self.constant


def checked(rows: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What can be learned from; or a complaint."""
    rows, values = np.atleast_2d(np.asarray(rows, float)), np.asarray(values, float)
    if len(rows) != len(values) or values.ndim != 1 or not len(values):
        found = f"found {len(rows)} rows and {values.size} values"
        raise InputError("rows", found, "one value for each row, one row or more")
    if not (np.isfinite(rows).all() and np.isfinite(values).all()):
        raise InputError("rows", "found nan or inf", "finite numbers")
    return rows, values
