"""Queues that go by value or by nothing, and where they have it from what a job takes."""

from collections import Counter
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_machine import decided, machine

from dask_hpc import InputError, Policy
from dask_hpc.model.job import Job
from dask_hpc.model.snapshot import Indices, Snapshot
from dask_hpc.strategies.queue import foresight
from dask_hpc.strategies.queue.foresight import Foresight
from dask_hpc.strategies.queue.max_value import MaxValue
from dask_hpc.strategies.queue.random_order import RandomOrder
from dask_hpc.strategies.queue.slack import Slack

DAY = 86400.0


def queue(order, *jobs, nodes=8, now=0.0):
    indices = Indices(machine(nodes).nodes.values(), order, now)
    for name, size, walltime, value, *more in jobs:
        extra = more[0] if more else {}
        indices.waiting.add(Job(id=name, nodes=size, walltime=walltime, value=value, **extra))
    return indices


def reasons(indices, strategy):
    return {start.job: start.reason for start in strategy.decide(Snapshot(indices), None)[0]}


@pytest.mark.parametrize(
    ("per", "order"), [("job", "cabd"), ("time", "bacd"), ("node", "acbd"), ("node-time", "abcd")]
)
def test_most_value_first_of_a_job_or_for_what_it_takes(per, order):
    """Per second 0.1, 0.2, 0.1 and less; per node 10, 4, 7.5, 0.8; per both a and b are equal."""
    jobs = [("a", 1, 100, 10.0), ("b", 2, 40, 8.0), ("c", 4, 300, 30.0), ("d", 1, 100, 0.8)]
    assert "".join(decided(queue(MaxValue(), *jobs), MaxValue(per=per))[0]) == order


def test_value_is_what_is_left_when_it_would_end():
    """a would end at its deadline, with two fifths of its 10; b keeps all of its 5; c would be too late."""
    late = {"soft_deadline": 50.0, "deadline": 100.0}
    jobs = [("a", 1, 100, 10.0, late), ("b", 1, 100, 5.0), ("c", 1, 101, 99.0, late)]
    indices = queue(MaxValue(), *jobs)
    assert list(reasons(indices, MaxValue()).items()) == [
        ("b", "worth 5 when it ends"),
        ("a", "worth 4 when it ends"),
        ("c", "worth 0 when it ends"),  # who is hopeless is last, and starts
    ]
    indices.now = 25.0
    assert reasons(indices, MaxValue())["a"] == "worth 0 when it ends"
    assert not MaxValue().gives_up


def test_who_does_not_fit_is_set_aside():
    indices = queue(MaxValue(), ("a", 3, 10, 1.0), ("b", 6, 10, 9.0), ("c", 3, 10, 5.0), ("d", 2, 10, 0.5))
    assert decided(indices, MaxValue())[0] == ["b", "d"]


def test_who_says_no_value_has_that_of_its_hours():
    """5 hours of 2 nodes against 9 and 11; who says no time has an hour."""
    jobs = [("a", 2, 5 * 3600, None), ("b", 1, 10, 9.0), ("c", 1, 10, 11.0), ("d", 3, inf, None)]
    indices = queue(MaxValue(), *jobs)
    found = reasons(indices, MaxValue())
    assert list(found) == ["c", "a", "b", "d"] and found["d"] == "worth 3 when it ends"
    assert list(reasons(indices, MaxValue(per="time"))) == ["c", "b", "d", "a"]


@pytest.mark.parametrize("strategy", [MaxValue(), RandomOrder()])
def test_who_was_stopped_goes_first(strategy):
    for seed in range(8):
        indices = queue(strategy, *((name, 1, 10, 9.0) for name in "abcd"))
        indices.waiting.add(Job(id="stopped", nodes=1, walltime=10, value=0.0), ahead=1)
        other = strategy if isinstance(strategy, MaxValue) else RandomOrder(seed)
        assert decided(indices, other)[0][0] == "stopped"


def test_random_order_is_another_one_each_time_and_the_same_when_asked_again():
    indices = queue(RandomOrder(), *((name, 8, 10, None) for name in "abcd"))
    first = Counter()
    for now in range(400):
        indices.now = float(now)
        (one,) = reasons(indices, RandomOrder())
        assert list(reasons(indices, RandomOrder())) == [one]
        first[one] += 1
    assert set(first) == set("abcd") and min(first.values()) > 70
    assert {one for seed in range(20) for one in reasons(indices, RandomOrder(seed))} == set("abcd")


