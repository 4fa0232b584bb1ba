"""A job that shrinks takes its work and its results along, and then gives its nodes away."""

import asyncio
from unittest import mock

from distributed import Event, Status, wait
from distributed.utils_test import async_poll_for, gen_cluster
from small_cluster import blocked, cluster4, executions, live, lose, marked, plugin_of, until

import dask_hpc
from dask_hpc.cluster.scheduler import hand_over

KEEP = {f"distributed.worker.memory.{key}": False for key in ("target", "spill", "pause", "terminate")}


def produce(x, nbytes=1000):
    return bytes(nbytes)


def told(s, *kinds):
    happenings = plugin_of(s).story.happenings
    return [(h.decision, len(h.nodes), h.reason) for h in happenings if h.decision in kinds]


def addresses(s, job):
    nodes = plugin_of(s).control.nodes
    return {address for name in job.nodes for address in nodes.workers(name)}


async def grown(c, s):
    """A job on all four nodes."""
    m = await until(s, "m", "running")
    await async_poll_for(lambda: len(m.nodes) == 4, 10)
    return m


def another(nodes=2):
    return dask_hpc.job("r", nodes=nodes, walltime="1h")


def is_giving(s, m):
    running = plugin_of(s).control.indices.running.get(m.id)
    return running is not None and running.target is not None


@cluster4
async def test_tasks_are_waited_for_and_results_come_along(c, s, *workers):
    async with await dask_hpc.manage(c, policy="fpsma-pwma"):
        with dask_hpc.job("m", nodes=2, min_nodes=1, max_nodes=4, walltime="1h"):
            first = c.submit(blocked, "first")
            m = await grown(c, s)
            results = c.map(produce, range(20))
            await wait(results)
            futures = c.map(marked, ["m-go"] * 8, range(8))
            await async_poll_for(lambda: all(w.state.executing_count for w in workers), 10)
            running = {ts.key for w in workers for ts in w.state.executing}
            with another():
                r_future = c.submit(blocked, "r-go")
            await async_poll_for(lambda: is_giving(s, m), 10)
            assert live(s, "r").state == "waiting" and len(m.nodes) == 4
            control = plugin_of(s).control
            assert m.id not in control.indices.resizable
            # What had not started is on the nodes that stay, and new work goes there
            stay = set(m.workers)
            assert len(stay) == control.indices.running[m.id].target
            gone = [w for w in workers if w.address not in stay]
            await async_poll_for(lambda: all(len(s.workers[w.address].processing) == 1 for w in gone), 10)
            await Event("m-go").set()
            await Event("first").set()
            await until(s, "r", "running")
            assert addresses(s, m) == stay and not stay & live(s, "r").workers
            for future in results:
                assert {ws.address for ws in s.tasks[future.key].who_has} & stay
            await Event("r-go").set()
            await c.gather([first, r_future, *results, *futures])
        assert await executions(c) == list(range(8))
        assert len(running) == 4
        decisions = [decision for decision, *_ in told(s, "start", "grow", "hand-over", "shrink")]
        assert decisions[:5] == ["start", "grow", "hand-over", "shrink", "start"]
        assert plugin_of(s).errors == 0
    s.validate_state()


@cluster4
async def test_what_is_there_when_the_first_moves_are_over_comes_along(c, s, *workers):
    """As results do of which Dask has given up the copy on a node that stays."""
    plain, rounds = hand_over.carry_out, []

    async def carry_out(scheduler, moves, *rest, **how):
        rounds.append(moves)
        return await plain(scheduler, moves[:1] if len(rounds) == 1 else moves, *rest, **how)

    with mock.patch.object(hand_over, "carry_out", carry_out):
        async with await dask_hpc.manage(c, policy="fpsma-pwma"):
            with dask_hpc.job("m", nodes=2, min_nodes=1, max_nodes=4, walltime="1h"):
                first = c.submit(blocked, "first")
                m = await grown(c, s)
                await Event("first").set()
                results = c.map(produce, range(20), pure=False)
                await wait(results)
                with another():
                    r_future = c.submit(blocked, "r-go")
                await until(s, "r", "running")
                assert len(rounds) > 1
                for future in results:
                    assert {ws.address for ws in s.tasks[future.key].who_has} & m.workers
                await Event("r-go").set()
                await c.gather([first, r_future, *results])


@cluster4
async def test_with_nothing_there_it_is_done_at_once(c, s, *workers):
    async with await dask_hpc.manage(c, policy="fpsma-pwma"):
        with dask_hpc.job("m", nodes=2, min_nodes=1, max_nodes=4, walltime="1h"):
            m = None
            future = c.submit(blocked, "m-go", workers=[workers[0].address])
            m = await grown(c, s)
            with another():
                r_future = c.submit(blocked, "r-go")
            await until(s, "r", "running")
        assert not told(s, "hand-over") and [n for _, n, _ in told(s, "shrink")] == [len(m.nodes)]
        await Event("m-go").set()
        await Event("r-go").set()
        await c.gather([future, r_future])


