"""How much kinds slow each other, from what was seen of them side by side."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.planning.colocation.mix import best_mix
from dask_hpc.planning.colocation.slowdowns import Company, Slowdowns


def seen(kind, others, slowdown, stderr=0.02, tasks=100):
    return Company(kind, others, slowdown, stderr, tasks)


def test_of_what_nobody_has_seen_nothing_is_said():
    found = Slowdowns([], 30)
    assert found("a", {"b": 5}) == 1.0 and found("a", {}) == 1.0
    assert found.harm("a", "b") == 0.0 and not found.is_known("a", "b") and not found.is_seen("a", 1)
    assert found.rate("a", 4) == 4.0
    alone = Slowdowns([seen("a", {}, 1.0)], 30)
    assert alone("a", {"b": 5}) == 1.0 and alone.is_seen("a", 1) and not alone.is_known("a", "a")


def test_each_neighbour_adds_its_share():
    mixes = [{"b": 1}, {"b": 2}, {"b": 1, "c": 1}, {"c": 3}]
    found = Slowdowns(
        [seen("a", mix, 1 + 0.5 * mix.get("b", 0) + 0.1 * mix.get("c", 0)) for mix in mixes], 30
    )
    assert found("a", {"b": 4, "c": 2}) == pytest.approx(3.2, rel=1e-3)
    assert found("a", {"b": 0}) == 1.0
    assert found("a", {"d": 7}) == pytest.approx(1.0)


def test_just_what_was_seen_counts_if_it_was_seen_often():
    mixes = [seen("a", {"b": 1}, 1.5), seen("a", {"b": 2}, 3.0), seen("a", {"b": 3}, 9.0, tasks=29)]
    found = Slowdowns(mixes, 30)
    assert found("a", {"b": 2, "c": 0}) == 3.0 and found("a", {"b": 1}) == 1.5
    assert found("a", {"b": 3}) != 9.0  # not often enough: by the shares
    assert Slowdowns([seen("a", {"b": 1}, 0.7)], 30)("a", {"b": 1}) == 1.0  # nobody is faster for company


def test_with_its_own_it_is_between_what_was_seen():
    found = Slowdowns(
        [seen("a", {"a": 3}, 2.5), seen("a", {"a": 7}, 6.5), seen("a", {"a": 1, "b": 1}, 9.0)], 30
    )
    assert found("a", {"a": 3}) == 2.5
    assert found("a", {"a": 1}) == pytest.approx(1.5) and found("a", {"a": 2}) == pytest.approx(2.0)
    assert found("a", {"a": 5}) == pytest.approx(4.5)
    thin = seen("a", {"a": 5}, 40.0, tasks=29)  # not seen often enough to be on the line
    assert Slowdowns([seen("a", {"a": 3}, 2.5), thin, seen("a", {"a": 7}, 6.5)], 30)("a", {"a": 4}) == 3.5
    shares = found("a", {"a": 8})  # more were never seen: by the shares
    assert shares > 6.5
    assert found.rate("a", 4) == pytest.approx(4 / 2.5) and found.rate("a", 1) == 1.0
    assert found.is_seen("a", 4) and found.is_seen("a", 8) and not found.is_seen("a", 3)


def test_harm_is_what_is_sure():
    sure = Slowdowns([seen("a", {"b": 2}, 2.0, stderr=0.01)], 30)
    assert sure.harm("a", "b") == pytest.approx(0.5 - 2 * 0.005, abs=1e-3)
    unsure = Slowdowns([seen("a", {"b": 2}, 2.0, stderr=1.0)], 30)
    assert unsure.harm("a", "b") == 0.0 and unsure.is_known("a", "b")
    few = Slowdowns([seen("a", {"b": 2}, 2.0, tasks=29)], 30)
    assert few.harm("a", "b") == 0.0 and not few.is_known("a", "b")
    assert (
        Slowdowns([seen("a", {"b": 2}, 2.0, tasks=15), seen("a", {"b": 1}, 1.5, tasks=15)], 30).harm("a", "b")
        > 0
    )
    assert sure.harm("b", "a") == 0.0


def test_what_is_surer_counts_more():
    two = [
        seen("a", {"b": 1}, 1.2, stderr=0.01, tasks=5),
        seen("a", {"b": 1, "c": 1}, 3.0, stderr=1.0, tasks=5),
    ]
    assert Slowdowns(two, 30)("a", {"b": 1}) == pytest.approx(1.2, abs=0.01)
    swapped = [two[0]._replace(stderr=1.0), seen("a", {"b": 1}, 3.0, stderr=0.01, tasks=5)]
    assert Slowdowns(swapped, 30)("a", {"b": 1}) == pytest.approx(3.0, abs=0.01)
    surest = seen("a", {"b": 1}, 1.2, stderr=0.0, tasks=5)  # nothing is surer than a hundredth
    assert 1.2 < Slowdowns([surest, seen("a", {"b": 1}, 1.4, 0.01, 5)], 30)("a", {"b": 1}) < 1.4


def test_nobody_is_made_faster():
    found = Slowdowns([seen("a", {"b": 2}, 0.5, tasks=5), seen("a", {"c": 2}, 2.0, tasks=5)], 30)
    assert found("a", {"b": 2}) == pytest.approx(1.0) and found("a", {"b": 2, "c": 1}) == pytest.approx(
        1.5, abs=0.01
    )


names = st.sampled_from("abc")
companies = st.builds(
    Company,
    names,
    st.dictionaries(names, st.integers(1, 8), max_size=3),
    st.floats(0.5, 20),
    st.floats(0, 2) | st.just(float("inf")),
    st.floats(0, 500),
)


@given(st.lists(companies, max_size=15), st.integers(5, 100), st.dictionaries(names, st.integers(0, 9)))
def test_it_always_is_a_slowdown(mixes, known, others):
    found = Slowdowns(mixes, known)
    for kind in "abcd":
        assert 1.0 <= found(kind, others) < 1e4
        for other in "abcd":
            assert 0.0 <= found.harm(kind, other) < 1e3
            assert found.harm(kind, other) == 0.0 or found.is_known(kind, other)


@given(
    st.lists(companies, max_size=12),
    st.dictionaries(names, st.tuples(st.integers(1, 500), st.floats(0.01, 10)), min_size=1),
    st.integers(1, 8),
)
def test_the_best_mix_is_never_worse_than_plain_by_its_own_measure(mixes, work, cores):
    found = Slowdowns(mixes, 30)
    counts = {kind: count for kind, (count, _) in work.items()}
    plan = best_mix(counts, {kind: seconds for kind, (_, seconds) in work.items()}, found, cores)
    assert plan.seconds <= plan.plain_seconds * (1 + 1e-6)
    assert all(0 < sum(phase.mix.values()) <= cores for phase in plan.phases)
