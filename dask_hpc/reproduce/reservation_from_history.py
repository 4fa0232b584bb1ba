"""Plans of reservations from forty past runs, beside what people do with these runs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from dask_hpc.planning.plan_reservation import plan_reservation
from dask_hpc.planning.reservation.cost import CLOUD, WAIT, Cost
from dask_hpc.planning.reservation.law import Law, read_law
from dask_hpc.planning.reservation.plan import ReservationPlan
from dask_hpc.planning.reservation.sequence import Milestone, Setting, expected_cost
from dask_hpc.reproduce.claim import Bench, Claim, Outcome, at_most, direction

#: the laws of seed 004, Table 11.1
LAWS: Mapping[str, str] = {
    "Exponential": "exponential mean=1h",
    "Weibull": "weibull shape=0.5 scale=1h",
    "Gamma": "gamma shape=2 scale=0.5h",
    "Lognormal": "lognormal median=20.085536923187668h sigma=0.5",
    "Pareto": "pareto min=1.5h shape=3",
    "TruncatedNormal": "truncnormal mean=8h std=1.4142135623730951h",
    "Uniform": "uniform min=1h max=20h",
    "Beta": "beta a=2 b=2 min=0 max=1h",
    "BoundedPareto": "boundedpareto min=1h max=20h shape=2.1",
}
_RUNS = 40
_COMMIT = 360.0  # seconds, of a commit and of a restart
#: cost, and what a commit takes
_SETTINGS: Mapping[str, tuple[Cost, float | None]] = {
    "no commits": (CLOUD, None),
    "commits of 6 min": (CLOUD, _COMMIT),
    "waits, no commits": (WAIT, None),
    "waits, commits of 6 min": (WAIT, _COMMIT),
}
_GROWTH = 1.5
_NUMBER = 250  # times of a grid
_RULES = ("longest run", "p99 of the runs")


def run(bench: Bench) -> Outcome:
    """A law is fitted to forty runs of a job (seed 004, 9.2 and 12.2), requests are planned for it, and what
    they cost is computed for the law that the runs were drawn from: the mean over all runs that are still to
    come, without chance. What ends a plan too early is planned on from there. Beside it two rules, which ask
    for half as much again whenever a job has not ended: the longest run first, or the 99th percentile of the
    runs. Both commit whenever that is possible. All is compared with the best plan for the true law, which
    nobody knows.
    """
    found = bench.columns(_one_seed)
    claims: list[Claim] = []
    for setting in _SETTINGS:
        for law in LAWS:
            ours = found[f"{law}, {setting}: ours"]
            text = f"{law}, {setting}: cost over the optimum"
            claims.append(direction(text, "at most 5", ours, at_most(5.0)))
            for rule in _RULES:
                other = found[f"{law}, {setting}: {rule}"]
                less = 100 * (ours - other) / (100 + other)
                beside_it = direction(f"{law}, {setting}: cost beside {rule}", "less", less, at_most(0.0))
                room = f"; it costs {other.mean():.1f} % over the optimum: no plan can save more than that"
                claims.append(replace(beside_it, note=beside_it.note + room))
    return Outcome(claims)


def _one_seed(seed: int) -> dict[str, float]:
    """Of each law and setting: what each way costs over the optimum, in per cent."""
    found = {}
    for number, (name, words) in enumerate(LAWS.items()):
        law = read_law(words)
        runs = law.quantile(np.random.default_rng((seed, number)).random(_RUNS)).tolist()
        firsts = dict(zip(_RULES, (max(runs), float(np.quantile(runs, 0.99))), strict=True))
        for setting, (cost, commit) in _SETTINGS.items():
            terms = _terms(cost, commit)
            best = _optimum(words, cost, commit)
            plan = plan_reservation(runs, commit, cost=cost, number=_NUMBER, compare=False)
            ways = {"ours": _whole(plan, law)}
            for rule, first in firsts.items():
                ways[rule] = _to_the_end(law, [Milestone(first, terms.can_commit)], _GROWTH)
            for way, milestones in ways.items():
                cost_of_it = expected_cost(milestones, law, terms)
                found[f"{name}, {setting}: {way}"] = 100 * (cost_of_it / best - 1)
    return found


def _terms(cost: Cost, commit: float | None) -> Setting:
    return Setting(cost) if commit is None else Setting(cost, commit, commit)


@lru_cache(64)
def _optimum(words: str, cost: Cost, commit: float | None) -> float:
    """Who knows the law."""
    return plan_reservation(words, commit, cost=cost, number=_NUMBER, compare=False).expected


def _whole(plan: ReservationPlan, law: Law) -> Sequence[Milestone]:
    """What comes of a plan where jobs follow this law: whenever it ends before the job does, it is planned on
    from the last commit."""
    found = [Milestone(one.work_until, one.commit) for one in plan.requests]
    while not _is_over(law, found[-1].work):
        kept = max((one.work for one in found if one.commit), default=0.0)
        more = plan.after(kept, found[-1].work)
        found += [Milestone(one.work_until, one.commit) for one in more.requests]
    return found


def _to_the_end(law: Law, found: list[Milestone], growth: float) -> Sequence[Milestone]:
    while not _is_over(law, found[-1].work):
        work, commit = found[-1]
        found.append(Milestone(work * growth, commit))
    return found


def _is_over(law: Law, work: float) -> bool:
    return float(law.sf(work)) * work <= 1e-10 * law.mean
