"""Plans of reservations as people and programs get them: in human units, limited, gone on with, and back."""

import json
from dataclasses import replace
from math import inf

import numpy as np
import pytest
from by_hand import LAWS, H, random_grid, random_setting
from hypothesis import given, settings
from hypothesis import strategies as st

import dask_hpc
from dask_hpc.model.errors import InputError
from dask_hpc.planning.plan_reservation import plan_reservation
from dask_hpc.planning.reservation.cost import WAIT, Cost
from dask_hpc.planning.reservation.fit import fit_law
from dask_hpc.planning.reservation.law import EmpiricalLaw, read_law
from dask_hpc.planning.reservation.methods import METHODS, Question, steps_for
from dask_hpc.planning.reservation.plan import ReservationPlan, chosen
from dask_hpc.planning.reservation.sequence import Milestone, Setting, expected_cost, steps

TRACE = "lognormal mean=21.4h std=19.7h max=80h"


def planned(*args, number=100, **more):
    return plan_reservation(*args, number=number, **more)


def milestones(plan):
    return [Milestone(one.work_until, one.commit) for one in plan.requests]


def test_it_is_public():
    assert dask_hpc.plan_reservation is plan_reservation and dask_hpc.ReservationPlan is ReservationPlan


def test_what_a_plan_says():
    plan = planned(TRACE, checkpoint="7h", restart="7h", cost=(1, 0, 0))
    assert plan.requests[-1].work_until == 80 * H and not plan.requests[-1].commit
    assert sum(one.commit for one in plan.requests) >= 1, "a commit pays"
    terms = Setting(plan.cost, plan.checkpoint, plan.restart)
    assert [one.length for one in plan.requests] == [s.length for s in steps(milestones(plan), terms)]
    assert plan.expected == expected_cost(milestones(plan), plan.law, terms)
    assert plan.over_omniscient == plan.expected / plan.law.mean
    assert all(cost >= plan.expected * (1 - 1e-9) for cost in plan.others.values())
    assert {"no-checkpoint", "all-checkpoint", "mean-doubling", "p99", "brute-force"} <= set(plan.others)
    assert "more would be paid without commits" in plan.reason
    rows = str(plan).splitlines()
    assert rows[0].split() == ["ask", "for", "work", "by", "then", "commit", "needed", "by"]
    assert len(rows) == 3 + len(plan.requests) <= 11 and rows[1].split()[-2:] == ["no", "100.0%"]
    assert rows[-1] == plan.reason and f"{plan.over_omniscient:.2f} times an omniscient's" in rows[-2]
    never = planned(TRACE, cost="cloud")
    many = planned("exponential mean=1h", "6min", cost="cloud")
    assert len(many.requests) > 8 and f"  and {len(many.requests) - 8} more" in str(many)
    assert never.expected == pytest.approx(plan.others["no-checkpoint"], rel=1e-3)
    assert "nothing can be kept" in never.reason and never.checkpoint == inf
    dear = planned(TRACE, checkpoint="50h", cost="cloud")
    assert not any(one.commit for one in dear.requests) and "no commit pays" in dear.reason
    assert planned(TRACE).cost == WAIT and planned(TRACE, "7h").restart == 7 * H


@pytest.mark.parametrize("words", LAWS.values())
def test_the_unit_of_time_is_nobodys_business(words):
    """Whatever is a thousand times as long is planned the same."""
    of = read_law(words)
    times = {name: 1000 * getattr(of, name) for name in ("scale", "shift", "above", "below")}
    longer = replace(of, **times)
    setting = Setting(Cost(1, 0.5, 600), 360, 120)
    other = Setting(Cost(1, 0.5, 6e5), 3.6e5, 1.2e5)
    short = chosen(Question(of, setting, (), 60))
    long = chosen(Question(longer, other, (), 60))
    assert long.expected == pytest.approx(1000 * short.expected, rel=1e-6)
    assert len(long.requests) == len(short.requests)
    for name, cost in short.others.items():
        assert long.others[name] == pytest.approx(1000 * cost, rel=1e-6), name


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from([*LAWS.values(), "0.5 * exponential mean=1h + 0.5 * uniform min=5h max=6h"]),
    st.sampled_from([None, 1.0, 360.0, 3600.0, 36000.0]),
    st.sampled_from([0.0, 60.0, 3600.0]),
    st.floats(0.01, 10),
    st.floats(0, 2),
    st.floats(0, 7200),
)
def test_no_other_way_is_better(words, checkpoint, restart, alpha, beta, gamma):
    plan = planned(words, checkpoint, restart, (alpha, beta, gamma), number=60)
    assert plan.expected <= min(plan.others.values()) * (1 + 1e-9)
    works = [one.work_until for one in plan.requests]
    assert works == sorted(set(works)) and plan.law.sf(works[-1]) <= 1e-6
    assert plan.over_omniscient >= 1
    terms = Setting(plan.cost, plan.checkpoint, plan.restart)
    # what is listed is all but what nobody asks for
    end = [*milestones(plan)]
    while plan.law.sf(end[-1].work) * end[-1].work > 1e-12 * plan.law.mean:
        end.append(Milestone(2 * end[-1].work))
    assert expected_cost(end, plan.law, terms) == pytest.approx(plan.expected, rel=1e-6)


