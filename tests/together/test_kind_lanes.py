"""Kinds that are let pass one by one, in whatever order things happen, on Dask's own state of tasks."""

from collections import Counter

import hypothesis.strategies as st
import pytest
from dask._task_spec import Alias, Task
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kind_body import GB, MEMORY, PLAIN, KindBody

from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler import task_queue
from dask_hpc.cluster.scheduler import waves as waves_module
from dask_hpc.cluster.scheduler.gate import Gate
from dask_hpc.dask import GATE
from dask_hpc.policy import Policy
from dask_hpc.strategies.together.neighbours_view import KindLimit
from dask_hpc.together.scheduler import service

W0, W1, W2 = (f"tcp://w{i}:1" for i in range(3))


def row(body, kind="a"):
    return body.lanes.by_name[kind]


def states(tasks):
    return Counter(task.state for task in tasks)


def limit(body, *limits, job=None):
    """In force, as if a strategy had said so."""
    body.lanes.neighbours.limits[job] = {one.kind: one for one in limits}
    body.lanes._heed([one.kind for one in limits])
    body.turn()


def together(**options):
    """With a strategy that says nothing by itself."""
    body = KindBody("{queue: {strategy: fcfs}, together: {strategy: good-neighbours}}", **options)
    body.lanes.neighbours.ask = lambda: None
    return body


# --- how many


def test_as_many_at_once_as_fit():
    body = KindBody(workers=2)
    body.say("a", 4)
    tasks = body.submit("a", 9)
    assert {address: len(body.running("a", address)) for address in (W0, W1)} == {W0: 2, W1: 2}
    assert states(tasks) == {"processing": 4, "no-worker": 5} and row(body).count_waiting() == 5
    assert [task.key for task in sorted(body.running(), key=lambda task: task.priority)] == [
        task.key for task in tasks[:4]
    ]  # the best first
    body.finish(tasks[0])
    assert tasks[4].state == "processing"
    body.run_all(lambda: max(row(body).on.values(), default=0) <= 2 or pytest.fail())
    assert states(tasks) == {"memory": 9}


def test_what_needs_more_than_there_is_runs_alone():
    body = KindBody(workers=1)
    body.say("a", 20)
    body.say("b", 4)
    tasks = body.submit("a", 3) + body.submit("b", 3)
    body.run_all(lambda: len(body.running("a")) <= 1 or pytest.fail())
    assert states(tasks) == {"memory": 6}


def test_a_kind_that_fits_on_every_thread_is_daskss_own_business():
    body = KindBody()
    body.say("a", 2)
    tasks = body.submit("a", 50)
    assert not body.lanes.row_of and not body.lanes.by_name
    assert not any(task.worker_restrictions for task in tasks)


def test_nobody_knows_a_kind_and_one_on_each_worker_shows():
    body = KindBody(workers=3)
    tasks = body.submit("a", 30)
    assert row(body).on == {W0: 1, W1: 1, W2: 1}
    body.say("a", 5)
    assert row(body).on == {W0: 2, W1: 2, W2: 2}
    body.say("a", 1)
    assert not body.lanes.by_name and len(body.running()) > 6
    body.look()
    assert states(tasks)["no-worker"] == 0
    assert not any(task.worker_restrictions for task in tasks)


def test_a_long_task_is_judged_by_its_growth():
    body = KindBody(MEMORY.replace("60", "5"), workers=1)
    body.submit("a", 8)
    assert len(body.running()) == 1
    body.look(60)  # it is not said that it runs: it may wait for what it imports
    assert len(body.running()) == 1
    growth = {"a": [2.0, 2 * GB]}
    body.lanes.memory.hear_heartbeat(W0, {"kinds": {}, "growth": growth, "how": "rss"})
    body.look(2.9)
    assert len(body.running()) == 1
    body.look(0.2)
    assert len(body.running()) == 2  # twice what it has grown to so far, each


def test_nobody_says_what_it_needs_and_it_is_left_alone():
    body = KindBody(workers=1)
    first = body.submit("a", 8)[0]
    body.finish(first)
    assert len(body.running()) == 1
    body.look(4.9)
    assert len(body.running()) == 1
    body.look(0.2)
    assert not body.lanes.by_name and len(body.running()) > 1
    assert body.lanes.memory.peaks.is_known("a")


