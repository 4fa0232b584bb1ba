"""Kinds that are kept back while workers come, go, and stand still."""

import pytest
from kind_body import GB, W0, W1, W2, KindBody, row, states

from dask_hpc import dask as compat


def test_a_worker_dies_and_what_it_ran_waits_and_runs_elsewhere():
    body = KindBody(workers=2)
    body.say("a", 6)
    tasks = body.submit("a", 5)
    lost = next(task for task in tasks if task.state == "processing" and task.processing_on.address == W0)
    body.leave(W0)
    body.turn()
    assert lost.state == "no-worker" and row(body).on == {W1: 1} and row(body).count_waiting() == 4
    body.join(W2)
    body.turn()
    assert lost.state == "processing" and lost.processing_on.address == W2  # it goes before the others
    body.run_all(lambda: len(body.running()) <= 2 or pytest.fail())
    assert states(tasks) == {"memory": 5}


def test_a_worker_that_is_paused_is_given_nothing_until_it_goes_on():
    body = KindBody(workers=1)
    body.say("a", 6)
    body.scheduler.pause(W0)
    tasks = body.submit("a", 2)
    assert states(tasks) == {"no-worker": 2}
    body.lanes.log_event(W0, {"action": "worker-status-change", "status": "running"})
    body.scheduler.pause(W0, False)
    body.turn()  # at once, not when one looks again
    assert states(tasks) == {"processing": 1, "no-worker": 1}


@pytest.mark.parametrize("how", ["paused", "gone"])
def test_nobody_runs_for_a_while_and_what_is_kept_is_kept(how):
    """A worker that is paused for want of memory, or was ended for it, must not be sent all of it next."""
    body = KindBody(workers=1)
    body.say("a", 6)
    tasks = body.submit("a", 12)
    body.scheduler.pause(W0) if how == "paused" else body.leave(W0)
    for _ in range(3):
        body.look()
    assert row(body).count_waiting() == 11 + (how == "gone")
    body.scheduler.pause(W0, False) if how == "paused" else body.join(W1)
    body.turn()
    assert len(body.running()) == 1
    body.run_all(lambda: len(body.running()) <= 1 or pytest.fail())
    assert states(tasks) == {"memory": 12}


def test_what_a_worker_has_at_rest_is_what_it_had_before_it_was_busy():
    body = KindBody(workers=1)
    there = body.scheduler.workers[W0]
    there.metrics["memory"] = GB
    body.look()
    body.say("a", 2.9)
    body.submit("a", 8)
    assert len(body.running()) == 3
    there.metrics["memory"] = 9 * GB  # with what its tasks have taken
    body.look()
    body.finish(body.running()[0])
    assert len(body.running()) == 3 and body.lanes.memory.memories.least().base < 1.01 * GB


def test_what_a_worker_says_it_has_at_rest_counts_not_what_a_heartbeat_found_while_it_was_busy():
    body = KindBody(workers=1)
    body.say("a", 4.5)
    body.lanes.memory.hear_heartbeat(W0, {"kinds": {}, "how": "rss", "base": GB // 10})
    tasks = body.submit("a", 8)
    assert len(body.running()) == 2
    body.scheduler.workers[W0].metrics["memory"] = 9 * GB  # of both, and they end before the next one
    for task in body.running():
        body.scheduler.finish(task)
    body.look()
    assert body.lanes.memory.memories.least().base < 0.11 * GB and len(body.running()) == 2
    assert states(tasks)["memory"] == 2
    body.leave(W0)
    body.join(W0)  # another one, who has not said anything
    body.look()
    assert body.lanes.memory.memories.least().base < 0.01 * GB


def test_of_what_else_is_there_as_many_count_as_there_are_threads_left():
    """At worst those that need most."""
    body = KindBody(workers=1)
    for kind, need in (("a", 3), ("large", 2), ("small", 0.5)):
        body.say(kind, need)
    memories = body.lanes.memory.memories
    (room,) = compat.worker_rooms(body.scheduler, [W0])
    there = {"a": 2, "small": 3, "large": 1, "unknown": 2}
    strategy = body.policy.memory
    now = memories.now(room, strategy, {"a": 2}, there, "a")
    assert now.needed == pytest.approx((2 * 3 + 2 + 0.5) * GB) and (now.running, now.of_kind) == (2, 2)
    now = memories.now(room, strategy, {"a": 1}, there, "large")  # one more of it is nobody's of ours
    assert now.needed == pytest.approx((3 + 3 + 2 + 0.5) * GB) and (now.running, now.of_kind) == (1, 0)


def test_a_worker_that_can_tell_after_all_is_heard():
    body = KindBody(workers=1)
    body.lanes.memory.hear_heartbeat(W0, {"kinds": None, "how": "not here"})
    assert not body.submit("b", 9)[0].worker_restrictions
    body.lanes.memory.hear_heartbeat(W0, {"kinds": {}, "how": "rss"})
    body.submit("a", 9)
    assert len(body.running("a")) <= 1 and not body.lanes.memory.memories.silent


def test_workers_come_after_the_graph():
    body = KindBody(workers=0)
    tasks = body.submit("a", 12)
    assert states(tasks)["processing"] == 0
    body.join(W0)
    body.turn()
    assert len(body.running()) == 1  # nobody knows the kind: one shows what it needs
    body.join(W1)
    body.turn()
    assert len(body.running()) == 2


def test_results_that_are_lost_are_computed_under_the_rule():
    body = KindBody(workers=2)
    body.say("a", 6)
    tasks = body.submit("a", 4)
    body.run_all()
    body.look(60)
    assert not body.scheduler.loop.later  # at rest nobody looks
    held = [task for task in tasks if W0 in compat.holders(task)]
    assert held
    body.leave(W0)
    body.turn()
    assert len(body.running()) == 1 and states(tasks)["no-worker"] == len(held) - 1
    assert body.scheduler.loop.later
    body.run_all()
    assert states(tasks) == {"memory": 4}


def test_what_is_in_flight_and_lost_after_it_came_under_the_rule_is_kept():
    """Also a root task of a job, of which the job's wave takes care otherwise."""
    body = KindBody(workers=3)
    body.say("a", 0)
    job = body.job("j", [W0, W1])
    tasks = body.submit("a", 24, job=job)
    flying = body.running()
    body.say("a", 6)
    assert job.passed.isdisjoint(task.key for task in flying)
    body.leave(W0)
    body.turn()
    assert not job.ready and row(body).on == {W1: len(body.running())}
    for task in body.running():
        body.finish(task)
    body.run_all(lambda: len(body.running("a", W1)) <= 1 or pytest.fail())
    assert states(tasks) == {"memory": 24}
