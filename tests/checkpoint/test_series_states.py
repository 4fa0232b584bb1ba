"""The versions of a name: whatever happens in whatever order, what was committed is there until something
newer is, what was given up stays so, and nobody waits for ever."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dask_hpc.checkpoint.version import KeptVersion, SeriesState

KEYS = ["x", "y", "z"]
numbers = st.integers(0, 5)


class States(RuleBasedStateMachine):
    """A shell that does what is said, at any time, and hears of it in any order."""

    @initialize(is_eager=st.booleans())
    def opens(self, is_eager):
        self.series = SeriesState("it", is_eager)
        self.begun, self.committed, self.given_up, self.stored = [], [], set(), []
        self.held, self.gone, self.copying, self.writer = set(), set(), [], 0
        self.others = self.known_to_others = 0

    def follow(self, changes):
        held, freed = set(changes.held), set(changes.freed)
        assert not held & self.held and freed <= self.held and not held & freed
        self.held = (self.held | held) - freed
        assert not self.gone & set(changes.gone), "twice"
        self.gone |= set(changes.gone)
        if changes.copy is not None:
            self.copying.append(changes.copy)
        self.writer += changes.writes

    def one_of(self, versions, number):
        return versions[number % len(versions)] if versions else None

    @rule(awaited=st.sets(st.sampled_from(KEYS)))
    def begins(self, awaited):
        version = KeptVersion(self.series, {key: key for key in KEYS}, awaited=set(awaited))
        before = self.series.number
        self.follow(self.series.begin(version))
        self.begun.append(version)
        assert version.number == self.series.number > before, "numbers only grow"

    @rule(number=numbers, key=st.sampled_from(KEYS))
    def a_result_comes(self, number, key):
        if (version := self.one_of(self.begun, number)) is not None:
            version.awaited.discard(key)

    @rule(is_due=st.booleans(), lost=st.sets(st.sampled_from(KEYS)))
    def it_is_time(self, is_due, lost):
        if not self.series.is_eager:
            before = self.series.target
            self.follow(self.series.choose(is_due, lambda key: key not in lost))
            target = self.series.target
            if target is not before and target is not None:
                newer = self.series.pending[self.series.pending.index(target) + 1 :]
                assert target.awaited or all(one.awaited for one in newer), "the newest that is complete"
                assert not target.awaited & lost

    @rule(number=numbers)
    def somebody_asks_for(self, number):
        if not self.series.is_eager and (version := self.one_of(self.begun, number)) is not None:
            before = self.series.target
            self.follow(self.series.aim(version))
            assert self.series.target is (version if version in self.series.pending else before)

    @rule(number=numbers)
    def is_copied(self, number):
        """Also one that is given up, or older than the base, by now: its copies took their time."""
        if (version := self.one_of(self.copying, number)) is not None:
            before, is_next = self.series.base, version is self.series.target
            self.follow(self.series.copied(version))
            base = self.series.base
            assert base is before or (base is version and is_next and version not in self.given_up)
            assert before is None or base.number >= before.number
            if base is not before:
                self.committed.append(version)
                assert all(one.number > base.number for one in self.series.pending), (
                    "older ones are not needed"
                )

    @rule(number=numbers)
    def ends(self, number):
        some = self.copying if self.series.is_eager else self.begun
        if (version := self.one_of(some, number)) is not None:
            if version is not self.series.base and version not in self.committed:
                self.given_up.add(version)
            self.follow(self.series.end(version))

    @rule(number=numbers)
    def is_to_be_stored(self, number):
        if (version := self.one_of(self.series.known(), number)) is not None:
            self.follow(self.series.write(version))
            assert not version.is_settled or version is not self.series.to_write

    @precondition(lambda self: self.writer and self.series.writing is None)
    @rule()
    def its_turn_comes(self):
        version = self.series.next_to_write()
        assert (version is None) == (self.series.writing is None)
        self.writer -= version is None

    @precondition(lambda self: self.series.writing is not None)
    @rule(problem=st.sampled_from(["", "disk full"]), is_lost=st.booleans())
    def is_written(self, problem, is_lost):
        version, newer = self.series.writing, self.series.to_write
        if not problem:
            assert self.series.learn(max(self.series.in_store, self.others) + 1), "above all others"
        self.follow(self.series.written(problem, None if is_lost else version))
        assert version.is_settled and version.problem == problem
        assert ("store" in version.levels[-1:]) == (not problem or "store" in version.levels)
        if problem:
            assert self.series.to_write is (newer or (None if is_lost else version))

    @rule()
    def another_commits(self):
        self.others = max(self.others, self.series.in_store) + 1

    @precondition(lambda self: self.others)
    @rule(late=st.integers(0, 2))
    def we_hear_of_anothers_commit(self, late):
        number, before = max(1, self.others - late), self.series.in_store
        assert self.series.learn(number) == (number > before)
        assert self.series.in_store >= before

    @invariant()
    def what_was_committed_is_there_until_something_newer_is(self):
        if self.committed:
            newest = max(self.committed, key=lambda one: one.number)
            assert self.series.base is newest and newest not in self.gone

    @invariant()
    def what_is_held_is_what_is_to_be(self):
        assert (
            self.held == {one for one in self.begun if self.series.holds(one)} and not self.held & self.gone
        )
        base, target = self.series.base, self.series.target
        if base is not None and not self.series.is_eager:
            assert (base in self.held) == bool(self.series.pending), "one death costs not both"
        if self.series.is_eager:
            assert self.held == set(self.series.known()) and len(self.series.pending) <= 2
        elif target is not None and self.series.is_renewed:
            assert target in self.held

    @invariant()
    def nobody_is_forgotten(self):
        known = self.series.known()
        assert {one for one in self.begun if one not in known} == self.gone
        assert self.writer in (0, 1), "one writes at a time"
        assert self.writer or (self.series.to_write is None and self.series.writing is None)
        if self.series.is_eager:
            assert self.series.pending == [] or self.series.target is not None, "the next one is copied"
            dropped = [one for one in self.begun if one in self.gone]
            assert all(one.is_settled for one in dropped), "who waits for it hears so"

    def teardown(self):
        if hasattr(self, "series"):
            self.follow(self.series.close())
            left = {self.series.writing, self.series.to_write} - {None}
            assert set(self.series.known()) == left and self.held == (left if self.series.is_eager else set())


TestStates = States.TestCase
TestStates.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)


def test_what_could_not_be_written_makes_room_for_a_newer_one():
    series = SeriesState("it")
    one, two = (KeptVersion(series, {}) for _ in "ab")
    assert series.write(one).writes and series.next_to_write() is one
    assert not series.write(two).writes
    assert series.written("disk full", again=one).gone == [one] and series.next_to_write() is two
    series.written()
    assert two.levels == ["store"] and series.next_to_write() is None and not one.levels


def test_what_was_copied_is_stored_before_what_is_on_its_way_and_that_before_what_waits():
    series = SeriesState("it")
    one, two, three = (KeptVersion(series, {}) for _ in "abc")
    series.begin(one)
    series.aim(one)
    series.copied(one)
    for version in (two, three):
        series.begin(version)
    series.aim(two)
    assert series.next_stored is one
    series.lost_base()
    assert series.next_stored is two
    series.end(two)
    assert series.next_stored is three


def test_after_it_was_closed_the_next_one_is_copied_at_once():
    series = SeriesState("it", is_eager=True)
    one, two = (KeptVersion(series, {}) for _ in "ab")
    series.begin(one)
    assert series.close().gone == [one] and series.begin(two).copy is two


def test_only_what_is_newer_than_all_we_heard_of_is_news():
    series = SeriesState("it")
    assert [series.learn(number) for number in (3, 2, 3, 4)] == [True, False, False, True]
