"""Levers of power on a live cluster: what a plan says is so, without stranding, repeating or starving."""

import dask
import pytest
from distributed import Event, Nanny, Queue
from distributed.utils_test import async_poll_for, gen_cluster
from hypothesis import given, settings
from hypothesis import strategies as st
from small_cluster import blocked, cluster4, half_shuffled, plugin_of, power_of, until, where

import dask_hpc
from dask_hpc import dask as compat
from dask_hpc.model.plan import Hold, Plan, Release
from dask_hpc.power.scheduler.levers import WHY


def control_of(s):
    return plugin_of(s).control


def pull(s, **levers):
    """As a policy's plan would."""
    control = control_of(s)
    plugin_of(s).context.look_at_the_clock()
    power_of(s).levers.pull(Plan(control.indices.revision, control.indices.now, **levers))


def hold(s, nodes):
    pull(s, hold=Hold(nodes, "a test wants it"))


def held(s):
    """Addresses of the workers that are held for power."""
    return {address for address, reasons in control_of(s).holds.reasons.items() if WHY in reasons}


def told(s, decision):
    return [h.reason for h in plugin_of(s).story.happenings if h.decision == decision]


async def decided(s):
    """Everything that was to be decided has been."""
    plugin_of(s).context.wake()
    await async_poll_for(lambda: not plugin_of(s).context.is_awake, 10)


async def run_on(c, workers, event="go", count=1):
    """Tasks that run on each of these workers until the event, and may run anywhere."""
    futures = []
    for worker in workers:
        futures += c.map(
            blocked,
            [event] * count,
            range(count),
            workers=[worker.address],
            allow_other_workers=True,
            pure=False,
        )
        await async_poll_for(lambda worker=worker: worker.state.executing_count, 10)
    return futures


@cluster4
async def test_so_many_nodes_start_nothing_until_another_plan(c, s, *workers):
    async with await dask_hpc.manage(c):
        hold(s, 2)
        assert power_of(s).levers.held == len(held(s)) == 2
        assert set(await c.gather(c.map(where, range(20), pure=False))) == set(s.workers) - held(s)
        before = held(s)
        hold(s, 3)
        assert before < held(s) and len(held(s)) == 3
        hold(s, 1)
        assert len(held(s)) == 1
        hold(s, 0)
        assert not held(s) and power_of(s).levers.held == 0
        await c.gather(c.map(where, range(20), pure=False))
        assert [reason for reason in told(s, "hold") if "test" in reason] == [
            f"{words} to be held: a test wants it" for words in ("2 nodes", "3 nodes", "1 node", "0 nodes")
        ]
    s.validate_state()


@cluster4
async def test_idle_nodes_are_held_first_then_those_that_are_done_first(c, s, *workers):
    async with await dask_hpc.manage(c):
        s.task_prefixes.clear()
        futures = await run_on(c, workers[:3])
        s.workers[workers[0].address].executing.clear()
        for worker, seconds in zip(workers[:3], [30, 10, 20], strict=True):
            (task,) = s.workers[worker.address].processing
            s.workers[worker.address].executing[task] = 0.5 - seconds  # of 0.5 s expected, so much is left
        order = [workers[3], workers[1], workers[2]]
        for nodes in (1, 2, 3):
            hold(s, nodes)
            assert held(s) == {worker.address for worker in order[:nodes]}
        for nodes in (2, 1):  # and those that are done last work again first
            hold(s, nodes)
            assert held(s) == {worker.address for worker in order[:nodes]}
        await Event("go").set()
        await c.gather(futures)


@cluster4
async def test_held_nodes_stay_held_whatever_else_becomes_idle(c, s, *workers):
    async with await dask_hpc.manage(c):
        futures = await run_on(c, workers[1:])
        hold(s, 1)
        first = held(s)
        hold(s, 2)
        second = held(s)
        assert first == {workers[0].address} < second
        await Event("go").set()
        await c.gather(futures)
        await decided(s)
        assert held(s) == second


