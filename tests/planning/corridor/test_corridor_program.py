"""The corridor's program against every distribution there is."""

import random
from dataclasses import replace
from itertools import product
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc.model.power import PowerRange
from dask_hpc.model.speedup import CONSTRAINTS
from dask_hpc.planning.corridor import (
    CorridorProblem,
    Part,
    enumeration,
    guaranteed,
    reachable,
    sizes_of,
    solve,
)
from dask_hpc.planning.corridor.enumeration import common_step, enumerate_all, least_outside
from dask_hpc.planning.corridor.fast import search
from dask_hpc.planning.corridor.problem import distribution


def every(problem):
    """Sizes, idle nodes and power of all distributions there are."""
    for sizes in product(*(part.sizes for part in problem.parts)):
        idle = problem.nodes - sum(sizes)
        if idle < 0:
            continue
        least = problem.constant.least + idle * problem.idle
        most = problem.constant.most + idle * problem.idle
        for part, size in zip(problem.parts, sizes, strict=True):
            least += part.power.least * size
            most += part.power.most * size
        yield sizes, idle, least, most


def best_of_every(problem):
    """The order of the program, by looking at all."""
    levels = []
    for sizes, idle, least, most in every(problem):
        slack = problem.upper - most
        if problem.lower > 0:
            slack = min(slack, least - problem.lower)
        changed = sum(abs(size - part.now) for part, size in zip(problem.parts, sizes, strict=True))
        levels.append((0.0 if slack >= problem.margin else problem.margin - slack, idle, changed, -slack))
    return min(levels)


LEVELS = ("outside", "idle", "changed", "slack")


@st.composite
def problems(draw):
    """Up to 6 jobs and 14 nodes; watts are multiples of a half, so sums are exact."""
    nodes = draw(st.integers(1, 14))
    watts = st.sampled_from((60.0, 75.5, 120.0, 170.0, 200.5, 250.0, 333.0))
    parts, need = [], 0
    for number in range(draw(st.integers(0, 6))):
        constraint = draw(st.sampled_from(CONSTRAINTS))
        may_wait = draw(st.booleans())
        low = draw(st.integers(1, 5))
        sizes = sizes_of(constraint, low, draw(st.integers(low, 14)), may_wait)
        if not sizes or need + sizes[0] > nodes:
            continue
        need += sizes[0]
        least = draw(watts)
        most = draw(st.sampled_from((least, least, least + 10.0, least * 1.5)))
        now = 0 if may_wait else draw(st.one_of(st.sampled_from(sizes), st.integers(1, 14)))
        parts.append(Part(f"j{number}", PowerRange(least, most), sizes, now))
    idle = draw(st.sampled_from((0.0, 30.0, 71.0)))
    width = draw(st.sampled_from((0.0, 20.0, 100.0, 400.0, 1000.0)))
    lower = draw(st.one_of(st.just(0.0), st.integers(0, 40).map(lambda n: n * 100.0)))
    upper = draw(st.sampled_from((lower + width, lower + width, float("inf"))))
    margin = draw(st.sampled_from((0.0, 0.0, 25.0)))
    constant = draw(st.sampled_from((PowerRange(0.0, 0.0), PowerRange(100.0, 140.0))))
    return CorridorProblem(nodes, idle, lower, upper, tuple(parts), constant, margin)


def check(problem, answer):
    assert answer.is_optimal and answer.gap == 0
    assert answer.levels == pytest.approx(best_of_every(problem), abs=1e-5)
    assert answer.is_feasible == (answer.outside == 0)
    assert answer.idle_nodes >= 0
    for part in problem.parts:
        assert answer.sizes[part.id] in part.sizes


@pytest.mark.slow
@given(problems())
@settings(max_examples=300, deadline=None)
def test_the_fast_path_is_exact(problem):
    check(problem, solve(problem, how="fast"))


@given(problems())
@settings(max_examples=50, deadline=None)
def test_the_solver_is_exact(problem):
    check(problem, solve(problem, how="HiGHS", time_limit=60))


@given(problems())
@settings(max_examples=10, deadline=None)
def test_the_other_solver_is_exact(problem):
    check(problem, solve(problem, how="CBC", time_limit=60))


@given(problems())
@settings(max_examples=200, deadline=None)
def test_what_is_reachable_is_exact(problem):
    powers = [(least, most) for _, _, least, most in every(problem)]
    lowest, highest = min(most for _, most in powers), max(least for least, _ in powers)
    assert reachable(problem) == pytest.approx((lowest, highest))
    assert guaranteed(problem) == (highest >= problem.floor, lowest <= problem.ceiling)


