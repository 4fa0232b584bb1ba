"""The samples of the in situ study: the platform of the source, the same analyses for everybody."""

import numpy as np
import pytest

from dask_hpc.planning.in_situ.plan import partition
from dask_hpc.reproduce.claim import Bench
from dask_hpc.reproduce.in_situ import (
    BANDWIDTHS,
    FIELDS,
    HEURISTICS,
    OPTIMAL,
    ORDERS,
    OURS,
    Setup,
    curves,
    per_cent,
    problem_of,
    ranked,
)

SETUP = Setup(modes=("async", "sync"))


def test_the_platform_of_the_source():
    problem = problem_of(SETUP, 1.4, 3, 0.25, "async")
    nodes = problem.nodes
    assert (nodes.count, nodes.cores, len(problem.analyses)) == (50, 8, 8)
    assert nodes.count * nodes.memory == pytest.approx(1.33) and nodes.bandwidth == nodes.memory / 4
    assert problem.simulation.memory == 1
    assert sum(one.memory for one in problem.analyses) == pytest.approx(0.4), "memory load 1.4"
    assert all(10 <= one.time <= 100 for one in problem.analyses)


def test_one_sample_is_the_same_for_every_bandwidth_mode_and_number_of_cores():
    first = problem_of(SETUP, 1.4, 3, 0.25, "async").analyses
    assert problem_of(Setup(cores=64), 1.4, 3, 1.0, "sync").analyses == first
    assert problem_of(SETUP, 1.4, 4, 0.25, "async").analyses != first
    assert problem_of(SETUP, 1.5, 3, 0.25, "async").analyses != first


def test_figures_are_those_of_the_partitions():
    found = curves(Bench(2), SETUP, (1.1, 1.3))
    for mode in SETUP.modes:
        for bandwidth in BANDWIDTHS:
            for order in ORDERS:
                problem = problem_of(SETUP, 1.3, 1, bandwidth, mode)
                chosen = partition(problem, order, seed=1)
                values = {name: found.of(name, order, bandwidth, mode)[1, 1] for name in FIELDS}
                assert values["time"] == chosen.iteration and values["in_transit"] == chosen.phases.in_transit
                inside = [one for one in problem.analyses if one.name in chosen.in_situ]
                assert values["memory"] == pytest.approx(sum(one.memory for one in inside))
                assert values["work"] == pytest.approx(sum(one.time for one in inside))
            for order in HEURISTICS:
                assert (found.normalised(order, bandwidth, mode) >= 1 - 1e-12).all()
            assert (found.normalised(OURS, bandwidth, mode) <= 1 + 1e-12).all()
            assert (found.normalised(OPTIMAL, bandwidth, mode) == 1).all()
            assert sorted(ranked(found, bandwidth, mode)) == sorted(HEURISTICS)


def test_only_the_product_of_time_and_bandwidth_matters():
    slow = curves(Bench(2), Setup(t_sim=10_000.0, bandwidths=(0.1,)), (1.3,))
    fast = curves(Bench(2), Setup(t_sim=1000.0, bandwidths=(1.0,)), (1.3,))
    for order in HEURISTICS:
        assert slow.normalised(order, 0.1) == pytest.approx(fast.normalised(order, 1.0))


def test_per_cent_is_over_samples():
    one = per_cent(np.array([[1.1, 1.3], [1.3, 1.5]]))
    assert one.mean() == pytest.approx(30) and one.std() > 0
