"""How many of each kind at once: the least time of all sequences of mixes, never more than plain packing."""

from itertools import product
from math import ceil, inf, nan
from time import perf_counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from dask_hpc.model.errors import InputError
from dask_hpc.planning.colocation import mix as mixes
from dask_hpc.planning.colocation.mix import best_mix

INTENSITY = {"cg": 1.0, "sp": 0.45, "fluid": 0.35, "ep": 0.0}
SECONDS = {"cg": 250.0, "sp": 420.0, "fluid": 300.0, "ep": 180.0}


def law(strength=0.33, power=0.8, intensity=INTENSITY):
    def slowdown(kind, others):
        return 1 + strength * intensity[kind] * sum(intensity[one] * n for one, n in others.items()) ** power

    return slowdown


def by_enumeration(counts, seconds, slowdown, cores):
    """The least time: a linear program over all mixes that there are, with another solver."""
    kinds = [kind for kind in counts if counts[kind]]
    columns = []
    for mix in product(*(range(min(cores, ceil(counts[kind])) + 1) for kind in kinds)):
        if 0 < sum(mix) <= cores:
            together = dict(zip(kinds, mix, strict=True))
            columns.append([
                n / seconds[kind] / max(1, slowdown(kind, together | {kind: n - 1})) if n else 0
                for kind, n in together.items()
            ])  # fmt: skip
    work = [counts[kind] for kind in kinds]
    found = linprog(np.ones(len(columns)), A_eq=np.array(columns).T, b_eq=work)
    assert found.success
    return found.fun


def done(phases, seconds, slowdown):
    """Tasks of each kind that these phases get done."""
    total = dict.fromkeys(seconds, 0.0)
    for phase in phases:
        for kind, n in phase.mix.items():
            others = {**phase.mix, kind: n - 1}
            total[kind] += phase.seconds * n / seconds[kind] / max(1, slowdown(kind, others))
    return total


worlds = st.fixed_dictionaries(
    {
        "counts": st.lists(st.integers(0, 60), min_size=1, max_size=3),
        "seconds": st.lists(st.floats(0.1, 1000), min_size=3, max_size=3),
        "intensity": st.lists(st.floats(0, 1), min_size=3, max_size=3),
        "strength": st.floats(0, 3),
        "power": st.floats(0.3, 2),
        "cores": st.integers(1, 6),
    }
)


@given(worlds)
@settings(max_examples=60, deadline=None)
def test_no_sequence_of_mixes_is_faster(world):
    kinds = "abc"[: len(world["counts"])]
    counts = dict(zip(kinds, world["counts"], strict=True))
    seconds = dict(zip("abc", world["seconds"], strict=True))
    slowdown = law(world["strength"], world["power"], dict(zip("abc", world["intensity"], strict=True)))
    plan = best_mix(counts, seconds, slowdown, world["cores"])
    if not any(counts.values()):
        assert plan.phases == () == plan.plain and plan.seconds == plan.gain == 0 and plan.mix == {}
        return
    least = by_enumeration(counts, seconds, slowdown, world["cores"])
    assert plan.seconds == pytest.approx(least, rel=1e-6)
    assert plan.seconds <= plan.plain_seconds * (1 + 1e-9)
    for phases in (plan.phases, plan.plain):
        found = done(phases, seconds, slowdown)
        assert {kind: found[kind] for kind in counts} == pytest.approx(counts, rel=1e-6, abs=1e-6)
        for phase in phases:
            assert phase.seconds > 0 and 0 < sum(phase.mix.values()) <= world["cores"]
            assert all(0 < n <= counts[kind] for kind, n in phase.mix.items())


