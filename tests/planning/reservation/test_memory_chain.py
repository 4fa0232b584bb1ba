"""How much memory a chain of tasks needs when, and reservations that ask for no more."""

from itertools import combinations
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc import plan_reservation
from dask_hpc.model.errors import InputError
from dask_hpc.planning.reservation.cost import CLOUD, Cost
from dask_hpc.planning.reservation.discrete import end_of, equal_time
from dask_hpc.planning.reservation.law import read_law
from dask_hpc.planning.reservation.memory_chain import (
    WORTH,
    Chain,
    MemoryQuestion,
    StoreSpeed,
    read_chain,
)
from dask_hpc.planning.reservation.programs import all_checkpoint
from dask_hpc.planning.reservation.sequence import Milestone, Setting, expected_cost

GB = 1e9
MINUTE = 60.0
#: Table 12.2, with the peaks of the text
TABLE = list(
    zip(
        (255, 871, 588, 459, 3050, 804, 1130),
        (96.7, 322, 76.8, 48.1, 263, 393, 568),
        (3.5, 10, 6, 10, 50, 3.5, 10),
        strict=True,
    )
)
SLANT = [(f"normal mean={mean}s std={std}s", f"{peak} GB") for mean, std, peak in TABLE]
COMMIT, RESTORE = StoreSpeed(4.1, GB / 4.83), StoreSpeed(0.6, GB / 1.91)

tasks = st.tuples(st.floats(10, 1e4), st.floats(0.01, 0.5), st.integers(1, 60))
chains = st.lists(tasks, min_size=1, max_size=6).map(
    lambda found: Chain(*((f"normal mean={m!r}s std={m * s!r}s", peak * GB) for m, s, peak in found))
)


def likely_peak(chain, at, likely=None):
    """The largest peak of the tasks that may run after so much work, as published (12.2); where none is
    likely, that of the task that is least unlikely."""
    shares = chain.running(at)[:-1]
    fit = shares > (chain.likely if likely is None else likely)
    return float(chain.peaks[fit].max() if fit.any() else chain.peaks[np.argmax(shares)])


def question(chain=None, law=None, cost=CLOUD, number=200, commit=COMMIT, restart=RESTORE):
    chain = chain or Chain(*SLANT)
    law = law or read_law(f"normal mean={chain.mean}s std={chain.std}s min=0s")
    return MemoryQuestion(law, chain, commit, restart, cost, number)


def test_the_seven_tasks_of_the_source():
    """Digest 8, 13."""
    chain = Chain(*SLANT)
    assert chain.mean == 7157 and chain.std == pytest.approx(817, abs=0.5)
    assert chain.mean_peak / GB == pytest.approx(25.8, abs=0.05)
    assert chain.running(6000.0)[4:] == pytest.approx([0.04, 0.48, 0.40, 0.08], abs=0.005)
    assert chain.most == 50 * GB
    peaks = [likely_peak(chain, minute * MINUTE) / GB for minute in range(0, 121, 10)]
    assert peaks == [3.5, 10, 10, 50, 50, 50, 50, 50, 50, 50, 10, 10, 10]


@settings(deadline=None)
@given(chains, st.lists(st.floats(0, 1e5), min_size=2, max_size=8))
def test_exactly_one_task_runs_or_all_have_ended(chain, times):
    times = np.sort(times)
    shares = chain.running(times)
    assert shares.sum(axis=0) == pytest.approx(np.ones(len(times)))
    assert (shares >= 0).all()
    for task in range(len(chain.tasks) + 1):
        ended = chain.ended(task, times)
        assert (np.diff(ended) >= 0).all() and (task or (ended == 1).all())
        assert task == 0 or (ended <= chain.ended(task - 1, times)).all()


