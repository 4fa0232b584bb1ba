"""What the strategy of good neighbours is asked, and what is remembered for it."""

from dataclasses import replace

import pytest
from kind_body import KindBody

from dask_hpc.cluster.scheduler.jobs import Work
from dask_hpc.model.node import Nodes
from dask_hpc.strategies.together.neighbours_view import KindLimit
from dask_hpc.together.scheduler import neighbours as neighbours_module

W0, W1 = (f"tcp://w{i}:1" for i in range(2))


class Asked:
    """A strategy that remembers what it was asked, with which memory, and limits nothing."""

    name = "asked"
    known = 30

    def __init__(self):
        self.views, self.memories = [], []
        self.answer = {}

    def decide(self, view, memory):
        self.views.append(view)
        self.memories.append(memory)
        return self.answer, len(self.views)


@pytest.fixture
def body():
    found = KindBody("{queue: {strategy: fcfs}, together: {strategy: good-neighbours}}", workers=2)
    found.running_jobs = lambda: iter([job for job in found.jobs.values() if job.state == "running"])
    return found


def asked(body):
    strategy = Asked()
    body.lanes.neighbours.becomes(strategy)
    return strategy


def word(number, tasks, until=1.0, running=()):
    return {
        "number": number,
        "since": 0.0,
        "until": until,
        "host": {"cpu": "x", "cores": 2, "limit": 0},
        "tasks": tasks,
        "ended": {},
        "running": {kind: [start] for kind, start in running},
        "counters": None,
        "why_not": f"none on {number}",
    }


def hear(body, kind="a", address=W0):
    """Enough tasks to know how long one takes."""
    rows = [[0.01 * i, 0.01 * i + 0.05, 1, 1, None] for i in range(20)]
    body.lanes.neighbours.hear(address, word(1, {kind: rows}))


def test_another_strategy_begins_without_the_memory_of_the_one_before(body):
    hear(body)
    body.submit("a", 20)
    first = asked(body)
    body.lanes.neighbours.ask()
    body.lanes.neighbours.ask()
    assert first.memories == [None, 1]
    second = asked(body)
    body.lanes.neighbours.ask()
    assert second.memories == [None]


def test_a_class_that_makes_no_sense_is_told_once_of_each_kind(body):
    told = []
    body.tell = lambda decision, reason, why=None: told.append((decision, reason))
    known = body.lanes.neighbours
    for kind, said in ("a", "VI"), ("a", "VI"), ("a", 7), ("b", None), ("c", "II"):
        known.hear_class(kind, said)
    assert [decision for decision, _ in told] == ["warning", "warning"]
    assert told[0][1].startswith("a: mem_class: found 'VI'") and told[1][1].startswith("b:")


def test_what_was_said_is_remembered_of_the_newest_kinds(body, monkeypatch):
    monkeypatch.setattr(neighbours_module, "_SAID", 3)
    known, told = body.lanes.neighbours, []
    body.tell = lambda decision, reason, why=None: told.append(reason)
    for number in range(50):
        known.hear_class(f"good-{number}", "I")
        known.hear_class(f"bad-{number}", "none")
    assert list(known._said) == ["good-47", "good-48", "good-49"] and len(known._doubted) == 3
    known.hear_class("good-47", "V")
    known.hear_class("good-50", "I")
    assert known._said == {"good-49": "I", "good-47": "V", "good-50": "I"} and len(told) == 50


def test_nobody_waits_for_what_a_worker_tells_that_is_gone(body):
    """Tasks are learned from when all workers of their node have told of everything up to their end."""
    body.nodes = Nodes("host")
    known = body.lanes.neighbours
    for address in W0, W1:
        body.nodes.join(address, address, "one host")
    known.hear(W1, word(1, {}, until=0.1))
    known.hear(W0, word(1, {"a": [[0.2, 0.3, 1, 1, None]]}))
    assert "a" not in known.observations.kinds()
    body.lanes.worker_leaves(W1)
    known.hear(W0, word(2, {}, until=2.0))
    assert known.observations.kinds()["a"].tasks == 1
    assert known.status()["why_not"] == ["none on 2"]


