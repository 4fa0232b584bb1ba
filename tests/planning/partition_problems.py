"""Simulations with analyses to be divided, and the best division by trying all."""

import random
from itertools import chain, combinations
from math import inf

from hypothesis import strategies as st

from dask_hpc.planning.in_situ.orders import subset_sums
from dask_hpc.planning.in_situ.partition import Analysis, EqualNodes, PartitionProblem, Simulation
from dask_hpc.planning.in_situ.phases import fits, iteration_time, phase_times, work_of, work_of_each

TIMES = st.one_of(st.just(0.0), st.sampled_from((1.0, 7.0)), st.floats(0.01, 50))
SHARES = st.one_of(st.just(0.0), st.floats(0, 1))


@st.composite
def problems(draw, most=6, nodes=6, cores=5):
    """Small machines; memory from far too little to more than enough."""
    analyses = tuple(
        Analysis(
            name=f"a{number}",
            time=draw(TIMES),
            memory=draw(TIMES),
            moved=draw(st.one_of(st.none(), TIMES)),
            serial=draw(SHARES),
        )
        for number in range(draw(st.integers(0, most)))
    )
    machine = EqualNodes(
        count=draw(st.integers(1, nodes)),
        cores=draw(st.integers(1, cores)),
        memory=draw(st.one_of(st.just(inf), st.floats(0.1, 100))),
        bandwidth=draw(st.one_of(st.just(inf), st.floats(0.01, 100))),
    )
    simulation = Simulation(time=draw(TIMES), memory=draw(TIMES), serial=draw(SHARES))
    return PartitionProblem(machine, simulation, analyses, draw(st.sampled_from(("async", "sync"))))


def seconds(problem, nodes, helper, inside):
    """An iteration by the formulas of the source, one number at a time; inf for what cannot be."""
    machine, simulation, cores = problem.nodes, problem.simulation, problem.nodes.cores
    outside = [one for one in problem.analyses if one not in inside]
    if (outside and nodes == machine.count) or (inside and helper == 0 and problem.mode == "async"):
        return inf
    if simulation.memory + sum(one.memory for one in inside) > machine.memory * nodes * (1 + 1e-12):
        return inf
    free = cores - helper
    step = simulation.time * (simulation.serial + (1 - simulation.serial) / (nodes * free))
    used = nodes * (cores if problem.mode == "sync" else helper)
    in_situ = sum(one.time * (one.serial + (1 - one.serial) / used) for one in inside)
    left = machine.count - nodes
    in_transit = sum(
        one.time * (one.serial + (1 - one.serial) / (left * cores)) + one.volume / (left * machine.bandwidth)
        for one in outside
    )
    return max(step + in_situ, in_transit) if problem.mode == "sync" else max(step, in_situ, in_transit)


def brute_force(problem):
    """The best over all splits, nodes and helper cores."""
    analyses = problem.analyses
    splits = chain.from_iterable(combinations(analyses, size) for size in range(len(analyses) + 1))
    helpers = range(problem.nodes.cores) if problem.mode == "async" else (0,)
    return min(
        seconds(problem, nodes, helper, inside)
        for inside in splits
        for nodes in range(1, problem.nodes.count + 1)
        for helper in helpers
    )


def instance(analyses, nodes, cores, seed, mode="async", extras=False):
    """As in the source: memory for a third more than the simulation, from plenty of it to far too little."""
    rng = random.Random(f"{analyses} {nodes} {cores} {seed}")
    memory, load = 1.33 / nodes, rng.choice((1.1, 1.2, 1.3, 1.5))
    time = 10 ** rng.uniform(2, 4) * nodes * cores / 400
    peaks = [rng.random() for _ in range(analyses)]
    peaks = [peak / sum(peaks) * (load - 1) for peak in peaks]
    return PartitionProblem(
        EqualNodes(
            count=nodes, cores=cores, memory=memory, bandwidth=rng.choice((0.1, 0.25, 0.5, 1)) * memory
        ),
        Simulation(time=time, memory=1.0, serial=1e-6 if extras else 0.0),
        tuple(
            Analysis(
                name=f"a{number}",
                time=rng.uniform(0.01, 0.1) * time * 8 / analyses,
                memory=peak,
                moved=rng.random() * peak if extras else None,
                serial=rng.choice((0, 1e-6)) if extras else 0.0,
            )
            for number, peak in enumerate(peaks)
        ),
        mode,
    )


def all_subsets(problem):
    """The best over all splits, nodes and helper cores, for more analyses than Python's loops can do."""
    inside = subset_sums(work_of_each(problem.analyses))
    outside = work_of(problem.analyses).without(inside)
    best = float("inf")
    for nodes in range(1, problem.nodes.count + 1):
        allowed = fits(problem, nodes, inside.memory) & ((outside.count == 0) | (nodes < problem.nodes.count))
        for helper in range(problem.nodes.cores) if problem.mode == "async" else (0,):
            can_be = allowed & ((inside.count == 0) | (helper > 0) | (problem.mode == "sync"))
            if can_be.any():
                times = iteration_time(problem, phase_times(problem, nodes, helper, inside, outside))
                best = min(best, float(times[can_be].min()))
    return best
