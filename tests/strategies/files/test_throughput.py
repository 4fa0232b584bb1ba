"""How many nodes keep the files of a file system in memory."""

from dataclasses import replace
from math import inf, nan

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dask_hpc import InputError, Policy
from dask_hpc.strategies.files.files_view import FilesResize, FilesView
from dask_hpc.strategies.files.throughput import Throughput

#: with only the number of operations and bounds left to draw
VIEW = FilesView("scratch", 10, 2, 16, 1, 100.0, (100.0,) * 20, inf, None)


def view(mean=100.0, servers=10, operations=20, **changes):
    return replace(VIEW, servers=servers, rates=(mean,) * operations, **changes)


def decided(view, **parameters):
    """Of how many servers there are then, and the reason."""
    found = Throughput(**parameters).decide(view)
    return (view.servers, "") if found is None else (found.servers, found.reason)


def servers(view, **parameters):
    return decided(view, **parameters)[0]


# -- as published ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mean", "then"), [(95, 10), (105, 10), (85, 12), (115, 9)])
def test_the_rule_by_its_vectors(mean, then):
    """Work 002, 3.2.1, corrected: RIO 100, tolerance 10."""
    assert servers(view(mean)) == then


@pytest.mark.parametrize("mean", [90.0, 110.0])
def test_what_is_just_tolerated_stays(mean):
    assert servers(view(mean)) == 10
    assert servers(view(mean), tolerance=0.0999) != 10


def test_the_mean_of_the_window_counts():
    rates = (1000.0,) * 30 + (150.0, 20.0) * 10
    assert servers(replace(VIEW, rates=rates)) == 12, "of the last 20: 85"
    assert servers(replace(VIEW, rates=rates), window=24) == 9
    assert servers(replace(VIEW, rates=(*rates, 95.0)), window=1) == 10


@pytest.mark.parametrize(
    ("mean", "now", "then"),
    [(50, 4, 8), (80, 4, 5), (89, 1, 2), (60, 3, 5), (33, 3, 10), (1, 3, 16), (0, 3, 16)],
)
def test_as_many_come_as_should_be_enough(mean, now, then):
    assert servers(view(float(mean), now, least=1)) == then


def test_one_comes_at_the_least():
    assert servers(view(99.0, 50, most=100), tolerance=0.001) == 51
    assert servers(view(100 * (1 - 1e-12), 50, most=100), tolerance=0.0) == 51


def test_rounding_is_no_reason_for_another_node():
    assert 3 * 1.1 / 0.3 > 11
    assert servers(view(0.3, 3, recommended=1.1)) == 11


def test_one_goes_at_a_time():
    assert servers(view(1e6)) == 9
    assert servers(view(1e6, 3)) == 2


def test_none_goes_that_would_have_to_come_back():
    """100 is wanted, so 115 on three nodes is more than enough, and 77 on two would be too little."""
    assert servers(view(115.0, 3)) == 3
    assert servers(view(115.0, 3), steady=False) == 2
    assert servers(view(135.0, 3)) == 2, "90 are fine"
    assert servers(view(134.9, 3)) == 3


# -- when nothing is decided -----------------------------------------------------------------------------


def test_not_without_operations():
    assert servers(view(1.0, operations=0)) == 10
    assert servers(view(1.0, operations=4)) == 10
    assert servers(view(1.0, operations=5)) == 16
    assert servers(view(1.0, operations=5), fewest=6) == 10
    assert servers(view(1.0, operations=2), window=2) == 16, "no more are looked at"


def test_rates_that_are_none_do_not_count():
    rates = (nan, inf, -inf, -1.0)
    assert servers(replace(VIEW, rates=(50.0,) * 4 + rates)) == 10
    assert servers(replace(VIEW, rates=(50.0,) * 5 + rates)) == 16


@pytest.mark.parametrize("recommended", [0.0, -1.0, nan, inf])
def test_not_if_nothing_is_recommended(recommended):
    assert servers(view(1.0, recommended=recommended)) == 10
    assert servers(view(1e9, recommended=recommended)) == 10


