"""The source's orders: what they move first, and that the faults of the printed listings are repaired."""

import pytest

from dask_hpc.planning.in_situ.orders import MOST_ENUMERATED, ordered
from dask_hpc.planning.in_situ.partition import Analysis, EqualNodes, PartitionProblem, Simulation
from dask_hpc.planning.in_situ.phases import with_split
from dask_hpc.planning.in_situ.plan import partition

MACHINE = EqualNodes(count=50, cores=8, memory=1.33 / 50, bandwidth=0.133 / 50)
TIMES, PEAKS = (40, 90, 20, 60, 70), (0.05, 0.02, 0.09, 0.04, 0.08)


def problem(machine=MACHINE, memory=1.0, time=1000, mode="async", times=TIMES, peaks=PEAKS):
    analyses = (
        Analysis(name=f"a{number}", time=one, memory=peak)
        for number, (one, peak) in enumerate(zip(times, peaks, strict=True))
    )
    return PartitionProblem(machine, Simulation(time=time, memory=memory), tuple(analyses), mode)


@pytest.mark.parametrize(
    "order, expected",
    [
        ("increasing-time", "20341"),
        ("decreasing-time", "14302"),
        ("increasing-peak", "13042"),
        ("decreasing-peak", "24031"),
    ],
)
def test_what_comes_first(order, expected):
    assert "".join(one.name[1:] for one in ordered(problem().analyses, order)) == expected


def test_random_is_the_same_for_the_same_seed_and_does_not_mind_who_was_named_first():
    analyses = problem().analyses
    found = {seed: [one.name for one in ordered(analyses, "random", seed)] for seed in range(20)}
    assert found[3] == [one.name for one in ordered(analyses[::-1], "random", 3)]
    assert len({tuple(names) for names in found.values()}) > 10


def test_memory_that_is_tight_does_not_stall_the_greedy_orders():
    # As printed, the simulation gets as few nodes as its work needs: too few for its memory, no single move
    # is viable, and all orders stay with everything in transit on nodes that hold nothing.
    one = problem()
    nothing = with_split(one, ())
    assert nothing.nodes == 38, "1 / 0.0266 = 37.6"
    for order in ("increasing-time", "decreasing-time", "increasing-peak", "decreasing-peak", "random"):
        found = partition(one, order)
        assert found.in_situ and found.iteration < nothing.iteration and not found.warning


def test_what_was_reached_is_remembered():
    # As printed, later moves are compared with everything in transit: all of them are accepted, with three
    # helper cores on all nodes, which take 89 / 3 s.
    machine = EqualNodes(count=3, cores=4, bandwidth=2)
    one = problem(machine, 0, 89, times=(33, 32, 27), peaks=(7, 6, 6))
    found = partition(one, "decreasing-time")
    assert found.in_situ == ("a0",) and found.iteration == 22.25
    assert with_split(one, ("a0", "a1", "a2")).iteration < 89 / 3, "or with two of them"


def test_too_many_to_enumerate_are_solved_and_said():
    many = MOST_ENUMERATED + 1
    one = problem(times=range(1, many + 1), peaks=[0.01] * many)
    found = partition(one, "enumerate")
    assert "21 analyses have too many subsets" in found.warning
    assert found.iteration == partition(one).iteration


def test_only_everything_in_situ_fits():
    machine = EqualNodes(count=4, cores=4, memory=10, bandwidth=1)
    one = problem(machine, memory=38, times=(3, 4), peaks=(1, 1))
    for order in ("exact", "enumerate", "increasing-time"):
        found = partition(one, order)
        assert (found.nodes, len(found.in_situ), found.warning) == (4, 2, "")