def test_after_a_while_what_was_planned_is_still_right():
    """One sequence for all futures: with a list of times, what is planned then is the rest of the plan, and
    costs what the rest of the plan costs."""
    rng = np.random.default_rng(1)
    looked_at = 0
    for _ in range(150):
        times, weights = random_grid(rng, 10)
        setting = random_setting(rng, float(times @ weights))
        plan = chosen(Question(EmpiricalLaw.of(times, weights), setting), compare=False)
        kept = 0.0
        for number, one in enumerate(plan.requests[:-1], 1):
            kept = one.work_until if one.commit else kept
            then = plan.after(kept, one.work_until)
            rest = plan.requests[number:]
            terms = replace(setting, saved=kept)
            left = plan.law.given(one.work_until)
            known = expected_cost(milestones(plan)[number:], left, terms)
            assert then.expected == pytest.approx(known, rel=1e-9)
            assert [r.work_until for r in then.requests] == [r.work_until for r in rest]
            assert [r.length for r in then.requests] == pytest.approx([r.length for r in rest])
            assert (then.saved, then.law) == (kept, left)
            looked_at += 1
    assert looked_at > 100


def test_after_with_a_law_that_goes_on():
    plan = planned("exponential mean=1h", "6min", cost="cloud")
    then = plan.after(2 * H)
    # it never gets older: only the restart is new
    assert then.expected == pytest.approx(plan.expected + 360, rel=1e-4)
    assert then.requests[0].length == pytest.approx(plan.requests[0].length + 360, rel=1e-3)
    assert then.requests[0].work_until == pytest.approx(2 * H + plan.requests[0].work_until, rel=1e-3)
    lost = plan.after(2 * H, tried=3 * H)
    assert lost.requests[0].work_until > 3 * H and lost.requests[0].length > H + 360
    assert lost.saved == 2 * H and lost.law.low == 3 * H
    first = plan.after(0, tried=H).requests[0]
    assert first.length == pytest.approx(first.work_until + 360 * first.commit), "there is nothing to restart"
    slower = plan.after(2 * H, checkpoint=3600.0, restart=720.0)
    assert (slower.checkpoint, slower.restart) == (3600, 720) and slower.expected > then.expected
    never = plan.after(0, 2 * H, checkpoint=inf, restart=inf)
    assert not any(one.commit for one in never.requests) and never.requests[0].work_until > 2 * H
    with pytest.raises(InputError, match="saved: found"):
        plan.after(2 * H, restart=inf)
    assert plan.after().expected == pytest.approx(plan.expected)
    once = plan.after(H).after(2 * H)
    assert once.expected == pytest.approx(then.expected, rel=1e-6), "in two steps as in one"


def test_a_job_that_takes_longer_than_all_that_is_known():
    plan = planned([3600.0] * 10, "1min")
    assert [one.work_until for one in plan.requests] == pytest.approx([3960.0])
    then = plan.after(0, plan.requests[-1].work_until)
    assert then.requests[0].work_until > 3961 and "takes longer than empirical allows" in then.reason
    assert plan.after(0, 1e6).requests[0].work_until > 1e6
    bounded = planned("uniform min=1h max=2h").after(0, 2 * H)
    assert bounded.requests[0].work_until > 2 * H


def test_json_and_back():
    for plan in (
        planned(TRACE, "1h", cost="wait", memory=4e9, max_walltime="30h"),
        planned([3600, 4000, 5000, 8000, 9000, 12000, ">15000"], cost="core-hours*4"),
        planned(TRACE, "7h").after(3 * H, 5 * H),
    ):
        text = json.dumps(plan.as_plain(), allow_nan=False)
        back = ReservationPlan.of(json.loads(text))
        assert back == plan
        assert back.after(0, H).requests == plan.after(0, H).requests
    changed = [plan.as_plain() | one for one in ({"law": 3}, {"cost": [0, 0, 0]}, {"more": 1})]
    for wrong in (None, {}, {"requests": []}, [1], *changed):
        with pytest.raises(InputError):
            ReservationPlan.of(wrong)


