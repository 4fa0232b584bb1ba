"""Workers leave without loss: by every caller, with running tasks, data, actors, and company."""

import asyncio
import itertools

import pytest
from distributed import Actor, Event, Queue, Status, Worker, get_worker, secede, wait
from distributed.client import Client
from distributed.deploy.local import LocalCluster
from distributed.utils_test import async_poll_for, gen_cluster, gen_test, inc
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_cluster import (
    blocked,
    cluster2,
    cluster4,
    executions,
    lose,
    losses,
    marked,
    plugin_of,
    produce,
    reasons,
    until,
    where,
)

import dask_hpc
from dask_hpc import InputError

cluster3 = gen_cluster(client=True, nthreads=[("", 1)] * 3)


async def results_on_all(c, s, count=12):
    futures = c.map(produce, range(count))
    await wait(futures)
    assert all(ws.has_what for ws in s.workers.values())
    return futures


@pytest.mark.parametrize("how", ["addresses", "one", "names", "names as workers", "text", "scheduler"])
def test_everybody_comes_this_way(how):
    @cluster3
    async def run(c, s, a, b, d):
        async with await dask_hpc.manage(c):
            futures = await results_on_all(c, s)
            given = {
                "addresses": {"workers": [a.address]},
                "one": {"workers": a.address},
                "names": {"names": [0]},
                "names as workers": {"workers": [0, 77]},
                "text": {"names": ["0"]},
                "scheduler": {"workers": [a.address]},
            }[how]
            if how == "scheduler":
                found = await s.retire_workers(**given)
            else:
                found = await c.retire_workers(**given)
            assert list(found) == [a.address] and found[a.address]["type"] == "Worker"
            assert set(s.workers) == {b.address, d.address}
            await c.gather(futures)
            assert await executions(c) == list(range(12)) and losses(s) == 0
            assert plugin_of(s).errors == 0

    run()


@cluster3
async def test_without_names_dask_chooses(c, s, a, b, d):
    async with await dask_hpc.manage(c):
        assert len(await c.scheduler.retire_workers(n=1)) == 1
        assert len(s.workers) == 2
        with pytest.raises(TypeError, match="mutually exclusive"):
            await c.scheduler.retire_workers(workers=[a.address], names=[0])
        with pytest.raises(TypeError, match="mutually exclusive"):
            await c.scheduler.retire_workers(workers=[a.address], n=1)
        assert await c.retire_workers(workers=["nobody"]) == {}
        assert await c.retire_workers(workers=[]) == {}


@cluster3
async def test_bad_budgets(c, s, a, b, d):
    async with await dask_hpc.manage(c):
        for bad in ("soon", -1, "-1s", [], float("nan")):
            with pytest.raises(InputError, match="drain"):
                await c.retire_workers(workers=[a.address], drain=bad)
        assert len(s.workers) == 3


@cluster3
async def test_a_running_task_is_waited_for(c, s, a, b, d):
    async with await dask_hpc.manage(c):
        futures = c.map(marked, ["go"] * 6, range(6))
        await async_poll_for(lambda: a.state.executing_count, 10)
        call = asyncio.ensure_future(c.retire_workers(workers=[a.address]))
        await async_poll_for(lambda: s.workers[a.address].status == Status.paused, 10)
        await async_poll_for(lambda: len(s.workers[a.address].processing) == 1, 10)
        assert not call.done() and a.state.executing_count == 1
        await Event("go").set()
        assert list(await call) == [a.address]
        assert await c.gather(futures) == list(range(6))
        assert await executions(c) == list(range(6)) and losses(s) == 0


@cluster3
async def test_when_the_budget_is_over_it_starts_again_once(c, s, a, b, d):
    async with await dask_hpc.manage(c):
        future = c.submit(marked, "go", 0, workers=[a.address, b.address])
        await async_poll_for(lambda: a.state.executing_count or b.state.executing_count, 10)
        first, other = (a, b) if a.state.executing_count else (b, a)
        assert list(await c.retire_workers(workers=[first.address], drain="100ms")) == [first.address]
        await async_poll_for(lambda: other.state.executing_count, 10)
        await Event("go").set()
        await future
        assert await executions(c) == [0, 0]
        (told,) = reasons(s, "restart")
        assert "drain budget of 0.1 s is over" in told and future.key in told


