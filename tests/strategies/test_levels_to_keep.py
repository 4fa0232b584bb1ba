"""Which levels something is kept on, if any."""

import random
from dataclasses import replace
from math import inf, sqrt
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc.planning.interval import TIME, Level, Pattern, cost, energy_weights
from dask_hpc.strategies.checkpoint.rates import expected_rate
from dask_hpc.strategies.checkpoint.when import SHORTEST, LevelCost
from dask_hpc.strategies.checkpoint.which import Stake, sets, which

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
LEVELS = ("partner", "disk", "store")


def stake(commits=(0.1,), mtbfs=(HOUR,), at_risk=0.0, left=HOUR, **more):
    """On one node, so that rates are those of the whole."""
    names = LEVELS if len(commits) == 3 else ("partner", "store")[: len(commits)]
    levels = zip(names, commits, mtbfs, strict=True)
    costs = tuple(LevelCost(name, commit, 1 / mtbf) for name, commit, mtbf in levels)
    more = {"among": tuple(sets(names)), **more}
    return Stake(costs, 1, dict.fromkeys(names, at_risk), left, **more)


stakes = st.builds(
    lambda commits, mtbfs, at_risk, left, grows, speed: stake(
        sorted(commits), mtbfs, at_risk, left, grows=grows, speed=speed
    ),
    st.lists(st.floats(0.02, 60), min_size=3, max_size=3),
    st.lists(st.floats(MINUTE, 30 * DAY), min_size=3, max_size=3),
    st.floats(0, HOUR),
    st.floats(1, DAY),
    st.booleans(),
    st.floats(0.5, 4),
)


def test_all_sets_are_weighed_and_a_disk_is_a_partners():
    assert sets(LEVELS) == [
        (), ("partner",), ("partner", "disk"), ("store",), ("partner", "store"), ("partner", "disk", "store"),
    ]  # fmt: skip


@settings(deadline=None, max_examples=40)
@given(stakes)
def test_what_is_chosen_loses_least(found):
    choice = which(found)
    losses = [one.per_hour for one in choice.losses]
    assert losses == sorted(losses) and losses[0] >= 0
    assert () in [one.levels for one in choice.losses]
    for name, every in choice.every.items():
        assert every >= SHORTEST and (every < inf) == (name in choice.levels)
    assert 0 <= choice.efficiency <= 1


def drawn(seed):
    """Three levels of any kind, and what there is to lose."""
    chance = random.Random(seed)
    commits = sorted(chance.uniform(0.02, 30) for _ in LEVELS)
    mtbfs = [10 ** chance.uniform(2, 6) for _ in LEVELS]
    found = stake(commits, mtbfs, 10 ** chance.uniform(-1, 3.5), 10 ** chance.uniform(1, 5))
    costs = tuple(replace(one, restart=one.commit) for one in found.costs)
    return replace(found, costs=costs, grows=chance.random() < 0.7, speed=chance.uniform(0.5, 4))


@pytest.mark.parametrize("seed", range(12))
def test_dearer_commits_and_more_failures_lose_more(seed):
    found = drawn(seed)
    dearer = replace(found, costs=tuple(replace(one, commit=2 * one.commit) for one in found.costs))
    worse = replace(found, costs=tuple(replace(one, failures=2 * one.failures) for one in found.costs))
    loses = which(found).losses[0].per_hour
    assert which(dearer).losses[0].per_hour >= 0.98 * loses
    assert which(worse).losses[0].per_hour >= 0.98 * loses


def test_where_nothing_fails_nothing_is_copied():
    one = stake(at_risk=DAY)
    one = replace(one, costs=tuple(replace(level, failures=0.0) for level in one.costs))
    choice = which(one)
    assert choice.levels == () and choice.losses[0].per_hour == 0 and "nothing ever fails" in choice.reason


def test_what_is_lost_by_lineage_alone_is_what_is_at_risk_and_half_of_what_is_left():
    one = stake(commits=(100.0,), mtbfs=(1000 * HOUR,), at_risk=500.0, left=1000.0)
    choice = which(one)
    assert choice.levels == ()
    assert choice.losses[0].per_hour == pytest.approx((500 + 1000 / 2) / 1000, rel=0.01)
    assert choice.losses[1].per_hour >= 100 / 1000 * HOUR, "a commit, now or later"


def test_lineage_alone_is_exact_however_much_fails():
    one = stake(mtbfs=(100.0,), left=300.0, among=((),))
    expected = cost([Level("", 0, 0, 1 / 100)], Pattern(300.0), 300.0) - 300
    assert which(one).losses[0].per_hour == pytest.approx(expected * HOUR / 300)


