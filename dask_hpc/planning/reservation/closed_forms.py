"""Laws for which the best sequence is a formula (seed 004, 3.7 and 3.8)."""

from math import ceil, exp, isfinite, sqrt
from typing import NamedTuple

from dask_hpc.planning.reservation.law import ContinuousLaw, Law
from dask_hpc.planning.reservation.sequence import Milestone, Setting


class Periodic(NamedTuple):
    """Seconds of work between two commits, and the mean cost of a job that begins."""

    period: float
    expected: float


def exponential_always(rate: float, setting: Setting) -> Periodic:
    """For a job that ends at a constant rate, whatever it has done: each request adds as much, and commits.

    The document proves that it is periodic (Theorem 8); the period solves e^x = 1 + x + K, with x its share
    of the mean and K what a commit, a restart and a request cost. Its proof's constants are wrong.
    """
    from scipy.special import lambertw

    alpha, beta, gamma = setting.cost.alpha, setting.cost.beta, setting.cost.gamma
    kept = setting.checkpoint + setting.restart
    price = rate * kept + rate * (beta * kept + gamma) / alpha
    # near its end that branch loses its digits: the root of x^2 / 2 + x^3 / 6 = K is closer there
    x = -1 - price - float(lambertw(-exp(-1 - price), -1).real) if price > 1e-8 else sqrt(2 * price)
    whole = beta / rate + alpha / rate * exp(x) - alpha * setting.restart - beta * kept
    return Periodic(x / rate, whole)


#: of the law with mean 1, where nothing is kept and a request costs its length (Proposition 5, whose first
#: request is a little too short): the first request, and the mean cost
EXPONENTIAL_FIRST = 0.7465420140272309
EXPONENTIAL_NEVER = 2.36449776944801


def uniform_chunks(low: float, high: float, checkpoint: float, restart: float, chunks: int) -> float:
    """The mean cost of equal chunks for a uniform law, where a request costs its length (Proposition 3, whose
    example is miscounted)."""
    n = chunks
    return (
        (n - 1) / (2 * n) * low
        + (n + 1) / (2 * n) * high
        + (n * n + n - 2) / (2 * n) * checkpoint
        + (n - 1) / 2 * restart
    )


def uniform_best(low: float, high: float, checkpoint: float, restart: float) -> int:
    """How many equal chunks cost least."""
    spare = high - low - 2 * checkpoint
    if spare <= 0:
        return 1
    if checkpoint + restart <= 0:
        return _MOST_CHUNKS
    ideal = int(min(sqrt(spare / (checkpoint + restart)), _MOST_CHUNKS))
    few = (max(1, ideal), ideal + 1)
    return min(few, key=lambda n: uniform_chunks(low, high, checkpoint, restart, n))


_MOST_CHUNKS = 10_000
#: work after which a job that ends at a constant rate is never still there
_OVER = 40.0


def by_formula(law: Law, setting: Setting) -> list[tuple[Milestone, ...]]:
    """Sequences that a formula gives for this law; one of them may be the best."""
    if not isinstance(law, ContinuousLaw) or isfinite(setting.longest):
        return []
    found: list[tuple[Milestone, ...]] = []
    if law.family == "uniform":
        found.append((Milestone(law.high),))
    if law.family == "exponential" and not isfinite(law.high) and setting.can_commit:
        period = exponential_always(1 / law.scale, setting).period
        if period > _OVER / _MOST_CHUNKS * law.scale:
            start, number = law.low, ceil(_OVER * law.scale / period)
            found.append(tuple(Milestone(start + n * period, True) for n in range(1, number + 1)))
    return found
