"""The made-up meter follows the load with a lag and a noise that a seed repeats, and breaks on demand."""

import math

import pytest

from dask_hpc.power.scheduler.meters import NodeUse, SimulatedMeter


def seen(meter, now, **running):
    uses = {name: NodeUse(tasks, 4, 1, tasks) for name, tasks in running.items()}
    return meter.look(now, {}, None, uses)


def test_power_follows_the_load_with_a_lag():
    meter = SimulatedMeter(idle=60, busy=140, lag=2.0, noise=0.0)
    assert seen(meter, 0.0, a=0)["a"].watts == 60
    seen(meter, 1.0, a=4)
    for now in range(2, 9):
        watts = seen(meter, float(now), a=4)["a"].watts
        assert watts == pytest.approx(60 + 140 * (1 - math.exp(-now / 2)))
    assert seen(meter, 100.0, a=2)["a"].watts == pytest.approx(130)
    assert meter.true_watts == {"a": pytest.approx(130)}


def test_workers_of_a_node_add_up():
    meter = SimulatedMeter(idle=60, busy=140, lag=0.0, noise=0.0)
    found = meter.look(0.0, {}, None, {"a": NodeUse(4, 8, 2, 4)})
    assert found["a"].watts == 260 and found["a"].parts["a"][2:4] == ("modelled", True)
    assert meter.model(NodeUse(0, 8, 2)).watts(0.5) == 260


def test_readings_are_new_once_in_an_interval():
    meter = SimulatedMeter(interval=1.0)
    numbers = [seen(meter, now / 4, a=1)["a"].number for now in range(12)]
    assert len(set(numbers)) == 3 == meter.readings
    watts = [seen(meter, 3 + now / 4, a=1)["a"].watts for now in range(4)]
    assert len(set(watts)) == 1


def test_the_seed_says_all_and_noise_is_as_large_as_it_says():
    def run(seed):
        meter = SimulatedMeter(idle=100, busy=0, lag=0.0, noise=0.03, seed=seed)
        return [seen(meter, float(now), a=0)["a"] for now in range(2000)]

    one, again, other = run(1), run(1), run(2)
    assert [s.watts for s in one] == [s.watts for s in again] != [s.watts for s in other]
    within = sum(abs(s.watts - 100) <= s.parts["a"].uncertainty for s in one) / len(one)
    assert 0.93 < within < 0.97


def test_sensors_break_on_demand_and_are_mended():
    meter = SimulatedMeter(lag=0.0)
    before = seen(meter, 0.0, a=0, b=0)["a"].watts
    meter.faults = {"a": "freeze", "b": "zero"}
    for now in range(1, 5):
        found = seen(meter, float(now), a=4, b=4)
        assert found["a"].watts == before and found["b"].watts == 0
        assert meter.true_watts == {"a": 200, "b": 200}
    meter.faults.clear()
    assert seen(meter, 5.0, a=4, b=4)["a"].watts == pytest.approx(200, rel=0.2)
    assert set(seen(meter, 6.0, b=4)) == {"b"} == set(meter.true_watts)