@settings(deadline=None)
@given(chains, st.floats(0, 3e4), st.floats(0, 3e4), st.floats(0, 1))
def test_a_window_needs_what_is_likely_at_any_time_in_it(chain, one, other, share):
    since, until = sorted((one, other))
    inside = since + share * (until - since)
    assert chain.need(since, until) >= likely_peak(chain, inside) * (1 + chain.margin) - 1 or (
        # what is likely after so much work may be unlikely, given that the job is still there
        chain.ended(len(chain.tasks), inside) > 1 - chain.likely
    )
    assert chain.need(since, until) >= chain.need(since, inside)
    assert chain.state(since) <= chain.need(since, until)
    assert chain.need(since, until) in np.round((1 + chain.margin) * chain.peaks)


def test_a_short_task_is_likely_at_no_time_and_needed_all_the_same():
    chain = Chain(
        ("normal mean=1h std=10min", "1 GB"),
        ("normal mean=10s std=1s", "50 GB"),
        ("normal mean=1h std=1min", "2 GB"),
    )
    assert all(likely_peak(chain, at) < 3 * GB for at in np.linspace(0, 7200, 1000))
    assert chain.need(3000, 4200) == 55 * GB and chain.need(0, 1800) == 1.1 * GB
    assert chain.need(6000, 7200) == 2.2 * GB, "that one is over"


def test_what_is_likely_is_so_for_a_job_that_has_not_ended():
    """The second task is rare, but who is there after three hours is in it."""
    chain = Chain(("normal mean=1h std=20min", "1 GB"), ("normal mean=2min std=1min", "9 GB"))
    assert chain.running(3 * 3600.0)[1] < 1e-6
    assert chain.state(3 * 3600.0) == pytest.approx(9.9 * GB)
    assert chain.state(100 * 3600.0) == pytest.approx(9.9 * GB), "beyond all numbers it is the last one"


def test_thresholds_are_those_that_are_given():
    slim = Chain(*SLANT, margin=0.0)
    assert slim.need(0, 60) == 3.5 * GB
    strict = Chain(*SLANT, likely=0.0)
    assert likely_peak(strict, 10 * MINUTE) == 50 * GB and likely_peak(Chain(*SLANT), 10 * MINUTE) == 10 * GB
    assert strict.cuts() == []
    assert likely_peak(Chain(*SLANT), 100 * MINUTE, likely=0.03) == 50 * GB


@given(
    st.floats(0, 100), st.floats(1, 1e10), st.lists(st.floats(0, 1e11), min_size=2, max_size=8, unique=True)
)
def test_a_line_is_found_again(latency, bandwidth, sizes):
    if max(sizes) - min(sizes) < 1e-3 * max(sizes) or max(sizes) / bandwidth < 1e-6 * latency:
        return
    found = StoreSpeed.fit([(size, latency + size / bandwidth) for size in sizes])
    seconds = max(latency + max(sizes) / bandwidth, 1e-9)
    assert found.seconds(max(sizes)) == pytest.approx(seconds, rel=1e-6)
    assert found.latency == pytest.approx(latency, abs=1e-5 * seconds)


@given(st.lists(st.tuples(st.floats(1e6, 1e9), st.floats(0.1, 100)), min_size=1, max_size=6))
def test_no_fit_with_parts_that_are_not_negative_is_better(measured):
    found = StoreSpeed.fit(measured)
    sizes, seconds = np.array(measured).T

    def error(latency, slope):
        return ((latency + slope * sizes - seconds) ** 2).sum()

    assert found.latency >= 0 and found.bandwidth > 0
    if len(np.unique(sizes)) < 2:
        assert found.seconds(sizes[0]) == pytest.approx(seconds.mean())
        return
    best, slope = error(found.latency, 1 / found.bandwidth), 1 / found.bandwidth
    for d in (-1e-3, 1e-3):
        assert error(max(0, found.latency + d), slope) >= best * (1 - 1e-6) - 1e-9
        assert error(found.latency, max(0, slope + d * 1e-8)) >= best * (1 - 1e-6) - 1e-9


