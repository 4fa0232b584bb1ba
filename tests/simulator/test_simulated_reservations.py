"""What plans of reservations do to jobs: costs, commits that do not fit, memory, and one queue for all."""

from dataclasses import replace
from heapq import heapreplace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc import plan_reservation
from dask_hpc.planning.reservation.cost import CLOUD, Cost
from dask_hpc.planning.reservation.law import read_law
from dask_hpc.planning.reservation.memory_chain import MemorySequence
from dask_hpc.planning.reservation.plan import Request, ReservationPlan
from dask_hpc.planning.reservation.sequence import Milestone, Setting, Step, expected_cost, steps
from dask_hpc.simulator.reservations import JobStay, TaskTrace, UsedReservation, queued, stay

LAW = read_law("uniform max=1000s")


def planned(*milestones, checkpoint=10.0, restart=5.0, cost=CLOUD, memory=None):
    """A plan of these milestones, as (work, commit) each."""
    found = [Milestone(float(work), commit) for work, commit in milestones]
    made = steps(found, Setting(cost, checkpoint, restart))
    return ReservationPlan(
        requests=tuple(Request(s.length, m.work, m.commit, memory) for s, m in zip(made, found, strict=True)),
        law=LAW, cost=cost, checkpoint=checkpoint, restart=restart, expected=0.0, over_omniscient=1.0,
    )  # fmt: skip


milestones = st.lists(
    st.tuples(st.floats(1, 999), st.booleans()), max_size=6, unique_by=lambda one: one[0]
).map(lambda found: [*sorted(found), (1000.0, False)])
costs = st.builds(Cost, st.floats(0.1, 3), st.floats(0, 3), st.floats(0, 100))
times = st.floats(0, 50)


@given(milestones, times, times, costs, st.floats(0.5, 1000))
def test_a_job_pays_what_the_formula_says(works, checkpoint, restart, cost, duration):
    """Seed 004, formula 9.9; every reservation but the last is used in full."""
    plan = planned(*works, checkpoint=checkpoint, restart=restart, cost=cost)
    found = stay(plan, duration)
    k = next(n for n, (work, _) in enumerate(works) if duration <= work * (1 + 1e-9))
    lengths = [one.length for one in plan.requests[: k + 1]]
    kept = max((work for work, commit in works[:k] if commit), default=0.0)
    last = (restart if kept else 0.0) + duration - kept
    price = sum((cost.alpha + cost.beta) * one + cost.gamma for one in lengths[:-1])
    price += cost.alpha * lengths[-1] + cost.beta * last + cost.gamma
    assert [one.length for one in found.reservations] == pytest.approx(lengths)
    assert found.price(cost) == pytest.approx(price)
    assert found.reserved == pytest.approx(sum(lengths))
    assert found.used == pytest.approx(sum(lengths[:-1]) + last)
    assert found.utilisation == pytest.approx(1 / found.stretch) and found.utilisation <= 1 + 1e-9
    assert found.lost == 0 and found.reservations[-1].saved == duration
    saved = [one.saved for one in found.reservations]
    assert saved == sorted(saved) and found.reservations[-1].used == pytest.approx(last)


@settings(max_examples=20, deadline=None)
@given(milestones, times, times, costs)
def test_jobs_of_a_law_pay_on_average_what_the_plan_expects(works, checkpoint, restart, cost):
    plan = planned(*works, checkpoint=checkpoint, restart=restart, cost=cost)
    expected = expected_cost([Milestone(*one) for one in works], LAW, Setting(cost, checkpoint, restart))
    # between two milestones the price is a line: the mean over an interval is that of its middle
    ends = [0.0, *(work for work, _ in works)]
    mean = sum(stay(plan, (low + high) / 2).price(cost) * (high - low) / 1000 for low, high in pairwise(ends))
    assert mean == pytest.approx(expected)


