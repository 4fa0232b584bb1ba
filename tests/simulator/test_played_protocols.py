"""One calculation under failures: what each of them undoes, and what the time goes into."""

from dataclasses import fields, replace
from math import inf, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc.model.errors import InputError
from dask_hpc.planning.interval import Level, Pattern, run_time
from dask_hpc.planning.resilience.hardware import Calculation, Case, Hardware
from dask_hpc.planning.resilience.recovery import recovery_at
from dask_hpc.planning.resilience.redundancy import redundancy, redundancy_at
from dask_hpc.planning.resilience.rollback import multilevel_at, restart_at
from dask_hpc.simulator.resilience import (
    play_commits,
    play_recovery,
    play_redundancy,
    play_run,
    sample_times,
)

#: one failure in ten seconds, whatever its severity
MEMORY, STORE = Level("memory", 1.0, 2.0, 0.06), Level("store", 3.0, 5.0, 0.04)
SAFE = [Level("memory", 1.0, 2.0, 0.0), Level("store", 3.0, 5.0, 0.0)]
MILD, WORST = 0.0, 0.99


class Dice:
    """Failures after so many times their mean, then none any more; and what they hit."""

    def __init__(self, times, draws):
        self.times, self.draws = list(times), list(draws)

    def standard_exponential(self, count):
        return np.array([self.times.pop(0) if self.times else inf for _ in range(count)])

    def random(self, count):
        return np.array([self.draws.pop(0) for _ in range(count)])


@pytest.fixture
def throw(monkeypatch):
    """Failures after so many seconds, ten of which are their mean, and draws of what they hit."""

    def thrown(seconds, draws):
        dice = Dice((one / 10 for one in seconds), draws)
        monkeypatch.setattr(np.random, "default_rng", lambda seed: dice)
        return dice

    return thrown


def spent(runs):
    """Seconds of the only trial, by part, without those that took none."""
    assert runs.ended.tolist() == [True]
    parts = {one.name: float(getattr(runs.parts, one.name)[0]) for one in fields(runs.parts)}
    assert sum(parts.values()) == pytest.approx(float(runs.times[0]))
    return {name: pytest.approx(seconds) for name, seconds in parts.items() if seconds}


def test_without_failures_there_are_only_work_and_commits():
    found = play_commits(SAFE, Pattern(10.0, (1,)), 45.0, trials=3)
    assert found.times.tolist() == [45 + 1 + 3 + 1 + 3] * 3
    assert found.efficiencies.tolist() == [45 / 53] * 3
    assert play_recovery(*SAFE, 10.0, 1, 45.0, work=40.0, speedup=8.0, trials=1).efficiencies == 40 / 53
    alone = play_redundancy(SAFE[1], 10.0, 45.0, work=40.0, nodes=1, degree=2, mtbf=1e15, trials=1)
    assert alone.efficiencies == 40 / 57


def test_all_go_back_to_the_last_commit_that_serves(throw):
    """Commits end at 11 (memory), 24 (store) and 35 (memory), the run at 45."""
    dice = throw(
        # at 30: back to 24 in 2 s; at 34.5, in a commit: back to 24 in 5 s, after 3 s in vain; at 36: back to
        # 35, but that restart fails after 1 s, and then only the store serves
        [30, 9, 10.5, 3, 7, 12, 1],
        [MILD, WORST, MILD, MILD, WORST],
    )
    found = play_commits([MEMORY, STORE], Pattern(10.0, (1,)), 40.0, trials=1)
    assert spent(found) == {
        "computing": 40,
        "commits": 1 + 3 + 1 + 1,
        "failed_commits": 0.5,
        "restarts": 2 + 5 + 5,
        "failed_restarts": 3 + 1,
        "recomputation": 6 + 10 + 11,
    }
    assert not dice.draws and not dice.times


def test_a_level_that_is_left_out_has_no_commits(throw):
    """After a mild failure the store's commit serves, from which a restart is as short as from memory."""
    throw([25], [MILD])
    found = play_commits([MEMORY, STORE], Pattern(10.0, (0,)), 30.0, trials=1)
    assert spent(found) == {
        "computing": 30,
        "commits": 3 + 3,
        "failed_commits": 2,
        "restarts": 2,
        "recomputation": 10,
    }


