"""What is expected of nodes and jobs, from what was seen of them."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.model.job import Job
from dask_hpc.model.power import PowerRange
from dask_hpc.model.snapshot import Running
from dask_hpc.planning.power_level import WINDOW, LevelWindow, quantiles
from dask_hpc.power.model import PowerModel
from dask_hpc.power.scheduler.meters import NodeReading, NodeUse
from dask_hpc.power.scheduler.sight import JobLevel, Levels, in_doubt, total

MODEL = PowerModel(50.0, 150.0, 5.0, 15.0)


def reads(watts, doubt=""):
    return NodeReading(watts, 2.0, "measured", True, doubt)


def use(running, threads=4):
    return NodeUse(running, threads, 1, running)


@given(st.lists(st.floats(0, 1e4), min_size=1))
def test_quantiles_are_among_what_was_seen_and_in_order(values):
    least, most = quantiles(values)
    assert min(values) <= least <= most <= max(values)
    assert least in values and most in values


def test_quantiles_leave_out_the_tails():
    assert quantiles([*range(100)]) == (5, 94)


def test_a_window_forgets():
    window = LevelWindow()
    for second in range(3):
        window.add(second, 500.0)
    assert window.range == (500, 500)
    for second in range(100):
        window.add(WINDOW + 3 + second, 100.0)
    assert window.range == (100, 100)


def test_a_job_counts_when_it_has_settled_on_its_nodes():
    level = JobLevel()
    for second in range(3):
        level.add(second, ("a", "b"), 60.0)  # it has just started, power rises
    assert level.window.range is None and level.whole_life is None
    for second in range(3, 9):
        level.add(second, ("a", "b"), 200.0)
    assert level.window.range == PowerRange(200, 200) == level.whole_life
    for second in range(9, 12):
        level.add(second, ("a", "b", "c"), 150.0)  # the new node is not at work yet
    assert level.window.range == PowerRange(200, 200) and len(level.nodes) == 3


def test_a_long_life_is_kept_in_little_memory():
    level = JobLevel()
    for second in range(20_000):
        level.add(second, ("a",), 100.0 if second < 10_000 else 200.0)
    assert len(level._whole_life) <= 512 and level.whole_life == (100, 200)
    assert level.window.range == (200, 200)


def test_idle_and_full_power_are_learned_and_doubted_readings_are_not():
    levels = Levels()
    assert levels.expected("a", 0, MODEL) == 50 and levels.expected("a", 0.5, MODEL) == 100
    for second in range(20):
        levels.add(second, {"a": reads(80.0), "b": reads(9.0, "it lies")}, {"a": use(0), "b": use(0)}, [])
    assert levels.expected("a", 0, MODEL) == pytest.approx(80) and levels.expected("b", 0, MODEL) == 50
    for second in range(20, 40):
        levels.add(second, {"a": reads(400.0)}, {"a": use(4)}, [])
    assert levels.expected("a", 0.5, MODEL) == pytest.approx(240)
    assert levels.active.range == levels.outside.range == PowerRange(400, 400) and levels.highest == 400


def test_nodes_in_between_are_neither_idle_nor_at_work():
    levels = Levels()
    for second in range(30):  # two looks idle, two at work
        running = 4 * (second // 2 % 2)
        levels.add(second, {"a": reads(100.0)}, {"a": use(running)}, [])
    assert levels.active.range is None and levels.expected("a", 0, MODEL) == 50


def test_a_jobs_nodes_do_not_count_as_outside_work():
    levels, job = Levels(), Running(Job(id="j", nodes=2), ("a", "b"), 0.0, inf, 0)
    for second in range(10):
        readings = {"a": reads(300.0), "b": reads(200.0), "c": reads(100.0)}
        levels.add(second, readings, dict.fromkeys("abc", use(4)), [job])
    assert levels.outside.range == PowerRange(100, 100) and levels.jobs["j"].window.range == (250, 250)


@given(st.lists(st.tuples(st.floats(0, 1e4), st.floats(0, 1e3), st.booleans()), max_size=20))
def test_errors_add_up_at_most_and_chance_makes_up_for_itself(found):
    readings = {str(n): NodeReading(w, u, "measured", c) for n, (w, u, c) in enumerate(found)}
    watts, uncertainty, source = total(readings)
    assert watts == pytest.approx(sum(w for w, _, _ in found))
    assert max((u for _, u, _ in found), default=0) <= uncertainty + 1e-9
    assert uncertainty <= sum(u for _, u, _ in found) + 1e-6
    assert source == ("measured" if found else "modelled")


def test_the_worst_source_counts_and_few_doubts_are_named():
    readings = {
        "a": NodeReading(1.0, 0.0, "measured", True),
        "b": NodeReading(1.0, 0.0, "estimated", False),
    }
    assert total(readings)[2] == "estimated" and in_doubt(readings) == ""
    many = {str(n): reads(1.0, "it lies") for n in range(5)}
    assert in_doubt(many) == "node 0: it lies; node 1: it lies; node 2: it lies; and 2 more"
