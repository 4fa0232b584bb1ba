"""Redundancy of degree r: a share r - 1 of the nodes has a second node that does the same.

The document's equations (003, Eqs 4.37 to 4.39) are no probabilities where less than two failures fall into
an interval (errata G8); this is exact for its rules with 1 <= r <= 2. A calculation goes on while one node of
each pair lives, and all that failed are back after each commit and each restart. So a stretch of t seconds is
survived with the probability ``e^(-N (2-r) t/M) (1 - (1 - e^(-t/M))^2)^(N (r-1))``, for N nodes that fail
every M seconds.

Whether N nodes write to the store or all r N is not said; "all parameters as without" speaks for N.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from dask_hpc.model.errors import insist, is_number
from dask_hpc.planning.interval import Pattern
from dask_hpc.planning.resilience.hardware import PLACES, Case
from dask_hpc.planning.resilience.prospect import Objective, Prospect, Spending, deviation, least, price

_MOST_INTERVALS = 1_000_000
#: of Gauss and Legendre, in an interval from 0 to 1
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(40)
_POINTS, _WEIGHTS = (_POINTS + 1) / 2, _WEIGHTS / 2


class _Pairs:
    """A case whose nodes have seconds, and what comes of numbers (also arrays) of intervals."""

    def __init__(self, case: Case, degree: float, all_write: bool) -> None:
        calculation = case.calculation
        self.case, self.nodes = case, degree * calculation.nodes
        self.single, self.paired = (2 - degree) * calculation.nodes, (degree - 1) * calculation.nodes
        more = degree if all_write else 1.0
        self.commit, self.restart = case.costs.commit[2] * more, case.costs.restart[2] * more
        #: messages go to both (Eq 4.7)
        self.work = calculation.work * (1 + (degree - 1) * calculation.messages)

    def survival(self, seconds: Any) -> Any:
        alone = seconds / self.case.hardware.mtbf
        return np.exp(self.paired * np.log1p(-(np.expm1(-alone) ** 2)) - self.single * alone)

    def _lived(self, begin: Any, end: Any, z: Any = 0.0) -> Any:
        """Mean seconds between these that are survived (their Laplace transform at z)."""
        begin, end, z = (np.asarray(value)[..., None] for value in (begin, end, z))
        at = begin + (end - begin) * _POINTS
        return np.sum(self.survival(at) * np.exp(-z * at) * _WEIGHTS, -1) * (end - begin)[..., 0]

    def spent(self, intervals: Any) -> Spending:
        work = self.work / intervals
        again = self._lived(0.0, self.restart) / self.survival(self.restart) - self.restart
        restart = Spending(restarts=self.restart, failed_restarts=again)
        done, whole = self.survival(work), self.survival(work + self.commit)
        computing = Spending(computing=self._lived(0.0, work))
        tried, good = self._lived(work, work + self.commit), whole * self.commit
        committing = Spending(commits=good, failed_commits=tried - good)
        spent = (computing + committing + restart * (1 - whole)) * ((intervals - 1) / whole)
        spent += (computing + restart * (1 - done)) * (1 / done)
        return replace(spent, computing=self.work, recomputation=spent.computing - self.work)

    def deviation(self, intervals: Any, mean: Any) -> Any:
        intervals = np.asarray(intervals)[..., None]
        work = self.work / intervals

        def log_transform(z: Any) -> Any:
            def ended(seconds: Any, again: Any) -> Any:
                through = self.survival(seconds) * np.exp(-z * seconds)
                return through / (1 - (1 - through - z * self._lived(0.0, seconds, z)) * again)

            restarted = ended(self.restart, 1.0)
            whole = np.log(ended(work + self.commit, restarted))
            return (intervals - 1) * whole + np.log(ended(work, restarted))

        return deviation(log_transform, mean)

    def cost(self, objective: Objective, intervals: Any) -> Any:
        spent = self.spent(intervals)
        spread = self.deviation(intervals, spent.time) if objective == "steady" else 0.0
        return price(objective, self.case, self.nodes, spent, spread)


def redundancy(
    case: Case, degree: float, objective: Objective = "time", *, all_write: bool = False
) -> Prospect:
    """Redundancy of this degree at its optimum."""
    insist(is_number(degree, 1, 2), "redundancy", degree, "a degree from 1 to 2")
    pairs = _Pairs(case, degree, all_write)
    if pairs.nodes > case.hardware.nodes:
        trouble = f"would need {pairs.nodes:.0f} nodes, of which the machine has {case.hardware.nodes}"
        return Prospect(protocol=_name(degree), case=case, nodes=pairs.nodes, trouble=trouble)
    (intervals,) = least(lambda number: pairs.cost(objective, number), _MOST_INTERVALS)
    return redundancy_at(case, degree, intervals, all_write=all_write)


def redundancy_at(case: Case, degree: float, intervals: int, *, all_write: bool = False) -> Prospect:
    """Redundancy with so many intervals, all but the last of which end with a commit to the store."""
    pairs = _Pairs(case, degree, all_write)
    with np.errstate(all="ignore"):
        spent = pairs.spent(np.array(float(intervals))).at(())
        spread = float(pairs.deviation(np.array(float(intervals)), np.array(spent.time)))
    return Prospect(
        protocol=_name(degree),
        case=case,
        nodes=pairs.nodes,
        places=PLACES[2:],
        pattern=Pattern(pairs.work / intervals) if intervals > 1 else None,
        parts=spent,
        deviation=spread,
    ).settled()


def _name(degree: float) -> str:
    return f"redundancy {degree:g}"
