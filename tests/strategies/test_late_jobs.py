"""Which job ``elastic`` puts before all others."""

import random
from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st
from small_machine import machine, sizes, started, wait

from dask_hpc.model.job import Job
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.strategies.malleability.elastic import ROOT, Elastic, ElasticQueue
from dask_hpc.strategies.malleability.worth import work_of


def late(indices, **wish):
    """The names of those that go before all others, with a queue in order of work and in another one."""
    found = []
    for order in (ElasticQueue(**wish), ElasticQueue(fixed=3.0, aging=7.0)):
        indices.waiting.rerank(order)
        found.append(ElasticQueue(**wish).late(Snapshot(indices)))
    return [job and job.id for job in found]


def test_of_those_that_are_late_a_little_work_goes_first():
    """One has all of the machine for long. The other came later and has waited half as long, for less than a
    hundredth of that work, whose power of 0.15 is less than half, or for more."""
    for walltime, first in ((1e5 / 128, "small"), (1e5 / 64, "big")):
        indices = machine(4, now=1e5)
        indices.waiting.add(Job(id="big", nodes=4, walltime=1e5, submitted=0.0))
        indices.waiting.add(Job(id="small", nodes=4, walltime=walltime, submitted=50_000.0))
        assert late(indices) == [first] * 2
        assert late(indices, patience=50_001.0) == ["big"] * 2
        assert late(indices, patience=1e5 + 1.0) == [None] * 2


def test_who_has_no_walltime_is_never_late():
    indices = machine(4, now=1e6)
    indices.waiting.add(Job(id="endless", nodes=1, submitted=0.0))
    assert late(indices) == [None] * 2
    indices.waiting.add(Job(id="late", nodes=1, walltime=1e5, submitted=1.0))
    assert late(indices) == ["late"] * 2


def test_in_the_end_the_one_that_came_first_goes_first():
    """It has waited for more than its patience and four of its walltimes, and has been first in line for four
    of those that run; an older one without a walltime does not count."""
    for now, first in ((414_402.0, "big"), (414_400.0, "small")):
        indices = machine(4, (1, 1e4), now=now)
        indices.waiting.add(Job(id="endless", nodes=4, submitted=0.5))
        indices.waiting.add(Job(id="big", nodes=4, walltime=1e5, submitted=1.0))
        indices.waiting.add(Job(id="small", nodes=1, walltime=10.0, submitted=2.0))
        assert late(indices) == [first] * 2
    wait(indices, ("recent", 1, 100.0))
    indices.start("recent", 1)
    indices.now = 430_000.0
    assert late(indices) == ["small"] * 2


def test_who_is_late_is_given_what_it_lacks_beside_nodes_that_come():
    """One node comes from a job that shrinks; the other is worth more where it is than to who waits."""
    indices = machine(4)
    indices.waiting.rerank(ElasticQueue())
    started(indices, "shrinks", 2)
    started(indices, "dear", 2, walltime=15.0)
    wait(indices, ("late", 2, 1e6), ("whole", 4, 1e6))
    indices.begin_resize("shrinks", 1)
    indices.now = 14.0
    assert sizes(indices, Elastic(bias=1.0, patience=5.0)) == {"dear": 1}
    assert sizes(indices, Elastic(bias=1.0, patience=50.0)) == {}


@settings(max_examples=100, deadline=None)
@given(st.integers())
def test_who_is_late_against_looking_at_everybody(seed):
    """With jobs that were stopped in front, and all that the order depends on."""
    draw = random.Random(seed)
    wish = {
        "fixed": draw.choice([0.5, 1.0, 2.0]),
        "aging": draw.choice([0.0, 0.05, 10.0, 100.0]),
        "patience": draw.choice([0.0, 50.0, 1e3]),
    }
    # so much walltime that nobody has been first in line for too long
    indices = machine(8, (1, 1e9), now=draw.uniform(100.0, 2e3))
    for number in range(draw.choice([1, 5, 30, 300])):
        kind, walltime = draw.choice(["rigid", "malleable"]), draw.choice([10.0, 300.0, 1e4, inf])
        job = Job(
            id=str(number), nodes=draw.randint(1, 8), kind=kind, walltime=walltime,
            submitted=draw.uniform(0.0, 100.0) * draw.choice([0.0, 1.0, 1.0]),
        )  # fmt: skip
        indices.waiting.add(job, ahead=draw.choice([0, 0, 0, 1]))
    limit = indices.now - wish["patience"]
    ratios = {
        job.id: (indices.now - job.submitted) / work_of(job) ** ROOT
        for job in indices.waiting
        if job.submitted <= limit and job.walltime < inf
    }
    highest = max(ratios.values(), default=None)
    assert [ratios.get(name) for name in late(indices, **wish)] == [highest] * 2
