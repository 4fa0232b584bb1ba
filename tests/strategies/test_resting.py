"""A job that has nothing to run gives nodes up while somebody waits, under every policy that resizes."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_machine import machine, started

from dask_hpc.model.job import Job
from dask_hpc.model.snapshot import REST, Snapshot
from dask_hpc.model.speedup import is_legal
from dask_hpc.policy import Policy
from dask_hpc.strategies.malleability.grow_shrink import given_up, malleable

RESIZING = [name for name in Policy.names() if Policy.load(name).malleability is not None]


def two_jobs(least=1):
    """One that rests holds 5 of 8 nodes, a busy one the others."""
    indices = machine(8, now=100.0)
    started(indices, "resting", 5, least)
    started(indices, "busy", 3, least=3)
    indices.resting = {"resting": 100.0 - REST}
    return indices


def gives(indices, idle=0):
    return {one.job: one.nodes for one in given_up(Snapshot(indices), idle)}


def test_it_gives_what_the_first_who_waits_needs():
    indices = two_jobs()
    assert gives(indices) == {}
    indices.waiting.add(Job(id="next", nodes=2))
    assert gives(indices) == {"resting": 3}
    assert gives(indices, idle=1) == {"resting": 4}
    assert gives(indices, idle=2) == {}
    (one,) = given_up(Snapshot(indices), 0)
    assert one.reason == "has nothing to run, and job next waits"


def test_nodes_that_others_are_giving_need_not_be_given():
    indices = two_jobs()
    indices.waiting.add(Job(id="next", nodes=2))
    indices.begin_resize("busy", 2)
    assert gives(indices) == {"resting": 4}
    indices.finish_resize("busy")
    assert gives(indices, idle=1) == {"resting": 4}


def test_not_below_its_least_and_not_in_vain():
    indices = two_jobs(least=2)
    indices.waiting.add(Job(id="large", nodes=4))
    assert gives(indices) == {}
    indices.waiting.add(Job(id="small", nodes=2))
    indices.waiting.add(Job(id="smaller", nodes=1))
    assert gives(indices) == {"resting": 2}


def test_who_waits_may_start_on_fewer_nodes():
    indices = two_jobs()
    indices.waiting.add(Job(id="next", nodes=8, min_nodes=3, max_nodes=8, kind="malleable"))
    assert gives(indices) == {"resting": 2}


def test_a_moment_is_no_rest():
    indices = two_jobs()
    indices.waiting.add(Job(id="next", nodes=2))
    indices.resting["resting"] += 0.01
    assert gives(indices) == {}


def test_the_longest_rest_gives_first_and_rigid_jobs_never():
    indices = machine(9, now=100.0)
    for name in ("short", "long"):
        started(indices, name, 3)
    started(indices, "rigid", 3, least=3, most=3, kind="rigid")
    indices.resting = {"short": 90.0, "long": 50.0, "rigid": 0.0}
    indices.waiting.add(Job(id="next", nodes=3))
    assert gives(indices) == {"long": 1, "short": 2}


def test_while_others_work_a_resting_job_is_nobodys_to_resize():
    indices = two_jobs()
    assert [one.job.id for one in malleable(Snapshot(indices))] == ["busy"]
    indices.resting["busy"] = 0.0  # nobody works
    assert [one.job.id for one in malleable(Snapshot(indices))] == ["resting", "busy"]
    indices.waiting.add(Job(id="next", nodes=8))
    assert malleable(Snapshot(indices)) == []


@pytest.mark.parametrize("name", RESIZING)
def test_under_every_policy_that_resizes_jobs(name):
    policy = replace(Policy.load(name), power=None)
    indices = two_jobs()
    indices.waiting.add(Job(id="next", nodes=2, submitted=100.0, walltime=10.0))
    plans = policy.preview(Snapshot(indices), None)
    assert [(one.job, one.nodes) for one in plans[0].resizes] == [("resting", 3)]
    assert [one.job for plan in plans for one in plan.starts] == ["next"]


def test_a_job_that_has_asked_for_another_size_is_answered_once():
    policy = replace(Policy.load("fpsma-pwma"), power=None)
    indices = two_jobs()
    indices.waiting.add(Job(id="next", nodes=3, submitted=100.0, walltime=10.0))
    indices.requests["resting"] = 4
    plan, _ = policy.decide(Snapshot(indices), None)
    assert [(one.job, one.nodes) for one in plan.resizes] == [("resting", 4)]


@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6), st.booleans()), min_size=1, max_size=5),
    st.lists(st.integers(1, 12), max_size=4),
    st.integers(0, 5),
)
def test_what_is_given_is_enough_for_somebody_and_no_job_is_cut_too_far(running, waiting, idle):
    indices = machine(sum(max(pair[:2]) for pair in running) + idle, now=100.0)
    for number, (one, other, rests) in enumerate(running):
        started(indices, f"r{number}", max(one, other), min(one, other))
        if rests:
            indices.resting[f"r{number}"] = 0.0
    for number, nodes in enumerate(waiting):
        indices.waiting.add(Job(id=f"w{number}", nodes=nodes))
    freed = 0
    for resize in given_up(Snapshot(indices), idle):
        one = indices.running[resize.job]
        assert resize.job in indices.resting
        assert one.job.min_nodes <= resize.nodes < len(one.nodes)
        assert is_legal(one.job.constraint, resize.nodes)
        freed += len(one.nodes) - resize.nodes
    if freed:
        assert min(waiting) <= idle + freed <= sum(waiting)
