"""Plans of co-location: what rows say, what is known of kinds beside others, and what follows from it."""

from dataclasses import replace
from itertools import product
from math import inf, nan

import numpy as np
import pytest

import dask_hpc
from dask_hpc.model.errors import InputError
from dask_hpc.model.interference import CacheCounters, TaskKind
from dask_hpc.planning.colocation.known import ByFeatures, KnownInterference, PairsAndLaw, RunBeside
from dask_hpc.planning.colocation.law import InterferenceLaw, weight_of
from dask_hpc.planning.colocation.linear import LinearPredictor

STREAM = {"kind": "stream", "seconds": "40s", "count": 200}
COUNT = {"kind": "count", "seconds": 30, "count": 400, "deadline": "2h"}
MEASURED = [
    {"kind": "stream", "seconds": 100, "beside": "3 stream"},
    {"kind": "stream", "seconds": 40, "beside": "count"},
    {"kind": "count", "seconds": 30, "beside": "2 count + stream"},
]


def plan(*rows, cores=4, **more):
    return dask_hpc.plan_colocation(rows or [STREAM, COUNT, *MEASURED], cores, **more)


def counters(misses, accesses=100, instructions=1000):
    return {"misses": misses, "accesses": accesses, "instructions": instructions}


def test_what_was_measured():
    found = plan()
    # three beside cost 1.5, so one 0.5; count costs nobody anything
    assert found.pairs == {"stream": {"stream": 1.5, "count": 1.0}, "count": {"stream": 1.0, "count": 1.0}}
    assert found.slowdowns["stream"] == {"stream": pytest.approx(2.5), "count": 1.0}
    assert found.known.assumed == [] and found.known.chosen == "pairs" and found.known.errors == {}
    assert "3 runs beside others" in found.reason and "law" not in found.reason


def test_how_many_at_once_and_in_which_order():
    """Four streams at once get 4 / 100 done a second, two 2 / 60: all that fit. Beside count none is
    slowed."""
    found = plan()
    assert found.alone["stream"].mix == {"stream": 4} and found.alone["count"].mix == {"count": 4}
    (pair,) = found.sharing
    assert {pair.one, pair.other} == {"stream", "count"} and pair.is_worth_it
    assert found.mix.plain_seconds == pytest.approx(200 * 100 / 4 + 400 * 30 / 4)
    assert found.mix.seconds < 0.9 * found.mix.plain_seconds
    (kept,) = found.kept
    assert kept.is_kept and not kept.is_kept_plainly
    assert kept.plain_ends == pytest.approx(found.mix.plain_seconds)
    assert kept.ends <= found.mix.seconds * (1 + 1e-9)


def test_fewer_at_once_where_they_choke():
    times = {"a": 11, "2 a": 13, "3 a": 100}
    rows = [{"kind": "a", "seconds": 10, "count": 60}]
    rows += [{"kind": "a", "seconds": seconds, "beside": beside} for beside, seconds in times.items()]
    found = plan(*rows)
    assert found.mix.mix == {"a": 3} and found.alone["a"].mix == {"a": 3}
    assert found.mix.seconds == pytest.approx(60 * 13 / 3) and found.mix.plain_seconds == pytest.approx(
        60 * 100 / 4
    )
    assert found.slowdowns["a"]["a"] == 10.0, "just what was measured, not what pairs add up to"


def test_nodes_share_the_work():
    one, four = plan(), plan(nodes=4)
    assert four.mix.seconds == pytest.approx(one.mix.seconds / 4)
    assert four.mix.plain_seconds == pytest.approx(one.mix.plain_seconds / 4)


def test_who_is_due_first_is_first():
    """Of all orders of phases the one that is least late; without deadlines the order is another."""
    rows = [{"kind": "cg", "seconds": 250, "mem_class": "I", "count": 100},
            {"kind": "sp", "seconds": 420, "mem_class": "II", "count": 100},
            {"kind": "ep", "seconds": 180, "mem_class": "V", "count": 100}]  # fmt: skip
    free = plan(*rows)
    for kind in ("cg", "sp", "ep"):
        due = [{**row, "deadline": "2h"} if row["kind"] == kind else row for row in rows]
        found = plan(*due)
        with_it = [phase for phase in free.mix.phases if kind in phase.mix]
        (kept,) = found.kept
        assert kept.ends == pytest.approx(sum(phase.seconds for phase in with_it))
        assert found.mix.seconds == pytest.approx(free.mix.seconds)
        assert kept.is_kept == (kept.ends <= 7200)


