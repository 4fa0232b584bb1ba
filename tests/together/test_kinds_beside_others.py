"""Kinds that may be no more than so many on a node beside others; and how it all ends."""

import pytest
from kind_body import GB, W0, W1, KindBody, limit, row, states, together

from dask_hpc import dask as compat
from dask_hpc.strategies.together.neighbours_view import KindLimit
from dask_hpc.together.scheduler.openings import KindRow


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


def tell_seconds(body, kind, *seconds, number=1):
    """Tasks of a kind have ended that took so long, one after the other."""
    starts = range(len(seconds))
    rows = [[start, start + took, 1, 1, None] for start, took in zip(starts, seconds, strict=True)]
    word = {
        "number": (kind, number), "since": 0.0, "until": 99.0, "host": {"cpu": "x", "cores": 2, "limit": 0},
        "tasks": {kind: rows}, "ended": {}, "running": {}, "counters": None, "why_not": "",
    }  # fmt: skip
    body.lanes.neighbours.hear(W0, word)
    body.scheduler.new_task((kind, -number), None, "released")
    body.scheduler.task_prefixes[kind].duration_average = sum(seconds) / len(seconds)


def two_limited_kinds(workers=1, seconds=(0.09, 0.11)):
    body = together(workers=workers, threads=2)
    for kind in "ab":
        tell_seconds(body, kind, *seconds)
    limit(body, KindLimit("a", 1, None, "so"), KindLimit("b", 1, None, "so"))
    submit_both(body, 10)
    return body


def pass_time(body, seconds):
    """And nothing else happens than that tasks nearly end."""
    body.time += seconds
    body.lanes._some_nearly_end()
    body.turn()


def test_the_next_one_of_a_kind_is_sent_when_one_has_nearly_ended():
    body = two_limited_kinds()
    first, *_ = body.running("a")
    pass_time(body, 0.09)
    assert len(body.running("a")) == len(body.running("b")) == 1
    pass_time(body, 0.007)
    assert len(body.running("a")) == len(body.running("b")) == 2
    pass_time(body, 0.05)  # it takes longer than usual: no third one
    assert len(body.running("a")) == 2
    body.finish(first)
    (second,) = body.running("a")
    pass_time(body, 0.047)  # the second one was sent 0.097 s ago, and is not believed to have begun at once
    assert len(body.running("a")) == 1
    pass_time(body, 0.005)
    assert len(body.running("a")) == 2
    body.finish(second)
    assert len(body.running("a")) == 1
    body.run_all()
    assert not any(one.ending for one in body.lanes.by_name.values())
    body.look(1.0)
    assert not body.lanes._ends


def test_one_that_takes_no_time_is_not_ended_before_it_has_begun():
    body = two_limited_kinds(seconds=(0.019, 0.021))
    pass_time(body, 0.0175)
    assert len(body.running("a")) == len(body.running("b")) == 1
    pass_time(body, 0.001)
    assert len(body.running("a")) == len(body.running("b")) == 2


def test_of_a_kind_that_takes_now_this_long_and_now_that_none_is_sent_ahead():
    body = together(workers=1, threads=2)
    tell_seconds(body, "a", 0.01, 0.01, 0.5, 0.5)
    tell_seconds(body, "b", 0.1)  # one task tells nothing of others
    limit(body, KindLimit("a", 1, None, "so"), KindLimit("b", 1, None, "so"))
    submit_both(body, 10)
    pass_time(body, 5.0)
    assert len(body.running("a")) == len(body.running("b")) == 1
    tell_seconds(body, "b", 0.1, number=2)
    for kind in "ab":
        body.finish(body.running(kind)[0])
    pass_time(body, 5.0)
    assert len(body.running("a")) == 1 and len(body.running("b")) == 2


def test_it_is_sent_where_the_other_one_ends_and_nowhere_else():
    body = together(workers=2, threads=1)
    body.nodes.node_of = lambda address: "n"
    body.nodes.workers = lambda node: [W0, W1]
    tell_seconds(body, "a", 0.09, 0.11)
    limit(body, KindLimit("a", 1, 1, "so"), KindLimit("b", 1, 1, "so"))
    submit_both(body, 10)
    (first,) = body.running("a")
    where = first.processing_on.address
    body.look(0.097)
    assert len(body.running("a", where)) == len(body.running("a")) == 2
    assert len(body.running("b")) == 1
    body.finish(first)
    assert len(body.running("a", where)) == len(body.running("a")) == 1


@pytest.mark.parametrize("threads", [1, 2])
def test_alone_the_next_one_is_sent_ahead_as_well(threads):
    body = together(workers=1, threads=threads)
    tell_seconds(body, "a", 0.09, 0.11)
    limit(body, KindLimit("a", 0, 1, "so"))
    body.submit("a", 10)
    assert len(body.running("a")) == 1
    pass_time(body, 0.097)
    assert len(body.running("a")) == 2
    body.run_all(lambda: len(body.running("a")) <= 2 or pytest.fail())


def test_one_that_ends_does_not_end_for_another():
    one = KindRow("a")
    for key in 1, 2:
        one.departs(key, W0)
    one.nearly_ends(2)
    assert one.arrives(1) == W0 and one.ending == {W0: 2}
    one.nearly_ends(1)  # it has ended
    assert one.arrives(2) == W0 and not one.ending and not one.on


def test_who_is_gone_nearly_ends_no_more():
    body = two_limited_kinds(workers=2)
    for task in body.running(address=W0):
        body.finish(task)
    body.leave(W1)
    pass_time(body, 0.097)
    for one in body.lanes.by_name.values():
        assert all(one.in_flight[key] == address for address, key in one.ending.items())
        assert one.ending.keys() <= {W0}
    body.is_on = False
    body.lanes.release()
    assert not body.scheduler.loop.later and not body.lanes._ends


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
