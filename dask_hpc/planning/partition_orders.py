"""Which analyses run in situ: one after another in some order, or the best of all subsets (seed 004, 2.6).

The source's Algorithms 1 and 3. Repaired: what was reached is remembered after every accepted move (printed,
later moves are compared with "all in transit"); a schedule is only made once nodes and cores are known; and
the simulation always gets the nodes that its memory and that of the analyses in situ needs (in the text, not
in the listing), without which no single move is viable when memory is tight.
"""

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from dask_hpc.model.partition import Analysis, PartitionProblem
from dask_hpc.planning.partition_phases import Work, iteration_time, phase_times, work_of, work_of_each
from dask_hpc.planning.partition_relaxed import rounded

#: more analyses than this have too many subsets
MOST_ENUMERATED = 20


class Choice(NamedTuple):
    """Nodes, helper cores and analyses in situ; ``time`` is that of an iteration, inf if it cannot be."""

    time: float
    nodes: int
    helper: int
    in_situ: frozenset[str]


ORDERS: dict[str, Callable[[Analysis], float]] = {
    "increasing-time": lambda one: one.time,
    "decreasing-time": lambda one: -one.time,
    "increasing-peak": lambda one: one.memory,
    "decreasing-peak": lambda one: -one.memory,
}


def ordered(analyses: Sequence[Analysis], order: str, seed: int = 0) -> list[Analysis]:
    """The analyses in one of these orders, or in a "random" one that only depends on names and the seed."""
    if order == "random":
        return sorted(analyses, key=lambda one: blake2b(f"{seed} {one.name}".encode()).digest())
    return sorted(analyses, key=ORDERS[order])


def greedy(problem: PartitionProblem, order: str, seed: int = 0) -> Choice:
    """Move analyses in situ one by one, and keep every move that makes an iteration shorter."""
    everything = work_of(problem.analyses)
    best = _choice(problem, work_of(()), everything, frozenset())
    inside, chosen = work_of(()), frozenset[str]()
    for one in ordered(problem.analyses, order, seed):
        more = Work(*(a + b for a, b in zip(inside, work_of([one]), strict=True)))
        found = _choice(problem, more, everything.without(more), chosen | {one.name})
        if found.time < best.time:
            best, inside, chosen = found, more, found.in_situ
    return best


def _choice(problem: PartitionProblem, inside: Work, outside: Work, names: frozenset[str]) -> Choice:
    nodes, helper, can_be = rounded(problem, inside, outside)
    phases = phase_times(problem, nodes, helper, inside, outside)
    time = float(iteration_time(problem, phases)) if can_be else np.inf
    return Choice(time, int(nodes), int(helper), names)


def enumerated(problem: PartitionProblem) -> Choice:
    """The best of all subsets in situ, each with the source's nodes and cores."""
    inside = subset_sums(work_of_each(problem.analyses))
    outside = Work(*(column[-1] for column in inside)).without(inside)
    nodes, helper, can_be = rounded(problem, inside, outside)
    phases = phase_times(problem, nodes, helper, inside, outside)
    times = np.where(can_be, iteration_time(problem, phases), np.inf)
    best = int(np.argmin(times))
    names = frozenset(one.name for bit, one in enumerate(problem.analyses) if best >> bit & 1)
    return Choice(float(times[best]), int(nodes[best]), int(helper[best]), names)


def subset_sums(each: Work) -> Work:
    """The sums over all subsets; bit i of a sum's place says whether analysis i is in it."""
    columns = []
    for column in each:
        sums = np.zeros(1)
        for value in column:
            sums = np.concatenate([sums, sums + value])
        columns.append(sums)
    return Work(*columns)