def test_only_classes_are_known():
    found = plan(
        {"kind": "cg", "seconds": 250, "mem_class": "I"}, {"kind": "ep", "seconds": 180, "mem_class": "V"}
    )
    law, heavy, light = InterferenceLaw(), weight_of(1.7e-2), weight_of(5.245e-10)
    assert found.pairs["cg"]["cg"] == pytest.approx(law.slowdown(heavy, [heavy]))
    assert found.slowdowns["cg"]["cg"] == pytest.approx(1 + 0.33 * heavy * (3 * heavy) ** 0.8)
    assert found.slowdowns["ep"]["cg"] == pytest.approx(1 + 0.33 * light * (3 * heavy) ** 0.8)
    assert found.mix is None and found.kept == ()
    assert "no run beside others" in found.reason and "of all pairs a law" in found.reason
    assert "assumed" in found.reason and len(found.known.assumed) == 4


def test_the_law_has_the_strength_of_what_was_measured():
    rows = [{"kind": "a", "seconds": 100, "mem_class": "I"}, {"kind": "b", "seconds": 50, "mem_class": "II"},
            {"kind": "a", "seconds": 180, "beside": "a"}]  # fmt: skip
    found = plan(*rows)
    heavy = weight_of(1.7e-2)
    strength = 0.8 / heavy**1.8
    assert found.pairs["a"]["a"] == pytest.approx(1.8)
    assert found.pairs["b"]["a"] == pytest.approx(1 + strength * weight_of(1.275e-3) * heavy**0.8)
    assert "of 3 pairs a law" in found.reason and "fitted" in found.reason


def test_kinds_of_which_nothing_is_known_are_as_all_are():
    """The mean of what a task costs another, in all runs: (0.5 + 0.4 / 2 + 0) / 3."""
    rows = [{"kind": "a", "seconds": 10, "mem_class": "I"}, {"kind": "b", "seconds": 10},
            {"kind": "c", "seconds": 10}]  # fmt: skip
    runs = {"a": 15, "2 b": 14, "c": 10}
    found = plan(
        *rows, *({"kind": "a", "seconds": seconds, "beside": beside} for beside, seconds in runs.items())
    )
    mean = (0.5 + 0.2 + 0.0) / 3
    assert found.pairs["a"] == pytest.approx({"a": 1.5, "b": 1.2, "c": 1.0})
    assert found.pairs["b"] == found.pairs["c"] == pytest.approx(dict.fromkeys("abc", 1 + mean))
    assert found.known.slowdown("b", {"a": 1, "c": 2}) == pytest.approx(1 + 3 * mean)
    assert "of 6 pairs nothing but the mean of all runs" in found.reason and "law" not in found.reason
    lawful = plan(*rows, {"kind": "c", "seconds": 12, "beside": "b"})
    assert "of 1 pair a law" in lawful.reason and "of 7 pairs nothing" in lawful.reason
    assert lawful.pairs["a"]["b"] == pytest.approx(1.2)


def test_the_law():
    law = InterferenceLaw()
    assert law.slowdown(1.0, []) == law.slowdown(0.0, [1.0]) == law.slowdown(1.0, [0.0]) == 1
    assert law.slowdown(1.0, [1.0]) == 1.33 and law.slowdown(0.5, [1.0]) == pytest.approx(1.165)
    assert law.of_kinds({"a": 1.0, "b": 0.5}, "a", {"a": 1, "b": 4}) == pytest.approx(1 + 0.33 * 3**0.8)
    assert weight_of(1.56e-2) == 1 and weight_of(0.0) == 0
    assert [round(weight_of(m), 2) for m in (1.5e-3, 8.6e-4, 6.27e-10)] == [0.44, 0.36, 0.0]
    for wrong in ({"strength": -1}, {"power": nan}, {"strength": inf}):
        with pytest.raises(InputError):
            InterferenceLaw(**wrong)


