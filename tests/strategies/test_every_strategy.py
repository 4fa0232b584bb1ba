"""What holds for every strategy on every machine."""

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc import Policy
from dask_hpc.model.constraint import CONSTRAINTS, is_legal, largest_legal, smallest_legal
from dask_hpc.model.indices import Indices
from dask_hpc.model.io_demand import IoDemand
from dask_hpc.model.job import KINDS, Job
from dask_hpc.model.node import Node
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.model.speedup import Amdahl, PowerLaw
from dask_hpc.policy import ready_made
from dask_hpc.strategies import strategies

SEED_POLICIES = sorted(ready_made())
MALLEABILITY = sorted(strategies("malleability"))
#: parameters that are not the default and change what is done
VARIANTS = [
    ("egs", {"shares": "capped"}),
    ("fpsma", {"max_steps": 1, "barrier": False, "guard": 0.0}),
    ("performance-aware", {"lower": 0.3, "upper": 0.5, "barrier": False}),
    ("malleable-easy", {"victims": "all", "exact": True, "sharing_factor": 0.1}),
    ("io-aware", {"shrink": "better"}),
    ("io-aware", {"shrink": "queued", "denominator": "cluster"}),
    ("elastic", {"bias": 1.0, "cost": 3.0, "fairness": 2.0, "patience": 10.0}),
]


@st.composite
def job(draw, name):
    kind = draw(st.sampled_from(KINDS))
    constraint = draw(st.sampled_from(CONSTRAINTS))
    low, high = sorted((draw(st.integers(1, 12)), draw(st.integers(1, 12))))
    nodes = smallest_legal(constraint, low, 64)
    more = {}
    if kind != "rigid":
        most = largest_legal(constraint, nodes, max(high, nodes))
        least = smallest_legal(constraint, draw(st.integers(1, nodes)), nodes)
        more = {"min_nodes": least, "max_nodes": most}
    return Job(
        id=name,
        nodes=nodes,
        kind=kind,
        constraint=constraint,
        walltime=draw(st.sampled_from([5.0, 60.0, 61.0, 200.0, 1000.0, float("inf")])),
        submitted=draw(st.sampled_from([0.0, 3.0, 9.0])),
        priority=draw(st.sampled_from([0.0, 1.0, -2.0])),
        user=draw(st.sampled_from(["", "u", "v"])),
        speedup=draw(st.sampled_from([None, PowerLaw(1.0), PowerLaw(0.4), Amdahl(0.3)])),
        io_intensity=draw(st.sampled_from([None, IoDemand(compute=3, data=7, link=1, file_system=4)])),
        **more,
    )


@st.composite
def machines(draw, rank):
    indices = Indices((Node(str(i)) for i in range(draw(st.integers(1, 24)))), rank)
    for number in range(draw(st.integers(0, 10))):
        one = draw(job(f"j{number}"))
        indices.waiting.add(one, ahead=draw(st.sampled_from([0, 0, 0, 1, 2])))
        if draw(st.booleans()) and one.nodes <= len(indices.idle):
            indices.start(one.id, one.nodes)
            if draw(st.booleans()):
                indices.mtct[one.id] = draw(st.sampled_from([0.0, 0.1, 0.4, 2.0]))
    indices.now = draw(st.sampled_from([9.0, 10.0, 50.0]))
    for running in list(indices.resizable.values()):
        one = running.job
        target = draw(st.integers(one.min_nodes, one.max_nodes))
        size = len(running.nodes)
        legal = is_legal(one.constraint, target) and target != size and target - size <= len(indices.idle)
        if legal and draw(st.booleans()):
            indices.begin_resize(one.id, target, stall=2.0)
        elif one.kind == "evolving" and draw(st.booleans()):
            indices.requests[one.id] = target
    indices.failed = tuple(j.id for j in indices.waiting if indices.waiting.ahead_of(j.id) == 2)
    return indices


