"""A held worker starts nothing; nothing is stranded, nothing runs twice, and it works again when it may."""

import asyncio

import dask
import dask.array as da
import pytest
from distributed import Event, Queue, Status, Worker, secede
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.utils_test import async_poll_for, gen_cluster, inc
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_cluster import Vetoes, blocked, cluster2, cluster4, decisions, plugin_of, until, where

import dask_hpc
from dask_hpc import InputError

#: workers whose own memory monitor does not interfere with what a test lets them do
no_monitor = gen_cluster(
    client=True, nthreads=[("", 1)] * 2, config={"distributed.worker.memory.pause": False}
)


def holds_of(s):
    return plugin_of(s).control.holds


def marked(event, marks, x):
    """Counts its executions, and blocks."""
    Queue(marks).put(x)
    Event(event).wait(60)
    return where()


async def executions(c, marks):
    queue = Queue(marks, client=c)
    return sorted(await queue.get(batch=True)) if await queue.qsize() else []


async def pauses_itself(s, worker, status):
    """As its memory monitor would, seen by the scheduler."""
    worker.status = status
    said = holds_of(s)._said
    await async_poll_for(
        lambda: said.get(worker.address, s.workers[worker.address].status.name) == status.name, 10
    )


class HeldAtOnce(SchedulerPlugin):
    """Holds a worker when it has connected and has not said yet that it works; ``lets_go``: not for long."""

    def __init__(self, lets_go=False):
        self.lets_go, self.refused = lets_go, {}

    def add_worker(self, scheduler, worker):
        assert scheduler.workers[worker].status == Status.init
        self.refused |= holds_of(scheduler).hold([worker], "test")
        if self.lets_go:
            assert holds_of(scheduler).release(worker)


@cluster2
async def test_a_worker_that_has_only_just_connected_is_held_as_well(c, s, a, b):
    async with await dask_hpc.manage(c):
        s.add_plugin(plugin := HeldAtOnce(), name="at-once")
        async with Worker(s.address, nthreads=1) as worker:
            await async_poll_for(lambda: holds_of(s)._said[worker.address] == "running", 10)
            assert not plugin.refused and s.workers[worker.address].status == Status.paused
            assert set(await c.gather(c.map(where, range(30), pure=False))) == {a.address, b.address}
            assert holds_of(s).release(worker.address)
            assert await c.submit(where, workers=[worker.address]) == worker.address


@cluster2
async def test_one_that_is_let_go_before_it_says_so_works_as_ever(c, s, a, b):
    async with await dask_hpc.manage(c):
        s.add_plugin(plugin := HeldAtOnce(lets_go=True), name="at-once")
        async with Worker(s.address, nthreads=1) as worker:
            assert await c.submit(where, workers=[worker.address]) == worker.address
            assert not plugin.refused


@cluster2
async def test_what_is_assigned_moves_and_what_runs_ends_there(c, s, a, b):
    async with await dask_hpc.manage(c) as manager:
        futures = c.map(marked, ["go"] * 6, ["marks"] * 6, range(6), workers=[a.address, b.address])
        await async_poll_for(lambda: a.state.executing_count and b.state.executing_count, 10)
        running = {ts.key for ts in a.state.executing}
        assert await manager.hold(a.address) == {"held": [a.address], "refused": {}}
        await async_poll_for(lambda: {ts.key for ts in s.workers[a.address].processing} == running, 10)
        assert a.status == Status.running and s.workers[a.address].status == Status.paused
        await Event("go").set()
        places = await c.gather(futures)
        assert places.count(a.address) == 1 and await executions(c, "marks") == list(range(6))
        assert set(await c.gather(c.map(where, range(9), pure=False))) == {b.address}
        assert (await manager.status())["holds"] == [{"worker": a.address, "why": ["asked for"]}]
        assert await manager.release(0) == [a.address]
        assert (await manager.status())["holds"] == []
        assert s.workers[a.address].status == Status.running
        assert set(await c.gather(c.map(blocked, ["go"] * 9, range(9), pure=False))) == {a.address, b.address}
    s.validate_state()


