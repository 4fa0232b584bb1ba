"""A stretch of time that must pass without a failure: the pieces that all models of checkpoints are made of.

Failures come at a constant rate, whatever happened before (003, 2.3.1). Exponents are cut where no run would
ever end.
"""

from math import expm1, inf

#: of an exponent: nobody waits e^600 times as long
ENDLESS = 600.0


def through(seconds: float, rate: float) -> float:
    """Expected time to get through, if a failure costs nothing but the time that was spent."""
    if rate * seconds > ENDLESS:
        return inf
    return expm1(rate * seconds) / rate if rate > 0 else seconds


def failures_before(seconds: float, rate: float) -> float:
    """Expected number of failed tries before one gets through."""
    return inf if rate * seconds > ENDLESS else expm1(rate * seconds)


def mean_failure(seconds: float, rate: float) -> float:
    """When a failure comes on average, given that it comes within these seconds."""
    x = rate * seconds
    if x < 1e-5:  # the exact form loses its digits here
        return seconds / 2 - rate * seconds * seconds / 12
    if x > ENDLESS:
        return 1 / rate
    return 1 / rate - seconds / expm1(x)
