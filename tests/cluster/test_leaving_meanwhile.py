"""What begins, comes, joins and closes while a worker is on its way out, by either road."""

import asyncio
from functools import partial
from unittest import mock

import pytest
from distributed import Event, Queue, Status, Worker, wait, worker_client
from distributed.utils_test import async_poll_for, gen_cluster
from small_cluster import (
    Vetoes,
    blocked,
    cluster2,
    cluster4,
    executions,
    losses,
    marked,
    plugin_of,
    produce,
    reasons,
)  # fmt: skip

import dask_hpc
from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler import leaving as leaving_module
from dask_hpc.cluster.worker.farewell import NAME

cluster3 = gen_cluster(client=True, nthreads=[("", 1)] * 3)


def waiting(x, **where):
    Queue("marks").put("parent")
    with worker_client() as c:
        return c.submit(marked, "go", x, key="child", **where).result()


@pytest.mark.parametrize("is_under_way", [True, False])
@pytest.mark.parametrize("way", ["retired", "closed"])
def test_the_budget_is_not_used_up_by_tasks_that_wait_for_those_they_have_submitted(way, is_under_way):
    """As long as those are under way elsewhere."""

    # who is given up waits in its thread until it hears that its client is gone
    threads = {"threads": False}

    @gen_cluster(client=True, nthreads=[("", 1)] * 3, config={"hpc.drain": "300 ms"}, clean_kwargs=threads)
    async def run(c, s, a, b, d):
        async with await dask_hpc.manage(c):
            await async_poll_for(lambda: all(NAME in w.plugins for w in (a, b, d)), 10)
            where = {"workers": [b.address]} if is_under_way else {"resources": {"GPU": 1}}
            bound = {"workers": [a.address], "allow_other_workers": True}
            parent = c.submit(partial(waiting, **where), 1, key="parent", **bound)
            state = "processing" if is_under_way else "no-worker"
            await async_poll_for(lambda: "child" in s.tasks and s.tasks["child"].state == state, 10)
            if way == "retired":
                leaving = asyncio.ensure_future(c.retire_workers(workers=[a.address]))
            else:
                leaving = asyncio.ensure_future(a.close(executor_wait=False, reason="signal-15"))
            if is_under_way:
                await asyncio.sleep(0.8)
                assert a.address in s.workers and not reasons(s, "restart")
                await Event("go").set()
                assert await parent == 1 and not reasons(s, "restart")
                marks = await Queue("marks", client=c).get(batch=True)
                assert sorted(map(str, marks)) == ["1", "parent"]
            else:
                await async_poll_for(lambda: a.address not in s.workers, 10)
                assert len(reasons(s, "restart")) == 1
            await leaving

    run()


async def is_leaving(c, s, worker, way, then):
    """Everything is moved, and then ``then`` happens, before the worker has left. Gives what waits for it."""
    begun, done = asyncio.Event(), asyncio.Event()

    async def drain(addresses):
        if not begun.is_set():
            begun.set()
            await then()
            done.set()

    plugin_of(s).context.services[-1].drain = drain
    if way == "retired":
        leaving = asyncio.ensure_future(c.retire_workers(workers=[worker.address]))
    else:
        leaving = asyncio.ensure_future(worker.close(executor_wait=False, reason="signal-15"))
    await done.wait()
    return leaving


def with_vetoes(way):
    """A test on two workers who say farewell, with vetoes, of which ``a`` leaves this way."""

    def decorate(test):
        @cluster2
        async def run(c, s, a, b):
            s.add_plugin(vetoes := Vetoes())
            async with await dask_hpc.manage(c):
                await async_poll_for(lambda: all(NAME in w.plugins for w in (a, b)), 10)
                there = await c.scatter(1, workers=[a.address])
                await test(c, s, a, vetoes, there)
                await async_poll_for(lambda: a.address not in s.workers, 10)
                assert await there == 1 and losses(s) == 0
                assert not reasons(s, "restart") and plugin_of(s).errors == 0

        return run

    return decorate


@pytest.mark.parametrize("way", ["retired", "closed"])
def test_a_task_that_begins_while_data_moves_is_waited_for(way):
    """A shuffle needs the worker after all, and is over before the last copy has gone."""

    @with_vetoes(way)
    async def run(c, s, a, vetoes, there):
        began = []

        async def begin():
            vetoes.needed = {a.address}
            await async_poll_for(lambda: s.workers[a.address].status == Status.running, 10)
            began.append(c.submit(marked, "go", 1, workers=[a.address], allow_other_workers=True))
            await async_poll_for(lambda: a.state.executing_count, 10)
            vetoes.needed = set()
            await async_poll_for(lambda: s.workers[a.address].status == Status.paused, 10)

        leaving = await is_leaving(c, s, a, way, begin)
        await asyncio.sleep(0.3)
        assert a.address in s.workers, "nobody waits for the task"
        await Event("go").set()
        await leaving
        assert await c.gather(began) == [1] and await executions(c) == [1]

    run()


