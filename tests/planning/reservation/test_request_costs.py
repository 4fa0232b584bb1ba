"""What a request costs: words, and waits of past jobs."""

import numpy as np
import pytest

from dask_hpc.model.errors import InputError
from dask_hpc.planning.reservation.cost import CLOUD, WAIT, Cost, fit_wait, read_cost


def test_words_and_numbers():
    assert read_cost("wait") == WAIT == Cost(0.95, 1.0, 3780.0) and read_cost("cloud") == CLOUD == Cost(
        1, 0, 0
    )
    assert read_cost("core-hours*64") == Cost(64.0) and read_cost("core-hours") == Cost(1.0)
    assert read_cost("0.95, 1, 1.05h") == WAIT == read_cost((0.95, 1, 3780)) and read_cost("1,0,0") == CLOUD
    assert read_cost(WAIT) is WAIT and read_cost([2, "0.5", "1 min"]) == Cost(2.0, 0.5, 60.0)
    assert WAIT.omniscient(3600) == 1.95 * 3600 + 3780 and str(WAIT) == "0.95, 1, 63.0 min"


@pytest.mark.parametrize(
    "found, told",
    [
        ("dear", "cost: found 'dear'"),
        ("1,0", "cost: found '1,0'"),
        ("0,1,0", "cost: alpha: found 0"),
        ("-1,1,0", "cost: alpha"),
        ("1,-1,0", "cost: beta"),
        ("1,0,-1h", "cost: gamma"),
        ("1,0,5", "cost: gamma: found '5' without a unit"),
        ("1h,0,0", "cost: alpha: found '1h'; allowed: a number without a unit"),
        ("core-hours*many", "cost: alpha"),
        ("cloud*2", "cost: found 'cloud*2'"),
        ((1, 0, float("nan")), "cost: gamma"),
        ((1, 0), "cost: found (1, 0)"),
        (None, "cost: found None"),
    ],
)
def test_bad_costs_are_one_line(found, told):
    with pytest.raises(InputError) as caught:
        read_cost(found)
    assert told in str(caught.value) and len(str(caught.value).splitlines()) == 1


def test_waits_of_past_jobs():
    rng = np.random.default_rng(1)
    asked = rng.uniform(600, 86400, 400)
    waited = 0.8 * asked + 1800
    found = fit_wait(asked, waited)
    assert found.is_fitted and found.cost.alpha == pytest.approx(0.8) and found.cost.beta == 1
    assert found.cost.gamma == pytest.approx(1800) and "400 jobs" in found.reason
    noisy = fit_wait(asked, waited * rng.exponential(1, 400)).cost
    assert noisy.alpha == pytest.approx(0.8, abs=0.25)
    # what nobody knows is left out
    unknown = fit_wait([*asked, float("nan"), 3600, -1], [*waited, 5, float("inf"), 5])
    assert unknown == found


def test_waits_that_say_nothing():
    few = fit_wait([3600] * 39, [60] * 39)
    assert few.cost == WAIT and not few.is_fitted and "too few (at least 40)" in few.reason
    alike = fit_wait([3600] * 50, list(range(50)))
    falling = fit_wait(range(1, 51), range(50, 0, -1))
    for one in (alike, falling):
        assert one.cost == WAIT and "did not wait longer for longer requests" in one.reason
    flat = fit_wait(range(1000, 1100), [100 + 1e-5 * n for n in range(100)])
    assert flat.cost.alpha == 1e-3 and flat.is_fitted
    steep = fit_wait(range(1, 101), [max(0.0, 10 * n - 300) for n in range(100)])
    assert steep.cost.gamma == 0
    with pytest.raises(InputError, match="one for each"):
        fit_wait([1, 2], [1])
