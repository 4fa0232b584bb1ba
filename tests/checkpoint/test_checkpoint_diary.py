"""What the checkpoint service did is one line of the story for each event, however many blocks that has."""

import asyncio
from collections import Counter
from types import SimpleNamespace

import pytest

from dask_hpc.checkpoint.scheduler.context import NAME, ControllerContext, Diary, HasGone, Tally
from dask_hpc.cluster.scheduler.service import Managed


@pytest.fixture
def told():
    return []


@pytest.fixture
def waiting():
    return []


class Loop:
    def __init__(self, waiting):
        self.waiting = waiting

    def call_later(self, seconds, call):
        self.waiting.append(call)


@pytest.fixture
def diary(told, waiting):
    context = ControllerContext(SimpleNamespace(loop=Loop(waiting)))
    context.tell = lambda decision, reason: told.append((decision, reason))
    return Diary(context)


def test_a_commit_is_one_line_and_one_that_found_nothing_to_do_is_none(diary, told):
    tally = Tally()
    for _ in range(3):
        tally.copied(2_000_000, 2_000_000)
    tally.copied(1_000_000, 0)
    tally.failed["b: full"] += 2
    tally.seconds = 0.5
    diary.committed("u", tally)
    diary.committed("u", Tally())
    (line,) = told
    said = "u: 4 copies, 6 MB moved, in 0.5 s; 1 MB unchanged; 2 copies not made: b: full"
    assert line == ("commit", said)
    found = diary.as_plain()
    assert found["counts"]["commits"] == 1 and found["counts"]["moved"] == 6_000_000
    assert found["counts"]["unchanged"] == 1_000_000 and found["counts"]["failed"] == 2
    assert found["last_commit"]["seconds"] == 0.5 and 0 <= found["last_commit"]["ago"] < 60


def test_the_last_commit_is_the_newest_one_whatever_its_name(diary):
    for name, moved in (("u", 1), ("v", 2), ("u", 3)):
        diary.committed(name, Tally(copies=1, moved=moved))
    assert diary.as_plain()["last_commit"]["moved"] == diary.last_commit("u")["moved"] == 3
    assert diary.last_commit("v")["moved"] == 2 and diary.last_commit("w") is None


def test_copies_that_find_no_room_again_and_again_are_told_once(diary, told):
    full, worse = Tally(failed=Counter({"no agent has room": 2})), Tally(failed=Counter({"dead": 1}))
    for tally in (full, full, full, worse, full, Tally(), full):
        diary.committed("u", tally)
    assert [line.partition("not made: ")[2] for _, line in told] == [
        "no agent has room", "dead", "no agent has room", "no agent has room"
    ]  # fmt: skip
    assert diary.as_plain()["counts"]["commits"] == 4


def test_a_recovery_is_told_when_nothing_is_missing_any_longer(diary, told):
    for key in "abc":
        diary.moves(key, "memory", "released")
    diary.worker_is_gone("tcp://w")
    diary.cannot_be_read("tcp://v", "Damaged: a copy is damaged")
    for key in "ab":
        diary.moves(key, "released", "waiting")
        diary.moves(key, "processing", "memory")
    assert not told
    diary.cannot_be_loaded("c", "nobody has a copy")
    (line,) = told
    assert line[0] == "recovery" and "2 results, lost with worker tcp://w, loaded from copies in" in line[1]
    assert "1 result without an intact copy; 1 copy could not be read: Damaged" in line[1]
    counts = diary.as_plain()["counts"]
    assert (counts["recoveries"], counts["recovered"], counts["unrecovered"], counts["damaged"]) == (
        1,
        2,
        1,
        1,
    )


def test_what_is_forgotten_is_not_missed(diary, told):
    diary.moves("a", "memory", "released")
    diary.moves("a", "released", "forgotten")
    diary.moves("b", "memory", "forgotten")
    assert not told and not diary.as_plain()["counts"]["recoveries"]
    diary.moves("c", "memory", "released")
    diary.moves("c", "processing", "memory")
    assert "1 result loaded" in told[0][1]


def test_outside_of_a_recovery_bad_copies_are_told_at_once(diary, told):
    diary.cannot_be_read("tcp://v", "OSError: gone")
    diary.cannot_be_loaded("a", "nobody has a copy")
    assert [decision for decision, _ in told] == ["recovery"] * 2


def test_copies_that_are_made_again_one_after_the_other_are_one_event_of_agents(diary, told, waiting):
    diary.copied_again(Tally())
    assert not waiting
    diary.copied_again(Tally(copies=2, moved=10, seconds=0.1))
    diary.copied_again(Tally(copies=1, moved=5, seconds=0.2))
    assert not told and len(waiting) == 1
    waiting.pop()()
    assert told == [("agents", "some blocks had too few copies; made again: 3 copies, 15 B moved, in 0.3 s")]
    diary.copied_again(Tally(copies=1, seconds=0.1))
    assert len(waiting) == 1 and diary.as_plain()["counts"]["copies"] == 4


def test_of_calls_to_workers_only_errors_of_ours_are_told():
    logged = []
    scheduler = SimpleNamespace(plugins={}, log_event=lambda topic, event: logged.append((topic, event)))
    context = ControllerContext(scheduler)

    async def fails(error):
        raise error

    async def calls():
        for error in (HasGone("tcp://w"), asyncio.CancelledError(), ZeroDivisionError("ours")):
            await asyncio.wait([context.do("a call", fails(error))])

    asyncio.run(calls())
    told = {"decision": "error", "reason": "checkpoint: in a call: ZeroDivisionError: ours"}
    assert logged == [(NAME, told)] and context.errors == 1


def test_the_story_of_a_managed_cluster_has_what_is_told(told):
    managed = Managed()
    managed.context = SimpleNamespace(tell=lambda *what: told.append(what))
    ControllerContext(SimpleNamespace(plugins={"dask-hpc": managed})).tell("commit", "u")
    assert told == [("commit", "u")]