def test_workers_that_cannot_tell_are_left_alone():
    body = KindBody(workers=2)
    for address in (W0, W1):
        body.lanes.memory.hear_heartbeat(address, {"kinds": None, "how": "several workers share a process"})
    tasks = body.submit("a", 40)
    assert not body.lanes.by_name and not any(task.worker_restrictions for task in tasks)
    assert body.lanes.memory.status()["why_not"] == ["several workers share a process"]


def test_a_worker_without_a_limit_takes_what_comes():
    body = KindBody(workers=1, limit=0)
    tasks = body.submit("a", 40)
    assert not body.lanes.by_name and len(body.running()) > 1
    body.shape = 4, 10 * GB
    body.join(W1)
    body.turn()
    assert states(tasks)["processing"] == len(body.running(address=W0)) + 1
    assert row(body).on[W1] == 1 and row(body).on[W0] == len(body.running(address=W0))
    before = len(body.running(address=W0))
    body.finish(body.running(address=W0)[0])
    assert len(body.running(address=W0)) == before


def test_what_else_a_worker_has_counts():
    """Tasks that are not let pass one by one are counted with what their kind needs."""
    body = KindBody(workers=1)
    body.say("small", 2)
    body.say("a", 5)
    small = body.submit("small", 3)
    body.submit("a", 2)
    assert len(body.running("a")) == 1  # however much is there: nothing else would end it
    body.finish(small[0])
    body.look()
    assert len(body.running("a")) == 1  # 4 + 5 + 5 GB
    body.finish(small[1])
    body.finish(small[2])
    body.look()
    assert len(body.running("a")) == 2


def test_what_is_there_at_rest_has_no_room():
    body = KindBody(workers=1)
    body.scheduler.workers[W0].metrics["memory"] = 4 * GB
    body.look()
    body.say("a", 3.5)
    body.submit("a", 4)
    assert len(body.running()) == 1  # and 2 if there were nothing


# --- what comes under a rule, and what does not any more


@pytest.mark.queue
def test_a_kind_that_comes_under_the_rule_is_taken_out_of_the_queue():
    body = KindBody(workers=2)
    body.say("a", 0)
    tasks = body.submit("a", 40)
    flying = body.running()
    assert len(flying) == 10 and states(tasks)["queued"] == 30
    body.say("a", 4)
    assert states(tasks) == {"processing": 10, "no-worker": 30} and not body.scheduler.queued
    assert row(body).in_flight == {task.key: task.processing_on.address for task in flying}
    for task in flying[:8]:  # what was sent counts: of five there two fit
        body.finish(task)
    assert max(row(body).on.values()) <= 5
    body.finish(flying[8])
    body.finish(flying[9])
    assert row(body).on == {W0: 2, W1: 2}
    body.say("a", 0)
    body.look()
    assert states(tasks)["no-worker"] == 0 and not body.lanes.row_of
    assert len(body.running()) == 10 and len(body.scheduler.queued) == 20
    assert not any(task.worker_restrictions for task in tasks)
    body.run_all()
    assert states(tasks) == {"memory": 40}


@pytest.mark.queue
def test_out_of_the_queue_in_portions_and_nothing_else_leaves_it_meanwhile(monkeypatch):
    monkeypatch.setattr(waves_module, "_PORTION", 7)
    body = KindBody(workers=1)
    body.say("a", 0)
    body.say("b", 0)
    first = body.submit("a", 30)
    others = body.submit("b", 30)
    flying = body.running()
    row_ = {"bytes": 6 * GB, "inputs": 0, "tasks": 3}
    body.lanes.log_event("dask-hpc-peaks", {"worker": W0, "kinds": {"a": row_}})
    waves = body.gate.waves
    assert waves.is_shut and states(first)["queued"] == 30 - len(flying)
    body.scheduler.finish(flying[0])  # a slot opens
    assert len(body.running()) == len(flying) - 1 and states(first)["queued"] == 25 - 7
    body.turn()
    assert not waves.is_shut and states(first)["queued"] == 0
    assert states(others)["processing"] >= 1
    body.run_all(lambda: len(body.running("a")) <= len(flying) or pytest.fail())
    assert states([*first, *others]) == {"memory": 60}


@pytest.mark.queue
def test_a_rule_that_ends_while_they_come_out_of_the_queue(monkeypatch):
    monkeypatch.setattr(waves_module, "_PORTION", 7)
    body = KindBody(workers=1)
    body.say("a", 0)
    tasks = body.submit("a", 40)
    for need in (6, 0, 6, 0):
        row_ = {"bytes": need * GB, "inputs": 0, "tasks": 3}
        body.lanes.log_event("dask-hpc-peaks", {"worker": W0, "kinds": {"a": row_}})
    body.turn()
    assert not body.gate.waves.is_shut and not body.lanes.row_of
    assert not any(task.worker_restrictions for task in tasks)
    body.run_all()
    assert states(tasks) == {"memory": 40}


