"""Where a partition puts steps, analyses and blocks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.model.errors import InputError
from dask_hpc.planning.in_situ.partition import Partition, Phases
from dask_hpc.planning.in_situ.places import PipelineNode, make_places


def partition(nodes, helpers=0, in_situ=(), in_transit=(), mode="async"):
    return Partition(mode, nodes, helpers, tuple(in_situ), tuple(in_transit), Phases(0, 0, 0))


def node(name, *threads):
    return PipelineNode(name, tuple((f"{name}{at}", count) for at, count in enumerate(threads)))


@given(
    st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), min_size=2, max_size=6),
    st.integers(1, 6),
    st.integers(0, 5),
    st.integers(1, 40),
    st.sampled_from(["async", "sync"]),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_every_block_has_one_place_within_the_cores(threads, many, helpers, blocks, mode, is_transit, dice):
    nodes = [node(f"n{at}", *counts) for at, counts in enumerate(threads)]
    addresses = [address for one in nodes for address, _ in one.workers]
    home = {block: dice.choice([*addresses, "gone"]) for block in range(blocks)}
    asked = partition(many, helpers, ["a"], ["b"] if is_transit else [], mode)
    places = make_places(asked, nodes, blocks, home)

    assert sorted(block for place in places.simulation for block in place.blocks) == list(range(blocks))
    room = {address: count for one in nodes for address, count in one.workers}
    for place in places.simulation:
        assert list(place.blocks) == list(range(place.blocks[0], place.blocks[-1] + 1))
        assert place.step_cores >= 1 and place.helper_cores >= 1
        if mode == "sync":
            assert place.step_cores == place.helper_cores == room[place.address]
        elif room[place.address] > 1:
            assert place.step_cores + place.helper_cores == room[place.address]
    simulating = {place.node for place in places.simulation}
    assert len(simulating) <= many
    assert bool(places.staging) == is_transit
    assert simulating.isdisjoint(place.node for place in places.staging)


@given(st.integers(1, 30), st.integers(1, 5), st.integers(1, 3), st.booleans())
def test_what_is_in_place_stays(blocks, nodes, workers, is_transit):
    cluster = [node(f"n{at}", *[2] * workers) for at in range(nodes + 1)]
    asked = partition(nodes, 1, ["a"], ["b"] if is_transit else [])
    once = make_places(asked, cluster, blocks)
    assert make_places(asked, cluster[::-1], blocks, once.home).home == once.home


def test_those_simulate_that_hold_the_state():
    cluster = [node("a", 2), node("b", 2), node("c", 2)]
    home = {0: "c0", 1: "c0", 2: "b0", 3: "b0"}
    places = make_places(partition(2, 1, [], ["x"]), cluster, 4, home)
    assert places.home == home
    assert [place.node for place in places.staging] == ["a"]


def test_blocks_are_in_proportion_to_cores():
    places = make_places(partition(2), [node("a", 1), node("b", 3)], 8)
    assert [len(place.blocks) for place in places.simulation] == [2, 6]
    assert [place.helper_cores for place in places.simulation] == [0, 0]


def test_one_node_cannot_stage():
    with pytest.raises(InputError, match="two nodes"):
        make_places(partition(1, 0, [], ["x"]), [node("a", 2)], 4)
    with pytest.raises(InputError, match="at least one worker"):
        make_places(partition(1), [], 4)
