"""Nodes with which all that run get most of what they send."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc import InputError, Policy
from dask_hpc.model.job import Job
from dask_hpc.model.node import Node
from dask_hpc.model.snapshot import Neighbourhood, Running
from dask_hpc.model.topology import LinkLevel, Topology, xc30
from dask_hpc.planning.network.bounds import JobsTogether, thetas
from dask_hpc.planning.network.sends import sent_by, sent_by_all
from dask_hpc.simulator import Platform
from dask_hpc.strategies.nodes.contiguous import Contiguous
from dask_hpc.strategies.nodes.least_congested import LeastCongested

#: switches with nodes 0, 1 to 3, 4 to 6, 7 and 8: what leads up from each carries 4, each port 100
PARTS = {"d": [0], "b": [1, 2, 3], "a": [4, 5, 6], "c": [7, 8]}
PLACES = {str(node): (part,) for part, nodes in PARTS.items() for node in nodes}
LEVELS = (LinkLevel("switch", 4.0), LinkLevel("node", 100.0))
TOPOLOGY = Topology(LEVELS, {name: (*place, name) for name, place in PLACES.items()})
NODES = {name: Node(name, place=place) for name, place in sorted(PLACES.items())}


def running(name, nodes, traffic):
    job = Job(id=name, nodes=len(nodes), traffic=traffic)
    return Running(job, tuple(map(str, nodes)), 0.0, 1.0, 0)


def around(*jobs, topology=TOPOLOGY, nodes=NODES):
    return Neighbourhood(nodes, topology, {one.job.id: one for one in jobs})


def pick(count, idle, seen, traffic, held=(), strategy=LeastCongested()):  # noqa: B008
    job = Job(id="new", nodes=count, traffic=traffic)
    found = strategy.pick(job, count, [str(one) for one in idle], [str(one) for one in held], seen)
    return [int(name) for name in found.nodes], found.reason


IDLE = [2, 3, 4, 5, 6, 7, 8]
FULL = running("x", [0, 1], 4.0)


def test_it_keeps_away_from_links_that_are_full():
    assert pick(4, IDLE, around(FULL), 3.0, strategy=Contiguous()) == ([4, 5, 6, 2], "")
    nodes, reason = pick(4, IDLE, around(FULL), 3.0)
    assert nodes == [4, 5, 6, 7]
    # one of four nodes sends all it sends up a link that carries 4 and has 4 on it already
    assert reason.startswith(
        "contiguous, with nodes moved: gets 100% of what it sends, others at worst 100%;"
    )
    assert "57%" in reason, "4 / 7 for both"


def test_nodes_are_moved_one_after_the_other():
    assert pick(5, IDLE, around(FULL), 2.0, strategy=Contiguous())[0] == [4, 5, 6, 2, 3]
    assert set(pick(5, IDLE, around(FULL), 2.0)[0]) == {4, 5, 6, 7, 8}


def test_where_it_makes_no_difference_it_is_contiguous():
    assert pick(3, IDLE, around(FULL), 3.0) == ([4, 5, 6], "")
    quiet = running("x", [0, 1], None)
    assert pick(4, IDLE, around(quiet), 1.0) == ([4, 5, 6, 2], "")


def test_what_is_not_known_is_contiguous():
    for seen, traffic in ((around(FULL), None), (around(FULL), 0.0), (around(FULL, topology=None), 3.0)):
        assert pick(4, IDLE, seen, traffic) == ([4, 5, 6, 2], "")


def test_neighbours_are_not_always_best():
    # in a lattice there is one link between any two parts; who is in few of them has few of those
    topology = xc30(2, 3, 4, service=False)
    nodes = {name: Node(name, place=place[:-1]) for name, place in topology.places.items()}
    job, seen = Job(id="new", nodes=8, traffic=40e9), Neighbourhood(nodes, topology, {})
    found = {}
    for name, strategy in (
        ("contiguous", Contiguous()), ("moves 0", LeastCongested(moves=0)), ("moves", LeastCongested()),
    ):  # fmt: skip
        picked = strategy.pick(job, 8, list(nodes), (), seen)
        (found[name],) = thetas(topology, {"new": sent_by(topology, picked.nodes, 40e9)}).values()
        words = {
            "contiguous": "",
            "moves 0": "spread: gets 73%",
            "moves": "spread, with nodes moved: gets 100%",
        }[name]
        assert picked.reason.startswith(words)
    assert found == pytest.approx({"contiguous": 0.6125, "moves 0": 0.729167, "moves": 1.0}, abs=1e-4)


def test_no_moves_are_tried_if_none_may_be():
    strategy = LeastCongested(moves=0)
    # nor would spread or first be better
    assert pick(4, IDLE, around(FULL), 3.0, strategy=strategy)[0] == [4, 5, 6, 2]
    # the first that is tried is not the one that helps
    assert pick(4, IDLE, around(FULL), 3.0, strategy=LeastCongested(moves=1))[0] == [4, 5, 6, 2]
    policy = Policy.load("fcfs").with_(**{"nodes.strategy": "least-congested", "nodes.moves": 7})
    assert policy.nodes == LeastCongested(moves=7)
    with pytest.raises(InputError, match=r"nodes\.moves"):
        policy.with_(**{"nodes.moves": -1})


def test_a_job_that_grows_is_judged_with_what_it_has():
    # it has one node below b; next to it would be best, were that link not all that x has
    held = [1]
    assert pick(1, [2, 7], around(), 3.0, held=held)[0] == [2]
    heavy = running("x", [3, 8], 4.0)
    nodes, _ = pick(3, [2, 4, 5, 6], around(heavy), 4.0, held=held)
    best = max(
        ([2, 4, 5], [4, 5, 6], [2, 4, 6], [2, 5, 6]), key=lambda one: worth(around(heavy), [*held, *one], 4.0)
    )
    assert worth(around(heavy), [*held, *nodes], 4.0) == worth(around(heavy), [*held, *best], 4.0)


def test_a_job_that_grows_is_judged_with_what_it_has_and_large_jobs_count_more():
    # x on four nodes and y on two fill the links of parts a and b, of which each has one node idle
    parts = {"a": [0, 1], "b": [2, 3], "d": [4], "e": [5, 6, 7], "f": [8]}
    places = {str(node): (part,) for part, members in parts.items() for node in members}
    topology = Topology(LEVELS, {name: (*place, name) for name, place in places.items()})
    nodes = {name: Node(name, place=place) for name, place in places.items()}
    x, y = running("x", [1, 5, 6, 7], 4.0), running("y", [3, 8], 4.0)
    seen = around(x, y, running("new", [4], 4.0), topology=topology, nodes=nodes)
    assert pick(1, [0, 2], seen, 4.0, held=[4], strategy=Contiguous())[0] == [0]
    assert pick(1, [0, 2], seen, 4.0, held=[4])[0] == [2]
    assert pick(1, [0, 2], around(y, topology=topology, nodes=nodes), 4.0, held=[4])[0] == [0]


def test_nodes_that_are_nowhere_come_last():
    nodes = NODES | {"20": Node("20"), "21": Node("21")}
    chosen, _ = pick(2, [20, 21, 7, 8], around(nodes=nodes), 3.0)
    assert set(chosen) == {7, 8}
    assert set(pick(3, [20, 21, 7], around(nodes=nodes), 3.0)[0]) == {20, 21, 7}
    # with 20 it would seem to send less than it does
    assert pick(3, [20, 7, 8, 2], around(nodes=nodes), 12.0, strategy=Contiguous())[0] == [20, 7, 8]
    assert set(pick(3, [20, 7, 8, 2], around(nodes=nodes), 12.0)[0]) == {7, 8, 2}


def worth(seen, nodes, traffic):
    """Of a placement: nodes that are served, and the least theta."""
    demands = dict(sent_by_all(TOPOLOGY, seen.running.values()))
    sizes = {name: len(one.nodes) for name, one in seen.running.items()} | {"new": len(nodes)}
    if (sent := sent_by(TOPOLOGY, [str(one) for one in nodes], traffic)) is not None:
        demands["new"] = sent
    found = thetas(TOPOLOGY, demands)
    return round(sum(theta * sizes[name] for name, theta in found.items()), 9), round(min(found.values()), 9)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_it_is_never_worse_than_contiguous(data):
    order = data.draw(st.permutations(range(9)))
    first, second = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 2))
    groups = order[:first], order[first : first + second]
    jobs = [
        running(f"r{at}", nodes, data.draw(st.sampled_from([None, 1.0, 4.0, 12.0])))
        for at, nodes in enumerate(groups)
        if nodes
    ]
    idle = sorted(order[first + second :])
    count = data.draw(st.integers(2, len(idle)))
    traffic = data.draw(st.sampled_from([1.0, 4.0, 12.0]))
    seen = around(*jobs)
    chosen, reason = pick(count, idle, seen, traffic)
    theirs, _ = pick(count, idle, seen, traffic, strategy=Contiguous())
    assert len(set(chosen)) == count and set(chosen) <= set(idle)
    mine, other = worth(seen, chosen, traffic), worth(seen, theirs, traffic)
    assert mine >= other
    assert bool(reason) == (mine > other)
    if not reason:
        assert chosen == theirs


def test_what_a_job_sends():
    assert sent_by(TOPOLOGY, ["1", "2", "3"], 6.0).rate == 3.0
    assert sent_by(TOPOLOGY, ["1", "2", "nowhere"], 6.0).rate == 3.0
    assert sent_by(TOPOLOGY, ["1", "2", "nowhere"], 6.0).nodes == ("1", "2")
    for nodes, traffic in ((["1"], 6.0), (["1", "nowhere"], 6.0), (["1", "2"], 0.0), (["1", "2"], None)):
        assert sent_by(TOPOLOGY, nodes, traffic) is None
    store = Platform(4, topology=xc30(1, 1, 6)).topology
    assert sent_by(store, [store.service[0], "1"], 6.0) is None


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_one_more_beside_the_same_jobs_gets_what_it_would_get_among_them(data):
    topology = data.draw(st.sampled_from([TOPOLOGY, xc30(2, 2, 3, service=False)]))
    names = data.draw(st.permutations(list(topology.places)[:9]))
    cuts = sorted(data.draw(st.lists(st.integers(0, 9), min_size=2, max_size=2)))
    groups = names[: cuts[0]], names[cuts[0] : cuts[1]], names[cuts[1] :]
    rates = st.sampled_from([1.0, 3.0, 9.0, 9e9, 30e9])
    sent = [sent_by(topology, nodes, data.draw(rates)) for nodes in groups]
    *others, last = [one for one in sent if one is not None]
    named = {str(at): one for at, one in enumerate(others)}
    own, beside = JobsTogether(topology, named).thetas_with(last)
    assert {**beside, "last": own} == pytest.approx(thetas(topology, {**named, "last": last}))
    if named:
        assert JobsTogether(topology, named).thetas() == pytest.approx(thetas(topology, named))
