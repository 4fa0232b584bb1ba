"""When jobs start: by hand, and what must hold of every queue."""

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from queues import HOUR, MINUTE, part, queue

from dask_hpc.planning.asks.holes import QueueHole, free_over_time, holes_of
from dask_hpc.planning.asks.node_sets import PieceMap
from dask_hpc.planning.asks.queue import PendingAsk, in_order, share_ahead
from dask_hpc.planning.asks.replay import COURSES, AskFamily, Newcomers, Replay, level
from dask_hpc.planning.asks.used import UsedShare, UsedShares

ALL_OF_IT = UsedShares(tuple([UsedShare(60.0 * 4**k, 0.0, 1.0) for k in range(9) for _ in range(20)]))


def starts(view, *families, used=ALL_OF_IT, waiting=(), **more):
    return Replay(view, PieceMap.of(view), used, **more).starts(families, waiting)


def family(view, nodes, hours, count=1, key="x", tier=1):
    return AskFamily(key, count, nodes, hours * HOUR, PieceMap.of(view).all, tier)


def test_by_hand():
    # n0 n1 until 2 h; a wants 3 nodes, so from 2 h on; b (1 node, 4 h) behind it
    view = queue([("r", (0, 1), 2 * HOUR)], [("a", 3, HOUR), ("b", 1, 4 * HOUR)])
    ours, theirs = starts(
        view,
        family(view, 2, 2, key="fits before a"),
        family(view, 2, 3, key="does not"),
        family(view, 1, 9, count=3, key="some"),
        waiting={"a", "b"},
    )
    assert theirs["a"].law() == [2 * HOUR] * COURSES
    assert theirs["b"].law() == [0.0] * COURSES  # three are left beside it at 2 h
    assert ours["does not"].at(0.5) == 3 * HOUR  # a has n1 n2 n3 then
    assert ours["fits before a"].at(0.5) == 3 * HOUR  # b has one of the two
    assert ours["some"].courses[0] == (3 * HOUR, 3 * HOUR, 3 * HOUR)


def test_holes_by_hand():
    view = queue(
        [("r", (0,), 2 * HOUR)],
        [("a", 4, HOUR)],
        [("maintenance", HOUR, 9 * HOUR, ("n3",))],
        partitions={
            "batch": part("batch", range(4), max_time=12 * HOUR),
            "tiny": part("tiny", [2, 3], max_time=HOUR / 2),
            "large": part("large", range(4), min_nodes=3),
            "closed": part("closed", range(4), is_up=False),
        },
    )
    assert holes_of(view) == [
        QueueHole("batch", 3, HOUR, "maintenance begins"),
        QueueHole("batch", 2, 9 * HOUR, "job a starts"),
        QueueHole("tiny", 2, HOUR / 2, "the limit of the partition"),
        QueueHole("large", 3, HOUR, "maintenance begins"),
    ]
    assert holes_of(queue([("r", (0, 1, 2, 3), HOUR)])) == []
    (hole,) = holes_of(queue([("r", (0,), HOUR)], [("a", 4, HOUR)], now=70.0))  # over at a whole minute
    assert hole == QueueHole("batch", 3, HOUR - MINUTE, "job a starts")
    assert free_over_time(queue([("r", (0, 1, 2), HOUR)], now=60.0)) == [(0.0, 1), (HOUR, 4)]
    assert holes_of(queue()) == [QueueHole("batch", 4, inf, "")]


def test_what_is_not_used_of_walltimes_makes_others_start_earlier():
    view = queue([("r", (0, 1, 2, 3), 10 * HOUR)])
    half = UsedShares(tuple(UsedShare(2.0**k, 0.0, 0.5) for k in range(5, 20) for _ in range(20)))
    ours, _ = starts(view, family(view, 1, 1), used=half)
    low, high = ours["x"].interval()
    assert 0 < low < high <= 5 * HOUR
    ours, _ = starts(view, family(view, 1, 1))
    assert ours["x"].interval() == pytest.approx((10 * HOUR, 10 * HOUR))


