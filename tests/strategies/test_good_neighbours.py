"""Which kinds share a node: by how they were seen to slow each other, and what is tried to find out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.planning.colocation.slowdowns import Company
from dask_hpc.strategies.together.good_neighbours import GoodNeighbours
from dask_hpc.strategies.together.neighbours_view import KindLimit, KindWork, NeighboursView

RULE = GoodNeighbours()


def work(name, left=1000, seconds=0.2, waiting=None):
    return KindWork(name, seconds, left, left if waiting is None else waiting)


def seen(kind, others, slowdown, tasks=100, stderr=0.01):
    return Company(kind, others, slowdown, stderr, tasks)


def view(*kinds, seen=(), threads=4, nodes=1, limits=None):
    return NeighboursView(threads, nodes, tuple(kinds), tuple(seen), limits or {})


#: "a" slows its own: two at once get more done than four; "b" does not mind, and nobody minds "b"
BAD = (
    seen("a", {"a": 1}, 1.2), seen("a", {"a": 3}, 4.0), seen("a", {"a": 1, "b": 2}, 1.2),
    seen("a", {"b": 3}, 1.0),
    seen("b", {"b": 3}, 1.0), seen("b", {"a": 1, "b": 2}, 1.0), seen("b", {"a": 2, "b": 1}, 1.0),
)  # fmt: skip


def test_a_kind_that_slows_its_own_runs_beside_another():
    limits, memory = RULE.decide(view(work("a"), work("b"), seen=BAD), None)
    assert limits.keys() == {"a", "b"} and memory == {}
    assert 1 <= limits["a"].beside <= 2 and limits["b"].beside == 4 - limits["a"].beside
    assert limits["a"].alone == 2 and limits["b"].alone is None
    assert not limits["a"].is_trial
    assert limits["a"].reason.startswith("a takes 1.20 times as long beside a; saves ")


def test_alone_as_many_as_get_most_done():
    limits, _ = RULE.decide(view(work("a"), seen=BAD), None)
    assert limits["a"].alone == 2 and limits["a"].beside == 2
    assert str(limits["a"]).startswith("a: 2 at once on a node beside others, 2 alone; ")
    limits, _ = RULE.decide(view(work("a"), seen=[seen("a", {"a": 1}, 1.0), seen("a", {"a": 3}, 1.9)]), None)
    assert not limits  # it is slowed, and fewer would get less done


@pytest.mark.parametrize(
    "change",
    [
        {"threads": 1},
        {"seen": [one._replace(tasks=5) for one in BAD]},  # not known
        {"seen": [one._replace(stderr=5.0) for one in BAD]},  # not sure
        {"seen": [one._replace(slowdown=1.0) for one in BAD]},  # nobody minds
    ],
)
def test_no_limit_before_it_is_known_to_help(change):
    many = {"seen": BAD, **change}
    limits, _ = RULE.decide(view(work("a", 50), work("b", 50), **many), None)
    assert not any(not one.is_trial for one in limits.values())


def test_what_is_left_alone():
    short = view(work("a", seconds=0.019), work("b"), seen=BAD)
    assert not RULE.decide(short, None)[0].get("a")
    assert RULE.decide(view(work("a", seconds=0.02), seen=BAD), None)[0]
    assert GoodNeighbours(shortest=0.5).decide(view(work("a"), work("b"), seen=BAD), None)[0] == {}
    assert RULE.decide(view(work("a", left=0), seen=BAD), None) == ({}, {})
    assert RULE.decide(view(seen=BAD), None) == ({}, {})


def test_a_gain_that_is_too_small_is_none_and_half_of_it_keeps_what_is_on():
    plenty = view(work("a"), work("b"), seen=BAD)
    # as much of b again and again makes what a can save a small share
    counts = [1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000]
    kept = [bool(RULE.decide(view(work("a"), work("b", count), seen=BAD), None)[0]) for count in counts]
    assert kept[0] and not kept[-1]
    assert (
        RULE.decide(plenty, None)[0] == RULE.decide(view(work("a"), work("b"), seen=BAD, limits={}), None)[0]
    )
    first_off = counts[kept.index(False)]
    on = {"a": KindLimit("a", 1, 2, "so"), "b": KindLimit("b", 3, None, "so")}
    tried = {"a": KindLimit("a", 1, 2, "so", True)}
    still = RULE.decide(view(work("a"), work("b", first_off), seen=BAD, limits=on), None)[0]
    not_so = RULE.decide(view(work("a"), work("b", first_off), seen=BAD, limits=tried), None)[0]
    assert still and not not_so


def test_only_the_kinds_with_most_to_do_are_looked_at_and_all_of_a_mix_are_limited():
    small = [work(f"s{number}", 10) for number in range(6)]
    limits, _ = RULE.decide(view(*small, work("a"), work("b"), seen=BAD), None)
    assert {"a", "b"} <= limits.keys() and len(limits) <= 4
    unknown = KindWork("new", None, 1000, 1000)  # takes as long as others, for all that is known
    limits, _ = RULE.decide(view(unknown, work("a"), work("b"), seen=BAD), None)
    assert limits.keys() == {"a", "b"}


def test_what_waits_is_tried_beside_what_fills_nodes():
    alone = [seen("a", {"a": 3}, 1.0)]
    limits, memory = RULE.decide(view(work("a", 2000), work("b", 2000), seen=alone), None)
    assert limits["a"].is_trial and limits["a"].beside == 2 and limits["a"].alone is None
    assert memory.keys() == {("a", "b")} and memory["a", "b"].begun == 2000
    again, memory = RULE.decide(view(work("a", 1900), work("b", 2000), seen=alone, limits=limits), memory)
    assert again["a"].is_trial and memory["a", "b"] == (2000, False)
    over, memory = RULE.decide(view(work("a", 1759), work("b", 2000), seen=alone), memory)
    assert memory["a", "b"].is_over and over["a"].is_trial  # the last time
    none, memory = RULE.decide(view(work("a", 1758), work("b", 2000), seen=alone), memory)
    assert not none.get("a") or none["a"].reason != over["a"].reason
    assert RULE.decide(view(work("a", 9000), work("b", 9000), seen=alone), memory)[1]["a", "b"].is_over


@pytest.mark.parametrize(
    "kinds, seen_",
    [
        ((work("a", 2000), work("b", 2000, waiting=29)), [seen("a", {"a": 3}, 1.0)]),  # too few wait
        ((work("a", 2000, waiting=29), work("b", 2000)), [seen("a", {"a": 3}, 1.0)]),
        ((work("a", 2000), work("b", 2000)), []),  # it has not filled nodes yet
        ((work("a", 2000), work("b", 2000)), [seen("a", {"a": 3}, 1.0), seen("a", {"b": 1}, 1.0),
                                              seen("b", {"a": 1}, 1.0)]),
        ((work("a", 5999),), [seen("a", {"a": 3}, 1.0)]),  # trying would be more than a small share
        ((work("a", 9000),), [seen("a", {"a": 3}, 1.0), seen("a", {"a": 1}, 1.0)]),  # half of it was seen
    ],
)  # fmt: skip
def test_nothing_is_tried(kinds, seen_):
    limits, memory = RULE.decide(view(*kinds, seen=seen_), None)
    assert limits == {} and memory == {}


def test_fewer_of_a_kind_alone_are_tried_where_that_costs_little():
    alone = [seen("a", {"a": 3}, 1.0)]
    limits, memory = RULE.decide(view(work("a", 6000), seen=alone), None)
    assert limits["a"] == KindLimit("a", 2, 2, limits["a"].reason, True)
    assert memory.keys() == {("a", "a")}
    assert RULE.decide(view(work("a", 6000), seen=alone, nodes=2), None)[0] == {}
    assert RULE.decide(view(work("a", 12_000), seen=alone, nodes=2), None)[0]


def test_what_was_tried_is_forgotten_after_many_others():
    memory = {(f"x{number}", "y"): RULE_TRIAL for number in range(500)}
    _, after = RULE.decide(view(work("a", 6000), seen=[seen("a", {"a": 3}, 1.0)]), memory)
    assert len(after) <= 201 and ("a", "a") in after and ("x499", "y") in after


RULE_TRIAL = next(iter(RULE.decide(view(work("a", 6000), seen=[seen("a", {"a": 3}, 1.0)]), None)[1].values()))

names = st.sampled_from("abcdef")
companies = st.builds(
    Company, names, st.dictionaries(names, st.integers(1, 8), max_size=3), st.floats(1, 10),
    st.floats(0, 1), st.floats(0, 500),
)  # fmt: skip
works = st.builds(
    KindWork, names, st.none() | st.floats(0.001, 10), st.integers(0, 10_000), st.integers(0, 500)
)


@given(
    st.lists(companies, max_size=12),
    st.lists(works, max_size=6, unique_by=lambda one: one.name),
    st.integers(1, 8),
    st.integers(1, 50),
)
def test_limits_never_leave_a_node_without_work(mixes, kinds, threads, nodes):
    """Whatever is seen: some kind that is left may run beside others, or none is limited."""
    limits, memory = RULE.decide(NeighboursView(threads, nodes, tuple(kinds), tuple(mixes), {}), None)
    left = {kind.name for kind in kinds if kind.left}
    assert limits.keys() <= left
    for limit in limits.values():
        assert 0 <= limit.beside <= threads and (limit.alone is None or 1 <= limit.alone <= threads)
    if left and left <= limits.keys():
        assert any(limit.beside for limit in limits.values())
    assert sum(limit.beside for limit in limits.values() if not limit.is_trial) <= threads
    again, _ = RULE.decide(NeighboursView(threads, nodes, tuple(kinds), tuple(mixes), limits), memory)
    assert again.keys() <= left
