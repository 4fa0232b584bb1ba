"""Which shape waits least: by hand, against trying everything, and within all limits."""

from dataclasses import replace
from itertools import product
from math import ceil, inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from queues import HOUR, MINUTE, part, queue

from dask_hpc.model.errors import InputError
from dask_hpc.planning.asks.node_sets import PieceMap
from dask_hpc.planning.asks.queue import QueueQos
from dask_hpc.planning.asks.replay import Replay
from dask_hpc.planning.asks.shapes import (
    AskShape,
    WantedWork,
    best_shape,
    done_after,
    fillers,
    units_needed,
)
from dask_hpc.planning.asks.used import UsedShare, UsedShares

FULL = UsedShares(tuple(UsedShare(2.0**k, 0.0, 1.0) for k in range(5, 22) for _ in range(20)))


def replay(view, used=FULL):
    return Replay(view, PieceMap.of(view), used)


def test_when_work_is_done_by_hand():
    work = WantedWork(100.0, 2, overhead=10.0, least=1.0)
    assert done_after([0.0], AskShape(200.0), work) == 110.0
    assert done_after([0.0, 20.0], AskShape(200.0), work) == pytest.approx(70.0)  # 60 s and 40 s
    # one of 60 s does 50 s of it; its successor is there when it ends
    assert done_after([0.0], AskShape(60.0), work) == 120.0
    # who waits 40 s asks again after 30 s, and starts 10 s after the end
    assert done_after([40.0], AskShape(60.0), work) == 170.0
    assert done_after([0.0], AskShape(10.0), work) == done_after([inf], AskShape(60.0), work) == inf
    assert done_after([0.0], AskShape(60.0, nodes=2), work) == 60.0


def brute_done(starts, shape, work):
    """Second by second."""
    units, left, time = [(start, start) for start in starts], work.seconds, 0
    while left > 1e-9:
        left -= shape.nodes * sum(s + work.overhead <= time < s + shape.walltime for s, _ in units)
        time += 1
        for start, waited in list(units):
            again = start + shape.walltime + max(0.0, waited - shape.walltime / 2)
            if start + shape.walltime == time and (again, waited) not in units:
                units.append((again, waited))
    return time


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=4, unique=True),
    st.integers(6, 40).map(lambda half: 2 * half),
    st.integers(0, 5),
    st.integers(1, 200),
)
def test_when_work_is_done_second_by_second(starts, walltime, overhead, seconds):
    work = WantedWork(float(seconds), 4, float(overhead))
    shape = AskShape(float(walltime))
    found = done_after(list(map(float, starts)), shape, work)
    assert ceil(found - 1e-9) == brute_done(starts, shape, work)


def test_how_many_are_needed():
    work = WantedWork(10 * HOUR, 8, overhead=MINUTE)
    assert units_needed(work, AskShape(HOUR)) == 8
    assert units_needed(work, AskShape(6 * HOUR)) == 2
    assert units_needed(work, AskShape(6 * HOUR, nodes=8)) == 1
    assert units_needed(work, AskShape(HOUR), QueueQos("q", user_jobs=3)) == 3
    assert units_needed(work, AskShape(HOUR), QueueQos("q", user_nodes=5)) == 5
    assert units_needed(WantedWork(10 * HOUR, 8, MINUTE, budget=2.5 * HOUR), AskShape(HOUR)) == 2
    assert units_needed(work, AskShape(MINUTE)) == 0


def test_the_shape_that_starts_soonest_is_told_beside_the_usual_one():
    # all four are free for 40 min, then somebody has them for a day
    view = queue([("r", (0,), 40 * MINUTE)], [("a", 4, 24 * HOUR)])
    usual = AskShape(8 * HOUR, "batch")
    choice = best_shape(replay(view), WantedWork(90 * MINUTE, 3, 5 * MINUTE), usual=usual)
    assert choice.best.shape == AskShape(40 * MINUTE, "batch")
    assert choice.best.count == 3
    assert choice.best.wait() == 0
    assert choice.best.done == pytest.approx(35 * MINUTE)
    assert choice.why == "3 x 40.0 min on batch starts now; 1 x 8.0 h on batch would start in 24.7 h"
    assert choice.usual.interval() == pytest.approx((24 * HOUR + 40 * MINUTE,) * 2)


def test_limits_of_partitions_and_qualities_hold():
    qos = {"short": QueueQos("short", max_time=30 * MINUTE), "big": QueueQos("big", max_nodes=4)}
    parts = {
        "batch": part("batch", range(4), max_time=2 * HOUR, qos=("short", "big")),
        "wide": part("wide", range(4), min_nodes=2, max_nodes=3),
        "closed": part("closed", range(4), is_open=False),
    }
    view = queue(partitions=parts, qos=qos)
    work = WantedWork(100 * HOUR, 4, MINUTE)
    choice = best_shape(replay(view), work, qos=("short", "big"), nodes=(1, 2, 4))
    shapes = {one.shape for one in (choice.best, *choice.others)}
    for shape in shapes:
        assert shape.partition != "closed"
        assert shape.nodes in ((1, 2, 4) if shape.partition == "batch" else (2,))
        assert shape.walltime <= (2 * HOUR if shape.partition == "batch" else inf)
        assert shape.walltime <= (30 * MINUTE if shape.qos == "short" else inf)
    assert best_shape(replay(queue(nodes=1)), work, partitions=("nowhere",)) is None


