"""Reservations that may slip by a bound, bets against them, and sets chosen within a window."""

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_machine import decided, machine, wait
from test_queue_strategies import arrivals, starts, workloads
from textbook import textbook

from dask_hpc import Policy, simulate
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.model.waiting import Hole
from dask_hpc.simulator import Machine, Record
from dask_hpc.strategies.queue.easy_backfill import EasyBackfill
from dask_hpc.strategies.queue.flexible_backfill import FlexibleBackfill
from dask_hpc.strategies.queue.window_backfill import WindowBackfill, best_set

ALL = 1_000_000


@pytest.mark.parametrize(
    ("queue", "other"),
    [
        (FlexibleBackfill(slack=0.0), "easy-backfill"),
        (FlexibleBackfill(slack=0.0, share=0.5), "easy-backfill"),
        (FlexibleBackfill(share=1.0), "easy-backfill"),
        (FlexibleBackfill(reservations=ALL, slack=0.0), "conservative-backfill"),
        (WindowBackfill(window=1), "easy-backfill"),
    ],
    ids=repr,
)
@given(jobs=workloads, machine=st.integers(1, 6))
@settings(max_examples=100, deadline=None)
def test_what_it_is_at_the_ends_of_its_range(queue, other, jobs, machine):
    assert starts(jobs, machine, Policy("other end", queue)) == textbook(jobs, machine, other)


@given(
    jobs=workloads,
    machine=st.integers(2, 6),
    reservations=st.sampled_from([1, 2, ALL]),
    slack=st.sampled_from([1.0, 3.0]),
    share=st.sampled_from([0.0, 0.5]),
)
@settings(max_examples=200, deadline=None)
def test_nobody_starts_later_than_promised_and_the_slack(jobs, machine, reservations, slack, share):
    queue = FlexibleBackfill(reservations, slack, share)
    latest: dict[str, float] = {}

    class Watching:
        rank = staticmethod(queue.rank)

        @staticmethod
        def decide(snapshot, memory):
            decided, memory = queue.decide(snapshot, memory)
            assert memory is None or memory.times.keys() == memory.latest.keys()
            assert memory is None or len(memory.times) <= reservations
            for job, time in memory.times.items() if memory else ():
                assert time <= memory.latest[job] == latest.setdefault(job, memory.latest[job])
            for start in decided:
                assert snapshot.now <= latest.get(start.job, inf)
            return decided, memory

    record = Record()
    Machine(machine, Policy("watched", Watching), record).run(arrivals(jobs))
    fit = [nodes <= machine for _, nodes, _, _ in jobs]
    assert [start == start for start in record.start] == fit, "everybody starts"


def reasons(indices, strategy, memory=None):
    starts, memory = strategy.decide(Snapshot(indices), memory)
    for start in starts:
        indices.start(start.job, start.nodes)
    return {start.job: start.reason for start in starts}, memory


def test_a_reservation_slips_by_no_more_than_its_slack_in_all():
    indices = machine(4, (2, 100.0))
    wait(indices, ("head", 4, 50), ("a", 1, 95), ("b", 1, 101))
    queue = FlexibleBackfill(slack=10.0)
    found, memory = reasons(indices, queue)
    assert found == {"a": "job head starts 5 s later than promised, 10 s is allowed"}
    assert memory.times == {"head": 105.0} and memory.latest == {"head": 110.0}
    indices.now = 11.0
    wait(indices, ("c", 1, 99))
    found, memory = reasons(indices, queue, memory)
    assert found == {"c": "job head starts 10 s later than promised, 10 s is allowed"}


def test_the_slack_counts_from_the_first_promise():
    indices = machine(4, (2, 100.0), (1, 60.0))
    wait(indices, ("head", 4, 50))
    queue = FlexibleBackfill(slack=10.0)
    _, memory = reasons(indices, queue)
    indices.end("r0")
    _, memory = reasons(indices, queue, memory)
    assert memory.times == {"head": 60.0} and memory.latest == {"head": 110.0}
    wait(indices, ("a", 3, 90))
    found, memory = reasons(indices, queue, memory)
    assert found == {"a": "job head starts 0 s later than promised, 10 s is allowed"}


def test_a_bet_is_made_if_it_does_no_harm_when_it_is_won():
    def case(share, slack=200.0):
        indices = machine(4, (2, 100.0))
        wait(indices, ("head", 4, 50), ("a", 2, 180), ("b", 2, 182))
        return reasons(indices, FlexibleBackfill(slack=slack, share=share))[0]

    words = "job head starts 90 s later than promised, 3.3 min is allowed"
    assert case(0.5) == {"a": f"bet to take 50% of its walltime; else {words}"}
    assert case(0.51) == {}
    assert case(0.5, slack=89.0) == {}, "a bet that is lost costs no more"


def test_who_is_bet_on_and_ends_early_delays_nobody():
    indices = machine(4, (2, 100.0))
    wait(indices, ("head", 4, 50), ("a", 2, 180))
    queue = FlexibleBackfill(slack=200.0, share=0.5)
    _, memory = reasons(indices, queue)
    assert memory.times == {"head": 190.0}
    indices.now = 95.0
    indices.end("a")
    _, memory = reasons(indices, queue, memory)
    assert memory.times == {"head": 100.0}


