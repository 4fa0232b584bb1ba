"""Deadlines and values on a simulated machine."""

import pytest

from dask_hpc import Policy, simulate
from dask_hpc.model.job import Job
from dask_hpc.simulator import Arrival
from dask_hpc.simulator.readers import load_workload


def job(name, nodes, runtime, submitted=0.0, **more):
    return Arrival(Job(id=name, nodes=nodes, submitted=submitted, **more), runtime)


def states(result):
    frame = result.jobs
    return {row.id: (row.state, row.end) for row in frame.itertuples()}


def test_at_its_deadline_a_job_is_removed_whether_it_runs_or_waits():
    jobs = [
        job("runs", 2, 100.0, deadline=60.0),
        job("waits", 2, 10.0, deadline=50.0),
        job("next", 2, 10.0),
        job("at once", 2, 10.0, submitted=100.0, deadline=110.0),
    ]
    result = simulate(jobs, nodes=2, policy="fcfs")
    assert states(result) == {
        "runs": ("dropped", 60.0),
        "waits": ("dropped", 50.0),
        "next": ("completed", 70.0),
        "at once": ("completed", 110.0),  # in the instant of its deadline
    }
    assert result.metrics["dropped"] == 2 and result.metrics["completed"] == 2


@pytest.mark.parametrize(("drop", "value"), [(False, 5.0), (True, 12.0)])
def test_a_policy_that_gives_up_in_time_earns_more(drop, value):
    """b cannot make it: started first, it runs in vain."""
    jobs = [
        job("b", 2, 50.0, walltime=50.0, deadline=40.0, value=100.0),
        job("a", 2, 10.0, walltime=10.0, soft_deadline=15.0, deadline=65.0, value=7.0),
        job("c", 2, 10.0, walltime=10.0, deadline=80.0, value=5.0),
    ]
    result = simulate(jobs, nodes=2, policy=Policy.load("slack").with_(**{"queue.drop": drop}))
    earned = result.metrics["value_earned"]
    if not drop:  # a ends at 50, and is worth what is left of it then
        value += 7.0 * (1 - 0.6 * (50 - 15) / 50)
    assert earned == pytest.approx(value)
    assert [one.reason for plan in result.story for one in plan.drops] == (
        ["would miss its deadline by 10 s at least"] if drop else []
    )


def test_nobody_earns_where_nothing_has_a_value():
    result = simulate([job("a", 1, 10.0)], nodes=1, policy="fcfs")
    assert result.metrics["value_earned"] != result.metrics["value_earned"]


def test_files_count_deadlines_from_the_submission(tmp_path):
    path = tmp_path / "w.yaml"
    path.write_text(
        "platform: {nodes: 2}\njobs:\n"
        "- {id: a, nodes: 1, runtime: 1 min, submit: 10 s, deadline: 2 min, soft_deadline: 90 s, value: 3}\n"
    )
    (arrival,) = load_workload(str(path))
    assert (arrival.job.deadline, arrival.job.soft_deadline, arrival.job.value) == (130.0, 100.0, 3.0)
    assert simulate(path, policy="fcfs").metrics["value_earned"] == 3.0
