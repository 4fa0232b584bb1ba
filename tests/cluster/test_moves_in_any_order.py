"""What moves first, in whatever order things happen: the moves of a plan on Dask's own state of tasks."""

from collections import defaultdict
from functools import partial
from types import SimpleNamespace

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pure_scheduler import PureScheduler

from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler import moves
from dask_hpc.planning.moves.leaving import Move

ADDRESSES = [f"tcp://{name}:1" for name in "abcd"]


class Replicas(PureScheduler):
    """Notes who was asked to fetch what, and drops copies as Dask does: at once."""

    def __init__(self):
        super().__init__(lambda key, start, finish: None)
        self.asked = defaultdict(set)

    @property
    def stream_comms(self):
        return {address: SimpleNamespace(send=partial(self.hear, address)) for address in self.workers}

    def hear(self, address, message):
        assert message["op"] == "acquire-replicas" and message["who_has"].keys() == message["nbytes"].keys()
        assert all(message["who_has"].values()) and address in self.workers
        self.asked[address].update(message["who_has"])

    def request_remove_replicas(self, address, keys, *, stimulus_id):
        for key in keys:
            task = self.tasks[key]
            assert len(task.who_has) > 1, f"the last copy of {key!r} is dropped"
            assert not compat.is_used_on(task, address), f"{key!r} is used on {address}"
            self.remove_replica(task, self.workers[address])

    def arrive(self, address, key):
        """What was asked for, if anybody still has it."""
        task = self.tasks.get(key)
        worker = self.workers[address]
        if task is not None and task.who_has and worker not in task.who_has and address != self.deaf:
            self.add_replica(task, worker)


