"""The document's own model (003, 6.3): each level's time from that of the one below, in closed form.

It is slightly optimistic (003 digest, G14), and fast on whole arrays: the search for the best pattern starts
from it. Equation 6.3 lacks a ``- 1`` (G13). Energy goes from level to level beside time (003 digest, 2.9),
where equation 5.7 has the terms of the last level alone: what is lost costs what an interval does on average.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from dask_hpc.planning.interval.exact import TIME, Weights
from dask_hpc.planning.interval.levels import ENDLESS, Level

#: periods of a run that does not end
FOREVER = 1e6


def hierarchical_efficiency(
    levels: Sequence[Level],
    work: Any,
    counts: Sequence[Any],
    periods: Any = FOREVER,
    weights: Weights = TIME,
) -> Any:
    """What the bare work costs over what the run does, for arrays (of one shape) of the seconds between
    commits, of the counts of each level but the last, and of the periods of a run. In commits and in restarts
    a second costs the same whether they fail or not."""
    numbers = [np.asarray(count, float) for count in (*counts, np.asarray(periods, float) - 1)]
    total = np.asarray(work, float) * prod(number + 1 for number in numbers)
    rates = [level.failures for level in levels]
    whole = sum(rates) or 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        kinds = (TIME,) if weights == TIME else (TIME, weights)
        spent = [kind.computing * np.asarray(work, float) for kind in kinds]  # time, and what it costs
        below: list[tuple[float, list[Any]]] = []  # share of failures, and what getting through takes
        for place, (level, number) in enumerate(zip(levels, numbers, strict=True)):
            up_to_here = sum(rates[: place + 1])
            share = level.failures / whole
            longer = _through(spent[0], level.failures) / spent[0]
            below.append((share, [longer * each for each in spent]))
            failures = _grown(spent[0], level.failures)
            failed_commits = number * _grown(level.commit, up_to_here)
            restarts = share * failed_commits + failures * (share * failed_commits + number + 1)
            committing = number * _through(level.commit, up_to_here)
            restarting = restarts * _through(level.restart, up_to_here)
            spent = [
                (number + 1) * below[-1][1][which]
                + kind.commits * committing
                + kind.restarts * restarting
                + failed_commits * sum(part * once[which] for part, once in below)
                for which, kind in enumerate(kinds)
            ]
        return np.where(np.isfinite(spent[-1]), weights.computing * total / spent[-1], 0.0)


def _grown(seconds: Any, rate: float) -> Any:
    exponent = rate * np.asarray(seconds, float)
    return np.where(exponent > ENDLESS, np.inf, np.expm1(np.minimum(exponent, ENDLESS)))


def _through(seconds: Any, rate: float) -> Any:
    return _grown(seconds, rate) / rate if rate > 0 else np.asarray(seconds, float)
