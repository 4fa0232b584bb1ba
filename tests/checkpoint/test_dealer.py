"""Blocks are dealt to agents: evenly, within their room, and outside of the failure domains of the data."""

from collections import Counter
from time import perf_counter

from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.checkpoint.scheduler.catalogue import Dealer
from dask_hpc.strategies.checkpoint.agents import AgentNode


def agents(count, budget=1e9, per_node=1):
    return [AgentNode(f"w{i}", budget, 0.0, domain=f"n{i // per_node}") for i in range(count)]


def test_a_thousand_blocks_spread_evenly():
    dealer = Dealer(agents(4))
    found = Counter(name for i in range(1200) for name in dealer.deal(1, 1, [f"n{i % 4}"], [f"w{i % 4}"]))
    assert set(found.values()) == {300}


def test_the_agents_of_an_item_come_first_and_the_others_when_these_are_full():
    dealer = Dealer(agents(4, budget=10), ["w1", "w2", "w1"])
    found = [dealer.deal(1, 1, ["n9"])[0] for _ in range(15)]
    assert found == ["w1", "w2", "w1"] * 5
    found = Counter(dealer.deal(1, 1, ["n9"])[0] for _ in range(25))
    assert found == {"w2": 5, "w0": 10, "w3": 10}
    assert dealer.deal(1, 1, ["n9"]) == []


def test_copies_are_on_different_nodes():
    dealer = Dealer(agents(6, per_node=2))
    for _ in range(10):
        first, second = dealer.deal(1, 2, ["n0"], ["w0"])
        assert {first[1:], second[1:]} <= set("2345") and int(first[1:]) // 2 != int(second[1:]) // 2


def test_another_process_of_the_same_node_is_better_than_none():
    dealer = Dealer(agents(2, per_node=2))
    assert dealer.deal(1, 2, ["n0"], ["w0"]) == ["w1"]
    assert dealer.deal(1, 1, ["n0"], ["w0"], is_choosy=True) == []


def test_who_says_that_he_is_full_is():
    dealer = Dealer(agents(2))
    dealer.is_full("w0")
    assert [dealer.deal(1, 1, [])[0] for _ in range(3)] == ["w1"] * 3
    assert dealer.deal(2e9, 1, []) == []
    dealer.gives_back("w0", 5)
    assert {*dealer.deal(5, 2, [])} == {"w0", "w1"}


def test_what_fitted_nowhere_does_when_room_is_given_back():
    dealer = Dealer(agents(1, budget=10))
    assert dealer.deal(10, 1, []) == ["w0"] and dealer.deal(10, 1, []) == []
    dealer.gives_back("w0", 10)
    assert dealer.deal(10, 1, []) == ["w0"]


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 2)), max_size=6),
    st.lists(st.tuples(st.integers(0, 6), st.integers(1, 3), st.integers(0, 2)), max_size=30),
)
def test_nobody_is_overfilled(given_agents, blocks):
    nodes = [AgentNode(f"w{i}", b, 0.0, domain=f"n{d}") for i, (b, d) in enumerate(given_agents)]
    domain = {node.name: node.domain for node in nodes}
    dealer = Dealer(nodes)
    kept = Counter()
    for nbytes, number, at in blocks:
        found = dealer.deal(nbytes, number, [f"n{at}"])
        assert len(found) == len(set(found)) <= number
        kept.update(dict.fromkeys(found, nbytes))
        if len(found) < number:
            assert all(n.budget - kept[n.name] < nbytes for n in nodes if n.name not in found)
        beside = [name for name in found if domain[name] == f"n{at}"]
        if beside:  # nobody elsewhere had room
            left = [n for n in nodes if n.name not in found and n.domain != f"n{at}"]
            taken = {domain[name] for name in found}
            assert all(n.budget - kept[n.name] < nbytes or n.domain in taken for n in left)
    assert all(kept[node.name] <= node.budget for node in nodes)


def test_dealing_costs_little_however_many_agents_there_are():
    def seconds(count):
        dealer = Dealer(agents(count))
        begun = perf_counter()
        for i in range(2000):
            dealer.deal(1, 1, [f"n{i % count}"])
        return perf_counter() - begun

    assert min(seconds(1000) for _ in range(3)) < 20 * min(seconds(10) for _ in range(3))
