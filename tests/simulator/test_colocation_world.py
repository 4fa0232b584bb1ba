"""The small world of co-location: what becomes of tasks, and how cores and nodes are used."""

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc.model.errors import InputError
from dask_hpc.planning.colocation.table import SlowdownTable
from dask_hpc.simulator.colocation import ColocationWorld, DrawnTasks, play_colocation

HEAVY = {"cg": 1.0, "sp": 0.45, "fluid": 0.35, "ep": 0.0}
SECONDS = {"cg": 250.0, "sp": 420.0, "fluid": 300.0, "ep": 180.0}


def table_of(strength, kinds=tuple(HEAVY), cores=4):
    def law(kind, others):
        return 1 + strength * HEAVY[kind] * sum(HEAVY[one] * count for one, count in others.items()) ** 0.8

    return SlowdownTable.of(kinds, cores, law)


def world(strength=0.33, **more):
    return ColocationWorld(table_of(strength), SECONDS, **{"nodes": 20, "tasks": 300, "gap": 2.5} | more)


def told(one, error=0.03, seed=0):
    return one.table.disturbed(error, np.random.default_rng((seed, 1)))


def played(monkeypatch, one, arrivals, kinds, deadlines, heuristic="perfect", predicted=None):
    """With tasks that are not drawn."""
    drawn = DrawnTasks(np.array(arrivals, float), np.array(kinds), np.array(deadlines, float))
    monkeypatch.setattr(ColocationWorld, "draw", lambda self, seed: drawn)
    return play_colocation(one, heuristic, predicted=predicted)


def test_two_tasks_by_hand(monkeypatch):
    """Both cores are used from 50 s on; 50 of 250 s of work are done, the rest at 1 / 1.33."""
    one = ColocationWorld(table_of(0.33, ("cg",), 2), SECONDS, nodes=2, tasks=2)
    run = played(monkeypatch, one, [0, 50], [0, 0], [1000, 1000])
    first = 50 + 200 * 1.33
    second = first + (250 - 200)
    assert run.times.tolist() == pytest.approx([0, 50, first, second])
    assert run.active_cores.tolist() == [1, 2, 1, 0] and run.active_nodes.tolist() == [1, 1, 1, 0]
    assert run.series("CU").tolist() == [0.25, 0.5, 0.25, 0] and run.peak_of("CU") == 0.5
    assert run.series("NU").tolist() == [0.5, 0.5, 0.5, 0]
    assert run.series("CUAN").tolist() == [0.5, 1, 0.5, 0]
    assert run.mean_of("CU", 0, 100) == pytest.approx((0.25 * 50 + 0.5 * 50) / 100)
    assert run.mean_of("CUAN", second - 10, second + 10) == pytest.approx(0.25)
    assert run.fates == {"completed": 2, "missed": 0, "unassigned": 0} and run.last_arrival == 50


def test_usage_of_several_nodes(monkeypatch):
    """Three tasks of half a second, on nodes of two cores."""
    one = ColocationWorld(table_of(0, ("ep",), 2), {"ep": 0.5}, nodes=3, tasks=3)
    run = played(monkeypatch, one, [0, 0.1, 0.2], [0, 0, 0], [9, 9, 9])
    assert run.series("CUAN").tolist() == pytest.approx([0.5, 1, 0.75, 0.5, 0.5, 0])
    assert run.series("CU").tolist() == pytest.approx([1 / 6, 2 / 6, 3 / 6, 2 / 6, 1 / 6, 0])
    assert run.series("NU").tolist() == pytest.approx([1 / 3, 1 / 3, 2 / 3, 2 / 3, 1 / 3, 0])


def test_deadlines_of_those_that_run_and_those_that_wait(monkeypatch):
    """On one core each: the second never gets a core in time, the third waits until the first has ended."""
    one = ColocationWorld(table_of(0, ("ep",), 1), SECONDS, nodes=1, tasks=3)
    run = played(monkeypatch, one, [0, 10, 20], [0, 0, 0], [400, 355, 361], "naive")
    assert run.fates == {"completed": 2, "missed": 0, "unassigned": 1}
    assert run.times[-1] == pytest.approx(360)
    # two that slow each other: naive slack lets one of them miss its deadline, and its core is free then
    pair = ColocationWorld(table_of(1.0, ("cg",), 2), SECONDS, nodes=1, tasks=2)
    run = played(monkeypatch, pair, [0, 0], [0, 0], [300, 2000], "naive")
    assert run.fates == {"completed": 1, "missed": 1, "unassigned": 0}
    assert run.times.tolist() == pytest.approx([0, 0, 300, 300 + 250 - 150])
    run = played(monkeypatch, pair, [0, 0], [0, 0], [300, 2000])
    assert run.fates == {"completed": 2, "missed": 0, "unassigned": 0}
    assert run.times[-1] == pytest.approx(500), "perfect lets the second wait"


def test_a_wrong_belief_misses(monkeypatch):
    """Who is told that nobody interferes decides as naive slack does."""
    pair = ColocationWorld(table_of(1.0, ("cg",), 2), SECONDS, nodes=1, tasks=2)
    nobody = table_of(0.0, ("cg",), 2)
    run = played(monkeypatch, pair, [0, 0], [0, 0], [300, 2000], "aware", nobody)
    assert run.fates["missed"] == 1
    too_much = table_of(9.0, ("cg",), 2)
    run = played(monkeypatch, pair, [0, 0], [0, 0], [1000, 1000], "aware", too_much)
    assert run.times[-1] == pytest.approx(500), "one after the other, where both would have done"


