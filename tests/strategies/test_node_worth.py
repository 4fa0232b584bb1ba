"""What is looked at only when it matters decides the same as looking at everything, always."""

import random
from itertools import chain, islice
from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc.model.job import Job
from dask_hpc.model.node import Node
from dask_hpc.model.snapshot import Indices, Snapshot
from dask_hpc.model.speedup import CONSTRAINTS, Amdahl, Linear, PowerLaw, is_legal
from dask_hpc.model.waiting import Hole
from dask_hpc.strategies.malleability import elastic
from dask_hpc.strategies.malleability.elastic import Elastic, ElasticQueue
from dask_hpc.strategies.malleability.grow_shrink import left
from dask_hpc.strategies.malleability.worth import Growth, Room, Scales, Value, are_dearer, scaling, weight_of
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

    def serve(self, only_starts=False):
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
