"""Keeping power between two bounds by choosing sizes: the integer program of seed 000, 2.9, corrected.

The printed program lacks the balance of nodes, multiplies a job's whole power by its nodes, and excludes the
state where every job is at its least; here sizes and idle nodes add up to the nodes, watts are per
node, and the balance implies every other bound. The source minimises idle power only; ties are broken by
fewest changed nodes, then by the largest margin to both edges. When no distribution is inside, the nearest is
answered, in the same order. Idle watts are idle nodes times a constant, so idle nodes are counted: that also
settles the order where idle nodes draw nothing.
"""

from typing import Literal

from dask_hpc.planning.corridor_enumerate import enumerate_all
from dask_hpc.planning.corridor_help import what_would_help
from dask_hpc.planning.corridor_milp import Solver, has_solver, solve_milp
from dask_hpc.planning.corridor_problem import (
    TINY,
    CorridorProblem,
    Distribution,
    Part,
    distribution,
    sizes_of,
)
from dask_hpc.planning.corridor_reach import reachable

__all__ = [
    "CorridorProblem",
    "Distribution",
    "Part",
    "guaranteed",
    "reachable",
    "sizes_of",
    "solve",
    "what_would_help",
]

How = Literal["auto", "fast", "HiGHS", "CBC"]

_LIMIT = 200_000  # ways to size some of the parts that are looked at


def solve(problem: CorridorProblem, time_limit: float = 1.0, how: How = "auto") -> Distribution:
    """The best distribution; ``time_limit`` seconds are for a solver, which "auto" asks only if it must."""
    if how == "auto" or how == "fast":
        sizes = enumerate_all(problem, problem.parts, _LIMIT)
        if sizes is not None:
            return distribution(problem, sizes, "enumeration")
    solver: Solver = "CBC" if how == "CBC" else "HiGHS"
    found = solve_milp(problem, solver, time_limit) if how != "fast" and has_solver(solver) else None
    if found is None:
        return distribution(problem, {p.id: p.sizes[0] for p in problem.parts}, "least sizes", 1.0, "outside")
    return found


def guaranteed(problem: CorridorProblem) -> tuple[bool, bool]:
    """Whether the lower and whether the upper bound can be kept, each for itself (seed 000, 2.10).

    The source's closed forms hold for jobs of 1 to all nodes only, and the one for the lower bound
    has a factor too many; this is exact. That both bounds can be kept does not mean that they can be kept
    at once: between the ends of what is reachable there may be holes. ``solve`` tells.
    """
    lowest, highest = reachable(problem)
    return highest >= problem.floor - TINY, lowest <= problem.ceiling + TINY