def test_a_real_plan_costs_what_it_expects():
    law = read_law("lognormal mean=2h std=1h")
    plan = plan_reservation(law, "10min", "5min", (1, 0.5, 60), number=100, compare=False)
    durations = law.isf((np.arange(4000) + 0.5) / 4000)
    mean = np.mean([stay(plan, float(one)).price(plan.cost) for one in durations])
    assert mean == pytest.approx(plan.expected, rel=2e-3)


def test_a_commit_that_does_not_fit_is_lost_and_the_next_length_goes_back():
    """Digest 4.4: R1 + T1 + T2 + C2 after a lost commit, R2 + T2 + C2 after one that fits."""
    plan = planned((100, True), (180, True), (300, False))
    found = stay(plan, 300.0, commit=lambda work: 10.0 if work > 150 else 11.0)
    assert [one.length for one in found.reservations] == [110, 180 + 10, 5 + 300 - 180]
    assert [one.saved for one in found.reservations] == [0, 180, 300] and found.lost == 1
    both = stay(plan, 300.0, commit=lambda _: 11.0)
    assert [one.length for one in both.reservations] == [110, 190, 300] and both.lost == 2
    assert stay(plan, 300.0, commit=lambda _: 10.0) == stay(plan, 300.0)


def test_a_restart_that_takes_longer_leaves_less_time_for_work():
    plan = planned((100, True), (180, True), (300, False))
    found = stay(plan, 300.0, restart=lambda _: 25.0)
    second, third, fourth = found.reservations[1:]
    assert second.length == 5 + 80 + 10 and second.saved == 160, "20 s are missing, the commit is in time"
    assert third.length == 5 + 300 - 160 and third.saved == 160, "nothing was to be kept"
    assert fourth.length == 5 + 600 - 160 and fourth.used == 25 + 300 - 160
    endless = stay(plan, 300.0, restart=lambda _: 95.0)
    assert endless.lost == 1, "there is no time for any work, and nothing new to keep"
    quick = stay(plan, 182.0, restart=lambda _: 3.0)
    assert [one.saved for one in quick.reservations] == [100, 182], "and a shorter one more"


def test_reservations_that_know_what_comes_are_as_long_as_it_takes():
    """Seed 004, 11.3.2: commits count within the request, and none is ever lost."""
    plan = planned((100, True), (180, True), (300, False))
    found = stay(plan, 300.0, commit=lambda _: 14.0, restart=lambda _: 2.0, fits=True)
    assert [one.length for one in found.reservations] == [114, 2 + 80 + 14, 2 + 120]
    assert found.lost == 0 and found.used == found.reserved
    takes = iter([14.0, 16.0, 18.0])
    varies = stay(plan, 300.0, commit=lambda _: next(takes), fits=True)
    assert [one.length for one in varies.reservations] == [114, 5 + 80 + 16, 5 + 120], "each is known once"
    assert varies.lost == 0


def test_who_outlives_a_plan_asks_for_twice_as_much():
    plan = planned((100, False), (200, False))
    found = stay(plan, 700.0)
    assert [one.length for one in found.reservations] == [100, 200, 400, 800]
    kept = stay(planned((100, True), (200, False)), 700.0)
    assert [one.length for one in kept.reservations] == [110, 105, 305, 705]


def test_a_plan_that_begins_with_a_checkpoint_begins_with_a_restart():
    plan = planned((400, True), (1000, False))
    later = replace(plan, requests=plan.requests[1:], saved=400.0)
    assert [one.length for one in stay(later, 900.0).reservations] == [5 + 600]
    assert stay(later, 900.0).reservations[0].used == 5 + 500


def test_what_cannot_be_kept_needs_no_times():
    plan = plan_reservation("uniform min=30min max=1h", cost="cloud", number=20, compare=False)
    assert stay(plan, 1800.0).reserved == 3600


TRACE = TaskTrace(((100.0, 4.0), (50.0, 9.0), (60.0, 2.0)))


