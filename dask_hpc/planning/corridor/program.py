"""Keeping power between two bounds by choosing sizes: the integer program of seed 000, 2.9, corrected.

The printed program lacks the balance of nodes, multiplies a job's whole power by its nodes, and excludes the
state where every job is at its least; here sizes and idle nodes add up to the nodes, watts are per
node, and the balance implies every other bound. The source minimises idle power only; ties are broken by
fewest changed nodes, then by the largest margin to both edges. When no distribution is inside, the nearest is
answered, in the same order. Idle watts are idle nodes times a constant, so idle nodes are counted: that also
settles the order where idle nodes draw nothing.
"""

from typing import Literal

from dask_hpc.planning.corridor.enumerate import enumerate_all
from dask_hpc.planning.corridor.fast import NEAR, search
from dask_hpc.planning.corridor.groups import Groups
from dask_hpc.planning.corridor.milp import has_solver, solve_milp
from dask_hpc.planning.corridor.problem import TINY, CorridorProblem, Distribution, distribution
from dask_hpc.planning.corridor.reach import reachable

How = Literal["auto", "fast", "HiGHS", "CBC"]

_LIMIT = 20_000  # ways to size some of the parts that are looked at


def solve(problem: CorridorProblem, time_limit: float = 1.0, how: How = "auto") -> Distribution:
    """The best distribution.

    "fast" needs no solver. "auto" is that too, and asks HiGHS, if it is installed, for at most ``time_limit``
    seconds only where bounds do not prove the answer: idle or changed nodes, or more than a thousandth of the
    watts outside. Tiny problems are proven by looking at every distribution.
    """
    if how == "HiGHS" or how == "CBC":
        return solve_milp(problem, how, time_limit) or _as_little_as_possible(problem)
    if not problem.parts:
        return distribution(problem, {}, "fast")
    groups = Groups(problem)
    found = search(groups.merged)
    if found is None or not found.is_optimal or found.gap:
        proven = found if found is not None and found.unproven in ("", "changed", "slack") else None
        sizes = enumerate_all(groups.merged, groups.merged.parts, _LIMIT, proven)
        if sizes is not None:
            return distribution(problem, groups.split(sizes), "fast")
    if how == "auto" and _is_doubtful(found) and has_solver("HiGHS"):
        solved = solve_milp(groups.merged, "HiGHS", time_limit, known=found)
        if solved is not None and (found is None or solved.is_optimal or _order(solved) < _order(found)):
            found = solved
    if found is None:
        return _as_little_as_possible(problem)
    return distribution(problem, groups.split(found.sizes), found.how, found.gap, found.unproven)


def _is_doubtful(found: Distribution | None) -> bool:
    """Whether a solver may find something that matters."""
    if found is None or found.unproven in ("idle", "changed"):
        return True
    return found.unproven == "outside" and found.gap > NEAR


def _order(found: Distribution) -> tuple[float, int, int, float]:
    """Its levels, without differences that are the solver's tolerance."""
    outside, idle, changed, slack = found.levels
    return round(outside, 3), idle, changed, slack


def _as_little_as_possible(problem: CorridorProblem) -> Distribution:
    """What always fits."""
    least = {part.id: part.sizes[0] for part in problem.parts}
    return distribution(problem, least, "least sizes", 1.0, "outside")


def guaranteed(problem: CorridorProblem) -> tuple[bool, bool]:
    """Whether the lower and whether the upper bound can be kept, each for itself (seed 000, 2.10).

    The source's closed forms hold for jobs of 1 to all nodes only, and the one for the lower bound
    has a factor too many; this is exact. That both bounds can be kept does not mean that they can be kept
    at once: between the ends of what is reachable there may be holes. ``solve`` tells.
    """
    lowest, highest = reachable(problem)
    return highest >= problem.floor - TINY, lowest <= problem.ceiling + TINY