def test_what_a_node_has_lost_is_recovered_and_all_go_on_from_where_they_were(throw):
    dice = throw(
        [
            # at 16: 2 s to restart and 2.5 s for what was lost in 5 s; that fails 1 s too soon, once
            16, 3.5, 9,
            # in the commit at 21, to which the work that is left took 7.5 s instead of 5: all 10 s are lost
            8.5, 20,
            # the commit, then 2 s at full speed: what only the store survives
            5, 6,
            # the same during a recovery of 7 s
            7, 2.5, 99,
        ],
        [MILD, MILD, MILD, WORST, MILD, WORST],
    )  # fmt: skip
    found = play_recovery(MEMORY, STORE, 10.0, 1, 40.0, speedup=2.0, slowdown=1.5, trials=1)
    assert spent(found) == {
        "computing": 40,
        "commits": 1 + 3 + 1,
        "failed_commits": 1,
        "restarts": 2 + 2 + 2 + 5 + 2 + 5,
        "recovery": 1.5 + 2.5 + 5 + 0.5,
        "recomputation": 2.5 + 2 + 7,
    }
    assert not dice.draws and not dice.times


def test_a_restart_that_fails_before_the_recovery_begins(throw):
    throw([16, 1, 9], [MILD, MILD])
    found = play_recovery(MEMORY, STORE, 10.0, 1, 20.0, speedup=2.0, trials=1)
    assert spent(found) == {
        "computing": 20,
        "commits": 1,
        "failed_restarts": 1,
        "restarts": 2,
        "recovery": 2.5,
    }


def test_all_go_back_when_nothing_is_left_of_a_process(throw):
    """Ten processes, of which five have a replica: 15 nodes, one of which fails every 10 s. Commits end at 13
    and 26, the run at 36."""
    seconds_and_alive = [
        # at 4 and 11 replicas fail and are back at 13; at 27 one fails, at 29 what is left of it
        (4, 15), (7, 14), (5, 13), (14, 15), (2, 14),
        # the restart of 5 s: a replica after 2 s, what is left of it 1 s later; again, a replica after 4.8 s
        (2, 15), (1, 14), (4.8, 15), (3, 14),
        # all are back: at 32 a process without a replica fails
        (6, 15),
    ]  # fmt: skip
    dice = throw(
        [seconds * alive / 15 for seconds, alive in seconds_and_alive],
        # at most 5 of 15, 6 of 14, and 7 of 13 are the last of a process
        [0.34, 0.43, 0.9, 0.42, 0.5, 0.1, 0.9, 0.33],
    )
    found = play_redundancy(STORE, 10.0, 30.0, nodes=10, degree=1.5, mtbf=150.0, trials=1)
    assert spent(found) == {
        "computing": 30,
        "commits": 3 + 3,
        "restarts": 5 + 5,
        "failed_restarts": 3,
        "recomputation": 3 + 6,
    }
    assert not dice.draws and not dice.times


def agrees(runs, exact):
    """Within four standard errors of what is expected."""
    error = runs.times.std(ddof=1) / sqrt(len(runs.times))
    return runs.times.mean() == pytest.approx(exact, abs=4 * error)


def test_the_mean_is_the_exact_one():
    levels = [Level("a", 1.0, 0.5, 0.002), Level("b", 2.0, 3.0, 0.004), Level("c", 8.0, 10.0, 0.001)]
    pattern = Pattern(25.0, (1, 2))
    assert agrees(play_commits(levels, pattern, 1000.0, trials=4000), run_time(levels, pattern, 1000.0))


def test_redundancy_without_replicas_is_a_restart():
    store = Level("store", 5.0, 8.0, 0.01)
    played = play_redundancy(store, 40.0, 1000.0, nodes=100, degree=1, mtbf=100 / 0.01, trials=2000)
    assert agrees(played, run_time([store], Pattern(40.0), 1000.0))


CASE = Case(
    Calculation(nodes=60_000, work=20_000.0, memory=64e9, messages=0.5),
    Hardware(nodes=120_000, speedup=10.0, severity=(0.1, 0.6, 0.3)),
)
PLANNED = {
    "restart": (restart_at(CASE, Pattern(900.0)), {}),
    "multilevel": (multilevel_at(CASE, Pattern(150.0, (2, 3))), {}),
    "multilevel, the store alone": (multilevel_at(CASE, Pattern(900.0, (0, 0))), {}),
    "recovery": (recovery_at(CASE, 8, 6), {}),
    "redundancy": (redundancy_at(CASE, 1.5, 20), {}),
    "redundancy, all write": (redundancy_at(CASE, 1.5, 20, all_write=True), {"all_write": True}),
}