def test_of_equal_shapes_the_first_quality_is_taken():
    qos = {"cheap": QueueQos("cheap"), "dear": QueueQos("dear")}
    for order in (("cheap", "dear"), ("dear", "cheap")):
        choice = best_shape(replay(queue(qos=qos)), WantedWork(HOUR, 2, MINUTE), qos=order)
        assert choice.best.shape.qos == order[0]
    # also if that costs a little more
    qos["cheap"] = QueueQos("cheap", max_time=2 * HOUR)
    work = WantedWork(8 * HOUR, 2, MINUTE)
    assert best_shape(replay(queue(qos=qos)), work, qos=("cheap", "dear")).best.shape.qos == "cheap"
    assert best_shape(replay(queue(qos=qos)), work, qos=("dear", "cheap")).best.shape.walltime > 2 * HOUR


def test_a_smaller_part_of_the_machine_that_is_free_wins():
    parts = {"busy": part("busy", [0, 1]), "free": part("free", [2])}
    view = queue([("r", (0, 1), 9 * HOUR)], partitions=parts)
    choice = best_shape(replay(view), WantedWork(2 * HOUR, 2, MINUTE))
    assert choice.best.shape.partition == "free"


def test_nothing_is_asked_for_that_is_not_affordable():
    work = WantedWork(HOUR, 2, MINUTE, budget=30.0)
    assert best_shape(replay(queue()), work) is None
    assert fillers(replay(queue()), work) == []


def test_holes_are_filled_with_the_longest_first():
    view = queue(
        [("r", (0,), 10 * HOUR)],
        reserved=[("m", HOUR, 2 * HOUR, ("n1",)), ("m", 3 * HOUR, 4 * HOUR, ("n2",))],
    )
    found = fillers(replay(view), WantedWork(100 * HOUR, 9, MINUTE))
    assert [shape.walltime / HOUR for shape in found][1:] == [3, 1]  # and n3, for as long as is needed
    found = fillers(replay(view), WantedWork(100 * HOUR, 2, MINUTE, budget=5 * HOUR))
    assert [shape.walltime / HOUR for shape in found] == [2.5, 2.5]  # a budget is shared out
    found = fillers(replay(view), WantedWork(100 * HOUR, 9, MINUTE, budget=10 * MINUTE))
    assert sum(shape.walltime for shape in found) <= 10 * MINUTE and len(found) >= 2
    assert fillers(replay(view), WantedWork(2 * HOUR, 9, overhead=HOUR)) == [AskShape(4 * HOUR, "batch")]


@given(st.integers(0, 300), st.integers(4 * 60, 40 * 60), st.sampled_from([1.0, 30.0]))
def test_who_fills_a_hole_fits_into_it_when_the_batch_system_looks(now, left, latency):
    """Slurm begins to plan who waits at the whole minute before the time that walltimes say."""
    view = queue([("r", (0,), left)], [("a", 2, HOUR)], nodes=2, now=float(now))
    found = fillers(replace(replay(view), latency=latency), WantedWork(HOUR, 1, 0.0))
    spare = (now + left) // 60 * 60 - now - latency - found[0].walltime
    assert len(found) == 1 and 0 <= spare < MINUTE


def test_no_hole_is_filled_twice_by_partitions_that_share_it():
    parts = {"a": part("a", [0, 1], max_time=HOUR), "b": part("b", [1, 0], max_time=2 * HOUR)}
    found = fillers(replay(queue(nodes=2, partitions=parts)), WantedWork(100 * HOUR, 9, MINUTE))
    assert len(found) == 2


JOBS = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 10)), max_size=4)


@settings(max_examples=30)
@given(st.integers(0, 4), JOBS, st.integers(1, 40), st.integers(1, 6), st.booleans())
def test_nothing_that_was_looked_at_is_better(busy, waiting, hours, most, is_learned):
    running = [("r", tuple(range(busy)), 3 * HOUR)] if busy else []
    view = queue(running, [(f"p{at}", size, limit * HOUR) for at, (size, limit) in enumerate(waiting)])
    work = WantedWork(hours * HOUR, most, 5 * MINUTE, 10 * MINUTE)
    found = replay(view, FULL if is_learned else UsedShares())
    usual = AskShape(8 * HOUR, "batch")
    choice = best_shape(found, work, usual=usual)
    first = min(one.done for one in (choice.best, *choice.others))
    late = max(first * 1.05 + 1.0, choice.usual.done if choice.usual else 0.0)
    assert choice.best.done <= late
    waits = [one.waits for one in choice.others if one.done <= late]
    assert all(choice.best.waits <= wait * 1.05 + 1.0 + found.latency for wait in waits)
    assert choice.usual.shape == usual
    filled = fillers(found, work)
    profile, _ = found.plan()
    for shape in filled:  # they all start now, beside each other
        start, pieces = profile.earliest(1, shape.walltime, found.pieces.all)
        assert start == 0.0
        profile.take(0.0, pieces & -pieces, shape.walltime) if len(filled) == 1 else None
    assert len(filled) <= most


@pytest.mark.parametrize(
    ("field", "value"), [*product(("seconds", "overhead"), (-1.0, float("nan"), "x"))], ids=str
)
def test_work_that_makes_no_sense(field, value):
    with pytest.raises(InputError, match="allowed"):
        WantedWork(**{"seconds": 1.0, "most": 1, field: value})


def test_a_number_of_nodes_that_makes_no_sense():
    with pytest.raises(InputError, match="a whole number >= 1"):
        WantedWork(1.0, 0)
