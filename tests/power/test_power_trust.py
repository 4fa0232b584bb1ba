"""Which sensors are trusted: each way to be wrong is found within three readings, and forgiven when over."""

import math
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.power.scheduler.meters import NodeReading, SensorReading
from dask_hpc.power.scheduler.sight import Trust, TrustedSensors


def says(number, watts, load=0.0, problem=""):
    return SensorReading(number, watts, load, {"n": NodeReading(watts, 1.0, "measured", True)}, problem)


def after(trust, readings, start=0):
    """What is doubted after each of these readings (watts and load), one a second."""
    doubts = []
    for number, (watts, load) in enumerate(readings, start):
        trust.look(float(number), says(number, watts, load), 1.0)
        doubts.append(trust.doubt)
    return doubts


@given(st.lists(st.tuples(st.floats(1, 1e4), st.floats(0, 1)), unique_by=lambda one: one[0]))
def test_readings_that_move_are_trusted_whatever_the_load(readings):
    assert not any(after(Trust(0.0), readings))


@pytest.mark.parametrize("watts", [0.0, -5.0, math.nan, math.inf, 1e6])
def test_what_cannot_be_is_doubted_at_once_and_forgiven_after_three(watts):
    trust = Trust(0.0)
    doubts = after(trust, [(100.0, 0.5), (watts, 0.5), (101.0, 0.5), (102.0, 0.5), (103.0, 0.5)])
    assert [bool(doubt) for doubt in doubts] == [False, True, True, True, False]
    assert f"{watts:g} W" in doubts[1]


def test_what_cannot_be_read_is_doubted():
    trust = Trust(0.0)
    trust.look(0.0, says(0, 0.0, problem="hpc_power: watts: found 'x'"), 1.0)
    assert trust.doubt == "hpc_power: watts: found 'x'"


def test_frozen_is_found_at_the_third_reading_after_the_load_changed():
    trust = Trust(0.0)
    doubts = after(
        trust, [(100.0, 0.0)] * 5 + [(100.0, 1.0)] * 4 + [(180.0, 1.0), (181.0, 1.0), (182.0, 1.0)]
    )
    assert [bool(doubt) for doubt in doubts] == [False] * 7 + [True] * 4 + [False]
    assert doubts[7] == "it says 100 W whatever the load is"


def test_the_same_watts_under_the_same_load_are_no_sign():
    assert not any(after(Trust(0.0), [(100.0, 1.0)] * 50))
    assert not any(after(Trust(0.0), [(100.0, 0.9), (100.0, 1.0)] * 20))


def test_silence_is_found_within_three_readings_and_not_before_two():
    trust = Trust(0.0)
    trust.look(0.0, says(7, 100.0), 1.0)
    doubts = []
    for quarter in range(1, 17):
        trust.look(quarter / 4, says(7, 100.0), 1.0)
        doubts.append(trust.doubt)
    assert not any(doubts[:8]) and all(doubts[11:]), "within three readings"
    first = next(doubt for doubt in doubts if doubt)
    assert first.startswith("no new reading for") and set(doubts) == {"", first}


def test_a_new_machine_has_time_to_say_something():
    trust = Trust(100.0)
    for now, is_doubted in ((101.0, False), (109.0, False), (110.5, True)):
        trust.look(now, None, 1.0)
        assert bool(trust.doubt) == is_doubted


def test_each_episode_is_told_once_for_all_nodes_of_a_machine():
    told = []
    sensors = TrustedSensors(SimpleNamespace(tell=lambda *words: told.append(words)))
    parts = dict.fromkeys("ab", NodeReading(50.0, 1.0, "measured", True))

    def look(number, watts):
        one = SensorReading(number, watts, 0.5, parts)
        return sensors.look(float(number), {"host": one}, ["a", "b"], 1.0)

    for number in range(20):
        doubts = look(number, 0.0 if 5 <= number < 10 else 100.0 + number)
        assert doubts["a"] == doubts["b"] and bool(doubts["a"]) == (5 <= number < 12)
    assert [kind for kind, _ in told] == ["power-doubt", "power-trust"]
    assert "nodes a, b: it says 0 W" in told[0][1] and "the model stands in" in told[0][1]


def test_a_sensor_that_vanishes_is_missed_and_nodes_that_leave_are_not():
    told = []
    sensors = TrustedSensors(SimpleNamespace(tell=lambda *words: told.append(words)))
    sensed = {"host": says(0, 100.0)}
    assert sensors.look(0.0, sensed, ["n"], 1.0) == {"n": ""}
    assert sensors.look(3.0, {}, ["n"], 1.0)["n"].startswith("no new reading")
    assert sensors.look(4.0, {}, [], 1.0) == {} and len(told) == 1
    assert sensors.look(5.0, {}, ["n"], 1.0) == {"n": ""}  # another node of that name begins anew
