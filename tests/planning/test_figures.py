"""Figures of a run: the definitions, and the same from event to event as from all jobs at the end."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.planning.figures import (
    PHASES,
    Amounts,
    JobFigures,
    RunFigures,
    SizeChange,
    bounded_slowdown,
    response,
    utilisation,
    waiting,
)


def test_definitions_take_numbers_and_arrays():
    submitted, started, ended = (np.array(one, float) for one in ((0, 10, 20), (0, 30, 21), (5, 130, 81)))
    assert waiting(submitted, started).tolist() == [0, 20, 1]
    assert response(submitted, ended).tolist() == [5, 120, 61]
    found = bounded_slowdown(response(submitted, ended), ended - started)
    assert found.tolist() == [1, 1.2, 61 / 60]
    assert [float(bounded_slowdown(r, t)) for r, t in ((5.0, 5.0), (50.0, 5.0), (3.0, 0.0))] == [1, 5, 1]
    assert utilisation(3, 4) == 0.75 and utilisation(0, 0) == 0


#: what happens: seconds later, to which of a few jobs, with how many nodes
EVENTS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3), st.integers(0, 3)), max_size=40)


@given(EVENTS, st.integers(3, 9))
def test_event_by_event_as_over_all_jobs(events, there):
    run, now, used, available, since = RunFigures(there=there), 0.0, 0.0, 0.0, None
    live, over, cancelled = {}, [], 0
    for later, slot, nodes in events:
        if since is not None:
            used += later * sum(job.nodes for job in live.values())
            available += later * there
        now += later
        job = live.get(slot)
        if job is None:
            live[slot] = JobFigures(now, nodes + 1)
            run.submitted(now)
            since = now if since is None else since
        elif nodes or job.started is None:
            run.holds(job, nodes, now)
        else:
            cancelled += slot == 3
            run.ends(live.pop(slot), now, is_cancelled=slot == 3)
            over.append((slot, job))
        if slot == 0 and nodes == 3:
            there += 1
            run.nodes(there, now)
    found = run.as_dict(now)
    assert found["utilisation"] == pytest.approx(utilisation(used, available))
    assert run.held == sum(job.nodes for job in live.values())
    assert (run.completed, run.cancelled) == (len(over) - cancelled, cancelled)
    if not over:
        assert found["mean_wait"] is found["max_response"] is found["makespan"] is None
        return
    jobs = [job for _, job in over]
    assert found["mean_wait"] == pytest.approx(np.mean([job.started - job.submitted for job in jobs]))
    assert found["max_response"] == max(job.ended - job.submitted for job in jobs)
    assert found["mean_bounded_slowdown"] == pytest.approx(np.mean([job.bounded_slowdown for job in jobs]))
    assert found["makespan"] == jobs[-1].ended - since
    weighed = [job.asks * job.response for job in jobs]
    assert found["weighted_response"] == pytest.approx(sum(weighed) / sum(job.asks for job in jobs))


def test_a_job_that_waits_again_started_once_and_one_that_goes_on_ends_once():
    run, job = RunFigures(there=4), JobFigures(0.0, 2)
    run.submitted(0.0)
    for time, nodes in ((3.0, 2), (5.0, 0), (8.0, 1)):  # it loses its nodes, and gets others
        run.holds(job, nodes, time)
    assert job.waited == 3 and job.response is None
    run.ends(job, 10.0)
    assert run.as_dict(10.0)["mean_response"] == 10
    run.goes_on(job)
    assert run.as_dict(11.0)["mean_response"] is None and run.as_dict(11.0)["max_wait"] is None
    run.holds(job, 2, 12.0)
    run.ends(job, 20.0)
    found = run.as_dict(20.0)
    assert (found["completed"], found["mean_wait"], found["mean_response"]) == (1, 3, 20)
    assert found["node_seconds_used"] == 2 * 2 + 2 + 8 * 2


def test_a_job_that_never_ran_is_in_no_mean():
    run, job = RunFigures(there=4), JobFigures(0.0, 2)
    run.submitted(0.0)
    run.ends(job, 5.0, is_cancelled=True)
    found = run.as_dict(5.0)
    assert (found["cancelled"], found["completed"], found["mean_wait"]) == (1, 0, None)
    assert job.response is None and job.bounded_slowdown is None


def test_before_the_first_job_nothing_counts():
    run = RunFigures(there=4)
    run.nodes(2, 50.0)
    run.submitted(100.0)
    run.submitted(105.0)
    assert run.as_dict(110.0)["node_seconds"] == 20


def test_amounts_and_phases():
    amounts = Amounts()
    assert amounts.mean is None
    for value in (1.0, 5.0, 3.0):
        amounts.add(value)
    amounts.correct(3.0, 6.0)
    assert (amounts.count, amounts.mean, amounts.last, amounts.largest) == (3, 4, 6, 6)
    change = SizeChange(4, 2, decision=1.0, mark=10.0)
    for phase, now in (("drain", 12.0), ("move", 15.0), ("move", 16.0)):
        change.ends(phase, now)
    assert change.direction == "shrink" and SizeChange(2, 4).direction == "grow"
    assert change.seconds() == dict(zip(PHASES, (1, 0, 2, 4, 7), strict=True))
