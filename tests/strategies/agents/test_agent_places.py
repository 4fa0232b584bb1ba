"""Where agents run, and how many nodes there are for them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.model.checkpoint import AgentNode
from dask_hpc.strategies.checkpoint.agent_place import place, ranked
from dask_hpc.strategies.checkpoint.agent_rule import idle_nodes, more_nodes, to_remove

FOUR = [
    AgentNode("a", 100, 80, traffic=1, commits=4, watts=200),
    AgentNode("b", 100, 20, traffic=9, commits=3, watts=150),
    AgentNode("c", 100, 40, traffic=4, commits=2, watts=300),
    AgentNode("d", 100, 60, traffic=2, commits=1, watts=250),
]


@pytest.mark.parametrize(
    "by, order", [("memory", "bcda"), ("bandwidth", "adcb"), ("frequency", "dcba"), ("power", "badc")]
)
def test_ranks(by, order):
    assert "".join(node.name for node in ranked(FOUR, by)) == order


def test_deals():
    options = {"by": "memory", "candidates": 3, "per_node": 4}
    assert "".join(place(5, FOUR, deal="round-robin", **options)) == "bcdbc"
    assert "".join(place(5, FOUR, deal="block", **options)) == "bbccd"
    assert "".join(place(5, FOUR, deal="block", block=3, **options)) == "bbbcc"
    assert "".join(place(6, FOUR, deal="fill", **options)) == "bbbbcc"


def test_what_does_not_fit_goes_elsewhere_or_nowhere():
    assert place(2, FOUR, by="memory", nbytes=50) == ("b", "c")
    assert place(4, FOUR, by="memory", nbytes=50) == ("b", "c")
    assert place(9, FOUR, by="memory", nbytes=20, deal="fill", candidates=1, per_node=4) == tuple("bbbbcccdd")
    assert place(1, [AgentNode("x", 0, 0)], nbytes=1) == ()


def test_copies_lie_with_what_fails_apart():
    nodes = [AgentNode("a", 100, 0, domain="h1"), AgentNode("b", 100, 50, domain="h2")]
    assert place(1, nodes, by="memory", domains={"h1"}) == ("b",)
    assert place(1, nodes[:1], by="memory", domains={"h1"}) == ("a",)  # better than none


nodes = st.lists(
    st.builds(AgentNode, st.uuids().map(str), st.just(100.0), st.floats(0, 100), agents=st.integers(0, 8)),
    max_size=6,
    unique_by=lambda node: node.name,
)
ways = st.fixed_dictionaries(
    {
        "by": st.sampled_from(["memory", "bandwidth", "frequency", "power"]),
        "deal": st.sampled_from(["block", "round-robin", "fill"]),
        "candidates": st.integers(1, 6),
        "per_node": st.integers(1, 8),
        "block": st.integers(0, 3),
        "nbytes": st.just(0.0) | st.floats(0.1, 40),
    }
)


@given(st.integers(1, 12), nodes, ways)
def test_nobody_gets_more_than_fits_and_all_are_placed_if_they_can_be(count, nodes, way):
    found = place(count, nodes, **way)
    room = 0
    for node in nodes:
        here = found.count(node.name)
        assert not here or here + node.agents <= way["per_node"]
        assert here * way["nbytes"] <= node.free * (1 + 1e-9)
        fits = int(node.free / way["nbytes"]) if way["nbytes"] else count
        room += max(0, min(way["per_node"] - node.agents, fits))
    assert len(found) == min(count, room)


def test_memory_that_runs_short():
    calm = [AgentNode("a", 100, 85, filling=1), AgentNode("b", 100, 10)]
    assert more_nodes(calm) is None  # crowded, but not about to be full
    full = AgentNode("a", 100, 95, filling=1)
    spare = more_nodes([full, AgentNode("b", 100, 0)])
    assert spare is not None and not spare.is_urgent  # as much is free elsewhere
    urgent = more_nodes([full, AgentNode("b", 100, 50)])
    assert urgent is not None and urgent.is_urgent and "a is 95% full" in urgent.reason
    assert more_nodes([AgentNode("a", 100, 95)]) is None  # full, but it stays so


def test_links_that_run_short():
    busy = AgentNode("a", 100, 0, traffic=95, link=100, commits=2)
    wanted = more_nodes([busy])
    assert wanted is not None and not wanted.is_urgent and "95% of its link" in wanted.reason
    assert more_nodes([busy], frequent=3) is None
    assert more_nodes([AgentNode("a", 100, 0, traffic=50, link=100, commits=2)]) is None


def test_idle_nodes_go_but_one_stays():
    idle = [AgentNode(name, 100, 0, idle_for=60) for name in "abc"]
    assert [one.node for one in idle_nodes(idle, 30)] == ["a", "b"]
    assert idle_nodes(idle, 90) == ()
    assert [one.node for one in idle_nodes([*FOUR, idle[0]], 30)] == ["a"]


def test_who_is_removed():
    assert to_remove(FOUR, 2) == ("b", "c")
    busy = [AgentNode("a", 100, 0, agents=4), AgentNode("b", 100, 10), AgentNode("c", 100, 90)]
    assert to_remove(busy, 2) == ("b", "a")
    assert len(to_remove(FOUR, 9)) == 3 and to_remove(FOUR[:1], 1) == ()
