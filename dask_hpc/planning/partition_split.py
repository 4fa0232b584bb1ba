"""The best whole numbers of nodes and helper cores for a given split of the analyses, by trying all."""

from collections.abc import Iterable

import numpy as np

from dask_hpc.model.partition import Partition, PartitionProblem
from dask_hpc.planning.partition_phases import fits, iteration_time, phase_times, placed, split_by


def with_split(problem: PartitionProblem, in_situ: Iterable[str], warning: str = "") -> Partition | None:
    """The best partition in which just these analyses run in situ; None if no core or node is left for some.

    If no number of nodes has the memory, it has as many nodes as there may be and says so.
    """
    names = set(in_situ)
    inside, outside = split_by(problem, names)
    most = problem.nodes.count - (outside.count > 0)
    helpers = np.zeros(1) if problem.mode == "sync" or not inside.count else np.arange(1, problem.nodes.cores)
    if most < 1 or not len(helpers):
        return None
    nodes = np.arange(1, most + 1)[:, None]
    nodes = nodes[fits(problem, nodes[:, 0], inside.memory)]
    if not len(nodes):
        nodes = np.array([[most]])
    times = iteration_time(problem, phase_times(problem, nodes, helpers, inside, outside))
    row, column = np.unravel_index(np.argmin(times), times.shape)
    return placed(problem, int(nodes[row, 0]), int(helpers[column]), names, warning)


def least_memory(problem: PartitionProblem, warning: str = "") -> Partition:
    """What needs the least memory of a node, for a machine on which nothing fits."""
    splits = (frozenset[str](), frozenset(one.name for one in problem.analyses))
    found = [one for names in splits if (one := with_split(problem, names, warning))]
    memory = {one.name: one.memory for one in problem.analyses}
    needed = [problem.simulation.memory + sum(memory[name] for name in one.in_situ) for one in found]
    return min(zip(needed, found, strict=True), key=lambda pair: pair[0] / pair[1].nodes)[1]