def test_promises_are_made_anew_when_nodes_vanish():
    indices = machine(4, (2, 100.0), (2, 50.0), now=0.0)
    wait(indices, ("head", 4, 100))
    queue = FlexibleBackfill()
    _, memory = reasons(indices, queue)
    indices.remove_node("0")
    _, memory = reasons(indices, queue, memory)
    assert memory.times == {"head": inf}
    wait(indices, ("b", 1, 1000))
    indices.end("r1")
    assert set(reasons(indices, queue, memory)[0]) == {"b"}, "nobody knows when the head can start"


def test_nor_the_reservation_of_somebody_behind_the_first():
    def case(walltime, slack=10.0):
        indices = machine(4, (2, 100.0), (1, 50.0))
        wait(indices, ("head", 4, 50), ("next", 2, 30), ("a", 1, walltime))
        return decided(indices, FlexibleBackfill(2, slack))

    assert case(40)[1].times == {"head": 100.0, "next": 50.0}
    assert case(50)[0] == ["a"], "next starts at 60"
    assert case(51)[0] == [], "head could still start at 100, but next only at 150"


def test_promises_are_made_anew_behind_a_job_put_ahead():
    indices = machine(4, (2, 100.0), (2, 50.0), now=0.0)
    wait(indices, ("a", 2, 100))
    queue = FlexibleBackfill(reservations=2)
    _, memory = decided(indices, queue)
    assert memory.times == {"a": 50.0}
    indices.now = 10.0
    indices.requeue("r0", 0, ahead=2)
    indices.remove_node("0")
    _, memory = decided(indices, queue, memory)
    assert memory.times == {"r0": 50.0, "a": 150.0}


def test_with_more_reservations_fewer_overtake():
    def case(reservations):
        indices = machine(4, (3, 100.0))
        wait(indices, ("head", 4, 50), ("next", 3, 50), ("long", 1, 90), ("longer", 1, 200))
        return decided(indices, FlexibleBackfill(reservations, slack=0.0))

    assert case(1)[0] == ["long"]
    assert case(2)[1].times == {"head": 100.0, "next": 150.0}


sizes = st.lists(st.tuples(st.integers(1, 8), st.booleans()), min_size=1, max_size=8)


@given(sizes, st.integers(1, 12), st.integers(0, 12))
@settings(deadline=None)
def test_the_best_set_is_the_best_of_all_sets(jobs, idle, spare):
    indices = machine(1)
    wait(indices, *((str(i), nodes, 100 if long else 10) for i, (nodes, long) in enumerate(jobs)))
    listed = list(indices.waiting)

    def fits(chosen):
        late = sum(job.nodes for job in chosen if job.walltime > 10)
        return sum(job.nodes for job in chosen) <= idle and late <= spare

    every = [[job for i, job in enumerate(listed) if mask >> i & 1] for mask in range(2 ** len(listed))]
    most = max(sum(job.nodes for job in chosen) for chosen in every if fits(chosen))
    found = list(best_set(listed, Hole(idle, 10.0, spare)))
    assert fits(found) and sum(job.nodes for job in found) == most
    taken = min(
        sum(job.nodes for job in chosen if job.walltime > 10)
        for chosen in every
        if fits(chosen) and sum(job.nodes for job in chosen) == most
    )
    assert sum(job.nodes for job in found if job.walltime > 10) == taken


def test_a_window_fills_the_hole_better_than_one_after_the_other():
    def case(strategy):
        indices = machine(8, (3, 100.0))
        wait(indices, ("head", 8, 50), ("a", 2, 10), ("b", 1, 10), ("c", 4, 10), ("d", 1, 10))
        return decided(indices, strategy)[0]

    assert case(EasyBackfill()) == ["a", "b", "d"]
    assert case(WindowBackfill()) == ["b", "c"], "of two that fill it, the earlier one"
    assert case(WindowBackfill(window=2)) == ["a", "b", "d"]
    assert case(WindowBackfill(depth=1)) == ["b"]


@given(jobs=workloads, machine=st.integers(2, 6))
@settings(max_examples=100, deadline=None)
def test_the_first_in_line_is_not_delayed_by_a_window(jobs, machine):
    """It starts no later than its first shadow time: that only moves forward."""
    shadows: dict[str, float] = {}
    queue = WindowBackfill()

    class Watching:
        rank = staticmethod(queue.rank)

        @staticmethod
        def decide(snapshot, memory):
            decided, memory = queue.decide(snapshot, memory)
            for start in decided:
                assert snapshot.now <= shadows.get(start.job, inf)
            rest = [job for job in snapshot.waiting if job.id not in {start.job for start in decided}]
            if memory is not None and rest:
                shadows.setdefault(rest[0].id, memory.shadow)
            return decided, memory

    Machine(machine, Policy("watched", Watching), Record()).run(arrivals(jobs))


@pytest.mark.parametrize("name", ["flexible-backfill", "speculative-backfill", "window-backfill"])
def test_they_are_ready_made(name):
    jobs = [(0, 3, 9, 9), (0, 2, 4, 9), (1, 4, 2, 2), (1, 1, 2, 11)]
    assert set(simulate(arrivals(jobs), nodes=4, policy=name).jobs["state"]) == {"completed"}
