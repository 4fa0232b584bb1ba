"""What is looked at only when it matters decides the same as looking at everything, always."""

import random
from itertools import chain, islice
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc.model.job import Job
from dask_hpc.model.node import Node
from dask_hpc.model.snapshot import Indices, Snapshot
from dask_hpc.model.speedup import CONSTRAINTS, Amdahl, Linear, PowerLaw, Tabulated, is_legal
from dask_hpc.model.waiting import Hole
from dask_hpc.strategies.malleability import elastic, worth
from dask_hpc.strategies.malleability.elastic import Elastic, ElasticQueue
from dask_hpc.strategies.malleability.grow_shrink import left
from dask_hpc.strategies.malleability.worth import (
    SURELY,
    Growth,
    Room,
    Scales,
    Value,
    are_dearer,
    scaling,
    weight_of,
    work_of,
)
from dask_hpc.strategies.strategy import outlook_after

CURVES = (Linear(), PowerLaw(0.9), PowerLaw(0.5), Amdahl(0.1), None)


def some_job(draw, name, **more):
    kind, constraint = draw.choice(["rigid", "malleable", "malleable", "moldable"]), draw.choice(CONSTRAINTS)
    more |= {"walltime": draw.choice([30.0, 100.0, 1000.0, 5000.0, inf]), "user": draw.choice("ab")}
    nodes = draw.choice([n for n in range(1, 12) if is_legal(constraint, n)])
    if kind == "rigid":
        return Job(id=name, nodes=nodes, **more)
    low, high = draw.randint(1, nodes), draw.randint(nodes, 30)
    sizes = {"min_nodes": low, "max_nodes": high, "constraint": constraint}
    return Job(id=name, nodes=nodes, kind=kind, speedup=draw.choice(CURVES), **sizes, **more)


