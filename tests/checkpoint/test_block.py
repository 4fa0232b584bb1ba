"""Blocks: a value as bytes, whose name tells them from all others, however they are cut."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.checkpoint.store.seal import Damaged
from dask_hpc.checkpoint.worker.block import Block, arrived, first_few, packed, spans, told, unpacked

values = st.one_of(
    st.integers(),
    st.text(max_size=20),
    st.lists(st.binary(max_size=30), max_size=6),
    st.lists(st.floats(allow_nan=False), max_size=50).map(np.array),
    st.sets(st.complex_numbers(allow_nan=False), max_size=3).map(lambda one: {"a": frozenset(one)}),
    st.dictionaries(
        st.text(max_size=3), st.lists(st.integers(0, 255), max_size=20).map(np.uint8), max_size=4
    ),
)


def bytes_of(block, begin=0, end=None):
    return b"".join(block.part(begin, block.nbytes if end is None else end))


@given(values, st.data())
def test_any_part(value, data):
    block = Block.of(value)
    block.check()
    whole = bytes_of(block)
    assert len(whole) == block.nbytes
    begin = data.draw(st.integers(0, block.nbytes))
    end = data.draw(st.integers(begin, block.nbytes))
    assert bytes_of(block, begin, end) == whole[begin:end]


@given(values, st.data())
def test_the_value_comes_back_however_the_bytes_are_cut(value, data):
    block = Block.of(value)
    whole = bytes_of(block)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=4)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    other = arrived(told(block), pieces)
    other.check()
    for one in (block, other, other.apart()):
        np.testing.assert_equal(one.value(), value)
        assert type(one.value()) is type(value)


@given(values.filter(lambda value: Block.of(value).nbytes > 0), st.data())
def test_one_wrong_bit_is_damage(value, data):
    block = Block.of(value)
    whole = bytearray(bytes_of(block))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(Damaged):
        arrived(told(block), [whole]).check()
    with pytest.raises(Damaged):
        arrived(told(block), [whole[:-1]]).check()


class Thing:
    """Can only be pickled."""

    def __init__(self, number):
        self.number = number


def test_what_is_pickled_has_a_name_that_nobody_can_forge():
    block = Block.of(Thing(5))
    assert block.content.startswith("blake2b:") and len(block.content) == len("blake2b:") + 64
    assert block.value().number == 5
    other = Block.of(Thing(6))
    for foreign in (
        arrived({**told(other), "content": block.content}, other.pieces),
        # a sum that is right, of a kind that can be forged
        arrived({**told(other), "content": Block.of([bytes_of(other)]).content}, other.pieces),
    ):
        with pytest.raises(Damaged):
            foreign.check()


def test_arrays_may_be_written_and_begin_where_arrays_may():
    x = np.arange(1000.0)
    block = Block.of(x)
    raw = np.zeros(8001, np.uint8)
    raw[1:] = np.frombuffer(bytes_of(block), np.uint8)
    found = arrived(told(block), [raw[1:].data]).value()
    assert found.flags.writeable and found.flags.aligned and found.flags.owndata is False
    np.testing.assert_array_equal(found, x)
    assert not np.shares_memory(block.apart().value(), x)
    assert np.shares_memory(block.value(), x)  # of its own results a worker copies nothing


@given(st.lists(values, max_size=12))
def test_several_in_one_message(some):
    blocks = [Block.of(value) for value in some]
    parts = [part.data for part in packed(blocks)]
    found = list(unpacked([told(block) for block in blocks], parts))
    assert [one.content for one in found] == [one.content for one in blocks]
    for one, value in zip(found, some, strict=True):
        np.testing.assert_equal(one.value(), value)


class Counted(list):
    """How often somebody goes through it."""

    passes = 0

    def __iter__(self):
        self.passes += 1
        return super().__iter__()


@given(st.lists(values, max_size=12), st.data())
def test_a_message_may_be_cut_anywhere_and_is_gone_through_once(some, data):
    blocks = [Block.of(value) for value in some]
    whole = b"".join(map(bytes_of, blocks))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    parts = Counted(whole[begin:end] for begin, end in pairwise([0, *cuts, len(whole)]))
    found = list(unpacked([told(block) for block in blocks], parts))
    assert [bytes_of(one) for one in found] == [bytes_of(block) for block in blocks]
    assert parts.passes == 1


@given(st.lists(values, min_size=1, max_size=12), st.data())
def test_of_a_message_without_its_end_what_came_is_whole(some, data):
    blocks = [Block.of(value) for value in some]
    whole = b"".join(map(bytes_of, blocks))
    end = data.draw(st.integers(0, max(0, len(whole) - 1)))
    at, offers = 0, [told(block) for block in blocks]
    for block, one in zip(blocks, unpacked(offers, [whole[:end]], apart=False), strict=True):
        at += block.nbytes
        assert isinstance(one, Damaged) == (at > end and block.nbytes > 0)


def test_damage_in_a_message_is_that_of_one_block():
    blocks = [Block.of(np.full(100, number)) for number in range(3)]
    (part,) = packed(blocks)
    part.data[900] ^= 1
    first, second, third = unpacked([told(block) for block in blocks], [part.data])
    assert isinstance(second, Damaged)
    assert (first.value() == 0).all() and (third.value() == 2).all()


@given(st.lists(st.integers(0, 100), min_size=1), st.integers(0, 200))
def test_how_many_go_into_a_message(sizes, most):
    count = first_few(sizes, most)
    assert count == 1 or (1 < count <= len(sizes) and sum(sizes[:count]) <= most)
    assert count == len(sizes) or sum(sizes[: count + 1]) > most


@given(st.integers(0, 2**31), st.integers(2**25, 2**31))
def test_spans_are_all_of_it(nbytes, chunk):
    found = spans(nbytes, chunk)
    assert all(end - begin <= chunk for begin, end in found)
    assert sum(end - begin for begin, end in found) == nbytes
    assert all(a[1] == b[0] for a, b in pairwise(found))