@cluster4
async def test_what_is_assigned_moves_at_once_and_what_runs_ends_there(c, s, *workers):
    """Dispatching stops: all of a held node's tasks but those that run are elsewhere."""
    async with await dask_hpc.manage(c):
        futures = c.map(counted, ["go"] * 24, ["marks"] * 24, range(24), pure=False)
        await async_poll_for(lambda: all(worker.state.executing_count for worker in workers), 10)
        running = {task.key for worker in workers for task in worker.state.executing}
        hold(s, 2)
        await async_poll_for(lambda: all(len(s.workers[a].processing) <= 1 for a in held(s)), 10)
        left = {task.key for address in held(s) for task in s.workers[address].processing}
        assert left <= running
        await Event("go").set()
        places = await c.gather(futures)
        assert sum(place in held(s) for place in places) == 2
        assert len(await Queue("marks").get(batch=True)) == 24


def counted(event, marks, x):
    Queue(marks).put(x)
    return blocked(event, x)


@cluster4
async def test_never_the_last_node_that_runs(c, s, *workers):
    async with await dask_hpc.manage(c):
        hold(s, 4)
        assert power_of(s).levers.held == len(held(s)) == 3
        assert ["3 of 4 nodes: " in reason and "no other worker runs" in reason
                for reason in told(s, "hold-refused")] == [True]  # fmt: skip
        await decided(s)
        assert len(told(s, "hold-refused")) == 1
        assert await c.submit(where) not in held(s)


@cluster4
async def test_never_the_last_that_may_run_a_restricted_task(c, s, a, b, *others):
    async with await dask_hpc.manage(c):
        futures = c.map(blocked, ["go"] * 3, range(3), workers=[a.address, b.address], pure=False)
        await async_poll_for(lambda: a.state.executing_count and b.state.executing_count, 10)
        hold(s, 3)
        assert len(held(s)) == 3 and len(held(s) & {a.address, b.address}) == 1
        await Event("go").set()
        await c.gather(futures)


@cluster4
async def test_a_restricted_task_that_comes_later_gets_its_worker_back(c, s, a, *others):
    async with await dask_hpc.manage(c):
        hold(s, 1)
        (address,) = held(s)
        late = c.submit(where, workers=[address], pure=False)
        assert await late == address
        assert len(told(s, "hold-ends")) == 1
        await decided(s)
        assert power_of(s).levers.held == 1
        waiting = c.submit(blocked, "go", workers=list(held(s)), pure=False)
        await async_poll_for(
            lambda: waiting.key in {t.key for w in (a, *others) for t in w.state.executing}, 10
        )
        await decided(s)
        ran = s.tasks[waiting.key].processing_on.address
        assert power_of(s).levers.held == 1 and ran not in held(s)  # another one in its place
        await Event("go").set()
        await waiting


@cluster4
async def test_no_task_waits_though_all_that_may_run_it_are_held_one_after_another(c, s, *workers):
    """Two tasks for the same two held nodes, and one for a third: two nodes work again, no more."""
    async with await dask_hpc.manage(c):
        hold(s, 3)
        first, second, third = sorted(held(s))
        futures = c.map(blocked, ["go"] * 2, range(2), workers=[first, second], pure=False)
        futures.append(c.submit(blocked, "go", workers=[third], pure=False))
        await async_poll_for(
            lambda: all(f.key in s.tasks and s.tasks[f.key].processing_on for f in futures), 10
        )
        await decided(s)
        assert len(held(s)) == 2 and third not in held(s)  # the fourth, and one of two
        await Event("go").set()
        await c.gather(futures)


@cluster4
async def test_never_in_the_middle_of_a_shuffle(c, s, *workers):
    async with await dask_hpc.manage(c):
        y = await half_shuffled(c, s)
        needed = {worker.address for worker in workers if compat.veto(s, worker.address)}
        hold(s, 3)
        assert len(needed) >= 3 and held(s) == set(s.workers) - needed
        assert "shuffle needs it where it is" in told(s, "hold-refused")[0]
        await Event("go").set()
        assert (await c.compute(y.sum())) == 36
        del y
        await async_poll_for(lambda: not s.plugins["shuffle"].active_shuffles, 10)
        await decided(s)
        assert len(held(s)) == 3