@cluster2
async def test_queued_tasks_go_elsewhere_and_data_is_served(c, s, a, b):
    async with await dask_hpc.manage(c):
        data = await c.scatter(1, workers=[a.address])
        assert holds_of(s).hold([a.address], "power") == {}
        futures = c.map(where, range(50), pure=False)
        assert set(await c.gather(futures)) == {b.address}
        assert await c.submit(inc, data) == 2


@cluster2
async def test_several_reasons(c, s, a, b):
    async with await dask_hpc.manage(c):
        holds = holds_of(s)
        assert holds.hold([a.address], "power") == {}
        assert holds.hold([a.address], "leaving") == {}
        assert not holds.release(a.address, "heat")
        assert not holds.release(a.address, "power")
        assert s.workers[a.address].status == Status.paused
        assert holds.release(a.address, "leaving")
        assert s.workers[a.address].status == Status.running
        assert [d for d, _ in decisions(s, "hold", "release")] == ["hold", "hold", "release"]


@pytest.mark.parametrize("order", ["hPrR", "PhRr", "PhrR", "hPRr", "PRhr"])
def test_hold_and_memory_pause_in_every_order(order):
    """h, r: hold, release. P, R: the worker pauses and resumes itself."""

    @no_monitor
    async def run(c, s, a, b):
        async with await dask_hpc.manage(c):
            held = own = False
            for letter in order:
                if letter in "hr":
                    held = letter == "h"
                    if held:
                        holds_of(s).hold([a.address], "test")
                    else:
                        holds_of(s).release(a.address, "test")
                else:
                    own = letter == "P"
                    await pauses_itself(s, a, Status.paused if own else Status.running)
                s.validate_state()
                expected = Status.paused if held or own else Status.running
                assert s.workers[a.address].status == expected, (order, letter)
                assert a.status == (Status.paused if own else Status.running)
                places = await c.gather(c.map(where, range(6), pure=False))
                assert not (held or own) or set(places) == {b.address}

    run()


@no_monitor
async def test_tasks_on_a_worker_that_paused_itself_are_rescued(c, s, a, b):
    async with await dask_hpc.manage(c):
        futures = c.map(marked, ["go"] * 6, ["marks"] * 6, range(6), workers=[a.address, b.address])
        await async_poll_for(lambda: a.state.executing_count and b.state.executing_count, 10)
        a.status = Status.paused
        await async_poll_for(lambda: len(s.workers[a.address].processing) == 1, 10)
        await Event("go").set()
        assert (await c.gather(futures)).count(a.address) == 1
        assert await executions(c, "marks") == list(range(6))


@cluster2
async def test_what_nobody_else_may_run_still_runs_there(c, s, a, b):
    async with await dask_hpc.manage(c) as manager:
        futures = c.map(blocked, ["go"] * 3, range(3), workers=[a.address])
        await async_poll_for(lambda: a.state.executing_count, 10)
        refused = (await manager.hold(a.address))["refused"]
        assert list(refused) == [a.address] and "no other running worker may run" in refused[a.address]
        await Event("go").set()
        assert set(await c.gather(futures)) == {a.address}
        assert (await manager.hold(a.address))["refused"] == {}


@cluster2
async def test_restricted_tasks_that_come_later_are_reported(c, s, a, b):
    async with await dask_hpc.manage(c) as manager:
        await manager.hold([a.address], why="power")
        future = c.submit(inc, 1, key="late", workers=[a.address])
        await async_poll_for(lambda: holds_of(s).stuck, 10)
        assert (await manager.status())["waiting_for_held_workers"] == ["late"]
        assert [d for d, _ in decisions(s, "task-waits")] == ["task-waits"]
        await manager.release([a.address], why=None)
        assert await future == 2
        assert (await manager.status())["waiting_for_held_workers"] == []


