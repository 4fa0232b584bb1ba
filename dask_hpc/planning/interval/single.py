"""One level: how often to commit to it, by formulas that people know by their names."""

from math import inf, sqrt


def young(commit: float, rate: float) -> float:
    """Seconds of work between two commits, to first order (Young, 1974)."""
    return sqrt(2 * commit / rate) if rate > 0 else inf


def daly_first_order(commit: float, rate: float) -> float:
    """Seconds of work between two commits, to first order (Daly; 003, 3.8); a commit as dear as two failures
    are apart leaves it nothing, and Young's interval takes its place."""
    found = young(commit, rate)
    return found - commit if found > commit else found


def daly(commit: float, rate: float) -> float:
    """Seconds of work between two commits, to higher order (Daly, 2006)."""
    if not rate:
        return inf
    mean = 1 / rate
    if commit >= 2 * mean:
        return mean
    part = commit / (2 * mean)
    return sqrt(2 * commit * mean) * (1 + sqrt(part) / 3 + part / 9) - commit