@cluster4
async def test_tasks_that_may_run_only_on_what_is_given_up_are_waited_for(c, s, *workers):
    """They have not started, and nothing else is there."""
    async with await dask_hpc.manage(c, policy="fpsma-pwma"):
        with dask_hpc.job("m", nodes=2, min_nodes=1, max_nodes=4, walltime="1h"):
            first = c.submit(blocked, "first", workers=[workers[0].address])
            m = await grown(c, s)
            bound = [c.submit(blocked, "bound", first, workers=[w.address], pure=False) for w in workers]
            await async_poll_for(lambda: len(m.wishes) == 5, 10)
            with another(1):
                r_future = c.submit(blocked, "r-go")
            await async_poll_for(lambda: is_giving(s, m), 10)
            await asyncio.sleep(0.2)
            assert is_giving(s, m) and live(s, "r").state == "waiting"
            await Event("first").set()
            await Event("bound").set()
            await until(s, "r", "running")
            assert await c.gather(bound) == [w.address for w in workers]
            await Event("r-go").set()
            await c.gather([first, r_future])


@gen_cluster(client=True, nthreads=[("", 1)] * 4, config={"hpc.drain": "100ms"})
async def test_after_the_budget_tasks_finish_where_they_are(c, s, *workers):
    async with await dask_hpc.manage(c, policy="fpsma-pwma"):
        with dask_hpc.job("m", nodes=2, min_nodes=1, max_nodes=4, walltime="1h"):
            futures = c.map(marked, ["m-go"] * 8, range(8))
            m = await grown(c, s)
            await async_poll_for(lambda: all(w.state.executing_count for w in workers), 10)
            with another():
                r_future = c.submit(blocked, "r-go")
            await until(s, "r", "running")
            assert any("drain budget of 0.1 s is over" in reason for *_, reason in told(s, "hand-over"))
            gone = live(s, "r").workers
            assert any(ts.key.startswith("marked") for a in gone for ts in s.workers[a].processing)
            await Event("m-go").set()
            await Event("r-go").set()
            await c.gather([*futures, r_future])
            assert await executions(c) == list(range(8))
            del m


@gen_cluster(client=True, nthreads=[("", 1)] * 4, worker_kwargs={"memory_limit": 10_000_000}, config=KEEP)
async def test_what_does_not_fit_stays_where_it_is(c, s, *workers):
    for worker in workers:
        worker.monitor.get_process_memory = lambda: 0
        worker.monitor.update()
        await worker.heartbeat()
    async with await dask_hpc.manage(c, policy="fpsma-pwma"):
        with dask_hpc.job("m", nodes=2, min_nodes=1, max_nodes=4, walltime="1h"):
            busy = c.submit(blocked, "m-go")
            await grown(c, s)
            results = [
                c.submit(produce, i, 3_000_000, workers=[w.address], key=f"p-{i}-{w.name}")
                for w in workers
                for i in range(2)
            ]
            await Event("m-go").set()
            await wait([*results, busy])
            with another(nodes=3):
                r_future = c.submit(blocked, "r-go")
            await until(s, "r", "running")
            assert [reason for *_, reason in told(s, "not-moved") if "fit nowhere" in reason]
            assert all(ws.nbytes <= 8_000_000 for ws in s.workers.values())
            await Event("r-go").set()
            await c.gather([*results, r_future])


async def giving(c, s, workers):
    """A job that gives up nodes and waits for tasks there."""
    futures = c.map(marked, ["m-go"] * 4, range(4))
    m = await grown(c, s)
    await async_poll_for(lambda: all(w.state.executing_count for w in workers), 10)
    with another():
        r_future = c.submit(blocked, "r-go")
    await async_poll_for(lambda: is_giving(s, m), 10)
    return m, futures, r_future


@cluster4
async def test_the_job_ends_in_the_middle(c, s, *workers):
    async with await dask_hpc.manage(c, policy="fpsma-pwma"):
        with dask_hpc.job("m", nodes=2, min_nodes=1, max_nodes=4, walltime="1h"):
            m, futures, r_future = await giving(c, s, workers)
        await c.cancel(futures)
        await until(s, "m", "done")
        await until(s, "r", "running")
        assert not plugin_of(s).control.hand_overs._under_way
        await Event("m-go").set()
        await Event("r-go").set()
        await r_future
        assert plugin_of(s).errors == 0 and not is_giving(s, m)


