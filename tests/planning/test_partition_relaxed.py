"""Fractions of nodes and cores: closed forms against a numeric search, and how they are rounded."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dask_hpc.planning.in_situ.orders import fractions, relaxed, rounded
from dask_hpc.planning.in_situ.partition import Analysis, EqualNodes, PartitionProblem, Phases, Simulation
from dask_hpc.planning.in_situ.phases import split_by
from tests.planning.partition_problems import problems, seconds

SOME = st.floats(0.05, 20)
NONE, ASYNC = st.just(0.0), st.just("async")


@st.composite
def splits(draw, serial=NONE, share=NONE, mode=ASYNC, least=1):
    """A machine with memory for everything, and some analyses in situ."""
    analyses = tuple(
        Analysis(name=f"a{number}", time=draw(SOME), memory=draw(SOME), serial=draw(share))
        for number in range(draw(st.integers(max(least, 1), 6)))
    )
    nodes = EqualNodes(count=draw(st.integers(1, 60)), cores=draw(st.integers(2, 16)), bandwidth=draw(SOME))
    simulation = Simulation(time=draw(st.floats(0.5, 200)), serial=draw(serial))
    problem = PartitionProblem(nodes, simulation, analyses, draw(mode))
    return problem, frozenset(one.name for one in analyses[: draw(st.integers(least, len(analyses)))])


def iteration(problem, names, nodes, helper):
    """By the formulas of the source, for fractions."""
    machine, simulation = problem.nodes, problem.simulation
    inside = [one for one in problem.analyses if one.name in names]
    outside = [one for one in problem.analyses if one.name not in names]
    sync = problem.mode == "sync"
    own, used = (machine.cores, machine.cores) if sync else (machine.cores - helper, helper)
    step = simulation.time * (simulation.serial + (1 - simulation.serial) / (nodes * own))
    in_situ = sum(one.time * (one.serial + (1 - one.serial) / (nodes * used)) for one in inside)
    left = machine.count - nodes
    in_transit = sum(
        one.time * (one.serial + (1 - one.serial) / (left * machine.cores))
        + one.volume / (left * machine.bandwidth)
        for one in outside
    )
    return Phases(step, in_situ, in_transit).iteration(problem.mode)


def smallest(function, low, high):
    """The smallest value of a function that falls and then rises, by golden sections."""
    golden = (5**0.5 - 1) / 2
    a, b = high - golden * (high - low), low + golden * (high - low)
    at_a, at_b = function(a), function(b)
    for _ in range(90):
        if at_a < at_b:
            high, b, at_b = b, a, at_a
            a = high - golden * (high - low)
            at_a = function(a)
        else:
            low, a, at_a = a, b, at_b
            b = low + golden * (high - low)
            at_b = function(b)
    return min(at_a, at_b)


def numeric(problem, names):
    """The best fractions by searching nodes, and helper cores for each number of nodes."""
    machine = problem.nodes

    def best_helpers(nodes):
        if problem.mode == "sync" or not names:
            return iteration(problem, names, nodes, 0)
        return smallest(lambda helper: iteration(problem, names, nodes, helper), 1e-9, machine.cores - 1e-9)

    if len(names) == len(problem.analyses):
        return best_helpers(machine.count)
    return smallest(best_helpers, machine.count * 1e-9, machine.count * (1 - 1e-9))


@settings(max_examples=60, deadline=None)
@given(splits())
def test_all_phases_take_as_long_as_the_sum_of_all_work_says(split):
    # The digest's reference value 1: with any split, T = (t_sim + W + c Mem / b) / (c C).
    problem, names = split
    assume(len(names) < len(problem.analyses))
    found = relaxed(problem, names)
    machine = problem.nodes
    outside = [one for one in problem.analyses if one.name not in names]
    moved = machine.cores * sum(one.memory for one in outside) / machine.bandwidth
    work = problem.simulation.time + sum(one.time for one in problem.analyses)
    expected = (work + moved) / (machine.cores * machine.count)
    assert tuple(found.phases) == pytest.approx((expected,) * 3, rel=1e-9)
    # Theorems 1 and 2 as they are printed
    x = sum(one.time for one in problem.analyses if one.name in names)
    helper = x * machine.cores / (problem.simulation.time + x)
    assert found.helper_cores == pytest.approx(helper, rel=1e-9)
    y = sum(one.time for one in outside) / machine.cores + moved / machine.cores
    assert found.nodes == pytest.approx(x * machine.count / (helper * y + x), rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(splits(serial=st.floats(1e-4, 0.9)))
def test_amdahls_phases_take_equally_long(split):
    # Reference value 2: the digest's quadratic, in place of the source's cubic.
    problem, names = split
    assume(len(names) < len(problem.analyses))
    phases = relaxed(problem, names).phases
    assert tuple(phases) == pytest.approx((phases.simulation,) * 3, rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(splits(serial=st.just(1e-12)))
def test_amdahls_law_without_a_serial_share_is_theorem_1(split):
    problem, names = split
    parallel = PartitionProblem(
        problem.nodes, Simulation(time=problem.simulation.time), problem.analyses, problem.mode
    )
    one, other = relaxed(problem, names), relaxed(parallel, names)
    assert one.nodes == pytest.approx(other.nodes, rel=1e-6)
    assert one.helper_cores == pytest.approx(other.helper_cores, rel=1e-6)


@settings(max_examples=60, deadline=None)
@given(
    splits(
        serial=st.one_of(st.just(0.0), st.floats(0, 1)),
        share=st.one_of(st.just(0.0), st.floats(0, 0.5)),
        mode=st.sampled_from(("async", "sync")),
        least=0,
    )
)
def test_no_fractions_are_better_than_the_relaxed_ones(split):
    problem, names = split
    found, best = relaxed(problem, names), numeric(problem, names)
    assert found.iteration <= best * (1 + 1e-9), "the numeric search found something better"
    assert found.iteration == pytest.approx(best, rel=1e-5), "the search is worth something"
    if 0 < found.nodes < problem.nodes.count and (found.helper_cores or not names or problem.mode == "sync"):
        reached = iteration(problem, names, found.nodes, found.helper_cores)
        assert reached == pytest.approx(found.iteration, rel=1e-9)


def test_sync_and_async_are_as_fast_in_fractions():
    analyses = (Analysis(name="a", time=30, memory=4), Analysis(name="b", time=50, memory=2))
    machine = EqualNodes(count=10, cores=8, bandwidth=0.5)
    for names in ((), ("a",), ("a", "b")):
        both = [
            relaxed(PartitionProblem(machine, Simulation(time=500), analyses, mode), names)
            for mode in ("async", "sync")
        ]
        assert both[0].iteration == pytest.approx(both[1].iteration, rel=1e-12)
        assert both[0].nodes == pytest.approx(both[1].nodes, rel=1e-12)


def test_memory_needs_its_nodes():
    analyses = (Analysis(name="a", time=1, memory=30), Analysis(name="b", time=1000, memory=1))
    machine = EqualNodes(count=10, cores=4, memory=10, bandwidth=1)
    problem = PartitionProblem(machine, Simulation(time=100, memory=45), analyses)
    assert relaxed(problem, ("a",)).nodes == pytest.approx(7.5)
    nodes, _, can_be = rounded(problem, *split_by(problem, ("a",)))
    assert nodes == 8 and can_be
    small = PartitionProblem(EqualNodes(count=7, cores=4, memory=10), problem.simulation, analyses)
    assert not rounded(small, *split_by(small, ("a",)))[2], "8 nodes are needed"


def test_guards_of_rounding():
    machine = EqualNodes(count=3, cores=4, memory=10, bandwidth=1e9)
    one = (Analysis(name="a", time=1e-6, memory=1),)
    problem = PartitionProblem(machine, Simulation(time=1000, memory=1), one)
    assert [int(value) for value in rounded(problem, *split_by(problem, ("a",)))] == [3, 1, 1]
    assert [int(value) for value in rounded(problem, *split_by(problem, ()))] == [2, 0, 1]
    heavy = (Analysis(name="a", time=1e9, memory=1), Analysis(name="b", time=1e9, memory=1))
    problem = PartitionProblem(machine, Simulation(time=1, memory=1), heavy)
    # the simulation keeps a core, and a node stages what is in transit
    assert [int(value) for value in rounded(problem, *split_by(problem, ("a", "b")))] == [3, 3, 1]
    assert [int(value) for value in rounded(problem, *split_by(problem, ("a",)))] == [2, 3, 1]
    assert [int(value) for value in rounded(problem, *split_by(problem, ()))] == [1, 0, 1]
    single = PartitionProblem(EqualNodes(count=3, cores=1), Simulation(time=1), heavy)
    assert not rounded(single, *split_by(single, ("a",)))[2] and rounded(single, *split_by(single, ()))[2]


def test_hardly_any_parallel_work_beside_no_simulation_is_not_rounded_away():
    hardly = Analysis(name="a", time=1.0, memory=0, serial=0.9999999999999999)
    problem = PartitionProblem(EqualNodes(count=2, cores=2), Simulation(time=0.0), (hardly,))
    assert relaxed(problem, ("a",)).iteration == pytest.approx(1.0)
    problem = PartitionProblem(EqualNodes(count=2, cores=1), Simulation(time=3.0), (hardly,))
    assert relaxed(problem, ()).iteration == pytest.approx(1.5)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(problems(), st.integers(0, 63))
def test_fractions_are_inside_the_machine_and_no_whole_numbers_are_faster(problem, chosen):
    names = [one.name for number, one in enumerate(problem.analyses) if chosen >> number & 1]
    inside, outside = split_by(problem, names)
    nodes, helper = fractions(problem, inside, outside)
    assert 0 <= nodes <= problem.nodes.count and 0 <= helper <= problem.nodes.cores
    whole, cores, can_be = (float(value) for value in rounded(problem, inside, outside))
    if can_be:
        inside = [one for one in problem.analyses if one.name in names]
        assert relaxed(problem, names).iteration <= seconds(problem, whole, cores, inside) * (1 + 1e-9)
