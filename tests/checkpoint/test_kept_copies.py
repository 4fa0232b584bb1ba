"""Copies within their budgets: nothing is lost, whatever goes where; and their files are never trusted."""

import errno
import os
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dask_hpc.checkpoint.faults import VARIABLE
from dask_hpc.checkpoint.store.seal import Damaged
from dask_hpc.checkpoint.worker.block import Block
from dask_hpc.checkpoint.worker.kept import Full, KeptCopies, Shelf

LINE = 300  # bytes of the first line of a file, at most


def block(number, size=1000):
    return Block.of(np.full(size, number, np.uint8))


def value(kept, content):
    return kept.intact(content).value()


class AnyOrder(RuleBasedStateMachine):
    """Against a plain dictionary."""

    def __init__(self):
        super().__init__()
        self.folder = mkdtemp()
        self.kept = KeptCopies(5000, Shelf(self.folder, 4000 + 4 * LINE))
        self.there = {}

    def teardown(self):
        rmtree(self.folder)

    @rule(number=st.integers(0, 9), size=st.integers(0, 2500))
    def add(self, number, size):
        one = block(number, size)
        try:
            with self.kept.room(one.nbytes):
                self.kept.add(one)
            self.there[one.content] = one
        except Full:
            assert self.kept.nbytes + one.nbytes > self.kept.allowed
            assert self.kept.on_disk + one.nbytes + LINE > self.kept.shelf.budget

    @precondition(lambda self: self.there)
    @rule(data=st.data())
    def drop(self, data):
        content = data.draw(st.sampled_from(sorted(self.there)))
        self.kept.drop(content)
        del self.there[content]
        with pytest.raises(KeyError):
            self.kept.get(content)

    @precondition(lambda self: self.there)
    @rule(data=st.data())
    def to_disk(self, data):
        content = data.draw(st.sampled_from(sorted(self.there)))
        if self.kept.to_disk(content):
            assert content in self.kept.shelf

    @rule(allowed=st.integers(0, 5000))
    def shrink(self, allowed):
        self.kept.allowed = allowed
        assert self.kept.shrink() == (self.kept.nbytes <= allowed)
        # the next one would not have fitted
        if self.kept.nbytes > allowed:
            largest = max(one.nbytes for one in self.kept._blocks.values())
            assert self.kept.on_disk + largest + LINE > self.kept.shelf.budget

    @invariant()
    def nothing_is_lost_and_no_budget_exceeded(self):
        assert sorted(self.kept.contents()) == sorted(self.there) and len(self.kept) == len(self.there)
        for content, one in self.there.items():
            assert content in self.kept
            np.testing.assert_array_equal(value(self.kept, content), one.value())
        assert self.kept.nbytes <= self.kept.budget
        on_disk = sum(file.stat().st_size for file in Path(self.folder).iterdir())
        assert on_disk == self.kept.on_disk <= self.kept.shelf.budget


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)


def test_room_is_held_for_what_is_on_its_way(tmp_path):
    kept = KeptCopies(1500)
    with kept.room(1000), pytest.raises(Full, match="1000 bytes do not fit"), kept.room(1000):
        pass
    with kept.room(1000):
        kept.add(block(1))
    with pytest.raises(Full):
        kept.add(block(2))
    kept.add(block(1))  # is there already
    assert kept.nbytes == 1000


def test_the_largest_goes_to_disk_and_what_is_there_already_first(tmp_path):
    kept = KeptCopies(10_000, Shelf(str(tmp_path), 10_000))
    blocks = [block(1, 3000), block(2, 2000), block(3, 1000)]
    for one in blocks:
        kept.add(one)
    assert kept.to_disk(blocks[2].content)
    assert kept.nbytes == 6000
    kept.allowed = 5500
    assert kept.shrink()
    assert kept.nbytes == 5000
    kept.allowed = 4000
    assert kept.shrink()
    assert kept.nbytes == 2000 and kept.get(blocks[1].content).in_memory


