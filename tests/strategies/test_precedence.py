"""Who may overtake a job that has waited too long: by cases, and by what must always hold."""

import random
from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st
from small_machine import machine, wait

from dask_hpc import Policy, simulate
from dask_hpc.model.job import Job
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.simulator import Arrival
from dask_hpc.strategies.malleability.precedence import FIRM, Precedence, is_due
from dask_hpc.strategies.queue.profile import shadow_time


def waiting_for(indices, nodes, submitted, name="late", walltime=1000.0):
    job = Job(id=name, nodes=nodes, walltime=walltime, submitted=submitted)
    indices.waiting.add(job)
    return job


def precedence(indices, late, patience=10.0):
    found = Precedence(Snapshot(indices), patience)
    if late is not None:
        found.hold(late, late.nodes, len(indices.idle))
    return found


def job(nodes, walltime):
    return Job(id="next", nodes=nodes, walltime=walltime)


def long_ago(nodes, size, end):
    """Whoever waits here has been first in line for far too long."""
    indices = machine(nodes, now=1e5)
    wait(indices, ("recent", size, end))
    indices.start("recent", size)
    return indices


def test_at_first_it_delays_nobody():
    indices = machine(4, (2, 100.0), now=50.0)
    one = precedence(indices, waiting_for(indices, 4, 0.0))
    assert one.window == inf and one.allows(job(2, inf), 2)


def test_in_the_end_only_what_ends_in_time_may_overtake():
    """Two of four nodes are held for 100 s more."""
    indices = long_ago(4, 2, 100.0)
    one = precedence(indices, waiting_for(indices, 4, 0.0))
    assert one.window == 100.0
    assert one.allows(job(2, 100.0), 2) and not one.allows(job(2, 101.0), 2)


def test_what_it_will_leave_over_is_for_everybody_once():
    indices = long_ago(6, 3, 100.0)
    one = precedence(indices, waiting_for(indices, 4, 0.0))
    assert one.allows(job(2, 1e6), 2)
    assert not one.allows(job(1, 1e6), 1)
    assert one.allows(job(1, 100.0), 1)


def test_the_walltime_counts_that_it_has_on_these_nodes():
    indices = long_ago(4, 2, 100.0)
    late = waiting_for(indices, 4, 0.0)
    slow = Job(id="next", nodes=4, min_nodes=1, max_nodes=4, walltime=40.0, kind="malleable")
    assert precedence(indices, late).allows(slow, 2) and not precedence(indices, late).allows(slow, 1)


def test_without_anybody_in_front_all_may():
    indices = long_ago(4, 2, 100.0)
    assert precedence(indices, None).window == inf
    assert precedence(indices, None).allows(job(2, inf), 2)


def test_when_the_end_is():
    """It has been first in line since 10, the longest walltime is 100: until 410 it delays nobody."""
    for now, window in ((409.0, inf), (10.0 + FIRM * 100.0, 90.0)):
        indices = machine(4, (1, 100.0), now=400.0)
        late = waiting_for(indices, 4, 0.0)
        wait(indices, ("recent", 2, 100))
        indices.start("recent", 2)
        indices.now = now
        assert precedence(indices, late).window == window


def test_time_in_line_counts_from_the_last_start_of_an_earlier_one():
    indices = machine(4, (1, 100.0), now=400.0)
    late = waiting_for(indices, 4, 5.0)
    begun = 400.0 + FIRM * 100.0
    cases = (
        ("earlier", 4.0, 450.0, inf),
        ("earlier", 4.0, begun - 1.0, inf),
        ("earlier", 4.0, begun, 0.0),
        ("later", 6.0, 450.0, 50.0),
    )
    for name, submitted, now, window in cases:
        twin = indices.copy()
        waiting_for(twin, 2, submitted, name, 100.0)
        twin.start(name, 2)
        twin.now = now
        assert precedence(twin, late).window == window


def test_nobody_is_due_who_has_not_waited_long_enough():
    indices = machine(4, now=9.0)
    late = waiting_for(indices, 4, 0.0)
    for now, due in ((9.0, False), (10.0, True)):
        indices.now = now
        assert is_due(Snapshot(indices), late, 10.0) is due


def test_what_has_no_end_is_not_the_longest():
    indices = machine(4, (1, 100.0), now=0.0)
    indices.waiting.add(Job(id="endless", nodes=1))
    indices.start("endless", 1)
    late = waiting_for(indices, 3, 0.0)
    for now, window in ((409.0, inf), (410.0, 0.0)):
        indices.now = now
        assert precedence(indices, late).window == window


def endless(seed):
    """A wide job among narrow ones that all take as long as they say, and would keep it waiting for ever."""
    draw, arrivals = random.Random(seed), []
    for number in range(1500):
        walltime = draw.choice([100.0, 90.0, 70.0])
        narrow = Job(id=str(number), nodes=1, walltime=walltime, submitted=10.0 * number)
        arrivals.append(Arrival(narrow, walltime))
    wide = Job(id="wide", nodes=8, walltime=100.0, submitted=1005.0)
    arrivals.insert(101, Arrival(wide, 100.0))
    return arrivals


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6))
def test_nobody_waits_for_ever(seed):
    """It is first in line when it has waited for 200 s; ``FIRM`` walltimes later nobody gets ahead of it."""
    policy = Policy.load("elastic").with_(**{"queue.patience": 200.0})
    jobs = simulate(endless(seed), nodes=8, policy=policy).jobs.set_index("id")
    waited = jobs.loc["wide", "start"] - 1005.0
    assert 200.0 + (FIRM - 1.0) * 100.0 < waited <= 200.0 + FIRM * 100.0 + 100.0


@settings(max_examples=100, deadline=None)
@given(st.integers())
def test_in_the_end_whoever_is_allowed_delays_nobody(seed):
    """It is EASY's rule: the job in front starts no later, whoever was let in."""
    draw = random.Random(seed)
    nodes = draw.randint(4, 20)
    indices = machine(nodes, now=1e5)
    for number in range(draw.randint(1, 6)):
        size = draw.randint(1, nodes // 2)
        if size <= len(indices.idle):
            wait(indices, (f"r{number}", size, draw.choice([5, 20, 50, 90])))
            indices.start(f"r{number}", size)
    indices.now += 3.0
    late = waiting_for(indices, draw.randint(min(nodes, len(indices.idle) + 1), nodes), 0.0)
    before = shadow_time(Snapshot(indices), (), late.nodes, len(indices.idle))[0]
    found = precedence(indices, late)
    for number in range(8):
        size, walltime = draw.randint(1, 5), draw.choice([2.0, 30.0, 60.0, 500.0])
        if size <= len(indices.idle) and found.allows(job(size, walltime), size):
            wait(indices, (f"n{number}", size, walltime))
            indices.start(f"n{number}", size)
    assert shadow_time(Snapshot(indices), (), late.nodes, len(indices.idle))[0] <= before
