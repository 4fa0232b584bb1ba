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
        x, y = inputs.apply(rows), output.apply(values[:, None])[:, 0]
        loss = partial(_loss, x=x, y=y)
        starts = [_start(x.shape[1], rng) for _ in range(_STARTS)]
        first = [
            minimize(loss, one, jac=True, method="L-BFGS-B", options={"maxiter": _FIRST}) for one in starts
        ]
        best = min(first, key=lambda found: float(found.fun)).x
        found = minimize(loss, best, jac=True, method="L-BFGS-B", options={"maxiter": _LAST})
        return cls(inputs, output, found.x)

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """One value for each row. It may be less than a task takes alone; who needs a slowdown cuts it
        off."""
        x = self.inputs.apply(np.atleast_2d(np.asarray(rows, float)))
        into, bias, out, last = _parts(self.weights, x.shape[1])
        found = np.tanh(x @ into + bias) @ out + last
        spread = self.output.deviation[0]
        return found * (spread if np.isfinite(spread) else 0.0) + self.output.mean[0]


def _start(features: int, rng: Any) -> np.ndarray:
    """Small at random, so that no unit is saturated."""
    into = rng.normal(0, features**-0.5, (features, HIDDEN))
    out = rng.normal(0, HIDDEN**-0.5, HIDDEN)
    return np.concatenate([into.ravel(), np.zeros(HIDDEN), out, [0.0]])


def _parts(weights: np.ndarray, features: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    into, bias, out, last = np.split(weights, np.cumsum([features * HIDDEN, HIDDEN, HIDDEN]))
    return into.reshape(features, HIDDEN), bias, out, last[0]


def _loss(weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """Half the mean squared error and the decay of weights (not of biases), and their gradient."""
    into, bias, out, last = _parts(weights, x.shape[1])
    hidden = np.tanh(x @ into + bias)
    error = hidden @ out + last - y
    back = error / len(y)
    inner = np.outer(back, out) * (1 - hidden * hidden)
    gradient = [x.T @ inner + _DECAY * into, inner.sum(axis=0), hidden.T @ back + _DECAY * out, [back.sum()]]
    decay = _DECAY / 2 * float((into * into).sum() + out @ out)
    return float(error @ back) / 2 + decay, np.concatenate([np.ravel(one) for one in gradient])