@given(st.integers(0, 10**6), st.floats(0, 1.5), st.floats(0.5, 20), st.integers(1, 12))
@settings(max_examples=25, deadline=None)
def test_whatever_comes(seed, strength, gap, nodes):
    one = world(strength, tasks=60, gap=gap, nodes=nodes)
    for heuristic in ("naive", "aware", "perfect"):
        predicted = told(one, seed=seed) if heuristic == "aware" else None
        run = play_colocation(one, heuristic, seed, predicted)
        assert sum(run.fates.values()) == 60
        assert (np.diff(run.times) >= 0).all() and run.active_cores[-1] == run.active_nodes[-1] == 0
        assert (run.active_cores <= 4 * run.active_nodes).all() and (run.active_nodes <= nodes).all()
        assert (run.active_nodes <= run.active_cores).all()
        if heuristic == "perfect":
            assert run.fates["missed"] == 0
        busy = run.mean_of("CU", 0, run.times[-1]) * run.times[-1] * 4 * nodes
        assert busy >= run.fates["completed"] * min(SECONDS.values()) * (1 - 1e-9)


def test_without_interference_all_heuristics_do_the_same():
    one = world(0.0)
    runs = [play_colocation(one, "naive", 3), play_colocation(one, "perfect", 3),
            play_colocation(one, "aware", 3, one.table)]  # fmt: skip
    for run in runs:
        assert run.fates == runs[0].fates and run.fates["missed"] == 0
        assert run.times.tolist() == pytest.approx(runs[0].times.tolist())
        assert (run.active_nodes == runs[0].active_nodes).all()
    drawn = one.draw(3)
    done = np.array(one.alone)[drawn.kinds].sum()
    assert runs[0].fates["unassigned"] == 0
    used = runs[0].mean_of("CU", 0, runs[0].times[-1]) * runs[0].times[-1] * 80
    assert used == pytest.approx(done), "cores are active as long as tasks take"


def test_aware_of_the_truth_is_perfect():
    one = world(gap=1.0)
    perfect = play_colocation(one, "perfect", 5)
    for progress in ("predicted", "observed"):
        aware = play_colocation(one, "aware", 5, one.table, progress)
        assert aware.fates == perfect.fates and (aware.active_cores == perfect.active_cores).all()
    errors = [
        play_colocation(one, "aware", 5, told(one, 0.2), progress) for progress in ("predicted", "observed")
    ]
    assert all(run.fates["missed"] > 0 for run in errors)
    assert (errors[0].times.shape, errors[0].fates) != (errors[1].times.shape, errors[1].fates)


def test_as_the_study_has_it():
    """More tasks come than there is room for: aware slack completes more than naive, and less than
    perfect."""
    shares = []
    for seed in range(3):
        one = world(nodes=25, tasks=400, gap=2.0)
        aware = play_colocation(one, "aware", seed, told(one, 0.031, seed))
        runs = [play_colocation(one, "naive", seed), aware, play_colocation(one, "perfect", seed)]
        shares.append([run.share("completed") for run in runs])
        assert runs[0].mean_of("CU", 400, 800) > runs[2].mean_of("CU", 400, 800)
    naive, aware, perfect = np.mean(shares, axis=0)
    assert naive < aware - 0.05 and aware < perfect


def test_arrivals():
    one = world(tasks=20_000, gap=0.5)
    drawn = one.draw(1)
    assert drawn.arrivals[0] == 0 and np.diff(drawn.arrivals).mean() == pytest.approx(0.5, rel=0.03)
    assert np.diff(drawn.arrivals).std() == pytest.approx(0.5, rel=0.05)
    assert (np.abs(np.bincount(drawn.kinds) / 20_000 - 0.25) < 0.02).all()
    given = (drawn.deadlines - drawn.arrivals) / np.array(one.alone)[drawn.kinds]
    assert given.min() >= 1.2 and given.max() <= 2.0 and given.mean() == pytest.approx(1.6, abs=0.01)
    assert (one.draw(1).deadlines == drawn.deadlines).all() and (
        one.draw(2).deadlines != drawn.deadlines
    ).any()


@pytest.mark.parametrize(
    "wrong, words",
    [
        ({"nodes": 0}, "nodes: found 0"),
        ({"tasks": 0}, "tasks"),
        ({"gap": 0.0}, "gap: found 0"),
        ({"gap": inf}, "gap"),
        ({"nodes": 1.5}, "nodes"),
        ({"deadlines": (2.0, 1.2)}, "deadlines"),
    ],
)
def test_worlds_that_are_none(wrong, words):
    with pytest.raises(InputError, match=words):
        world(**wrong)


def test_what_cannot_be_played():
    one = world(tasks=3)
    for wrong in (
        lambda: play_colocation(one, "lucky"),
        lambda: play_colocation(one, "aware"),
        lambda: play_colocation(one, "perfect", predicted=one.table),
        lambda: play_colocation(one, "aware", predicted=one.table, progress="guessed"),
        lambda: ColocationWorld(one.table, {"cg": 1.0}),
        lambda: ColocationWorld(one.table, SECONDS | {"ep": 0.0}),
        lambda: play_colocation(one, "naive").mean_of("CU", 5, 5),
    ):
        with pytest.raises(InputError):
            wrong()
