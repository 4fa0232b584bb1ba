"""Bounds without a linear programme: on the right side of it, near it, and fast."""

import subprocess
import sys
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc.model.topology import LinkLevel, Topology, fat_tree, xc30
from dask_hpc.planning.network.bounds import bounds, share_fairly, thetas
from dask_hpc.planning.network.demands import Traffic
from dask_hpc.planning.network.graph import graph_of
from dask_hpc.planning.network.loads import load_of
from dask_hpc.planning.network.program import solve
from tests.planning.network.drawn_networks import draw, paths, sent_by


def worst(topology, jobs):
    """What the worst served job gets at best."""
    return min(solve(topology, jobs, "min").thetas.values())


def test_bounds_are_within_a_tenth_of_the_programme_in_a_hundred_random_cases():
    """Both, for the share of whoever is served worst; and half of the upper ones are it."""
    cases, seed, exact = 0, 0, 0
    while cases < 100:
        topology, jobs = draw(seed)
        seed += 1
        best = worst(topology, jobs)
        if best > 1 - 1e-9:
            continue
        cases += 1
        found = bounds(topology, jobs)
        assert best / 1.1 <= found.least <= best * (1 + 1e-6), seed
        assert best * (1 - 1e-6) <= found.most <= best * 1.1, seed
        exact += found.most <= best * (1 + 1e-6)
    assert exact >= 50


@settings(max_examples=60, deadline=None)
@given(st.integers(1000, 10**9))
def test_no_share_is_above_its_bound_and_every_lower_one_can_be_had(seed):
    topology, jobs = draw(seed)
    best = worst(topology, jobs)
    found = bounds(topology, jobs)
    assert found.least <= best * (1 + 1e-6) and found.most >= best * (1 - 1e-6)
    assert found.least == min(found.thetas.values())
    capacity = graph_of(topology).capacity
    assert (found.loads <= capacity * (1 + 1e-9)).all()
    assert min(thetas(topology, jobs).values()) >= best * (1 - 1e-6)
    for name, job in jobs.items():
        alone = solve(topology, {name: job}).thetas[name]
        assert found.alone[name] >= alone * (1 - 1e-6)
        assert found.thetas[name] <= alone * (1 + 1e-6)
        (single,) = thetas(topology, {name: job}).values()
        assert single == found.alone[name]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9))
def test_even_division_is_that_of_every_path_written_down(seed):
    topology, jobs = draw(seed)
    graph = graph_of(topology)
    for job in jobs.values():
        expected = {}
        for (one, other), rate in sent_by(topology, job).items():
            ways = paths(topology, one, other)
            for way in ways:
                for link in way:
                    expected[link] = expected.get(link, 0.0) + rate / len(ways)
        load = load_of(topology, job)
        found = {}
        for link in np.nonzero(load > 1e-12)[0]:
            source, target = graph.ends_of(int(link))
            depth = len(graph.shape)
            up = ("up", source) if len(source) > len(target) else ("down", target)
            found[up if len(source) != len(target) else (source[:depth], target[:depth])] = load[link]
        assert found == pytest.approx(expected)


def test_a_division_that_is_looked_for_is_better_than_an_even_one():
    """To a service blade a third of all would come over its one optical link."""
    topology = xc30()
    jobs = {"a": Traffic(topology.within(("cabinet0",)), "store")}
    even, found = bounds(topology, jobs, rounds=0), bounds(topology, jobs)
    assert even.least < 0.2 and found.least > 0.85 and found.most == pytest.approx(0.9532, abs=1e-4)


@pytest.mark.parametrize("restart", [False, True])
def test_what_is_at_a_router_has_to_go_by_its_links(restart):
    """Into each service blade, or out of it, by 15 backplane and 5 copper links."""
    topology = xc30()
    jobs = {"a": Traffic(topology.within(("cabinet0",)), "store", stores="own", restart=restart)}
    assert thetas(topology, jobs)["a"] == pytest.approx(20 * 14e9 / (94 * 12.5e9 / 2))


def test_trees_are_exact():
    tree = fat_tree(8, 3, bandwidth=1.0, oversubscription=2.0)
    random = np.random.default_rng(3)
    dealt = [str(name) for name in random.permutation(tree.nodes)]
    jobs = {
        f"job{at}": Traffic(tuple(dealt[40 * at : 40 * at + 40]), rate=float(random.uniform(0.01, 0.2)))
        for at in range(5)
    }
    found = bounds(tree, jobs)
    assert found.least == pytest.approx(found.most) == pytest.approx(worst(tree, jobs), abs=1e-7)
    assert thetas(tree, jobs) == pytest.approx(found.thetas)


def test_shares_grow_together_until_something_is_full():
    needs = np.array([[2.0, 0.0], [2.0, 1.0], [0.0, 1.0]])
    assert share_fairly(needs, np.array([2.0, 2.0]), np.ones(3)) == pytest.approx([0.5, 0.5, 1.0])
    # who is held up elsewhere leaves the rest to the others
    assert share_fairly(needs, np.array([2.0, 1.2]), np.array([0.2, 1, 1])) == pytest.approx([0.2, 0.6, 0.6])
    assert share_fairly(needs, np.array([9.0, 9.0]), np.array([0.3, 1, 0])) == pytest.approx([0.3, 1, 0])
    assert share_fairly(np.zeros((1, 0)), np.zeros(0), np.ones(1)) == pytest.approx([1.0])


def test_nobody_and_nothing():
    topology = xc30(1)
    assert thetas(topology, {}) == {} and bounds(topology, {}).most == 1.0
    jobs = {"silent": Traffic(topology.nodes[:2], rate=0.0)}
    assert thetas(topology, jobs) == {"silent": 1.0} and bounds(topology, jobs).least == 1.0
    together = Topology((LinkLevel("blade", 1.0, "all-to-all"),), {"a": ("b0",), "b": ("b0",), "c": ("b1",)})
    assert thetas(together, {"j": Traffic(("a", "b"), rate=9.0)}) == {"j": 1.0}, "the router is not a link"
    assert thetas(together, {"j": Traffic(("a", "b", "c"), rate=1.0)}) == {"j": 0.5}


def test_a_live_cluster_loads_no_solver():
    code = "import sys, dask_hpc.planning.network.bounds; print('scipy' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "False"


@pytest.mark.timed
def test_one_more_job_takes_about_a_millisecond(seconds_of):
    topology = xc30()
    dealt = [str(name) for name in np.random.default_rng(1).permutation(topology.nodes)]
    jobs = {f"job{at}": Traffic(tuple(dealt[18 * at : 18 * at + 18]), rate=5e9) for at in range(10)}
    thetas(topology, jobs)
    rates = count(6e9)

    def look():
        thetas(topology, {**jobs, "job0": Traffic(jobs["job0"].nodes, rate=next(rates))})

    assert seconds_of(look, 30) < 2e-3
