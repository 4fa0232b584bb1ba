"""Where a job's tasks may run is looked up once, and is what Dask would find, whatever happens meanwhile."""

import pickle

import hypothesis.strategies as st
import pytest
from distributed.scheduler import SchedulerState
from hypothesis import given
from pure_scheduler import PureScheduler

from dask_hpc import dask as compat

ADDRESSES = [f"tcp://{name}:1" for name in "abcdef"]
one = st.sampled_from(ADDRESSES)
some = st.sets(one, max_size=4)
edits = st.one_of(
    st.tuples(st.sampled_from(["add", "discard", "remove"]), one),
    st.tuples(
        st.sampled_from(
            ["update", "difference_update", "intersection_update", "symmetric_difference_update",
             "__ior__", "__isub__", "__iand__", "__ixor__"],
        ),
        some,
    ),
    st.tuples(st.sampled_from(["clear", "pop"])),
)  # fmt: skip
happenings = st.one_of(edits, st.tuples(st.sampled_from(["join", "leave", "pause", "run"]), one))


def scheduler_with(*addresses):
    s = PureScheduler(lambda *move: None)
    for address in addresses:
        s.join(address)
    return s


@given(st.lists(st.lists(happenings, max_size=3), max_size=20))
def test_as_dask_finds_them(turns):
    s, places = scheduler_with(*ADDRESSES[:3]), compat.JobPlaces(ADDRESSES[:2])
    (task,) = s.make(["x"])
    task.worker_restrictions = places
    end = compat.remember_places(s)
    for turn in turns:
        for what, *where in turn:
            if what == "join":
                if where[0] not in s.workers:
                    s.join(where[0])
                    places.add(where[0])  # a worker that joins comes to a job by an edit
            elif what == "leave":
                if where[0] in s.workers:
                    s.leave(where[0])
                    s.valid_workers(task)  # Dask places tasks anew before anybody hears of it
                    assert s.valid_workers(task) == SchedulerState.valid_workers(s, task)
                    places.discard(where[0])
            elif what in ("pause", "run"):
                if where[0] in s.workers:
                    s.pause(where[0], what == "pause")
            elif what not in ("remove", "pop") or (places and (not where or where[0] in places)):
                getattr(places, what)(*where)
        assert s.valid_workers(task) == SchedulerState.valid_workers(s, task)
    end()
    assert "valid_workers" not in vars(s)


def test_they_are_looked_up_once():
    s, places = scheduler_with(*ADDRESSES), compat.JobPlaces(ADDRESSES[:4])
    tasks = s.make(["x", "y"])
    for task in tasks:
        task.worker_restrictions = places
    compat.remember_places(s)
    found = s.valid_workers(tasks[0])
    assert len(found) == 4 and s.valid_workers(tasks[1]) is found
    s.pause(ADDRESSES[0])
    assert len(s.valid_workers(tasks[0])) == 3
    places.discard(ADDRESSES[1])
    assert s.valid_workers(tasks[0]) == {s.workers[address] for address in ADDRESSES[2:4]}


@pytest.mark.parametrize("name", ["worker_restrictions", "host_restrictions", "resource_restrictions"])
def test_what_the_user_restricts_is_dasks_business(name):
    s, places = scheduler_with(*ADDRESSES), compat.JobPlaces(ADDRESSES[:4])
    (task,) = s.make(["x"])
    task.worker_restrictions = places
    wanted = {
        "worker_restrictions": {ADDRESSES[0]},
        "host_restrictions": {"f"},
        "resource_restrictions": {"GPU": 1},
    }
    setattr(task, name, wanted[name])
    compat.remember_places(s)
    assert s.valid_workers(task) == SchedulerState.valid_workers(s, task)
    assert len(s.valid_workers(task)) == {"worker_restrictions": 1, "host_restrictions": 5}.get(name, 0)


def test_a_job_on_all_nodes_is_restricted_nowhere():
    """Its places are empty, and Dask is not asked about them."""
    s, places = scheduler_with(*ADDRESSES), compat.JobPlaces()
    task, other = s.make(["x", "y"])
    task.worker_restrictions = places
    asked = []
    s.valid_workers = lambda task: asked.append(task.key) or SchedulerState.valid_workers(s, task)
    compat.remember_places(s)
    assert s.valid_workers(task) is None and SchedulerState.valid_workers(s, task) is None and not asked
    assert s.valid_workers(other) is None and asked == ["y"]  # in no job: Dask's business, or somebody's
    places.add(ADDRESSES[0])
    assert s.valid_workers(task) == {s.workers[ADDRESSES[0]]}


def test_who_comes_as_another_leaves_is_not_taken_for_it():
    """Dask may place tasks before any plugin hears that a worker is gone, and ours may be the last."""
    s, places = scheduler_with(*ADDRESSES[:3]), compat.JobPlaces(ADDRESSES[:2])
    (task,) = s.make(["x"])
    task.worker_restrictions = places
    compat.remember_places(s)
    gone = s.workers[ADDRESSES[0]]
    assert gone in s.valid_workers(task)
    s.leave(ADDRESSES[0])
    s.join(ADDRESSES[3])
    assert s.valid_workers(task) == {s.workers[ADDRESSES[1]]}


def test_copies_and_pickles_are_plain_sets():
    s, places = scheduler_with(*ADDRESSES), compat.JobPlaces(ADDRESSES[:2])
    places.workers(s)
    for other in (places.copy(), places | set(), pickle.loads(pickle.dumps(places))):
        assert other == places and type(other) is set
