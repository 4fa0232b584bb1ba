"""Nodes and cores divided between simulation and analyses: orders, invariants, too small machines."""

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc.model.errors import InputError
from dask_hpc.model.partition import EqualNodes, PartitionProblem, Simulation
from dask_hpc.planning.partition import ALL_ORDERS, partition
from tests.planning.partition_problems import brute_force, problems, seconds


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