@cluster4
async def test_nodes_are_lost_in_the_middle(c, s, *workers):
    """First one that is given up, then one that stays: with the rest the job goes on."""
    async with await dask_hpc.manage(c, policy="fpsma-pwma"):
        with dask_hpc.job("m", nodes=2, min_nodes=1, max_nodes=4, walltime="1h"):
            m, futures, r_future = await giving(c, s, workers)
            by_address = {w.address: w for w in workers}
            gives = [a for a in by_address if a not in m.workers]
            await lose(by_address[gives[0]])
            stays = list(m.workers)
            for address in stays:  # all that were to stay
                await lose(by_address[address])
            await async_poll_for(
                lambda: m.workers and m.workers <= {w.address for w in workers if w.status == Status.running},
                10,
            )
            await Event("m-go").set()
            assert await c.gather(futures) == [0, 1, 2, 3]
            await async_poll_for(lambda: not is_giving(s, m), 10)
        await until(s, "m", "done")
        assert plugin_of(s).errors == 0
        await c.cancel([r_future])
    s.validate_state()


@cluster4
async def test_all_nodes_are_lost_in_the_middle(c, s, *workers):
    async with await dask_hpc.manage(c, policy="fpsma-pwma"):
        with dask_hpc.job("m", nodes=2, min_nodes=1, max_nodes=4, walltime="1h"):
            _m, futures, r_future = await giving(c, s, workers)
            for worker in workers:
                await lose(worker)
            await until(s, "m", "waiting")
            assert not plugin_of(s).control.hand_overs._under_way
        assert plugin_of(s).errors == 0
        await c.cancel([*futures, r_future])


@cluster4
async def test_another_policy_in_the_middle(c, s, *workers):
    async with await dask_hpc.manage(c, policy="fpsma-pwma") as manager:
        with dask_hpc.job("m", nodes=2, min_nodes=1, max_nodes=4, walltime="1h"):
            m, futures, r_future = await giving(c, s, workers)
            await manager.set("fcfs")
            assert is_giving(s, m)
            await Event("m-go").set()
            await until(s, "r", "running")
            await Event("r-go").set()
            await c.gather([*futures, r_future])
        assert await executions(c) == [0, 1, 2, 3]


@cluster4
async def test_close_in_the_middle(c, s, *workers):
    async with await dask_hpc.manage(c, policy="fpsma-pwma"):
        with dask_hpc.job("m", nodes=2, min_nodes=1, max_nodes=4, walltime="1h"):
            m, futures, r_future = await giving(c, s, workers)
            hand_overs = plugin_of(s).control.hand_overs
            (task,) = hand_overs._under_way.values()
    await asyncio.wait([task])
    assert task.cancelled() and not hand_overs._under_way
    await Event("m-go").set()
    await Event("r-go").set()
    await c.gather([*futures, r_future])
    assert await executions(c) == [0, 1, 2, 3]
    del m


@cluster4
async def test_a_restart_in_the_middle(c, s, *workers):
    async with await dask_hpc.manage(c, policy="fpsma-pwma"):
        with dask_hpc.job("m", nodes=2, min_nodes=1, max_nodes=4, walltime="1h"):
            m, futures, r_future = await giving(c, s, workers)
            await Event("m-go").set()
            await Event("r-go").set()
            plugin_of(s).restart(s)  # what Dask says when tasks are gone; its own would close these workers
            await async_poll_for(lambda: not is_giving(s, m), 10)
        assert plugin_of(s).errors == 0
        del futures, r_future


@cluster4
async def test_a_shuffle_is_waited_for(c, s, *workers):
    from test_hold import Vetoes

    vetoes = Vetoes()
    s.add_plugin(vetoes)
    async with await dask_hpc.manage(c, policy="fpsma-pwma") as manager:
        await manager.set(**{"settings.drain": "10ms"})
        with dask_hpc.job("m", nodes=2, min_nodes=1, max_nodes=4, walltime="1h"):
            first = c.submit(blocked, "m-go")
            m = await grown(c, s)
            vetoes.needed = set(m.workers)
            with another():
                r_future = c.submit(blocked, "r-go")
            await async_poll_for(lambda: is_giving(s, m), 10)
            await Event("never").wait(timeout=0.2)
            assert is_giving(s, m)
            vetoes.needed = set()
            await until(s, "r", "running")
            await Event("m-go").set()
            await Event("r-go").set()
            await c.gather([first, r_future])


@cluster4
async def test_a_worker_that_joins_a_node_that_is_given_up(c, s, *workers):
    """Its tasks are not the job's any more."""
    async with await dask_hpc.manage(c, policy="fpsma-pwma"):
        with dask_hpc.job("m", nodes=2, min_nodes=1, max_nodes=4, walltime="1h"):
            m, futures, r_future = await giving(c, s, workers)
            control = plugin_of(s).control
            running = control.indices.running[m.id]
            before = set(m.workers)
            control.nodes.join = lambda *args: (running.nodes[-1], False)
            control.worker_joins(workers[0].address)
            assert m.workers == before
            del control.nodes.join
            await Event("m-go").set()
            await Event("r-go").set()
            await c.gather([*futures, r_future])