def test_commits_of_one_size_say_that_others_take_in_proportion():
    speed = StoreSpeed.fit([(2 * GB, 4.0), (2 * GB, 6.0)])
    assert speed.latency == 0 and speed.seconds(4 * GB) == pytest.approx(10)
    assert StoreSpeed.fit([(0.0, 3.0)]).seconds(1e12) == 3.0


@pytest.mark.parametrize("cost", [CLOUD, Cost(0.95, 1.0, 600.0), Cost(2.0, 0.5, 0.0)])
def test_the_same_memory_throughout_is_to_commit_always(cost):
    """Its price is the one of the judge of all plans, and ALL-CHECKPOINT finds nothing cheaper."""
    one = question(Chain(*SLANT).flat(), cost=cost)
    found = one.always_commit()
    setting = Setting(cost, found.steps[0].commit, found.steps[1].restart)
    milestones = [Milestone(until, until < found.until[-1]) for until in found.until]
    # the grid ends where 1e-7 is left
    judged = expected_cost(milestones, one.law.until(found.until[-1]), setting)
    assert found.price(cost, one.law.mean) == pytest.approx(judged, rel=1e-5)
    plan = plan_reservation(
        str(one.law), setting.checkpoint, setting.restart, cost, "all-checkpoint", number=200, compare=False
    )
    assert found.price(cost, one.law.mean) == pytest.approx(plan.expected, rel=5e-3)
    assert set(found.memory) == {55 * GB}


@pytest.mark.parametrize("cost", [CLOUD, Cost(0.5, 1.0, 300.0)])
@pytest.mark.parametrize("cut", [None, 1500.0])
def test_nothing_is_cheaper_on_a_small_grid(cost, cut):
    """Every subset of nine times was tried (erratum 39: a commit costs where it is made)."""
    one = question(cost=cost, number=9)
    chain, law = one.chain, one.law
    found = one.always_commit(cut)
    start = cut or 0.0
    grid = equal_time(law.given(start) if cut else law, start, 9, end_of(law))
    commits = {at: COMMIT.seconds(chain.state(at)) for at in grid.times}
    restores = {at: RESTORE.seconds(chain.state(at)) for at in grid.times}
    longer = dict(zip(grid.times.tolist(), grid.longer.tolist(), strict=True))

    def price(stops):
        """Of going on from the start with requests that end there."""
        total, before, wasted = 0.0, start, 0.0
        for stop in (*stops, float(grid.times[-1])):
            restore = restores[before] if before else 0.0
            commit = commits[stop] if stop < grid.times[-1] else 0.0
            length = restore + stop - before + commit
            total += (cost.alpha * length + cost.gamma + cost.beta * (restore + wasted)) * longer[before]
            before, wasted = stop, commit
        return total

    inner = grid.times[1:-1].tolist()
    best = min((some for n in range(len(inner) + 1) for some in combinations(inner, n)), key=price)
    assert found.until[1 if cut else 0 : -1] == pytest.approx(best)


def test_a_reservation_is_made_of_restart_work_and_commit():
    found = question().always_commit()
    assert found.steps[0].restart == 0 and found.steps[-1].commit == 0
    begins = (0.0, *found.until[:-1])
    chain = Chain(*SLANT)
    for begin, until, step, memory in zip(begins, found.until, found.steps, found.memory, strict=True):
        assert step.work == pytest.approx(until - begin)
        assert step.restart == pytest.approx(RESTORE.seconds(chain.state(begin)) if begin else 0)
        assert step.commit == pytest.approx(
            0 if until == found.until[-1] else COMMIT.seconds(chain.state(until))
        )
        assert memory == chain.need(begin, until)
    assert found.needed[0] == 1 and list(found.needed) == sorted(found.needed, reverse=True)
    assert found.price(CLOUD, 0.0) == pytest.approx(found.reserved)