def many(noise=0.0, product_law=True):
    """Runs of five kinds beside each other, by a law of products of their intensities."""
    rng = np.random.default_rng(4)
    kinds = {name: (misses, float(rng.uniform(50, 500))) for name, misses in
             {"a": 30.0, "b": 15.0, "c": 8.0, "d": 2.0, "e": 0.1}.items()}  # fmt: skip
    rows = [
        {"kind": name, "seconds": seconds, **counters(misses)} for name, (misses, seconds) in kinds.items()
    ]
    for one, other in product(kinds, kinds):
        for count in (1, 2, 3):
            slower = 1 + 0.002 * kinds[one][0] * kinds[other][0] * count**0.7
            if not product_law:
                slower = 1 + 0.02 * (kinds[one][0] + kinds[other][0] * count)
            seconds = kinds[one][1] * slower * rng.normal(1, noise)
            rows.append({"kind": one, "seconds": seconds, "beside": f"{count} {other}"})
    return rows


def test_ways_to_predict_are_compared():
    told = []
    found = plan(*many(0.01), rng=np.random.default_rng(0), progress=told.append)
    assert told == list(range(1, 21))
    errors = found.known.errors
    assert set(errors) == {"pairs", "linear model", "network"} and found.known.chosen == min(
        errors, key=errors.get
    )
    assert errors["network"] < errors["linear model"], "a product is no plane"
    assert f"{errors[found.known.chosen]:.1f} % off" in found.reason
    again = plan(*many(0.01), rng=np.random.default_rng(0))
    assert again.known.errors == errors and again.slowdowns == found.slowdowns
    assert plan(*many(0.01)).known.errors == {}, "without draws nothing is compared"


def test_the_best_way_is_used():
    """For what was not measured exactly so."""
    found = plan(*many(0.0), rng=np.random.default_rng(0))
    assert found.known.chosen == "network" or found.known.errors["network"] > found.known.errors["pairs"]
    truth = 1 + 0.002 * 30 * 15 * 1 + 0.002 * 30 * 8
    assert found.known.slowdown("a", {"b": 1, "c": 1}) == pytest.approx(truth, rel=0.15)
    assert found.known.slowdown("a", {"b": 2}) == pytest.approx(1 + 0.002 * 450 * 2**0.7), "measured"
    assert found.known.slowdown("e", {"e": 1, "d": 1}) >= 1 and found.known.slowdown("a", {}) == 1


def test_seconds_are_predicted_by_features():
    """By a plane through what was measured, from seconds to how many times as long."""
    kinds = {name: TaskKind(name, seconds, CacheCounters(misses, 100, 1000))
             for name, seconds, misses in (("a", 200.0, 50), ("b", 100.0, 10), ("c", 0.5, 1))}  # fmt: skip
    runs = [RunBeside(one, {other: count}, 2 * kinds[one].seconds + 10 * count)
            for one in kinds for other in kinds for count in (1, 2, 3)]  # fmt: skip
    way = ByFeatures.fit(kinds, runs, LinearPredictor.fit)
    assert way.name == "F"
    assert way.slowdown("a", {"b": 1, "c": 1}) == pytest.approx((400 + 20) / 200)
    assert way.slowdown("c", {"b": 4}) == pytest.approx((1 + 40) / 0.5)
    faster = ByFeatures.fit(kinds, [replace(run, seconds=0.1) for run in runs], LinearPredictor.fit)
    assert faster.slowdown("a", {"b": 1}) == 1


def test_features_are_tried_from_thirty_runs_on():
    for count, ways in ((29, {"pairs"}), (30, {"pairs", "linear model", "network"})):
        found = plan(*many()[: 5 + count], rng=np.random.default_rng(0))
        assert set(found.known.errors) == ways
    for count, is_compared in ((9, False), (10, True)):
        rows = [{**row, "mem_class": "I"} for row in ({"kind": "a", "seconds": 10},)]
        rows += [{"kind": "a", "seconds": 11 + number, "beside": "a"} for number in range(count)]
        assert bool(plan(*rows, rng=np.random.default_rng(0)).known.errors) == is_compared


