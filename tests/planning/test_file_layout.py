"""Where blocks of scratch files lie: what was published, and what holds whatever comes and goes."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_hpc.model.errors import InputError
from dask_hpc.planning.moves.file_layout import DEALINGS, BlockInterval, BlockMove, FileLayout, next_to_go

FOUR, SIX = [f"s{i}" for i in range(4)], [f"s{i}" for i in range(6)]
dealings = st.sampled_from(DEALINGS)


def test_four_servers_then_six_as_published():
    layout, moves = FileLayout.on(FOUR).grown(SIX, 8, 0)
    assert layout.intervals == (BlockInterval(0, tuple(FOUR)), BlockInterval(8, tuple(SIX)))
    assert (layout.server(5), layout.server(10), moves) == ("s1", "s4", [])


@pytest.mark.parametrize("offset", [0, 5])
def test_what_moves_when_four_servers_become_six(offset):
    moved = {}
    for dealing in DEALINGS:
        _, moves = FileLayout.on(FOUR, dealing, offset).grown(SIX, 12_000, 0)
        moved[dealing] = len(moves) / 12_000
    assert moved["round-robin"] == 0
    assert moved["hash"] == pytest.approx(2 / 3, abs=1e-12)
    assert moved["rendezvous"] == pytest.approx(1 / 3, abs=0.02)


def test_rendezvous_moves_to_new_servers_alone():
    _, moves = FileLayout.on(FOUR, "rendezvous").grown(SIX, 500, 0)
    assert {one.target for one in moves} == {"s4", "s5"}


def test_what_was_promised_stays():
    layout, _ = FileLayout.on(FOUR).grown(SIX, 8, 64)
    assert [layout.server(block) for block in (8, 63, 64, 65, 70)] == ["s0", "s3", "s4", "s5", "s4"]


def test_growing_again_before_anything_is_written_leaves_one_interval():
    layout, _ = FileLayout.on(FOUR[:2]).grown(FOUR, 0, 0)
    assert layout == FileLayout.on(FOUR)
    again, _ = layout.grown(SIX, 8, 0)
    assert again.grown(FOUR, 8, 0)[0].intervals == (
        BlockInterval(0, tuple(FOUR)),
        BlockInterval(8, tuple(FOUR)),
    )


def test_one_of_four_goes_and_its_blocks_alone_move():
    layout, moves = FileLayout.on(FOUR).without("s1", 12, {"s0": 3, "s1": 3, "s2": 5, "s3": 3})
    assert moves == [BlockMove(1, "s1", "s0"), BlockMove(5, "s1", "s3"), BlockMove(9, "s1", "s0")]
    assert layout.server(5) == "s3" and [layout.server(block) for block in range(12, 16)] == [
        "s0",
        "s2",
        "s3",
        "s0",
    ]


def test_a_server_that_got_moved_blocks_may_go_as_well():
    layout, _ = FileLayout.on(FOUR).without("s1", 8, {"s0": 2, "s2": 2, "s3": 2})
    found, moves = layout.without("s0", 8, {"s0": 3, "s2": 2, "s3": 3})
    assert {one.block for one in moves} == {0, 4, *[b for b, to in layout.moved.items() if to == "s0"]}
    assert {found.server(block) for block in range(40)} == {"s2", "s3"}


@pytest.mark.parametrize("dealing", DEALINGS)
def test_small_files_do_not_all_begin_on_the_same_server(dealing):
    first = Counter(FileLayout.on(FOUR, dealing, offset).server(0) for offset in range(40))
    assert set(first) == set(FOUR) and max(first.values()) <= 20


def test_the_only_one_that_a_file_was_on_goes():
    layout, moves = FileLayout.on(["s0"]).without("s0", 2, {"s1": 0, "s2": 0})
    assert [one.target for one in moves] == ["s1", "s2"]
    assert [layout.server(block) for block in range(2, 4)] == ["s1", "s2"]


def test_the_only_one_cannot_go():
    with pytest.raises(InputError, match="s0 is the only one"):
        FileLayout.on(["s0"]).without("s0", 3, {"s0": 3})


@pytest.mark.parametrize(
    "intervals", [(), (BlockInterval(1, ("a",)),), (BlockInterval(0, ()),), (BlockInterval(0, ("a",)),) * 2]
)
def test_intervals_that_are_none(intervals):
    with pytest.raises(InputError, match="layout"):
        FileLayout(intervals)


def test_a_way_of_dealing_that_is_none():
    with pytest.raises(InputError, match="dealing: found 'cyclic'; allowed: round-robin, hash, rendezvous"):
        FileLayout.on(FOUR, "cyclic")


def test_who_goes_next():
    assert next_to_go({"a": 5, "b": 2, "c": 2}, ["a", "b", "c"]) == "c"
    assert next_to_go({"a": 1, "b": 2}, ["a", "b", "c"]) == "c"
    assert next_to_go({"a": 1, "b": 2, "c": 3}, ["a", "b", "c"]) == "a"


changes = st.lists(st.tuples(st.sampled_from(["write", "grow", "go"]), st.integers(1, 20)), max_size=12)


@given(dealings, st.integers(0, 9), changes)
def test_every_block_is_where_the_moves_have_brought_it(dealing, offset, changes):
    """And on servers that are there; what servers that came take moves only as the way of dealing says."""
    servers, blocks, count = ["s0", "s1"], 0, 2
    layout = FileLayout.on(servers, dealing, offset)
    there = {}
    for what, number in changes:
        moves = []
        if what == "write":
            there |= {block: layout.server(block) for block in range(blocks, blocks + number)}
            blocks += number
        elif what == "grow":
            servers = [*servers, f"s{count}"]
            count += 1
            layout, moves = layout.grown(servers, blocks, blocks)
            assert dealing != "round-robin" or not moves
        elif len(servers) > 1:
            load = Counter(there.values())
            gone = next_to_go(load, servers)
            servers = [one for one in servers if one != gone]
            layout, moves = layout.without(gone, blocks, {one: load[one] for one in servers})
            assert len(moves) == load[gone] and all(one.source == gone for one in moves)
            after = load + Counter(one.target for one in moves)
            took = [after[one] for one in {one.target for one in moves}]
            assert not took or max(took) <= max(
                min(after[one] for one in servers) + 1, *[load[one] for one in servers]
            )
        for one in moves:
            assert there[one.block] == one.source != one.target
            there[one.block] = one.target
        assert all(layout.server(block) == there[block] for block in range(blocks))
        assert {layout.server(block) for block in range(blocks + 50)} <= set(servers)
        assert sum(len(layout.blocks_of(one, blocks)) for one in servers) == blocks


@given(dealings, st.integers(0, 9), st.integers(0, 60), st.integers(0, 60))
def test_dealing_anew_forgets_what_was(dealing, offset, blocks, more):
    layout, _ = FileLayout.on(FOUR, dealing, offset).grown(SIX, blocks, blocks)
    layout, _ = layout.without("s2", blocks + more, dict.fromkeys(["s0", "s1", "s3", "s4", "s5"], 0))
    found, moves = layout.dealt_anew(FOUR, blocks + more)
    assert found == FileLayout.on(FOUR, dealing, offset)
    assert {one.block for one in moves} == {
        b for b in range(blocks + more) if layout.server(b) != found.server(b)
    }
