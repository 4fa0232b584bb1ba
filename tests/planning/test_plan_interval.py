"""Plans of commits in human units."""

from math import inf

import pytest

import dask_hpc
from dask_hpc.model.errors import InputError

PARTNER = {"name": "partner", "commit": "5s", "mtbf": "10h"}
STORE = {"name": "store", "commit": "150s", "mtbf": "7d"}


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