def test_knowing_the_memory_costs_less_time_and_memory():
    """Digest 5.8: less of both, and V2 a quarter less memory for hardly more time."""
    one = question(number=1000)
    flat = MemoryQuestion(one.law, one.chain.flat(), COMMIT, RESTORE, CLOUD)
    plain, aware, cut = flat.always_commit(), one.always_commit(), one.always_commit(25 * MINUTE)
    assert aware.reserved < 0.97 * plain.reserved
    memory = {each: each.byte_seconds / each.reserved for each in (plain, aware, cut)}
    assert 0.05 < 1 - memory[aware] / memory[plain] < 0.15
    assert 0.20 < 1 - memory[cut] / memory[plain] < 0.30
    assert aware.reserved < cut.reserved < (1 + WORTH) * aware.reserved
    assert cut.memory[0] == 11 * GB and cut.memory[1] == 55 * GB


def test_cuts_are_before_tasks_that_need_more_than_all_before():
    chain = Chain(*SLANT)
    first, second = chain.cuts()
    assert first == pytest.approx(255 - 1.2816 * 96.7, abs=0.1)
    assert second == pytest.approx(2173 - 1.2816 * 348.2, abs=0.5)
    assert chain.need(0.0, second) == 11 * GB < chain.need(0.0, second + 1)
    assert chain.state(second) == 11 * GB
    assert chain.flat().cuts() == []
    falling = Chain(("normal mean=1h std=1min", "9 GB"), ("normal mean=1h std=1min", "3 GB"))
    assert falling.cuts() == []
    sure = Chain(("normal mean=1h std=0.001s", "1 GB"), ("normal mean=1h std=1min", "3 GB"))
    assert sure.cuts() == [pytest.approx(3600)]


@settings(deadline=None)
@given(chains)
def test_until_a_cut_what_was_enough_is_enough(chain):
    rising = [n for n in range(1, len(chain.peaks)) if chain.peaks[n] > chain.peaks[:n].max()]
    cuts = chain.cuts()
    for task, cut in zip(rising[len(rising) - len(cuts) :], cuts, strict=True):
        assert chain.need(0.0, cut) <= round((1 + chain.margin) * chain.peaks[:task].max())


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.floats(0, 500), st.floats(0, 500)), min_size=7, max_size=7), st.floats(0, 2))
def test_commits_and_restarts_may_take_as_long_as_they_like(takes, beta):
    """The program against every subset of six times."""
    law, cost = read_law("gamma mean=1h std=30min"), Cost(1.0, beta, 60.0)
    grid = equal_time(law, 0.0, 6, end_of(law))
    commits, restarts = map(np.array, zip(*takes, strict=True))
    found = all_checkpoint(grid, Setting(cost, 1.0, 1.0), commits, restarts)

    def price(stops):
        total, before = 0.0, 0
        for stop in (*stops, 6):
            restart = restarts[before] if before else 0.0
            commit = commits[stop] if stop < 6 else 0.0
            length = restart + grid.times[stop] - grid.times[before] + commit
            total += (length + cost.gamma + beta * restart) * grid.longer[before]
            total += beta * commit * grid.longer[stop]
            before = stop
        return total + beta * float(grid.weights @ grid.times[1:])

    best = min(price(some) for n in range(6) for some in combinations(range(1, 6), n))
    assert found.expected == pytest.approx(best)


def test_who_waits_for_a_cut_waits_as_long_as_an_integral_says():
    chain = Chain(*SLANT)
    (_, cut) = chain.cuts()
    times = np.linspace(0, cut, 20_001)
    assert chain.early(cut) == pytest.approx(np.trapezoid(chain.ended(4, times), times), rel=1e-4)
    found = question().always_commit(cut)
    assert found.missing[1] == chain.early(cut) and sum(found.missing) == found.missing[1]


def test_a_cut_is_taken_if_it_is_worth_it():
    one = question()
    chosen = one.best()
    assert chosen.until[0] == pytest.approx(one.chain.cuts()[1])
    slower = question(restart=StoreSpeed(97.0))
    third = slower.always_commit(slower.chain.cuts()[1])
    assert 1.02 < third.reserved / slower.always_commit().reserved < 1.03
    assert slower.best().until[0] == pytest.approx(slower.chain.cuts()[0]), "the other takes more than 2 %"
    slow = question(restart=StoreSpeed(600.0))
    assert slow.best() == slow.always_commit(), "a restart of ten minutes is more than 2 %"