def test_not_in_the_cool_down():
    for mean in (1.0, 1e6):
        assert servers(view(mean, since_change=29.9)) == 10
        assert servers(view(mean, since_change=30.0)) != 10
        assert servers(view(mean, since_change=30.0), cool_down=60.0) == 10


def test_not_once_it_is_given_up():
    assert servers(view(1.0, ended=True)) == 10
    assert servers(view(needed=12, ended=True)) == 10


def test_no_expansion_after_one_that_brought_little():
    """Before 50, so at least 55 are to be seen for another one."""
    assert servers(view(54.9, before=50.0)) == 10
    assert servers(view(55.1, before=50.0)) == 16
    assert servers(view(54.9, before=50.0), worth=0.05) == 16
    assert servers(view(20.0, before=50.0)) == 10
    assert servers(view(75.0, before=50.0), worth=0.5) == 14, "just enough"
    assert servers(view(150.0, before=149.0)) == 9, "it may shrink all the same"


# -- bounds ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "bounds", "then", "why"),
    [
        (10, {"needed": 12}, 12, "what is kept needs 12 nodes"),
        (10, {"most": 8}, 8, "8 nodes instead of 10: the most allowed"),
        (10, {"least": 11}, 11, "11 nodes instead of 10: the fewest allowed"),
        (10, {"least": 11, "needed": 12}, 12, "what is kept needs 12 nodes"),
        (10, {"least": 12, "needed": 12}, 12, "12 nodes instead of 10: the fewest allowed"),
        (10, {"most": 8, "needed": 12}, 12, "what is kept needs 12 nodes, though 8 are the most allowed"),
        (10, {"most": 8, "needed": 9}, 9, "what is kept needs 9 nodes, though 8 are the most allowed"),
        (10, {"most": 8, "needed": 8}, 8, "8 nodes instead of 10: the most allowed"),
        (4, {"most": 8, "needed": 8}, 8, "what is kept needs 8 nodes"),
        (10, {"least": 9, "most": 5, "needed": 7}, 9, "9 nodes instead of 10: the fewest allowed"),
        (0, {"least": 0, "needed": 0}, 1, "1 node instead of 0: the fewest allowed"),
    ],
)
def test_bounds_beat_all_else(now, bounds, then, why):
    for mean in (1.0, 1e6):
        found = view(mean, now, since_change=0.0, operations=0, before=1.0, **bounds)
        assert decided(found) == (then, why)


def test_room_for_what_is_kept_beats_a_persons_bound():
    assert servers(view(1.0, 10, most=8, needed=10)) == 10, "neither more"
    assert servers(view(1e6, 10, most=8, needed=10)) == 10, "nor fewer"


def test_never_below_what_is_needed_or_asked_for():
    assert servers(view(1e6, 3, least=3)) == 3
    assert servers(view(1e6, 3, needed=3)) == 3
    assert servers(view(1e6, 1, least=0, needed=0), steady=False) == 1


def test_reasons_have_numbers_for_people():
    slow = view(42e6, 2, recommended=2e9)
    assert decided(replace(slow, recommended=80e6))[1] == (
        "20 operations at 42 MB/s on average, less than the 80 MB/s recommended: 4 nodes should give 84 MB/s"
    )
    assert decided(slow)[1] == (
        "20 operations at 42 MB/s on average, less than the 2 GB/s recommended: 16 nodes, the most allowed"
    )
    assert decided(view(2e9, 4, operations=5, recommended=80e6))[1] == (
        "5 operations at 2 GB/s on average, more than the 80 MB/s recommended: 3 nodes should give 1.5 GB/s"
    )
    assert decided(view(50.0, 8))[1].endswith("16 nodes should give 100 B/s"), "the most allowed are enough"


# -- whatever it sees ------------------------------------------------------------------------------------

