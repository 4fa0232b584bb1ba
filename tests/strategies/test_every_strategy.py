"""What holds for every strategy on every machine."""

import pickle
from math import inf
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc import Policy
from dask_hpc.model.job import KINDS, Job
from dask_hpc.model.node import Node, NodeWish
from dask_hpc.model.power import SOURCES, Corridor, Lever, PowerRange, PowerView
from dask_hpc.model.snapshot import Indices, Snapshot
from dask_hpc.model.speedup import (
    CONSTRAINTS,
    Amdahl,
    IoDemand,
    PowerLaw,
    is_legal,
    largest_legal,
    smallest_legal,
)
from dask_hpc.policy import ready_made
from dask_hpc.strategies import strategies

SEED_POLICIES = sorted(ready_made())
MALLEABILITY = sorted(strategies("malleability"))
LEVERS = sorted(get_args(Lever))
BOUNDS = [(0.0, inf), (0.0, 700.0), (500.0, inf), (600.0, 900.0), (1000.0, 1010.0), (0.0, 50.0)]
#: parameters that are not the default and change what is done
VARIANTS = [
    ("egs", {"shares": "capped"}),
    ("fpsma", {"max_steps": 1, "barrier": False, "guard": 0.0}),
    ("performance-aware", {"lower": 0.3, "upper": 0.5, "barrier": False}),
    ("malleable-easy", {"victims": "all", "exact": True, "sharing_factor": 0.1}),
    ("io-aware", {"shrink": "better"}),
    ("io-aware", {"shrink": "queued", "denominator": "cluster"}),
    ("power-corridor", {"mode": "reactive", "sharing": "equal", "dwell": 0.0}),
    ("power-corridor", {"redistribute": True, "favour_elastic": True, "margin": 20.0, "hysteresis": 50.0}),
    ("restart", {"pause": 0.0, "cost": 0.0, "commit": "last", "barrier": False}),
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
        commits=draw(st.booleans()),
        io_intensity=draw(st.sampled_from([None, IoDemand(compute=3, data=7, link=1, file_system=4)])),
        **more,
    )


@st.composite
def machines(draw, order):
    indices = Indices((Node(str(i)) for i in range(draw(st.integers(1, 24)))), order)
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
    for service in draw(st.sampled_from([(), (), ("checkpoint",), ("checkpoint", "other")])):
        nodes = indices.idle[: draw(st.integers(0, 3))]
        indices.wish(service, NodeWish(draw(st.integers(1, 4)), draw(st.booleans()), "it is full"))
        indices.lend(service, nodes, draw(st.integers(0, 2)))
        free = st.sampled_from([0.0, 0.5, 0.91, 1.0])
        indices.weigh(service, {name: draw(free) for name in nodes})
        if nodes and draw(st.booleans()):
            indices.want_back(service, 1)
    indices.failed = tuple(j.id for j in indices.waiting if indices.waiting.ahead_of(j.id) == 2)
    return indices


@st.composite
def powers(draw, indices):
    """What may be known of the power of a machine, plausible or not."""
    watts = st.sampled_from([0.0, 10.0, 50.0, 100.0, 250.0])
    ranges = st.tuples(watts, watts).map(lambda pair: PowerRange(*sorted(pair)))
    free = len(indices.idle)
    indices.power = PowerView(
        watts=draw(st.sampled_from([0.0, 400.0, 1000.0, 5000.0])),
        source=draw(st.sampled_from(SOURCES)),
        uncertainty=draw(st.sampled_from([0.0, 30.0])),
        idle=draw(watts),
        active=draw(ranges),
        jobs={name: draw(ranges) for name in indices.running if draw(st.booleans())},
        outside=draw(ranges),
        outside_nodes=draw(st.integers(0, free)),
        outside_wanted=draw(st.integers(0, 2 * free)),
        held=draw(st.integers(0, free)),
        threads=draw(st.sampled_from([1.0, 0.5])),
        cap=draw(st.sampled_from([None, 80.0])),
        levers=draw(st.frozensets(st.sampled_from(LEVERS))),
        releasable=draw(st.integers(0, free)),
        released=draw(st.integers(0, 3)),
        forecast=draw(st.none() | ranges.map(lambda one: one.times(10))),
        doubt=draw(st.sampled_from(["", "a sensor is silent"])),
    )
    lower, upper = draw(st.sampled_from(BOUNDS))
    later = draw(st.sampled_from(BOUNDS))
    return Corridor(((0.0, lower, upper), (60.0, *later)))


