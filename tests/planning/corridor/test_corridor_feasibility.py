"""Which mixes of the batch study's Pi and heat jobs keep which corridor on 14 nodes (seed 000, 3.3.3)."""

import pytest

from dask_hpc.model.power import PowerRange
from dask_hpc.planning.corridor import CorridorProblem, Part, reachable, solve, what_would_help

PI, HEAT, IDLE, NODES = 170.0, 250.0, 71.0, 14
MIXES = [(a, h) for a in range(11) for h in range(11) if 1 <= a + h <= NODES]


def mix(pi, heat, lower, upper):
    watts = {f"pi{n}": PI for n in range(pi)} | {f"heat{n}": HEAT for n in range(heat)}
    parts = [Part(name, PowerRange(w, w), range(1, NODES + 1), 1) for name, w in watts.items()]
    return CorridorProblem(NODES, IDLE, lower, upper, tuple(parts))


def answers(lower, upper):
    """The answer for every mix, each proven to be the best."""
    found = {one: solve(mix(*one, lower, upper), how="fast") for one in MIXES}
    assert all(answer.is_optimal for answer in found.values())
    return found


def test_the_first_corridor():
    found = answers(1700, 2500)
    assert all(found[0, heat].idle_nodes == 6 for heat in range(1, 9)), "8 nodes of heat draw 2.43 kW"
    assert all(found[pi, 0].idle_nodes == 0 for pi in range(1, 11)), "14 nodes of Pi draw 2.38 kW"
    infeasible = {one for one in MIXES if not found[one].is_feasible}
    assert {(3, 7), (5, 6), (7, 5)} <= infeasible
    # With every job on one node power is 994 + 99 a + 179 h, and no other distribution draws less.
    assert infeasible == {(a, h) for a, h in MIXES if 994 + 99 * a + 179 * h > 2500}
    assert min(sum(one) for one in infeasible) == 9, "only near full occupancy, by many heat jobs"
    assert min(heat for _, heat in infeasible) == 3


def test_the_second_corridor():
    most_heat = {0: 3, 1: 3, 2: 2, 3: 2, 4: 1, 5: 1, 6: 0, 7: 0}
    for (pi, heat), answer in answers(1000, 1700).items():
        assert answer.is_feasible == (heat <= most_heat.get(pi, -1)), (pi, heat)


def test_the_third_corridor():
    for (pi, heat), answer in answers(2500, 3500).items():
        assert answer.is_feasible == (heat > 0), (pi, heat)


def test_the_bounds_of_the_machine():
    assert reachable(mix(0, 1, 0, 1)) == (1173, 3500), "one node of heat; heat on every node"
    assert reachable(CorridorProblem(NODES, IDLE, 0, 1, ())) == (994, 994)


@pytest.mark.parametrize("how", ["fast", "HiGHS"])
def test_what_would_help(how):
    low = mix(4, 4, 1000, 1700)
    answer = solve(low, how=how)
    assert answer.slack == -406 and answer.sizes == dict.fromkeys(answer.sizes, 1)
    assert "raise the upper bound by 406 W" in what_would_help(low, answer)
    high = mix(3, 0, 2500, 3500)
    answer = solve(high, how=how)
    assert answer.slack == -120 and answer.idle_nodes == 0
    assert "lower the lower bound by 120 W, or start a job that draws more" in what_would_help(high, answer)
