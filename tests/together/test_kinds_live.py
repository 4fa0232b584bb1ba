"""Kinds that are let pass one by one on a live cluster: whatever happens, each task ends once and nothing is
left behind. Workers of one process cannot tell what their tasks need, so they are told what to say."""

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Event, Reschedule, Worker, fire_and_forget, get_worker, wait
from distributed.utils_test import async_poll_for, gen_cluster, inc
from kind_body import GB
from small_cluster import executions, lose, marked, plugin_of, reasons, until

import dask_hpc
from dask_hpc.dask import GATE
from dask_hpc.together.scheduler.service import KindLanes
from dask_hpc.together.scheduler.worker_memory import WorkerMemories
from dask_hpc.together.worker.observer import METRIC
from dask_hpc.together.worker.peaks import TOPIC

two = gen_cluster(client=True, nthreads=[("", 2)] * 2)
#: what tasks here note; their functions are found by name, and so are these
most, tried, done = {}, [], []


def counted(i):
    worker = get_worker()
    most[worker.address] = max(most.get(worker.address, 0), len(worker.active_threads))
    return i


def bad(i):
    tried.append(i)
    raise OSError(i)


def again(i):
    tried.append(i)
    if tried.count(i) < 2:
        raise Reschedule
    return i


def heavy(i):
    done.append(("heavy", i))


def small(i):
    done.append(("small", i))


class Counter:
    n = 0

    def add(self):
        self.n += 1
        return self.n


@pytest.fixture(autouse=True)
def workers_can_tell(monkeypatch):
    """Otherwise they say that they cannot, several being in one process."""
    monkeypatch.setattr(WorkerMemories, "cannot_tell", lambda self, address, why: None)


def lanes_of(s):
    return plugin_of(s).context.get(KindLanes)


async def say(s, worker, kind, gigabytes, tasks=3):
    """What a worker's observer would, by the way that it would go."""
    need = int(gigabytes * GB)
    row = {"bytes": need, "mean": need, "inputs": 0, "result": 0, "tasks": tasks, "how": "alone"}
    worker.log_event(TOPIC, {"worker": worker.address, "number": 1, "kinds": {kind: row}})
    peaks = lanes_of(s).memory.peaks
    await async_poll_for(lambda: (known := peaks.of(kind).peak) is not None and int(known) == need, 10)


def sent(s, kind):
    return [task.key for ws in s.workers.values() for task in ws.processing if task.prefix.name == kind]


async def nothing_left(s):
    """Of what the service has done, when futures are gone."""
    lanes = lanes_of(s)
    await async_poll_for(lambda: not lanes.row_of and not lanes.by_name, 10)
    assert not s.unrunnable and not list(lanes.waiting()) and plugin_of(s).errors == 0


def untouched(s):
    return not s.unrunnable and not any(GATE in (task.worker_restrictions or ()) for task in s.tasks.values())


@two
async def test_mid_graph_out_of_the_queue_and_back(c, s, a, b):
    async with await dask_hpc.manage(c, "memory-lanes"):
        await say(s, a, "x", 0)
        futures = [c.submit(marked, "go", i, key=("x", i)) for i in range(20)]
        await async_poll_for(lambda: len(sent(s, "x")) >= 4 and len(s.tasks) == 20, 10)
        flying = set(sent(s, "x"))
        await say(s, a, "x", 60)
        lane = lanes_of(s).by_name["x"]
        await async_poll_for(lambda: not s.queued and lane.count_waiting() == 20 - len(flying), 10)
        assert lane.in_flight.keys() == flying and set(sent(s, "x")) == flying
        await say(s, a, "x", 0)
        await async_poll_for(lambda: not lanes_of(s).row_of and not s.unrunnable, 10)
        assert untouched(s)
        await Event("go").set()
        assert await c.gather(futures) == list(range(20))
        assert await executions(c) == list(range(20))
        await nothing_left(s)


@two
async def test_only_so_many_run_at_once(c, s, a, b):
    most.clear()
    async with await dask_hpc.manage(c, "memory-lanes"):
        await say(s, a, "counted", 60)
        futures = c.map(counted, range(60))
        assert await c.gather(futures) == list(range(60))
        assert most == {a.address: 1, b.address: 1}
        del futures
        await nothing_left(s)


