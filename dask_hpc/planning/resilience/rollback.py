"""Restart and multilevel: after a failure all nodes go back to a commit, in the store or where it is nearest.

Both are computed exactly by ``planning.interval`` (003 digest, 2.6 and 2.11), not by the document's equations
4.19 to 4.27 (errata G6, G7). No commit ends the calculation.
"""

from collections.abc import Sequence

from dask_hpc.planning.interval import TIME, Level, Pattern, best_pattern, energy_weights, parts, run_time
from dask_hpc.planning.interval.spread import deviation
from dask_hpc.planning.resilience.hardware import PLACES, Case
from dask_hpc.planning.resilience.prospect import CAUTION, Objective, Prospect, Spending


def restart(case: Case, objective: Objective = "time") -> Prospect:
    """Commits to the store alone, which all failures need, at their optimum."""
    return _best("restart", case, _store_alone(case), objective)


def restart_at(case: Case, pattern: Pattern | None) -> Prospect:
    return _prospect("restart", case, _store_alone(case), pattern)


def multilevel(case: Case, objective: Objective = "time") -> Prospect:
    """Commits to all places, at their optimum."""
    return _best("multilevel", case, case.levels, objective)


def multilevel_at(case: Case, pattern: Pattern | None) -> Prospect:
    return _prospect("multilevel", case, case.levels, pattern)


def _store_alone(case: Case) -> tuple[Level]:
    costs = case.costs
    return (Level(PLACES[-1], costs.commit[-1], costs.restart[-1], case.failures),)


def _best(protocol: str, case: Case, levels: Sequence[Level], objective: Objective) -> Prospect:
    powers, work = case.hardware.powers, case.calculation.work
    weights = energy_weights(powers.computing, powers.committing) if objective == "energy" else TIME

    def steadier(pattern: Pattern) -> float:
        time = run_time(levels, pattern, work)
        return work / (time + CAUTION * deviation(levels, pattern, work))

    chosen = steadier if objective == "steady" else None
    return _prospect(protocol, case, levels, best_pattern(levels, work, weights, chosen))


def _prospect(protocol: str, case: Case, levels: Sequence[Level], pattern: Pattern | None) -> Prospect:
    work = case.calculation.work
    followed = pattern or Pattern(work, (0,) * (len(levels) - 1))
    spent = parts(levels, followed, work)
    return Prospect(
        protocol=protocol,
        case=case,
        nodes=case.calculation.nodes,
        places=tuple(level.name for level in levels),
        pattern=pattern,
        parts=Spending(
            spent.work,
            spent.commits,
            spent.failed_commits,
            spent.restarts,
            spent.failed_restarts,
            spent.recomputation,
        ),
        deviation=deviation(levels, followed, work),
    ).settled()
