"""The catalogue: copies are never counted on agents that are gone, and what is needed is never given up."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dask_hpc.checkpoint.scheduler.catalogue import Catalogue

KEYS, AGENTS, CONTENTS = ("x", "y", "z"), ("a", "b", "c"), ("1", "2", "3")
SIZE = {"1": 10, "2": 20, "3": 30}
keys, agents, contents = map(st.sampled_from, (KEYS, AGENTS, CONTENTS))


def test_the_same_content_is_kept_until_nobody_needs_it():
    known = Catalogue()
    known.joins("a")
    for key in ("x", "y"):
        assert known.copied(key, "1", 10, "a")
    known.need("a version", "1", 10)
    assert known.nbytes_on("a") == 10
    assert known.release("x") == known.release("y") == {}
    assert known.release("a version") == {"1": ["a"]}
    assert not known.contents and known.nbytes_on("a") == 0


def test_the_dead_are_not_believed():
    known = Catalogue()
    assert not known.copied("x", "1", 10, "a")
    assert not known.contents
    known.joins("a")
    known.copied("x", "1", 10, "a")
    assert known.lost("a") == ["1"]
    assert not known.add("1", "a")
    assert known.where("x") == ("1", [])


def test_a_result_that_came_out_otherwise_needs_its_old_content_no_longer():
    known = Catalogue()
    known.joins("a")
    known.copied("x", "1", 10, "a")
    known.copied("x", "2", 20, "a")
    assert known.unneeded() == {"1": ["a"]} and known.unneeded() == {}
    assert known.where("x") == ("2", ["a"]) and known.nbytes_on("a") == 20


def test_the_most_that_anybody_wants_is_wanted():
    known = Catalogue()
    known.need("x", "1", 10, 1)
    known.need("y", "1", 10, 3)
    assert known.contents["1"].wanted == 3
    known.need("y", "1", 10, 2)
    assert known.contents["1"].wanted == 3, "who wants less as well"
    known.release("y")
    assert known.contents["1"].wanted == 1


class Books(RuleBasedStateMachine):
    """Whatever happens: the books agree with each other and with who lives and who needs what."""

    def __init__(self):
        super().__init__()
        self.known = Catalogue()
        self.alive = set()
        self.needs = {}

    @rule(agent=agents)
    def joins(self, agent):
        self.known.joins(agent)
        self.alive.add(agent)

    @rule(agent=agents)
    def dies(self, agent):
        had = {one for one, copies in self.known.contents.items() if agent in copies.where}
        assert set(self.known.lost(agent)) == had
        self.alive.discard(agent)

    @rule(agent=agents, content=contents)
    def loses_one(self, agent, content):
        self.known.lost(agent, [content])
        assert content not in self.known.on(agent)

    @rule(key=keys, content=contents, agent=agents, copies=st.integers(1, 3))
    def copied(self, key, content, agent, copies):
        if self.known.copied(key, content, SIZE[content], agent, copies):
            assert agent in self.alive
            self.needs[key] = {content}
        else:
            assert agent not in self.alive

    @rule(version=st.sampled_from(["v1", "v2"]), content=contents)
    def kept(self, version, content):
        if content in self.known.contents:
            self.known.need(version, content, SIZE[content])
            self.needs.setdefault(version, set()).add(content)

    @rule(owner=st.sampled_from([*KEYS, "v1", "v2"]))
    def released(self, owner):
        self.needs.pop(owner, None)
        self.check_given_up(self.known.release(owner))

    @rule()
    def swept(self):
        self.check_given_up(self.known.unneeded())

    def check_given_up(self, unneeded):
        for content in unneeded:
            assert not any(content in needed for needed in self.needs.values())

    @invariant()
    def nobody_dead_has_anything(self):
        for copies in self.known.contents.values():
            assert copies.where <= self.alive

    @invariant()
    def what_is_needed_is_known(self):
        for owner, needed in self.needs.items():
            for content in needed:
                assert owner in self.known.contents[content].needed_by

    @invariant()
    def both_books_agree(self):
        for agent in AGENTS:
            has = {one for one, copies in self.known.contents.items() if agent in copies.where}
            assert set(self.known.on(agent)) == has
            assert self.known.nbytes_on(agent) == sum(SIZE[one] for one in has)


TestBooks = Books.TestCase
TestBooks.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