@two
async def test_lost_retried_cancelled_failed_rescheduled_and_forgotten(c, s, a, b):
    async with await dask_hpc.manage(c, "memory-lanes"):
        for kind in ("x", "bad", "again", "once"):
            await say(s, a, kind, 60)
        futures = [c.submit(marked, "go", i, key=("x", i)) for i in range(12)]
        await async_poll_for(lambda: len(sent(s, "x")) == 2, 10)
        await lose(a)
        await async_poll_for(lambda: len(sent(s, "x")) == 1, 10)
        gone = sent(s, "x")
        await c.cancel([future for future in futures if future.key in gone])
        await async_poll_for(lambda: sent(s, "x") and sent(s, "x") != gone, 10)
        await Event("go").set()
        left = [future for future in futures if future.key not in gone]
        assert await c.gather(left) == [future.key[1] for future in left]

        tried.clear()
        failed = c.map(bad, range(5), key=[("bad", i) for i in range(5)], retries=1)
        await wait(failed)
        assert {future.status for future in failed} == {"error"} and sorted(tried) == sorted([*range(5)] * 2)

        tried.clear()
        back = c.map(again, range(5), key=[("again", i) for i in range(5)])
        assert await c.gather(back) == list(range(5)) and sorted(tried) == sorted([*range(5)] * 2)
        fire_and_forget(c.submit(marked, "later", 0, key=("once", 0)))
        await async_poll_for(lambda: sent(s, "once"), 10)
        await Event("later").set()
        await async_poll_for(lambda: ("once", 0) not in s.tasks, 10)
        del futures, left, failed, back
        await nothing_left(s)


@two
async def test_workers_join_and_take_some(c, s, a, b):
    async with await dask_hpc.manage(c, "memory-lanes"):
        await say(s, a, "x", 60)
        futures = [c.submit(marked, "go", i, key=("x", i)) for i in range(8)]
        await async_poll_for(lambda: len(sent(s, "x")) == 2, 10)
        async with Worker(s.address, nthreads=2) as d:
            await async_poll_for(lambda: len(s.workers[d.address].processing) == 1, 10)
            assert len(sent(s, "x")) == 3
            await Event("go").set()
            assert await c.gather(futures) == list(range(8))
        assert await c.gather(futures) == list(range(8))


@two
async def test_dask_starts_anew_in_the_middle(c, s, a, b):
    async with await dask_hpc.manage(c, "memory-lanes"):
        await say(s, a, "x", 60)
        futures = [c.submit(marked, "go", i, key=("x", i)) for i in range(8)]
        await async_poll_for(lambda: len(sent(s, "x")) == 2, 10)
        await Event("go").set()
        for worker in (a, b):  # in place of nannies
            await lose(worker)
        await c.restart(wait_for_workers=False)
        lanes = lanes_of(s)
        assert not lanes.row_of and not lanes.by_name and not s.tasks
        async with Worker(s.address, nthreads=2):
            again = c.map(inc, range(6), key=[("x", i) for i in range(6)])
            assert await c.gather(again) == list(range(1, 7))
        assert plugin_of(s).errors == 0 and all(future.cancelled() for future in futures)


@two
async def test_the_policy_is_switched_in_mid_graph(c, s, a, b):
    async with await dask_hpc.manage(c, "memory-lanes") as manager:
        await say(s, a, "x", 60)
        futures = [c.submit(marked, "go", i, key=("x", i)) for i in range(20)]
        await async_poll_for(lambda: len(sent(s, "x")) == 2, 10)
        await manager.set(policy="easy-backfill")
        await async_poll_for(lambda: not s.unrunnable and len(sent(s, "x")) >= 4, 10)
        assert untouched(s) and not lanes_of(s).row_of
        await async_poll_for(lambda: not any(METRIC in worker.metrics for worker in (a, b)), 10)
        await manager.set(policy="memory-lanes")
        await say(s, a, "x", 60)
        await async_poll_for(lambda: not s.queued and lanes_of(s).row_of, 10)
        await manager.set(policy="together")
        await async_poll_for(lambda: not lanes_of(s).row_of and not s.unrunnable, 10)
        await manager.set(policy="memory-lanes")
        await say(s, a, "x", 60)
        await Event("go").set()
        assert await c.gather(futures) == list(range(20))
        assert await executions(c) == list(range(20))
        del futures
        await nothing_left(s)