def test_short_tasks_and_many_kinds():
    found = plan({"kind": "a", "seconds": 0.01, "mem_class": "I", "count": 5, "deadline": "0.5s"},
                 {"kind": "a", "seconds": 0.02, "beside": "a"})  # fmt: skip
    assert found.pairs["a"]["a"] == 2 and found.kept[0].is_kept
    sixteen = plan(*(A | {"kind": f"k{number}"} for number in range(16)))
    assert len(sixteen.known.kinds) == 16


def test_runs_beside_nobody_and_of_no_time():
    kinds = [TaskKind("a", 10.0, said_class="I")]
    for run, words in (
        (RunBeside("a", {}, 10.0), "beside: found {}"),
        (RunBeside("a", {"a": 1}, 0.0), "seconds"),
        (RunBeside("a", {"a": 0}, 1.0), "beside: a: found 0"),
    ):
        with pytest.raises(InputError, match=words):
            KnownInterference.of(kinds, [run])


def test_too_few_runs_are_not_compared():
    few = many()[:5] + many()[5:14]
    assert plan(*few, rng=np.random.default_rng(0)).known.errors == {}
    some = many()[:5] + many()[5:25]
    assert set(plan(*some, rng=np.random.default_rng(0)).known.errors) == {"pairs"}
    for row in (rows := many())[:5]:
        for key in ("misses", "accesses", "instructions"):
            del row[key]
    assert set(plan(*rows, rng=np.random.default_rng(0)).known.errors) == {"pairs"}, "no features"


def test_negative_predictions_are_no_slowdowns():
    kinds = {name: TaskKind(name, 10.0, CacheCounters(1, 2, 100)) for name in "ab"}
    runs = [RunBeside("a", {"b": 1}, 5.0), RunBeside("a", {"b": 3}, 2.0)]
    known = KnownInterference.of(kinds.values(), runs)
    assert known.slowdown("a", {"b": 1}) == known.slowdown("a", {"b": 2}) == 1
    assert PairsAndLaw.fit(kinds, runs).excess == {("a", "b"): 0.0}


def test_several_runs_of_the_same():
    said = [{"seconds": 10}, {"seconds": 14, **counters(10)}, {"seconds": 12, **counters(30)},
            {"seconds": 18, "beside": "a"}, {"seconds": 30, "beside": "a"}]  # fmt: skip
    rows = [{"kind": "a", **one} for one in said]
    found = plan(*rows)
    assert found.known.kinds["a"].seconds == 12 and found.known.kinds["a"].counters.misses == 40
    assert found.pairs["a"]["a"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    "beside, others",
    [("a", {"a": 1}), ("3 a", {"a": 3}), ("2*a + b", {"a": 2, "b": 1}), ("a+a", {"a": 2}),
     ("2  x1 +3d", {"x1": 2, "3d": 1}), ({"a": 2}, {"a": 2})],
)  # fmt: skip
def test_words_for_others(beside, others):
    kinds = [{"kind": name, "seconds": 1, "mem_class": "III"} for name in ("a", "b", "x1", "3d")]
    found = plan(*kinds, {"kind": "a", "seconds": 2, "beside": beside})
    assert [run.others for run in found.known.runs] == [others]


def test_one_core_and_one_kind():
    found = plan({"kind": "a", "seconds": 5, "mem_class": "I", "count": 3}, cores=1)
    assert found.slowdowns == {"a": {"a": 1.0}} and found.mix.seconds == pytest.approx(15)
    assert found.reason.startswith("on one core")
    found = plan({"kind": "a", "seconds": 5, "mem_class": "I"})
    assert found.sharing == () and found.worth == "4 tasks of a at once get most done"
    quiet = plan({"kind": "a", "seconds": 5, "mem_class": "V"}, {"kind": "b", "seconds": 5, "mem_class": "V"})
    assert quiet.worth == "no two kinds gain by sharing a node"
    same = plan({"kind": "a", "seconds": 5, "mem_class": "V", "count": 8})
    assert same.worth.startswith("plain packing is as good as any") and same.mix.gain < 0.01