@gen_cluster(client=True, nthreads=[("", 1)] * 2, config={"hpc.drain": "0s"})
async def test_the_budget_is_a_setting(c, s, a, b):
    async with await dask_hpc.manage(c) as manager:
        future = c.submit(blocked, "go")
        await async_poll_for(lambda: a.state.executing_count or b.state.executing_count, 10)
        first, other = (a, b) if a.state.executing_count else (b, a)
        assert (await manager.set())["settings"]["drain"] == 0
        await manager.set(**{"settings.drain": "1ms"})
        await c.retire_workers(workers=[first.address])
        await async_poll_for(lambda: other.state.executing_count, 10)
        await Event("go").set()
        assert await future == other.address


@cluster3
async def test_a_seceded_task_counts_as_running(c, s, a, b, d):
    def long(x):
        Queue("marks").put(x)
        secede()
        Event("go").wait(60)
        return get_worker().address

    async with await dask_hpc.manage(c):
        future = c.submit(long, 1)
        await async_poll_for(lambda: any(ws.long_running for ws in s.workers.values()), 10)
        address = next(ws.address for ws in s.workers.values() if ws.long_running)
        call = asyncio.ensure_future(c.retire_workers(workers=[address]))
        await async_poll_for(lambda: s.workers[address].status == Status.paused, 10)
        await Event("go").set()
        assert list(await call) == [address]
        assert await future == address and await executions(c) == [1]


@cluster3
async def test_actors_stay(c, s, a, b, d):
    class Counter:
        n = 3

    async with await dask_hpc.manage(c):
        actor = await c.submit(Counter, actor=True, workers=[a.address])
        assert isinstance(actor, Actor)
        assert list(await c.retire_workers(workers=[a.address, b.address])) == [b.address]
        assert await actor.n == 3
        assert s.workers[a.address].status == Status.running == a.status
        assert await c.submit(where, workers=[a.address], pure=False) == a.address
        (told,) = reasons(s, "not-retired")
        assert "actors" in told
        (event,) = [msg for _, msg in s.get_events(a.address) if msg.get("action") == "could-not-retire"]
        assert list(event["reasons"]) == [a.address]


@pytest.mark.parametrize("what", ["job", ["job", "job-0", "job-1"], "job-1"])
def test_a_batch_job_stays_as_a_whole(what):
    """Its name means all its workers; without one of them it could not be given back."""

    @gen_cluster(client=True, nthreads=[("", 1)])
    async def run(c, s, a):
        async with (
            Worker(s.address, name="job-0") as first,
            Worker(s.address, name="job-1") as second,
            await dask_hpc.manage(c),
        ):
            actor = await c.submit(Thing, actor=True, workers=[first.address])
            held = c.submit(produce, 1, workers=[second.address])
            await held
            answer = await c.retire_workers(names=[what] if isinstance(what, str) else what)
            if what == "job-1":
                assert list(answer) == [second.address]
                return
            assert answer == {}
            await async_poll_for(lambda: {ws.status for ws in s.workers.values()} == {Status.running}, 10)
            assert len(reasons(s, "not-retired")) == 2
            assert await c.submit(where, workers=[second.address], pure=False) == second.address
            del actor
            await async_poll_for(lambda: not any(ws.actors for ws in s.workers.values()), 10)
            answer = await c.retire_workers(names=[what] if isinstance(what, str) else what)
            assert set(answer) == {first.address, second.address}
            assert held.status == "finished"

    run()


class Thing:
    pass


@cluster2
async def test_the_last_worker_that_may_run_a_task_stays(c, s, a, b):
    async with await dask_hpc.manage(c):
        futures = c.map(marked, ["go"] * 3, range(3), workers=[a.address])
        await async_poll_for(lambda: a.state.executing_count, 10)
        assert await c.retire_workers(workers=[a.address]) == {}
        await Event("go").set()
        await c.gather(futures)
        assert await executions(c) == [0, 1, 2]


