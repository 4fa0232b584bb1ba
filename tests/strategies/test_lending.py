"""Who gets nodes of their own, from whom, and when: 000, 7.3.1.2 and 7.3.2.2, with what its listings lack."""

import pytest
from small_machine import machine, started

from dask_hpc import simulate
from dask_hpc.model.job import Job
from dask_hpc.model.lending import NodeQuery, NodeRequest
from dask_hpc.model.node import NodeWish
from dask_hpc.model.plan import Plan
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.model.story import explain, explain_loans
from dask_hpc.policy import Policy
from dask_hpc.strategies.checkpoint.agents import MoreNodes
from dask_hpc.strategies.checkpoint.scaler import AGAIN, Scaling, scale
from dask_hpc.strategies.lending.favor_checkpoints import FavorCheckpoints
from dask_hpc.strategies.lending.favor_jobs import FavorJobs

S = "checkpoint"
HIGH, LOW = True, False


def crowd(idle=0, **more):
    """A on 4 nodes communicates little, B on 4 much; ``idle`` nodes are."""
    indices = machine(8 + idle)
    started(indices, "A", 4, 1, 4)
    started(indices, "B", 4, **({"least": 1, "most": 4} | more))
    indices.mtct.update(A=0.1, B=0.5)
    return indices


def ask(indices, count, is_urgent):
    indices.wish(S, NodeWish(count, is_urgent, "it is full"))


def lend(indices, *free):
    """Nodes that are lent already, and how empty each is."""
    nodes = indices.idle[: len(free)]
    indices.lend(S, nodes, len(free))
    indices.weigh(S, dict(zip(nodes, free, strict=True)))


def first(indices, strategy):
    """Of the first word: nodes lent, nodes taken back, new sizes."""
    lend, back, resizes = strategy.first(Snapshot(indices))
    return lend and lend.nodes, back and back.nodes, {one.job: one.nodes for one in resizes}


def last(indices, strategy):
    lend = strategy.last(Snapshot(indices)).lend
    return lend and lend.nodes


@pytest.mark.parametrize(
    ("count", "more", "expected"),
    [
        (2, {}, {"B": 2}),
        (3, {"least": 2}, {"B": 2, "A": 3}),  # no further than it can go, and the next one gives the rest
        (9, {}, {"B": 1, "A": 1}),
        (1, {"constraint": "pof2"}, {"B": 2}),
        (1, {"walltime": 60.0}, {"A": 3}),  # B is about to end
    ],
)
def test_the_least_efficient_gives_as_much_as_it_can(count, more, expected):
    indices = crowd(**more)
    ask(indices, count, HIGH)
    assert first(indices, FavorCheckpoints()) == (None, None, expected)
    assert first(indices, FavorJobs()) == (None, None, {})


def test_nobody_shrinks_while_nodes_come_or_are_there():
    indices = crowd(idle=1)
    ask(indices, 3, HIGH)
    assert first(indices, FavorCheckpoints()) == (1, None, {})
    indices.settle_loans(Plan(0, 0.0, lend=FavorCheckpoints().first(Snapshot(indices)).lend))
    assert indices.borrowers[S].wish.count == 2 and len(indices.borrowers[S].lent) == 1
    indices.begin_resize("B", 3)
    assert first(indices, FavorCheckpoints()) == (None, None, {})


def test_what_is_not_urgent_gets_what_is_idle_in_the_end():
    indices = crowd(idle=3)
    ask(indices, 2, LOW)
    assert first(indices, FavorCheckpoints()) == (None, None, {})
    assert (last(indices, FavorCheckpoints()), last(indices, FavorJobs())) == (2, None)
    ask(indices, 5, HIGH)
    assert (last(indices, FavorCheckpoints()), last(indices, FavorJobs())) == (None, 3)


def test_who_asked_first_is_served_first():
    indices = crowd(idle=1)
    ask(indices, 1, HIGH)
    indices.now += 1
    indices.wish("a service", NodeWish(1, HIGH, "it came later"))
    assert FavorCheckpoints().first(Snapshot(indices)).lend.service == S


def test_nothing_is_lent_before_all_jobs_have_started():
    indices = crowd(idle=3)
    ask(indices, 3, LOW)
    indices.waiting.add(Job(id="head", nodes=2))
    plans = Policy.load("favor-checkpoints").preview(Snapshot(indices), None)
    assert [(len(plan.starts), plan.lend and plan.lend.nodes) for plan in plans] == [(1, None), (0, 1)]


def test_requests_age():
    indices = crowd(idle=1)
    ask(indices, 1, HIGH)
    indices.now += 5
    assert last(indices, FavorJobs()) is None and last(indices, FavorJobs(remember=5.0)) == 1
    assert first(indices, FavorCheckpoints())[0] == 1
    assert first(indices, FavorCheckpoints(remember=4.0)) == (None, None, {})


@pytest.mark.parametrize(
    ("free", "needs", "expected"),
    [
        ((1.0, 0.95, 0.9, 0.2), 3, None),  # two of four would not do
        ((1.0, 0.95, 0.9, 0.2), 2, 2),
        ((1.0, 0.95, 0.9, 0.2), 1, 1),
        ((1.0, 1.0), 1, 1),
        ((1.0, 1.0), 2, None),  # one always stays
        ((1.0,), 1, None),
    ],
)
def test_empty_nodes_come_back_for_who_waits(free, needs, expected):
    indices = crowd(idle=len(free))
    lend(indices, *free)
    indices.waiting.add(Job(id="head", nodes=needs))
    assert first(indices, FavorJobs()) == (None, expected, {})
    assert first(indices, FavorCheckpoints()) == (None, None, {})
    ask(indices, 1, HIGH)
    assert first(indices, FavorJobs()) == (None, None, {}), "not while something urgent is looked at"


