"""Who could give nodes and who could use more: kept event by event, the same as by asking everybody."""

import pickle
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc.model.job import Job
from dask_hpc.model.node import Node
from dask_hpc.model.snapshot import Indices, Snapshot
from dask_hpc.model.speedup import CONSTRAINTS, is_legal


def by_asking_everybody(indices):
    """Givers, takers and those that are changing."""
    givers, takers = {}, {}
    for job_id, running in indices.resizable.items():
        job, size = running.job, len(running.nodes)
        legal = [n for n in range(job.min_nodes, job.max_nodes + 1) if is_legal(job.constraint, n)]
        smaller, larger = [n for n in legal if n < size], [n for n in legal if n > size]
        if job.kind == "malleable" and smaller:
            givers[job_id] = (running, size - smaller[0])
        if job.kind == "malleable" and larger:
            takers[job_id] = (running, larger[0])
    return givers, takers, {name: r for name, r in indices.running.items() if r.target is not None}


def as_kept(indices):
    both = indices.resizable.givers, indices.resizable.takers
    found = [{name: (one.running, one.nodes) for name, one in scopes.items()} for scopes in both]
    return *found, dict(indices.changing)


def check_same(indices):
    kept = as_kept(indices)
    assert kept == by_asking_everybody(indices)
    assert set(indices.resizable) <= set(indices.running)
    snapshot = Snapshot(indices)
    assert snapshot.is_resizing == bool(kept[2])
    assert sorted(r.order for r in snapshot.changing) == sorted(r.order for r in kept[2].values())
    assert [(one.running, one.nodes) for one in snapshot.givers] == list(kept[0].values())
    assert [(one.running, one.nodes) for one in snapshot.takers] == list(kept[1].values())


def some_job(draw, name):
    kind, constraint = draw.choice(["rigid", "malleable", "malleable", "evolving"]), draw.choice(CONSTRAINTS)
    legal = [n for n in range(1, 20) if is_legal(constraint, n)]
    if kind == "rigid":
        return Job(id=name, nodes=draw.randint(1, 5))
    nodes = draw.choice(legal)
    low, high = draw.randint(1, nodes), draw.randint(nodes, 25)
    return Job(id=name, nodes=nodes, kind=kind, min_nodes=low, max_nodes=high, constraint=constraint)


@settings(max_examples=80, deadline=None)
@given(st.integers(), st.integers(5, 60))
def test_random_days(seed, events):
    draw = random.Random(seed)
    indices = Indices(Node(str(i)) for i in range(40))
    for number in range(events):
        event = draw.choice(["start", "start", "begin", "finish", "end", "fail", "clean", "back", "expect"])
        resizable, changing, running = list(indices.resizable), list(indices.changing), list(indices.running)
        if event == "start":
            job = some_job(draw, str(number))
            if job.nodes <= len(indices.idle):
                indices.waiting.add(job)
                indices.start(job.id, job.nodes)
        elif event == "begin" and resizable:
            name = draw.choice(resizable)
            job, size = indices.running[name].job, len(indices.running[name].nodes)
            most = min(job.max_nodes, size + len(indices.idle))
            legal = [n for n in range(job.min_nodes, most + 1) if is_legal(job.constraint, n) and n != size]
            if legal:
                indices.begin_resize(name, draw.choice(legal))
        elif event == "finish" and changing:
            indices.finish_resize(draw.choice(changing))
        elif event == "end" and running:
            indices.end(draw.choice(running))
        elif event == "fail" and indices.nodes:
            indices.remove_node(draw.choice(list(indices.nodes)))
        elif event == "back":
            indices.add_node(Node(f"new {number}"))
        elif event == "clean" and resizable:  # as a body does with a job that ends, but holds its nodes
            indices.resizable.pop(draw.choice(resizable), None)
        elif event == "expect" and running:
            indices.expect_end(draw.choice(running), draw.uniform(0, 100))
        check_same(indices)
    twin, read = indices.copy(), pickle.loads(pickle.dumps(indices))
    for one in (twin, read):
        check_same(one)
        assert one.resizable == indices.resizable
    kept = by_asking_everybody(indices)
    for name in list(twin.running):
        twin.end(name)
        check_same(twin)
    assert kept == as_kept(indices)


def test_who_is_not_there_is_not_missed():
    indices = Indices([Node("a")])
    assert indices.resizable.pop("nobody") is None
    with pytest.raises(KeyError):
        del indices.resizable["nobody"]


@pytest.mark.parametrize("leave", [lambda kept: kept.pop("a"), lambda kept: kept.__delitem__("a")])
def test_who_has_left_could_neither_give_nor_take(leave):
    indices = Indices(Node(str(i)) for i in range(4))
    indices.waiting.add(Job(id="a", nodes=2, kind="malleable", min_nodes=1, max_nodes=4))
    indices.start("a", 2)
    kept = indices.resizable
    assert [*kept.givers] == [*kept.takers] == ["a"]
    leave(kept)
    assert not kept and not kept.givers and not kept.takers and kept.pop("a") is None


def test_who_is_as_small_or_as_large_as_may_be_is_found_on_one_side_only():
    indices = Indices(Node(str(i)) for i in range(4))
    indices.waiting.add(Job(id="a", nodes=2, kind="malleable", min_nodes=1, max_nodes=4))
    running = indices.start("a", 2)
    for size, gives, takes in ((1, [], ["a"]), (4, ["a"], []), (3, ["a"], ["a"])):
        indices.resizable["a"] = running._replace(nodes=tuple(map(str, range(size))))
        assert [*indices.resizable.givers] == gives and [*indices.resizable.takers] == takes