def test_what_was_freed_is_looked_at_in_portions(monkeypatch):
    body = KindBody(workers=1)
    body.say("a", 6)
    tasks = body.submit("a", 30)
    plain = Gate.nudge_freed
    monkeypatch.setattr(Gate, "nudge_freed", lambda gate: plain(gate, 10))
    body.lanes._open(row(body))
    assert len(body.gate.freed) == 29
    body.decide()
    assert len(body.gate.freed) == 19 and states(tasks)["no-worker"] == 19
    body.turn()
    assert not body.gate.freed and states(tasks)["no-worker"] == 0


def test_a_kind_of_which_only_some_fly_is_counted_when_more_come():
    body = KindBody(workers=1)
    body.say("a", 0)
    first = body.submit("a", 3)
    body.say("a", 4)
    assert not body.lanes.by_name and len(body.running()) == 3  # there is nothing to be kept back
    body.submit("a", 3)
    assert row(body).on == {W0: 3} and len(body.running()) == 3
    body.finish(first[0])
    assert len(body.running()) == 2
    body.finish(first[1])
    assert len(body.running()) == 2


def test_what_waits_for_others_is_kept_when_it_is_ready():
    body = KindBody(workers=1)
    body.say("root", 0)
    body.say("a", 0)
    (root,) = body.submit("root", 1)
    tasks = body.submit("a", 5, needs=[root.key])
    body.say("a", 4)
    assert states(tasks) == {"waiting": 5}
    body.finish(root)
    assert states(tasks) == {"processing": 2, "no-worker": 3}


def test_another_threshold_and_more_kinds_are_kept():
    body = KindBody(workers=1)
    body.say("a", 2)
    tasks = body.submit("a", 30)
    assert not body.lanes.by_name
    body.policy = Policy.parse(MEMORY.replace("most: 1", "most: 0.5"), name="test")
    body.lanes.policy_changes()
    body.turn()
    assert row(body).count_waiting() + len(row(body).in_flight) == 30
    for task in body.running():
        body.finish(task)
    assert len(body.running()) == 2
    body.run_all(lambda: len(body.running()) <= 2 or pytest.fail())
    assert states(tasks) == {"memory": 30}


def test_what_somebody_else_sends_is_counted():
    body = KindBody(workers=1)
    body.say("a", 6)
    tasks = body.submit("a", 4)
    compat.restrict(tasks[3], None)
    body.scheduler.transitions({tasks[3].key: "processing"}, "test")
    assert row(body).on == {W0: 2} and row(body).count_waiting() == 2
    body.finish(tasks[0])
    assert len(body.running()) == 1
    body.finish(tasks[3])
    assert len(body.running()) == 1


def test_another_threshold_and_what_is_known_is_still_known():
    body = KindBody(workers=1)
    body.say("a", 4)
    tasks = body.submit("a", 6)
    assert len(body.running()) == 2
    body.policy = Policy.parse(MEMORY.replace("most: 1", "most: 0.5"), name="test")
    body.lanes.policy_changes()
    body.turn()
    assert body.lanes.memory.peaks.is_known("a")
    body.finish(body.running()[0])
    assert len(body.running()) == 1
    body.finish(body.running()[0])
    assert len(body.running()) == 1
    body.policy = Policy.parse(PLAIN, name="test")
    body.lanes.policy_changes()
    body.turn()
    assert body.lanes.memory is None and not body.lanes.row_of and not body.watching
    body.run_all()
    assert states(tasks) == {"memory": 6}
    body.lanes.release()
    assert not body.scheduler.loop.later


# --- who goes first


@pytest.mark.queue
def test_what_goes_first_finds_a_slot_although_others_fill_all(monkeypatch):
    body = KindBody(workers=2)
    body.say("small", 0)
    body.say("a", 6)
    small = body.submit("small", 100)
    tasks = body.submit("a", 4, change=lambda task: setattr(task, "priority", (-1, *task.priority[1:])))
    assert not body.running("a")
    for address in (W0, W1) * 3:  # slots open, one after the other, and no timer is over
        body.finish(body.running("small", address)[0])
    assert len(body.running("a")) == 2 and row(body).on == {W0: 1, W1: 1}
    assert states(small)["memory"] == 6
    for _ in range(2):
        body.finish(body.running("a")[0])
    assert states(tasks)["memory"] == 2 and len(body.running("a")) == 2


