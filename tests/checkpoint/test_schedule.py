"""When the next copies are due."""

import asyncio
from math import inf
from time import monotonic

import pytest

from dask_hpc import config
from dask_hpc.checkpoint.scheduler import schedule as schedules
from dask_hpc.checkpoint.scheduler.schedule import FailureCounts, Schedule

DAY = 86400.0
MTBF = config.checkpoint()["mtbf"]


class Clock:
    def __init__(self, patch):
        self.now = 1000.0
        patch.setattr(schedules, "monotonic", lambda: self.now)


def test_failures_are_counted_against_node_seconds(monkeypatch):
    clock = Clock(monkeypatch)
    failures = FailureCounts({"partner": DAY})
    failures.nodes(10)
    assert failures.rate("partner") == pytest.approx(1 / DAY)
    clock.now += DAY
    assert failures.rate("partner") == pytest.approx(1 / (11 * DAY))
    for _ in range(21):
        failures.seen("partner")
    assert failures.rate("partner") == pytest.approx(2 / DAY)


def test_plans_are_made_when_they_are_needed(monkeypatch):
    Clock(monkeypatch)
    one = Schedule(["partner"], "young", 1e6, FailureCounts(MTBF))
    assert one.next_due_in() == 0, "what is there is copied at once"
    first = asyncio.run(one.plan(4))
    assert asyncio.run(one.plan(4)) is None, "nothing has changed"
    one.done()
    assert one.next_due_in() == pytest.approx(first.every["partner"])
    more = asyncio.run(one.plan(40))
    assert one.next_due_in() == pytest.approx(more.every["partner"])
    assert more.every["partner"] < first.every["partner"]
    for _ in range(20):
        one.measured("partner", 5.0)
    slow = asyncio.run(one.plan(40))
    assert slow.every["partner"] > more.every["partner"]


def test_a_commit_before_the_first_plan_counts(monkeypatch):
    clock = Clock(monkeypatch)
    one = Schedule(["partner"], {"partner": 60.0}, 0, FailureCounts(MTBF))
    one.done()
    clock.now += 10
    asyncio.run(one.plan(1))
    assert one.next_due_in() == pytest.approx(50.0)


def test_the_end_of_the_cluster_is_no_rarer_with_fewer_nodes(monkeypatch):
    Clock(monkeypatch)
    failures = FailureCounts(MTBF)
    for nodes in (1, 64):
        failures.nodes(nodes)
        assert nodes * failures.rate("store") == pytest.approx(1 / DAY)


def test_each_level_is_due_in_its_own_time(monkeypatch):
    clock = Clock(monkeypatch)
    one = Schedule(["partner", "store"], {"partner": 10.0, "store": 30.0}, 0, FailureCounts(MTBF))
    asyncio.run(one.plan(2))
    one.done()
    seen = []
    for _ in range(6):
        clock.now += 10.2  # iterations end when they end
        seen.append(one.is_due("store"))
        one.done(["partner"] + ["store"] * seen[-1])
    assert seen == [False, False, True] * 2
    assert one.due_in() == {"partner": pytest.approx(10.0), "store": pytest.approx(30.0)}


def test_node_seconds_are_those_of_the_nodes_that_were_there(monkeypatch):
    clock = Clock(monkeypatch)
    failures = FailureCounts({"partner": DAY})
    for nodes in (10, 1):
        failures.nodes(nodes)
        clock.now += DAY
    assert failures.rate("partner") == pytest.approx(1 / (12 * DAY))


def test_copies_are_due_with_the_level_that_is_due_first_and_the_store_is_none(monkeypatch):
    clock = Clock(monkeypatch)
    every = {"partner": 20.0, "disk": 60.0, "store": 10.0}
    one = Schedule(list(every), every, 0, FailureCounts(MTBF))
    asyncio.run(one.plan(2))
    one.done()
    assert one.copies_due() == clock.now + 20


def test_what_is_there_as_a_whole_is_stored_at_once_the_first_time(monkeypatch):
    clock = Clock(monkeypatch)
    one = Schedule(["store"], {"store": 30.0}, 0, FailureCounts(MTBF))
    assert one.store_due(True) == clock.now and one.store_due(False) == float("inf")
    asyncio.run(one.plan(2))
    assert one.store_due(True) == clock.now and one.store_due(False) == clock.now + 30
    one.done()
    assert one.store_due(True) == one.store_due(False) == clock.now + 30


def test_planning_takes_no_time_to_speak_of():
    one = Schedule(("partner", "disk"), "auto", 1e9, FailureCounts(MTBF))
    began = monotonic()
    found = asyncio.run(one.plan(64))
    assert set(found.every) == {"partner", "disk"} and monotonic() - began < 10


def test_what_commits_cost_comes_nearer_to_what_is_measured():
    schedule = Schedule(["partner"], "young", 1e9, FailureCounts(MTBF))
    schedule.costs["partner"] = 10.0
    for seconds, cost in ((20.0, 13.0), (3.0, 10.0), (10.0, 10.0)):
        schedule.measured("partner", seconds)
        assert schedule.costs["partner"] == pytest.approx(cost)


def test_near_its_end_nothing_goes_to_the_store_any_more(monkeypatch):
    clock = Clock(monkeypatch)
    one = Schedule(["partner", "store"], "young", 0, FailureCounts(MTBF))
    one.costs["store"] = 2.0
    one.left = 60.0
    short = asyncio.run(one.plan(4))
    assert short.every["store"] == inf and not one.is_due("store") and one.is_due("partner")
    assert one.due_in() == {"partner": 0.0, "store": None}
    one.left = 1e5  # it takes longer than it seemed
    long = asyncio.run(one.plan(4))
    assert long.every["store"] < inf and one.is_due("store") and one.due_in()["store"] == 0.0
    one.done()
    clock.now += long.every["store"]
    one.left = 60.0
    assert asyncio.run(one.plan(4)).every == short.every and one.due_in()["store"] is None
    assert asyncio.run(one.plan(4)) is None, "nothing has changed"
