"""What a reservation costs: in money, in core-hours, or in time until the job has ended.

A request for W seconds of a job that needs X costs ``alpha W + beta min(W, X) + gamma`` (seed 004, 9.1):
alpha pays for what is asked for, beta for what is used, gamma for asking. A queue in which one waits longer
for longer requests is such a cost as well: alpha and gamma are then fitted to past waits, and beta is 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from dask_hpc.model.errors import InputError, is_number, shown
from dask_hpc.model.units import counted, show_duration
from dask_hpc.planning.reservation.law import read_time

_LARGEST = 1e12


@dataclass(frozen=True, slots=True)
class Cost:
    """``alpha W + beta min(W, X) + gamma``, all in seconds."""

    alpha: float = 1.0
    beta: float = 0.0
    gamma: float = 0.0

    def __post_init__(self) -> None:
        if not (is_number(self.alpha, 0, _LARGEST) and self.alpha > 0):
            raise InputError("cost: alpha", f"found {shown(self.alpha)}", "a number, more than 0")
        for name in ("beta", "gamma"):
            value = getattr(self, name)
            if not is_number(value, 0, _LARGEST):
                raise InputError(f"cost: {name}", f"found {shown(value)}", "a number, 0 or more")

    def request(self, length: Any) -> Any:
        """What asking for so many seconds costs, used or not."""
        return self.alpha * length + self.gamma

    def omniscient(self, mean: float) -> float:
        """What somebody pays who knows in advance how long each job takes."""
        return (self.alpha + self.beta) * mean + self.gamma

    def __str__(self) -> str:
        return f"{self.alpha:g}, {self.beta:g}, {show_duration(self.gamma)}"


#: waits on one machine for 409 processors by what was asked for (seed 004, 11.1.3)
WAIT = Cost(0.95, 1.0, 1.05 * 3600)
CLOUD = Cost(1.0, 0.0, 0.0)
_WORDS = "wait, cloud, core-hours, core-hours*CORES or ALPHA,BETA,GAMMA such as 0.95,1,1.05h"


def read_cost(found: Any) -> Cost:
    """From ``wait``, ``cloud``, ``core-hours*64``, ``"0.95,1,1.05h"`` or three numbers."""
    if isinstance(found, Cost):
        return found
    if isinstance(found, str):
        word, star, cores = found.strip().partition("*")
        if word in ("wait", "cloud") and not star:
            return WAIT if word == "wait" else CLOUD
        if word == "core-hours":
            return Cost(_plain("alpha", cores if star else "1"))
        parts: Sequence[Any] = found.split(",")
    else:
        parts = found if isinstance(found, Sequence) else []
    if len(parts) != 3:
        raise InputError("cost", f"found {shown(found)}", _WORDS)
    alpha, beta = _plain("alpha", parts[0]), _plain("beta", parts[1])
    return Cost(alpha, beta, read_time(parts[2], "cost: gamma"))


def _plain(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InputError(f"cost: {name}", f"found {shown(value)}", "a number without a unit") from None


@dataclass(frozen=True, slots=True)
class FittedCost:
    """A cost, and where it is from."""

    cost: Cost
    reason: str
    is_fitted: bool = True


_GROUPS = 20
_LEAST_JOBS = 40
_LEAST_ALPHA = 1e-3


def fit_wait(requested: Sequence[float], waited: Sequence[float]) -> FittedCost:
    """How long one waits for a request, from past jobs: a line through the means of 20 groups of equally many
    jobs, in the order of what they asked for (seed 004, 11.1.3)."""
    asked, waits = np.asarray(requested, float), np.asarray(waited, float)
    if asked.shape != waits.shape or asked.ndim != 1:
        raise InputError("waits", f"found {asked.size} requests and {waits.size} waits", "one for each")
    known = np.isfinite(asked) & np.isfinite(waits) & (asked > 0) & (waits >= 0)
    asked, waits = asked[known], waits[known]
    jobs = counted(len(asked), "job")
    if len(asked) < _LEAST_JOBS:
        return _preset(f"waits of {jobs} are too few (at least {_LEAST_JOBS})")
    order = np.argsort(asked, kind="stable")
    groups = np.array_split(order, _GROUPS)
    x = np.array([asked[one].mean() for one in groups])
    y = np.array([waits[one].mean() for one in groups])
    spread = x - x.mean()
    slope = float(spread @ y / (spread @ spread)) if spread @ spread > 1e-12 * x.mean() ** 2 else -inf
    if slope <= 0:
        return _preset(f"{jobs} did not wait longer for longer requests")
    alpha = max(slope, _LEAST_ALPHA)
    cost = Cost(alpha, 1.0, max(0.0, float(y.mean() - alpha * x.mean())))
    words = f"a wait of {show_duration(cost.gamma)} and {alpha:.3g} times the request"
    return FittedCost(cost, f"{words}, fitted to {jobs}")


def _preset(why: str) -> FittedCost:
    words = f"a wait of {show_duration(WAIT.gamma)} and {WAIT.alpha:g} times the request"
    return FittedCost(WAIT, f"{words}, as published of another machine: {why}", is_fitted=False)
