"""How many of a kind are let pass at once: by what they need of memory."""

import pytest
from kind_body import GB, MEMORY, W0, W1, W2, KindBody, row, states


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


def test_a_long_task_is_judged_by_its_growth_once_that_has_stood_still():
    body = KindBody(MEMORY.replace("60", "5"), workers=1)
    body.submit("a", 8)
    assert len(body.running()) == 1
    body.look(60)  # it is not said that it runs: it may wait for what it imports
    assert len(body.running()) == 1

    def grows(seconds, nbytes):
        body.look(seconds)
        growth = {"a": [body.time, nbytes]}
        body.lanes.memory.hear_heartbeat(W0, {"kinds": {}, "growth": growth, "how": "rss"})
        body.look(0)
        return len(body.running())

    assert [grows(2.0, tenths * GB / 10) for tenths in range(1, 11)] == [1] * 10  # as long as it grows
    body.look(60)
    assert len(body.running()) == 1  # nothing is heard of it
    assert grows(0.0, 2 * GB) == 1 and grows(4.9, 2 * GB) == 1
    assert grows(0.1, 2 * GB) == 2  # twice what it has grown to, each


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
