"""What may be divided, and when two partitions are the same deed."""

import pytest

from dask_hpc.model.errors import InputError
from dask_hpc.planning.in_situ.partition import (
    Analysis,
    EqualNodes,
    Partition,
    PartitionProblem,
    Phases,
    Simulation,
)


@pytest.mark.parametrize(
    "make, where",
    [
        (lambda: EqualNodes(count=0, cores=1), "nodes.count"),
        (lambda: EqualNodes(count=1.5, cores=1), "nodes.count"),
        (lambda: EqualNodes(count=1, cores=True), "nodes.cores"),
        (lambda: EqualNodes(count=1, cores=1, memory=0), "nodes.memory"),
        (lambda: EqualNodes(count=1, cores=1, bandwidth=float("nan")), "nodes.bandwidth"),
        (lambda: Simulation(time=-1), "simulation.time"),
        (lambda: Simulation(time=1, serial=1.1), "simulation.serial"),
        (lambda: Analysis(name="", time=1), "analyses.name"),
        (lambda: Analysis(name="a", time=float("inf")), "analysis a.time"),
        (lambda: Analysis(name="a", time=1, moved=-1), "analysis a.moved"),
    ],
)
def test_what_is_not_allowed_is_named(make, where):
    with pytest.raises(InputError) as caught:
        make()
    assert caught.value.where == where


def test_a_problem_has_a_mode_and_names_once():
    nodes, simulation = EqualNodes(count=2, cores=4), Simulation(time=1)
    with pytest.raises(InputError, match="async, sync"):
        PartitionProblem(nodes, simulation, (), "both")
    twice = (Analysis(name="a", time=1), Analysis(name="a", time=2))
    with pytest.raises(InputError, match="more than once"):
        PartitionProblem(nodes, simulation, twice)


def test_moved_in_transit_is_the_peak_unless_said():
    assert Analysis(name="a", time=1, memory=5).volume == 5
    assert Analysis(name="a", time=1, memory=5, moved=2).volume == 2


def test_an_iteration_lasts_as_long_as_its_mode_says():
    phases = Phases(3.0, 2.0, 4.0)
    assert phases.iteration("async") == 4
    assert phases.iteration("sync") == 5


def test_partitions_that_run_alike():
    one = Partition("async", 3, 1, ("a", "b"), ("c",), Phases(1, 1, 1))
    assert one.runs_like(Partition("async", 3, 1, ("b", "a"), ("c",), Phases(2, 2, 2)))
    assert not one.runs_like(Partition("sync", 3, 1, ("a", "b"), ("c",), Phases(1, 1, 1)))
    assert not one.runs_like(None)
