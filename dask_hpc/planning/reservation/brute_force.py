"""Where nothing can be kept, the first request fixes all others: those that are best for it follow one from
the other (seed 004, 3.8). A scan of first requests is the document's own way to its sequences; here it is
what the exact program is compared with. It is a saddle: by rounding every sequence turns down or explodes."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite

import numpy as np

from dask_hpc.planning.reservation.law import Law
from dask_hpc.planning.reservation.sequence import Milestone, Setting

#: first requests that are tried
CANDIDATES = 5000
_OVER = 1e-12
_MOST = 200  # requests


@dataclass(frozen=True, slots=True)
class ConvexPrice:
    """What a request costs, as a convex function of its length; its slope, and which length has a price
    (Theorem 14)."""

    of: Callable[[np.ndarray], np.ndarray]
    slope: Callable[[np.ndarray], np.ndarray]
    length: Callable[[np.ndarray], np.ndarray]


def most_first(law: Law, setting: Setting) -> float:
    """No best first request is longer (Theorem 10, in units of the law's mean: the document's bound depends
    on the unit)."""
    if isfinite(law.high):
        return law.high
    cost, unit = setting.cost, law.mean
    least, square = law.low / unit, float(law.moment(2, -inf)) / unit**2
    alpha, beta, gamma = cost.alpha, cost.beta, cost.gamma / unit
    spread = (alpha + beta) / (2 * alpha) * (square - least * least)
    bound = 2 + spread + (alpha + beta + gamma) / alpha * (1 - least)
    return bound * unit if bound < inf else float(law.isf(1e-3))


def brute_force(
    law: Law, setting: Setting, candidates: int = CANDIDATES, price: ConvexPrice | None = None
) -> tuple[Milestone, ...]:
    """The cheapest of the sequences that begin with one of so many first requests (Algorithm 7, which begins
    with a best cost of 0 in print); none if all of them turn down."""
    cost, restart = setting.cost, setting.first_restart
    if price is None:
        alpha, fixed = cost.alpha, cost.gamma + (cost.alpha + cost.beta) * restart
        price = ConvexPrice(
            lambda work: alpha * work + fixed,
            lambda work: np.full(np.shape(work), alpha),
            lambda paid: (paid - fixed) / alpha,
        )
    beta, start, low = cost.beta, setting.saved, law.low
    top = most_first(law, setting)
    first = low + np.arange(1, candidates + 1) / candidates * (top - low) - start
    works = [np.zeros(candidates), first]
    tails = [np.ones(candidates), np.asarray(law.sf(first + start), float)]
    total = price.of(first)
    valid = np.ones(candidates, bool)
    for _ in range(_MOST):
        this, tail_before, tail = works[-1], *tails[-2:]
        goes_on = valid & (tail > _OVER)
        if not goes_on.any():
            break
        with np.errstate(all="ignore"):
            density = np.asarray(law.pdf(this + start), float)
            paid = price.slope(this) * tail_before / density + beta * (tail / density - this)
            following = np.minimum(price.length(paid), law.high - start)
        valid &= ~goes_on | (following > this)
        goes_on &= valid
        following = np.where(goes_on, following, this)
        with np.errstate(invalid="ignore"):  # what has no end is not valid
            total = total + np.where(goes_on, (price.of(following) + beta * this) * tail, 0.0)
        works.append(following)
        tails.append(np.where(goes_on, np.asarray(law.sf(following + start), float), tail))
    valid &= tails[-1] <= _OVER
    if not valid.any():
        return ()
    best = int(np.argmin(np.where(valid, total, inf)))
    found: list[Milestone] = []
    for work in works[1:]:
        if not found or work[best] + start > found[-1].work:
            found.append(Milestone(float(work[best]) + start))
    return tuple(found)