@given(
    st.lists(st.tuples(st.integers(1, 9), st.floats(0, 100)), min_size=1, max_size=12),
    st.sampled_from([RandomOrder(3), *(MaxValue(per=per) for per in ("job", "time", "node", "node-time"))]),
)
def test_nobody_who_fits_is_left_over(jobs, strategy):
    indices = queue(strategy, *((f"j{at}", *one[:1], 60.0, one[1]) for at, one in enumerate(jobs)))
    started = decided(indices, strategy)[0]
    sizes = {f"j{at}": nodes for at, (nodes, _) in enumerate(jobs)}
    idle = 8 - sum(sizes[name] for name in started)
    assert idle >= 0 and all(nodes > idle for name, nodes in sizes.items() if name not in started)


def test_where_it_is_from_what_a_job_takes(monkeypatch):
    asked = []
    monkeypatch.setattr(foresight, "_foretold", lambda *about: asked.append(about) or 7.0)
    job = Job(id="a", nodes=3, walltime=60.0, recorded=80.0, memory=5.0, messages=0.5)
    times = [Foresight(expected=one).seconds(job) for one in ("walltime", "history", "resilient")]
    assert times == [60.0, 80.0, 7.0]
    assert asked == [(2.5 * 365.25 * DAY, 600e9, 3, 60.0, 5.0, 0.5)]
    unknown = Job(id="b", nodes=1)
    assert [Foresight(expected=one).seconds(unknown) for one in ("walltime", "history", "resilient")] == [
        None
    ] * 3
    Foresight(expected="resilient", mtbf=60.0, memory=9.0, store=1.0).seconds(
        Job(id="c", nodes=1, walltime=1.0)
    )
    assert asked[1:] == [(60.0, 1.0, 1, 1.0, 9.0, 0.0)]


def test_what_failures_cost():
    """A whole machine of the published kind needs nearly twice its time, a hundredth of it hardly more."""
    aware = Foresight(expected="resilient")
    small, large = (
        aware.seconds(Job(id="a", nodes=nodes, walltime=DAY, memory=32e9)) / DAY for nodes in (1200, 120_000)
    )
    assert 1.0 < small < 1.02 and 1.6 < large < 1.9
    other = aware.seconds(Job(id="b", nodes=120_000, walltime=DAY, memory=32e9, messages=0.75)) / DAY
    assert other > 1.05 * large, "messages are logged, or all recompute"
    assert aware.seconds(Job(id="c", nodes=120_000, walltime=DAY)) == pytest.approx(large * DAY)


def test_who_would_never_end_is_given_up_or_comes_last():
    hopeless = Job(id="a", nodes=4, walltime=DAY, deadline=2 * DAY, value=100.0)
    fine = Job(id="b", nodes=4, walltime=10.0, deadline=DAY, value=1.0, memory=1.0)
    about = {"expected": "resilient", "mtbf": 60.0, "store": 1e6}
    slack, value = Slack(drop=True, **about), MaxValue(**about)
    indices = Indices(machine(8).nodes.values(), slack, 0.0)
    for job in (hopeless, fine):
        indices.waiting.add(job)
    assert [(one.job, one.reason) for one in slack.drops(Snapshot(indices))] == [
        ("a", "would miss its deadline whenever it starts")
    ]
    assert decided(indices, value)[0] == ["b", "a"]


def test_aware_slack_gives_up_who_would_be_late_under_failures():
    """Half of the published machine: a day takes a third more."""
    policy = Policy.load("slack-aware")
    indices = Indices(machine(1).nodes.values(), policy.queue, 0.0)
    for name, factor in (("late", 1.2), ("fine", 1.5)):
        job = Job(id=name, nodes=60_000, walltime=DAY, deadline=factor * DAY, memory=32e9)
        indices.waiting.add(job)
    assert [one.job for one in policy.queue.drops(Snapshot(indices))] == ["late"]
    assert [one.job for one in Slack(drop=True).drops(Snapshot(indices))] == []


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("expected", "oracle", "walltime, history, resilient"),
        ("per", "watt", "job, time, node, node-time"),
        ("mtbf", "0 s", "1 min or more"),
        ("memory", "0 B", "1 B to"),
        ("store", "-1 GB/s", "1 B/s to"),
    ],
)
def test_bad_parameters(key, value, allowed):
    with pytest.raises(InputError, match=allowed) as found:
        Policy.load("max-value").with_(**{f"queue.{key}": value})
    assert "\n" not in str(found.value) and f"queue.{key}" in str(found.value)


def test_bad_memory_and_messages():
    for field, value in (("memory", 0.0), ("memory", inf), ("messages", 1.5), ("messages", float("nan"))):
        with pytest.raises(InputError, match=f"job 'a': {field}: found"):
            Job(id="a", nodes=1, **{field: value})