def test_requests_of_any_plan_ask_for_what_their_window_needs():
    chain = Chain(*SLANT)
    law = f"normal mean={chain.mean}s std={chain.std}s min=0s"
    plan = plan_reservation(law, "4min", "2min", "cloud", memory=SLANT, number=100, compare=False)
    saved = 0.0
    for request in plan.requests:
        assert request.memory == chain.need(saved, request.work_until)
        saved = request.work_until if request.commit else saved
    assert plan.requests[0].memory == 55 * GB > plan.requests[-1].memory
    lost = plan_reservation(law, None, None, "cloud", memory=SLANT, number=100, compare=False)
    assert len(lost.requests) > 1, "which all begin anew"
    assert {request.memory for request in lost.requests} == {55 * GB}
    same = plan_reservation(law, "4min", "2min", "cloud", memory="16 GiB", number=100, compare=False)
    assert {request.memory for request in same.requests} == {16 * 2**30}
    assert [one.length for one in same.requests] == [one.length for one in plan.requests]
    assert {request.memory for request in same.after(600.0).requests} == {16 * 2**30}


def test_what_is_planned_later_asks_for_no_less_than_is_needed_then():
    chain = Chain(*SLANT)
    law = f"normal mean={chain.mean}s std={chain.std}s min=0s"
    plan = plan_reservation(law, "4min", "2min", "cloud", memory=SLANT, number=100, compare=False)
    for saved, tried in (
        (0.0, 600.0),
        (plan.requests[0].work_until, 0.0),
        (plan.requests[-2].work_until, 0.0),
    ):
        then = plan.after(saved, max(saved, tried))
        for request in then.requests:
            assert request.memory >= chain.need(saved, request.work_until)
            saved = request.work_until if request.commit else saved
    assert then.requests[-1].memory == plan.requests[-1].memory < plan.requests[0].memory
    assert plan.after(1e6).requests[0].memory == 55 * GB, "nobody knows what comes then"
    assert plan_reservation(law, "4min", number=50, compare=False).after(600.0).requests[0].memory is None
    bare = plan_reservation(law, "4min", "2min", "cloud", number=100, compare=False)
    assert {request.memory for request in bare.requests} == {None}


@pytest.mark.parametrize(
    "memory, complaint",
    [
        ("lots", "memory: found 'lots'"),
        (-1, "memory: found -1"),
        ("inf", "memory: found"),
        ([], "memory: found"),
        ([("normal mean=1h std=1min",)], "memory: task 1: found"),
        ([("normal mean=1h std=1min", "0 B")], "memory: task 1: peak: found 0"),
        (
            [("normal mean=1h std=1min", "1 GB"), ("pareto shape=0.9 min=1h", "1 GB")],
            "memory: task 2: law: found",
        ),
        ([("normal mean=1h", "1 GB")], "memory: task 1: law"),
        (object(), "memory: found"),
    ],
)
def test_bad_memory_is_one_line(memory, complaint):
    with pytest.raises(InputError) as caught:
        plan_reservation("exponential mean=1h", memory=memory, compare=False)
    assert str(caught.value).startswith(complaint) and "\n" not in str(caught.value)


@pytest.mark.parametrize("given", [{"likely": 1.0}, {"likely": -0.1}, {"margin": -0.1}, {"margin": inf}])
def test_bad_thresholds(given):
    with pytest.raises(InputError):
        Chain(*SLANT, **given)
    with pytest.raises(InputError):
        read_chain("SLANT")


@pytest.mark.parametrize("latency, bandwidth", [(-1, 1), (inf, 1), (0, 0), (0, -1)])
def test_bad_speeds(latency, bandwidth):
    with pytest.raises(InputError):
        StoreSpeed(latency, bandwidth)
    with pytest.raises(InputError):
        StoreSpeed.fit([])
