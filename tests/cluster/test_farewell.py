"""What a leaving worker holds goes to others, if there are any and there is time."""

import asyncio
from time import monotonic

import numpy as np
import pytest
from distributed import Event, Nanny, Status, wait
from distributed.utils_test import async_poll_for, gen_cluster, inc
from small_cluster import blocked, cluster2, cluster4, half_shuffled, plugin_of, where

import dask_hpc
from dask_hpc import InputError
from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler import farewell
from dask_hpc.cluster.worker.farewell import NAME


def told(s, *kinds):
    return [h.reason for h in plugin_of(s).story.happenings if h.decision in kinds]


async def everybody_has_it(workers):
    await async_poll_for(lambda: all(NAME in w.plugins for w in workers), 10)


@cluster4
async def test_a_worker_that_closes_hands_over_its_results(c, s, *workers):
    a = workers[0]
    async with await dask_hpc.manage(c):
        await everybody_has_it(workers)
        futures = c.map(inc, range(20), workers=[a.address], allow_other_workers=True, pure=False)
        await wait(futures)
        held = {f.key for f in futures} & set(a.data)
        assert held
        await a.close(reason="made to")
        assert all(len(s.tasks[f.key].who_has) == 1 for f in futures)
        await async_poll_for(lambda: a.address not in s.workers, 10)
        assert [f.status for f in futures] == ["finished"] * 20
        assert await c.gather(futures) == list(range(1, 21))
        assert (
            f"worker {a.address} leaves (made to): {len(held)} of {len(held)} results"
            in told(s, "farewell")[0]
        )
        removed = [e for _, e in s.get_events("all") if e["action"] == "remove-worker"]
        assert [(e["expected"], e["lost-computed-tasks"]) for e in removed] == [(True, set())]
        assert plugin_of(s).errors == 0


@gen_cluster(client=True, nthreads=[("", 1)] * 2, config={"hpc.farewell": "1 s"})
async def test_what_it_still_runs_when_its_time_is_over_is_not_under_suspicion(c, s, a, b):
    async with await dask_hpc.manage(c):
        await everybody_has_it([a, b])
        f = c.submit(blocked, "go", workers=[a.address], allow_other_workers=True, key="runs")
        await async_poll_for(lambda: "runs" in a.state.tasks and a.state.executing_count == 1, 10)
        closing = asyncio.ensure_future(a.close(executor_wait=False))
        await async_poll_for(lambda: a.address not in s.workers, 10)
        assert s.tasks["runs"].suspicious == 0
        assert told(s, "restart") == [
            f"worker {a.address} leaves (it closes): 1 of its tasks start again elsewhere"
        ]
        await Event("go").set()
        await closing
        assert await f == b.address


@cluster4
async def test_a_shuffle_that_began_anew_does_not_do_so_at_the_next_farewell(c, s, *workers):
    async with await dask_hpc.manage(c):
        await everybody_has_it(workers)
        shuffles, anew = s.plugins["shuffle"], []
        restart = shuffles._restart_shuffle
        shuffles._restart_shuffle = lambda *args, **how: anew.append(args) or restart(*args, **how)
        array = await half_shuffled(c, s)
        first = next(w for w in workers if compat.veto(s, w.address))
        other = next(w for w in workers if w is not first)
        await first.close(executor_wait=False, timeout=0.5)
        await async_poll_for(lambda: first.address not in s.workers, 10)
        assert len(anew) == 1
        await Event("go").set()
        assert await c.compute(array.sum()) == 36
        await other.close(executor_wait=False)
        await async_poll_for(lambda: other.address not in s.workers, 10)
        assert len(anew) == 1
        assert await c.compute(array.sum()) == 36


