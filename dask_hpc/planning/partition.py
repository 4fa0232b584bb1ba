"""Nodes and cores of an in situ pipeline divided between its simulation and its analyses (seed 004, 2).

Never raises for a machine that is too small: a pipeline has to go on. What cannot be had is said in the
partition's ``warning``.
"""

from dataclasses import replace
from math import inf

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.partition import Partition, PartitionProblem
from dask_hpc.planning.partition_exact import optimum
from dask_hpc.planning.partition_orders import MOST_ENUMERATED, ORDERS, enumerated, greedy
from dask_hpc.planning.partition_phases import placed
from dask_hpc.planning.partition_split import least_memory

#: how the analyses that run in situ may be chosen
ALL_ORDERS: tuple[str, ...] = ("exact", "enumerate", *ORDERS, "random")


def partition(problem: PartitionProblem, order: str = "exact", *, seed: int = 0) -> Partition:
    """Who runs where so that an iteration takes as short as possible.

    With n nodes that simulate, h helper cores of each and some analyses in situ, an iteration takes, in whole
    numbers, max(simulation on n (c - h) cores, analyses in situ on n h cores, the others on C - n nodes) in
    mode "async", and max(simulation, then analyses in situ, each on n c cores; the others on C - n nodes) in
    mode "sync", where h is 0.

    "exact" is the optimum over all splits, n and h, to a hundred-thousandth of an iteration; if that is not
    proven, ``warning`` says how much shorter an iteration could be. The other orders are the source's:
    "enumerate" tries all subsets with nodes and helper cores rounded up, the rest move one analysis after
    another in situ. ``seed`` is that of "random".
    """
    if order not in ALL_ORDERS:
        raise InputError("order", f"found {shown(order)}", ", ".join(ALL_ORDERS))
    warning = ""
    machine = problem.nodes
    if problem.mode == "async" and machine.count == machine.cores == 1 and problem.analyses:
        problem = replace(problem, mode="sync")
        warning = "a single core: analyses run after the simulation's step, not beside it"
    if order == "enumerate" and len(problem.analyses) > MOST_ENUMERATED:
        order = "exact"
        warning = f"{len(problem.analyses)} analyses have too many subsets to try all: exact instead"
    if order == "exact":
        choice, gap = optimum(problem)
        if gap and choice.time < inf:
            warning = f"not proven to be the best: an iteration could be shorter by {gap:.2g} of its time"
    elif order == "enumerate":
        choice = enumerated(problem)
    else:
        choice = greedy(problem, order, seed)
    if choice.time == inf:
        return least_memory(problem, warning)
    return placed(problem, choice.nodes, choice.helper, choice.in_situ, warning)