@cluster4
async def test_nodes_that_the_user_holds_count(c, s, a, *others):
    async with await dask_hpc.manage(c) as manager:
        await manager.hold(a.address)
        hold(s, 1)
        assert power_of(s).levers.held == 1 and not held(s)  # one starts nothing, as it should be
        hold(s, 2)
        assert power_of(s).levers.held == 2 and len(held(s)) == 1 and a.address not in held(s)
        (ours,) = held(s)
        assert (await manager.hold(ours))["held"] == [ours]  # now it is the user's
        await decided(s)
        assert power_of(s).levers.held == 2 and not held(s)
        await manager.release([a.address, ours])
        await decided(s)
        assert power_of(s).levers.held == len(held(s)) == 2


@cluster4
async def test_how_many_can_be_held(c, s, a, b, *others):
    async with await dask_hpc.manage(c):
        levers = power_of(s).levers
        assert levers.holdable == 4
        future = c.submit(blocked, "go", workers=[a.address], pure=False)
        await async_poll_for(lambda: a.state.executing_count, 10)
        hold(s, 4)
        assert levers.holdable == levers.held == 3 and a.address not in held(s)
        await Event("go").set()
        await future
        await decided(s)
        assert levers.holdable == 3  # one must run in any case
        hold(s, 1)
        assert levers.holdable == 4 and levers.held == 1


@cluster4
async def test_a_job_may_have_held_nodes_but_not_those_of_the_user(c, s, a, *others):
    async with await dask_hpc.manage(c) as manager:
        await manager.hold(a.address)
        hold(s, 2)
        with dask_hpc.job("three", nodes=3):
            future = c.submit(blocked, "go", pure=False)
        job = await until(s, "three", "running")
        assert job.workers == {worker.address for worker in others} and not held(s)
        assert all(s.workers[address].status.name == "running" for address in job.workers)
        await async_poll_for(lambda: any(w.state.executing_count for w in others), 10)
        await Event("go").set()
        assert await future != a.address
        await until(s, "three", "done")
        await decided(s)
        assert power_of(s).levers.held == 2 and len(held(s)) == 1  # and the user's


@cluster4
async def test_a_node_that_a_job_leaves_is_held_for_the_others(c, s, *workers):
    async with await dask_hpc.manage(c):
        with dask_hpc.job("two", nodes=2):
            future = c.submit(blocked, "go", pure=False)
        await until(s, "two", "running")
        hold(s, 3)
        assert power_of(s).levers.held == 2
        await Event("go").set()
        await future
        await until(s, "two", "done")
        await decided(s)
        assert power_of(s).levers.held == 3


@cluster4
async def test_all_is_undone_when_control_ends(c, s, *workers):
    manager = await dask_hpc.manage(c)
    hold(s, 2)
    await manager.close()
    assert all(worker.status.name == "running" for worker in s.workers.values())
    assert set(await c.gather(await run_on_all(c, workers))) == set(s.workers)
    async with await dask_hpc.manage(c):
        hold(s, 1)
        assert len(held(s)) == 1


async def run_on_all(c, workers):
    futures = await run_on(c, workers, "all")
    await Event("all").set()
    return futures


@cluster4
async def test_another_policy_lets_go_and_a_pause_does_not(c, s, *workers):
    async with await dask_hpc.manage(c) as manager:
        hold(s, 2)
        await manager.pause()
        await decided(s)
        assert len(held(s)) == 2
        await manager.resume()
        await manager.set(policy="fcfs")  # says nothing of power
        assert held(s) == set()


