"""What is asked for and taken back; predictions that are checked, and bounds that learn from it; budgets."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from queues import HOUR, MINUTE, queue

from dask_hpc.model.errors import InputError
from dask_hpc.planning.asks.budget import SpentBudget, parse_node_hours, show_node_hours
from dask_hpc.planning.asks.calibration import PredictedWait, StartRecord
from dask_hpc.planning.asks.line import WaitingAsk
from dask_hpc.planning.asks.queue import RunningAsk
from dask_hpc.planning.asks.replay import Starts
from dask_hpc.planning.asks.shapes import AskShape, WantedWork
from dask_hpc.planning.asks.watch import AskWatch, told_plan

LONG = AskShape(8 * HOUR, "batch")
WORK = WantedWork(10 * HOUR, 4, 5 * MINUTE, 10 * MINUTE)


def test_on_an_empty_machine_the_work_is_asked_for_at_once():
    plan = AskWatch(LONG).decide(queue(), (), 4, WORK)
    assert len(plan.new) == 4
    assert sum(shape.walltime - WORK.overhead for shape in plan.new) >= WORK.seconds
    assert max(shape.walltime for shape in plan.new) < 4 * HOUR
    assert [wait.median for wait in plan.expected_new] == [0.0] * 4
    assert told_plan(plan).startswith("4 jobs: ") and "starts now" in plan.why


def test_no_more_is_asked_for_than_the_work_needs():
    plan = AskWatch(LONG).decide(queue(nodes=40), (), 40, replace(WORK, seconds=HOUR, most=40))
    assert 1 <= len(plan.new) <= 8
    assert AskWatch(LONG).decide(queue(), (), 0, WORK).new == ()


@pytest.mark.parametrize("time, lost", [(120.0, 1), (150.0, 1), (100.0, 2)])
def test_a_hole_is_filled_and_the_rest_is_asked_for_behind_it(time, lost):
    """It is over at a whole minute of the clock, and Slurm looks half a minute from now."""
    view = queue([("r", (0, 1), 5 * HOUR)], [("a", 4, HOUR)], now=time)
    plan = AskWatch(LONG).decide(view, (), 4, replace(WORK, seconds=50 * HOUR))
    now = [shape for shape, wait in zip(plan.new, plan.expected_new, strict=True) if wait.median == 0]
    assert [shape.walltime for shape in now] == [5 * HOUR - lost * MINUTE] * 2
    assert len(plan.new) == 3  # the last place is kept for a hole to come


def test_who_is_overtaken_is_taken_back():
    # both nodes are free now; ours was asked for with a walltime that does not fit before a
    view = queue([("r", (0, 1, 2), 2 * HOUR)], [("a", 4, 24 * HOUR), ("me", 1, 8 * HOUR)])
    waiting = [WaitingAsk("unit", LONG, -HOUR, "me")]
    watch = AskWatch(LONG)
    plan = watch.decide(view, waiting, 0, WantedWork(90 * MINUTE, 1, 5 * MINUTE))
    assert list(plan.withdraw) == ["unit"]
    assert plan.withdraw["unit"].startswith("overtaken: ")
    assert len(plan.new) == 1 and plan.new[0].walltime <= 2 * HOUR
    # not if it was asked for just now, nor if the other is hardly better, nor if it is expected soon
    new = [replace(waiting[0], asked=-60.0)]
    assert AskWatch(LONG).decide(view, new, 0, WantedWork(90 * MINUTE, 1, 5 * MINUTE)).withdraw == {}
    assert AskWatch(LONG, margin=0.9, gain=0.0).decide(view, waiting, 0, WORK).withdraw == {}
    soon = queue([("r", (0, 1, 2, 3), 5 * MINUTE)], [("me", 1, 8 * HOUR)])
    plan = AskWatch(LONG).decide(soon, waiting, 0, replace(WORK, seconds=5 * HOUR))
    assert plan.withdraw == {} and plan.expected["unit"].high <= 20 * MINUTE


def test_most_of_the_units_are_kept_for_holes_to_come():
    view = queue([("r", (0, 1, 2, 3), 5 * HOUR)])
    work = replace(WORK, seconds=50 * HOUR, most=16)
    plan = AskWatch(LONG).decide(view, (), 16, work)
    assert len(plan.new) == 2
    waiting = [WaitingAsk(str(at), shape, 0.0) for at, shape in enumerate(plan.new)]
    assert AskWatch(LONG).decide(view, waiting, 14, work).new == ()
    assert len(AskWatch(LONG).decide(view, (), 3, work).new) == 1


def test_holes_come_before_those_who_wait_but_the_first_keeps_his_place():
    # n2 and n3 are free until a needs all; three of ours wait behind it, and there may be no fourth
    others = [("a", 4, 24 * HOUR), ("0", 1, 8 * HOUR), ("1", 1, 8 * HOUR), ("2", 1, 8 * HOUR)]
    view = queue([("r", (0, 1), 2 * HOUR)], others)
    waiting = [WaitingAsk(name, LONG, -HOUR, name) for name in "012"]
    work = replace(WORK, seconds=40 * HOUR, most=3)
    plan = AskWatch(LONG).decide(view, waiting, 0, work)
    assert sorted(plan.withdraw) == ["1", "2"]
    assert [shape.walltime for shape in plan.new] == [2 * HOUR - MINUTE] * 2  # if Slurm looks a little later
    assert all("others start now, it would in" in why for why in plan.withdraw.values())
    one = AskWatch(LONG).decide(view, waiting, 1, work)
    assert list(one.withdraw) == ["2"] and len(one.new) == 2
    young = [replace(ask, asked=0.0) for ask in waiting]
    assert AskWatch(LONG).decide(view, young, 0, work).withdraw == {}


def test_who_was_to_fill_a_hole_that_is_gone_is_taken_back():
    view = queue([("r", (0, 1, 2, 3), 5 * HOUR)], [("0", 1, 2 * HOUR), ("1", 1, 2 * HOUR)])
    short = AskShape(2 * HOUR, "batch")
    waiting = [WaitingAsk("0", short, -HOUR, "0", is_filler=True), WaitingAsk("1", short, -HOUR, "1")]
    plan = AskWatch(LONG).decide(view, waiting, 0, replace(WORK, seconds=30 * HOUR))
    assert list(plan.withdraw) == ["0"] and "the hole that it was for is gone" in plan.withdraw["0"]
    young = [replace(ask, asked=0.0) for ask in waiting]
    assert AskWatch(LONG).decide(view, young, 0, replace(WORK, seconds=30 * HOUR)).withdraw == {}


def test_who_is_not_needed_any_more_is_taken_back_the_last_first():
    view = queue([("r", (0, 1, 2, 3), 9 * HOUR)], [("one", 2, 8 * HOUR), ("two", 3, 8 * HOUR)])
    waiting = [WaitingAsk("1", LONG, -HOUR, "one"), WaitingAsk("2", LONG, -HOUR, "two")]
    watch = AskWatch(LONG, margin=0.9)
    assert watch.decide(view, waiting, 0, replace(WORK, seconds=7 * HOUR)).withdraw == {}
    plan = watch.decide(view, waiting, 0, replace(WORK, seconds=5 * HOUR))
    assert list(plan.withdraw) == ["2"]
    assert plan.new == ()
    assert set(plan.expected) == {"1"}


def test_an_ask_that_the_queue_does_not_show_yet_counts():
    view = queue([("r", (0, 1, 2, 3), HOUR)])
    waiting = [WaitingAsk(str(at), AskShape(HOUR, "batch"), 0.0) for at in range(4)]
    plan = AskWatch(LONG).decide(view, waiting, 0, replace(WORK, seconds=4 * HOUR))
    assert set(plan.expected) == set("0123")


def test_no_budget_no_asks():
    plan = AskWatch(LONG).decide(queue(), (), 4, replace(WORK, budget=0.0))
    assert plan.new == () and plan.why == "the budget is used up"
    plan = AskWatch(LONG).decide(queue(nodes=0), (), 4, WORK)
    assert plan.new == () and plan.why == "no shape is known that would start"


def spread(low, median, high):
    """A law of 31 courses."""
    return Starts(tuple((time,) for time in [low] * 10 + [median] * 11 + [high] * 10))


def test_bounds_are_the_replays_to_begin_with_and_grow_with_misses():
    record = StartRecord()
    starts = spread(1000.0, 2000.0, 4000.0)
    wait = record.wait(starts, 0.0)
    assert wait.low == pytest.approx(1000, rel=0.25) and wait.high == pytest.approx(4000, rel=0.25)
    chosen = record.wait(starts, 0.0, is_chosen=True)
    assert chosen.high > wait.high
    for at in range(60):  # most of them come far later than predicted
        record.predicted(f"j{at}", 0.0, starts)
    started = tuple(RunningAsk(f"j{at}", ("n0",), 8000.0 if at % 4 else 2000.0, HOUR) for at in range(60))
    record.look(replace(queue(now=9000.0), running=started))
    assert record.checked == 60
    later = record.wait(starts, 0.0)
    assert later.high > 7000 and later.low > wait.low


def test_what_was_chosen_is_checked_apart():
    record = StartRecord()
    starts = spread(1000.0, 2000.0, 4000.0)
    for at in range(40):
        record.chosen(f"j{at}", 0.0, record.wait(starts, 0.0, is_chosen=True))
    before = record.wait(starts, 0.0, is_chosen=True)
    started = tuple(RunningAsk(f"j{at}", ("n0",), 20_000.0, HOUR) for at in range(40))
    record.look(replace(queue(now=30_000.0), running=started))
    assert record.wait(starts, 0.0, is_chosen=True).high > before.high
    assert record.wait(starts, 0.0) == StartRecord().wait(starts, 0.0)


def test_what_starts_at_once_is_no_test_and_who_goes_away_is_forgotten():
    record = StartRecord()
    record.predicted("now", 0.0, spread(0.0, 0.0, 0.0))
    record.predicted("gone", 0.0, spread(1000.0, 2000.0, 4000.0))
    record.look(replace(queue(now=500.0), running=(RunningAsk("now", ("n0",), 0.0, HOUR),)))
    assert record.checked == 0
    record.look(replace(queue(now=900.0), running=(RunningAsk("gone", ("n0",), 800.0, HOUR),)))
    assert record.checked == 0


TIMES = st.floats(0, 1e6)


@given(TIMES, TIMES, TIMES, st.booleans(), st.lists(TIMES, max_size=20))
def test_bounds_are_in_order(a, b, c, is_chosen, waits):
    low, median, high = sorted((a, b, c))
    record = StartRecord()
    starts = spread(low, median, high)
    for at, _ in enumerate(waits):
        record.predicted(str(at), 0.0, starts)
    started = tuple(RunningAsk(str(at), ("n0",), wait, HOUR) for at, wait in enumerate(waits))
    record.look(replace(queue(now=2e6), running=started))
    wait = record.wait(starts, 0.0, is_chosen=is_chosen)
    assert 0 <= wait.low <= wait.median <= wait.high < inf


def test_misses_by_hand():
    wait = PredictedWait(100.0, 50.0, 300.0)
    assert wait.miss(100.0, 0.0) == 0.0
    assert wait.miss(300.0, 0.0) == pytest.approx(1.0)
    assert wait.miss(50.0, 0.0) == pytest.approx(-1.0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500 node-hours", 1.8e6), ("1 node hour", 3600.0), ("2.5 node-days", 216_000.0), (None, inf)],
)
def test_budgets_as_people_write_them(text, seconds):
    assert parse_node_hours(text) == seconds


@pytest.mark.parametrize("text", [500, "500", "500 hours", "-1 node-hours", "many node-hours", True, ""])
def test_budgets_that_make_no_sense(text):
    with pytest.raises(InputError, match=r"hpc.ask: budget: found .*; allowed: an amount"):
        parse_node_hours(text, "hpc.ask: budget")


def test_a_budget_counts_what_ran_and_what_may_still_run():
    budget = SpentBudget(10 * HOUR, share=0.5)
    budget.seen("a", 4 * HOUR, 0.0)
    budget.seen("b", 8 * HOUR, HOUR)
    assert (budget.used, budget.left) == (0.5 * HOUR, 4 * HOUR)
    budget.seen("a", 99 * HOUR, 2 * HOUR)  # its walltime is what it was asked for with
    budget.only({"b"})
    assert (budget.used, budget.left) == (1.5 * HOUR, 5 * HOUR)
    budget.only(set())
    assert (budget.used, budget.left) == (1.5 * HOUR, 8.5 * HOUR)
    assert show_node_hours(budget.left) == "8.5 node-hours" and show_node_hours(inf) == "no limit"