def test_a_long_run_is_kept_with_the_interval_of_the_formula():
    choice = which(stake(commits=(1.0,), mtbfs=(HOUR,), left=1000 * HOUR))
    assert choice.levels == ("partner",)
    assert choice.every["partner"] == pytest.approx(sqrt(2 * HOUR), rel=0.05)
    assert choice.losses[0].per_hour == pytest.approx(HOUR * sqrt(2 / HOUR), rel=0.1)


def test_much_at_risk_is_worth_a_commit_though_little_is_to_come():
    choice = which(stake(commits=(1.0,), mtbfs=(HOUR,), at_risk=HOUR, left=10.0))
    assert choice.levels == ("partner",) and choice.every["partner"] <= 10.0
    assert which(stake(commits=(1.0,), mtbfs=(HOUR,), at_risk=60.0, left=10.0)).levels == ()


def test_short_runs_commit_nothing_to_a_store_that_costs_much():
    """003, 6.4.6: the ten cases, with the lower levels of system B as one."""
    for commit in (10 * MINUTE, 20 * MINUTE):
        for mtbf in (26, 20, 15, 9, 3):
            worst = mtbf * MINUTE / 0.08  # one failure in twelve needs the last level
            one = stake((MINUTE / 2, commit), (mtbf * MINUTE, worst), left=30 * MINUTE)
            assert "store" not in which(one).levels
    cheap = which(stake((0.1, 1.0), (10 * MINUTE, HOUR), left=30 * MINUTE))
    assert cheap.levels == ("partner", "store")


def test_a_level_serves_what_those_below_it_that_are_not_kept_would():
    one = stake((50.0, 60.0), (MINUTE * 30, 100 * DAY), left=10 * HOUR, among=((), ("store",)))
    assert which(one).levels == ("store",)


def test_what_many_do_again_soon_needs_fewer_copies():
    slow = which(stake(commits=(5.0,), mtbfs=(HOUR,), left=100 * HOUR))
    fast = which(stake(commits=(5.0,), mtbfs=(HOUR,), left=100 * HOUR, speed=4.0))
    assert fast.every["partner"] == pytest.approx(2 * slow.every["partner"], rel=0.1)
    assert fast.losses[0].per_hour < slow.losses[0].per_hour


def test_what_does_not_grow_is_copied_once_or_never():
    still = stake(commits=(10.0,), mtbfs=(HOUR,), at_risk=100.0, left=100.0, grows=False)
    assert which(still).levels == (), "a hundredth of an hour at a hundred seconds each is less than ten"
    longer = replace(still, left=10 * HOUR)
    choice = which(longer)
    assert choice.levels == ("partner",) and choice.every["partner"] == SHORTEST
    assert choice.losses[0].per_hour == pytest.approx((10 + 10 * 10) / 10, rel=0.01)
    assert which(replace(longer, there=frozenset({"partner"}))).losses[0].per_hour == pytest.approx(10.0)


def test_what_cannot_be_computed_again_is_kept_even_where_all_is_lost_anyway():
    priceless = stake((1.0, 5.0), (MINUTE, DAY), at_risk=1e6, left=HOUR)
    assert which(priceless).levels == ("partner", "store")


def test_energy_makes_commits_more_frequent_where_they_draw_less():
    one = stake(commits=(10.0,), mtbfs=(HOUR,), left=1000 * HOUR)
    time, energy = which(one), which(replace(one, weights=energy_weights(400.0, 100.0)))
    assert energy.every["partner"] < 0.7 * time.every["partner"]
    assert energy.losses[0].per_hour < time.losses[0].per_hour * 400 and "kJ" in energy.reason
    assert which(replace(one, weights=energy_weights(1.0, 1.0))).every == time.every
    assert energy.efficiency > time.efficiency and one.weights == TIME


@pytest.mark.parametrize(("share", "stays"), [(1.01, True), (1.1, False)])
def test_a_choice_stays_unless_another_is_better_by_more_than_a_little(share, stays):
    def lost(commit):
        found = stake((1.0, commit), (HOUR, inf), left=100 * HOUR, among=(("partner",), ("store",)))
        return found, {one.levels: one.per_hour for one in which(found).losses}

    low, high = 1.0, 10.0  # of a commit to the store: what is lost with it grows
    for _ in range(40):
        middle = (low + high) / 2
        _, losses = lost(middle)
        low, high = (middle, high) if losses["store",] < share * losses["partner",] else (low, middle)
    found, losses = lost(low)
    assert losses["store",] == pytest.approx(share * losses["partner",], rel=1e-3)
    assert which(found).levels == which(found, now=("partner",)).levels == ("partner",)
    assert which(found, now=("store",)).levels == (("store",) if stays else ("partner",))