rates = st.floats(0, 1e12)
counts = st.integers(0, 40)
views = st.builds(
    FilesView,
    name=st.just("scratch"),
    servers=st.integers(1, 40),
    least=counts,
    most=counts,
    needed=counts,
    recommended=st.just(0.0) | st.floats(1e-3, 1e12),
    rates=st.lists(rates, max_size=40).map(tuple) | rates.map(lambda rate: (rate,) * 20),
    since_change=st.just(inf) | st.floats(0, 60),
    before=st.none() | rates,
)
strategies = st.builds(
    Throughput,
    window=st.integers(1, 40),
    fewest=st.integers(1, 40),
    tolerance=st.floats(0, 1),
    cool_down=st.floats(0, 60),
    worth=st.floats(0, 1),
    steady=st.booleans(),
)


def bounds(view):
    least = max(1, view.least, view.needed)
    return least, max(least, view.most)


@given(strategies, views)
def test_always_within_bounds_and_for_a_reason(strategy, view):
    least, most = bounds(view)
    found = strategy.decide(view)
    assert found == strategy.decide(view)
    if found is None:
        assert least <= view.servers <= most
    else:
        assert least <= found.servers <= most and found.servers != view.servers and found.reason
        assert str(found.servers) in found.reason and "inf" not in found.reason


@given(strategies, views)
def test_within_bounds_nothing_is_decided_in_the_cool_down(strategy, view):
    least, most = bounds(view)
    now = min(max(view.servers, least), most)
    assume(strategy.cool_down > 0)
    for share in (0.0, 0.5, 0.999):
        early = replace(view, servers=now, since_change=share * strategy.cool_down)
        assert strategy.decide(early) is None


@given(strategies, views, rates, rates)
def test_the_faster_operations_are_the_fewer_servers(strategy, view, one, other):
    """Where no expansion has brought too little."""
    few, many = (
        servers_of(strategy, replace(view, rates=(mean,) * 20, before=None))
        for mean in sorted((one, other), reverse=True)
    )
    assert few <= many


@given(strategies, views, st.floats(1e-3, 1e12), st.floats(1e-3, 1e12))
def test_the_more_is_recommended_the_more_servers(strategy, view, one, other):
    few, many = (
        servers_of(strategy, replace(view, recommended=rate, before=None)) for rate in sorted((one, other))
    )
    assert few <= many


@given(strategies, views, counts, counts)
def test_the_more_is_kept_the_more_servers(strategy, view, one, other):
    few, many = (servers_of(strategy, replace(view, needed=count)) for count in sorted((one, other)))
    assert few <= many


def servers_of(strategy, view):
    found = strategy.decide(view)
    return view.servers if found is None else found.servers


@given(st.floats(1, 1e3), st.floats(1, 1e4), st.integers(1, 16), st.floats(0.05, 0.5), st.floats(1, 20))
def test_it_comes_to_rest(each, recommended, begin, tolerance, saturated):
    """If the rate grows with the number of servers, as far as a network lets it."""
    strategy = Throughput(tolerance=tolerance)
    now, before, seen = begin, None, []
    for _ in range(40):
        rate = each * min(now, saturated)
        found = strategy.decide(FilesView("scratch", now, 1, 16, 1, recommended, (rate,) * 20, inf, before))
        if found is None:
            break
        before = rate if found.servers > now else None
        now = found.servers
        seen.append(now)
    else:
        raise AssertionError(f"comes and goes for ever: {seen}")
    rate = each * min(now, saturated)
    is_fine = rate >= recommended * (1 - tolerance) * (1 - 1e-9)
    assert is_fine or now == 16 or now > saturated / 1.11


# -- as a part of a policy -------------------------------------------------------------------------------


def test_it_is_found_and_read_as_any_other():
    policy = Policy.load("scratch-files")
    assert policy.files == Throughput() and policy.files.window == 20
    assert Policy.load("fcfs").files is None
    other = policy.with_(**{"files.cool_down": "2 min", "files.steady": False})
    assert other.files == Throughput(cool_down=120.0, steady=False)
    assert Policy.parse(other.to_yaml(), name=policy.name) == other
    assert policy.rules["files"] == "files: throughput"
    with pytest.raises(InputError, match="tolerance"):
        policy.with_(**{"files.tolerance": 2})
    assert FilesResize(3, "x") == FilesResize(servers=3, reason="x")
