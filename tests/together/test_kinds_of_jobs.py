"""Kinds that are kept back in jobs: that wait, grow, end, and take over."""

import pytest
from kind_body import W0, W1, W2, KindBody, row, states


def test_a_job_that_waits_and_one_that_is_confined():
    body = KindBody(workers=3)
    body.say("a", 4)
    waits = body.job("waits")
    runs = body.job("runs", [W0])
    first, second = body.submit("a", 5, job=waits), body.submit("a", 5, job=runs)
    assert states(first) == {"no-worker": 5} and row(body).on == {W0: 2}
    assert set(body.gate.held_back()) >= {task.key for task in first}
    assert body.lanes.is_awaited(waits)
    body.start(waits, [W1, W2])
    assert row(body).on == {W0: 2, W1: 2, W2: 2}
    assert {task.processing_on.address for task in second if task.state == "processing"} == {W0}
    body.run_all()
    assert states([*first, *second]) == {"memory": 10}


def test_a_job_that_grows_uses_its_new_workers_at_once():
    body = KindBody(workers=3)
    body.say("a", 6)
    job = body.job("j", [W0])
    body.submit("a", 9, job=job)
    assert row(body).on == {W0: 1}
    body.gate.open(job, [W0, W1, W2])
    body.turn()
    assert row(body).on == {W0: 1, W1: 1, W2: 1}


@pytest.mark.queue
def test_where_something_ended_is_remembered_although_a_root_task_goes_first():
    """The first look is at what goes before the roots, the second at what comes after them."""
    body = KindBody(workers=2)
    body.say("small", 0)
    body.say("a", 6)
    job = body.job("j", [W0])
    tasks = body.submit("a", 4, job=job)
    small = body.submit("small", 40, job=job)
    assert row(body).on == {W0: 1} and job.ready
    for task in small:
        task.priority = (-1, *task.priority[1:])
    job.ready.clear()
    body.run_all()
    assert states(tasks) == {"memory": 4}


def test_opening_gives_each_back_to_its_own():
    body = KindBody(workers=3)
    body.say("a", 6)
    waits, runs = body.job("waits", nodes=1), body.job("runs", [W0])
    first, second, third = (
        body.submit("a", 30, job=waits),
        body.submit("a", 30, job=runs),
        body.submit("a", 30),
    )
    flying = [task for task in second if task.state == "processing"]
    assert len(flying) == 1
    body.say("a", 0)
    body.look()
    assert not body.lanes.row_of and not body.lanes.by_name
    assert states(first) == {"no-worker": 30}
    assert all(task.worker_restrictions in (waits.gate, waits.wave) for task in first)
    assert {task.processing_on.address for task in second if task.state == "processing"} == {W0}
    assert flying[0].key in runs.passed and flying[0].worker_restrictions is runs.gate
    assert all(task.worker_restrictions is runs.wave for task in second if task.state == "no-worker")
    assert len(runs.ready) == states(second)["no-worker"] > 20 and not runs.held
    assert len(waits.ready) == 30 and not waits.held
    assert states(third)["no-worker"] == 0 and not any(task.worker_restrictions for task in third)
    assert all(task.processing_on.address in (W1, W2, W0) for task in third if task.state == "processing")
    body.start(waits, [W1])
    body.run_all()
    assert states([*first, *second, *third]) == {"memory": 90}


def test_what_waits_for_its_job_is_given_back_to_it_if_it_is_no_root_task():
    body = KindBody(workers=2)
    body.say("a", 6)
    waits = body.job("waits")
    tasks = body.submit("a", 2, job=waits)
    body.say("a", 0)
    body.look()
    assert states(tasks) == {"no-worker": 2} and set(waits.held) == {task.key for task in tasks}
    assert all(task.worker_restrictions is waits.gate for task in tasks)
    body.start(waits, [W0])
    assert states(tasks) == {"processing": 2}


def test_a_job_that_waits_again_waits_with_what_is_kept():
    body = KindBody(workers=2)
    body.say("a", 6)
    job = body.job("j", [W0])
    tasks = body.submit("a", 4, job=job)
    job.state = "waiting"
    body.gate.shut(job)
    body.turn()
    flying = body.running()
    body.finish(flying[0])
    assert not body.running() and body.lanes.is_awaited(job)
    assert not job.ready
    body.start(job, [W1])
    assert row(body).on == {W1: 1}
    body.run_all()
    assert states(tasks) == {"memory": 4}


def test_a_job_takes_over_what_is_kept_of_one_that_waits():
    body = KindBody(workers=2)
    body.say("a", 6)
    waits, runs = body.job("waits"), body.job("runs", [W0])
    needed = body.submit("a", 3, job=waits)
    keys = [task.key for task in needed]
    (needs,) = body.scheduler.make([("needs", 0)], keys)
    body.lanes.memory.peaks.assume("needs", 0.0)
    body.gate.submit([*keys, needs.key], runs)
    body.lanes.graph_arrives([*keys, needs.key])
    body.scheduler.schedule([needs])
    body.decide()
    body.turn()
    assert not body.lanes.is_awaited(waits) and row(body).on == {W0: 1}
    body.run_all()
    assert needs.state == "memory"
