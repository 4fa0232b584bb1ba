"""The corridor's program beyond what can be enumerated: agreement, hard instances, time, no solver at all."""

import random
import sys
from dataclasses import replace
from time import perf_counter
from timeit import repeat

import pytest

from dask_hpc.model.errors import InputError
from dask_hpc.model.power import PowerRange
from dask_hpc.planning.corridor import (
    CorridorProblem,
    Part,
    fast,
    reachable,
    sizes_of,
    solve,
    what_would_help,
)
from dask_hpc.planning.corridor.fast import search
from dask_hpc.planning.corridor.problem import Groups


def instance(jobs, nodes, seed, constraints=("any",), width=None, waiting=0, watts=None):
    """Jobs of all powers that run or wait, and a corridor anywhere in what is reachable."""
    rng = random.Random(seed)
    room, parts = nodes, []
    for number in range(jobs):
        low = rng.randint(1, max(1, nodes // (4 * jobs)))
        may_wait = number < waiting
        sizes = sizes_of(rng.choice(constraints), low, rng.randint(2 * low, 4 * nodes // jobs), may_wait)
        least = rng.choice(watts) if watts else rng.uniform(120, 400)
        parts.append((f"j{number}", PowerRange(least, least * rng.choice((1, 1, 1.05))), sizes))
        room -= sizes[0]
    found = []
    for name, power, sizes in parts:
        possible = [size for size in sizes if size - sizes[0] <= min(room, 2 * nodes / jobs)]
        now = rng.choice(possible) if sizes[0] else 0
        room -= now - sizes[0]
        found.append(Part(name, power, sizes, now))
    low, high = reachable(CorridorProblem(nodes, 71.0, 0, 1, tuple(found)))
    width = width or (high - low) / 10
    lower = low + (high - low - width) * rng.random()
    return CorridorProblem(nodes, 71.0, lower, lower + width, tuple(found))


def is_legal(problem, answer):
    return sum(answer.sizes.values()) + answer.idle_nodes == problem.nodes and all(
        answer.sizes[part.id] in part.sizes for part in problem.parts
    )


@pytest.mark.parametrize("seed", range(12))
def test_what_is_proven_without_a_solver_is_what_the_solver_finds(seed):
    constraints = ("any", "even", "pof2", "square") if seed % 2 else ("any",)
    watts = (150.0, 170.0, 210.0, 250.0, 330.0) if seed % 3 else None
    problem = instance(8, 48, seed, constraints, waiting=seed % 4, watts=watts)
    fast, exact = solve(problem, how="fast"), solve(problem, how="HiGHS", time_limit=20)
    assert exact.is_optimal and is_legal(problem, fast) and is_legal(problem, exact)
    proven = {"": 4, "slack": 3, "changed": 2, "idle": 1, "outside": 0}[fast.unproven]
    close = pytest.approx(exact.levels[:proven], abs=1e-3, rel=2e-4)
    assert fast.levels[:proven] == close
    assert fast.levels[0] >= exact.levels[0] - 1e-3


@pytest.mark.parametrize("seed", [7, 9, 19, 25, 31, 53])
def test_which_powers_there_are_between_two_steps_proves_the_best(seed, monkeypatch):
    """The bounds of the relaxed program alone do not."""
    loose = instance(4, 32, seed, width=5.0, watts=(150.0, 170.0, 200.0, 220.0, 250.0))
    parts = tuple(replace(part, power=PowerRange(part.power.least, part.power.least)) for part in loose.parts)
    problem = replace(loose, parts=parts)
    found, exact = search(Groups(problem).merged), solve(problem, how="HiGHS", time_limit=20)
    assert found.is_optimal and exact.is_optimal
    assert found.levels == pytest.approx(exact.levels, abs=1e-3)
    monkeypatch.setattr(fast, "least_outside", lambda problem, step: None)
    assert not search(Groups(problem).merged).is_optimal


HARD = {
    "powers of two": {"constraints": ("pof2",)},
    "narrower than the step of a node": {"width": 1.0, "watts": (150.0, 170.0, 250.0)},
    "ten that wait": {"waiting": 10, "width": 30.0},
    "all of it": {"constraints": ("pof2", "square"), "waiting": 10, "width": 30.0},
}


@pytest.mark.timed
@pytest.mark.parametrize("kind", HARD)
def test_hard_instances_end_in_time_with_the_best_that_was_found(kind):
    problem = instance(24, 160, 7, **HARD[kind])
    began = perf_counter()
    answer = solve(problem, time_limit=1.0)
    assert perf_counter() - began < 5, "1 s for the solver, and little beside it on a loaded machine"
    assert is_legal(problem, answer)
    assert answer.is_optimal == (not answer.unproven)
    assert answer.gap > 0 if answer.unproven else answer.gap <= 1e-4
    fast = solve(problem, how="fast")
    assert (answer.outside, answer.levels[1:]) <= (fast.outside + 1e-3, fast.levels[1:])
    assert answer.is_feasible or what_would_help(problem, answer)


def test_a_narrow_corridor_between_two_steps_is_declared_impossible():
    parts = (
        Part("a", PowerRange(170, 170), range(1, 201), 60),
        Part("b", PowerRange(271, 271), range(1, 201), 5),
    )
    # With 71 W for idle nodes every distribution of 100 nodes draws a multiple of 1 W + 99 a + 200 b.
    problem = CorridorProblem(100, 71.0, 17_100.2, 17_100.7, parts)
    answer = solve(problem, how="fast")
    assert not answer.is_feasible and answer.is_optimal
    assert answer.outside == pytest.approx(0.2) or answer.outside == pytest.approx(0.3)
    said = what_would_help(problem, answer)
    assert "no distribution hits the 0.5 W" in said
    assert "(whole nodes change power in steps of 1 W): move the" in said


@pytest.mark.timed
@pytest.mark.parametrize(
    ("jobs", "nodes", "kind", "seconds"),
    [
        (16, 64, {}, 0.003),
        (16, 1_000, {"watts": (170.0, 250.0)}, 0.003),
        (200, 10_000, {}, 0.015),
        (1_000, 10_000, {}, 0.075),
    ],
)
def test_half_of_the_budget_of_a_decision_is_left(jobs, nodes, kind, seconds, seconds_of):
    """The best of some runs over some instances."""
    took, answers = [], []
    for seed in range(3):
        problem = instance(jobs, nodes, seed, **kind)
        took.append(seconds_of(lambda problem=problem: answers.append(solve(problem)), times=5))
        assert answers[-1].unproven in ("", "slack")
        assert answers[-1].is_feasible
    assert min(took) < seconds


@pytest.mark.parametrize("seed", range(3))
def test_a_corridor_narrower_than_what_is_known_of_power_is_as_near_as_matters(seed):
    problem = instance(200, 10_000, seed, width=20.0)
    answer = solve(problem)
    assert not answer.is_feasible and answer.how == "fast" and is_legal(problem, answer)
    assert answer.is_optimal or (answer.unproven == "outside" and answer.gap <= 1e-3)
    assert "(least and most power are" in what_would_help(problem, answer)


@pytest.mark.timed
@pytest.mark.slow
@pytest.mark.parametrize("solver", ["HiGHS", "CBC"])
def test_ten_times_as_fast_as_a_solver(solver):
    problem = instance(200, 10_000, 1)
    fast = min(repeat(lambda: solve(problem, how="fast"), number=1, repeat=3))
    began = perf_counter()
    solve(problem, 2, solver)
    assert perf_counter() - began > 10 * fast


def test_without_a_solver(monkeypatch):
    monkeypatch.setitem(sys.modules, "pulp", None)
    problem = instance(16, 256, 3, ("pof2",))
    answer = solve(problem)
    assert is_legal(problem, answer) and answer.how == "fast" and answer.is_feasible
    with pytest.raises(InputError, match=r"HiGHS is not installed .* pip install \"dask-hpc\[power\]\""):
        solve(problem, how="HiGHS")


def test_a_solver_without_time():
    problem = instance(16, 256, 3, ("pof2",))
    answer = solve(problem, 0.0, "HiGHS")
    assert is_legal(problem, answer) and not answer.is_optimal and answer.gap > 0
