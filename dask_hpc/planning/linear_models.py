"""Linear models of a series: a state that moves, a row that reads it, and a gain that corrects it.

All our models of power are of this kind once their parameters are known, so running one along with the
samples and looking ahead costs a few products of small matrices, whatever its fit cost.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

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


def last_value(values: Array) -> LinearModel:
    """All stays as it is."""
    one = np.ones(1)
    return LinearModel(np.ones((1, 1)), one, one, values[-1:].copy())


def seasonal_naive(values: Array, season: int) -> LinearModel:
    """All is as it was one season ago."""
    gain = np.zeros(season)
    gain[-1] = 1.0
    return LinearModel(shift(season), first(season), gain, values[-season:].copy())


def shift(size: int) -> Array:
    """A ring: what was second is first, what was first is last."""
    return np.roll(np.eye(size), 1, axis=1)


def first(size: int) -> Array:
    """The row that reads the first of a ring."""
    row = np.zeros(size)
    row[0] = 1.0
    return row


def side_by_side(*parts: Array) -> Array:
    """One block matrix of square ones: their states do not touch."""
    size = sum(len(part) for part in parts)
    whole = np.zeros((size, size))
    at = 0
    for part in parts:
        whole[at : at + len(part), at : at + len(part)] = part
        at += len(part)
    return whole
