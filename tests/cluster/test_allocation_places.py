"""The account of who is where in an allocation: nobody twice, no place twice, whatever happens."""

import re

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dask_hpc.cluster.client.places import UnitPlaces
from dask_hpc.model.errors import InputError
from dask_hpc.planning.allocation import AllocatedNode

NODES = [AllocatedNode(f"n{i}", 4) for i in range(1, 5)]


def names_of(places, *units, now=0.0):
    return [place.node.name if (place := places.take(unit, now)) else None for unit in units]


def test_units_spread_and_the_last_nodes_are_kept():
    places = UnitPlaces(NODES, parts=2, keep=2)
    assert places.names("dask") == ["n1", "n2"] and places.names("beside") == ["n3", "n4"]
    assert places.size == 4
    assert names_of(places, *"abcde") == ["n1", "n2", "n1", "n2", None]
    assert places.why_none(0.0) == "every node has its units"
    assert places.units("n1") == ["a", "c"]
    places.give("a")
    place = places.take("e", 0.0)
    assert (place.node.name, place.part) == ("n1", 0)
    assert UnitPlaces(NODES).names("beside") == []


def test_a_node_is_lent_when_it_is_empty():
    places = UnitPlaces(NODES[:2])
    names_of(places, "a", "b")
    places.hold("n2")
    assert places.names("leaving") == ["n2"] and places.size == 1
    assert not places.settle("n2") and places.names("dask") == ["n1", "n2"]
    places.hold("n2")
    places.give("b")
    assert names_of(places, "c") == [None], "nothing new starts on a node that is to be lent"
    assert places.settle("n2") and places.names("beside") == ["n2"]
    places.regain("n2")
    assert names_of(places, "c") == ["n2"]
    with pytest.raises(InputError, match="n2: it is dask; allowed: beside"):
        places.regain("n2")


def test_all_nodes_lent():
    places = UnitPlaces(NODES[:1])
    places.hold("n1")
    places.settle("n1")
    assert places.take("a", 0.0) is None and places.why_none(0.0) == "all nodes are lent"


def test_a_node_where_units_die_young_rests_ever_longer_then_is_given_up():
    places = UnitPlaces(NODES[:2])
    now = 0.0
    for rest in (2.0, 4.0, 8.0):
        assert names_of(places, "a", now=now) == ["n1" if rest == 2.0 else "n2"]
        places.give("a")
        told = places.ended("n1", 29.0, now, "no such interface")
        assert told == f"n1 rests for {rest:g} s"
        assert names_of(places, "b", "c", now=now + rest - 0.1) == ["n2", None]
        assert "1 node failed and is tried again in 0.1 s" in places.why_none(now + rest - 0.1)
        now += rest
        assert names_of(places, "c", now=now) == ["n1"]
        places.give("b")
        places.give("c")
    told = places.ended("n1", 0.0, now, "no such interface")
    why = "4 units in a row have died there, the last one: no such interface"
    assert told == f"n1 is not used any more: {why}" and places.why_out() == {"n1": why}
    assert names_of(places, "a", "b", now=1e9) == ["n2", None]
    places.lose("n2", "Slurm says it is down")
    assert re.match("no node is left: n1: 4 units .*; n2: Slurm says it is down", places.why_none(0.0))
    assert places.table()[1] == ("n2", "not used", "Slurm says it is down")


def test_a_node_that_failed_is_taken_last():
    places = UnitPlaces(NODES[:2], parts=2)
    places.ended("n1", 1.0, 0.0, "")
    assert names_of(places, "a", "b", "c", now=5.0) == ["n2", "n2", "n1"]


def test_a_unit_that_lived_long_says_nothing_against_its_node():
    places = UnitPlaces(NODES[:1])
    for _ in range(3):
        places.ended("n1", 1.0, 0.0, "")
    assert places.ended("n1", 30.0, 0.0, "") == ""
    assert places.ended("n1", 1.0, 100.0, "") == "n1 rests for 2 s", "it is counted anew"


def test_a_node_that_is_lost_while_it_is_to_be_lent_stays_lost():
    places = UnitPlaces(NODES[:2])
    places.hold("n1")
    places.lose("n1", "down")
    places.settle("n1")
    places.regain("n1")
    assert places.names("out") == ["n1"]


def test_more_nodes():
    places = UnitPlaces(NODES[:1])
    assert places.add(NODES[:2]) == ["n2"] and places.size == 2
    assert places.node("n2") == NODES[1]


class Account(RuleBasedStateMachine):
    """Units come and go, nodes change hands and fail, in any order."""

    def __init__(self):
        super().__init__()
        self.places = UnitPlaces(NODES, parts=2, keep=1)
        self.there = {}
        self.now = 0.0
        self.number = 0

    @rule(seconds=st.floats(0, 1000))
    def wait(self, seconds):
        self.now += seconds

    @rule()
    def take(self):
        self.number += 1
        place = self.places.take(self.number, self.now)
        if place is not None:
            assert place.node.name in self.places.names("dask")
            assert place not in self.there.values()
            self.there[self.number] = place

    @precondition(lambda self: self.there)
    @rule(data=st.data(), lived=st.sampled_from([0.0, 1e3]), unasked=st.booleans())
    def give(self, data, lived, unasked):
        unit = data.draw(st.sampled_from(sorted(self.there)))
        place = self.there.pop(unit)
        self.places.give(unit)
        if unasked:
            self.places.ended(place.node.name, lived, self.now, "")

    @precondition(lambda self: self.places.names("dask"))
    @rule(data=st.data())
    def hold(self, data):
        self.places.hold(data.draw(st.sampled_from(self.places.names("dask"))))

    @precondition(lambda self: self.places.names("leaving"))
    @rule(data=st.data())
    def settle(self, data):
        name = data.draw(st.sampled_from(self.places.names("leaving")))
        empty = not any(place.node.name == name for place in self.there.values())
        assert self.places.settle(name) == empty

    @precondition(lambda self: self.places.names("beside"))
    @rule(data=st.data())
    def regain(self, data):
        self.places.regain(data.draw(st.sampled_from(self.places.names("beside"))))

    @rule(data=st.data())
    def lose(self, data):
        self.places.lose(data.draw(st.sampled_from(NODES)).name, "down")

    @invariant()
    def nobody_is_on_a_node_of_the_other_program(self):
        for name in self.places.names("beside"):
            assert self.places.units(name) == []

    @invariant()
    def every_node_has_one_use(self):
        names = [name for use in ("dask", "leaving", "beside", "out") for name in self.places.names(use)]
        assert sorted(names) == [node.name for node in NODES]
        assert sorted(unit for node in NODES for unit in self.places.units(node.name)) == sorted(self.there)


Account.TestCase.settings = settings(settings.get_profile("same"), max_examples=40, stateful_step_count=30)
TestAccount = Account.TestCase