@pytest.mark.queue
@two
async def test_one_more_of_a_kind_that_was_queued_before_the_rule(c, s, a, b):
    """A kind that nobody knows is kept back as its next task comes, and those that wait already with it."""
    async with await dask_hpc.manage(c, "easy-backfill") as manager:
        futures = [c.submit(marked, "go", i, key=("x", i)) for i in range(20)]
        await async_poll_for(lambda: len(s.tasks) == 20 and len(s.queued) > 10, 10)
        flying = set(sent(s, "x"))
        await manager.set(policy="memory-lanes")
        futures.append(c.submit(marked, "go", 20, key=("x", 20)))
        await async_poll_for(lambda: "x" in lanes_of(s).by_name and not s.queued, 10)
        lane = lanes_of(s).by_name["x"]
        await async_poll_for(lambda: lane.count_waiting() == 21 - len(flying), 10)
        assert lane.in_flight.keys() == flying == set(sent(s, "x"))
        await Event("go").set()
        assert await c.gather(futures) == list(range(21))
        assert await executions(c) == list(range(21))
        del futures
        await nothing_left(s)


@two
async def test_results_from_before_the_rule_are_lost(c, s, a, b):
    """They are computed again, one by one."""
    await Event("go").set()
    futures = [c.submit(marked, "go", i, key=("x", i)) for i in range(8)]
    await wait(futures)
    async with await dask_hpc.manage(c, "memory-lanes"):
        most_of_it, other = sorted((a, b), key=lambda worker: -len(worker.data))
        await say(s, other, "x", 60)
        lane = lanes_of(s).by_name["x"]
        assert lane.tasks == 8 and not lane.in_flight and not lane.count_waiting()
        lost = len(most_of_it.data)
        await Event("go").clear()
        await lose(most_of_it)
        await async_poll_for(lambda: len(lane.in_flight) == 1 and lane.count_waiting() == lost - 1, 10)
        assert len(sent(s, "x")) == 1 and not s.queued
        await Event("go").set()
        assert await c.gather(futures) == list(range(8))
        del futures
        await nothing_left(s)


@two
async def test_closed_in_mid_graph(c, s, a, b):
    async with await dask_hpc.manage(c, "memory-lanes"):
        await say(s, a, "x", 60)
        futures = [c.submit(marked, "go", i, key=("x", i)) for i in range(20)]
        await async_poll_for(lambda: len(sent(s, "x")) == 2, 10)
    assert "dask-hpc" not in s.plugins and untouched(s)
    assert not any(METRIC in worker.metrics or METRIC in worker.plugins for worker in (a, b))
    await async_poll_for(lambda: len(sent(s, "x")) >= 4, 10)
    await lose(a)  # what ran there is not bound to it
    await Event("go").set()
    assert await c.gather(futures) == list(range(20))


@two
async def test_closed_while_the_history_is_read(c, s, a, b, monkeypatch, tmp_path):
    """What it says comes too late then, and keeps nothing back."""
    import threading

    from dask_hpc.history.kinds import KindHistory, PastKind

    reads, go_on = threading.Event(), threading.Event()

    def read(self):
        reads.set()
        assert go_on.wait(10)
        return {"x": PastKind(60.0 * GB, 1.0)}

    monkeypatch.setattr(KindHistory, "read", read)
    with dask.config.set({"hpc.history": str(tmp_path / "runs.json")}):
        manager = await dask_hpc.manage(c, "memory-lanes")
    await async_poll_for(reads.is_set, 10)
    lanes = lanes_of(s)
    await manager.close()
    futures = [c.submit(marked, "go", i, key=("x", i)) for i in range(20)]
    await async_poll_for(lambda: len(s.tasks) == 20, 10)
    go_on.set()
    await async_poll_for(lambda: not lanes.context._tasks, 10)
    assert untouched(s) and not lanes.row_of
    await Event("go").set()
    assert await c.gather(futures) == list(range(20))


@gen_cluster(client=True, nthreads=[("", 2)] * 3)
async def test_in_jobs_each_on_its_own_workers(c, s, *workers):
    async with await dask_hpc.manage(c, "memory-lanes"):
        await say(s, workers[0], "x", 60)
        with dask_hpc.job("one", nodes=1):
            first = [c.submit(marked, "go", i, key=("x", i)) for i in range(6)]
        one = await until(s, "one", "running")
        with dask_hpc.job("all", nodes=3):
            second = [c.submit(marked, "go", i, key=("x", i)) for i in range(6, 12)]
        waits = await until(s, "all", "waiting")
        outside = [c.submit(marked, "go", i, key=("x", i)) for i in range(12, 18)]
        lane = lanes_of(s).by_name["x"]
        await async_poll_for(lambda: lane.tasks == 18 and len(lane.in_flight) == 3, 10)
        owner = plugin_of(s).context.owner
        assert lanes_of(s).is_awaited(waits)
        for key, address in lane.in_flight.items():
            assert owner.get(key) is not waits and (address in one.workers or owner.get(key) is None)
        await say(s, workers[0], "x", 0)  # each goes to where it was: to its job's wave, or to nobody's
        await async_poll_for(lambda: not lanes_of(s).row_of, 10)
        await async_poll_for(lambda: not any(("x", i) in s.unrunnable for i in range(12, 18)), 10)
        assert {key for key in owner if owner[key] is waits} <= {t.key for t in s.unrunnable}
        await Event("go").set()
        assert await c.gather([*first, *second, *outside]) == list(range(18))
        await until(s, "all", "done")
        await until(s, "one", "done")
        assert await executions(c) == list(range(18)) and plugin_of(s).errors == 0