@gen_cluster(
    client=True,
    nthreads=[("", 1)] * 3,
    worker_kwargs={"memory_limit": 10_000_000},
    config={f"distributed.worker.memory.{key}": False for key in ("target", "spill", "pause", "terminate")},
)
async def test_what_does_not_fit_stays(c, s, a, b, d):
    """Survivors are filled to 80 %: of three workers with 6 MB each none can go, with 3 MB one can."""
    for worker in (a, b, d):
        worker.monitor.get_process_memory = lambda: 0
        worker.monitor.update()
        await worker.heartbeat()
        assert s.workers[worker.address].memory.process == 0
    async with await dask_hpc.manage(c):
        futures = [
            c.submit(produce, (i, w.name), 3_000_000, workers=[w.address], key=f"k-{i}-{w.name}")
            for w in (a, b, d)
            for i in range(2)
        ]
        await wait(futures)
        assert await c.retire_workers(workers=[a.address]) == {}
        assert s.workers[a.address].status == Status.running
        (told,) = reasons(s, "not-retired")
        assert "fit nowhere" in told and a.address in told
        for future in futures[1::2]:
            future.release()
        await async_poll_for(lambda: len(s.tasks) == 3, 10)
        assert list(await c.retire_workers(workers=[a.address])) == [a.address]
        assert losses(s) == 0
        # Of the two that are left with 6 and 3 MB, the one with less goes if both are to go
        assert len(await c.retire_workers(workers=[b.address, d.address])) == 0


@gen_cluster(
    client=True,
    nthreads=[("", 1)] * 4,
    worker_kwargs={"memory_limit": 10_000_000},
    config={f"distributed.worker.memory.{key}": False for key in ("target", "spill", "pause", "terminate")},
)
async def test_of_several_as_many_go_as_fit(c, s, *workers):
    for worker in workers:
        worker.monitor.get_process_memory = lambda: 0
        worker.monitor.update()
        await worker.heartbeat()
        assert s.workers[worker.address].memory.process == 0
    async with await dask_hpc.manage(c):
        futures = [
            c.submit(produce, w.name, 1_500_000, workers=[w.address], key=f"k-{i}-{w.name}")
            for w in workers
            for i in range(2)
        ]
        await wait(futures)
        # 12 MB in all; two survivors take 16 MB, one takes 8
        left = await c.retire_workers(workers=[w.address for w in workers[:3]])
        assert len(left) == 2 and losses(s) == 0
        assert {ws.status for ws in s.workers.values()} == {Status.running}
        assert all(ws.nbytes <= 8_000_000 for ws in s.workers.values())
        await c.gather(futures)


@gen_cluster(
    client=True,
    nthreads=[("", 1)] * 2,
    worker_kwargs={"memory_limit": 10_000_000},
    config={f"distributed.worker.memory.{key}": False for key in ("target", "spill", "pause", "terminate")},
)
async def test_a_worker_measured_before_its_results_came_is_asked_again(c, s, a, b):
    """Of 10 MB, 1 is the process's own and 3 are a result: 4 are left of 80 %."""
    silent = [b.periodic_callbacks["monitor"], b.periodic_callbacks["heartbeat"]]
    for callback in silent:
        callback.stop()
    b.monitor.get_process_memory = lambda: 1_000_000 + b.state.nbytes
    b.monitor.update()
    async with await dask_hpc.manage(c):
        there = await c.scatter(bytes(3_000_000), workers=[b.address])
        large = await c.scatter(bytes(4_500_000), workers=[a.address])
        await b.heartbeat()  # what it holds now, and how large its process was before
        assert s.workers[b.address].metrics["memory"] == 1_000_000
        call = asyncio.ensure_future(c.retire_workers(workers=[a.address]))
        await async_poll_for(lambda: s.workers[a.address].status == Status.paused, 10)
        for callback in silent:
            callback.start()
        assert await call == {}
        (told,) = reasons(s, "not-retired")
        assert "fit nowhere" in told
        for callback in silent:
            callback.stop()
        count = b.monitor.count
        large.release()
        small = await c.scatter(bytes(500_000), workers=[a.address])
        assert list(await c.retire_workers(workers=[a.address])) == [a.address]
        assert b.monitor.count == count, "what fits in any case waits for nobody"
        assert [len(found) for found in await c.gather([there, small])] == [3_000_000, 500_000]


