"""Which of the tasks that are kept back goes first, and where."""

from collections import Counter

import pytest
from kind_body import W0, W1, KindBody, row, states

from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler import task_queue
from dask_hpc.dask import GATE
from dask_hpc.together.scheduler import service


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