def test_from_runs():
    rng = np.random.default_rng(3)
    runs = rng.lognormal(8, 0.5, 40).tolist()
    plan = planned(runs, "5min")
    assert plan.runs == tuple(runs) and "from 40 runs" in plan.reason
    assert {"neuro", "neuro-avg", "hpc"} <= set(plan.others)
    fitted = fit_law(runs)
    assert planned(fitted, "5min").requests == plan.requests
    few = planned(["1h", 3700, ">2h"])
    assert few.warnings and "too few" in few.warnings[0]
    assert "neuro" not in planned(TRACE).others, "there are no runs"


def test_rules_from_runs():
    runs = [1000.0, 5000.0, *[2000.0] * 5]
    longest = planned(runs, "2min", cost="cloud", method="neuro")
    assert [one.work_until for one in longest.requests[:3]] == [5000, 7500, 11250]
    assert longest.requests[0].commit and longest.requests[1].length == 120 + 2500 + 120
    mean = planned(runs, cost="cloud", method="neuro-avg")
    assert mean.requests[0].work_until == pytest.approx(np.mean(runs)) and not mean.requests[0].commit
    last = planned(runs, cost="cloud", method="hpc")
    assert [one.work_until for one in last.requests[:2]] == [2000, 3000]
    with pytest.raises(InputError, match="method: found 'neuro'"):
        planned(TRACE, method="neuro")


# -- limits ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [*LAWS.values(), TRACE, "empirical 1h 2h*3 40h"])
def test_no_request_is_longer_than_allowed(words):
    of = read_law(words)
    longest = max(0.3 * of.mean, 1000.0)
    plan = planned(words, 0.05 * longest, 0.02 * longest, "cloud", number=200, max_walltime=longest)
    assert max(one.length for one in plan.requests) <= longest * (1 + 1e-9)
    assert plan.law.sf(plan.requests[-1].work_until) <= 1e-6
    free = planned(words, 0.05 * longest, 0.02 * longest, "cloud", number=200)
    assert plan.expected >= free.expected * (1 - 1e-9)
    then = plan.after(plan.requests[0].work_until)
    assert max(one.length for one in then.requests) <= longest * (1 + 1e-9)
    # with room enough it is no limit
    wide = planned(words, 0.05 * longest, 0.02 * longest, "cloud", number=200, max_walltime=1e4 * of.mean)
    assert wide.expected == pytest.approx(free.expected, rel=2e-3)


def test_a_limit_below_the_begin_of_the_law():
    """No job ends within 10 h, and 4 h may be asked for: commits on the way there."""
    plan = planned("uniform min=10h max=20h", "30min", "15min", "cloud", max_walltime="4h")
    first, second = plan.requests[:2]
    assert first.commit and first.length <= 4 * H and first.work_until <= 3.5 * H
    assert second.length == pytest.approx(4 * H, rel=0.2) and plan.requests[-1].work_until == 20 * H


def test_more_requests_than_anybody_plans():
    """The rest is planned when it comes to that; a job of which nothing can be done so is refused."""
    plan = planned("pareto min=1h shape=1.5", "1min", max_walltime="10min", number=60, compare=False)
    end = plan.requests[-1].work_until
    assert end == pytest.approx(1500 * 8 * 60) and 1499 <= len(plan.requests) <= 1501
    assert plan.reason == "what takes longer than 8.3 d (0.0004) is not planned yet"
    assert plan.law.high == inf and 1 < plan.over_omniscient < inf
    then = plan.after(end)
    assert then.requests[0].work_until > end and max(one.length for one in then.requests) <= 600 * (1 + 1e-9)
    assert "not planned" not in planned("uniform min=1h max=5h", "1min", max_walltime="1h", number=60).reason
    with pytest.raises(InputError, match="so that 1500 requests are too few"):
        planned("uniform min=80d max=81d", "1min", max_walltime="10min")


