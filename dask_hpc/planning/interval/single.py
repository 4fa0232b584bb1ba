"""Intervals for one level: the formulas that most people use, as options and to compare with.

``daly`` and ``young`` are those of 003, 6.2 and 3.4 (the document names them without the higher-order terms,
which are from Daly's article of 2006).
"""

from math import exp, expm1, inf, sqrt

from dask_hpc.planning.interval.stage import ENDLESS, through


def young(commit: float, rate: float) -> float:
    """Seconds of work between two commits, to first order (Young, 1974)."""
    return sqrt(2 * commit / rate) if rate > 0 else inf


def daly(commit: float, rate: float) -> float:
    """Seconds of work between two commits, to higher order (Daly, 2006)."""
    if not rate:
        return inf
    mean = 1 / rate
    if commit >= 2 * mean:
        return mean
    part = commit / (2 * mean)
    return sqrt(2 * commit * mean) * (1 + sqrt(part) / 3 + part / 9) - commit


def single_level_time(run: float, work: float, commit: float, restart: float, rate: float) -> float:
    """Expected seconds of a run that commits after each ``work`` seconds, but not at its end (003, 4.5.2 in
    closed form)."""
    if not rate:
        return run + (run / work - 1) * commit
    tries = (run / work - 1) * through(work + commit, rate) + through(work, rate)
    return inf if rate * restart > ENDLESS else exp(rate * restart) * tries


def single_level_efficiency(work: float, commit: float, restart: float, rate: float) -> float:
    """The share of the time that is work, in a run without an end."""
    if not rate:
        return work / (work + commit)
    exponent = rate * (work + commit + restart)
    return rate * work / (exp(rate * restart) * expm1(rate * (work + commit))) if exponent < ENDLESS else 0.0