@pytest.mark.parametrize("fault", ["copy-begun!ENOSPC", "copy-written!EDQUOT"])
def test_a_full_disk(tmp_path, monkeypatch, fault):
    kept = KeptCopies(1000, Shelf(str(tmp_path), 10_000))
    kept.add(block(1))
    monkeypatch.setenv(VARIABLE, fault)
    with pytest.raises(Full) as told:
        kept.add(block(2))
    assert os.strerror(getattr(errno, fault.partition("!")[2])) in str(told.value)
    monkeypatch.delenv(VARIABLE)
    assert list(tmp_path.iterdir()) == [] and kept.on_disk == 0
    assert (value(kept, block(1).content) == 1).all()
    kept.add(block(2))  # there is room again
    assert (value(kept, block(2).content) == 2).all() and not kept.trouble


def test_what_nobody_wants_any_longer_while_it_is_written_leaves_no_file(tmp_path, monkeypatch):
    kept, one = KeptCopies(0, Shelf(str(tmp_path), 10_000)), block(1)
    write = kept.shelf.add

    def is_dropped_meanwhile(block):
        kept.drop(block.content)
        return write(block)

    monkeypatch.setattr(kept.shelf, "add", is_dropped_meanwhile)
    kept.add(one)
    assert one.content not in kept and list(tmp_path.iterdir()) == []


@pytest.fixture
def shelf(tmp_path):
    found = Shelf(str(tmp_path), 1e6)
    assert found.add(block(1)) and found.add(block(2))
    return found


def other_process(shelf):
    found = Shelf(shelf.folder, 1e6)
    found.find()
    return found


def test_files_are_found_again(shelf):
    found = other_process(shelf)
    assert sorted(found.contents()) == sorted(shelf.contents()) and found.nbytes == shelf.nbytes
    copy = found.get(block(2).content).apart()
    copy.check()
    assert (copy.value() == 2).all()


def test_files_that_are_not_what_they_were(shelf, tmp_path):
    (one,) = [file for file in tmp_path.iterdir() if file.name.startswith(block(1).content.replace(":", "-"))]
    whole = one.read_bytes()
    for wrong in (b"", whole[:-1], whole + b"1", whole[:20], b"{}\n", b"[1]\n", b"null\n", b"\n", b"\xff\n"):
        one.write_bytes(wrong)
        assert other_process(shelf).contents() == [block(2).content], wrong
        assert not one.exists()
    one.write_bytes(whole[:-5] + bytes([whole[-5] ^ 4]) + whole[-4:])
    with pytest.raises(Damaged):
        other_process(shelf).get(block(1).content).apart().check()
    # another's file under this name
    (two,) = [file for file in tmp_path.iterdir() if file != one]
    one.write_bytes(two.read_bytes())
    with pytest.raises(KeyError):
        other_process(shelf).get(block(1).content)


def test_what_goes_away_while_it_is_read(shelf, tmp_path):
    copy = shelf.get(block(1).content)
    for file in tmp_path.iterdir():
        os.truncate(file, file.stat().st_size - 1)
    with pytest.raises(Damaged, match="has lost its end"):
        copy.apart()
    for file in tmp_path.iterdir():
        file.unlink()
    with pytest.raises(KeyError):
        shelf.get(block(2).content)
    shelf.drop(block(1).content)
    assert shelf.nbytes == 0


def test_foreign_files_are_left_alone(shelf, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "xxh3-.copy").write_text("mine")
    (tmp_path / "XXH3-12.copy").write_text("mine")
    assert len(other_process(shelf).contents()) == 2
    assert len(list(tmp_path.iterdir())) == 5


def test_contents_that_lead_elsewhere(shelf):
    for content in ("../../etc:passwd", "a/b:c", "..", ""):
        assert content not in shelf
        with pytest.raises(KeyError):
            shelf.get(content)