@cluster2
async def test_what_runs_there_ends_and_what_has_not_begun_goes_elsewhere(c, s, a, b):
    async with await dask_hpc.manage(c):
        await everybody_has_it([a, b])
        runs = c.submit(blocked, "go", workers=[a.address], allow_other_workers=True, key="runs")
        await async_poll_for(lambda: "runs" in a.state.tasks and a.state.executing_count == 1, 10)
        waits = [
            c.submit(where, i, workers=[a.address], allow_other_workers=True, pure=False) for i in range(5)
        ]
        await async_poll_for(lambda: len(a.state.tasks) == 6, 10)
        closing = asyncio.ensure_future(a.close(reason="made to"))
        assert await c.gather(waits) == [b.address] * 5
        assert s.workers[a.address].status == Status.paused and a.status == Status.running
        await Event("go").set()
        assert await runs == a.address, "it ran once, there"
        await closing
        assert a.address not in s.workers and set(b.data) >= {"runs"}
        assert told(s, "restart", "error") == []


@cluster2
async def test_a_cluster_that_closes_waits_for_nothing_that_runs(c, s, *workers):
    async with await dask_hpc.manage(c):
        await everybody_has_it(workers)
        futures = c.map(blocked, ["go"] * 2, pure=False)
        await async_poll_for(lambda: sum(w.state.executing_count for w in workers) == 2, 10)
        since = monotonic()
        await asyncio.gather(*(w.close(executor_wait=False) for w in workers))
        assert monotonic() - since < 3
        assert told(s, "restart", "move", "error") == []
        await Event("go").set()
        del futures


@cluster2
async def test_a_second_who_has_less_time_does_not_wait_longer(c, s, a, b):
    async with await dask_hpc.manage(c):
        await everybody_has_it([a, b])
        f = c.submit(blocked, "go", workers=[a.address], allow_other_workers=True)
        await async_poll_for(lambda: a.state.executing_count == 1, 10)
        first = asyncio.ensure_future(a.close(executor_wait=False))
        await async_poll_for(lambda: s.workers[a.address].status == Status.paused, 10)
        since = monotonic()
        await a.close(executor_wait=False, timeout=0.5)
        assert monotonic() - since < 3 and a.status == Status.closed
        await first
        await Event("go").set()
        assert await f == b.address


@pytest.mark.slow
@gen_cluster(client=True, nthreads=[("", 1)] * 2, Worker=Nanny, timeout=60)
async def test_restarted_workers_lose_nothing_and_run_nothing_twice(c, s, a, b):
    async with await dask_hpc.manage(c, policy="elastic"):
        await async_poll_for(lambda: all("kill" in vars(n) for n in (a, b)), 10)
        held = c.map(inc, range(20), pure=False)
        await wait(held)
        runs = c.submit(blocked, "go", workers=[a.worker_address], allow_other_workers=True, key="runs")
        await async_poll_for(lambda: "runs" in s.tasks and s.tasks["runs"].state == "processing", 10)
        there = a.worker_address
        restarting = asyncio.ensure_future(c.restart_workers([there]))
        await async_poll_for(lambda: s.workers[there].status == Status.paused, 10)
        await Event("go").set()
        assert await restarting == {there: "OK"}
        assert await runs == there
        assert await c.gather(held) == list(range(1, 21))
        lost = [e["lost-computed-tasks"] for _, e in s.get_events("all") if e["action"] == "remove-worker"]
        assert lost == [set()] and told(s, "restart", "error") == []
    assert not any("kill" in vars(n) for n in (a, b))


@cluster4
async def test_a_retired_worker_has_nothing_to_say(c, s, *workers):
    async with await dask_hpc.manage(c):
        await everybody_has_it(workers)
        await wait(c.map(inc, range(20), pure=False))
        await c.retire_workers([workers[0].address])
        await workers[0].finished()
        assert told(s, "farewell") == []


@gen_cluster(client=True, nthreads=[("", 1)] * 3)
async def test_a_cluster_that_closes_moves_nothing(c, s, *workers):
    async with await dask_hpc.manage(c):
        await everybody_has_it(workers)
        futures = c.map(inc, range(30), pure=False)
        await wait(futures)
        await asyncio.gather(*(w.close() for w in workers))
        assert told(s, "farewell", "move", "not-moved", "error") == []