@pytest.mark.parametrize("name", PLANNED)
def test_what_was_planned_comes_true_on_average(name):
    """The mean, what it goes into, and how much it varies."""
    planned, how = PLANNED[name]
    runs = play_run(planned, trials=2000, seed=1, **how)
    assert agrees(runs, planned.time)
    assert runs.half_width == pytest.approx(1.96 * runs.times.std(ddof=1) / sqrt(2000))
    assert runs.times.std(ddof=1) == pytest.approx(planned.deviation, rel=0.1)
    assert (runs.efficiencies == CASE.calculation.work / runs.times).all(), "without the burden of messages"
    for part in fields(runs.parts):
        seconds, exact = np.asarray(getattr(runs.parts, part.name)), getattr(planned.parts, part.name)
        error = seconds.std(ddof=1) / sqrt(2000)
        assert seconds.mean() == pytest.approx(exact, abs=4 * error + 1e-6), part.name
    joules = np.mean(runs.parts.energy(CASE, planned.nodes))
    assert joules == pytest.approx(planned.energy, rel=0.02)


def test_the_same_seed_plays_the_same():
    planned = PLANNED["recovery"][0]
    one, same, other = (sample_times(planned, 5, seed) for seed in (3, 3, 4))
    assert one.tolist() == same.tolist() != other.tolist()


def test_work_is_slower_after_a_recovery():
    planned = PLANNED["recovery"][0]
    assert play_run(planned, slowdown=1.2).mean > 1.02 * play_run(planned).mean


def test_a_plan_without_commits_is_played_in_one_go():
    calm = Case(Calculation(nodes=10, work=3600.0, memory=1e9), Hardware(nodes=20, mtbf=1e15))
    for planned in (restart_at(calm, None), multilevel_at(calm, None), recovery_at(calm, 1, 0)):
        assert planned.pattern is None
        assert play_run(planned, trials=2).times.tolist() == [3600.0, 3600.0]


def test_what_cannot_be_used_never_ends():
    large = redundancy(Case(Calculation(nodes=100_000, work=3600.0, memory=1e9)), 2.0)
    runs = play_run(large, trials=3)
    assert large.trouble and (runs.times == inf).all() and not runs.ended.any()
    assert runs.mean == runs.half_width == inf


def test_a_run_without_hope_is_given_up():
    store = Level("store", 5.0, 5.0, 2.0)
    for played in (
        play_commits([store], Pattern(50.0), 100.0, trials=3, give_up=2.0),
        play_commits([Level("store", 5.0, 400.0, 2.0)], Pattern(0.1), 100.0, trials=3, give_up=2.0),
        play_redundancy(store, 50.0, 100.0, nodes=2, degree=1.0, mtbf=1.0, trials=3, give_up=2.0),
        play_recovery(store, store, 50.0, 1, 100.0, speedup=1.0, trials=3, give_up=2.0),
    ):
        assert not played.ended.any()
        assert (played.times == inf).all() and (played.efficiencies == 0).all()
        assert (played.parts.time > 200).all() and (played.parts.time < 700).all()


@settings(max_examples=25, deadline=None)
@given(
    work=st.floats(3.0, 60.0),
    counts=st.tuples(st.integers(0, 3)),
    commit=st.floats(0.0, 3.0),
    rates=st.tuples(st.floats(0.0, 0.02), st.floats(0.0, 0.01)),
    slowdown=st.floats(1.0, 1.5),
    seed=st.integers(0, 100),
)
def test_every_second_is_accounted_for(work, counts, commit, rates, slowdown, seed):
    memory, store = Level("memory", commit, 1.0, rates[0]), Level("store", 2 * commit, 2.0, rates[1])
    pattern, run = Pattern(work, counts), 200.0
    safe = [replace(level, failures=0.0) for level in (memory, store)]
    least = play_commits(safe, pattern, run, trials=1).parts.commits[0]
    how = {"trials": 20, "seed": seed}
    for played, commits in (
        (play_commits([memory, store], pattern, run, **how), least),
        (play_recovery(memory, store, work, counts[0], run, speedup=4.0, slowdown=slowdown, **how), least),
        (play_redundancy(memory, work, run, nodes=8, degree=1.5, mtbf=500.0, **how), 0.0),
    ):
        assert played.ended.all()
        assert np.allclose(played.parts.computing, run)
        assert all((np.asarray(part) >= -1e-6).all() for part in played.parts)
        assert (played.parts.commits >= commits - 1e-6).all()
        assert (played.efficiencies <= 1 + 1e-9).all()


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"trials": 0}, "trials: found 0; allowed: a whole number, 1 or more"),
        ({"degree": 2.5}, "redundancy: found 2.5; allowed: 1 to 2"),
        ({"mtbf": 0.0}, "mtbf: found 0.0; allowed: a time, more than 0"),
        ({"run": -1.0}, "run: found -1.0; allowed: seconds, more than 0"),
        ({"interval": 1e-9}, "intervals: found"),
    ],
)
def test_bad_input(how, said):
    good = {"interval": 10.0, "run": 100.0, "nodes": 10, "degree": 1.5, "mtbf": 1e4}
    with pytest.raises(InputError) as error:
        play_redundancy(STORE, **good | how)
    assert said in str(error.value)
