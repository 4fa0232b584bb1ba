"""Time, or energy, of a task beside others by a small neural network (seed 003, 2.3.3).

The seed says tanh, fully connected, squared error and conjugate gradients, and neither layers nor neurons,
scales, biases or when to stop. Ours: features and values standardised, one hidden layer of twelve, a linear
output, biases, weights that decay a little, L-BFGS-B from five starts, of which the best one is followed to
its end.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dask_hpc.planning.colocation.linear import Standard, checked

HIDDEN = 12
_STARTS = 5
_DECAY = 1e-4
_FIRST, _LAST = 30, 400  # iterations: of every start, and of the best one


@dataclass(frozen=True, slots=True)
class NetworkPredictor:
    """One hidden layer of tanh units, and a linear output."""

    inputs: Standard
    output: Standard
    weights: np.ndarray

    @classmethod
    def fit(cls, rows: np.ndarray, values: np.ndarray, rng: Any) -> "NetworkPredictor":
        """To rows of features and what was measured of each: seconds, or joules. The starts are drawn from a
        numpy generator: the same from the same one."""
        # scipy takes a while to import, and who only asks a network that has learned needs none
        from scipy.optimize import minimize

        rows, values = checked(rows, values)
        inputs, output = Standard.of(rows), Standard.of(values[:, None])
        x, y = _with_ones(inputs.apply(rows)), output.apply(values[:, None])[:, 0]
        loss = partial(_loss, x=x, y=y)
        starts = [_start(rows.shape[1], rng) for _ in range(_STARTS)]
        first = [
            minimize(loss, one, jac=True, method="L-BFGS-B", options={"maxiter": _FIRST}) for one in starts
        ]
        best = min(first, key=lambda found: float(found.fun)).x
        found = minimize(loss, best, jac=True, method="L-BFGS-B", options={"maxiter": _LAST})
        return cls(inputs, output, found.x)

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """One value for each row. It may be less than a task takes alone; who needs a slowdown cuts it
        off."""
        x = _with_ones(self.inputs.apply(np.atleast_2d(np.asarray(rows, float))))
        into, out, last = _parts(self.weights)
        found = np.tanh(x @ into) @ out + last
        spread = self.output.deviation[0]
        return found * (spread if np.isfinite(spread) else 0.0) + self.output.mean[0]


def _with_ones(x: np.ndarray) -> np.ndarray:
    """One more column, which carries the biases."""
    return np.column_stack([x, np.ones(len(x))])


def _start(features: int, rng: Any) -> np.ndarray:
    """Small at random, so that no unit is saturated."""
    into = rng.normal(0, features**-0.5, (features, HIDDEN))
    out = rng.normal(0, HIDDEN**-0.5, HIDDEN)
    return np.concatenate([into.ravel(), np.zeros(HIDDEN), out, [0.0]])


def _parts(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Into the hidden layer, with its biases as the last row; out of it; and the bias of the output."""
    return weights[: -HIDDEN - 1].reshape(-1, HIDDEN), weights[-HIDDEN - 1 : -1], weights[-1]


def _loss(weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """Half the mean squared error and the decay of weights (not of biases), and their gradient. The last
    column of ``x`` is one of ones."""
    into, out, last = _parts(weights)
    hidden = x @ into
    np.tanh(hidden, out=hidden)
    error = hidden @ out + (last - y)
    back = error / len(y)
    decay = _DECAY / 2 * float((into[:-1] ** 2).sum() + out @ out)
    gradient = np.empty_like(weights)
    to_into, to_out, _ = _parts(gradient)
    to_out[:] = hidden.T @ back + _DECAY * out
    gradient[-1] = back.sum()
    # in place, as this is where the time goes: back out (1 - hidden ** 2)
    hidden *= hidden
    np.subtract(1.0, hidden, out=hidden)
    hidden *= back[:, None]
    hidden *= out
    to_into[:] = x.T @ hidden
    to_into[:-1] += _DECAY * into[:-1]
    return float(error @ back) / 2 + decay, gradient
