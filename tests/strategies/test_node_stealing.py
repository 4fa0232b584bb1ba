"""Node stealing on the seed's toy example and vectors."""

from small_machine import machine

from dask_hpc.model.job import Job
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.strategies.failure.node_stealing import NodeStealing
from dask_hpc.strategies.strategy import outlook_after


def toy():
    """Seed 002, section 3.1: eight nodes, at 1 s one of J3's six fails."""
    indices = machine(8, now=0.0)
    for name, nodes, length in (("J1", 1, 8), ("J2", 1, 5), ("J3", 6, 10)):
        indices.waiting.add(Job(id=name, nodes=nodes, walltime=length))
        indices.start(name, nodes)
    indices.now = 1.0
    indices.requeue("J3", 2, ahead=2)
    indices.remove_node("2")
    indices.failed = ("J3",)
    return indices


def victims(indices, memory=None, **how):
    snapshot = Snapshot(indices)
    interrupts, memory = NodeStealing(**how).decide(snapshot, outlook_after(snapshot, ()), memory)
    return [interrupt.job for interrupt in interrupts], memory


def test_the_later_of_two_small_jobs_is_stopped():
    assert victims(toy())[0] == ["J2"]


def test_only_one_per_failed_job():
    indices = toy()
    _, memory = victims(indices)
    assert victims(indices, memory)[0] == []


def test_tie_by_submission_or_by_run():
    indices = machine(4, now=0.0)
    for name, submitted, start in (("a", 1.0, 5.0), ("b", 3.0, 4.0)):
        indices.now = start
        indices.waiting.add(Job(id=name, nodes=1, walltime=100, submitted=submitted))
        indices.start(name, 1)
    indices.waiting.add(Job(id="failed", nodes=3, walltime=10))
    indices.failed = ("failed",)
    assert victims(indices)[0] == ["b"]
    assert victims(indices, tie="shortest-run")[0] == ["a"]


def test_small_jobs_and_lucky_ones_never_steal():
    indices = toy()
    indices.waiting.remove("J3")
    indices.waiting.add(Job(id="J3", nodes=1, walltime=10))
    assert victims(indices)[0] == []  # no job has fewer nodes, and five are idle
    indices = toy()
    indices.failed = ()
    assert victims(indices)[0] == []


def test_a_victim_must_be_large_enough():
    indices = toy()
    indices.remove_node("3")  # now J3 lacks two, and no single small job has as many
    assert victims(indices)[0] == []
