"""EASY backfilling on cases worked out by hand."""

import math
import random

import pytest
from small_machine import decided, machine, wait

from dask_hpc.model.job import Job
from dask_hpc.model.node import Node
from dask_hpc.model.snapshot import Indices, Snapshot
from dask_hpc.strategies.queue.easy_backfill import EasyBackfill
from dask_hpc.strategies.queue.profile import shadow_time


def test_seed_example_of_four_jobs_on_ten_processors():
    """Seed 001, figure 5.1: J3 starts beside J1."""
    indices = machine(10, now=0.0)
    wait(indices, ("J1", 8, 4), ("J2", 4, 4), ("J3", 2, 4), ("J4", 8, 4))
    assert decided(indices, EasyBackfill())[0] == ["J1", "J3"]


def test_overtaking_must_end_before_the_reservation():
    indices = machine(4, (2, 100.0))
    wait(indices, ("head", 4, 50), ("long", 2, 91), ("short", 2, 90))
    assert decided(indices, EasyBackfill())[0] == ["short"]  # 10 + 90 is exactly the shadow time


def test_or_fit_into_what_the_head_leaves_over():
    indices = machine(6, (4, 100.0))
    wait(indices, ("head", 4, 50), ("big", 2, 1000), ("late", 1, 1000))
    # at 100 s six nodes are free, the head takes four, two are spare: "big" uses them up
    assert decided(indices, EasyBackfill())[0] == ["big"]


def test_nodes_released_at_the_very_shadow_time_are_spare():
    indices = machine(6, (2, 100.0), (2, 100.0))
    wait(indices, ("head", 3, 50), ("long", 1, 1000), ("long2", 1, 1000))
    # idle 2; at 100 s all six come free, the head takes three, three are spare
    assert decided(indices, EasyBackfill())[0] == ["long", "long2"]


def test_jobs_started_in_the_same_decision_count():
    indices = machine(6, (2, 500.0))
    wait(indices, ("a", 2, 100), ("head", 4, 50), ("fits", 2, 100), ("not", 2, 101))
    # "a" starts and ends at 110, when the head can start: only what ends by then may overtake
    assert decided(indices, EasyBackfill())[0] == ["a", "fits"]


def test_newcomers_are_asked_without_asking_everybody_again():
    indices = machine(4, (2, 100.0))
    wait(indices, ("head", 4, 50), ("long", 2, 91))
    names, memory = decided(indices, EasyBackfill())
    assert names == [] and memory is not None
    indices.now = 20.0
    wait(indices, ("new", 1, 80), ("new2", 1, 81))
    names, memory = decided(indices, EasyBackfill(), memory)
    assert names == ["new"]
    assert memory is not None and memory.revision == indices.revision


def test_depth_bounds_the_overtakers_of_one_decision():
    indices = machine(6, (2, 100.0))
    wait(indices, ("head", 6, 50), *((f"s{i}", 1, 10) for i in range(4)))
    strategy = EasyBackfill(depth=2)
    assert decided(indices, strategy)[0] == ["s0", "s1"]
    assert decided(machine_with_head(), EasyBackfill(depth=0))[0] == []


def machine_with_head():
    indices = machine(6, (2, 100.0))
    wait(indices, ("head", 6, 50), ("s", 1, 10))
    return indices


def test_unknown_walltimes_reserve_nothing():
    indices = machine(4, (2, float("inf")))
    wait(indices, ("head", 4, 50), ("any", 2, float("inf")))
    starts, _ = EasyBackfill().decide(Snapshot(indices), None)
    assert [start.job for start in starts] == ["any"]
    assert "nobody knows" in starts[0].reason


def test_reasons_name_the_head():
    indices = machine(4, (2, 100.0))
    wait(indices, ("head", 4, 50), ("short", 1, 90))
    starts, _ = EasyBackfill().decide(Snapshot(indices), None)
    assert starts[0].reason == "overtakes job head: ends before that can start in 90 s"


@pytest.mark.parametrize("seed", range(100))
def test_the_shadow_is_the_first_time_at_which_enough_are_free(seed):
    rng = random.Random(seed)
    indices = Indices(Node(str(number)) for number in range(40))
    for number in range(rng.randint(0, 8)):
        walltime = rng.choice((60.0, 300.0, 600.0, math.inf))
        indices.waiting.add(Job(id=str(number), nodes=rng.randint(1, 4), walltime=walltime))
        indices.start(str(number), indices.waiting[str(number)].nodes)
    starting = [(rng.choice((30.0, 60.0, 300.0, 400.0)), rng.randint(1, 3)) for _ in range(rng.randint(0, 4))]
    idle = len(indices.idle) - sum(nodes for _, nodes in starting)
    nodes = idle + rng.randint(1, 20)
    ends = [(one.expected_end, len(one.nodes)) for one in indices.running.values()] + starting

    def free_at(time):
        return idle + sum(nodes for end, nodes in ends if end <= time)

    enough = sorted(time for time in {end for end, _ in ends} if free_at(time) >= nodes)
    expected = (enough[0], free_at(enough[0]) - nodes) if enough else (math.inf, idle)
    assert shadow_time(Snapshot(indices), starting, nodes, idle) == expected