def test_several_who_wait_and_who_could_grow():
    indices = crowd(idle=5)
    lend(indices, *[1.0] * 5)
    indices.waiting.add(Job(id="one", nodes=1))
    indices.waiting.add(Job(id="two", nodes=2))
    assert first(indices, FavorJobs()) == (None, 3, {})
    indices.want_back(S, 3)
    assert first(indices, FavorJobs()) == (None, None, {}), "those are on their way"
    for name in ("three", "four"):
        indices.waiting.add(Job(id=name, nodes=1))
    assert first(indices, FavorJobs()) == (None, 1, {}), "and one of the five stays"
    growing = crowd(idle=3, most=6)
    lend(growing, 1.0, 1.0, 1.0)
    assert first(growing, FavorJobs()) == (None, 2, {})
    growing.begin_resize("A", 3)
    assert first(growing, FavorJobs()) == (None, None, {})


def test_who_gave_back_too_little_is_left_alone_for_a_while():
    indices = crowd(idle=3)
    lend(indices, 1.0, 1.0, 1.0)
    indices.waiting.add(Job(id="head", nodes=2))
    indices.want_back(S, 2)
    (node, *_) = indices.borrowers[S].emptiest(1)
    assert indices.take_back(S, [node], 2) == (node,)
    indices.take_back(S, ["nobody's"])
    assert indices.borrowers[S].owed == 0 and indices.idle == [node]
    indices.now += 59
    assert first(indices, FavorJobs()) == (None, None, {})
    indices.now += 1
    assert first(indices, FavorJobs()) == (None, 1, {})


def test_lent_nodes_are_nobody_elses():
    indices = crowd(idle=2)
    lend(indices, 1.0, 1.0)
    assert not indices.idle
    indices.withhold({"8"})
    indices.withhold(set())
    assert not indices.idle
    indices.remove_node("9")
    assert [one.node for one in indices.borrowers[S].lent] == ["8"] and not indices.idle
    indices.withhold({"8"})
    assert indices.take_back(S, ["8"]) == ("8",) and not indices.idle
    assert S not in indices.borrowers


def test_the_story_says_who_decided_it():
    indices = crowd()
    ask(indices, 1, HIGH)
    policy, snapshot = Policy.load("favor-checkpoints"), Snapshot(indices)
    (plan, _) = policy.decide(snapshot, None)
    assert explain(snapshot, plan, policy.rules)["B"].rule == "lending: favor-checkpoints"
    indices.waiting.add(Job(id="head", nodes=2))
    found = explain_loans(snapshot, policy.rules, plan)
    assert found.inputs[S] == {"nodes": 0, "free": (), "owes": 0, "asks": 1}
    assert found.rejected == ("start head on 2 nodes: 0 nodes left",)


def test_another_policy_sees_nodes_that_nobody_has():
    indices = crowd(idle=2)
    lend(indices, 1.0, 0.3)
    ask(indices, 1, LOW)
    indices.waiting.add(Job(id="head", nodes=2, walltime=10.0))
    found = {}
    for lending in ("none", "favor-checkpoints"):
        policy = Policy.load("fcfs").with_(**{"lending.strategy": lending})
        jobs = simulate(snapshot=Snapshot(indices), policy=policy).jobs.set_index("id")
        found[lending] = jobs["start"]["head"]
    assert found["none"] == 10.0 and found["favor-checkpoints"] > 10.0
    assert len(indices.lent) == 2


def test_a_policy_carries_it_through_at_one_instant():
    """First what is urgent, from B, and then the others as ever; a preview says the same."""
    indices = crowd()
    ask(indices, 1, HIGH)
    policy = Policy.load("favor-checkpoints")
    plans = policy.preview(Snapshot(indices), None)
    told = [(plan.resizes and plan.resizes[0].job, plan.lend and plan.lend.nodes) for plan in plans]
    assert told == [("B", None), ((), 1)]
    assert plans[0].for_loans == {"B"}
    assert [len(indices.borrowers), indices.borrowers[S].wish.count] == [1, 1], "nothing was done"


# how it is asked for


def test_what_is_urgent_is_asked_for_at_once_and_once():
    urgent = MoreNodes(True, "full")
    says, known = scale(Scaling(), S, urgent, 0.0)
    assert says == NodeRequest(S, NodeWish(1, True, "full"))
    assert scale(known, S, urgent, AGAIN - 1)[0] is None
    assert scale(known, S, urgent, AGAIN)[0] == says
    assert scale(known.granted(), S, urgent, 1.0)[0] == says
    says, known = scale(known, S, None, 2.0)
    assert says.wish.count == 0 and scale(known, S, None, 3.0)[0] is None


def test_what_is_not_urgent_asks_first_whether_anything_is_idle():
    low = MoreNodes(False, "busy")
    says, known = scale(Scaling(), S, low, 0.0)
    assert says == NodeQuery(S)
    assert scale(known, S, low, 1.0)[0] is None, "there is no answer yet"
    assert scale(known.heard(0), S, low, 1.0)[0] == NodeQuery(S)
    says, after = scale(known.heard(2), S, low, 1.0)
    assert says == NodeRequest(S, NodeWish(1, False, "busy"))
    assert scale(after, S, low, 2.0)[0] is None
    assert scale(after, S, MoreNodes(True, "full"), 2.0)[0].wish.is_urgent, "it has become urgent"
    assert scale(known, S, None, 1.0) == (None, Scaling())
