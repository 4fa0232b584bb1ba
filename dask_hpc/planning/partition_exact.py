"""The best split together with the best whole numbers of nodes and helper cores."""

import numpy as np

from dask_hpc.model.partition import PartitionProblem
from dask_hpc.planning.partition_orders import (
    MOST_ENUMERATED,
    ORDERS,
    Choice,
    enumerated,
    greedy,
    subset_sums,
)
from dask_hpc.planning.partition_phases import Work, fits, iteration_time, phase_times, work_of_each


def optimum(problem: PartitionProblem) -> Choice:
    """The best choice there is; its time is inf if none fits."""
    if len(problem.analyses) > MOST_ENUMERATED:
        return min((greedy(problem, order) for order in ORDERS), key=lambda choice: choice.time)
    best = enumerated(problem)
    inside = subset_sums(work_of_each(problem.analyses))
    outside = Work(*(column[-1] for column in inside)).without(inside)
    for nodes in range(1, problem.nodes.count + 1):
        allowed = fits(problem, nodes, inside.memory)
        if nodes == problem.nodes.count:
            allowed &= outside.count == 0
        if not allowed.any():
            continue
        for helper in range(problem.nodes.cores) if problem.mode == "async" else (0,):
            now = allowed & (inside.count == 0) if problem.mode == "async" and helper == 0 else allowed
            with np.errstate(divide="ignore"):
                phases = phase_times(problem, nodes, helper, inside, outside)
            times = np.where(now, iteration_time(problem, phases), np.inf)
            place = int(np.argmin(times))
            if times[place] < best.time:
                names = frozenset(one.name for bit, one in enumerate(problem.analyses) if place >> bit & 1)
                best = Choice(float(times[place]), nodes, helper, names)
    return best
