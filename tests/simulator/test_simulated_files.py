"""Clients and servers of one file: how fast, what moves, and when there are more servers."""

from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf

import pytest

from dask_hpc import Policy, simulate
from dask_hpc.planning.moves.file_layout import BlockInterval, FileLayout
from dask_hpc.simulator.memory_files import FileServers, FileUse, use_file
from dask_hpc.strategies.files.files_view import FilesResize

ALONE = FileServers(rate=100.0)
POLICY = Policy.load("scratch-files")


def on(servers, dealing="round-robin"):
    return FileLayout.on([f"s{number}" for number in range(servers)], dealing)


def use(servers, blocks=1600, dealing="round-robin", **changes):
    return FileUse(on(servers, dealing), blocks, 1.0, **changes)


def moved_blocks(before, after, blocks):
    return sum(before.server(block) != after.server(block) for block in range(blocks))


@pytest.mark.parametrize("servers", [1, 2, 4, 8, 16])
def test_as_fast_as_all_servers_together(servers):
    found = use_file(ALONE, use(servers))
    assert found.throughput == pytest.approx(100 * servers)
    assert found.seconds == pytest.approx(16 / servers)
    assert found.servers == servers and found.changes == () and found.moved == found.held == 0


def test_no_faster_than_the_network():
    for is_read in (False, True):
        slow = use_file(replace(ALONE, network=420.0), use(8, is_read=is_read))
        assert slow.throughput == pytest.approx(420)
    assert use_file(replace(ALONE, network=420.0), use(4)).throughput == pytest.approx(400)


def test_one_client_has_one_server_at_a_time():
    assert use_file(ALONE, use(8, clients=1)).throughput == pytest.approx(100)
    assert use_file(ALONE, use(8, clients=4)).throughput == pytest.approx(400)


def test_growth_moves_nothing_and_new_blocks_go_to_all():
    """Half of the blocks on two servers, and the others on 16: eight seconds and four become 4.5."""
    found = use_file(replace(ALONE, delay=4.0), use(2, wanted=16))
    (change,) = found.changes
    assert (change.time, change.before, change.servers, change.moved) == (4.0, 2, 16, 0)
    assert found.seconds == pytest.approx(4 + 0.5, rel=0.02) and found.held == 0
    first, second = found.layout.intervals
    assert first == BlockInterval(0, ("s0", "s1")) and len(second.servers) == 16
    assert second.first == pytest.approx(800, abs=16)
    # and who reads it finds blocks where they were put
    again = use_file(ALONE, replace(found.use, layout=found.layout, is_read=True, wanted=None))
    assert again.seconds == pytest.approx(found.seconds, rel=0.02)


def test_servers_that_come_too_late_are_not_missed():
    found = use_file(replace(ALONE, delay=8.01), use(2, wanted=16))
    assert found.changes == () and found.servers == 2 and found.seconds == pytest.approx(8)
    assert use_file(ALONE, use(4, wanted=4)).changes == ()


@pytest.mark.parametrize("dealing", ["hash", "rendezvous"])
def test_other_dealings_move_blocks_and_clients_wait(dealing):
    found = use_file(replace(ALONE, delay=2.0), use(4, dealing=dealing, wanted=6))
    (change,) = found.changes
    written = 2.0 * found.use.blocks / 4
    share = {"hash": 2 / 3, "rendezvous": 1 / 3}[dealing]
    assert change.moved / written == pytest.approx(share, abs=0.12) and found.moved == change.moved
    assert found.held > 0 and change.time == pytest.approx(2 + found.held)
    grown = use_file(replace(ALONE, delay=2.0), use(4, wanted=6))
    assert grown.seconds < found.seconds and grown.held == 0


def test_what_moves_shares_servers_and_network():
    """66 blocks are dealt among two servers, and every other one moves to where it belongs among four."""
    free, full = (
        use_file(replace(ALONE, delay=0.3, network=net), use(2, 400, "hash", wanted=4))
        for net in (400.0, 60.0)
    )
    assert free.held == pytest.approx(free.moved / 2 / 100, rel=0.3)
    assert full.held >= full.moved / 60 * 0.999


def test_who_comes_takes_no_more_than_a_server_can():
    """A fifth of what four servers have goes to the one that is new."""
    found = use_file(ALONE, use(4, 1600, "rendezvous", is_read=True, wanted=5))
    assert found.held == pytest.approx(found.moved / 100, rel=0.02)
    assert found.moved == pytest.approx(320, abs=40)
    large = use_file(ALONE, replace(found.use, nbytes=3.0))
    assert large.moved == 3 * found.moved and large.held == pytest.approx(3 * found.held)


def test_the_strategy_grows_it_until_it_is_fast_enough():
    found = use_file(replace(ALONE, delay=1.0), use(2, 8000, recommended=50.0), POLICY)
    first = found.changes[0]
    assert (first.before, first.servers) == (2, 8) and first.time > 1.0
    assert "12.5 B/s on average, less than the 50 B/s recommended: 8 nodes" in first.reason
    assert len(found.changes) == 1, "it is over before the cool-down is"
    alone = use_file(ALONE, use(2, 8000))
    assert found.seconds < 0.4 * alone.seconds