def some_machine(draw):
    """In the middle of a busy day: some run, some wait, some are changing their size or rest."""
    indices = Indices(Node(str(i)) for i in range(draw.choice([8, 30, 60])))
    indices.waiting.rerank(ElasticQueue())
    for number in range(draw.choice([3, 12, 40])):
        indices.now += draw.choice([0.0, 1.0, 20.0])
        job = some_job(draw, f"r{number}", submitted=indices.now)
        if job.nodes <= len(indices.idle):
            indices.waiting.add(job)
            indices.start(job.id, job.nodes)
    for name in draw.sample(sorted(indices.resizable), len(indices.resizable) // 3):
        job, size = indices.running[name].job, len(indices.running[name].nodes)
        most = min(job.max_nodes, size + len(indices.idle))
        legal = [n for n in range(job.min_nodes, most + 1) if is_legal(job.constraint, n) and n != size]
        if legal:
            indices.begin_resize(name, draw.choice(legal))
            if draw.random() < 0.6:
                indices.finish_resize(name)
    for number in range(draw.choice([0, 1, 5, 30, 200])):
        indices.waiting.add(
            some_job(draw, f"w{number}", submitted=indices.now - draw.choice([0.0, 1.0, 900.0]))
        )
    for name in draw.sample(sorted(indices.running), len(indices.running) // 6):
        indices.resting[name] = 0.0
    measure(indices.mtct, indices.running, draw)
    indices.now += draw.choice([0.0, 10.0, 60.0])
    indices.overhead = draw.choice([0.0, 30.0])
    return indices


def measure(mtct, running, draw):
    """How much some of those that run communicate."""
    for name in draw.sample(sorted(running), len(running) // 2):
        mtct[name] = draw.choice([0.0, 0.1, 2.0])


def some_wish(draw, kinds):
    """Of the queue and of malleability, with the same parameters."""
    wish = {
        "bias": draw.choice([0.0, 0.03, 1.0]),
        "hysteresis": draw.choice([1.0, 1.2, 3.0]),
        "cost": draw.choice([0.0, 0.0, 20.0]),
        "dwell": draw.choice([0.0, 15.0]),
        "guard": draw.choice([0.0, 40.0]),
        "patience": draw.choice([inf, 14_400.0, 500.0, 0.0]),
        "depth": draw.choice([1, 2, 5, 64, 250]),
        "fairness": draw.choice([0.0, 0.0, 50.0]),
    }
    return [kind(**wish) for kind in kinds]


class Forgetful(Scales):
    """By no law: whoever is weighed is weighed now."""

    law = None


class Everybody(elastic.Sharing):
    """All running jobs are weighed at once, and all waiting ones considered one by one."""

    def __init__(self, wish, snapshot, takers):
        super().__init__(wish, snapshot, takers)
        self.growth = Growth(snapshot.idle, takers, snapshot.mtct, Forgetful(*self.scales))

    def serve(self, starts_first=False):
        super().serve()

    def _room(self, is_needed):
        givers = self._wish.ready(self._snapshot, self._snapshot.givers)
        return Room(givers, self._snapshot.mtct, Forgetful(*self.scales))

    def _is_in_vain(self):
        return False

    def _is_last_hope(self, job, weight):
        return False

    def _turn(self, late, hole):
        wish, turn = self._wish, list(self._snapshot.waiting)
        if wish.fairness:
            turn.sort(key=lambda job: self.scales.effective(job, wish.work(job), 0.0))
        if late is not None:
            turn = chain([late], (job for job in turn if job is not late))
        turn = list(islice(turn, wish.depth))
        return turn, turn[-1]

    def _serve_the_rest(self, last):
        hole, waiting = Hole(self.growth.idle), self._snapshot.waiting
        for job in waiting.fitting(waiting.key(last.id), hole):
            if job.id not in self.starts and self.precedence.allows(job, job.nodes):
                self.starts[job.id] = job.nodes
                hole.idle -= job.nodes
        self.growth.idle = hole.idle


def decided(snapshot, queue, malleability):
    """The sizes on which jobs start, and the new sizes of those that run."""
    starts, _ = queue.decide(snapshot, None)
    resizes, _ = malleability.decide(snapshot, outlook_after(snapshot, starts), None)
    return {one.job: one.nodes for one in starts}, {one.job: one.nodes for one in resizes}


def by_looking_at_everything(snapshot, queue, malleability):
    sharing = queue.share(snapshot)
    starts = {name: sharing.growth.targets.get(name, least) for name, least in sharing.starts.items()}
    if starts:
        return starts, {}
    sharing = malleability.share(snapshot)
    grown = {name: size for name, size in sharing.growth.targets.items() if name in snapshot.running}
    return {}, sharing.gives or grown


@settings(max_examples=300, deadline=None)
@given(st.integers())
def test_whole_decisions(seed):
    draw = random.Random(seed)
    snapshot = Snapshot(some_machine(draw))
    both, indices = some_wish(draw, (ElasticQueue, Elastic)), snapshot.thaw()
    for moment in (-10.0, 0.0, 200.0):  # what was found out before, or by who looks ahead, does no harm
        indices.now = snapshot.now + moment
        decided(
            Snapshot(indices), *(both if draw.random() < 0.5 else some_wish(draw, (ElasticQueue, Elastic)))
        )
    measure(snapshot.mtct, snapshot.running, draw)
    ours, lazy = decided(snapshot, *both), elastic.Sharing
    elastic.Sharing = Everybody
    try:
        assert by_looking_at_everything(snapshot, *both) == ours
    finally:
        elastic.Sharing = lazy


def of_running(indices, draw):
    """Some scales, and by them what nodes are worth to those that run; some have been weighed before, here or
    by a body whose clock is ahead, with these scales or others."""
    bias, aging = draw.choice([0.0, 0.03, 0.5]), draw.choice([0.0, 0.05])
    hold, fairness = draw.choice([0.0, 0.0, 30.0]), draw.choice([0.0, 0.0, 50.0])
    scales = Scales(indices.now, bias, aging, hold, draw.random() < 0.5, fairness, {"a": 5, "b": 1})
    others = [scales, scales._replace(bias=1.0), scales._replace(hold=0.0, fairness=0.0)]
    for moment in (indices.now - 10.0, indices.now, indices.now + draw.choice([1.0, 60.0, 1000.0])):
        for other in others:
            for scopes in (indices.resizable.givers, indices.resizable.takers):
                some = [one for one in scopes.values() if draw.random() < 0.3]
                if any(one.running.expected_end <= moment for one in some):
                    continue
                then = other._replace(now=moment)
                if scopes is indices.resizable.givers:
                    are_dearer(some, indices.mtct, then, draw.choice([0.0, 0.5, inf]))
                else:
                    Growth(draw.choice([1, 5, 100]), some, indices.mtct, then).spread()

    values = {}
    for running in indices.running.values():
        job, size = running.job, len(running.nodes)
        curve = scaling(job, size, indices.mtct.get(job.id))
        work = left(running, indices.now) * curve.factor(size)
        younger = work - aging * (indices.now - job.submitted)
        younger += fairness * scales.held[job.user] / (job.priority if job.priority > 0 else 1.0)
        weight = 1.0 if younger == inf and not scales.is_full else weight_of(younger, bias)
        values[job.id] = Value(curve, weight, hold / max(work, 1.0))
    return values, scales


def legal_beside(job, size):
    """The next legal sizes below and above, or None."""
    legal = [n for n in range(job.min_nodes, job.max_nodes + 1) if is_legal(job.constraint, n)]
    return max((n for n in legal if n < size), default=None), min(
        (n for n in legal if n > size), default=None
    )


@settings(max_examples=150, deadline=None)
@given(st.integers())
def test_room_against_looking_at_all(seed):
    draw = random.Random(seed)
    indices = some_machine(draw)
    values, scales = of_running(indices, draw)
    room = Room(list(indices.resizable.givers.values()), indices.mtct, scales)
    sizes = {r.job.id: len(r.nodes) for r in (one.running for one in indices.resizable.givers.values())}
    for _ in range(4):
        nodes, worth = draw.randint(1, 12), draw.choice([0.2, 0.6, 1.0, inf])
        then, gone, given_now = dict(sizes), nodes, {}
        while gone > 0:
            steps = []
            for name, size in then.items():
                less = legal_beside(indices.running[name].job, size)[0]
                if less is not None:
                    steps.append((values[name].between(less, size), -indices.running[name].order, name, less))
            if not steps or min(steps)[0] >= worth:
                given_now = {}
                break
            _, _, name, less = min(steps)
            gone -= then[name] - less
            then[name] = given_now[name] = less
        assert room.give(nodes, worth) == given_now
        sizes |= given_now


@settings(max_examples=150, deadline=None)
@given(st.integers())
def test_growth_against_looking_at_all(seed):
    draw = random.Random(seed)
    indices = some_machine(draw)
    values, scales = of_running(indices, draw)
    idle = draw.choice([0, 3, 25])
    growth = Growth(idle, list(indices.resizable.takers.values()), indices.mtct, scales)
    sizes = {
        r.job.id: (r.order, len(r.nodes), r.job)
        for r in (one.running for one in indices.resizable.takers.values())
    }
    targets = {}
    for number, above in enumerate([draw.choice([0.3, 0.9]), draw.choice([0.1, 0.6]), -inf]):
        growth.spread(above)
        out = set()
        while idle:
            steps = []
            for name, (order, size, job) in sizes.items():
                more = legal_beside(job, size)[1]
                if more is not None and name not in out and (worth := values[name].between(size, more)) > 0:
                    steps.append((-worth, order, name, more))
            if not steps or -min(steps)[0] <= above:
                break
            _, _, name, more = min(steps)
            order, size, job = sizes[name]
            if more - size > idle:
                out.add(name)
                continue
            idle -= more - size
            sizes[name] = (order, more, job)
            targets[name] = more
        assert (growth.targets, growth.idle) == (targets, idle)
        job = some_job(draw, f"new{number}")
        least = job.min_nodes if is_legal(job.constraint, job.min_nodes) else job.nodes
        values[job.id] = Value(job.speedup or Linear(), draw.random())
        growth.join(job, least, values[job.id])
        sizes[job.id] = (10**9 + number, least, job)


def test_weight_and_work_by_hand():
    assert [weight_of(work, 0.5) for work in (0.25, 1.0, 4.0, inf)] == [1.0, 1.0, 0.5, 0.0]
    assert weight_of(4.0, 0.0) == weight_of(inf, 0.0) == 1.0
    assert work_of(Job(id="a", nodes=4, walltime=10.0)) == 40.0
    assert (
        work_of(Job(id="a", nodes=4, kind="moldable", min_nodes=1, walltime=10.0, speedup=Amdahl(1.0)))
        == 10.0
    )
    assert Value(Linear(), 1.0).speed(0) == 0.0 and Value(Linear(), 1.0, drag=0.5).speed(2) == 1.0
    falls = [
        Value(one, 1.0).falls for one in (*CURVES[:4], PowerLaw(1.0), PowerLaw(1.2), Tabulated(((1, 1.0),)))
    ]
    assert falls == [True] * 5 + [False] * 2


def test_nodes_of_a_user_count_over_the_priority_of_a_job():
    scales = Scales(0.0, 1.0, 0.0, 0.0, True, fairness=10.0, held={"a": 4})
    for priority, counts in ((0.0, 40.0), (0.5, 80.0), (2.0, 20.0), (-1.0, 40.0)):
        job = Job(id="a", nodes=1, user="a", priority=priority)
        assert scales.effective(job, 100.0, 0.0) == 100.0 + counts


def test_early_arrivals_are_served_before_much_later_ones():
    queue = ElasticQueue(aging=0.5)
    early, late = (Job(id="a", nodes=1, walltime=100.0, submitted=time) for time in (0.0, 10.0))
    assert queue.rank(late) - queue.rank(early) == 5.0


def several_running(count, walltime, speedup=CURVES[1]):
    """Each on two nodes, the later with more to do."""
    indices = Indices(Node(str(i)) for i in range(3 * count))
    for number in range(count):
        more = {"walltime": walltime * (1 + number), "speedup": speedup, "min_nodes": 1, "max_nodes": 9}
        indices.waiting.add(Job(id=str(number), nodes=2, kind="malleable", **more))
        indices.start(str(number), 2)
    return indices


@pytest.fixture
def weighed(monkeypatch):
    """Who is weighed, one after the other."""
    names, weigh = [], worth._FirstStep.weigh

    def watch(step, running, *rest):
        names.append(running.job.id)
        return weigh(step, running, *rest)

    monkeypatch.setattr(worth._FirstStep, "weigh", watch)
    return names


def test_who_has_been_weighed_is_not_weighed_again_until_it_matters(weighed):
    indices = several_running(40, 1e4)
    takers, givers = indices.resizable.takers.values(), indices.resizable.givers.values()
    for moment, most in ((0.0, 40), (10.0, 2), (500.0, 2)):
        scales = Scales(moment, 0.5, 0.05, 0.0, True)
        weighed.clear()
        growth = Growth(1, takers, {}, scales)
        growth.spread()
        assert growth.targets == {"0": 3} and len(weighed) <= most
        weighed.clear()
        assert Room(givers, {}, scales).give(1, inf) == {"39": 1} and len(weighed) <= most
        assert len(weighed) > 0


def test_a_worth_that_is_reached_exactly_is_reached():
    indices = several_running(3, 100.0)
    givers, scales = indices.resizable.givers.values(), Scales(0.0, 0.5, 0.0, 0.0, True)
    curve = CURVES[1]
    values = [Value(curve, weight_of(100.0 * (1 + n) * curve.factor(2), 0.5)).between(1, 2) for n in range(3)]
    least = min(values)
    assert are_dearer(givers, {}, scales, least) and not are_dearer(givers, {}, scales, least * SURELY)
    for room in (Room(givers, {}, scales), Room(givers, {}, scales)):
        assert room.give(1, least) == {} and room.give(1, least * SURELY) == {"2": 1}


THREE = [
    (Linear(),) * 3,
    (Amdahl(0.01), PowerLaw(0.7), PowerLaw(0.72)),
    (Amdahl(0.2), Amdahl(0.01), Linear()),
]


@pytest.mark.parametrize("curves", THREE)
@pytest.mark.parametrize("idle", [1, 7, 64, 300, 1000])
def test_many_nodes_at_once_are_given_as_one_by_one(curves, idle):
    most, weights = (200, 500, 150), (1.0, 0.9, 0.95)
    values = [Value(curve, weight) for curve, weight in zip(curves, weights, strict=True)]
    growth, by_hand = Growth(idle, (), {}, Scales(0.0, 0.03, 0.0, 0.0, True)), [1, 1, 1]
    for number, value in enumerate(values):
        job = Job(id=str(number), nodes=1, kind="malleable", max_nodes=most[number], walltime=10.0)
        growth.join(job, 1, value)
    growth.spread()
    for _ in range(idle):
        steps = [(-values[n].between(s, s + 1), n) for n, s in enumerate(by_hand) if s < most[n]]
        if steps:
            by_hand[min(steps)[1]] += 1
    assert growth.targets == {str(number): size for number, size in enumerate(by_hand) if size > 1}
    assert growth.idle == idle + 3 - sum(by_hand)


def test_what_is_remembered_holds_until_it_is_said_to():
    """At least what it was worth then, and at most what it will be worth in the end."""
    indices = several_running(5, 100.0)
    scales = Scales(10.0, 0.5, 0.05, 0.0, True)
    Growth(100, indices.resizable.takers.values(), {}, scales).spread()
    assert are_dearer(indices.resizable.givers.values(), {}, scales, 0.0)
    for scope in indices.resizable.takers.values():
        step, running = scope.known, scope.running
        most, until = step.bound, step.holds
        assert step.law == scales.law and 10.0 < until < running.expected_end
        for time in (10.0, (10.0 + until) / 2, until):
            assert 0.0 < step.worth(running, scales._replace(now=time), time) <= most
    for scope in indices.resizable.givers.values():
        assert scope.known.law == scales.law and scope.known.holds == 10.0
        for time in (10.0, 50.0, 200.0):
            assert (
                0.0 < scope.known.bound <= scope.known.worth(scope.running, scales._replace(now=time), time)
            )


def test_what_is_remembered_is_not_believed_for_longer_nor_by_another_law():
    """Who is about to end, so that a node is worth most to him, was weighed when he had much to do; or by a
    law in which it hardly counts."""
    early, late = Scales(0.0, 0.5, 0.0, 0.0, True), Scales(99.0, 0.5, 0.0, 0.0, True)
    for before in (early, late._replace(bias=5.0)):
        indices = several_running(2, 100.0)
        indices.expect_end("1", 150.0)
        first, second = indices.resizable.takers.values()
        Growth(100, [first], {}, before).spread()
        growth = Growth(1, [first, second], {}, late)
        growth.spread()
        assert growth.targets == {"0": 3}
    for before in (late, early._replace(bias=0.0)):
        indices = several_running(2, 100.0)
        indices.expect_end("1", 150.0)
        first, second = indices.resizable.givers.values()
        assert are_dearer([second], {}, before, 0.0)
        assert Room([first, second], {}, early).give(1, inf) == {"1": 1}


def test_a_new_measurement_counts_at_once():
    """Who only communicates does not profit from nodes."""
    indices = several_running(2, 100.0, speedup=None)
    givers, takers, scales = indices.resizable.givers, indices.resizable.takers, Scales(0, 0, 0, 0, True)
    for measured in ({"0": 0.0, "1": 1e9}, {"0": 1e9, "1": 0.0}, {"0": 0.0, "1": 1e9}):
        idle, busy = sorted(measured, key=measured.get, reverse=True)
        for first in (idle, busy):
            assert are_dearer([givers[first]], measured, scales, 0.5) == (first == busy)
        assert Room(givers.values(), measured, scales).give(1, 0.5) == {idle: 1}
        growth = Growth(1, takers.values(), measured, scales)
        growth.spread()
        assert growth.targets == {busy: 3}


@settings(max_examples=200, deadline=None)
@given(st.integers())
def test_who_may_be_resized(seed):
    draw = random.Random(seed)
    indices = some_machine(draw)
    if draw.random() < 0.7:
        indices.resting.clear()
    indices.now = draw.choice([indices.now, *(one.expected_end for one in indices.running.values())])
    if indices.now == inf:
        return
    snapshot = Snapshot(indices)
    wish = draw.choice([Elastic(), Elastic(guard=20.0), *some_wish(draw, (Elastic,))])
    all_rest = not len(snapshot.waiting) and len(snapshot.resting) >= len(snapshot.running)
    for scopes in (snapshot.givers, snapshot.takers):
        may = [
            one
            for one in scopes
            if one.running.resized_at != snapshot.now
            and one.running.resized_at + wish.dwell <= snapshot.now
            and left(one.running, snapshot.now) > max(wish.guard, wish.cost)
            and (all_rest or one.running.job.id not in snapshot.resting)
        ]
        assert [*wish.ready(snapshot, scopes)] == may