@cluster3
async def test_scattered_data_and_replicas_move_too(c, s, a, b, d):
    async with await dask_hpc.manage(c):
        one = await c.scatter(123, workers=[a.address])
        both = await c.scatter(456, broadcast=True)
        await c.retire_workers(workers=[a.address, b.address])
        assert await c.gather([one, both]) == [123, 456]
        assert set(s.workers) == {d.address} and losses(s) == 0


@cluster3
async def test_several_calls_at_once(c, s, a, b, d):
    async with await dask_hpc.manage(c):
        futures = await results_on_all(c, s)
        blocks = c.map(marked, ["go"] * 3, range(100, 103))
        await async_poll_for(lambda: all(w.state.executing_count for w in (a, b, d)), 10)
        calls = [
            asyncio.ensure_future(c.retire_workers(workers=which))
            for which in ([a.address], [a.address, b.address], [b.address], [a.address])
        ]
        await async_poll_for(lambda: s.workers[b.address].status == Status.paused, 10)
        await Event("go").set()
        found = [set(one) for one in await asyncio.gather(*calls)]
        assert found == [{a.address}, {a.address, b.address}, {b.address}, {a.address}]
        await c.gather(futures + blocks)
        assert await executions(c) == [*range(12), *range(100, 103)] and losses(s) == 0


@cluster3
async def test_refused_with_others_and_leaving_again_alone(c, s, a, b, d):
    """The end of the first departure does not end the second."""

    class Thing:
        pass

    async with await dask_hpc.manage(c):
        holds = plugin_of(s).control.holds
        thing = await c.submit(Thing, actor=True, workers=[a.address], key="thing")
        futures = c.map(blocked, ["a", "b"], workers=[a.address, b.address], allow_other_workers=True)
        await async_poll_for(lambda: a.state.executing_count and b.state.executing_count, 10)
        on_a, on_b = ("a", "b") if next(iter(a.state.executing)).key == futures[0].key else ("b", "a")
        first = asyncio.ensure_future(c.retire_workers(workers=[a.address, b.address], drain="1h"))
        await async_poll_for(lambda: b.address in holds.reasons and a.address not in holds.reasons, 10)
        del thing
        await async_poll_for(lambda: "thing" not in s.tasks, 10)
        second = asyncio.ensure_future(c.retire_workers(workers=[a.address], drain="1h"))
        await async_poll_for(lambda: a.address in holds.reasons, 10)
        await Event(on_b).set()
        assert list(await first) == [b.address]
        assert a.address in holds.reasons and not second.done()
        await Event(on_a).set()
        assert list(await second) == [a.address]
        assert set(await c.gather(futures)) == {a.address, b.address}


@cluster3
async def test_parked_first_removed_later(c, s, a, b, d):
    async with await dask_hpc.manage(c):
        futures = await results_on_all(c, s)
        found = await c.retire_workers(workers=[a.address], close_workers=False, remove=False)
        assert list(found) == [a.address] and not s.workers[a.address].has_what
        assert s.workers[a.address].status == Status.closing_gracefully
        assert not plugin_of(s).control.holds.reasons
        # Dask retires such a worker again, and so do we
        assert list(await c.retire_workers(workers=[a.address])) == [a.address]
        assert a.address not in s.workers
        await c.gather(futures)
        assert losses(s) == 0


@cluster3
async def test_a_worker_that_dies_on_the_way(c, s, a, b, d):
    async with await dask_hpc.manage(c):
        future = c.submit(marked, "go", 1, workers=[a.address, b.address])
        await async_poll_for(lambda: a.state.executing_count or b.state.executing_count, 10)
        first = a if a.state.executing_count else b
        call = asyncio.ensure_future(c.retire_workers(workers=[first.address, d.address]))
        await async_poll_for(lambda: s.workers[first.address].status == Status.paused, 10)
        await Event("go").set()
        await lose(first)
        assert set(await call) <= {first.address, d.address}
        assert await future == 1 and len(s.workers) == 1
        assert plugin_of(s).errors == 0


