"""Analyses that do not keep up: waited for, left out, thinned out, put off."""

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_hpc.model.errors import InputError
from dask_hpc.planning.in_situ.back_pressure import WHEN_SLOW, BackPressure, Slow


def play(what, speed, iterations=64, stall=0.5, limit=4):
    """An analysis that takes ``speed`` iterations' time; gives the iterations that ran, were skipped or
    spilled, those waited for, and the most that were under way at a time."""
    pressure = BackPressure({"a": Slow(what, stall, limit)})
    clock, ends, free = 0.0, {}, 0.0
    done = {"run": [], "skip": [], "spill": []}
    waited, most = [], 0
    for i in range(iterations):
        clock += 1.0

        def running(now):
            return {"a": [r for r, end in ends.items() if end > now]}

        for name, seconds in pressure.waits(i, running(clock)).items():
            assert name == "a"
            rest = [end for end in ends.values() if end > clock]
            until = rest[0] if what != "spill" or seconds == inf else rest[-1]
            waited.append(min(until - clock, seconds))
            clock = min(until, clock + seconds)  # a sum of differences would end a rounding error too early
        deed, reason = pressure.deeds(i, running(clock))["a"]
        done[deed].append(i)
        assert bool(reason) == (deed != "run")
        if deed != "skip":
            free = max(free, clock) + speed
            ends[i] = free
        most = max(most, len(running(clock)["a"]))
    return done, waited, most


def test_who_keeps_up_is_never_waited_for():
    for what in WHEN_SLOW:
        done, waited, _ = play(what, 0.9)
        assert done["run"] == [*range(64)] and not waited


def test_wait_does_all_and_waits_as_long_as_it_takes():
    done, waited, most = play("wait", 5.0)
    assert done["run"] == [*range(64)] and max(waited) == pytest.approx(4.0) and most == 1


def test_skip_leaves_out_what_comes_meanwhile_and_waits_once_for_a_run():
    done, waited, most = play("skip", 5.0)
    assert most == 1 and done["run"][:3] == [0, 5, 10]
    assert {*done["run"]} | {*done["skip"]} == {*range(64)}
    assert max(waited) <= 0.5 and len(waited) == len(done["run"])


def test_subsample_thins_out_until_it_keeps_up():
    done, waited, most = play("subsample", 5.0)
    assert most == 1 and done["run"][-3:] == [40, 48, 56]
    assert len(waited) == 3 and max(waited) <= 0.5  # late at every first, second and fourth; then never again


def test_another_partition_tries_every_iteration_again():
    pressure = BackPressure({"a": Slow("subsample")})
    pressure.deeds(1, {"a": [0]})
    assert pressure.every == {"a": 2}
    pressure.restart()
    assert pressure.every == {"a": 1}


def test_spill_leaves_out_nothing_and_is_bounded():
    done, waited, most = play("spill", 5.0)
    assert not done["skip"] and len(done["run"]) + len(done["spill"]) == 64
    assert most <= 4 + 1 and inf not in waited


@settings(deadline=None)
@given(st.sampled_from(WHEN_SLOW), st.floats(0.1, 20), st.floats(0, 3), st.integers(1, 5))
def test_every_iteration_is_accounted_for_and_runs_under_way_are_bounded(what, speed, stall, limit):
    done, waited, most = play(what, speed, 40, stall, limit)
    assert sorted(i for found in done.values() for i in found) == [*range(40)]
    assert most <= (limit + 1 if what == "spill" else 1)
    if what in ("skip", "subsample"):
        assert all(seconds <= stall for seconds in waited)


@pytest.mark.parametrize(
    ("given_", "where"),
    [({"what": "hurry"}, "when_slow"), ({"stall": -1}, "stall"), ({"limit": 0}, "spill_limit")],
)
def test_what_cannot_be_used_is_said(given_, where):
    with pytest.raises(InputError, match=where):
        Slow(**given_)
