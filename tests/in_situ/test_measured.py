"""From what tasks took to the planner's figures."""

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc.in_situ.client.measured import (
    SIMULATION,
    Fetched,
    ObservedIteration,
    PartCost,
    PipelineCosts,
    Timing,
    cost,
    fitted,
    granularity,
)
from dask_hpc.planning.in_situ.partition import Analysis, EqualNodes, Partition, Phases

MACHINE = EqualNodes(count=2, cores=2)


def blocks(part, *seconds):
    return [Timing(part, "w", second, second) for second in seconds]


def divided(in_situ=(), in_transit=(), nodes=1, helper_cores=1, mode="async"):
    return Partition(mode, nodes, helper_cores, tuple(in_situ), tuple(in_transit), Phases(0, 0, 0))


def on(cores, one):
    """The planner's formula."""
    return one.time * (one.serial + (1 - one.serial) / cores)


def test_a_whole_stays_on_one_core_and_many_blocks_spread():
    assert granularity(1, 4, 4) == pytest.approx(1)
    assert granularity(4, 2, 2) == pytest.approx(0)  # 4, 2 or 1 turns, exactly as many as cores allow
    assert granularity(1000, 4, 4) < 0.01
    whole = cost([Timing("a", "w", 3, 3, blocks=0)], MACHINE)
    assert (whole.time, whole.serial) == (3, 1)
    spread = cost(blocks("a", 1, 1, 1, 1), MACHINE)
    assert (spread.time, spread.serial) == (4, pytest.approx(0))
    combined = cost([*blocks("a", 1, 1, 1, 1), Timing("a", "w", 1, 1, 0)], MACHINE)
    assert (combined.time, combined.serial) == (5, pytest.approx(0.2))


@settings(deadline=None)
@given(st.integers(1, 200), st.integers(1, 8), st.integers(1, 8))
def test_a_granularity_is_a_share_and_fewer_blocks_spread_no_better(count, nodes, cores):
    assert 0 <= granularity(count, nodes, cores) <= 1
    assert granularity(count * nodes * cores, nodes, cores) <= 0.5


parts = st.just(0.0) | st.floats(0.1, 10)
costs = st.builds(PartCost, parts, parts, st.integers(1, 50), st.just(0.0), parts)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from("abcd"), costs, min_size=1), st.integers(1, 64), st.floats(0.01, 100))
def test_fitted_costs_take_the_time_that_was_measured(found, cores, seconds):
    after = fitted(found, cores, seconds)
    total = sum(one.stays + one.spreads / cores for one in after.values())
    if any(one.time for one in found.values()) or total:
        assert total == pytest.approx(seconds, abs=1e-6)
    assert all(one.spreads >= 0 and one.stays >= 0 for one in after.values())


@pytest.mark.parametrize("seconds", [0.1 + 0.01 * step for step in range(200)])
def test_rounding_makes_no_share_less_than_nothing(seconds):
    after = fitted({"a": PartCost(0.1, 0.0, 3, 0.0, 1.7), "b": PartCost(0.3, 0.0, 1, 0.0, 0.9)}, 3, seconds)
    assert all(one.stays >= 0 and 0 <= one.serial <= 1 for one in after.values())


def test_what_tasks_do_not_explain_does_not_spread():
    after = fitted({"a": PartCost(4.0, 0.0, 3), "b": PartCost(0.0, 1.0, 1)}, 4, 6.0)
    assert after["a"].stays == pytest.approx(3.0) and after["b"].stays == pytest.approx(2.0)
    assert after["a"].spreads == 4.0


def test_time_that_tasks_waited_is_theirs():
    after = fitted({"a": PartCost(1.0, 0.0, 3, 0.0, 3.0), "b": PartCost(0.0, 1.0, 1)}, 1, 4.5)
    assert after["a"].time == pytest.approx(3.5) and after["a"].serial == 0
    assert after["b"].time == pytest.approx(1.0)


def test_wholes_that_ran_side_by_side_spread_together():
    after = fitted({"a": PartCost(0.0, 1.0, 1), "b": PartCost(0.0, 1.0, 1)}, 2, 1.0)
    assert sum(one.time for one in after.values()) == pytest.approx(2.0)
    assert all(one.serial == pytest.approx(0) for one in after.values())


def observed(scale=1.0, moves=()):
    timings = [
        *blocks(SIMULATION, *[scale] * 4),
        *blocks("in", *[0.25 * scale] * 4),
        Timing("out", "w", 2 * scale, 2 * scale, blocks=0, memory=100),
    ]
    return ObservedIteration(timings, moves, Phases(4.5 * scale, 1.5 * scale, 2.5 * scale))


def test_the_planners_formula_gives_what_was_measured():
    partition = divided(["in"], ["out"])
    found = PipelineCosts([Analysis(name="out", time=9, memory=400)])
    assert found.phases is None
    (before,) = found.analyses(["out"])
    assert before.time == 9  # as declared
    for scale in (1.0, 1.0, 50.0, 1.0, 1.0):  # one of them stumbled
        found.add(observed(scale, [Fetched("out", 1000, 0.1)]), MACHINE, partition)
    assert found.phases == Phases(4.5, 1.5, 2.5)
    assert found.count == 5
    assert on(1, found.simulation) == pytest.approx(4.5)
    inside, outside = found.analyses(["in", "out"])
    assert on(1, inside) == pytest.approx(1.5)
    assert found.bandwidth == pytest.approx(10_000)
    assert on(2, outside) + outside.volume / found.bandwidth == pytest.approx(2.5)
    assert (outside.moved, outside.memory) == (1000, 400)
    assert found.simulation.time * (1 - found.simulation.serial) == pytest.approx(4.0)  # what spreads


def test_another_partition_begins_with_what_parts_cost():
    found = PipelineCosts()
    found.add(observed(), MACHINE, divided(["in", "out"]))
    known = found.analyses(["in", "out"])
    assert found.bandwidth == inf
    found.restart()
    assert found.phases is None and found.count == 0
    assert found.analyses(["in", "out"]) == known
    assert found.simulation.time > 0


def test_an_unknown_analysis_costs_nothing():
    assert PipelineCosts().analyses(["new"]) == (Analysis(name="new", time=0.0),)