@pytest.mark.queue
def test_what_goes_later_waits_until_the_queue_is_empty():
    body = KindBody(workers=1)
    body.say("small", 0)
    body.say("a", 6)
    body.submit("small", 20)
    tasks = body.submit("a", 2)
    while body.scheduler.queued:
        assert not body.running("a")
        body.finish(body.running("small")[0])
    body.finish(body.running("small")[0])
    assert len(body.running("a")) == 1
    body.run_all()
    assert states(tasks) == {"memory": 2}


def test_a_worker_that_has_what_is_needed_goes_first():
    body = KindBody(workers=3)
    body.say("root", 0)
    body.say("a", 6)
    roots = body.submit("root", 3)
    for root in list(roots):
        body.scheduler.finish(root, nbytes=1000)
    body.turn()
    for root in roots:
        (holder,) = compat.holders(root)
        (task,) = body.submit("a", 1, needs=[root.key])
        assert task.processing_on.address == holder
    (task,) = body.submit("a", 1, needs=[roots[0].key])
    assert task.state == "no-worker"  # nobody has room, and it waits


def test_the_one_with_least_to_do_goes_next():
    body = KindBody(workers=2)
    body.say("small", 0)
    body.say("a", 4)
    (busy,) = body.submit("small", 1)
    tasks = body.submit("a", 3)
    there = [task.processing_on.address for task in tasks]
    other = W1 if busy.processing_on.address == W0 else W0
    assert there[0] == other and Counter(there) == {other: 2, busy.processing_on.address: 1}


@pytest.mark.queue
def test_a_portion_and_then_the_next(monkeypatch):
    monkeypatch.setattr(service, "PORTION", 3)
    body = KindBody(workers=5)
    body.say("a", 4)
    body.submit("a", 20)
    assert row(body).on == {f"tcp://w{i}:1": 2 for i in range(5)}
    assert task_queue.PORTION > 100


def test_dask_sends_it_not_after_all_and_it_waits_again(monkeypatch):
    body = KindBody(workers=1)
    body.say("a", 6)
    plain = compat.send

    def refuse(scheduler, places, stimulus):
        for key, address in places.items():
            compat.restrict(scheduler.tasks[key], {address})
        return {}

    monkeypatch.setattr(compat, "send", refuse)
    tasks = body.submit("a", 3)
    assert not body.running() and row(body).count_waiting() == 3 and not row(body).in_flight
    assert all(GATE in task.worker_restrictions for task in tasks)
    monkeypatch.setattr(compat, "send", plain)
    body.look()
    body.run_all()
    assert states(tasks) == {"memory": 3}


# --- workers come and go


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
    now = memories.now(room, strategy, {"a": 2}, there, "a", 0.0)
    assert now.needed == pytest.approx((2 * 3 + 2 + 0.5) * GB) and (now.running, now.of_kind) == (2, 2)
    now = memories.now(room, strategy, {"a": 1}, there, "large", 0.0)  # one more of it is nobody's of ours
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


# --- jobs


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


# --- what is left alone


@pytest.mark.parametrize(
    "change",
    [
        {"worker_restrictions": {W0}},
        {"worker_restrictions": {W0}, "loose_restrictions": True},
        {"loose_restrictions": True},
        {"host_restrictions": {"w0"}},
        {"resource_restrictions": {"GPU": 1}},
        {"actor": True},
    ],
)
@pytest.mark.parametrize("how", ["arrives", "is gathered"])
def test_tasks_that_are_left_alone(change, how):
    body = KindBody(workers=1)

    def set_all(task):
        for name, value in change.items():
            setattr(task, name, set(value) if isinstance(value, set) else value)

    body.say("a", 6 if how == "arrives" else 0)
    body.scheduler.workers[W0].resources["GPU"] = 10
    body.scheduler.workers[W0].used_resources["GPU"] = 0
    body.scheduler.resources["GPU"] = {W0: 10}
    tasks = body.submit("a", 3, change=set_all)
    if how == "is gathered":
        body.say("a", 6)
        body.submit("a", 1)
        assert body.lanes.row_of.keys().isdisjoint(task.key for task in tasks)
    else:
        assert not body.lanes.row_of
    for task in tasks:
        assert getattr(task, next(iter(change))) == next(iter(change.values()))
    assert states(tasks) == {"processing": 3}