@gen_cluster(
    client=True, nthreads=[("", 1)] * 2, config={"distributed.scheduler.no-workers-timeout": "400ms"}
)
async def test_tasks_that_wait_for_a_held_worker_do_not_fail(c, s, a, b):
    async with await dask_hpc.manage(c) as manager:
        await manager.hold(a.address)
        future = c.submit(inc, 1, workers=[a.address])
        await asyncio.sleep(1)  # more than twice the timeout
        assert not future.done()
        await manager.release(a.address)
        assert await future == 2


@cluster2
async def test_the_last_running_worker_is_never_held(c, s, a, b):
    async with await dask_hpc.manage(c) as manager:
        found = await manager.hold([a.address, b.address])
        assert found["held"] == [a.address] and found["refused"] == {b.address: "no other worker runs"}
        assert [d for d, _ in decisions(s, "hold-refused")] == ["hold-refused"]
        await a.close()
        assert not holds_of(s).reasons and not holds_of(s)._said


@gen_cluster(client=True, nthreads=[("", 1)] * 3, worker_kwargs={"resources": {}})
async def test_resources_are_restrictions_too(c, s, a, b, d):
    async with await dask_hpc.manage(c):
        for worker in (a, b):
            await worker.set_resources(GPU=1)
        future = c.submit(blocked, "go", resources={"GPU": 1})
        waits = c.submit(where, future, resources={"GPU": 1})
        await async_poll_for(lambda: a.state.executing_count or b.state.executing_count, 10)
        assert holds_of(s).hold([a.address], "x") == {}
        assert "no other running worker may run" in holds_of(s).hold([b.address], "x")[b.address]
        assert holds_of(s).hold([d.address], "x") == {}
        await Event("go").set()
        await future
        assert await waits


@cluster4
async def test_a_jobs_last_worker_is_not_held(c, s, *workers):
    async with await dask_hpc.manage(c):
        with dask_hpc.job("j", nodes=2, walltime="1h"):
            future = c.submit(blocked, "go")
            job = await until(s, "j", "running")
            one, other = sorted(job.workers)
            assert holds_of(s).hold([one], "x") == {}
            assert "last running worker of job" in holds_of(s).hold([other], "x")[other]
            # What waits may still start anywhere: no reason to refuse
            with dask_hpc.job("k", nodes=4, walltime="1h"):
                waiting = c.submit(inc, 1)
            await until(s, "k", "waiting")
            third = next(w.address for w in workers if w.address not in job.workers)
            assert holds_of(s).hold([third], "x") == {}
            await Event("go").set()
            await future
        for address in (one, third):  # held nodes are given to nobody, so k would wait for them
            assert holds_of(s).release(address)
        assert await waiting == 2


class CannotSay(SchedulerPlugin):
    name = "cannot-say"

    def valid_workers_downscaling(self, scheduler, workers):
        raise ZeroDivisionError


@no_monitor
async def test_a_plugins_veto(c, s, a, b):
    vetoes = Vetoes()
    s.add_plugin(vetoes)
    s.add_plugin(CannotSay())
    async with await dask_hpc.manage(c):
        vetoes.needed = {a.address}
        assert holds_of(s).hold([a.address], "x") == {a.address: "vetoes needs it where it is"}
        vetoes.needed = set()
        assert holds_of(s).hold([a.address], "x") == {}
        # A shuffle begins and takes the held worker in: it works on until that is over
        vetoes.needed = {a.address}
        await async_poll_for(lambda: s.workers[a.address].status == Status.running, 10)
        await pauses_itself(s, a, Status.paused)
        assert s.workers[a.address].status == Status.paused
        await pauses_itself(s, a, Status.running)
        assert s.workers[a.address].status == Status.running
        vetoes.needed = set()
        await async_poll_for(lambda: s.workers[a.address].status == Status.paused, 10)
        assert holds_of(s).release(a.address, "x")
        assert s.workers[a.address].status == Status.running