@cluster2
async def test_with_the_scheduler_gone_there_is_nobody_to_say_it_to(c, s, *workers):
    asked = []

    def recording(connect):
        async def record(addr, **how):
            asked.append(addr)
            return await connect(addr, **how)

        return record

    await dask_hpc.manage(c)
    await everybody_has_it(workers)
    await c.gather(c.map(inc, range(10)))
    for worker in workers:
        worker.periodic_callbacks["heartbeat"].stop()
        worker.rpc.connect = recording(worker.rpc.connect)
    await c.close()
    await s.close()
    await asyncio.wait_for(asyncio.gather(*(worker.finished() for worker in workers)), 5)
    assert asked == []


@cluster2
async def test_nothing_moves_when_control_is_off_or_the_scheduler_closes(c, s, a, b):
    await dask_hpc.manage(c)
    await everybody_has_it([a, b])
    futures = c.map(inc, range(10), workers=[a.address], pure=False)
    await wait(futures)
    plugin_of(s).context.is_on = False
    await a.close()
    assert not b.data and told(s, "farewell", "move", "not-moved") == []


@gen_cluster(
    client=True,
    nthreads=[("", 1)] * 2,
    worker_kwargs={"memory_limit": "1 GiB"},
    config={f"distributed.worker.memory.{what}": False for what in ("target", "spill", "pause")},
)
async def test_with_little_room_the_dearest_go(c, s, a, b):
    """A stand-in for a worker with little memory: the real limit would be that of this whole process."""
    async with await dask_hpc.manage(c):
        await everybody_has_it([a, b])
        cheap = c.map(np.zeros, range(100_000, 100_005), workers=[a.address], key="cheap", pure=False)
        dear = c.map(np.ones, range(100_000, 100_005), workers=[a.address], key="dear", pure=False)
        await wait([*cheap, *dear])
        s.task_prefixes["cheap"].duration_average = 1
        s.task_prefixes["dear"].duration_average = 100
        limit = s.workers[b.address].memory.process + 5_000_000
        s.workers[b.address].memory_limit = int(limit / 0.8)
        await a.close(reason="made to")
        at_b = set(b.data)
        assert {f.key for f in dear} <= at_b
        assert len(at_b) < 10
        assert "blocks" in told(s, "farewell")[0]  # what fits nowhere
        assert f"{len(at_b)} of 10 results handed over" in told(s, "farewell")[1]


@pytest.mark.parametrize("bandwidth, is_asked", [(1e8, False), (10, True)])
def test_what_results_cost_is_looked_up_where_time_may_run_short(bandwidth, is_asked):
    @cluster2
    async def run(c, s, a, b):
        async with await dask_hpc.manage(c):
            await everybody_has_it([a, b])
            kept = c.map(inc, range(5), workers=[a.address])
            await wait(kept)
            s.bandwidth = bandwidth
            farewells, asked = plugin_of(s).farewells, []
            theirs = farewells._recipes
            farewells._recipes = lambda keys: asked.append(set(keys)) or theirs(keys)
            await a.close(reason="made to")
            assert bool(asked) is is_asked and all(len(keys) == 5 for keys in asked)

    run()


@cluster2
async def test_a_lost_ancestor_makes_a_result_dear(c, s, a, b):
    async with await dask_hpc.manage(c):
        source = c.submit(inc, 1, key="source", workers=[a.address])
        small = c.submit(inc, source, key="small", workers=[a.address])
        lone = c.submit(inc, 7, key="lone", workers=[a.address])
        await wait([small, lone])
        source.release()
        await async_poll_for(lambda: "source" not in a.data, 10)
        s.task_prefixes["source"].duration_average = 100
        s.task_prefixes["lone"].duration_average = 50
        farewells = plugin_of(s).farewells
        recipes = await farewells._recipes(["lone", "small"])
        assert set(recipes) == {"lone", "small", "source"}
        assert (recipes["source"].seconds, recipes["small"].needs) == (100, ("source",))
        with pytest.MonkeyPatch.context() as patches:  # the results have recipes however many they are
            patches.setattr(farewell, "_ANCESTORS", 0)
            assert set(await farewells._recipes(["lone", "small"])) == {"lone", "small"}