def test_what_is_not_computed_and_what_is_of_a_shuffle_is_left_alone():
    body = KindBody(workers=1)
    body.say("a", 6)
    body.say("shuffle-barrier", 6)

    def passes_on(task):
        task.run_spec = Alias(task.key, "other")

    assert body.submit("a", 1, change=passes_on)[0].key not in body.lanes.row_of
    before = body.submit("shuffle-transfer", 2)
    assert before[0].key in body.lanes.row_of  # nobody knows yet that it is one
    (barrier,) = body.scheduler.make(["shuffle-barrier-1"], [task.key for task in before])
    after = body.scheduler.make([("a", 100)], ["shuffle-barrier-1"])
    body.lanes.graph_arrives([barrier.key, after[0].key])
    assert barrier.prefix.name == "shuffle-barrier"
    assert barrier.key not in body.lanes.row_of and after[0].key not in body.lanes.row_of
    assert isinstance(after[0].run_spec, Task)


def test_what_waits_in_another_queue_is_left_there():
    body = KindBody(workers=1)

    class Other(task_queue.TaskQueue):
        def keeps(self, key):
            return key[1] % 2 == 0

        def count_waiting(self):
            return 0

        def waiting(self):
            return ()

        def is_awaited(self, job):
            return False

        def let_pass(self, only_before_roots):
            pass

    body.gate.waves.queues.add(Other())
    body.say("a", 6)
    body.submit("a", 10)
    assert {key[1] % 2 for key in body.lanes.row_of} == {1} and len(body.lanes.row_of) == 5


# --- neighbours


def submit_both(body, count):
    """Both are there before anything starts."""
    for address in body.scheduler.workers:
        body.scheduler.pause(address)
    tasks = body.submit("a", count), body.submit("b", count)
    for address in body.scheduler.workers:
        body.scheduler.pause(address, False)
        body.turn()
    body.look()
    return tasks


def test_no_more_beside_others_than_the_limit_and_alone_as_many_as_get_on():
    body = together(workers=2)
    limit(body, KindLimit("a", 1, 3, "so"), KindLimit("b", 2, None, "so"))
    first, second = submit_both(body, 12)
    for address in (W0, W1):
        assert len(body.running("a", address)) == 1 and len(body.running("b", address)) == 2
    while states(second)["memory"] < 12:
        body.finish(body.running("b")[0])
        for address in (W0, W1):
            assert len(body.running("a", address)) <= (1 if row(body, "b").count_waiting() else 3)
    body.look()
    assert len(body.running("a", W0)) == len(body.running("a", W1)) == 3
    body.run_all()
    assert states([*first, *second]) == {"memory": 24}


def test_a_limit_of_none_beside_others_still_runs_where_nothing_runs():
    body = together(workers=1)
    limit(body, KindLimit("a", 0, 2, "so"), KindLimit("b", 0, 2, "so"))
    first, second = submit_both(body, 3)
    assert len(body.running()) == 1
    body.run_all()
    assert states([*first, *second]) == {"memory": 6}


@pytest.mark.queue
def test_a_limited_kind_goes_before_the_queue_of_another_but_not_of_its_own():
    body = together(workers=1)
    small = body.submit("small", 40)
    limit(body, KindLimit("a", 2, None, "so"))
    body.submit("a", 8)
    assert len(body.running("a")) == 2  # beyond the slots: it comes before what waits for one
    body.finish(body.running("a")[0])
    assert len(body.running("a")) == 2
    bound = body.submit("a", 30, workers=None, change=lambda task: setattr(task, "loose_restrictions", True))
    assert states(small)["queued"] and bound


def test_a_limit_is_about_nodes_and_not_workers():
    body = together(workers=0)
    for address in (W0, W1):
        worker = body.scheduler.join(address, 2, 0)
        worker.metrics = {"memory": 0, "managed_bytes": 0, "spilled_bytes": {"memory": 0, "disk": 0}}
    body.nodes.node_of = lambda address: "n"
    body.nodes.workers = lambda node: [W0, W1]
    limit(body, KindLimit("a", 1, 3, "so"), KindLimit("b", 3, None, "so"))
    submit_both(body, 6)
    assert len(body.running("a")) == 1 and len(body.running("b")) == 3
    while body.running("b"):
        body.finish(body.running("b")[0])
    body.look()
    assert len(body.running("a")) == 3


def test_a_worker_is_given_no_more_than_it_has_threads_although_its_node_may():
    body = together(workers=2, threads=2)
    body.nodes.node_of = lambda address: "n"
    body.nodes.workers = lambda node: [W0, W1]
    body.scheduler.pause(W1)
    limit(body, KindLimit("a", 4, None, "so"))
    body.submit("a", 9)
    assert row(body).on == {W0: 2}


