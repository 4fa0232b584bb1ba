"""The hierarchical model of checkpoints on several levels (003, 6.3), for many patterns at once.

Each level's expected interval is built from that of the level below, in closed form; ``exact`` gives the
same for one pattern without its approximations, and takes longer. Deviations from the document:

* Equation 6.3 lacks a "- 1", without which a run without failures would take longer than its work.
* Rates are failures per second of each level; the document has shares that need not add up to one.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from dask_hpc.model.level import Level
from dask_hpc.planning.interval.stage import ENDLESS

_FOREVER = 1e6  # periods of a run that does not end


def hierarchical_efficiency(
    levels: Sequence[Level], work: Any, counts: Sequence[Any], periods: Any = _FOREVER
) -> Any:
    """The share of the time that is work, for arrays (of one shape) of the seconds between commits, of the
    counts of each level but the last, and of the periods of a run."""
    numbers = [np.asarray(count, float) for count in (*counts, np.asarray(periods, float) - 1)]
    total = np.asarray(work, float) * prod(number + 1 for number in numbers)
    rates = [level.failures for level in levels]
    whole = sum(rates) or 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        below: list[tuple[float, Any]] = []  # share of failures, and time to get through, of each level
        time = np.asarray(work, float)
        for place, (level, number) in enumerate(zip(levels, numbers, strict=True)):
            up_to_here = sum(rates[: place + 1])
            share = level.failures / whole
            once = _through(time, level.failures)
            below.append((share, once))
            failures = _grown(time, level.failures)
            failed_commits = number * _grown(level.commit, up_to_here)
            restarts = share * failed_commits + failures * (share * failed_commits + number + 1)
            time = (
                (number + 1) * once
                + number * _through(level.commit, up_to_here)
                + restarts * _through(level.restart, up_to_here)
                + failed_commits * sum(part * seconds for part, seconds in below)
            )
        return np.where(np.isfinite(time), total / time, 0.0)


def _grown(seconds: Any, rate: float) -> Any:
    exponent = rate * np.asarray(seconds, float)
    return np.where(exponent > ENDLESS, np.inf, np.expm1(np.minimum(exponent, ENDLESS)))


def _through(seconds: Any, rate: float) -> Any:
    return _grown(seconds, rate) / rate if rate > 0 else np.asarray(seconds, float)
