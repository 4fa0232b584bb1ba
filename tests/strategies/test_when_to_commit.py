"""How often to commit to which level."""

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc.planning.interval import Level, Pattern, daly, efficiency, young
from dask_hpc.strategies.checkpoint.when import (
    AUTO,
    DALY,
    SHORTEST,
    YOUNG,
    LevelCost,
    commits_left,
    failure_rate,
    has_drifted,
    when,
)

HOUR, DAY = 3600.0, 86400.0
costs = st.floats(0.05, 100)
rates = st.floats(1e-9, 1e-4)


def test_the_prior_counts_until_failures_were_seen():
    assert failure_rate(30 * DAY, 0, 0) == pytest.approx(1 / (30 * DAY))
    assert failure_rate(30 * DAY, 0, 300 * DAY) < 0.1 / (29 * DAY)
    assert failure_rate(30 * DAY, 1000, 1000 * HOUR) == pytest.approx(1 / HOUR, rel=0.5)


@given(commit=costs, failures=rates, nodes=st.integers(1, 500))
def test_one_level_has_the_interval_of_the_formula(commit, failures, nodes):
    cost = [LevelCost("partner", commit, failures)]
    for rule, formula in ((YOUNG, young), (DALY, daly)):
        found = when(rule, cost, nodes).every["partner"]
        assert found == max(SHORTEST, formula(commit, failures * nodes))


@settings(deadline=None, max_examples=30)
@given(commit=costs, failures=rates, nodes=st.integers(1, 50))
def test_auto_is_no_worse_than_the_formulas(commit, failures, nodes):
    level = Level("partner", commit, commit, failures * nodes)
    best = when(AUTO, [LevelCost("partner", commit, failures)], nodes)
    for formula in (young, daly):
        other = efficiency([level], Pattern(formula(commit, failures * nodes)))
        assert best.efficiency >= other * (1 - 1e-6)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(costs, rates), min_size=2, max_size=3), st.integers(1, 50))
def test_what_survives_more_is_written_less_often(found, nodes):
    levels = [LevelCost(name, *one) for name, one in zip(("partner", "disk", "store"), found, strict=False)]
    every = list(when(AUTO, levels, nodes).every.values())
    assert every == sorted(every) and every[0] >= SHORTEST


def test_more_nodes_and_more_failures_mean_more_commits():
    one = [LevelCost("partner", 1.0, 1 / (30 * DAY)), LevelCost("store", 20.0, 1 / (3000 * DAY))]
    worse = [LevelCost("partner", 1.0, 1 / DAY), LevelCost("store", 20.0, 1 / (3000 * DAY))]
    few, many, bad = when(AUTO, one, 4), when(AUTO, one, 400), when(AUTO, worse, 4)
    assert many.every["partner"] < few.every["partner"] > bad.every["partner"]
    assert "to partner every" in few.reason and "of the time is work" in few.reason


def test_what_the_user_said_is_done():
    found = when(
        {"partner": 30.0, "store": 0.001}, [LevelCost("partner", 1, 1e-6), LevelCost("disk", 1, 1e-7)], 4
    )
    assert found.every == {"partner": 30.0, "disk": inf} and found.efficiency is None
    assert found.reason == "commits to partner every 30 s, as was said"


def test_a_plan_is_made_again_if_what_it_was_made_from_has_changed_much():
    before = [LevelCost("partner", 1.0, 1e-6)]
    assert not has_drifted(before, 4, [LevelCost("partner", 1.2, 1.1e-6)], 4)
    assert has_drifted(before, 4, [LevelCost("partner", 1.3, 1e-6)], 4)
    assert has_drifted(before, 4, [LevelCost("partner", 1.0, 0.7e-6)], 4)
    assert has_drifted(before, 4, before, 5) and has_drifted(before, 4, [], 4)


def left_of(seconds, **more):
    """The plan of a program of 4 nodes whose cluster ends once a day, with so many seconds left."""
    levels = [LevelCost("partner", 0.1, 1e-6), LevelCost("store", 2.0, 1 / (4 * DAY))]
    return when(more.pop("every", AUTO), levels, 4, seconds, **more)


@pytest.mark.parametrize("rule", [AUTO, YOUNG, DALY])
def test_what_ends_soon_has_no_commits_to_the_store(rule):
    """Half of what is left is lost on average, and a commit of 2 s saves half of that: it pays from
    sqrt(4 * 2 s * 1 d) = 831 s on."""
    endless, long, short = (left_of(left, every=rule) for left in (inf, 832.0, 830.0))
    assert long == endless and endless.every["store"] < inf
    assert short.every == {"partner": endless.every["partner"], "store": inf}
    assert short.reason.startswith(endless.reason) and "13.8 min" in short.reason, short.reason


def test_what_people_say_holds_to_the_end():
    said = left_of(1.0, every={"partner": 5.0, "store": 60.0})
    assert said.every == {"partner": 5.0, "store": 60.0}
    near = [LevelCost("partner", 0.1, 1e-6)]
    assert when(AUTO, near, 4, 1.0) == when(AUTO, near, 4), "copies in memory cost little"


@given(st.floats(1.0, 1e7), st.floats(0.01, 100), st.floats(1e-9, 1e-3), st.integers(1, 100))
def test_no_commit_that_is_left_out_would_have_paid(left, commit, failures, nodes):
    """By the exact model: with one commit in the middle such a run takes longer than without any."""
    if when(YOUNG, [LevelCost("store", commit, failures)], nodes, left).every["store"] < inf:
        return
    level = Level("store", commit, 0.0, failures * nodes)
    assert efficiency([level], Pattern(left / 2), left) <= efficiency([level], Pattern(left), left) * 1.01


@pytest.mark.parametrize(
    ("left", "every", "commits"),
    [(0, 2, 0), (5, 2, 3), (6, 2, 3), (1, 2, 1), (5.0, inf, 1), (inf, 2, inf), (0.3, 0.1, 3)],
)
def test_commits_left(left, every, commits):
    assert commits_left(left, every) == commits