@pytest.mark.parametrize(
    "more, told",
    [
        ({"max_walltime": "2h", "checkpoint": "1h"}, "found 2.0 h; allowed: more than the 2.0 h"),
        ({"max_walltime": "2h"}, "max_walltime: found 2.0 h; allowed: a checkpoint, or 3.3 d"),
        ({"max_walltime": "8h", "checkpoint": "1h", "method": "no-checkpoint"}, "method than no-checkpoint"),
        ({"max_walltime": "soon"}, "max_walltime"),
        ({"max_walltime": 0}, "max_walltime"),
        ({"checkpoint": "-1h"}, "checkpoint: found '-1h'; allowed: 0 or more"),
        ({"checkpoint": "1h", "restart": -5}, "restart: found -5; allowed: 0 or more"),
        ({"checkpoint": "7"}, "checkpoint: found '7' without a unit"),
        ({"checkpoint": "inf"}, "checkpoint: found 'inf'"),
        ({"cost": "0,0,0"}, "cost: alpha"),
        ({"method": "bets"}, "method: found 'bets' (nearest: best)"),
        ({"method": "dyn-prog-count 9"}, "an accuracy from 0.001 to 3"),
        ({"method": "mean-stdev 3"}, "mean-stdev alone"),
        ({"method": "all-checkpoint-periodic 2.5", "checkpoint": "1h"}, "a whole number"),
        ({"method": "all-checkpoint"}, "method: found 'all-checkpoint'"),
        ({"method": None}, "method: found None"),
        ({"memory": "4 W"}, "memory"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(more, told):
    with pytest.raises(InputError) as caught:
        planned(TRACE, **more)
    assert told in str(caught.value) and len(str(caught.value).splitlines()) == 1


NONE = ("pareto min=1h shape=1", "normal mean=1h std=1h", "uniform scale=1h shift=-2h")


@pytest.mark.parametrize("law", [5, None, [], [">1h"], {"a": 1}, *NONE])
def test_bad_laws_are_one_line(law):
    with pytest.raises(InputError) as caught:
        planned(law)
    assert len(str(caught.value).splitlines()) == 1


# -- methods ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words, literal",
    [("Exponential", 14507), ("Weibull", 116907), ("Lognormal", 81102), ("Pareto", 96500), ("Gamma", 8604),
     ("TruncatedNormal", 5700), ("Uniform", 5700), ("BoundedPareto", 5700), ("Beta", 1800)],
)  # fmt: skip
def test_how_many_times_an_accuracy_needs(words, literal):
    """Digest 3.4: the formula for an accuracy of 0.1 with 0.1 h for a commit and for a restart."""
    setting = Setting(Cost(1, 0, 0), 360, 360)
    assert steps_for(Question(read_law(LAWS[words]), setting), 0.1) == pytest.approx(literal, abs=3)
    nothing = replace(setting, checkpoint=0.0)
    assert steps_for(Question(read_law(LAWS[words]), nothing), 0.1) == 0, "it has no answer"
    started = replace(nothing, cost=Cost(1, 0, 3600.0))
    assert steps_for(Question(read_law(LAWS[words]), started), 0.1) > 0


def test_an_accuracy_that_is_asked_for_is_reached():
    law = "beta a=2 b=2 min=0 max=1h"
    best = plan_reservation(law, "6min", cost="cloud")
    for accuracy in (3, 1, 0.3):
        found = planned(law, "6min", cost="cloud", method=f"dyn-prog-count {accuracy}")
        assert best.expected <= found.expected <= best.expected * (1 + accuracy)
    assert plan_reservation(law, "6min", cost="cloud", method="dyn-prog-count 0.1").expected == pytest.approx(
        best.expected, rel=1e-3
    )


@pytest.mark.parametrize("method", METHODS)
def test_every_method_makes_a_plan(method):
    runs = [3600 * n for n in (1, 1.5, 2, 2.2, 3, 5, 6)]
    plan = planned(runs, "6min", cost="cloud", method=method, number=60, compare=False)
    assert plan.method == method and plan.expected >= plan.law.mean and plan.requests
    assert plan.after(H).method == method


def test_a_number_for_a_method():
    plan = planned("uniform min=1h max=20h", "6min", cost="cloud", method="all-checkpoint-periodic 4")
    assert [one.work_until / H for one in plan.requests] == pytest.approx([5.75, 10.5, 15.25, 20])
    assert [one.commit for one in plan.requests] == [True, True, True, False]
    finer = planned("exponential mean=1h", "6min", cost="cloud", method="discrete-ckpt 30")
    coarser = planned("exponential mean=1h", "6min", cost="cloud", method="discrete-ckpt 5")
    assert finer.expected < coarser.expected