@gen_cluster(client=True, nthreads=[("", 1)] * 2, config={"distributed.worker.memory.pause": False})
async def test_company_that_paused_itself_is_company(c, s, a, b):
    """It has no room just now, which is no reason to leave the decision, and all the data, to Dask."""
    async with await dask_hpc.manage(c):
        kept = await c.scatter(1, workers=[a.address])
        b.status = Status.paused
        await async_poll_for(lambda: s.workers[b.address].status == Status.paused, 10)
        assert await c.retire_workers(workers=[a.address]) == {}
        assert s.workers[a.address].status == Status.running
        assert len(reasons(s, "not-retired")) == 1
        b.status = Status.running
        await async_poll_for(lambda: s.workers[b.address].status == Status.running, 10)
        assert list(await c.retire_workers(workers=[a.address])) == [a.address]
        assert await c.gather(kept) == 1


@cluster2
async def test_nobody_stays(c, s, a, b):
    """As when a cluster is closed: no wait; Dask keeps those that have data."""
    async with await dask_hpc.manage(c):
        kept = await c.scatter(1, workers=[a.address])
        running = c.map(blocked, ["go"] * 2, range(2))
        await async_poll_for(lambda: a.state.executing_count and b.state.executing_count, 10)
        assert list(await c.retire_workers(workers=[a.address, b.address])) == [b.address]
        assert a.status == s.workers[a.address].status == Status.running  # as soon as anybody hears of it
        await Event("go").set()
        assert await c.gather(running) == [a.address] * 2
        assert await c.gather(kept) == 1


@cluster2
async def test_a_worker_whose_lifetime_ends(c, s, a, b):
    async with await dask_hpc.manage(c), Worker(s.address, nthreads=1, lifetime="1 hour") as short:
        await results_on_all(c, s)
        future = c.submit(marked, "go", 7, workers=[short.address], allow_other_workers=True)
        await async_poll_for(lambda: short.state.executing_count, 10)
        closing = asyncio.ensure_future(short.close_gracefully())
        await async_poll_for(lambda: s.workers[short.address].status == Status.paused, 10)
        await Event("go").set()
        await closing
        assert await future == 7
        assert (await executions(c)).count(7) == 2  # once by results_on_all
        assert losses(s) == 0


@cluster3
async def test_close_of_control_in_the_middle(c, s, a, b, d):
    """What is under way ends as in plain Dask, and nothing of ours stays."""
    before = s.handlers["retire_workers"]
    async with await dask_hpc.manage(c):
        assert s.handlers["retire_workers"] != before and "retire_workers" in vars(s)
        future = c.submit(marked, "go", 1, workers=[a.address, b.address])
        await async_poll_for(lambda: a.state.executing_count or b.state.executing_count, 10)
        first, other = (a, b) if a.state.executing_count else (b, a)
        call = asyncio.ensure_future(c.retire_workers(workers=[first.address], drain="1h"))
        await async_poll_for(lambda: s.workers[first.address].status == Status.paused, 10)
    assert list(await call) == [first.address]
    await async_poll_for(lambda: other.state.executing_count, 10)
    await Event("go").set()
    assert await future == 1
    assert s.handlers["retire_workers"] == before and "retire_workers" not in vars(s)


@gen_cluster(client=True, nthreads=[("", 1)] * 2)
async def test_the_scheduler_closes_in_the_middle(c, s, a, b):
    await dask_hpc.manage(c)
    future = c.submit(blocked, "go")
    await async_poll_for(lambda: a.state.executing_count or b.state.executing_count, 10)
    first = a if a.state.executing_count else b
    leaving = plugin_of(s).control.leaving
    call = asyncio.ensure_future(s.retire_workers(workers=[first.address], drain="1h"))
    await async_poll_for(lambda: s.workers[first.address].status == Status.paused, 10)
    closing = asyncio.ensure_future(s.close())
    assert await call == {}
    await closing
    assert not leaving._departures
    del future


