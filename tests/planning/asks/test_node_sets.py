"""Free pieces of nodes over time, against a plain count of them; and pieces of nodes that jobs share."""

from math import inf

from hypothesis import given
from hypothesis import strategies as st
from queues import part, queue

from dask_hpc.planning.asks.node_sets import NodeProfile, PieceMap, some_of
from dask_hpc.planning.asks.queue import PendingAsk, QueueNode, RunningAsk
from dask_hpc.strategies.queue.profile import Profile

ENDS = st.lists(st.floats(0.5, 50), max_size=6)
JOBS = st.lists(st.tuples(st.integers(1, 8), st.floats(0.5, 20)), max_size=8)


@given(ENDS, JOBS)
def test_with_one_partition_it_is_the_profile_of_the_queue_strategies(ends, jobs):
    ends = sorted(set(ends))
    idle = 8 - len(ends)
    counts = Profile(0.0, idle, [(end, 1) for end in ends])
    sets = NodeProfile(0.0, (1 << idle) - 1, [(end, 1 << (idle + at)) for at, end in enumerate(ends)])
    for nodes, duration in jobs:
        time, pieces = sets.earliest(nodes, duration, 255)
        assert counts.fits(time, nodes, duration)
        # sets know more: nodes that are free one after the other are no job's nodes
        assert time >= counts.earliest(nodes, duration)
        taken = some_of(pieces, nodes)
        assert taken.bit_count() == nodes
        counts.take(time, nodes, duration)
        sets.take(time, taken, duration)
        assert [one.bit_count() for one in sets.free] == [counts.at(at) for at in sets.times]


@given(st.integers(0, 2**20), st.integers(0, 21))
def test_some_of_them(pieces, count):
    found = some_of(pieces, count)
    assert found & ~pieces == 0
    assert found.bit_count() == min(count, pieces.bit_count())


def test_a_job_has_the_same_nodes_from_its_first_to_its_last_second():
    profile = NodeProfile(0.0, 0b01, [(10.0, 0b10)])
    profile.take(10.0, 0b01, 10.0)  # now one node is free at any time, but another one after 10 s
    assert profile.earliest(1, 15.0, 0b11) == (10.0, 0b10)
    assert profile.earliest(1, 10.0, 0b11) == (0.0, 0b01)
    assert profile.earliest(1, 5.0, 0b10, after=12.0) == (12.0, 0b10)
    assert profile.earliest(3, 1.0, 0b11) == (inf, 0)


def test_how_many_stay_free_how_long():
    profile = NodeProfile(0.0, 0b111)
    profile.take(10.0, 0b001, 5.0)
    profile.take(20.0, 0b010, inf)
    assert profile.free_for(0b111) == [(10.0, 3), (20.0, 2), (inf, 1)]
    profile.take(0.0, 0b111, 1.0)
    assert profile.free_for(0b111) == []


def test_pieces_of_nodes_that_jobs_share():
    view = queue(nodes=2, cores=8)
    nodes = {"n0": QueueNode("n0", 8, 16e9, 3, 16e9), "n1": QueueNode("n1", 8, 16e9, 8, 5e9)}
    running = (
        RunningAsk("a", ("n0",), 0.0, 100.0, 2),
        RunningAsk("b", ("n0",), 0.0, 200.0, 3),
    )
    view = view.__class__(0.0, nodes, view.partitions, running)
    pieces = PieceMap.of(view, cores=2, memory=4e9)
    free, ends = pieces.now_free(view)
    assert pieces.all.bit_count() == 8
    assert free.bit_count() == 1 + 1  # of n0 by cores, of n1 by memory
    # 3 free cores and 2 of a are 5: one more piece than before; the rest comes with b
    assert {job: held.bit_count() for job, held in ends} == {"a": 1, "b": 2}


def test_a_whole_node_is_free_when_the_last_of_its_jobs_ends():
    view = queue(nodes=1, cores=4)
    running = (RunningAsk("a", ("n0",), 0.0, 100.0, 1), RunningAsk("b", ("n0",), 0.0, 50.0, 1))
    view = view.__class__(0.0, {"n0": QueueNode("n0", 4, free_cores=2)}, view.partitions, running)
    free, ends = PieceMap.of(view).now_free(view)
    assert free == 0
    assert dict(ends) == {"a": 1, "b": 0}


def test_nodes_that_are_down_have_no_pieces():
    view = queue(nodes=2)
    nodes = {**view.nodes, "n1": QueueNode("n1", 1, free_cores=1, is_up=False)}
    pieces = PieceMap.of(view.__class__(0.0, nodes, view.partitions))
    assert pieces.all == 1
    assert pieces.in_partition(part("down", [0, 1], is_up=False)) == 0


def test_what_others_need_is_rounded_up():
    view = queue(nodes=4, cores=8)
    pieces = PieceMap.of(view, cores=3)  # two of a node
    needs = {
        (1, 1): 1,
        (1, 4): 2,
        (2, 2): 2,  # one core on each of two nodes
        (2, 16): 4,
        (3, 0): 6,  # whole nodes
    }
    for (nodes, cores), count in needs.items():
        assert pieces.needed_by(PendingAsk("x", ("batch",), nodes, 60.0, cores), view) == count
    whole = PendingAsk("x", ("batch",), 1, 60.0, 1, is_exclusive=True)
    assert pieces.needed_by(whole, view) == 2
