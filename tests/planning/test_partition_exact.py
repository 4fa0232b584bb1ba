"""The exact partition: the search against all subsets, what it proves, and how long it takes."""

from math import inf
from time import process_time

import pytest
from hypothesis import given, settings

from dask_hpc.planning.in_situ import plan as partition_exact
from dask_hpc.planning.in_situ import search as partition_search
from dask_hpc.planning.in_situ.plan import ALL_ORDERS, partition
from tests.planning.partition_problems import all_subsets, brute_force, instance, problems


@pytest.mark.slow
@pytest.mark.parametrize("core, listed", [(2, 1 << 14), (16, 1 << 14), (2, 4)])
@settings(max_examples=150, deadline=None)
@given(problem=problems())
def test_the_search_finds_what_trying_all_finds(core, listed, problem):
    best = brute_force(problem)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition_exact, "_FEW", 0)
        patch.setattr(partition_search, "_CORE", core)
        patch.setattr(partition_search, "_LISTED", listed)
        found, gap = partition_exact.optimum(problem)
    if best == inf:
        assert found.time == inf
        return
    # Lists of four sums are too short to prove much, but what they claim must be true.
    assert not gap or listed == 4
    assert best * (1 - 1e-9) <= found.time <= best / (1 - gap) * (1 + 1.1e-5) + 1e-12


@pytest.mark.parametrize("mode", ["async", "sync"])
@pytest.mark.parametrize("extras", [False, True])
@pytest.mark.parametrize("analyses", [12, 14])
def test_the_search_on_machines_that_can_be_enumerated(analyses, extras, mode):
    for seed in range(6):
        problem = instance(analyses, 8, 6, seed, mode, extras)
        found, best = partition(problem), all_subsets(problem)
        assert not found.warning and best <= found.iteration * (1 + 1e-9)
        assert found.iteration == pytest.approx(best, rel=1e-9 if analyses == 12 else 1.1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("extras", [False, True])
@pytest.mark.parametrize("mode", ["async", "sync"])
def test_no_order_is_better_on_large_machines(mode, extras):
    for seed in range(2):
        problem = instance(40, 300, 32, seed, mode, extras)
        best = partition(problem).iteration
        for order in {*ALL_ORDERS} - {"exact", "enumerate"}:
            assert partition(problem, order).iteration >= best * (1 - 1e-9)


@pytest.mark.timed
def test_sixty_analyses_on_a_thousand_nodes_of_sixty_four_cores():
    partition(instance(60, 1000, 64, 0))
    for seed in range(1, 13):
        problem, took = instance(60, 1000, 64, seed, "async" if seed % 3 else "sync"), []
        for _ in range(3):
            began = process_time()
            found = partition(problem)
            took.append(process_time() - began)
        assert not found.warning
        assert min(took) < 0.1, f"seed {seed}"