def test_what_is_at_risk_until_the_next_commit_is_charged():
    """As long as that does not come, a failure costs what is at risk, beside what it costs anyway."""
    none, some = (stake((5.0,), (HOUR,), at_risk=one, left=1000 * HOUR) for one in (0.0, 60.0))
    before, after = (which(one).losses[0] for one in (none, some))
    assert before.levels == after.levels == ("partner",) and after.every["partner"] > 60.0
    charged = (after.per_hour - before.per_hour) * 1000
    assert charged == pytest.approx(60 * (after.every["partner"] - 60) / HOUR, rel=1e-3)


def test_nodes_fail_each_for_itself():
    one = stake(left=10 * HOUR)
    four = replace(one, costs=tuple(replace(level, failures=4 * level.failures) for level in one.costs))
    assert which(replace(one, nodes=4)).losses == which(four).losses


def test_a_restart_takes_no_less_long_where_many_compute_again():
    still = stake(commits=(10.0,), mtbfs=(HOUR,), left=10 * HOUR, grows=False, there=frozenset({"partner"}))
    still = replace(still, among=(("partner",),))
    slow, fast = (which(replace(still, speed=one)).losses[0].per_hour for one in (1.0, 4.0))
    assert fast == pytest.approx(slow) and slow > 0


def test_reasons_name_what_was_chosen_and_the_next_best():
    choice = which(stake(commits=(1.0,), mtbfs=(HOUR,), left=100 * HOUR))
    assert choice.reason.startswith("copies to partner every ")
    assert "it is expected to lose 87 s an hour, lineage alone all of it" in choice.reason
    assert "a failure is expected every 60.0 min, and 4.2 d are left" in choice.reason


def test_it_is_weighed_again_when_something_has_changed():
    one = stake(at_risk=100.0, left=1000.0)
    assert not replace(one, left=900.0, at_risk={"partner": 120.0}).has_drifted(one)
    for other in (
        replace(one, left=500.0), replace(one, at_risk={"partner": 200.0}), replace(one, nodes=2),
        replace(one, speed=2.5), replace(one, weights=energy_weights(2.0, 1.0)), replace(one, grows=False),
        replace(one, costs=(replace(one.costs[0], failures=1.0),)),
    ):  # fmt: skip
        assert other.has_drifted(one)
    assert not replace(one, at_risk={"partner": 1.0}).has_drifted(replace(one, at_risk={"partner": 0.0}))


def ran(way, mtbf, seed, commit, work=60.0, nodes=4):
    """Seconds that a program takes whose nodes die at random: ``way`` is how it is kept, told what is at
    risk, what is left and what was seen, and says how often to commit."""
    chance = random.Random(seed)
    now = done = kept = 0.0
    dies = chance.expovariate(1 / mtbf) if mtbf else inf
    seen = 0
    every = way(0.0, work, seen, 0.0)
    asked = 0.0
    while done < work:
        step = 1.0
        if done - kept >= every:
            step = commit
        if now + step >= dies:
            now, done, seen = dies + commit, kept, seen + 1
            dies = now + chance.expovariate(1 / mtbf)
        else:
            now += step
            kept = done if step == commit else kept
            done += 0.0 if step == commit else 1.0
        if now - asked >= 1.0 and done < work:
            asked, every = now, way(done - kept, work - done, seen, now * nodes)
    return now


def chosen(commit):
    last = []

    def way(at_risk, left, seen, seconds):
        cost = LevelCost("partner", commit, expected_rate(30 * DAY, seen, seconds))
        one = Stake((cost,), 4, {"partner": at_risk}, left, among=((), ("partner",)))
        if not last or one.has_drifted(last[0]):
            last[:] = [one, which(one)]
        return last[1].every["partner"]

    return way


def fixed(commit, mtbf):
    """Plain Dask, and the interval that is best for who knows all."""
    every = max(SHORTEST, sqrt(2 * commit * mtbf)) if mtbf else inf
    return {"none": lambda *seen: inf, "partner": lambda *seen: every}


@pytest.mark.slow
@pytest.mark.parametrize("commit", [0.05, 1.5])
@pytest.mark.parametrize("mtbf", [20.0, 60.0, None])
def test_who_learns_is_hardly_worse_than_who_knows(mtbf, commit):
    """Deaths that come before any was seen are what learning costs; commits that are dear cost too much to be
    made on suspicion."""
    seeds = range(5000, 5048)  # other deaths than those with which what is expected at first was chosen
    ways = fixed(commit, mtbf).values()
    best = min(fmean(ran(way, mtbf, seed, commit) for seed in seeds) for way in ways)
    found = fmean(ran(chosen(commit), mtbf, seed, commit) for seed in seeds)
    assert found <= best * (1.02 if mtbf is None else 1.1)