@gen_cluster(client=True, nthreads=[("", 2)] * 2, worker_kwargs={"resources": {"GPU": 2}})
async def test_what_the_user_bound_actors_and_resources_are_left_alone(c, s, a, b):
    async with await dask_hpc.manage(c, "memory-lanes"):
        for kind in ("x", "Counter"):
            await say(s, a, kind, 60)
        bound = c.map(inc, range(4), key=[("x", i) for i in range(4)], workers=[a.address])
        loose = c.map(
            inc, range(4), key=[("x", i) for i in range(4, 8)], workers=[b.address], allow_other_workers=True
        )
        some = c.map(inc, range(4), key=[("x", i) for i in range(8, 12)], resources={"GPU": 1})
        actor = await c.submit(Counter, actor=True)
        assert await c.gather([*bound, *loose, *some]) == [*range(1, 5)] * 3
        assert await actor.add() == 1 and not lanes_of(s).row_of
        for future in bound:
            assert s.tasks[future.key].worker_restrictions == {a.address}
        for future in loose:
            assert s.tasks[future.key].worker_restrictions == {b.address}
        del actor


@two
async def test_shuffles_are_left_alone(c, s, a, b):
    async with await dask_hpc.manage(c, "memory-lanes"):
        with dask.config.set({"array.rechunk.method": "p2p", "optimization.fuse.active": False}):
            made = da.arange(144, chunks=24).reshape((12, 12)).rechunk((2, 12))
            again = made.rechunk((12, 2)) + 1
            found = await c.compute(again)
        assert np.array_equal(found, np.arange(144).reshape(12, 12) + 1)
        assert plugin_of(s).errors == 0


@two
async def test_a_graph_in_the_order_of_its_priorities(c, s, a, b):
    """First the tasks that go first, also before what Dask has queued."""
    done.clear()
    async with await dask_hpc.manage(c, "memory-lanes"):
        await say(s, a, "heavy", 60)
        await say(s, a, "small", 0)
        await say(s, a, "block", 0)
        first = [c.submit(marked, "go", i, key=("block", i), priority=20) for i in range(4)]
        await async_poll_for(lambda: len(sent(s, "block")) == 4, 10)
        later = c.map(small, range(60), key=[("small", i) for i in range(60)])
        soon = c.map(heavy, range(6), key=[("heavy", i) for i in range(6)], priority=10)
        await async_poll_for(lambda: len(s.tasks) == 70, 10)
        await Event("go").set()
        await wait([*first, *later, *soon])
        last = max(place for place, (kind, _) in enumerate(done) if kind == "heavy")
        assert last < 45, f"the last one that goes first went after {last} others"


@two
async def test_events_that_make_no_sense_end_nothing(c, s, a, b):
    async with await dask_hpc.manage(c, "memory-lanes"):
        await c.log_event(TOPIC, "nonsense")
        await c.log_event(TOPIC, {"worker": 5, "kinds": 7})
        for _ in range(20):
            await c.log_event(TOPIC, None)
        await async_poll_for(lambda: reasons(s, "warning"), 10)
        await say(s, a, "x", 60)  # it is heard after those
        assert plugin_of(s).errors == 0 and plugin_of(s).is_on
        assert await c.gather(c.map(inc, range(5))) == list(range(1, 6))


@two
async def test_dry_runs_keep_nothing_back(c, s, a, b):
    async with await dask_hpc.manage(c, "memory-lanes", dry_run=True):
        assert await c.gather(c.map(inc, range(20))) == list(range(1, 21))
        lanes = lanes_of(s)
        assert lanes.memory is None and not lanes.row_of and METRIC not in a.metrics
