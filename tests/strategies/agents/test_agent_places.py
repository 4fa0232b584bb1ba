"""Where agents run, and how many nodes there are for them."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.strategies.checkpoint.agent_rule import AgentRule, to_remove
from dask_hpc.strategies.checkpoint.agents import AgentNode

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
    assert "".join(node.name for node in AgentRule(rank=by).order(FOUR)) == order


def test_of_equals_those_come_first_where_few_agents_came_lately():
    """Seed 000, 6.10; then those with few agents."""
    equals = [
        AgentNode("a", 100, 50, joined=2, agents=1),
        AgentNode("b", 100, 50, joined=1, agents=4),
        AgentNode("c", 100, 50, joined=1, agents=3),
        AgentNode("d", 100, 20, joined=9, agents=9),
    ]
    assert "".join(node.name for node in AgentRule(rank="memory").order(equals)) == "dcba"


def place(count, nodes, nbytes=0.0, domains=(), **rule):
    return "".join(AgentRule(**{"candidates": 5} | rule).slots(count, nodes, nbytes, domains))


def test_deals():
    options = {"candidates": 3, "per_node": 4}
    assert place(5, FOUR, deal="round-robin", **options) == "bcdbc"
    assert place(5, FOUR, deal="block", **options) == "bbccd"
    assert place(6, FOUR, deal="fill", **options) == "bbbbcc"


def test_an_item_begins_with_as_many_as_its_candidates_take():
    nodes = [replace(one, most=2) for one in FOUR]

    def begins(nodes, **rule):
        return AgentRule(**rule).first(3, 7, nodes, ()).agents

    assert [begins(nodes, candidates=count) for count in (1, 3, 0, 9)] == [2, 6, 7, 7]
    assert begins(nodes, candidates=2, per_node=1) == 2
    assert begins([replace(nodes[0], agents=1)], candidates=2, per_node=1) == 1, "one it has always"
    assert begins(nodes, candidates=1, start="nodes") == 3


def test_what_does_not_fit_goes_elsewhere_or_nowhere():
    assert place(2, FOUR, nbytes=50) == "bc"
    assert place(4, FOUR, nbytes=50) == "bc"
    assert place(9, FOUR, nbytes=20, deal="fill", candidates=1, per_node=4) == "bbbbcccdd"
    assert place(1, [AgentNode("x", 0, 0)], nbytes=1) == ""


def test_copies_lie_with_what_fails_apart():
    nodes = [AgentNode("a", 100, 0, domain="h1"), AgentNode("b", 100, 50, domain="h2")]
    assert place(1, nodes, domains={"h1"}) == "b"
    assert place(1, nodes[:1], domains={"h1"}) == "a"  # better than none


nodes = st.lists(
    st.builds(
        AgentNode,
        st.uuids().map(str),
        st.just(100.0),
        st.floats(0, 100),
        agents=st.integers(0, 8),
        most=st.sampled_from([1, 3, inf]),
    ),
    max_size=6,
    unique_by=lambda node: node.name,
)
ways = st.fixed_dictionaries(
    {
        "rank": st.sampled_from(["memory", "bandwidth", "frequency", "power"]),
        "deal": st.sampled_from(["block", "round-robin", "fill"]),
        "candidates": st.integers(1, 6),
        "per_node": st.integers(1, 8),
    }
)


@given(st.integers(1, 12), nodes, st.just(0.0) | st.floats(0.1, 40), ways)
def test_nobody_gets_more_than_fits_and_all_are_placed_if_they_can_be(count, nodes, nbytes, way):
    found = AgentRule(**way).slots(count, nodes, nbytes, ())
    room = 0
    for node in nodes:
        here = found.count(node.name)
        assert not here or (here + node.agents <= way["per_node"] and here <= node.most)
        assert here * nbytes <= node.free * (1 + 1e-9)
        fits = int(node.free / nbytes) if nbytes else count
        room += max(0, min(way["per_node"] - node.agents, node.most, fits))
    assert len(found) == min(count, room)


def test_memory_that_runs_short():
    calm = [AgentNode("a", 100, 85, filling=1), AgentNode("b", 100, 10)]
    assert AgentRule().more_nodes(calm) is None  # crowded, but not about to be full
    full = AgentNode("a", 100, 95, filling=1)
    spare = AgentRule().more_nodes([full, AgentNode("b", 100, 0)])
    assert spare is not None and not spare.is_urgent  # as much is free elsewhere
    urgent = AgentRule().more_nodes([full, AgentNode("b", 100, 50)])
    assert urgent is not None and urgent.is_urgent and "a is 95% full" in urgent.reason
    assert AgentRule().more_nodes([AgentNode("a", 100, 95)]) is None  # full, but it stays so


def test_links_that_run_short():
    busy = AgentNode("a", 100, 0, traffic=95, link=100, commits=2)
    wanted = AgentRule().more_nodes([busy])
    assert wanted is not None and not wanted.is_urgent and "95% of its link" in wanted.reason
    assert AgentRule().more_nodes([AgentNode("a", 100, 0, traffic=50, link=100, commits=2)]) is None


def test_idle_nodes_go_but_one_stays():
    idle = [AgentNode(name, 100, 0, idle_for=60) for name in "abc"]
    assert [one.node for one in AgentRule(idle=30).idle_nodes(idle)] == ["a", "b"]
    assert AgentRule(idle=90).idle_nodes(idle) == ()
    assert [one.node for one in AgentRule(idle=30).idle_nodes([*FOUR, idle[0]])] == ["a"]


def test_who_is_removed():
    assert to_remove(FOUR, 2) == ("b", "c")
    busy = [AgentNode("a", 100, 0, agents=4), AgentNode("b", 100, 10), AgentNode("c", 100, 90)]
    assert to_remove(busy, 2) == ("b", "a")
    assert len(to_remove(FOUR, 9)) == 3 and to_remove(FOUR[:1], 1) == ()
