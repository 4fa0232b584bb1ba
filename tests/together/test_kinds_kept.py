"""What comes under a rule, what does not any more, and what is left alone."""

import pytest
from dask._task_spec import Alias, Task
from kind_body import GB, MEMORY, PLAIN, W0, W1, KindBody, row, states

from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler import task_queue
from dask_hpc.cluster.scheduler import waves as waves_module
from dask_hpc.cluster.scheduler.gate import Gate
from dask_hpc.policy import Policy


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
def test_the_next_one_of_a_kind_takes_along_those_from_before_the_rule():
    body = KindBody(PLAIN, workers=1)
    done = body.submit("a", 3)
    for task in done:
        body.finish(task)
    queued = body.submit("a", 20)
    flying = body.running()
    assert states(queued)["queued"] == 20 - len(flying)
    body.policy = Policy.parse(MEMORY, name="test")
    body.lanes.policy_changes()
    assert not body.lanes.by_name  # nothing is known of them
    more = body.submit("a", 1)
    assert states([*queued, *more]) == {"processing": len(flying), "no-worker": 21 - len(flying)}
    assert row(body).tasks == 24 and set(row(body).in_flight) == {task.key for task in flying}


def test_a_graph_of_new_kinds_alone_makes_nobody_look_at_all_tasks(monkeypatch):
    body = KindBody()
    body.submit("a", 3)
    monkeypatch.setattr(compat, "of_kind", lambda *args, **kwargs: pytest.fail("looks at all"))
    body.submit("b", 3)
    assert body.lanes.by_name.keys() == {"a", "b"}


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
    assert row(body).on == {W0: 3} and len(body.running()) == 3  # lost, they would be let pass one by one
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


def test_moves_of_tasks_are_heard_only_while_some_are_kept():
    body = KindBody(workers=1)
    body.say("small", 0)
    small = body.submit("small", 3)
    body.look()
    assert body.watching == [], "each move of each task of the cluster would ask"
    body.say("a", 6)
    first = body.submit("a", 5)
    assert [service for service, _ in body.watching] == [body.lanes]
    body.say("a", 0)
    body.look()
    assert body.watching == [] and not body.lanes.row_of
    body.say("a", 6)
    again = body.submit("a", 9)
    assert [service for service, _ in body.watching] == [body.lanes]
    body.run_all(lambda: len(body.running("a")) <= 5 or pytest.fail())
    assert states([*small, *first, *again]) == {"memory": 17}


def test_a_strategy_is_asked_when_there_is_news_for_it():
    body = KindBody("{queue: {strategy: fcfs}, together: {strategy: good-neighbours}}", workers=2)
    asked, numbers = [], iter(range(1, 9))
    body.lanes.neighbours.ask = lambda: asked.append(body.time)

    def hear():
        word = {"number": next(numbers), "since": 0.0, "until": body.time, "tasks": {}, "ended": {}}
        word |= {"running": {}, "host": {"cpu": "x"}, "counters": None, "why_not": "", "peaks": None}
        body.scheduler.workers[W0].metrics["dask-hpc-tasks"] = word

    body.submit("a", 4)
    body.look()
    assert len(asked) == 1, "a graph"
    body.look()
    assert len(asked) == 1, "what was heard before is no news"
    hear()
    body.look()
    body.look()
    assert len(asked) == 2, "a word"
    body.is_paused = True
    hear()
    body.look()
    assert len(asked) == 2
    body.is_paused = False
    body.look()
    assert len(asked) == 3, "what came while it was not to be asked"
    body.leave(W1)
    body.look()
    assert len(asked) == 4, "there are fewer nodes"
    body.join(W1)
    body.look()
    assert len(asked) == 5, "and more"
    job = body.job("j", [W0])
    body.lanes.neighbours.limits[job] = {}
    body.lanes.job_ends(job)
    body.look()
    assert len(asked) == 6 and job not in body.lanes.neighbours.limits, "a job is over"
    body.policy = Policy.parse(
        "{queue: {strategy: fcfs}, together: {strategy: good-neighbours, known: 10}}", name="test"
    )
    body.lanes.policy_changes()
    assert len(asked) == 7, "another policy"
