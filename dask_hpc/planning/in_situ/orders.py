"""Which analyses run in situ: one after another in some order, or the best of all subsets (seed 004, 2.6).

The source's Algorithms 1 and 3. Repaired: what was reached is remembered after every accepted move (printed,
later moves are compared with "all in transit"); a schedule is only made once nodes and cores are known; and
the simulation always gets the nodes that its memory and that of the analyses in situ needs (in the text, not
in the listing), without which no single move is viable when memory is tight.
"""

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from dask_hpc.planning.in_situ.partition import Analysis, Partition, PartitionProblem
from dask_hpc.planning.in_situ.phases import (
    PhaseWork,
    in_situ_time,
    in_transit_time,
    iteration_time,
    least_nodes,
    made,
    phase_times,
    simulation_time,
    split_by,
    work_of,
    work_of_each,
)

_HALVINGS = 100  # of an interval: more than a float can tell apart


def relaxed(problem: PartitionProblem, in_situ: Iterable[str]) -> Partition:
    """The best fractions of nodes and cores for this split: no whole numbers are faster."""
    names = set(in_situ)
    nodes, helper = (float(value) for value in fractions(problem, *split_by(problem, names)))
    return made(problem, nodes, helper, names)


def fractions(problem: PartitionProblem, inside: PhaseWork, outside: PhaseWork) -> tuple[Any, Any]:
    """Nodes of the simulation and helper cores of each of them."""
    count = problem.nodes.count
    if np.any(inside.serial + outside.serial > 0) or (problem.simulation.serial and problem.mode == "sync"):
        nodes = _balanced_nodes(problem, inside, outside)
    elif problem.simulation.serial:
        nodes = _amdahl_nodes(problem, inside, outside)
    else:
        nodes = _parallel_nodes(problem, inside, outside)
    needed = (problem.simulation.memory + inside.memory) / problem.nodes.memory
    # hardly any work that is divided needs hardly any staging node, but not none
    most = np.where(outside.parallel + outside.volume > 0, np.nextafter(float(count), 0.0), float(count))
    nodes = np.where(outside.count > 0, np.minimum(np.maximum(nodes, needed), most), count)
    helper = balanced_helpers(problem, nodes, inside) if problem.mode == "async" else np.zeros_like(nodes)
    return nodes, helper


def _parallel_nodes(problem: PartitionProblem, inside: PhaseWork, outside: PhaseWork) -> Any:
    """Theorem 2 with Theorem 1 put in, so that it also holds when nothing is in situ; "sync" is the same."""
    ours = problem.simulation.time + inside.parallel
    theirs = outside.parallel + problem.nodes.cores * outside.volume / problem.nodes.bandwidth
    share = np.where(ours + theirs > 0, ours / np.maximum(ours + theirs, 1e-200), 1.0)
    return problem.nodes.count * share


def _amdahl_nodes(problem: PartitionProblem, inside: PhaseWork, outside: PhaseWork) -> Any:
    """From helper cores and nodes that make all phases equally long, Amdahl's law being the simulation's."""
    machine, serial = problem.nodes, problem.simulation.serial
    cores, count, time = machine.cores, machine.count, problem.simulation.time
    x = inside.parallel
    y = outside.parallel / cores + outside.volume / machine.bandwidth
    q2 = -x * y - (1 - serial) * time * y + serial * time * x * count
    q1 = -x * x + x * y * cores - (1 - serial) * time * x - serial * time * x * count * cores
    helper = _root(q2, q1, x * x * cores)
    in_situ = x * count / np.maximum(x + y * helper, 1e-200)
    # With nothing in situ there is no helper core: the simulation against the staging nodes alone.
    p, q = serial * time, (1 - serial) * time / cores
    alone = _alone(p, q, y, count)
    return np.where(x > 0, in_situ, alone)


def _alone(p: Any, q: Any, y: Any, count: float) -> Any:
    """Where ``p + q / n = y / (count - n)``: the simulation against the staging nodes."""
    # p n (count - n) + q (count - n) - y n = 0 is q count at 0 and -y count at count
    return _root(-p, p * count - q - y, q * count)


def _root(q2: Any, q1: Any, q0: Any) -> Any:
    """The least root above 0 of a parabola that is positive at 0 and has one sign change after it."""
    root = np.sqrt(np.maximum(q1 * q1 - 4 * q2 * q0, 0))
    below = root - q1
    near = np.where(below > 0, 2 * q0 / np.where(below > 0, below, 1), 0.0)
    # where it rises at 0 the difference cancels, and the other form of the root does not
    is_far = (q1 > 0) & (q2 < 0)
    return np.where(is_far, (q1 + root) / np.where(is_far, -2 * q2, 1), near)