def test_each_unit_has_its_own_nodes():
    view = queue([("r", (0, 1), HOUR)])
    ours, _ = starts(view, family(view, 1, 5, count=4))
    assert ours["x"].courses[0] == (0.0, 0.0, HOUR, HOUR)


def test_a_higher_tier_goes_first():
    view = queue([("r", (0, 1, 2), HOUR)], [("a", 2, 5 * HOUR), ("b", 4, HOUR)])
    ours, _ = starts(view, family(view, 4, 1, key="low"), family(view, 4, 1, key="high", tier=2))
    assert ours["high"].at(0.5) == HOUR
    assert ours["low"].at(0.5) == 7 * HOUR


def test_newcomers_are_in_the_way_if_they_are_put_ahead():
    view = queue([("r", (0, 1, 2, 3), HOUR)])
    many = Newcomers(rate=1 / 600, sizes=((4, 2 * HOUR),), share_ahead=1.0)
    late, _ = starts(view, family(view, 4, 1), newcomers=many)
    none, _ = starts(view, family(view, 4, 1), newcomers=Newcomers(1 / 600, ((4, 2 * HOUR),), 0.0))
    assert none["x"].at(0.9) == HOUR < late["x"].at(0.1)


def test_who_can_never_start():
    view = queue()
    ours, _ = starts(view, family(view, 5, 1))
    assert ours["x"].at(0.1) == inf


def test_the_order_of_the_queue():
    fields = {"nodes": 1, "limit": 60.0}
    asks = (
        PendingAsk("late", ("low",), priority=5, submitted=2.0, **fields),
        PendingAsk("early", ("low",), priority=5, submitted=1.0, **fields),
        PendingAsk("dear", ("low",), priority=9, submitted=3.0, **fields),
        PendingAsk("tier", ("low", "high"), submitted=9.0, **fields),
    )
    parts = {"low": part("low", [0]), "high": part("high", [0], tier=3)}
    view = queue(partitions=parts)
    view = in_order(view.__class__(9.0, view.nodes, parts, (), asks))
    assert [ask.id for ask in view.pending] == ["tier", "dear", "early", "late"]
    assert share_ahead(view) == pytest.approx(2 / 3)  # dear before early and late, of three pairs


@given(st.integers(2, 40), st.text(max_size=5))
def test_levels_are_evenly_spread_over_the_courses(courses, name):
    prime = 31
    levels = sorted(level(number, prime, name) for number in range(prime))
    assert levels == [(at + 0.5) / prime for at in range(prime)]
    assert 0 < level(courses, courses + 1, name) < 1


WAITING = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 10)), max_size=6)
RUNNING = st.lists(st.tuples(st.sets(st.integers(0, 3), min_size=1), st.integers(1, 10)), max_size=2)


@settings(max_examples=40)
@given(RUNNING, WAITING, st.integers(1, 4), st.integers(1, 8), st.integers(1, 4))
def test_of_every_queue(running, waiting, nodes, hours, count):
    held, jobs = set(), []
    for at, (where, left) in enumerate(running):
        jobs += [(f"r{at}", tuple(where - held), left * HOUR)] if where - held else []
        held |= where
    view = queue(jobs, [(f"p{at}", size, limit * HOUR) for at, (size, limit) in enumerate(waiting)])
    ask = family(view, nodes, hours, count)
    ours, theirs = starts(view, ask, used=UsedShares(), waiting={f"p{at}" for at in range(len(waiting))})
    assert len(ours["x"].courses) == COURSES
    for course in ours["x"].courses:
        assert len(course) == count and list(course) == sorted(course)
        assert 0 <= course[0] < inf
    low, high = ours["x"].interval()
    assert low <= ours["x"].at(0.5) <= high
    assert set(theirs) == {f"p{at}" for at in range(len(waiting))}
    # the same again
    assert starts(view, ask, used=UsedShares())[0]["x"] == ours["x"]
    # nobody who is asked about changes what others do
    assert starts(view, used=UsedShares(), waiting=set(theirs))[1] == theirs
    # a shorter one starts no later by walltimes
    plan, _ = Replay(view, PieceMap.of(view)).plan()
    assert plan.earliest(nodes, hours * HOUR, 15)[0] >= plan.earliest(nodes, HOUR, 15)[0]