class Moving(RuleBasedStateMachine):
    """With batches of three, of which more than one is many; a look takes as long as it takes."""

    def __init__(self):
        super().__init__()
        self.patches = pytest.MonkeyPatch()
        for name, value in (("BATCH", 3), ("AT_ONCE", 5), ("_MANY", 1), ("MOMENT", 1e9)):
            self.patches.setattr(moves, name, value)

    @initialize(data=st.data(), count=st.integers(1, 12), leave=st.booleans())
    def plan(self, data, count, leave):
        self.s, self.now, self.number = Replicas(), 0.0, 0
        self.untold = {} if leave else None
        #: who never fetches what it was asked for
        self.s.deaf = data.draw(st.sampled_from([None, None, *ADDRESSES]))
        for address in ADDRESSES:
            self.s.use(self.s.join(address))
        found = []
        for number in range(count):
            source, target = data.draw(st.one_of(st.just(ADDRESSES), st.permutations(ADDRESSES)))[:2]
            (task,) = self.s.make([("x", number)], workers=[source])
            self.s.schedule([task])
            self.s.finish(task, nbytes=data.draw(st.sampled_from([1, moves.WINDOW // 3, 2 * moves.WINDOW])))
            found.append(Move(task.key, task.nbytes, source, target))
        self.moves = {move.key: move for move in found}
        self.carrying = moves._Carrying(self.s, untold=self.untold)
        for move in found:
            self.carrying.add(move)
        self.is_busy = True

    def look(self):
        before = len(self.carrying.done)
        self.is_busy = self.carrying.step(self.now)
        for move in self.carrying.done[before:]:
            assert move.target in compat.holders(self.s.tasks[move.key])

    @rule(seconds=st.sampled_from([0.02, 0.02, 1.0, 3.0, 60.0]))
    def time_passes(self, seconds):
        self.now += seconds
        self.look()

    def to_come(self):
        return sorted((address, key) for address, keys in self.s.asked.items() for key in keys)

    @precondition(lambda self: self.to_come())
    @rule(data=st.data())
    def copy_arrives(self, data):
        address, key = data.draw(st.sampled_from(self.to_come()))
        self.s.asked[address].discard(key)
        self.s.arrive(address, key)

    @precondition(lambda self: self.to_come())
    @rule(data=st.data())
    def bundle_arrives(self, data):
        """Many at once; and some that were in it do not come, or not yet."""
        address = data.draw(st.sampled_from(sorted({address for address, _ in self.to_come()})))
        for key in sorted(self.s.asked[address]):
            fate = data.draw(st.sampled_from(["comes", "comes", "comes", "later", "never"]))
            if fate != "later":
                self.s.asked[address].discard(key)
            if fate == "comes":
                self.s.arrive(address, key)

    @precondition(lambda self: len(self.s.workers) > 1)
    @rule(data=st.data())
    def worker_leaves(self, data):
        address = data.draw(st.sampled_from(sorted(self.s.workers)))
        self.s.asked.pop(address, None)
        self.s.leave(address)

    @rule(data=st.data(), is_paused=st.booleans())
    def worker_pauses_or_goes_on(self, data, is_paused):
        self.s.pause(data.draw(st.sampled_from(sorted(self.s.workers))), is_paused)

    @rule(data=st.data())
    def somebody_releases_a_result(self, data):
        key = data.draw(st.sampled_from(sorted(self.moves)))
        if key in self.s.tasks:
            self.s.release(self.s.tasks[key])

    @rule(data=st.data())
    def a_task_uses_a_result(self, data):
        key = data.draw(st.sampled_from(sorted(self.moves)))
        task = self.s.tasks.get(key)
        if task is not None and task.who_has:
            self.number += 1
            where = data.draw(st.sampled_from(sorted(compat.holders(task))))
            self.s.schedule(self.s.make([("uses", self.number)], [key], workers=[where]))

    @rule()
    def tasks_end(self):
        for worker in list(self.s.workers.values()):
            for task in list(worker.processing):
                self.s.finish(task)

    @rule(data=st.data())
    def dask_drops_a_copy(self, data):
        task = self.s.tasks.get(data.draw(st.sampled_from(sorted(self.moves))))
        if task is not None and len(task.who_has or ()) > 1:
            address = data.draw(st.sampled_from(sorted(compat.holders(task))))
            if not compat.is_used_on(task, address):
                self.s.request_remove_replicas(address, [task.key], stimulus_id="dask")

    @invariant()
    def bytes_on_their_way_are_bounded(self):
        if not hasattr(self, "carrying"):
            return
        on_the_way = [
            move
            for batch in self.carrying._batches
            for key, move in batch.moves.items()
            if key not in batch.arrived
        ]
        of_batches = [key for batch in self.carrying._batches for key in batch.moves]
        assert len(of_batches) == len(set(of_batches)) and self.carrying._under_way == set(of_batches)
        for address in ADDRESSES:
            for end, account in (("source", self.carrying._sent), ("target", self.carrying._received)):
                sizes = [move.nbytes for move in on_the_way if getattr(move, end) == address]
                assert account[address] == sum(sizes)
                assert len(sizes) <= 1 or sum(sizes) <= moves.WINDOW
            assert self.carrying._number[address] == sum(move.target == address for move in on_the_way)

    def teardown(self):
        """In the end each move is done, or it is said why not; nothing is on its way."""
        try:
            self.end()
        finally:
            self.patches.undo()

    def end(self):
        if not hasattr(self, "carrying"):
            return
        # twelve one after the other, each as long as a large one that never comes is waited for
        for _ in range(600):
            self.tasks_end()
            for address, key in self.to_come():
                self.s.asked[address].discard(key)
                self.s.arrive(address, key)
            self.now += 1.0
            self.look()
            if not self.is_busy:
                break
        assert not self.is_busy
        assert not any(self.carrying._sent.values()) and not any(self.carrying._received.values())
        assert not any(moves._coming[self.s].values())
        told = [*self.carrying.done, *(move for left in self.carrying.failed.values() for move in left)]
        assert len(told) == len({move.key for move in told})
        assert not self.carrying._under_way and not any(self.carrying._number.values())


TestMoving = Moving.TestCase
TestMoving.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def one_move():
    """Of a result on the first worker to the second one."""
    s = Replicas()
    s.deaf = None
    for address in ADDRESSES[:2]:
        s.use(s.join(address))
    (task,) = s.make(["x"], workers=ADDRESSES[:1])
    s.schedule([task])
    s.finish(task)
    (block,) = moves.blocks_of(s, ["x", "nothing"])
    assert block.holders == (ADDRESSES[0],)
    carrying = moves._Carrying(s)
    carrying.add(Move("x", block.nbytes, *ADDRESSES[:2]))
    return s, carrying


def test_a_copy_is_asked_for_at_once_and_the_old_one_goes_when_it_is_there():
    s, carrying = one_move()
    assert carrying.step(0.0) and s.asked[ADDRESSES[1]] == {"x"}
    assert carrying.step(moves.LOOK)
    s.arrive(ADDRESSES[1], "x")
    assert not carrying.step(2 * moves.LOOK) and compat.holders(s.tasks["x"]) == (ADDRESSES[1],)
    assert [move.key for move in carrying.done] == ["x"] and not carrying.failed


def test_so_many_at_once_are_on_their_way_to_one_worker(monkeypatch):
    monkeypatch.setattr(moves, "BATCH", 3)
    monkeypatch.setattr(moves, "AT_ONCE", 5)
    s, carrying = one_move()
    there = s.asked[ADDRESSES[1]]
    for name in "abcdefg":
        (task,) = s.make([name], workers=ADDRESSES[:1])
        s.schedule([task])
        s.finish(task)
        carrying.add(Move(name, task.nbytes, *ADDRESSES[:2]))
    for asked in (3, 5, 5):
        assert carrying.step(0.0) and len(there) == asked
    s.arrive(ADDRESSES[1], "x")
    assert carrying.step(0.0) and len(there) == 6


def test_what_is_lost_on_its_way_is_told_and_what_nobody_wants_any_more_is_not():
    for happens, told in (
        (lambda s: s.leave(ADDRESSES[0]), [moves._LOST]),
        (lambda s: s.release(s.tasks["x"]), []),
    ):
        s, carrying = one_move()
        assert carrying.step(0.0)
        happens(s)
        assert not carrying.step(moves.LOOK) and list(carrying.failed) == told and not carrying.done


def test_a_copy_that_is_dropped_again_while_the_old_one_is_in_use_is_asked_for_at_once():
    s, carrying = one_move()
    assert carrying.step(0.0)
    s.schedule(s.make(["user"], ["x"], workers=ADDRESSES[:1]))
    s.arrive(ADDRESSES[1], "x")
    assert carrying.step(moves.LOOK) and len(compat.holders(s.tasks["x"])) == 2
    s.asked.clear()
    s.request_remove_replicas(ADDRESSES[1], ["x"], stimulus_id="dask")
    assert carrying.step(2 * moves.LOOK) and s.asked[ADDRESSES[1]] == {"x"}


def test_who_has_to_give_as_well_gives_first():
    """B is to have as much as before, and never more; only where all wait for each other somebody begins."""
    a, b, c, _ = ADDRESSES
    for way, first in (((a, b, c), {c}), ((a, b, a), {a, b})):
        s = Replicas()
        s.deaf = None
        for address in ADDRESSES[:3]:
            s.use(s.join(address))
        carrying = moves._Carrying(s)
        for key, source, target in zip("xy", way, way[1:], strict=False):
            (task,) = s.make([key], workers=[source])
            s.schedule([task])
            s.finish(task)
            carrying.add(Move(key, task.nbytes, source, target))
        assert carrying.step(0.0) and {one for one, keys in s.asked.items() if keys} == first
        s.arrive(way[2], "y")
        assert carrying.step(moves.LOOK) and s.asked[b] == {"x"}
        s.arrive(b, "x")
        assert not carrying.step(2 * moves.LOOK) and len(carrying.done) == 2
