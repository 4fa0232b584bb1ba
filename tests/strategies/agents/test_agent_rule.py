"""The rule for checkpoint agents that a policy chooses: its parts together."""

from collections import Counter
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc import InputError, Policy
from dask_hpc.strategies.checkpoint.agent_rule import AgentRule
from dask_hpc.strategies.checkpoint.agents import AgentNode, ItemAgents


def nodes(count, **more):
    return [AgentNode(f"n{i}", 100.0, float(i), domain=f"n{i}", **more) for i in range(count)]


def test_policies_choose_it():
    ours = Policy.load("checkpoint-agents").checkpoint
    published = Policy.load("checkpoint-agents-rigid").checkpoint
    assert ours == AgentRule()
    assert (published.count, published.resize, published.candidates) == ("by-sign", "rigid", 5)
    assert Policy.load("elastic").checkpoint is None
    changed = Policy.load("elastic").with_(**{"checkpoint.strategy": "agents", "checkpoint.window": "64 MiB"})
    assert changed.checkpoint == AgentRule(window=2.0**26)
    with pytest.raises(InputError, match="round-robin"):
        Policy.load("elastic").with_(**{"checkpoint.strategy": "agents", "checkpoint.deal": "fil"})


def test_how_many_to_begin_with():
    assert AgentRule().first(2, 8, nodes(8), ()).agents == 8
    assert AgentRule(start="nodes").first(2, 8, nodes(8), ()).agents == 2


def test_after_a_resize():
    item = ItemAgents(2, 4)
    assert AgentRule().resized(item, 8) == ItemAgents(4, 8)
    assert AgentRule(resize="rigid").resized(item, 8) == ItemAgents(2, 8)
    assert AgentRule(resize="rigid").resized(ItemAgents(4, 4), 2) == ItemAgents(2, 2)
    assert AgentRule().resized(item, 4) is item
    many = ItemAgents(10, 1)
    assert AgentRule().resized(many, 2) is many  # they never had to do with its nodes


def settles(rule, seconds, most=16, start=1, commits=40):
    """The numbers of agents of one commit after the other."""
    item, tried = ItemAgents(start, 4), []
    for _ in range(commits):
        tried.append(item.agents)
        item = rule.committed(item, item.agents, seconds(item.agents), most, 1000)
    return tried


@given(st.integers(0, 4), st.integers(1, 16))
def test_the_best_number_is_found_and_kept(best, start):
    """With seconds that fall towards one number of agents and rise behind it."""
    best = 2**best

    def seconds(agents):
        return 1.0 + abs(agents - best) * 0.5

    tried = settles(AgentRule(), seconds, start=best if start > best else 1)
    assert tried[-3:] == [best] * 3


def test_the_published_rule_never_settles():
    def seconds(agents):
        return 1.0 + abs(agents - 4) * 0.5

    tried = settles(AgentRule(count="by-sign"), seconds)
    assert len(set(tried[-10:])) > 1
    assert settles(AgentRule(count="fixed"), seconds, start=3) == [3] * 40


@pytest.mark.parametrize("count", ["climb", "by-sign"])
@pytest.mark.parametrize(("left", "agents"), [(3, 2), (5, 2), (6, 4), (50, 4), (inf, 4)])
def test_nothing_is_changed_if_too_few_commits_are_left(count, left, agents):
    """A change of 2.5 s, and four agents are hoped to take 0.5 s instead of 1.0 s: it pays after five."""
    item = AgentRule(count=count, change=2.5).committed(ItemAgents(2, 4), 2, 1.0, 16, left)
    assert item.agents == agents
    stays = f"2 agents stay: {left} more commits do not make up for a change"
    assert item.why == (stays if agents == 2 else "4 agents instead of 2: a commit took 1 s")


def test_nothing_is_said_where_nothing_was_decided():
    item = AgentRule().committed(ItemAgents(16, 4), 16, 1.0, 16, inf)  # fewer are tried
    assert item.why.startswith("8 agents instead of 16")
    item = AgentRule().committed(item, 8, 2.0, 16, inf)
    assert item.agents == 16 and AgentRule().committed(item, 16, 1.0, 16, 2).why == ""


def test_slots():
    rule = AgentRule(rank="memory")
    assert rule.slots(2, nodes(4), 1.0, []) == ("n0", "n1")
    assert rule.slots(2, nodes(4), 1.0, ["n0"]) == ("n1", "n2")
    assert Counter(rule.slots(4, nodes(2), 1.0, [])) == {"n0": 2, "n1": 2}
    fill = AgentRule(deal="fill", per_node=3)
    assert fill.slots(4, nodes(3), 1.0, []) == ("n0", "n0", "n0", "n1")
    assert [one.name for one in AgentRule(rank="power").order(nodes(2, watts=1.0))] == ["n0", "n1"]


def test_more_nodes_and_idle_ones():
    full = [AgentNode("a", 100.0, 95.0, filling=1.0, domain="a")]
    assert AgentRule().more_nodes(full).is_urgent
    assert AgentRule(high=0.96).more_nodes(full) is None
    idle = [AgentNode("a", 100.0, 0.0, idle_for=400.0), AgentNode("b", 100.0, 0.0, idle_for=400.0)]
    assert [one.node for one in AgentRule().idle_nodes(idle)] == ["a"]
    assert not AgentRule(idle=500.0).idle_nodes(idle)