@pytest.mark.parametrize("is_lent", [False, True])
@pytest.mark.parametrize("way", ["retired", "closed"])
def test_a_worker_that_is_needed_after_all_stays_until_it_is_held_again(way, is_lent):
    """Before it works on for that, and as long as it does, it may be given tasks of the shuffle."""

    @with_vetoes(way)
    async def run(c, s, a, vetoes, there):
        holds = plugin_of(s).control.holds

        async def need():
            vetoes.needed = {a.address}
            if is_lent:
                await async_poll_for(lambda: holds.is_lent(a.address), 10)
                vetoes.needed = set()
            holds._timer.stop()

        leaving = await is_leaving(c, s, a, way, need)
        await asyncio.sleep(0.3)
        assert a.address in s.workers and holds.is_lent(a.address) == is_lent
        vetoes.needed = set()
        holds._look()
        await leaving

    run()


@cluster3
async def test_two_that_leave_do_not_count_on_each_other(c, s, a, b, d):
    """Each has a copy; the one is let go while the other has nothing left to do."""
    async with await dask_hpc.manage(c):
        await async_poll_for(lambda: NAME in a.plugins, 10)
        there = await c.scatter(1, workers=[a.address])
        await c.replicate(there, workers=[a.address, d.address])

        async def retire():
            assert list(await c.retire_workers(workers=[d.address])) == [d.address]

        await (await is_leaving(c, s, a, "closed", retire))
        await async_poll_for(lambda: a.address not in s.workers, 10)
        assert losses(s) == 0 and set(s.workers) == {b.address} and await there == 1


@cluster2
async def test_the_one_that_is_to_take_everything_is_not_held_again(c, s, a, b):
    """As one would be whose own time ends soon: the other one seems to run as long as it has not closed."""
    async with await dask_hpc.manage(c):
        await async_poll_for(lambda: NAME in a.plugins, 10)
        there = await c.scatter(1, workers=[a.address])
        holds, again = plugin_of(s).control.holds, []
        assert not holds.hold([b.address], "its time ends")
        release = holds.release

        def released(address, why=None):
            done = release(address, why)
            if address == b.address:
                again.append(holds.hold([b.address], "its time ends"))
            return done

        holds.release = released
        await a.close(reason="signal-15")
        await async_poll_for(lambda: a.address not in s.workers, 10)
        assert again == [{b.address: "no other worker runs"}]
        assert losses(s) == 0 and await there == 1


@cluster3
async def test_who_has_died_on_its_way_out_is_not_kept_for_one_that_closes(c, s, a, b, d):
    async with await dask_hpc.manage(c):
        await async_poll_for(lambda: all(NAME in w.plugins for w in (a, b, d)), 10)
        there = await c.scatter(1, workers=[a.address])
        runs = c.submit(marked, "go", 2, workers=[b.address], allow_other_workers=True)
        await async_poll_for(lambda: b.state.executing_count, 10)
        leaving = asyncio.ensure_future(c.retire_workers(workers=[b.address, d.address]))
        await async_poll_for(lambda: s.workers[d.address].status == Status.paused, 10)
        await s.remove_worker(d.address, stimulus_id="dies", close=False)
        await a.close(reason="signal-15")
        await async_poll_for(lambda: a.address not in s.workers, 10)
        assert b.address in s.workers and losses(s) == 0 and await there == 1
        await Event("go").set()
        assert await runs == 2 and await leaving == {}
        assert plugin_of(s).errors == 0


@pytest.mark.parametrize(
    "reason, coming, is_lost",
    [
        ("worker-lifetime-reached", {}, False),
        ("signal-15", {}, True),
        ("signal-15", {"state": "queued"}, False),
        ("signal-15", {"state": "queued", "starts_in": 90.0}, True),
        ("signal-15", {"state": "held"}, True),
    ],
)
def test_the_last_one_waits_at_the_end_of_its_lifetime_for_one_that_joins(reason, coming, is_lost):
    """By order it goes at once, and what runs there starts again, unless somebody may come at any moment."""

    @gen_cluster(client=True, nthreads=[("", 2)])
    async def run(c, s, a):
        async with await dask_hpc.manage(c):
            await async_poll_for(lambda: NAME in a.plugins, 10)
            drained, service = [], plugin_of(s).context.services[-1]
            service.drain = mock.AsyncMock(side_effect=drained.append)
            if coming:
                unit = {"name": "u", "members": ["u"], "submission": "accepted", **coming}
                await c.scheduler.hpc_size(facts={"asker": "x", "interval": 60.0, "units": [unit]})
            there = c.submit(produce, 1)
            await there
            runs = c.submit(marked, "go", 2)
            await async_poll_for(lambda: a.state.executing_count, 10)
            leaving = asyncio.ensure_future(a.close(executor_wait=False, reason=reason))
            await async_poll_for(
                lambda: a.address not in s.workers if is_lost else s.get_events(a.address), 10
            )
            await asyncio.sleep(0.3)
            assert (a.address not in s.workers) == is_lost
            async with Worker(s.address, nthreads=1) as b:
                if not is_lost:
                    await async_poll_for(lambda: there.key in b.data, 10)
                await Event("go").set()
                await leaving
                assert await runs == 2 and await there == bytes(1000)
                assert losses(s) == is_lost and bool(drained) != is_lost, "nobody could take what it has"
                times = await executions(c)
                assert times == ([1, 1, 2, 2] if is_lost else [1, 2])

    run()