@gen_cluster(client=True, nthreads=[("", 1)] * 2, config={"distributed.scheduler.work-stealing": False})
async def test_without_stealing(c, s, a, b):
    """Tasks are moved as well, by a stealing of our own that is gone afterwards."""
    assert "stealing" not in s.extensions
    before = dict(s.stream_handlers), set(s.plugins)
    async with await dask_hpc.manage(c):
        futures = c.map(marked, ["go"] * 6, ["marks"] * 6, range(6), workers=[a.address, b.address])
        await async_poll_for(lambda: a.state.executing_count and b.state.executing_count, 10)
        holds_of(s).hold([a.address], "x")
        await async_poll_for(lambda: len(s.workers[a.address].processing) == 1, 10)
        assert "stealing" not in s.periodic_callbacks
        await Event("go").set()
        assert (await c.gather(futures)).count(a.address) == 1
        assert await executions(c, "marks") == list(range(6))
    assert (s.stream_handlers, set(s.plugins)) == before


@cluster2
async def test_seceded_tasks_and_actors_stay(c, s, a, b):
    class Counter:
        n = 0

    def long():
        secede()
        Event("go").wait(60)
        return where()

    async with await dask_hpc.manage(c):
        actor = await c.submit(Counter, actor=True, workers=[a.address])
        future = c.submit(long, workers=[a.address, b.address])
        await async_poll_for(lambda: any(ws.long_running for ws in s.workers.values()), 10)
        address = next(ws.address for ws in s.workers.values() if ws.long_running)
        holds_of(s).hold([address], "x")
        await Event("go").set()
        assert await future == address
        assert await actor.n == 0


@cluster2
async def test_close_releases_everybody_and_leaves_no_trace(c, s, a, b):
    before = dict(s.stream_handlers), set(s.handlers)
    for _ in range(2):
        async with await dask_hpc.manage(c) as manager:
            await manager.hold(a.address)
        assert s.workers[a.address].status == Status.running
        assert (s.stream_handlers, set(s.handlers)) == before


@no_monitor
async def test_another_wrapper_of_the_reports_stays(c, s, a, b):
    """Whoever came after us and wraps our function is not cut off, and ours does nothing any more."""
    async with await dask_hpc.manage(c):
        ours, seen = s.stream_handlers["worker-status-change"], []

        def wraps(**kwargs):
            seen.append(kwargs["status"])
            ours(**kwargs)

        s.stream_handlers["worker-status-change"] = wraps
    a.status = Status.paused
    await async_poll_for(lambda: s.workers[a.address].status == Status.paused, 10)
    assert seen == ["paused"]


@cluster2
async def test_bad_input(c, s, a, b):
    async with await dask_hpc.manage(c) as manager:
        for workers in ("elsewhere", 7, None, [None], [[a.address]], {"a": 1}, [a.address, "no"]):
            with pytest.raises(InputError, match=r"hold: workers.*allowed"):
                await manager.hold(workers)
            with pytest.raises(InputError, match=r"release: workers.*allowed"):
                await manager.release(workers)
        for why in ("", "x" * 1000, 3, ["a"], "a\nb"):
            with pytest.raises(InputError, match="why"):
                await manager.hold(a.address, why=why)
        assert not holds_of(s).reasons
        assert await manager.release(a.address) == []


@cluster2
async def test_control_that_is_off_holds_nobody(c, s, a, b):
    async with await dask_hpc.manage(c) as manager:
        await manager.hold(a.address)
        plugin = plugin_of(s)
        for _ in range(plugin._settings["max-errors"]):
            plugin.context.count_error("a test", ZeroDivisionError())
        await async_poll_for(lambda: s.workers[a.address].status == Status.running, 10)
        with pytest.raises(RuntimeError, match="control is off"):
            await manager.hold(a.address)