def test_a_network_that_is_full_gets_one_expansion_that_is_of_no_use():
    eager = POLICY.with_(**{"files.cool_down": "1 s"})
    found = use_file(
        replace(ALONE, network=420.0), use(8, 8000, recommended=50.0, most=100, is_read=False), eager
    )
    assert [(one.before, one.servers) for one in found.changes] == [(8, 16)]
    brought = eager.with_(**{"files.worth": 0.0})
    assert len(use_file(replace(ALONE, network=420.0), found.use, brought).changes) > 1


def test_the_strategy_gives_servers_back_one_by_one():
    found = use_file(
        ALONE, use(6, 4000, recommended=5.0, least=4), POLICY.with_(**{"files.cool_down": "0.5 s"})
    )
    assert [(one.before, one.servers) for one in found.changes] == [(6, 5), (5, 4)]
    assert found.held > 0
    for one in found.changes:
        assert one.moved > 0
    assert {found.layout.server(block) for block in range(4000)} == set(found.layout.servers)


@pytest.mark.parametrize("dealing", ["round-robin", "hash", "rendezvous"])
def test_who_goes_leaves_no_block_behind(dealing):
    use_ = use(5, 1000, dealing, is_read=True, wanted=3)
    found = use_file(ALONE, use_)
    assert found.servers == 3 and found.changes[0].moved == found.moved > 0
    assert {found.layout.server(block) for block in range(1000)} == set(found.layout.servers)
    moved = moved_blocks(use_.layout, found.layout, 1000)
    if dealing == "round-robin":  # the last that came, and only what lay there
        assert found.layout.servers == ("s0", "s1", "s2") and moved == 400
    elif dealing == "rendezvous":
        assert moved == pytest.approx(400, abs=40)
    else:
        assert found.layout == on(3, "hash")


def test_no_server_goes_whose_blocks_have_no_room():
    """4,000 blocks need four servers with room for 1,000 each; without room asked for, two would do."""
    eager = POLICY.with_(**{"files.cool_down": "0.5 s"})
    asked = use(6, 4000, recommended=0.01, is_read=True)
    assert use_file(replace(ALONE, room=1000.0), asked, eager).servers == 4
    assert use_file(ALONE, asked, eager).servers < 4


def test_servers_come_when_there_is_no_room():
    found = use_file(replace(ALONE, room=500.0), use(2, 2000), POLICY)
    assert [one.servers for one in found.changes] == [3, 4]
    assert all("what is kept needs" in one.reason for one in found.changes)


def test_new_servers_have_names_of_their_own():
    layout = FileLayout.on(["s0", "s2", "s3"])
    found = use_file(ALONE, FileUse(layout, 100, 1.0, wanted=5))
    assert found.layout.servers == ("s0", "s2", "s3", "s1", "s4")


@dataclass(frozen=True)
class Scripted:
    """From so many operations on, each on its own number of servers."""

    to: tuple[int, ...]
    window: int = 30
    views: list = field(default_factory=list)
    concern = "files"
    name = "scripted"

    def decide(self, view):
        self.views.append(view)
        done = len(self.views) // 100
        target = self.to[min(done, len(self.to) - 1)]
        return FilesResize(target, "as scripted") if target != view.servers else None


def test_a_strategy_sees_what_it_would_see_of_a_live_one():
    script = Scripted((4, 8, 6))
    asked = use(4, 1600, recommended=7.0, least=3, most=9)
    found = use_file(replace(ALONE, room=500.0, delay=0.2), asked, replace(POLICY, files=script))
    assert [one.servers for one in found.changes] == [8, 6]
    first, *_, last = script.views
    assert (first.name, first.servers, first.least, first.most, first.needed) == ("scratch", 4, 3, 9, 1)
    assert first.recommended == 7.0 and first.rates == (pytest.approx(25),)
    assert first.since_change == inf and first.before is None and not first.ended
    grown = [view for view in script.views if view.servers == 8]
    assert len(grown[0].rates) == 1, "those of fewer servers are forgotten"
    assert max(len(view.rates) for view in script.views) == 30
    assert all(view.before == pytest.approx(25) for view in grown)
    assert [view.since_change for view in grown] == sorted(view.since_change for view in grown)
    assert grown[0].since_change < 0.5
    for one, two in pairwise(script.views):
        if one.servers == two.servers:  # the newest is the last
            assert two.rates[:-1] == one.rates[len(one.rates) + 1 - len(two.rates) :]
    assert last.servers == 6 and last.before is None and last.needed == 4


def test_twice_the_same():
    once, again = (use_file(ALONE, use(3, 3000, recommended=40.0), POLICY) for _ in range(2))
    assert once == again and once.changes


def test_a_machine_of_jobs_says_that_it_keeps_no_files():
    found = simulate("builtin:ten-jobs", policy="scratch-files")
    assert found.notes == ("scratch-files: files: throughput does nothing: no simulated job keeps files",)
    assert simulate("builtin:ten-jobs", policy="easy-backfill").notes == ()