@cluster4
async def test_a_dry_run_pulls_no_lever(c, s, *workers):
    async with await dask_hpc.manage(c, dry_run=True):
        hold(s, 2)
        pull(s, release=Release(1, "a test wants it"))
        assert held(s) == set() and power_of(s).levers.released == 0
        assert all(worker.status.name == "running" for worker in s.workers.values())


@gen_cluster(
    client=True, nthreads=[("127.0.0.1", 1)] * 2 + [("127.0.0.2", 1)] * 2, config={"hpc.node": "host"}
)
async def test_a_node_is_held_with_all_its_workers(c, s, *workers):
    async with await dask_hpc.manage(c):
        nodes = control_of(s).nodes
        hold(s, 1)
        names = {nodes.node_of(address) for address in held(s)}
        assert len(names) == 1 and held(s) == set(nodes.workers(*names))
        hold(s, 2)
        assert len(held(s)) == 2  # a whole node stays


@gen_cluster(
    client=True, nthreads=[("127.0.0.1", 1)] * 2 + [("127.0.0.2", 1)] * 2, config={"hpc.node": "host"}
)
async def test_one_worker_that_cannot_be_held_keeps_its_node(c, s, *workers):
    """The other node is held instead."""
    async with await dask_hpc.manage(c):
        busy = workers[0]
        future = c.submit(blocked, "go", workers=[busy.address], pure=False)
        await async_poll_for(lambda: busy.state.executing_count, 10)
        hold(s, 1)
        assert held(s) == {worker.address for worker in workers[2:]}
        hold(s, 2)
        assert power_of(s).levers.held == 1 and len(held(s)) == 2
        await Event("go").set()
        await future


@pytest.mark.slow
@gen_cluster(client=True, nthreads=[("", 1)] * 3, Worker=Nanny, timeout=60)
async def test_another_node_in_the_place_of_one_that_dies(c, s, *nannies):
    with dask.config.set({"distributed.scheduler.allowed-failures": 10}):
        async with await dask_hpc.manage(c):
            hold(s, 1)
            (address,) = held(s)
            await next(n for n in nannies if n.worker_address == address).kill()
            await async_poll_for(lambda: address not in s.workers, 30)
            await decided(s)
            assert power_of(s).levers.held == 1 and address not in held(s)


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["hold", "user", "free", "job", "work", "end"]), st.integers(0, 4)),
        max_size=14,
    )
)
def test_whatever_happens_exactly_so_many_are_held(steps):
    """As many free nodes as possible up to what the plan says, none of a job, none of the user."""

    @cluster4
    async def run(c, s, *workers):
        async with await dask_hpc.manage(c) as manager:
            control, wanted, futures, users = control_of(s), 0, [], set()
            for number, (what, k) in enumerate(steps):
                if what == "hold":
                    wanted = k
                    hold(s, k)
                elif what == "user":
                    users.update((await manager.hold(workers[k % 4].address))["held"])
                elif what == "free":
                    users.difference_update(await manager.release(list(users)) if users else [])
                elif what == "job":
                    with dask_hpc.job(f"j{number}", nodes=1 + k % 2):
                        futures.append(c.submit(blocked, "go", number, pure=False))
                elif what == "work":
                    futures += c.map(blocked, ["go"] * k, range(k), pure=False)
                elif what == "end":
                    await Event("go").set()
                    await c.gather(futures)
                    await Event("go").clear()
                await decided(s)
                assert power_of(s).levers.held <= wanted
                idle = set(control.indices.idle)
                ours = {control.nodes.node_of(address) for address in held(s)}
                assert ours <= idle
                runs = {w.address for w in s.workers.values() if w.status.name == "running"}
                assert runs
                if power_of(s).levers.held < min(wanted, len(idle)):  # because nobody else can be
                    rest = [control.nodes.workers(name) for name in idle - ours]
                    assert all(control.holds.refusal(there) for there in rest)
            hold(s, 0)
            await manager.release(list(users), why=None) if users else None
            await Event("go").set()
            await c.gather(futures)

    run()