@gen_cluster(client=True, nthreads=[("", 1)] * 2, config={"hpc.drain": "0.5 s"})
async def test_while_a_shuffle_needs_it_the_budget_stands_still(c, s, a, b):
    s.add_plugin(vetoes := Vetoes())
    async with await dask_hpc.manage(c):
        future = c.submit(marked, "go", 1, workers=[a.address], allow_other_workers=True)
        await async_poll_for(lambda: a.state.executing_count, 10)
        leaving = asyncio.ensure_future(c.retire_workers(workers=[a.address]))
        await async_poll_for(lambda: s.workers[a.address].status == Status.paused, 10)
        vetoes.needed = {a.address}
        await async_poll_for(lambda: s.workers[a.address].status == Status.running, 10)
        await asyncio.sleep(0.7)
        assert not leaving.done() and a.address in s.workers
        await Event("go").set()
        assert await future == 1
        vetoes.needed = set()
        assert list(await leaving) == [a.address]
        assert await executions(c) == [1] and not reasons(s, "restart")


@cluster2
async def test_what_has_come_while_data_moves_is_moved_too(c, s, a, b):
    """By us, in bulk: nothing is left for Dask to move."""
    plain, times, left = leaving_module.carry_out, [], []

    async def carry_out(scheduler, moves, *rest, **how):
        times.append(len(moves))
        return await plain(scheduler, moves[:1] if len(times) == 1 else moves, *rest, **how)

    async with await dask_hpc.manage(c):
        leaving = plugin_of(s).control.leaving
        theirs = leaving._theirs

        async def retire(*args, **how):
            left.extend(s.workers[a.address].has_what)
            return await theirs(*args, **how)

        leaving._theirs = retire
        futures = await c.scatter(list(range(10)), workers=[a.address])
        with mock.patch.object(leaving_module, "carry_out", carry_out):
            assert list(await c.retire_workers(workers=[a.address])) == [a.address]
        assert times == [10, 9] and not left
        assert await c.gather(futures) == list(range(10))


@pytest.mark.parametrize("way", ["retired", "closed"])
def test_a_task_that_another_worker_gives_up_is_waited_for(way):
    """Dask asked one worker for it, for another one, which is held before the answer is there."""

    @cluster4
    async def run(c, s, a, b, d, e):
        async with await dask_hpc.manage(c):
            await async_poll_for(lambda: NAME in b.plugins, 10)
            mover, answers = plugin_of(s).control.holds.mover, []
            futures = c.map(marked, ["go"] * 2, range(2), workers=[a.address], key="m", pure=False)
            others = c.map(blocked, ["go"] * 2, workers=[d.address, e.address], key="n", pure=False)
            await async_poll_for(lambda: all(len(w.state.executing) == 1 for w in (a, d, e)), 10)
            for future in futures:
                compat.restrict(s.tasks[future.key], None)
            answer = s.stream_handlers["steal-response"]
            s.stream_handlers["steal-response"] = lambda **given: answers.append(given)
            begun = {task.key for task in a.state.executing}
            asked = [future.key for future in futures if future.key not in begun]
            assert mover.drain(a.address, asked) == 1 and mover.is_expecting(b.address)
            if way == "retired":
                leaving = asyncio.ensure_future(s.retire_workers(workers=[b.address]))
            else:
                leaving = asyncio.ensure_future(b.close(executor_wait=False, reason="signal-15"))
            await async_poll_for(
                lambda: answers and (leaving.done() or b.address in plugin_of(s).control.holds.reasons), 10
            )
            await Event("go").set()
            await wait(others)
            assert list(await s.retire_workers(workers=[e.address])) == [e.address]
            assert not leaving.done() and b.address in s.workers, "nobody waits for the task"
            s.stream_handlers["steal-response"] = answer
            for given in answers:
                answer(**given)
            await leaving
            await async_poll_for(lambda: b.address not in s.workers, 10)
            await c.gather([*futures, *others])
            assert await executions(c) == [0, 1] and not reasons(s, "restart") and losses(s) == 0

    run()