def _balanced_nodes(problem: PartitionProblem, inside: PhaseWork, outside: PhaseWork) -> Any:
    """Where what runs on the simulation's nodes takes as long as what runs on the others, by bisection."""
    low = np.zeros(np.shape(inside.parallel))
    high = low + problem.nodes.count
    for _ in range(_HALVINGS):
        nodes = (low + high) / 2
        if problem.mode == "sync":
            cores = nodes * problem.nodes.cores
            ours = simulation_time(problem, cores) + in_situ_time(inside, cores)
        else:
            helper = balanced_helpers(problem, nodes, inside)
            ours = np.maximum(
                simulation_time(problem, nodes * (problem.nodes.cores - helper)),
                in_situ_time(inside, nodes * helper),
            )
        more = ours > in_transit_time(problem, outside, problem.nodes.count - nodes)
        low, high = np.where(more, nodes, low), np.where(more, high, nodes)
    return (low + high) / 2


def balanced_helpers(problem: PartitionProblem, nodes: Any, inside: PhaseWork) -> Any:
    """The helper cores (a fraction) with which the analyses in situ take as long as the simulation.

    ``p + q / (n (c - h)) = r + x / (n h)`` is a quadratic in h; perfectly parallel it is Theorem 1.
    """
    cores, simulation = problem.nodes.cores, problem.simulation
    q, x = simulation.time * (1 - simulation.serial), inside.parallel
    more = nodes * (simulation.time * simulation.serial - inside.serial)
    # more h (c - h) + q h - x (c - h) = 0, which is -x c at 0 and q c at c
    helper = _root(more, -(more * cores + q + x), x * cores)
    return np.where(inside.count > 0, np.clip(helper, 0, cores), 0.0)


def rounded(problem: PartitionProblem, inside: PhaseWork, outside: PhaseWork) -> tuple[Any, Any, Any]:
    """The source's whole numbers, both rounded up, with the guards that it leaves out: nodes, helper cores,
    and whether they can be (memory suffices, and whatever runs has a core to run on).

    The simulation keeps a core, what is in transit keeps a node, what is in situ has a helper core, and the
    simulation has the nodes that its memory and that of the analyses in situ needs.
    """
    nodes, helper = fractions(problem, inside, outside)
    cores, count = problem.nodes.cores, problem.nodes.count
    most = np.where(outside.count > 0, count - 1, count)
    least = least_nodes(problem, inside.memory)
    whole = np.maximum(np.minimum(_up(nodes), most), least)
    can_be = (whole <= most) & (most >= 1)
    if problem.mode == "sync":
        return whole, np.zeros_like(whole), can_be
    helpers = np.where(inside.count > 0, np.clip(_up(helper), 1, max(cores - 1, 1)), 0)
    return whole, helpers, can_be & ((inside.count == 0) | (cores > 1))


def _up(value: Any) -> Any:
    """The next whole number, but not for what rounding errors add."""
    return np.ceil(value * (1 - 1e-12))


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
        more = PhaseWork(*(a + b for a, b in zip(inside, work_of([one]), strict=True)))
        found = _choice(problem, more, everything.without(more), chosen | {one.name})
        if found.time < best.time:
            best, inside, chosen = found, more, found.in_situ
    return best


def _choice(
    problem: PartitionProblem, inside: PhaseWork, outside: PhaseWork, names: frozenset[str]
) -> Choice:
    nodes, helper, can_be = rounded(problem, inside, outside)
    phases = phase_times(problem, nodes, helper, inside, outside)
    time = float(iteration_time(problem, phases)) if can_be else np.inf
    return Choice(time, int(nodes), int(helper), names)


def enumerated(problem: PartitionProblem) -> Choice:
    """The best of all subsets in situ, each with the source's nodes and cores."""
    inside = subset_sums(work_of_each(problem.analyses))
    outside = PhaseWork(*(column[-1] for column in inside)).without(inside)
    nodes, helper, can_be = rounded(problem, inside, outside)
    phases = phase_times(problem, nodes, helper, inside, outside)
    times = np.where(can_be, iteration_time(problem, phases), np.inf)
    best = int(np.argmin(times))
    names = frozenset(one.name for bit, one in enumerate(problem.analyses) if best >> bit & 1)
    return Choice(float(times[best]), int(nodes[best]), int(helper[best]), names)


def subset_sums(each: PhaseWork) -> PhaseWork:
    """The sums over all subsets; bit i of a sum's place says whether analysis i is in it."""
    columns = []
    for column in each:
        sums = np.zeros(1)
        for value in column:
            sums = np.concatenate([sums, sums + value])
        columns.append(sums)
    return PhaseWork(*columns)
