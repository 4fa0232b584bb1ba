"""Sizes that keep power between two bounds: the corridor's integer program and how it is solved."""

from dask_hpc.planning.corridor.enumeration import reachable
from dask_hpc.planning.corridor.integer_program import How, guaranteed, solve
from dask_hpc.planning.corridor.plan import what_would_help
from dask_hpc.planning.corridor.problem import CorridorProblem, Distribution, Part, sizes_of

__all__ = [
    "CorridorProblem",
    "Distribution",
    "How",
    "Part",
    "guaranteed",
    "reachable",
    "sizes_of",
    "solve",
    "what_would_help",
]