@cluster3
async def test_an_error_of_ours_leaves_it_to_dask(c, s, a, b, d):
    async with await dask_hpc.manage(c):
        futures = await results_on_all(c, s)
        leaving = plugin_of(s).control.leaving
        leaving._plan = None  # calling it fails
        assert list(await c.retire_workers(workers=[a.address])) == [a.address]
        assert plugin_of(s).errors == 1 and losses(s) == 0
        await c.gather(futures)
        assert await executions(c) == list(range(12))


@cluster4
async def test_neighbours_stay_together(c, s, *workers):
    async with await dask_hpc.manage(c):
        futures = [c.submit(produce, i, key=("x", i), workers=[workers[i // 10].address]) for i in range(40)]
        await wait(futures)
        await c.retire_workers(workers=[w.address for w in workers[2:]])
        places = [next(iter(s.tasks["x", i].who_has)).address for i in range(40)]
        assert sum(one == other for one, other in itertools.pairwise(places)) >= 36
        assert min(places.count(w.address) for w in workers[:2]) >= 16
        assert await executions(c) == list(range(40))


@cluster3
async def test_the_last_node_of_a_job(c, s, a, b, d):
    """The job waits again, as always when its last node goes, and starts elsewhere."""
    async with await dask_hpc.manage(c):
        with dask_hpc.job("j", nodes=1, walltime="1h"):
            futures = c.map(marked, ["go"] * 4, range(4))
            job = await until(s, "j", "running")
            (address,) = job.workers
            await async_poll_for(lambda: s.workers[address].processing, 10)
            call = asyncio.ensure_future(c.retire_workers(workers=[address]))
            await async_poll_for(lambda: s.workers[address].status == Status.paused, 10)
            await Event("go").set()
            assert list(await call) == [address]
            await c.gather(futures)
        assert await executions(c) == [0, 1, 2, 3] and losses(s) == 0
        assert plugin_of(s).errors == 0


@gen_test()
async def test_a_local_cluster_that_shrinks():
    local = LocalCluster(
        n_workers=3, threads_per_worker=1, processes=False, asynchronous=True, dashboard_address=":0"
    )
    async with local as k, Client(k, asynchronous=True) as c, await dask_hpc.manage(c):
        futures = c.map(produce, range(30))
        await wait(futures)
        s = k.scheduler
        k.scale(2)
        await async_poll_for(lambda: len(s.workers) == 2 and len(k.workers) == 2, 20)
        assert losses(s) == 0
        await c.gather(futures)
        assert await executions(c) == list(range(30))


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["hold", "release", "retire", "kill", "submit", "free", "join"]), st.integers(0, 3)
    ),
    max_size=12,
)


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS)
def test_any_sequence_ends_with_everything_once_or_accounted_for(steps):
    """Every task has its result at the end, and ran once; again only if its worker was killed.
    There is always one whom nobody has asked to go."""

    @gen_cluster(client=True, nthreads=[("", 1)] * 3, timeout=90)
    async def run(c, s, *workers):
        workers, joined, killed = list(workers), [], False
        async with await dask_hpc.manage(c):
            holds = plugin_of(s).control.holds
            futures, batch, calls, asked = [], 0, [], set()
            for what, which in [("submit", 0), *steps]:
                alive = [w for w in workers if w.status in (Status.running, Status.paused)]
                worker = alive[which % len(alive)]
                here = [w for w in alive if w.address in s.workers]
                others = [w for w in here if w is not worker and w.address not in asked]
                if what == "hold":
                    holds.hold([worker.address], "x")
                elif what == "release":
                    holds.release(worker.address, "x")
                elif what == "retire" and others:
                    asked.add(worker.address)
                    calls.append(asyncio.ensure_future(c.retire_workers([worker.address], drain="1h")))
                    await asyncio.sleep(0)
                elif what == "kill" and others and len(here) > 2:
                    await worker.close(executor_wait=False, reason="killed")
                    killed = True
                elif what == "join":
                    joined.append(await Worker(s.address, nthreads=1))
                    workers.append(joined[-1])
                elif what == "submit":
                    size, first = 4 + which, len(futures)
                    futures += c.map(marked, [f"go-{batch}"] * size, range(first, first + size), pure=False)
                elif what == "free":
                    await Event(f"go-{batch}").set()
                    batch += 1
                s.validate_state()
            for number in range(batch + 1):
                await Event(f"go-{number}").set()
            for call in calls:
                await asyncio.wait_for(call, 30)
            for address in list(s.workers):
                holds.release(address)
            assert await c.gather(futures) == list(range(len(futures)))
            ran = await executions(c)
            assert set(ran) == set(range(len(futures)))
            if not killed:
                assert len(ran) == len(futures) and losses(s) == 0
            assert plugin_of(s).errors == 0
            assert not holds.reasons and not plugin_of(s).control.leaving._departures
        for worker in joined:
            await worker.close()

    run()


