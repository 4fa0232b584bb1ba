"""The public function behind ``dask-hpc plan corridor``, and the order of the program by hand."""

from math import inf

import pytest

import dask_hpc
from dask_hpc.model.errors import InputError
from dask_hpc.model.power import PowerRange
from dask_hpc.planning.corridor import CorridorProblem, Part, sizes_of, solve, what_would_help
from dask_hpc.planning.corridor.problem import Groups


def job(name, nodes, power, low=None, high=None, **more):
    sizes = {} if low is None else {"min_nodes": low, "max_nodes": high}
    return {"id": name, "nodes": nodes, "power": power, **sizes, **more}


def test_what_cannot_change_is_not_changed_but_counts():
    plan = dask_hpc.plan_corridor(
        12,
        [
            job("rigid", 3, "300 W"),
            job("moldable", 2, 200, 1, 8, kind="moldable"),
            job("grows", 2, ("90 W", "0.1 kW"), 1, 12),
            job("rigid that waits", 0, 250, 3, 3),
        ],
        upper="2.4 kW",
        idle=50,
    )
    assert plan.before == (3 * 300 + 2 * 200 + 2 * 90 + 5 * 50, 1750)
    # 900 + 400 W stay; 7 nodes of "grows" would draw 700 W, with the other job 750 + 4 * 100 W more fit not.
    assert plan.sizes == {"rigid": 3, "moldable": 2, "grows": 7, "rigid that waits": 0}
    assert plan.changes == {"grows": (2, 7)} and plan.idle_after == 0 and plan.is_feasible
    assert plan.after == (1930, 2000)
    started = dask_hpc.plan_corridor(12, [job("grows", 2, 90, 1, 12), job("w", 0, 250, 3, 3)], "1.5 kW")
    assert started.sizes == {"grows": 9, "w": 3}, "the lower bound is met by starting work"


@pytest.mark.parametrize("nodes", [-1, 1.5, True, "two", 10**9, float("nan")])
def test_nodes_of_a_job_are_whole_numbers(nodes):
    with pytest.raises(InputError, match=r"job 'a': nodes: found .*; allowed: a whole number from 0 to"):
        dask_hpc.plan_corridor(4, [job("a", nodes, 100)], 500)


def test_with_too_much_power_it_is_said_what_jobs_would_save():
    power = PowerRange(100, 110)
    parts = (Part("a", power, range(3, 5), 3), Part("b", power, range(2, 5), 2))
    said = what_would_help(problem := CorridorProblem(5, 50, 0, 200, parts), solve(problem, how="fast"))
    assert "let a run on fewer than 3 nodes (saves up to 120 W), or run without a (saves 180 W)" in said


def test_fewest_idle_then_fewest_changed_then_the_middle():
    parts = (
        Part("a", PowerRange(100, 100), range(1, 9), 3),
        Part("b", PowerRange(200, 200), range(1, 9), 3),
    )
    # Both nodes that are idle can be given: to a (900 + 200 W), to both (1,200 W) or to b (1,300 W).
    for lower, upper, sizes in (
        (0, inf, None),
        (1000, 1200, (5, 3)),
        (1000, 1400, (4, 4)),
        (1250, 1400, (3, 5)),
        (1500, 1800, (1, 7)),
        (500, 990, (7, 1)),
    ):
        answer = solve(CorridorProblem(8, 10, lower, upper, parts), how="fast")
        assert answer.is_optimal and answer.idle_nodes == 0
        if sizes is None:
            assert answer.changed == 2 and answer.slack == inf
        else:
            assert tuple(answer.sizes.values()) == sizes
    margin = solve(CorridorProblem(8, 10, 1000, 1250, parts, margin=60), how="fast")
    assert margin.sizes == {"a": 5, "b": 3} and margin.slack == 100 and margin.is_feasible


def test_sizes():
    assert sizes_of("any", 2, 5) == range(2, 6)
    assert sizes_of("any", 1, 3, may_wait=True) == range(4)
    assert sizes_of("any", 2, 4, may_wait=True) == (0, 2, 3, 4)
    assert sizes_of("pof2", 3, 20) == (4, 8, 16)
    assert sizes_of("cube", 2, 30, may_wait=True) == (0, 8, 27)
    assert sizes_of("square", 5, 8) == ()


def test_groups_are_split_towards_the_size_of_the_group():
    power = PowerRange(100, 110)
    parts = (
        Part("a", power, range(1, 5), 4),
        Part("b", power, range(2, 9), 1),
        Part("c", power, (2, 4, 8), 2),
        Part("d", PowerRange(100, 120), range(1, 3), 1),
    )
    groups = Groups(CorridorProblem(20, 50, 0, inf, parts))
    assert {part.id: (part.sizes, part.now) for part in groups.merged.parts} == {
        "c": ((2, 4, 8), 2),
        "a": (range(3, 13), 6),
        "d": (range(1, 3), 1),
    }
    assert groups.split({"a": 9, "c": 4, "d": 2}) == {"a": 4, "b": 5, "c": 4, "d": 2}
    assert groups.split({"a": 4, "c": 2, "d": 1}) == {"a": 2, "b": 2, "c": 2, "d": 1}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"lower": 5, "upper": 3}, "corridor: found 5 to 3 W"),
        ({"lower": float("nan")}, "corridor: found nan"),
        ({"idle": -1}, "idle: found -1"),
        ({"margin": inf}, "margin: found inf"),
        ({"parts": (Part("a", PowerRange(1, 1), (), 0),)}, "a: no size is allowed"),
        ({"nodes": 1}, "nodes: found 1 node|nodes: 1 node for parts that need 2 at least"),
    ],
)
def test_a_problem_that_makes_no_sense_is_a_complaint(change, said):
    good = {"nodes": 4, "idle": 1, "lower": 0, "upper": 9, "parts": (Part("a", PowerRange(1, 1), (2, 3), 2),)}
    CorridorProblem(**good)
    with pytest.raises(InputError, match=said):
        CorridorProblem(**good | change)