def test_a_job_with_workers_of_its_own_is_looked_at_for_itself(body):
    hear(body)
    job = body.job("j", [W0])
    body.submit("a", 30, job=job)
    body.submit("a", 10)
    job.confined, job.unfinished["some"] = True, Work("a")
    job.performance.works["a"] = Work("a", left=30)
    strategy = asked(body)
    body.lanes.neighbours.ask()
    everybody, its = strategy.views
    assert (everybody.threads, everybody.nodes, its.threads, its.nodes) == (4, 1, 4, 1)
    assert [(kind.name, kind.left) for kind in everybody.kinds] == [("a", 10)]
    assert [(kind.name, kind.left) for kind in its.kinds] == [("a", 30)]
    waits = sum(task.state in ("no-worker", "queued") for task in body.scheduler.tasks.values())
    assert everybody.kinds[0].waiting + its.kinds[0].waiting == waits
    strategy.answer = {"a": KindLimit("a", 1, None, "why")}
    body.lanes.neighbours.ask()
    assert body.lanes.neighbours.limits.keys() == {None, job}
    job.unfinished.clear()
    body.lanes.neighbours.ask()
    assert body.lanes.neighbours.limits.keys() == {None}


def test_what_is_kept_of_a_job_waits_as_what_was_not(body):
    """Or a try would end as soon as it has begun."""
    hear(body)
    job = body.job("j", [W0])
    body.submit("a", 30, job=job)
    job.confined, job.unfinished["some"] = True, Work("a")
    job.performance.works["a"] = Work("a", left=30)
    strategy = asked(body)
    body.lanes.neighbours.ask()
    before = strategy.views[-1].kinds[0].waiting
    strategy.answer = {"a": KindLimit("a", 1, None, "why")}
    body.lanes._look()
    body.turn()
    assert body.lanes.by_name["a"].count_waiting()
    body.lanes.neighbours.ask()
    assert strategy.views[-1].kinds[0].waiting == before > 20


def test_deadlines_of_jobs_that_share_nodes_are_seconds_from_now(body):
    hear(body)
    body.time = 100.0
    body.submit("a", 9)
    job = body.job("j", [W0])
    job.confined, job.model = False, replace(job.model, deadline=130.0)
    job.performance.works["a"] = Work("a", left=3)
    strategy = asked(body)
    body.lanes.neighbours.ask()
    assert strategy.views[-1].kinds[0].due == 30.0
    body.time = 150.0
    body.lanes.neighbours.ask()
    assert strategy.views[-1].kinds[0].due == 0.0
    job.confined = True
    assert body.lanes.neighbours._due(None) == {}
    job.confined, job.model = False, replace(job.model, deadline=None)
    assert body.lanes.neighbours._due(None) == {}


def test_no_limit_any_more_is_told(body):
    told = []
    body.tell_of = lambda decision, job=None, **words: told.append(words["reason"])
    hear(body)
    body.submit("a", 20)
    strategy = asked(body)
    strategy.answer = {"a": KindLimit("a", 1, None, "why")}
    for _ in range(3):
        body.lanes.neighbours.ask()
    strategy.answer = {}
    for _ in range(3):
        body.lanes.neighbours.ask()
    assert len(body.recorded) == 2  # what changed, not what was asked again
    assert len(told) == 2 and told[1] == "a: no limit any more"


def test_nodes_of_several_sizes_are_looked_at_as_those_of_the_middle_one(body):
    for address, threads in ("tcp://w2:1", 2), ("tcp://w3:1", 2), ("tcp://w4:1", 16):
        body.shape = threads, body.shape[1]
        body.join(address)
    hear(body)
    body.submit("a", 200)
    strategy = asked(body)
    body.lanes.neighbours.ask()
    (view,) = strategy.views
    assert (view.threads, view.nodes) == (4, 5)


def test_only_company_of_kinds_that_have_tasks_left_counts(body):
    known = body.lanes.neighbours
    both = [[0.1 * i, 0.1 * i + 0.1, 1, 1, None] for i in range(20)]
    known.hear(W0, word(1, {"a": both, "gone": both}, until=9.0))
    known.hear(W0, word(2, {"a": [[10 + one[0], 10 + one[1], 1, 1, None] for one in both]}, until=20.0))
    known.hear_class("a", "II")
    body.submit("a", 30)
    strategy = asked(body)
    known.ask()
    (kind,) = strategy.views[0].kinds
    assert kind.said_class == "II" and kind.seconds == pytest.approx(0.1)
    seen = [one.others for one in strategy.views[0].seen]
    assert {} in seen and not any("gone" in others for others in seen)
    body.submit("gone", 1)
    known.ask()
    assert any("gone" in one.others for one in strategy.views[1].seen if one.kind == "a")
