"""Limits of file systems, and what goes next beside what."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc import Policy
from dask_hpc.strategies.io.io_aware import IoBalance
from dask_hpc.strategies.io.io_lanes import IoLanes
from dask_hpc.strategies.io.lane_view import IoView, Kind, LaneLimit, LaneView, Mix, NodeMix

THREADS = 8


class FileSystem:
    """As live control sees it: sums since the limit was changed."""

    def __init__(self, curve, name="/a", waiting=10**6):
        self.curve = curve
        self.view = LaneView(name, None, False, 0, waiting, 0, 0, 0.0, 0.0, 0.0)

    def serves(self, reads):
        level = self.view.limit or THREADS
        self.view = replace(
            self.view,
            done=self.view.done + reads,
            tasks=self.view.tasks + reads,
            company=self.view.company + reads * level,
            seconds=self.view.seconds + reads * level / self.curve(level),
            squares=self.view.squares + reads * (level / self.curve(level)) ** 2,
        )

    def obeys(self, limits):
        for one in limits:
            if one.lane == self.view.name:
                self.view = replace(
                    self.view, limit=one.limit, tasks=0, company=0.0, seconds=0.0, squares=0.0
                )


def collapsing(knee):
    return lambda level: level if level <= knee else knee / 3


def run(strategy, systems, turns=200, memory=None):
    said = []
    for _ in range(turns):
        for one in systems:
            one.serves(3)
        limits, memory = strategy.decide(IoView(THREADS, tuple(one.view for one in systems)), memory)
        said += limits
        for one in systems:
            one.obeys(limits)
    return said, memory


def test_each_file_system_gets_its_own_limit():
    systems = [FileSystem(collapsing(knee), f"/{knee}") for knee in (2, 5, 8)]
    said, _ = run(IoLanes(), systems)
    assert [one.view.limit for one in systems] == [2, 5, None]
    assert all(limit.reason for limit in said)
    last = next(one for one in reversed(said) if one.lane == "/2")
    assert "2 at once are served" in last.reason and "/s with 2" in last.reason


def test_what_a_person_set_is_left_alone():
    fixed = FileSystem(collapsing(2))
    fixed.view = replace(fixed.view, is_fixed=True, limit=6)
    assert run(IoLanes(), [fixed])[0] == []


def test_a_limit_to_begin_with_and_bounds():
    one = FileSystem(collapsing(8))
    said, _ = run(IoLanes(limit=3, tune=False), [one])
    assert said == [LaneLimit("/a", 3, "3 to begin with")]
    one = FileSystem(collapsing(1))
    run(IoLanes(least=2), [one])
    assert one.view.limit == 2
    one = FileSystem(collapsing(8))
    run(IoLanes(most=4), [one])
    assert one.view.limit == 4


def test_a_try_ends_with_the_reads():
    one = FileSystem(collapsing(4))
    _, memory = run(IoLanes(), [one], 11)
    assert one.view.limit == 4 and memory["/a"].search.is_trying
    one.view = replace(one.view, waiting=0, tasks=2)
    limits, memory = IoLanes().decide(IoView(THREADS, (one.view,)), memory)
    assert [limit.limit for limit in limits] == [None]


def test_what_was_found_is_remembered_when_reads_come_again():
    one = FileSystem(collapsing(3))
    _, memory = run(IoLanes(), [one])
    again = FileSystem(collapsing(3))
    limits, _ = IoLanes().decide(IoView(THREADS, (again.view,)), memory)
    assert limits[0].limit == 3 and "are served best" in limits[0].reason


def test_another_size_of_the_cluster():
    one = FileSystem(collapsing(3))
    _, memory = run(IoLanes(), [one])
    _, memory = IoLanes().decide(IoView(2, (one.view,)), memory)
    assert memory["/a"].search.best == 2
    free = FileSystem(collapsing(100))
    _, memory = run(IoLanes(), [free])
    _, memory = IoLanes().decide(IoView(64, (free.view,)), memory)
    assert memory["/a"].search.best == 64


# --- what goes next


READS, COMPUTES = Kind(1.0, 100, 1.0), Kind(0.0, 100, 1.0)


def node(reads, computes, name="n"):
    return NodeMix(name, reads + computes, float(reads))


def mixed(nodes, reads=READS, computes=COMPUTES, first=False):
    tasks, load = sum(one.tasks for one in nodes), sum(one.load for one in nodes)
    return Mix(tasks, load, reads, computes, tuple(nodes), first)


def test_half_and_half():
    assert IoLanes().next_of(mixed([node(0, 3)])).is_read
    assert not IoLanes().next_of(mixed([node(3, 0)])).is_read
    assert "I/O intensity" in IoLanes().next_of(mixed([node(3, 0)])).reason


def test_the_node_that_computes_most():
    found = IoLanes().next_of(mixed([node(2, 1, "a"), node(0, 3, "b"), node(1, 2, "c")]))
    assert found.is_read and found.node == "b"


def test_as_dask_orders_if_both_are_the_same():
    same = replace(READS, intensity=0.5), replace(COMPUTES, intensity=0.5)
    for first in (True, False):
        assert IoLanes().next_of(mixed([node(1, 1)], *same, first)).is_read is first


@given(st.integers(1, 12), st.integers(1, 200), st.integers(1, 200), st.floats(0.1, 10), st.floats(0.1, 10))
def test_both_kinds_end_together(threads, reads, computes, read_time, compute_time):
    """Slots are filled one after the other: the shares of the threads are those of the time to be spent."""
    io, cpu = Kind(1.0, reads, read_time), Kind(0.0, computes, compute_time)
    now = [0, 0]
    for _ in range(threads):
        found = IoLanes().next_of(mixed([node(*now)], io, cpu))
        now[0 if found.is_read else 1] += 1
    share = reads * read_time / (reads * read_time + computes * compute_time)
    assert now[0] == pytest.approx(share * threads, abs=2)


@given(st.integers(0, 9), st.integers(0, 9), st.floats(0, 1), st.floats(0, 1))
def test_what_goes_next_is_nearest_to_the_workload(running_reads, running, read, compute):
    mix = mixed([node(running_reads, running)], replace(READS, intensity=read),
                replace(COMPUTES, intensity=compute))  # fmt: skip
    found = IoLanes().next_of(mix)
    balance = IoBalance(mix.load, mix.tasks, 100 * read + 100 * compute, 200)
    goal = balance.workload(None)
    best = min(balance.off(goal, read, 1), balance.off(goal, compute, 1))
    assert balance.off(goal, read if found.is_read else compute, 1) == pytest.approx(best, abs=1e-9)


def test_the_ready_made_policy():
    policy = Policy.load("io-lanes")
    assert policy.io == IoLanes() and policy.queue.name == "easy-backfill"
    assert policy.with_(**{"io.pair": False, "io.most": 16}).io == IoLanes(pair=False, most=16)
