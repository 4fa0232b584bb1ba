"""A simulated queue to ask in, other people's load, and how two ways of asking do there."""

from itertools import pairwise
from math import inf

import pytest

from dask_hpc.model.job import Job
from dask_hpc.simulator.ask_study import AskedWork, ask_for
from dask_hpc.simulator.background import background_load
from dask_hpc.simulator.batch_queue import SimulatedBatchQueue
from dask_hpc.simulator.workload import Arrival

HOUR = 3600.0


def job(name, nodes, hours, at=0.0, runs=None):
    return Arrival(Job(id=name, nodes=nodes, walltime=hours * HOUR, submitted=at), (runs or hours) * HOUR)


def test_what_one_sees_of_it():
    queue = SimulatedBatchQueue(4, [job("a", 3, 2, runs=1), job("b", 4, 3, at=60.0)], longest=24 * HOUR)
    queue.advance(600.0)
    queue.submit("mine", 1, 2 * HOUR)
    queue.submit("late", 2, HOUR, runtime=60.0)
    view = queue.view()
    assert view.now == 600.0
    assert [(one.id, len(one.nodes), one.started, one.limit) for one in view.running] == [
        ("a", 3, 0.0, 2 * HOUR)
    ]
    assert [(ask.id, ask.nodes, ask.limit) for ask in view.pending] == [
        ("b", 4, 3 * HOUR),
        ("mine", 1, 2 * HOUR),
        ("late", 2, HOUR),
    ]
    assert sum(node.free_cores for node in view.nodes.values()) == 1
    queue.withdraw("mine")
    queue.advance(5 * HOUR)
    assert queue.started == {"late": 4 * HOUR}  # a ends after one hour, b after three more
    assert queue.ended == {"mine": 600.0, "late": 4 * HOUR + 60.0}
    queue.submit("again", 4, HOUR)
    queue.withdraw("again")  # it runs already
    queue.advance(queue.now + 1)
    assert queue.started["again"] == queue.ended["again"] == 5 * HOUR
    assert not queue.view().running


def test_other_peoples_load():
    found = list(background_load(16, 60 * 24 * HOUR, load=0.9, seed=3))
    assert found == list(background_load(16, 60 * 24 * HOUR, load=0.9, seed=3))
    assert found != list(background_load(16, 60 * 24 * HOUR, load=0.9, seed=4))
    assert all(a.job.submitted <= b.job.submitted for a, b in pairwise(found))
    assert all(1 <= one.job.nodes <= 16 and 0 < one.runtime <= one.job.walltime for one in found)
    area = sum(one.job.nodes * one.runtime for one in found) / (16 * 60 * 24 * HOUR)
    assert 0.7 < area < 1.1
    sizes = [one.job.nodes for one in found]
    assert 0.2 < sizes.count(1) / len(sizes) < 0.6
    narrow = background_load(16, 24 * HOUR, largest=0.25, longest=2 * HOUR, seed=1)
    assert all(one.job.nodes <= 4 and one.job.walltime <= 2 * HOUR for one in narrow)


@pytest.mark.parametrize("how", ["fit", "fixed"])
def test_on_an_empty_machine_nobody_waits(how):
    work = AskedWork(8 * HOUR, 4, poll=600.0)
    outcome = ask_for(work, how, 4, [], begin=0.0)
    assert outcome.first == outcome.wait == 0.0
    assert outcome.withdrawn == 0
    # at the least all of it and the overhead of each; at most what a look comes late
    least = (work.seconds + len(outcome.units) * work.overhead) / HOUR
    assert least <= outcome.node_seconds / HOUR <= least + 4 * 600.0 / HOUR + 0.01
    assert outcome.done == pytest.approx(2.2 * HOUR if how == "fit" else 4.1 * HOUR, rel=0.1)


def test_holes_are_used_that_fixed_requests_do_not_fit_into():
    others = [job("a", 3, 6), job("b", 4, 6, at=1.0)]
    work = AskedWork(5 * HOUR, 2)
    fixed, fit = (ask_for(work, how, 4, others, begin=60.0) for how in ("fixed", "fit"))
    assert fixed.first == pytest.approx(12 * HOUR, rel=0.02)
    assert fit.first == 0.0
    assert fit.done < 6 * HOUR < 12 * HOUR < fixed.done < inf
