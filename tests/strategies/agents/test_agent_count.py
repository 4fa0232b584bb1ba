"""How many agents: the published rule swings, ours finds the best number and stays there."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.strategies.checkpoint.agent_rule import (
    AgentRule,
    break_even,
    break_even_published,
    by_sign,
    climb,
    shares,
)
from dask_hpc.strategies.checkpoint.agents import ItemAgents


def search(seconds_of, steps=40, start=1, **options):
    """The numbers of agents of so many commits, each as long as ``seconds_of`` says."""
    known, agents, seen = None, start, []
    for _ in range(steps):
        seen.append(agents)
        known = climb(known, agents, seconds_of(agents), **options)
        agents = known.trying
    return seen


@given(st.integers(1, 16), st.integers(1, 16), st.floats(0, 1), st.floats(0.1, 10), st.floats(0, 0.2))
def test_climbing_ends_and_nothing_much_better_is_near(start, knee, fixed, work, slower):
    def seconds_of(agents):
        return fixed + work / min(agents, knee) + slower * max(0, agents - knee)

    seen = search(seconds_of, start=start, most=16)
    assert len(set(seen[-20:])) == 1
    found = seen[-1]
    for other in (min(16, found * 2), max(1, found // 2)):
        assert seconds_of(found) <= seconds_of(other) * 1.12


def test_no_change_where_it_does_not_pay():
    assert set(search(lambda agents: 8 / agents, most=16, change=100, commits_left=3)) == {1}
    assert search(lambda agents: 8 / agents, most=16, change=1, commits_left=100)[-1] == 16


def test_another_load_is_another_search():
    known, agents = None, 1
    for work in [4.0] * 10 + [40.0] * 10:
        known = climb(known, agents, max(1, work / agents), most=16)
        agents = known.trying
    assert agents == 16


def test_the_published_rule_takes_more_again_after_fewer_were_better():
    """Four agents are best, and it never stays with them (000, digest 2.26)."""
    times = {1: 4.0, 2: 2.0, 4: 1.0, 8: 2.0, 16: 4.0}
    agents, before, seen = 1, inf, []
    for _ in range(30):
        seen.append(agents)
        seconds = times[agents]
        agents, before = by_sign(agents, seconds, before, 2, 16), seconds
    assert len(set(seen[-10:])) > 1
    assert by_sign(1, 3.0, inf, 2, 16) == 2  # the first change is always an increase
    assert by_sign(4, 2.0, 2.0, 2, 16) == 4
    assert set(search(times.get, start=1, most=16)[-10:]) == {4}


@pytest.mark.parametrize(
    "after, published, true", [(0.6, 5.0, 25.0), (0.5, 5.6, 12.5), (0.35, 7.1, 7.1), (0.2, 11.0, 5.0)]
)
def test_break_even(after, published, true):
    # 000 digest 2.24: a change of 2.5 s, commits of 0.7 s before
    assert break_even_published(2.5, 0.7, after) == pytest.approx(published, abs=0.05)
    assert break_even(2.5, 0.7, after) == pytest.approx(true, abs=0.05)
    assert break_even(2.5, 0.7, 0.7) == break_even_published(2.5, 0.0, 0.0) == inf


def resized(rule, agents, before, nodes):
    return AgentRule(resize=rule).resized(ItemAgents(agents, before), nodes).agents


@given(st.integers(1, 64), st.integers(1, 64), st.data())
def test_after_a_resize_no_agent_is_idle_and_shares_are_even(before, after, data):
    agents = data.draw(st.integers(1, before))
    for rule in ("rigid", "malleable"):
        served = shares(after, resized(rule, agents, before, after))
        assert sum(served) == after and min(served) >= 1 and max(served) - min(served) <= 1
    assert resized("rigid", agents, before, after) <= agents
    assert resized("malleable", before, before, after) == after


def test_sizes_of_the_document():
    """From 1 to 16 nodes, then 8, then 4 (000, 9.4.2)."""
    sizes = ((1, 16), (16, 8), (8, 4))
    assert [resized("rigid", 1, before, after) for before, after in sizes] == [1, 1, 1]
    assert [resized("malleable", before, before, after) for before, after in sizes] == [16, 8, 4]
    assert resized("malleable", 3, 12, 16) == 4  # 4 : 1 is kept