def test_a_trace_says_what_is_needed_when():
    assert TRACE.duration == 210
    assert [TRACE.peak(at) for at in (0, 99, 100, 101, 150, 151, 210, 999)] == [4, 4, 4, 9, 9, 2, 2, 2]
    assert TRACE.hungry(0, 4) == (100, 9) and TRACE.hungry(120, 4) == (120, 9)
    assert TRACE.hungry(0, 3) == (0, 4) and TRACE.hungry(150, 2) == (float("inf"), 2)


def sequence(*rows):
    """Of (work, restart, commit, memory)."""
    until, found = tuple(row[0] for row in rows), []
    for (end, restart, commit, _), begin in zip(rows, (0.0, *until), strict=False):
        found.append(Step(restart, end - begin, commit))
    return MemorySequence(
        until, tuple(found), tuple(row[3] for row in rows), (1.0,) * len(rows), (0.0,) * len(rows)
    )


def test_a_job_stops_before_a_task_that_needs_more_than_was_asked_for():
    """MEM-ALL-CKPTV2: it commits, and what is left of the reservation is wasted."""
    plan = sequence((120.0, 0.0, 10.0, 4.0), (300.0, 5.0, 0.0, 9.0))
    found = stay(plan, TRACE)
    first, second = found.reservations
    assert (first.length, first.used, first.saved, first.memory) == (130, 130, 100, 4)
    assert (second.length, second.used, second.memory) == (5 + 200, 5 + 110, 9)
    early = stay(plan, TRACE, commit=lambda _: 29.0)
    assert early.reservations[0].saved == 100, "who stops early has more time for the commit"
    assert stay(plan, TRACE, commit=lambda _: 31.0).lost == 1


def test_who_was_stopped_asks_for_enough_from_then_on():
    plan = sequence((120.0, 0.0, 10.0, 4.0), (220.0, 5.0, 0.0, 5.0))
    assert [one.memory for one in stay(plan, TRACE).reservations] == [4, 9]


def test_memory_that_nobody_speaks_of_stops_nobody():
    assert len(stay(planned((1000, False)), TRACE).reservations) == 1


def test_metrics_of_two_reservations():
    """Digest 4.6, of T1 < t <= T2: R1 + R2 + T2 + C1 + C2, and memory weighted by the lengths."""
    plan = sequence((100.0, 0.0, 10.0, 8.0), (200.0, 5.0, 20.0, 4.0))
    found = stay(plan, 150.0)
    assert found.reserved == 5 + 200 + 10 + 20
    assert found.utilisation == 150 / 235
    assert found.memory == pytest.approx((110 * 8 + 125 * 4) / 235)
    assert found.byte_seconds == pytest.approx(110 * 8 + 125 * 4)


def stays_of(*used):
    """Jobs that use so many seconds of each of their reservations."""
    return [JobStay(1.0, tuple(UsedReservation(one + 1.0, one, 0.0, 0.0) for one in each)) for each in used]


def test_who_asks_again_stands_at_the_end():
    assert queued(stays_of([3, 1], [2], [2]), 1).ends == (8, 5, 7)
    assert queued(stays_of([3, 1], [2], [2]), 2).ends == (4, 2, 4)
    assert queued(stays_of([3, 1], [2], [2]), 9).ends == (4, 2, 2)


@given(
    st.lists(st.lists(st.integers(1, 50), min_size=1, max_size=4), min_size=1, max_size=30), st.integers(1, 8)
)
def test_slots_are_never_idle_while_somebody_waits(used, slots):
    day = queued(stays_of(*used), slots)
    assert len(day.ends) == len(used)
    assert all(end >= sum(each) for end, each in zip(day.ends, used, strict=True))
    work, longest = sum(map(sum, used)), max(map(sum, used))
    assert max(work / slots, longest) <= day.makespan <= work / slots + longest
    if all(len(each) == 1 for each in used):  # whoever is next takes the slot that is free first
        free = [0] * slots
        ends = []
        for (one,) in used:
            ends.append(free[0] + one)
            heapreplace(free, ends[-1])
        assert list(day.ends) == ends