def test_plain_data():
    found = plan().as_plain()
    assert found["kinds"]["stream"] == {
        "seconds": 40.0,
        "mem_class": None,
        "at_once": 4,
        "saves": pytest.approx(0),
    }
    assert found["mix"]["gain"] == pytest.approx(1 - found["mix"]["seconds"] / found["mix"]["plain_seconds"])
    assert found["deadlines"][0]["kept"] is True and found["sharing"][0]["share"] is True
    assert sum(one["seconds"] for one in found["mix"]["phases"]) == pytest.approx(found["mix"]["seconds"])
    assert plan({"kind": "a", "seconds": 5, "mem_class": "I"}).as_plain()["mix"] is None


A = {"kind": "a", "seconds": 10, "mem_class": "I"}


@pytest.mark.parametrize(
    "rows, words",
    [
        ([], "found no run of a task alone"),
        ([{"kind": "a", "seconds": 2, "beside": "a"}], "found no run of a task alone"),
        ([A, {"kind": "a", "seconds": 12, "beside": "b"}], "beside: found 'b', of which no run alone"),
        ([A, {"kind": "b", "seconds": 12, "beside": "a"}], "found 'b', of which no run alone"),
        ([{"kind": "a", "seconds": 0}], "run 1: seconds: found 0"),
        ([{"kind": "a", "seconds": "-3s"}], "run 1: seconds"),
        ([{"kind": "a", "seconds": nan}], "run 1: seconds: found nan"),
        ([{"kind": "a", "seconds": inf}], "run 1: seconds"),
        ([{"kind": "a"}], "run 1: seconds: found none"),
        ([{"kind": "", "seconds": 1}], "run 1: kind"),
        ([{"seconds": 1}], "run 1: kind"),
        ([A | {"deadline": "-5 min"}], "deadline: found '-5 min'; allowed: a time from now"),
        ([A | {"deadline": 0}], "deadline: found 0"),
        ([A | {"count": 2.5}], "count: found 2.5"),
        ([A | {"count": -1}], "count"),
        ([A | {"count": "many"}], "count: found 'many'"),
        ([A | {"mem_class": "VI"}], "run 1: mem_class: found 'VI'"),
        ([A | counters(-1)], "misses: found -1"),
        ([A | counters(1, 2.0**70)], "accesses.*wrapped"),
        ([A | counters("nan")], "misses: found nan"),
        ([A | {"misses": 3}], "misses: found without the others"),
        ([A, A | {"mem_class": "II"}], "kind a: mem_class: found 'I' and others"),
        ([A | {"colour": 1}], "run 1: colour: unknown key"),
        ([A, {"kind": "a", "seconds": 12, "beside": "0 a"}], "run 2: beside: found '0 a'"),
        ([A, {"kind": "a", "seconds": 12, "beside": "a +"}], "run 2: beside"),
        ([A, {"kind": "a", "seconds": 12, "beside": 3}], "run 2: beside: found 3"),
        ([A, {"kind": "a", "seconds": 12, "beside": {"a": 1.5}}], "beside: a: found 1.5"),
        ([A, {"kind": "a", "seconds": 12, "beside": "4 a"}], "run 2: beside: found 4; allowed: fewer"),
        ([A, {"kind": "a", "seconds": 12, "beside": "a", "count": 3}], "run 2: count: found in a run beside"),
        ([A, {"kind": "b", "seconds": 12}], "nothing says how 'a' runs beside 'b'"),
        ([A | {"kind": f"k{number}"} for number in range(17)], "kinds: found 17"),
        (["a"], "run 1: found 'a'"),
    ],
)  # fmt: skip
def test_rows_that_say_nothing(rows, words):
    with pytest.raises(InputError, match=words):
        dask_hpc.plan_colocation(rows, 4)


@pytest.mark.parametrize(
    "more", [{"cores": 0}, {"cores": 1.5}, {"cores": 10**6}, {"nodes": 0}, {"cores": True}]
)
def test_machines_that_are_none(more):
    with pytest.raises(InputError, match=next(iter(more))):
        plan(A, **more)
    with pytest.raises(InputError, match="runs"):
        dask_hpc.plan_colocation("a.csv", 4)


def test_an_unknown_kind_is_asked_for():
    with pytest.raises(InputError, match=r"kind: found 'z'; allowed: stream, count"):
        plan().known.slowdown("stream", {"z": 1})