@pytest.mark.slow
@given(problems())
@settings(max_examples=300, deadline=None)
def test_what_bounds_prove_is_true(problem):
    found = search(problem) if problem.parts else None
    if found is not None:
        best = best_of_every(problem)
        proven = LEVELS.index(found.unproven) if found.unproven else len(LEVELS)
        assert found.levels[:proven] == pytest.approx(best[:proven], abs=1e-3)
        if proven < len(LEVELS):  # the best is not better than the gap says
            value, bound = found.levels[proven], best[proven]
            assert value - bound <= found.gap * max(abs(value), abs(bound), 1.0) + 1e-5


def known(power):
    return PowerRange(power.most, power.most)


@given(problems())
@settings(max_examples=200, deadline=None)
def test_the_least_outside_is_that_of_every_distribution(problem):
    parts = tuple(replace(part, power=known(part.power)) for part in problem.parts)
    certain = replace(problem, parts=parts, constant=known(problem.constant))
    powers = np.array([part.power.most for part in problem.parts if len(part.sizes) > 1])
    fewest = max(0, problem.nodes - sum(part.sizes[-1] for part in problem.parts))
    for one in (problem, certain):
        found = least_outside(one, common_step(powers))
        by_idle = {}
        for _, idle, least, most in every(one):
            outside = max(0.0, most - one.ceiling, one.floor - least)
            by_idle[idle] = min(outside, by_idle.get(idle, inf))
        assert len(found) == 1 + one.nodes - sum(part.sizes[0] for part in one.parts) - fewest
        for idle, outside in enumerate(found, fewest):
            real = by_idle.get(idle, inf)
            assert outside <= real + 1e-5
            assert one is problem or outside == pytest.approx(real, abs=1e-5)


def test_no_least_outside_of_measured_power_or_of_too_many_nodes():
    def of(nodes, *watts):
        parts = tuple(Part(f"j{n}", PowerRange(one, one), range(1, nodes), 1) for n, one in enumerate(watts))
        problem = CorridorProblem(nodes, 71.0, 5_000.0, 5_010.0, parts)
        return least_outside(problem, common_step(np.array(watts)))

    assert of(30, 171.234567, 200.7654321, 233.3333333) is None
    assert of(30, 170.0, 200.0, 230.0) is not None
    assert of(9_000, 170.0, 200.0, 230.0) is None
    assert of(9_000, 170.0, 170.0, 170.0) is not None, "power is the same whoever has the nodes"


@pytest.mark.parametrize("few", [0, 20_000])
@given(problem=problems())
@settings(max_examples=100, deadline=None)
def test_looking_at_all_of_them_finds_the_best(few, problem):
    """At once if there are few, and part by part."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(enumeration, "_FEW", few)
        sizes = enumerate_all(problem, problem.parts, 100_000)
    found = distribution(problem, sizes, "all")
    assert found.levels == pytest.approx(best_of_every(problem), abs=1e-5)


@pytest.mark.parametrize("few", [0, 20_000])
@pytest.mark.parametrize("seed", range(10))
def test_looking_at_all_of_them_hits_a_narrow_corridor(few, seed, monkeypatch):
    """Between what is reachable, so every watt of jobs and of idle nodes counts."""
    rng = random.Random(seed)
    parts = []
    for number in range(4):
        least = rng.uniform(120.0, 400.0)
        sizes = range(rng.randint(0, 2), rng.randint(3, 5))
        parts.append(Part(f"j{number}", PowerRange(least, 1.02 * least), sizes, rng.choice(sizes)))
    wide = CorridorProblem(16, 71.0, 1.0, 1e6, tuple(parts), PowerRange(200.0, 210.0))
    low, high = reachable(wide)
    lower = rng.uniform(low, high)
    problem = replace(wide, lower=lower, upper=lower + 60.0)
    monkeypatch.setattr(enumeration, "_FEW", few)
    found = distribution(problem, enumerate_all(problem, problem.parts, 100_000), "all")
    assert found.levels == pytest.approx(best_of_every(problem), abs=1e-5)


def test_not_more_are_looked_at_than_allowed():
    parts = tuple(Part(f"j{n}", PowerRange(100.0 + n**2, 150.0), range(1, 9), 1) for n in range(4))
    problem = CorridorProblem(40, 71.0, 3_000.0, 3_100.0, parts)
    assert enumerate_all(problem, parts, 1_000) is None
    assert enumerate_all(problem, parts, 4_096) is not None