def check(indices, policy):
    snapshot = Snapshot(indices)
    frozen = snapshot.freeze()
    plan, memory = policy.decide(snapshot, None)
    assert policy.decide(snapshot, None)[0] == plan
    assert policy.decide(pickle.loads(pickle.dumps(frozen)), None)[0] == plan
    assert policy.decide(snapshot, memory)[0] == policy.decide(snapshot, memory)[0]
    pickle.dumps(memory)
    if plan is None:
        return
    names = [d.job for part in (plan.starts, plan.resizes, plan.interrupts) for d in part]
    assert len(names) == len(set(names))
    assert all(d.reason for part in (plan.starts, plan.resizes, plan.interrupts) for d in part)
    taken = 0
    for start in plan.starts:
        one = next(j for j in snapshot.waiting if j.id == start.job)
        assert one.min_nodes <= start.nodes <= one.max_nodes and is_legal(one.constraint, start.nodes)
        taken += start.nodes
    may = {running.job.id for running in snapshot.resizable}
    for resize in plan.resizes:
        running = snapshot.running[resize.job]
        one, size = running.job, len(running.nodes)
        assert resize.job in may and resize.nodes != size
        assert one.min_nodes <= resize.nodes <= one.max_nodes and is_legal(one.constraint, resize.nodes)
        if resize.nodes < size and resize.job not in snapshot.requests:
            assert getattr(policy.malleability, "priority", "waiting") == "waiting"
        taken += max(0, resize.nodes - size)
    assert taken <= snapshot.idle
    for interrupt in plan.interrupts:
        assert interrupt.job in snapshot.running
    again(indices, policy, plan, memory)


def again(indices, policy, plan, memory):
    """Carried out at once, and asked until nothing more is to be done: that comes soon."""
    for _ in range(60):
        for interrupt in plan.interrupts:
            indices.requeue(interrupt.job, 0, ahead=1)
        for resize in plan.resizes:
            if resize.nodes < len(indices.running[resize.job].nodes):
                indices.begin_resize(resize.job, resize.nodes)
                indices.finish_resize(resize.job)
        for start in plan.starts:
            indices.start(start.job, start.nodes)
        for resize in plan.resizes:
            if resize.nodes > len(indices.running[resize.job].nodes):
                indices.begin_resize(resize.job, resize.nodes)
                indices.finish_resize(resize.job)
        plan, memory = policy.decide(Snapshot(indices), memory)
        if plan is None:
            return
    raise AssertionError(f"{policy.name} does not settle: {plan}")


@pytest.mark.parametrize("name", SEED_POLICIES)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_every_policy(name, data):
    policy = Policy.load(name)
    check(data.draw(machines(policy.queue.rank)), policy)


@pytest.mark.parametrize("queue", sorted(strategies("queue")))
@pytest.mark.parametrize("name", MALLEABILITY)
@given(data=st.data())
@settings(max_examples=8, deadline=None)
def test_every_pair(queue, name, data):
    policy = Policy("pair", strategies("queue")[queue](), strategies("malleability")[name]())
    check(data.draw(machines(policy.queue.rank)), policy)


@pytest.mark.parametrize(("name", "parameters"), VARIANTS)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_every_variant(name, parameters, data):
    queue = strategies("queue").get(name, strategies("queue")["fcfs"])()
    policy = Policy("variant", queue, strategies("malleability")[name](**parameters))
    check(data.draw(machines(policy.queue.rank)), policy)


@pytest.mark.parametrize("name", SEED_POLICIES)
def test_every_policy_says_what_it_is_for(name):
    policy = Policy.load(name)
    assert policy.summary and policy.source
    assert ready_made()[name].read_text().startswith("# ")
    assert Policy.parse(policy.to_yaml()).to_dict() == policy.to_dict()


def test_every_strategy_has_a_policy():
    concerns = ("queue", "malleability", "failure", "power")
    policies = [Policy.load(name) for name in SEED_POLICIES]
    chosen = [(concern, getattr(policy, concern)) for policy in policies for concern in concerns]
    used = {(concern, strategy.name) for concern, strategy in chosen if strategy is not None}
    assert {(concern, name) for concern in concerns for name in strategies(concern)} <= used