@cluster2
async def test_restart_forgets_the_tasks(c, s, a, b):
    async with await dask_hpc.manage(c):
        holds_of(s).hold([a.address], "x")
        future = c.submit(inc, 1, workers=[a.address])
        await async_poll_for(lambda: holds_of(s).stuck, 10)
        await c.restart(wait_for_workers=False)
        assert not holds_of(s).stuck and not holds_of(s)._restricted and not holds_of(s).reasons
        del future


@pytest.mark.slow
@cluster2
async def test_released_restricted_tasks_are_forgotten(c, s, a, b):
    async with await dask_hpc.manage(c):
        with dask.annotate(workers=["tcp://127.0.0.1:1"]):  # nobody's, so that none of them runs
            for _ in range(12):
                futures = c.map(inc, range(300), pure=False)
                await async_poll_for(lambda: len(s.tasks) == 300, 10)
                del futures
                await async_poll_for(lambda: not s.tasks, 10)
        assert len(holds_of(s)._restricted) < 2400  # of 3600


STEPS = st.lists(
    st.tuples(st.sampled_from(["hold", "release", "pause", "resume", "submit", "free"]), st.integers(0, 2)),
    max_size=14,
)


@pytest.mark.slow
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS)
def test_any_sequence_runs_everything_once(steps):
    @gen_cluster(client=True, nthreads=[("", 1)] * 3, config={"distributed.worker.memory.pause": False})
    async def run(c, s, *workers):
        async with await dask_hpc.manage(c):
            futures, batch = [], 0
            for what, which in [("submit", 0), *steps]:
                worker = workers[which]
                if what == "hold":
                    holds_of(s).hold([worker.address], "x")
                elif what == "release":
                    holds_of(s).release(worker.address)
                elif what in ("pause", "resume"):
                    others = [w for w in workers if w is not worker and w.status == Status.running]
                    if others or what == "resume":
                        await pauses_itself(s, worker, Status.paused if what == "pause" else Status.running)
                elif what == "submit":
                    size, first = 4 + which, len(futures)
                    gates = [f"go-{batch}"] * size
                    futures += c.map(marked, gates, ["marks"] * size, range(first, first + size), pure=False)
                else:
                    await Event(f"go-{batch}").set()
                    batch += 1
                s.validate_state()
            for worker in workers:
                holds_of(s).release(worker.address)
                await pauses_itself(s, worker, Status.running)
            for number in range(batch + 1):
                await Event(f"go-{number}").set()
            await c.gather(futures)
            assert await executions(c, "marks") == list(range(len(futures)))
            assert plugin_of(s).errors == 0

    run()


@gen_cluster(client=True, nthreads=[("", 1)] * 3)
async def test_a_shuffle_that_begins_leaves_a_held_worker_out(c, s, a, b, d):
    """With Dask alone its outputs on the held worker would wait until the end of the hold."""
    async with await dask_hpc.manage(c):
        holds_of(s).hold([a.address], "x")
        small = {
            "array.rechunk.method": "p2p",
            "array.chunk-size": "800 B",
            "optimization.fuse.active": False,
        }
        with dask.config.set(small):
            x = da.ones((10, 100), chunks=(1, 100)).rechunk((10, 10))
            future = c.compute(x.sum())
        assert await future == 1000
        assert s.workers[a.address].status == Status.paused and not a.data and not holds_of(s)._lent


@cluster4
async def test_a_held_node_is_given_to_nobody(c, s, *workers):
    async with await dask_hpc.manage(c) as m:
        await m.hold([workers[1].address])
        with dask_hpc.job("a", nodes=4):
            f = c.submit(inc, 1)
        await until(s, "a", "waiting")
        (job,) = (await m.status())["jobs"]
        assert job["waiting_because"] == "needs 4 nodes, 3 idle, 1 held"
        with dask_hpc.job("b", nodes=3):
            places = c.map(where, range(12), pure=False)
        assert workers[1].address not in await c.gather(places)
        await m.release([workers[1].address])
        assert await f == 2
        assert plugin_of(s).control.indices.withheld == set()
