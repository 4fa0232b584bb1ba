"""Plans of commits in human units."""

from math import inf, isnan

import pytest

import dask_hpc
from dask_hpc.model.errors import InputError

PARTNER = {"name": "partner", "commit": "5s", "mtbf": "10h"}
STORE = {"name": "store", "commit": "150s", "mtbf": "7d"}
POWER = {"computing": "750W", "committing": "178W"}


def test_a_plan_and_how_it_compares():
    plan = dask_hpc.plan_interval([PARTNER, STORE], "24h")
    assert plan.every["partner"] == plan.pattern.work < plan.every["store"]
    assert all(plan.efficiency > way.efficiency for way in plan.others)
    best = max(plan.curve, key=lambda way: way.efficiency)
    assert best.efficiency == pytest.approx(plan.efficiency, abs=1e-9) and best.work == plan.pattern.work
    assert "a failure every 9.4 h" in plan.reason


def test_a_short_run_commits_nothing_to_the_store():
    plan = dask_hpc.plan_interval([PARTNER, STORE | {"mtbf": "300d"}], "4h")
    assert plan.every["store"] == inf and plan.every["partner"] < inf


def test_where_it_does_not_pay():
    plan = dask_hpc.plan_interval([STORE], "10 min")
    assert plan.pattern is None and plan.every == {"store": inf} and plan.curve == ()
    assert "more than it would save" in plan.reason and 0.99 < plan.efficiency < 1
    assert "nothing ever fails" in dask_hpc.plan_interval([STORE | {"mtbf": "inf"}]).reason


@pytest.mark.parametrize(
    "levels, run, words",
    [
        ([STORE, PARTNER], "1h", "cheaper than 'store'"),
        ([PARTNER, PARTNER], "1h", "twice"),
        ([{"name": "x", "commit": "5s"}], "1h", "mtbf: is missing"),
        ([{"name": "x", "commit": "5 W", "mtbf": "1h"}], "1h", "level 'x': commit"),
        ([{"name": "x", "commit": -5, "mtbf": "1h"}], "1h", "0 or more"),
        ([{"name": "x", "commit": 5, "mtbf": 0}], "1h", "more than 0"),
        ([{"commit": 5, "mtbf": 1}], "1h", "level 1: name"),
        ([PARTNER], "soon", "run"),
        ([PARTNER], 0, "run"),
        ([], 1, "levels"),
        ("partner", 1, "levels"),
        ([PARTNER | {"cost": 1}], 1, "cost"),
    ],
)
def test_what_cannot_be_planned(levels, run, words):
    with pytest.raises(InputError) as told:
        dask_hpc.plan_interval(levels, run)
    assert words in str(told.value) and "\n" not in str(told.value)


OFTEN = [PARTNER | {"mtbf": "30 min"}, STORE | {"mtbf": "5h"}]


def test_less_energy_takes_longer():
    fast, frugal = (
        dask_hpc.plan_interval(OFTEN, "24h", objective=objective, power=POWER)
        for objective in ("time", "energy")
    )
    assert fast.fastest is None and frugal.fastest.work == fast.pattern.work
    assert frugal.efficiency < fast.efficiency == frugal.fastest.efficiency
    assert 1 < frugal.energy < fast.energy == frugal.fastest.energy
    assert frugal.others[0] == frugal.fastest and frugal.others[1:] == fast.others
    joules = 750 * (fast.parts.work + fast.parts.recomputation)
    joules += 178 * (fast.parts.total - fast.parts.work - fast.parts.recomputation)
    assert fast.energy == pytest.approx(joules / 750 / 86400)
    assert "more time than the fastest plan" in frugal.reason and "less energy" in frugal.reason
    assert "less energy" not in fast.reason


def test_power_alone_changes_no_plan():
    plain, shown = (dask_hpc.plan_interval(OFTEN, power=power) for power in (None, POWER))
    assert plain.pattern == shown.pattern and isnan(plain.energy) and shown.energy > 1
    assert all(isnan(way.energy) for way in (*plain.others, *plain.curve))


def test_a_steady_run_varies_less_and_takes_longer():
    plans = [
        dask_hpc.plan_interval(OFTEN, "24h", objective="steady", deviations=number) for number in (0, 1, 10)
    ]
    fast = dask_hpc.plan_interval(OFTEN, "24h")
    assert plans[0].efficiency == pytest.approx(fast.efficiency, abs=1e-6)
    assert fast.deviation > plans[1].deviation > plans[2].deviation > 0
    assert fast.efficiency > plans[1].efficiency > plans[2].efficiency
    assert "less energy" not in plans[2].reason


def test_where_the_time_goes():
    plan = dask_hpc.plan_interval(OFTEN, "24h")
    assert plan.parts.total == pytest.approx(86400 / plan.efficiency) and plan.parts.work == 86400
    endless = dask_hpc.plan_interval(OFTEN)
    assert endless.parts.work == endless.pattern.work * endless.pattern.commits
    never = dask_hpc.plan_interval([STORE], "10 min")
    assert never.parts.commits == 0 < never.parts.recomputation and never.deviation > 0
    nothing = dask_hpc.plan_interval([STORE | {"mtbf": "inf"}])
    assert nothing.parts is None and nothing.deviation == 0


@pytest.mark.parametrize(
    "asked, words",
    [
        ({"objective": "money"}, "objective: found 'money'; allowed: time, energy, steady"),
        ({"objective": "energy"}, "needs the power; allowed: computing and committing"),
        ({"objective": "steady"}, "needs the run"),
        ({"objective": "steady", "run": "1h", "deviations": -1}, "deviations"),
        ({"objective": "steady", "run": "1h", "deviations": "two"}, "deviations"),
        ({"power": {"computing": 1}}, "power: committing: is missing"),
        ({"power": POWER | {"idle": 3}}, "idle"),
        ({"power": POWER | {"committing": "0 W"}}, "more than 0"),
        ({"power": POWER | {"committing": "5 s"}}, "power: committing"),
        ({"power": 750}, "power"),
    ],
)
def test_objectives_that_cannot_be(asked, words):
    with pytest.raises(InputError) as told:
        dask_hpc.plan_interval([PARTNER], **asked)
    assert words in str(told.value) and "\n" not in str(told.value)
