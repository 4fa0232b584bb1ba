"""Nodes and cores divided between simulation and analyses: orders, invariants, too small machines."""

from itertools import chain, combinations
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc.model.errors import InputError
from dask_hpc.model.partition import Analysis, EqualNodes, PartitionProblem, Simulation
from dask_hpc.planning.partition import ALL_ORDERS, partition

TIMES = st.one_of(st.just(0.0), st.floats(0.01, 50))
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


@settings(max_examples=150, deadline=None)
@given(problems())
def test_exact_is_the_best_of_all(problem):
    found, best = partition(problem), brute_force(problem)
    if best == inf:
        assert found.warning
    else:
        assert found.warning == "" and found.iteration == pytest.approx(best, rel=1e-9, abs=1e-12)


@settings(max_examples=150, deadline=None)
@given(problems(), st.sampled_from(ALL_ORDERS))
def test_what_every_order_keeps(problem, order):
    found = partition(problem, order)
    names = {one.name: one for one in problem.analyses}
    assert sorted(found.in_situ + found.in_transit) == sorted(names)
    assert 1 <= found.nodes <= problem.nodes.count - bool(found.in_transit)
    assert 0 <= found.helper_cores < problem.nodes.cores
    if not found.warning:
        inside = [names[name] for name in found.in_situ]
        expected = seconds(problem, found.nodes, found.helper_cores, inside)
        assert found.iteration == pytest.approx(expected) and expected < inf
        best = partition(problem).iteration
        assert found.iteration >= best * (1 - 1e-9)
        if order not in ("exact", "enumerate"):
            assert partition(problem, "enumerate").iteration <= found.iteration * (1 + 1e-9)


def test_an_order_that_is_not_known():
    problem = PartitionProblem(EqualNodes(count=2, cores=2), Simulation(time=1), ())
    with pytest.raises(InputError, match="order: found 'fast'; allowed: exact, enumerate, inc"):
        partition(problem, "fast")
