"""What Dask and Parsl do, by hand."""

from small_machine import machine, sizes, started

from dask_hpc.model.snapshot import Snapshot
from dask_hpc.strategies.malleability.dask_adaptive import DaskAdaptive
from dask_hpc.strategies.malleability.parsl_simple import ParslSimple
from dask_hpc.strategies.strategy import outlook_after


def running(size, left, nodes=16, **more):
    indices = machine(nodes, now=0.0)
    started(indices, "a", size, walltime=left, **more)
    return indices


def test_dask_grows_to_its_target():
    assert sizes(running(4, 100.0), DaskAdaptive(target_duration=50)) == {"a": 8}
    assert sizes(running(4, 100.0, most=6), DaskAdaptive(target_duration=50)) == {"a": 6}
    assert sizes(running(4, float("inf"), nodes=10), DaskAdaptive()) == {"a": 10}


def test_dask_shrinks_after_asking_often_enough():
    indices = running(8, 100.0)
    strategy, memory, answers = DaskAdaptive(target_duration=200, wait_count=3), None, []
    for now in (1.0, 1.0, 2.0, 3.0):
        indices.now = now
        snapshot = Snapshot(indices)
        resizes, memory = strategy.decide(snapshot, outlook_after(snapshot, ()), memory)
        answers.append([resize.nodes for resize in resizes])
    assert answers == [[], [], [], [4]]


def test_parsl_grows_by_parallelism():
    assert sizes(running(2, 300.0), ParslSimple(task=60)) == {"a": 10}
    assert sizes(running(2, 300.0), ParslSimple(task=60, parallelism=0.5)) == {"a": 5}
    assert sizes(running(2, 300.0), ParslSimple(task=60, parallelism=0.1)) == {}


def test_parsl_gives_back_what_was_idle_long_enough():
    indices = running(8, 200.0)
    strategy = ParslSimple(task=400, max_idletime=50)
    indices.now = 10.0
    snapshot = Snapshot(indices)
    resizes, memory = strategy.decide(snapshot, outlook_after(snapshot, ()), None)
    assert not resizes and memory == {"a": 10.0}
    indices.now = 60.0
    assert sizes(indices, strategy, memory) == {"a": 3}  # 140 s on 8 nodes are 3 tasks
    assert sizes(indices, ParslSimple(task=400, max_idletime=50, scale_in=False), memory) == {}


def test_dask_grows_into_what_is_idle_beside_a_job_that_shrinks():
    indices = running(8, 100.0, nodes=12)
    started(indices, "b", 2, walltime=400.0)
    assert sizes(indices, DaskAdaptive(target_duration=200, wait_count=1)) == {"a": 4, "b": 4}


def test_parsl_too():
    indices = running(8, 100.0, nodes=12)
    started(indices, "b", 2, walltime=400.0)
    assert sizes(indices, ParslSimple(task=200, max_idletime=0)) == {"a": 4, "b": 4}
