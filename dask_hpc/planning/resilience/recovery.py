"""Parallel recovery: messages are logged, and some nodes recompute together what a failed one has lost.

The document's equations (003, Eqs 4.28 to 4.33) go negative for large calculations; this is exact for its
rules (digest 2.7.2). There are commits to a partner's memory, and to the store after some of these. After a
failure that a partner survives, a restart takes R, what was computed in the x seconds since the last commit
is recovered in x/speedup, and the work goes on from where it was; a failure in between starts both again.
A failure that only the store survives sends the calculation back to its last commit there.

Between two commits to the store (a *block*) the process has no memory but x, so probabilities of getting
through without the worst failure multiply, and so do Laplace transforms: a transform at z is the probability
with z more of the worst failures.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dask_hpc.planning.interval import Pattern, failures_before
from dask_hpc.planning.resilience.hardware import PLACES, Case
from dask_hpc.planning.resilience.prospect import Objective, Prospect, Spending, deviation, least, price

_MOST_BLOCKS, _MOST_COMMITS = 100_000, 1_000_000
#: of Gauss and Legendre, in an interval from 0 to 1
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_POINTS, _WEIGHTS = (_POINTS + 1) / 2, _WEIGHTS / 2


class _Rules(NamedTuple):
    """Of failures that are recovered from and of those that are not, per second; seconds; how much sooner."""

    mild: float
    worst: Any
    restart: float
    speedup: float

    @property
    def any(self) -> Any:
        return self.mild + self.worst

    def computed(self, work: Any) -> Any:
        """Logarithm of the probability that so much work is done before the worst failure."""
        begun = self.worst + self.mild * np.exp(-self.any * self.restart)
        ended = self.worst + self.mild * np.exp(-self.any * (self.restart + work / self.speedup))
        return self.speedup * np.log(begun / ended) - self.any * work

    def recovered(self, work: Any) -> tuple[Any, Any]:
        """How likely so much work is recovered before the worst failure, and mean tries."""
        through = np.exp(-self.any * (self.restart + work / self.speedup))
        tries = self.any / (self.worst + self.mild * through)
        return tries * through, tries

    def committed(self, cost: float, work: Any) -> tuple[Any, Any]:
        """The same of a commit after so much work, which is recovered after each try that fails."""
        through = np.exp(-self.any * cost)
        tries = 1 / (1 - self.mild / self.any * (1 - through) * self.recovered(work)[0])
        return tries * through, tries

    def recovering(self, work: Any) -> Spending:
        """What is spent on recovering so much work once, until that or the worst failure ends it."""
        tries = self.recovered(work)[1]
        restarted = np.exp(-self.any * self.restart)
        good = tries * restarted * self.restart
        return Spending(
            restarts=good,
            failed_restarts=tries * (1 - restarted) / self.any - good,
            recovery=tries * restarted * -np.expm1(-self.any * work / self.speedup) / self.any,
        )

    def computing(self, work: Any) -> Spending:
        """What is spent on so much work, likewise."""
        at = np.asarray(work)[..., None] * _POINTS
        begun = np.exp(self.computed(at))
        rates = Spending(computing=begun) + self.recovering(at) * (self.mild * begun)
        return Spending(*(np.sum(rate * _WEIGHTS, -1) * work for rate in rates))

    def committing(self, cost: float, work: Any) -> Spending:
        """What is spent on a commit after so much work, likewise."""
        done, tries = self.committed(cost, work)
        tried, good = tries * -np.expm1(-self.any * cost) / self.any, done * cost
        own = Spending(commits=good, failed_commits=tried - good)
        return own + self.recovering(work) * (self.mild * tried)


class _Blocks:
    """A case, and what comes of numbers (also arrays) of blocks and of the commits to partners in each."""

    def __init__(self, case: Case) -> None:
        self.case, self.costs, self.rate = case, case.costs, case.failures
        worst = case.hardware.severity[2] * self.rate
        self.rules = _Rules(self.rate - worst, worst, self.costs.restart[1], case.hardware.speedup)
        #: messages are logged (Eq 4.6)
        self.work = case.calculation.work * (1 + case.calculation.messages / 10)

    def spent(self, blocks: Any, commits: Any) -> Spending:
        rules, work = self.rules, self.work / (blocks * (commits + 1))
        _, partner, store = self.costs.commit
        computing, done = rules.computing(work), np.exp(rules.computed(work))
        step = self._through(rules, work)
        # intervals that are begun before the last of a block, and how likely that is
        again = np.exp(commits * step)
        begun = np.where(step > -1e-12, commits, np.expm1(commits * step) / np.expm1(step))
        first = (computing + rules.committing(partner, work) * done) * begun + computing * again
        last, block = again * done, again * done * rules.committed(store, work)[0]
        seconds = self.costs.restart[2]
        failed = failures_before(seconds, self.rate) / self.rate - seconds
        restart = Spending(restarts=seconds, failed_restarts=failed)
        whole = first + rules.committing(store, work) * last + restart * (1 - block)
        spent = whole * np.where(blocks > 1, (blocks - 1) / block, 0.0)
        spent += (first + restart * (1 - last)) * (1 / last)
        return replace(spent, computing=self.work, recomputation=spent.computing - self.work)

    def _through(self, rules: _Rules, work: Any) -> Any:
        """Logarithm of the probability of so much work and a commit to a partner."""
        return rules.computed(work) + np.log(rules.committed(self.costs.commit[1], work)[0])

    def deviation(self, blocks: Any, commits: Any, mean: Any) -> Any:
        blocks, commits = np.asarray(blocks)[..., None], np.asarray(commits)[..., None]
        work = self.work / (blocks * (commits + 1))

        def log_transform(z: Any) -> Any:
            rules = self.rules._replace(worst=self.rules.worst + z)
            restarted = np.exp(-(self.rate + z) * self.costs.restart[2])
            restarted = restarted / (1 - self.rate / (self.rate + z) * (1 - restarted))
            back = self.rules.worst / rules.worst * restarted
            last = commits * self._through(rules, work) + rules.computed(work)
            block = last + np.log(rules.committed(self.costs.commit[2], work)[0])
            ends = [log - np.log(1 - back * (1 - np.exp(log))) for log in (last, block)]
            return ends[0] + np.where(blocks > 1, (blocks - 1) * ends[1], 0.0)

        return deviation(log_transform, mean)

    def cost(self, objective: Objective, blocks: Any, commits: Any) -> Any:
        spent = self.spent(blocks, commits)
        spread = self.deviation(blocks, commits, spent.time) if objective == "steady" else 0.0
        return price(objective, self.case, self.case.calculation.nodes, spent, spread)


def recovery(case: Case, objective: Objective = "time") -> Prospect:
    """Parallel recovery at its optimum."""
    way = _Blocks(case)
    most = _MOST_BLOCKS if case.hardware.severity[2] else 1
    found = least(lambda blocks, each: way.cost(objective, blocks, each - 1), most, _MOST_COMMITS)
    return recovery_at(case, found[0], found[1] - 1)


def recovery_at(case: Case, blocks: int, commits: int) -> Prospect:
    """Parallel recovery with so many blocks, all but the last of which end with a commit to the store, and so
    many commits to partners in each."""
    way, intervals = _Blocks(case), blocks * (commits + 1)
    with np.errstate(all="ignore"):
        spent = way.spent(np.array(blocks), np.array(commits)).at(())
        spread = float(way.deviation(blocks, commits, spent.time))
    return Prospect(
        protocol="recovery",
        case=case,
        nodes=case.calculation.nodes,
        places=PLACES[1:],
        pattern=Pattern(way.work / intervals, (commits,)) if intervals > 1 else None,
        parts=spent,
        deviation=spread,
    ).settled()