def test_alone_it_takes_the_threads_that_are_left():
    body = together(workers=1)
    body.submit("small", 2)
    limit(body, KindLimit("a", 0, None, "so"), KindLimit("c", 0, 0, "so"))
    tasks = body.submit("a", 9)
    assert len(body.running("a")) == 2  # there are four threads
    for task in body.running("small"):
        body.finish(task)
    body.run_all()
    assert states(tasks) == {"memory": 9}
    body.submit("c", 3)
    assert len(body.running("c")) == 1


def test_where_most_of_what_it_needs_is():
    body = KindBody(workers=2)
    body.say("root", 0)
    body.say("a", 6)
    for number in range(2):
        roots = body.submit("root", 2)
        assert {root.processing_on.address for root in roots} == {W0, W1}
        for place, root in enumerate(roots):
            body.scheduler.finish(root, nbytes=10 if place == number else 5000)
        (task,) = body.submit("a", 1, needs=[root.key for root in roots])
        assert compat.holders(roots[1 - number]) == {task.processing_on.address} or [
            task.processing_on.address
        ] == list(compat.holders(roots[1 - number]))
        body.finish(task)


def test_nothing_is_remembered_of_what_does_not_wait():
    body = KindBody(workers=1)
    body.say("a", 6)
    job = body.job("j", [W0])
    body.submit("a", 3, job=job)
    assert row(body).full.keys() == {job}
    body.run_all()
    assert row(body).full == {} and row(body).ready == {}


def test_a_task_that_has_no_result_has_told_nothing():
    body = KindBody(workers=1)
    (task,) = body.submit("a", 1)
    body.scheduler.transitions({task.key: "released"}, "test")
    body.turn()
    assert task.state == "processing" and not body.lanes.memory._unheard
    body.finish(task)
    assert body.lanes.memory._unheard.keys() == {"a"}


def test_limits_of_a_job_are_its_own():
    body = together(workers=2)
    job = body.job("j", [W0])
    limit(body, KindLimit("a", 1, 1, "so"), job=job)
    body.submit("a", 6, job=job)
    outside = body.submit("a", 6)
    assert len(body.running("a", W0)) == 1 + sum(
        task.processing_on is not None and task.processing_on.address == W0 for task in outside
    )
    assert body.lanes.neighbours.limit(None, "a") is None
    assert body.lanes.neighbours.limit(job, "a").beside == 1
    job.confined = False
    assert body.lanes.neighbours.limit(job, "a") is None


# --- ends


def test_dask_clears_all_tasks():
    body = KindBody(workers=2)
    body.say("a", 6)
    body.submit("a", 5)
    body.lanes.tasks_vanish()
    assert not body.lanes.row_of and not body.lanes.by_name and not body.lanes.count_waiting()
    assert not body.lanes.queues.wants_look


@pytest.mark.parametrize("in_job", [False, True])
def test_released_in_the_middle_and_all_runs_as_in_plain_dask(in_job):
    body = KindBody(workers=2)
    body.say("a", 6)
    job = body.job("j", [W0]) if in_job else None
    tasks = body.submit("a", 20, job=job)
    flying = body.running()
    assert len(flying) == (1 if in_job else 2)
    body.is_on = False
    body.lanes.release()
    body.gate.lift_all()
    assert not body.lanes.row_of and not body.scheduler.loop.later and not body.watching
    assert not any(task.worker_restrictions for task in tasks)
    assert len(body.running()) > 2
    body.scheduler.leave(flying[0].processing_on.address)
    assert flying[0].state in ("processing", "queued")  # it is not bound to who is gone
    while body.running():
        body.scheduler.finish(body.running()[0])
    assert states(tasks) == {"memory": 20}


def test_what_makes_no_sense_is_not_heard():
    body = KindBody(workers=1)
    row_ = {"bytes": 6 * GB, "inputs": 0, "tasks": 3}
    for message in (
        5, None, "x", [], {"kinds": 7}, {"kinds": {"a": row_}}, {"worker": W0, "kinds": {"a": {"bytes": 1}}},
        {"worker": W0, "kinds": {"a": {**row_, "bytes": "many"}}}, {"worker": W0, "running": [[1]]},
        {"worker": W0, "kinds": {"a": None}},
    ):  # fmt: skip
        body.lanes.log_event("dask-hpc-peaks", message)
    assert not body.lanes.memory.peaks.is_known("a")
    assert len([one for one in body.story.happenings if one.decision == "warning"]) == 1
    body.lanes.log_event("dask-hpc-peaks", {"worker": W0, "kinds": {"a": row_}})
    assert body.lanes.memory.peaks.is_known("a")