@cluster2
async def test_the_worker_that_ends_is_known(c, s, a, b):
    async with await dask_hpc.manage(c):
        assert await c.scheduler.hpc_worker_ends(address=a.address, left=5) == "OK"
        ends = plugin_of(s).walltime.ends_at
        assert 0 < ends[a.address] - asyncio.get_running_loop().time() <= 5
        await a.close()
        await async_poll_for(lambda: a.address not in ends, 10)


@cluster2
async def test_calls_check_their_arguments(c, s, a, b):
    async with await dask_hpc.manage(c):
        for bad in (
            {"address": 3}, {"address": a.address, "reason": 3}, {"address": a.address, "seconds": "x"},
            {"address": a.address, "seconds": -1}, {"address": a.address, "seconds": float("nan")}, {"x": 1},
            {"address": a.address, "stored": 3}, {"address": a.address, "problem": 3},
        ):  # fmt: skip
            with pytest.raises(InputError):
                await c.scheduler.hpc_farewell(**bad)
        assert await c.scheduler.hpc_farewell(address="tcp://unknown", seconds=1) == {"store": ()}
        assert set(s.workers) == {a.address, b.address}


@cluster2
async def test_nothing_is_left_on_the_workers(c, s, a, b):
    for _ in range(2):
        before = set(a.plugins), set(s.worker_plugins)
        m = await dask_hpc.manage(c)
        await everybody_has_it([a, b])
        await m.close()
        assert (set(a.plugins), set(s.worker_plugins)) == before


@gen_cluster(client=True, nthreads=[("", 1)] * 3)
async def test_who_said_that_it_closes_gets_nothing_even_if_it_is_told_to_go_on(c, s, a, b, third):
    """Dask tells workers to run again when their retirement failed, also those that close meanwhile."""
    async with await dask_hpc.manage(c):
        await everybody_has_it([a, b, third])
        futures = c.map(inc, range(10), workers=[a.address], allow_other_workers=True, pure=False)
        await wait(futures)
        s.log_event(b.address, {"action": "closing-worker", "reason": "nanny-close"})
        await a.close(reason="made to")
        assert not b.data and len(third.data) == 10
        assert "10 of 10 results handed over" in told(s, "farewell")[0]
        s.log_event("nobody", {"action": "closing-worker", "reason": "x"})
        assert set(plugin_of(s).farewells._reasons) == {b.address}


@gen_cluster(client=True, nthreads=[("", 1)] * 3, config={"distributed.worker.memory.pause": False})
async def test_when_the_others_close_during_the_moves_it_is_planned_anew(c, s, a, b, third):
    async with await dask_hpc.manage(c):
        await everybody_has_it([a, b, third])
        futures = c.map(inc, range(10), workers=[a.address], allow_other_workers=True, pure=False)
        await wait(futures)
        b.status = Status.paused  # takes nothing, but says so only later
        await async_poll_for(lambda: s.workers[b.address] not in s.running, 10)
        compat.set_worker_status(s, b.address, "running")
        closing = asyncio.ensure_future(a.close(reason="made to"))
        going = plugin_of(s).farewells._going
        await async_poll_for(lambda: a.address in going and going[a.address].moving is not None, 10)
        s.log_event(b.address, {"action": "closing-worker", "reason": "nanny-close"})
        await closing
        assert len(third.data) == 10 and not b.data


@gen_cluster(client=True, nthreads=[("", 1)] * 2, config={"hpc.farewell": "50 ms"})
async def test_who_holds_more_than_it_could_hand_over_is_named_in_time(c, s, a, b):
    async with await dask_hpc.manage(c):
        farewells = plugin_of(s).farewells
        assert farewells._looking.is_set
        futures = [c.submit(bytes, 6_000_000, workers=[a.address], pure=False)]
        await wait(futures)
        s.bandwidth = 100e6
        farewells._look_what_they_hold()
        farewells._look_what_they_hold()
        assert told(s, "warning") == [
            f"worker {a.address}, if it is told to go, could hand over 67 % of what it holds in the time "
            "it would have: hpc.farewell gives it more, and of what has a copy elsewhere nothing is lost"
        ]
        futures.clear()
        await async_poll_for(lambda: not s.workers[a.address].nbytes, 10)
        farewells._look_what_they_hold()
        assert not farewells._heavy
    assert not farewells._looking.is_set
