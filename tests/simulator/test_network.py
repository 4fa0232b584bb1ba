"""Transfers over shared links: fair, as fast as links allow, and in the order in which they wait."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.simulator.network import NetworkFlow, ends, fair_rates


def test_alone_together_and_one_after_the_other():
    links = {"a": 10.0, "b": 4.0}
    assert ends([NetworkFlow(1, 20, ("a",))], links) == {1: 2}
    assert ends([NetworkFlow(1, 20, ("a",), rate=5)], links) == {1: 4}
    assert ends([NetworkFlow(1, 20, ("a",)), NetworkFlow(2, 20, ("a",))], links) == {1: 4, 2: 4}
    assert ends([NetworkFlow(1, 20, ("a",)), NetworkFlow(2, 20, ("a",), after=1)], links) == {1: 2, 2: 4}
    # who ends leaves its share to the other
    assert ends([NetworkFlow(1, 10, ("a",)), NetworkFlow(2, 30, ("a",))], links) == {1: 2, 2: 4}
    # the one that another link slows down leaves its share, too
    assert fair_rates([NetworkFlow(1, 1, ("a",)), NetworkFlow(2, 1, ("a", "b"))], links) == {2: 4, 1: 6}
    assert ends([NetworkFlow(1, 20, ("a",), start=1)], links) == {1: 3}
    assert ends([NetworkFlow(1, 0, ("a",)), NetworkFlow(2, 5, ("elsewhere",))], links) == {1: 0, 2: 0}


def test_what_never_ends():
    assert ends([NetworkFlow(1, 5, ("a",)), NetworkFlow(2, 5, ("b",), after=1)], {"a": 0.0}) == {
        1: inf,
        2: inf,
    }


some = st.lists(
    st.builds(
        NetworkFlow,
        st.uuids(),
        st.floats(1, 100),
        st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True).map(tuple),
        st.floats(0.5, 20) | st.just(inf),
        st.floats(0, 5),
    ),
    min_size=1,
    max_size=8,
)
LINKS = {"a": 10.0, "b": 4.0, "c": 1.0}


@given(some)
def test_no_link_is_overfull_and_nobody_could_have_more_without_taking_from_less(transfers):
    rates = fair_rates(transfers, LINKS)
    used = {link: sum(rates[one.name] for one in transfers if link in one.links) for link in LINKS}
    for link, most in LINKS.items():
        assert used[link] <= most * (1 + 1e-9)
    for one in transfers:
        full = [link for link in one.links if used[link] >= LINKS[link] * (1 - 1e-9)]
        is_largest = [
            rates[one.name] >= max(rates[other.name] for other in transfers if link in other.links) - 1e-9
            for link in full
        ]
        assert rates[one.name] == pytest.approx(one.rate) or any(is_largest)


@given(some)
def test_everything_arrives_and_no_sooner_than_links_allow(transfers):
    found = ends(transfers, LINKS)
    for one in transfers:
        quickest = min([one.rate, *(LINKS[link] for link in one.links)])
        assert found[one.name] >= one.start + one.nbytes / quickest * (1 - 1e-6)
    for link, most in LINKS.items():
        through = [one for one in transfers if link in one.links]
        if through:
            begin = min(one.start for one in through)
            last = max(found[one.name] for one in through)
            assert last >= begin + sum(one.nbytes for one in through) / most * (1 - 1e-6)