def test_what_is_shown():
    body = KindBody(workers=1)
    body.say("a", 6)
    body.submit("a", 3)
    told = body.lanes.status()["together"]
    assert told["kept"] == [{"kind": "a", "waiting": 2, "in_flight": 1}]
    (kind,) = told["memory"]["kinds"]
    assert kind == {"kind": "a", "peak": 6 * GB, "remembered": False, "at_once": 1}
    assert body.lanes.samples(told) == {"kinds_kept": {"": 1}, "kinds_waiting": {"": 2}}
    body.look()
    (told,) = [one for one in body.story.happenings if one.decision == "memory-lane"]
    assert told.reason.startswith("a: 1 at once on a worker: one needs")
    body.look()
    assert len([one for one in body.story.happenings if one.decision == "memory-lane"]) == 1


# --- in any order


class AnyKinds(RuleBasedStateMachine):
    """Two kinds whose need becomes known and changes, in jobs and outside of them, on workers that come and
    go."""

    NEEDS = {"a": [0, 4, 6], "b": [1, 3, 20]}

    @initialize()
    def begin(self):
        self.body = KindBody(MEMORY, workers=3)
        self.ran, self.lost, self.unwanted = Counter(), set(), set()
        self.number = 3
        plain = self.body.scheduler._moved

        def moved(key, start, finish):
            if (start, finish) == ("processing", "memory"):
                self.ran[key] += 1
            if (start, finish) == ("no-worker", "processing") and key in self.body.lanes.row_of:
                self.fits(key)
            plain(key, start, finish)

        self.body.scheduler._moved = moved

    def fits(self, key):
        """By our own count: what is let pass there needs no more than there is, or it is alone."""
        lanes, address = self.body.lanes, self.body.scheduler.tasks[key].processing_on.address
        kinds = [
            one.name for one in lanes.by_name.values() for where in one.in_flight.values() if where == address
        ]
        needs = [lanes.memory.peaks.of(kind, self.body.time).peak for kind in kinds]
        known = sum(5 * GB if need is None else need for need in needs)
        assert len(kinds) == 1 or known <= 10 * GB, (kinds, needs)
        job = self.body.owner.get(key)
        assert job is None or job.state == "running"
        assert job is None or not job.confined or address in job.workers

    @rule(
        kind=st.sampled_from("ab"), count=st.integers(1, 15), where=st.integers(0, 4), chained=st.booleans()
    )
    def graph_arrives(self, kind, count, where, chained):
        jobs = [job for job in self.body.jobs.values() if job.state != "done"]
        job = jobs[where % len(jobs)] if jobs and where < 3 else None
        if where == 4 and len(self.body.jobs) < 5:
            job = self.body.job(f"j{len(self.body.jobs)}")
        tasks = self.body.submit(kind, count, job=job)
        if chained:
            self.body.submit("b" if kind == "a" else "a", count, needs=[tasks[0].key], job=job)

    @rule(kind=st.sampled_from("ab"), which=st.integers(0, 2))
    def it_is_known(self, kind, which):
        self.body.say(kind, self.NEEDS[kind][which])

    @rule(data=st.data(), most=st.integers(1, 6))
    def tasks_end(self, data, most):
        for _ in range(most):
            if found := self.body.running():
                found.sort(key=lambda task: task.key)
                self.body.scheduler.finish(data.draw(st.sampled_from(found)))
        if data.draw(st.booleans()):
            self.body.turn()

    @rule(data=st.data())
    def a_task_is_given_back(self, data):
        """As by Reschedule, or when it is tried again."""
        if found := sorted(self.body.running(), key=lambda task: task.key):
            task = data.draw(st.sampled_from(found))
            self.body.scheduler.transitions({task.key: "released"}, "test")

    @rule(data=st.data())
    def nobody_wants_it(self, data):
        if keys := sorted(self.body.scheduler.tasks):
            key = data.draw(st.sampled_from(keys))
            self.unwanted.add(key)
            self.body.scheduler.release(self.body.scheduler.tasks[key])

    @precondition(lambda self: len(self.body.scheduler.workers) > 1)
    @rule(data=st.data())
    def worker_leaves(self, data):
        address = data.draw(st.sampled_from(sorted(self.body.scheduler.workers)))
        worker = self.body.scheduler.workers[address]
        self.lost.update(task.key for task in (*worker.processing, *worker.has_what))
        self.body.leave(address)
        for job in self.body.jobs.values():
            if job.state == "running" and not job.workers:
                job.state = "waiting"
                self.body.gate.shut(job)

    @rule()
    def worker_joins(self):
        if len(self.body.scheduler.workers) < 4:
            for job in self.body.jobs.values():
                if job.state == "running" and not job.confined:
                    self.body.gate.confine(job)
            self.body.join(f"tcp://w{self.number}:1")
            self.number += 1

    @rule(data=st.data(), is_paused=st.booleans())
    def worker_pauses_or_goes_on(self, data, is_paused):
        address = data.draw(st.sampled_from(sorted(self.body.scheduler.workers)))
        self.body.scheduler.pause(address, is_paused)

    def idle(self):
        held = {a for job in self.body.jobs.values() if job.state == "running" for a in job.workers}
        return sorted(set(self.body.scheduler.workers) - held)

    @rule(data=st.data())
    def job_starts_or_grows(self, data):
        jobs = [job for job in self.body.jobs.values() if job.state != "done"]
        if jobs and (idle := self.idle()):
            job = data.draw(st.sampled_from(jobs))
            some = data.draw(st.lists(st.sampled_from(idle), min_size=1, unique=True))
            self.body.start(job, {*job.workers, *some})

    @rule(data=st.data())
    def job_waits_again(self, data):
        jobs = [job for job in self.body.jobs.values() if job.state == "running"]
        if jobs:
            job = data.draw(st.sampled_from(jobs))
            job.state = "waiting"
            self.body.gate.shut(job)

    @rule(is_on=st.booleans())
    def the_policy_changes(self, is_on):
        self.body.policy = Policy.parse(MEMORY if is_on else PLAIN, name="test")
        self.body.lanes.policy_changes()

    @rule(seconds=st.sampled_from([0.1, 1.0]))
    def time_passes(self, seconds):
        self.body.look(seconds)

    @invariant()
    def the_books_are_right(self):
        if not hasattr(self, "body"):
            return
        lanes, tasks = self.body.lanes, self.body.scheduler.tasks
        assert not self.body.scheduler.errors, self.body.scheduler.errors
        by_row = Counter(one.name for one in lanes.row_of.values())
        assert by_row == {name: one.tasks for name, one in lanes.by_name.items()}
        waiting = set()
        for one in lanes.by_name.values():
            assert one.on == Counter(one.in_flight.values())
            for key in one.in_flight:
                assert lanes.row_of[key] is one and tasks[key].state == "processing"
            for job, ready in one.ready.items():
                for key in ready:
                    assert lanes.row_of[key] is one and self.body.owner.get(key) is job
                    waiting.add(key)
        for key, one in lanes.row_of.items():
            task = tasks[key]
            assert task.prefix.name == one.name
            assert (task.state == "processing") == (key in one.in_flight), (key, task.state)
            assert (task.state == "no-worker") == (key in waiting), (key, task.state)
            job = self.body.owner.get(key)
            assert job is None or (key not in job.ready and key not in job.passed)
        for key, task in tasks.items():
            if key not in lanes.row_of and key not in self.body.owner and task.worker_restrictions:
                raise AssertionError(f"{key!r} is restricted, by nobody")

    def teardown(self):
        if not hasattr(self, "body"):
            return
        body = self.body
        for address in body.scheduler.workers:
            body.scheduler.pause(address, False)
        body.turn()
        for _ in range(400):
            body.look(0.3)
            if self.idle() and (waiting := [job for job in body.jobs.values() if job.state == "waiting"]):
                body.start(waiting[0], self.idle()[:1])
            for task in body.running():
                if task.state == "processing":
                    body.scheduler.finish(task)
            body.turn()
            for job in body.jobs.values():
                if job.state == "running" and not job.unfinished:
                    job.state = "done"
                    body.gate.lift(job)
            self.the_books_are_right()
            if not body.running() and all(job.state == "done" for job in body.jobs.values()):
                body.look(0.3)
                if not body.running():
                    break
        left = [key for key, task in body.scheduler.tasks.items() if task.state not in ("memory", "released")]
        assert not left, f"waits for ever: {left}"
        again = {key for key, times in self.ran.items() if times > 1}
        assert again <= self.lost | self.unwanted, f"ran twice: {sorted(again - self.lost - self.unwanted)}"


TestAnyKinds = AnyKinds.TestCase
TestAnyKinds.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
