"""All three queue strategies against the plain textbook procedure, and what each promises."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textbook import textbook

from dask_hpc import Policy
from dask_hpc.model.job import Job
from dask_hpc.simulator import Arrival, Machine, Record, simulate

NAMES = ("fcfs", "easy-backfill", "conservative-backfill")

# Small numbers, so that events often fall on the same instant.
job_tuples = st.tuples(st.integers(0, 12), st.integers(1, 6), st.integers(0, 9), st.integers(1, 9))
workloads = st.lists(job_tuples, min_size=1, max_size=14).map(sorted)


def arrivals(jobs):
    return [
        Arrival(Job(id=str(i), nodes=n, walltime=float(w), submitted=float(s)), float(r))
        for i, (s, n, r, w) in enumerate(jobs)
    ]


def starts(jobs, machine, name):
    frame = simulate(arrivals(jobs), nodes=machine, policy=name).jobs
    return {i: start for i, start in enumerate(frame["start"]) if start == start}


@pytest.mark.parametrize("name", NAMES)
@given(jobs=workloads, machine=st.integers(1, 6))
@settings(max_examples=300, deadline=None)
def test_same_starts_as_the_textbook(name, jobs, machine):
    assert starts(jobs, machine, name) == textbook(jobs, machine, name)


@given(jobs=workloads, machine=st.integers(1, 6))
@settings(max_examples=200, deadline=None)
def test_conservative_never_moves_a_promise_back(jobs, machine):
    promised: dict[str, float] = {}
    queue = Policy.load("conservative-backfill").queue

    class Watching:
        rank = staticmethod(queue.rank)

        @staticmethod
        def decide(snapshot, memory):
            decided, memory = queue.decide(snapshot, memory)
            for start in decided:
                assert snapshot.now <= promised.get(start.job, snapshot.now)
            for job, time in memory.times.items():
                assert time <= promised.get(job, time)
                promised[job] = time
            return decided, memory

    policy = Policy("watched", Watching)
    Machine(machine, policy, Record()).run(arrivals(jobs))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@given(jobs=workloads, machine=st.integers(1, 6))
@settings(max_examples=100, deadline=None)
def test_asking_twice_changes_nothing(name, jobs, machine):
    """The plan depends on the snapshot and the memory alone: a frozen snapshot gives it again."""
    queue = Policy.load(name).queue

    class Asking:
        rank = staticmethod(queue.rank)

        @staticmethod
        def decide(snapshot, memory):
            frozen = snapshot.freeze()
            first = queue.decide(snapshot, memory)
            assert queue.decide(snapshot, memory)[0] == first[0]
            assert queue.decide(frozen, memory)[0] == first[0]
            if name != "conservative-backfill":  # what the others remember only saves work
                forgetful = queue.decide(frozen, None)[0]
                assert [start.job for start in forgetful] == [start.job for start in first[0]]
            return first

    Machine(machine, Policy("asking", Asking), Record()).run(arrivals(jobs))
