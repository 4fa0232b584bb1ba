"""What models of the literature plan and predict: the figures of the digest of 003, 6.1."""

from functools import cache
from math import inf, isnan

import pytest
from systems import levels_of, run_of

from dask_hpc.planning.interval import (
    BENOIT,
    MOODY,
    Level,
    best_pattern,
    daly_first_order,
    efficiency,
    model_plans,
    young,
)
from dask_hpc.planning.interval.models import last_levels

#: the document's prediction, the exact optimum, Daly's, Benoit's, and what Benoit's has (digest 6.1)
FIGURES = {
    "M": (0.9782, 0.9782, 0.9283, 0.9676, 0.9708),
    "B": (0.9206, 0.9206, 0.8759, 0.9091, 0.9182),
    "D1": (0.8436, 0.8430, 0.8173, 0.8522, 0.8406),
    "D4": (0.6349, 0.6304, 0.5364, 0.7102, 0.6213),
    "D7": (0.2056, 0.1834, 0.0845, 0.4868, 0.1566),
    "D8": (0.0865, 0.0663, 0.0163, 0.4301, 0.0435),
}


@cache
def plans_of(name):
    return {one.model: one for one in model_plans(levels_of(name), run_of(name))}


@pytest.mark.parametrize("name", FIGURES)
def test_predictions_of_the_digest(name):
    plans, (dauwe, best, daly, benoit, of_benoit) = plans_of(name), FIGURES[name]
    assert plans["Dauwe"].predicted == pytest.approx(dauwe, abs=0.001)
    assert plans["exact"].predicted == plans["exact"].efficiency == pytest.approx(best, abs=0.001)
    assert plans["Daly"].predicted == pytest.approx(daly, abs=1e-4)
    assert plans["Benoit"].predicted == pytest.approx(benoit, abs=1e-4)
    assert plans["Benoit"].efficiency == pytest.approx(of_benoit, abs=1e-4)


#: with Moody's rule for failed restarts, and without failures in commits and restarts (digest 6.1)
OWN_OPTIMA = {
    "M": (0.9782, 0.9782), "B": (0.9206, 0.9233), "D1": (0.8425, 0.8533), "D4": (0.6244, 0.6806),
    "D7": (0.1501, 0.3774), "D8": (0.0368, 0.2977),
}  # fmt: skip


@pytest.mark.parametrize("name", OWN_OPTIMA)
def test_each_rule_predicts_at_its_own_optimum(name):
    levels, run = levels_of(name), run_of(name)
    for rules, known in zip((MOODY, BENOIT), OWN_OPTIMA[name], strict=True):

        def worth(pattern, rules=rules):
            return efficiency(levels, pattern, run, rules)

        assert worth(best_pattern(levels, run, worth=worth)) == pytest.approx(known, abs=0.002)


@pytest.mark.parametrize("name", FIGURES)
def test_what_each_of_them_errs_in(name):
    plans = plans_of(name)
    best = plans["exact"].efficiency
    assert all(one.efficiency <= best + 1e-6 for one in plans.values()), "nobody beats the exact one"
    moody, di = plans["Moody"], plans["Di"]
    assert moody.predicted < efficiency(moody.levels, moody.pattern), "failed restarts go up, for ever"
    assert di.predicted > di.efficiency, "no restart fails"
    assert isnan(plans["Young"].predicted)
    assert [len(plans[model].levels) for model in ("Di", "Daly")] == [2, 1]


def test_the_last_levels_have_the_failures_of_those_below():
    levels = levels_of("B")
    for number in range(1, 6):
        kept = last_levels(levels, number)
        assert [one.name for one in kept] == [one.name for one in levels[-number:]]
        assert sum(one.failures for one in kept) == pytest.approx(sum(one.failures for one in levels))
    assert [one.failures for one in last_levels(levels, 2)][1:] == [levels[-1].failures]


def test_a_level_that_is_hardly_needed_has_hardly_any_commits_of_its_own():
    near, middle, far = Level("near", 1, 1, 1e-2), Level("middle", 1, 1, 1e-9), Level("far", 9, 9, 1e-4)
    plans = {one.model: one for one in model_plans([near, middle, far])}
    assert plans["Benoit"].pattern.counts == (29, 0), "a commit to the far level is one to the middle one"


@pytest.mark.parametrize("run", [inf, 1e3])
@pytest.mark.parametrize(
    "levels",
    [
        [Level("near", 0, 0, 1e-3)],
        [Level("near", 0, 1, 1e-3), Level("far", 0, 5, 0)],
        [Level("near", 1, 1, 0), Level("far", 10, 5, 1e-3)],
        [Level("near", 3600, 3600, 1e-1)],
    ],
)
def test_free_commits_and_levels_that_nobody_needs(levels, run):
    for one in model_plans(levels, run):
        assert one.pattern.work > 0 and 0 <= one.efficiency <= 1, one.model


def test_nothing_to_plan_where_nothing_fails():
    assert model_plans([Level("near", 1, 1, 0)]) == ()


def test_the_first_order_interval():
    """Digest 6.5: 20 min on a machine that fails every 240 min, here in other numbers."""
    assert daly_first_order(20, 1 / 240) == pytest.approx(9600**0.5 - 20)
    assert daly_first_order(20, 1 / 5) == young(20, 1 / 5), "else nothing would be left"
    assert daly_first_order(20, 0) == inf