def test_two_kinds_by_hand():
    """Of what slows itself one runs beside three that nobody slows; then four of what is left."""
    asked = []

    def slowdown(kind, others):
        asked.append((kind, dict(others)))
        return 3.0 if kind == "stream" and others.get("stream") else 1.0

    plan = best_mix({"stream": 10, "count": 12}, {"stream": 1.0, "count": 1.0}, slowdown, 4)
    # plain: four streams at once get 4/3 done a second, then four counts 4
    assert plan.plain_seconds == pytest.approx(10 / (4 / 3) + 12 / 4)
    assert [dict(one.mix) for one in plan.plain] == [{"stream": 4}, {"count": 4}]
    # best: one stream and three counts get 1 and 3 done; after 4 s four streams get 4/3
    assert [(dict(one.mix), round(one.seconds, 9)) for one in plan.phases] == [
        ({"stream": 1, "count": 3}, 4.0),
        ({"stream": 4}, 4.5),
    ]
    assert plan.gain == pytest.approx(1 - 8.5 / 10.5) and plan.mix == plan.phases[0].mix
    assert all(sum(others.values()) < 4 and 0 not in others.values() for _, others in asked)
    assert len({(kind, *sorted(others.items())) for kind, others in asked}) == len(asked) == 20, "asked once"


def test_fewer_at_once_where_that_is_faster():
    plan = best_mix({"a": 100}, {"a": 2.0}, lambda kind, others: 1 + others.get("a", 0) ** 2, 8)
    assert plan.mix == {"a": 2} or plan.mix == {"a": 1}  # both get one done in two seconds
    assert plan.seconds == pytest.approx(200) and plan.plain_seconds == pytest.approx(100 * 2 * 50 / 8)


def test_nobody_interferes():
    plan = best_mix({"a": 30, "b": 10.5}, {"a": 2.0, "b": 4.0}, lambda kind, others: 0.5, 4)
    assert plan.seconds == pytest.approx((60 + 42) / 4) and abs(plan.gain) < 1e-9


def test_no_more_at_once_than_there_are():
    plan = best_mix({"a": 2, "b": 1}, {"a": 10.0, "b": 10.0}, law(intensity={"a": 0, "b": 0}), 64)
    assert plan.mix == {"a": 2, "b": 1} and plan.seconds == pytest.approx(10)


@pytest.mark.parametrize("kinds, cores", [(2, 64), (3, 24), (4, 12)])
def test_where_not_all_mixes_are_looked_at(kinds, cores, monkeypatch):
    """The way there is another: within a thousandth of the best."""
    names = list(SECONDS)[:kinds]
    counts = {kind: 50 + 10 * n for n, kind in enumerate(names)}
    plan = best_mix(counts, SECONDS, law(), cores)
    least = by_enumeration(counts, SECONDS, law(), cores)
    assert least * (1 - 1e-9) <= plan.seconds <= least * 1.001
    monkeypatch.setattr(mixes, "_ALL", 10**9)
    assert best_mix(counts, SECONDS, law(), cores).seconds == pytest.approx(least, rel=1e-6)


def test_it_takes_milliseconds():
    counts, seconds = {**dict.fromkeys(SECONDS, 100), "more": 80}, {**SECONDS, "more": 200.0}
    slowdown = law(intensity={**INTENSITY, "more": 0.6})
    best = inf
    for _ in range(3):
        began = perf_counter()
        plan = best_mix(counts, seconds, slowdown, 64)
        best = min(best, perf_counter() - began)
    assert best < 0.3 and plan.gain > 0.02


@pytest.mark.parametrize(
    "wrong, words",
    [
        ({"cores": 0}, "cores: found 0"),
        ({"cores": 1.5}, "cores"),
        ({"cores": True}, "cores"),
        ({"counts": {"a": -1}}, "counts: a: found -1"),
        ({"counts": {"a": nan}}, "counts: a"),
        ({"counts": {"b": 1}}, "seconds: found none of 'b'"),
        ({"seconds": {"a": 0}}, "seconds: a: found 0"),
        ({"seconds": {"a": nan}}, "seconds: a"),
        ({"seconds": {"a": "long"}}, "seconds: a"),
        ({"slowdown": lambda kind, others: nan}, "slowdown: found nan of 'a'"),
        ({"slowdown": lambda kind, others: inf}, "slowdown: found inf"),
    ],
)
def test_what_no_mix_can_be_found_of(wrong, words):
    given = {"counts": {"a": 3}, "seconds": {"a": 1.0}, "slowdown": lambda kind, others: 1.0, "cores": 2}
    with pytest.raises(InputError, match=words):
        best_mix(**given | wrong)