@cluster2
async def test_two_that_leave_at_once_do_not_leave_nobody(c, s, a, b):
    """The first one waits for what it runs when somebody wants the other one to leave, too."""
    async with await dask_hpc.manage(c):
        runs = c.submit(blocked, "go", workers=[a.address], allow_other_workers=True, key="runs")
        await async_poll_for(lambda: a.state.executing_count == 1, 10)
        first = asyncio.ensure_future(c.retire_workers([a.address]))
        await async_poll_for(lambda: s.workers[a.address].status == Status.paused, 10)
        assert await c.retire_workers([b.address]) == {}
        assert reasons(s, "not-retired") == [f"worker {b.address} stays: nobody else would stay"]
        await Event("go").set()
        assert set(await first) == {a.address}
        assert await runs == a.address and set(s.workers) == {b.address}


@cluster2
async def test_one_that_is_on_its_way_out_stays_for_one_that_must_go(c, s, a, b):
    async with await dask_hpc.manage(c):
        await async_poll_for(lambda: all("dask-hpc-farewell" in w.plugins for w in (a, b)), 10)
        held = c.map(inc, range(20), workers=[a.address], allow_other_workers=True, pure=False)
        await wait(held)
        runs = c.submit(blocked, "go", workers=[b.address], allow_other_workers=True, key="runs")
        await async_poll_for(lambda: b.state.executing_count == 1, 10)
        leaves = asyncio.ensure_future(c.retire_workers([b.address]))
        await async_poll_for(lambda: s.workers[b.address].status == Status.paused, 10)
        await a.close(reason="signal-15")
        assert await leaves == {}
        why = f"worker {a.address} has nobody else to give its results to"
        assert reasons(s, "not-retired") == [f"worker {b.address} stays: {why}"]
        await Event("go").set()
        assert await runs == b.address and await c.gather(held) == list(range(1, 21))
        assert losses(s) == 0 and reasons(s, "error") == reasons(s, "restart") == []


@cluster2
async def test_data_from_outside_that_is_on_its_way_to_one_that_leaves_is_waited_for(c, s, a, b):
    update_data = a.handlers["update_data"]

    async def slowly(**data):
        await Event("go", client=c).wait()
        return update_data(**data)

    async with await dask_hpc.manage(c):
        a.handlers["update_data"] = slowly
        scattering = asyncio.ensure_future(c.scatter({"x": 5}, workers=[a.address], direct=False))
        await async_poll_for(lambda: plugin_of(s).control.scatters.under_way, 10)
        leaving = asyncio.ensure_future(c.retire_workers([a.address]))
        await async_poll_for(lambda: plugin_of(s).control.holds.is_busy(a.address), 10)
        await asyncio.sleep(0.1)
        assert a.address in s.workers and not leaving.done()
        await Event("go").set()
        futures = await scattering
        assert set(await leaving) == {a.address}
        assert await c.gather(futures) == {"x": 5} and losses(s) == 0
        assert not plugin_of(s).control.scatters.under_way
    assert s.handlers["scatter"] == s.scatter
