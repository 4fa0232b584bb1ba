"""Nodes and cores divided between simulation and analyses: orders, invariants, too small machines."""

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc.model.errors import InputError
from dask_hpc.planning.in_situ.partition import Analysis, EqualNodes, PartitionProblem, Simulation
from dask_hpc.planning.in_situ.plan import ALL_ORDERS, partition
from tests.planning.partition_problems import brute_force, problems, seconds


@settings(max_examples=150, deadline=None)
@given(problems())
def test_exact_is_the_best_of_all(problem):
    found, best = partition(problem), brute_force(problem)
    if best == inf:
        assert found.warning
    else:
        assert found.warning == "" and found.iteration == pytest.approx(best, rel=1e-9, abs=1e-12)


@pytest.mark.slow
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


def problem(count=4, cores=4, memory=inf, analyses=2, mode="async", step=100.0, held=10.0, bandwidth=inf):
    machine = EqualNodes(count=count, cores=cores, memory=memory, bandwidth=bandwidth)
    each = (Analysis(name=f"a{number}", time=20, memory=5) for number in range(analyses))
    return PartitionProblem(machine, Simulation(time=step, memory=held), tuple(each), mode)


@pytest.mark.parametrize("mode", ["async", "sync"])
@pytest.mark.parametrize("order", ALL_ORDERS)
def test_nothing_can_be_staged_on_one_node(mode, order):
    found = partition(problem(count=1, mode=mode), order)
    assert (found.nodes, found.in_situ, found.warning) == (1, ("a0", "a1"), "")
    assert 1 <= found.helper_cores <= 3 if mode == "async" else found.helper_cores == 0


@pytest.mark.parametrize("order", ALL_ORDERS)
def test_one_core_has_no_helper(order):
    found = partition(problem(cores=1), order)
    assert (found.helper_cores, found.in_transit, found.warning) == (0, ("a0", "a1"), "")
    assert 1 <= found.nodes <= 3


@pytest.mark.parametrize("order", ALL_ORDERS)
def test_a_single_core_takes_turns_and_says_so(order):
    found = partition(problem(count=1, cores=1), order)
    assert (found.mode, found.nodes, found.helper_cores, found.in_situ) == ("sync", 1, 0, ("a0", "a1"))
    assert found.iteration == 140 and "after the simulation's step" in found.warning


@pytest.mark.parametrize("mode", ["async", "sync"])
@pytest.mark.parametrize("order", ALL_ORDERS)
def test_without_analyses_all_nodes_simulate(mode, order):
    found = partition(problem(analyses=0, mode=mode), order)
    assert (found.nodes, found.helper_cores, found.iteration) == (4, 0, 100 / 16) and not found.warning


@pytest.mark.parametrize("mode", ["async", "sync"])
@pytest.mark.parametrize("order", ALL_ORDERS)
def test_everything_in_situ_leaves_no_node_idle(mode, order):
    found = partition(problem(mode=mode, bandwidth=0.001), order)
    assert found.nodes == 4 and not found.in_transit


@pytest.mark.parametrize("order", ALL_ORDERS)
def test_zero_times_and_no_limits(order):
    analyses = tuple(Analysis(name=name, time=0) for name in "ab")
    for mode in ("async", "sync"):
        one = PartitionProblem(EqualNodes(count=3, cores=2), Simulation(time=0), analyses, mode)
        found = partition(one, order)
        assert found.iteration == 0 and not found.warning
        assert not found.in_transit or found.nodes < 3
        assert not found.in_situ or found.helper_cores or mode == "sync"


@pytest.mark.parametrize("order", ALL_ORDERS)
def test_a_machine_without_the_memory_is_told_and_used_nevertheless(order):
    found = partition(problem(memory=2.0), order)
    assert "memory does not suffice: 3 nodes that simulate need 3.33 B each and have 2 B" in found.warning
    assert not found.in_situ and found.iteration < inf
    crowded = partition(problem(count=1, memory=2.0), order)
    assert "memory does not suffice: 1 node that simulates needs 20 B" in crowded.warning