def check(indices, policy, corridor=None):
    snapshot = Snapshot(indices, corridor)
    frozen = snapshot.freeze()
    plan, memory = policy.decide(snapshot, None)
    assert policy.decide(snapshot, None)[0] == plan
    assert policy.decide(pickle.loads(pickle.dumps(frozen)), None)[0] == plan
    assert policy.decide(snapshot, memory)[0] == policy.decide(snapshot, memory)[0]
    pickle.dumps(memory)
    if plan is None:
        return
    loans(indices, plan)
    names = [d.job for part in (plan.starts, plan.resizes, plan.interrupts) for d in part]
    assert len(names) == len(set(names))
    assert all(d.reason for part in (plan.starts, plan.resizes, plan.interrupts) for d in part)
    taken = 0
    for start in plan.starts:
        one = next(j for j in snapshot.waiting if j.id == start.job)
        assert one.min_nodes <= start.nodes <= one.max_nodes and is_legal(one.constraint, start.nodes)
        taken += start.nodes
    may = {running.job.id for running in (*snapshot.resizable, *snapshot.restartable)}
    for resize in plan.resizes:
        running = snapshot.running[resize.job]
        one, size = running.job, len(running.nodes)
        assert resize.job in may and resize.nodes != size
        assert one.min_nodes <= resize.nodes <= one.max_nodes and is_legal(one.constraint, resize.nodes)
        if resize.nodes < size and resize.job not in {*snapshot.requests, *plan.for_power, *plan.for_loans}:
            assert getattr(policy.malleability, "priority", "waiting") == "waiting"
        taken += max(0, resize.nodes - size)
    assert taken <= snapshot.idle
    for interrupt in plan.interrupts:
        assert interrupt.job in snapshot.running
    assert plan.hold is None or (plan.hold.reason and 0 <= plan.hold.nodes <= snapshot.size)
    assert plan.release is None or (plan.release.reason and plan.release.nodes >= 0)
    assert plan.cap is None or (plan.cap.reason and 0 < plan.cap.threads <= 1)
    again(indices, policy, plan, memory, corridor)


def loans(indices, plan):
    """Nodes for services are idle ones, no more than were asked for, and of what one has one stays."""
    assert plan.lend is None or (plan.lend.reason and not plan.starts and not plan.resizes)
    if plan.lend is not None:
        wish = indices.borrowers[plan.lend.service].wish
        assert 0 < plan.lend.nodes <= min(wish.count, len(indices.idle))
    if plan.take_back is not None:
        known = indices.borrowers[plan.take_back.service]
        assert plan.take_back.reason and 0 < plan.take_back.nodes < len(known.lent) - known.owed


def again(indices, policy, plan, memory, corridor):
    """Carried out at once, and asked until nothing more is to be done: that comes soon."""
    for number in range(60):
        names = [d.job for part in (plan.starts, plan.resizes, plan.interrupts) for d in part]
        assert len(names) == len(set(names))
        for victim, interrupt in enumerate(plan.interrupts):  # each has an arrival of its own
            indices.requeue(interrupt.job, -1 - 100 * number - victim, ahead=1)
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
        indices.pull_levers(plan)
        indices.settle_loans(plan)
        plan, memory = policy.decide(Snapshot(indices, corridor), memory)
        if plan is None:
            return
    raise AssertionError(f"{policy.name} does not settle: {plan}")


@pytest.mark.parametrize("name", SEED_POLICIES)
@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_every_policy(name, data):
    policy = Policy.load(name)
    indices = data.draw(machines(policy.queue))
    check(indices, policy, data.draw(powers(indices)) if policy.power is not None else None)


@pytest.mark.parametrize("queue", sorted(strategies("queue")))
@pytest.mark.parametrize("name", MALLEABILITY)
@given(data=st.data())
@settings(max_examples=5, deadline=None)
def test_every_pair(queue, name, data):
    policy = Policy("pair", strategies("queue")[queue](), strategies("malleability")[name]())
    check(data.draw(machines(policy.queue)), policy)


@pytest.mark.parametrize(("name", "parameters"), VARIANTS)
@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_every_variant(name, parameters, data):
    queue = strategies("queue").get(name, strategies("queue")["fcfs"])()
    if name in strategies("power"):
        others = data.draw(st.sampled_from(MALLEABILITY))
        power = strategies("power")[name](**parameters)
        policy = Policy("variant", queue, strategies("malleability")[others](), power=power)
    else:
        policy = Policy("variant", queue, strategies("malleability")[name](**parameters))
    indices = data.draw(machines(policy.queue))
    check(indices, policy, data.draw(powers(indices)) if policy.power is not None else None)


@pytest.mark.parametrize("name", SEED_POLICIES)
def test_every_policy_says_what_it_is_for(name):
    policy = Policy.load(name)
    assert policy.summary and policy.source
    assert ready_made()[name].read_text().startswith("# ")
    assert Policy.parse(policy.to_yaml()).to_dict() == policy.to_dict()


def test_every_strategy_has_a_policy():
    concerns = ("queue", "malleability", "failure", "power", "placement")
    policies = [Policy.load(name) for name in SEED_POLICIES]
    chosen = [(concern, getattr(policy, concern)) for policy in policies for concern in concerns]
    used = {(concern, strategy.name) for concern, strategy in chosen if strategy is not None}
    assert {(concern, name) for concern in concerns for name in strategies(concern)} <= used
