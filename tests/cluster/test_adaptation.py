"""A program hears of each change of its job's nodes, and adapts itself while the change waits for it."""

import asyncio
import logging
import threading
from itertools import pairwise

import dask.array as da
import numpy as np
import pytest
from distributed import Client, Event, LocalCluster, get_client, wait
from distributed.utils_test import async_poll_for
from small_cluster import blocked, cluster2, cluster4, decisions, live, lose, plugin_of, reasons, until, where

import dask_hpc
from dask_hpc import dask as compat
from dask_hpc.model.errors import InputError


def evolving(nodes=2, **more):
    """A job that changes its size when it says so, and at no other time."""
    return dask_hpc.job("e", nodes=nodes, min_nodes=1, max_nodes=4, kind="evolving", **more)


async def resized(s, job, change):
    """The job has asked for it, and has it."""
    size = len(live(s, "e").nodes) + change
    await job.request(change)
    await async_poll_for(lambda: len(live(s, "e").nodes) == size, 10)


def places(s, x):
    """Of each chunk, in order."""
    return [compat.holders(compat.find_task(s, (x.name, i))) for i in range(x.npartitions)]


def target(s):
    return plugin_of(s).control.indices.running[live(s, "e").id].target


@cluster4
async def test_a_loop_that_goes_from_two_nodes_to_four_to_one(c, s, *workers):
    """Three lists, each in time, and the result of a serial run to the bit."""
    seen, threads, told, found = [], [], [], []

    def adapt(change):
        seen.append((list(change.staying), list(change.leaving), list(change.joining), list(change.nodes)))
        threads.append(threading.current_thread())
        told.append(decisions(s, "grow", "shrink"))
        found.append({address for there in places(s, job.values["u"]) for address in there})
        assert set(change.workers) == found[-1]

    u = np.random.default_rng(0).random(1200)
    async with await dask_hpc.manage(c, policy="fcfs"):
        async with evolving(on_resize=adapt) as job:
            job.values.add("u", c.persist(da.from_array(u, chunks=100)))
            for turn in range(6):
                if change := {2: +2, 4: -3}.get(turn):
                    await resized(s, job, change)
                x = job.values["u"] = c.persist(job.values["u"] * 1.1 + da.roll(job.values["u"], 1))
                await wait(x)
                u = u * 1.1 + np.roll(u, 1)
            assert np.array_equal(await c.compute(x), u)
            await async_poll_for(lambda: len(seen) == 3, 10)
        await until(s, "e", "done")
        await async_poll_for(lambda: not vars(c)["dask_hpc_adaptations"]._programs, 10)
        assert not plugin_of(s).control.windows._programs, "nobody listens any more"
    assert [tuple(map(len, one)) for one in seen] == [(0, 0, 2, 2), (2, 0, 2, 4), (1, 3, 0, 1)]
    for (*_, before), (staying, leaving, joining, after) in pairwise(seen):
        assert {*staying, *leaving} == set(before) and after == [*staying, *joining]
    assert [len(one) for one in told] == [0, 0, 1]  # before tasks go to who joins, before who leaves goes
    assert [len(one) for one in found[1:]] == [4, 1]
    assert len(set(threads)) == 3 and threading.current_thread() not in threads


@cluster4
async def test_the_change_waits_and_no_other_begins(c, s, *workers):
    lists, inside, most = [], set(), []

    async def adapt(change):
        inside.add(len(lists))
        most.append(len(inside))
        lists.append(change)
        if change.staying:
            ran = await c.gather(c.map(where, range(8), pure=False))  # what it submits belongs to the job
            assert set(ran) == {address for workers in change.staying.values() for address in workers}
            await Event(f"go-{len(lists)}").wait()
        inside.clear()

    async with await dask_hpc.manage(c, policy="fcfs"):
        async with evolving(on_resize=adapt, window="1 min") as job:
            first = await c.submit(where)
            e = await until(s, "e", "running")
            old = set(e.workers)
            await job.request(+1)
            await async_poll_for(lambda: len(lists) == 2, 10)
            assert target(s) == 3 and len(e.nodes) == 2 and e.id not in plugin_of(s).control.indices.resizable
            await job.request(+1)
            assert set(await c.gather(c.map(where, range(12), pure=False))) <= old and first in old
            assert len(lists) == 2 and target(s) == 3
            await Event("go-2").set()
            await async_poll_for(lambda: len(lists) == 3, 10)
            assert len(e.nodes) == 3 and target(s) == 4
            await Event("go-3").set()
            await async_poll_for(lambda: len(e.nodes) == 4, 10)
            await job.request(-2)
            await async_poll_for(lambda: len(lists) == 4, 10)
            spread = c.map(where, range(12), pure=False)  # who leaves gets nothing new meanwhile
            assert set(await c.gather(spread)) == {w for one in lists[-1].staying.values() for w in one}
            assert len(e.nodes) == 4
            await Event("go-4").set()
            await async_poll_for(lambda: len(e.nodes) == 2, 10)
        owners = {one.job for one in plugin_of(s).story.happenings if one.decision == "submit"}
        assert owners == {e.id}
    assert set(most) == {1}


@pytest.mark.parametrize("error", [ValueError("not now"), SystemExit("enough"), StopIteration("so")])
def test_a_function_that_raises(error):
    @cluster4
    async def test(c, s, *workers):
        def adapt(change):
            raise error

        manager = await dask_hpc.manage(c, policy="fcfs")
        async with manager, evolving(on_resize=adapt, window="1 min") as job:
            await c.submit(where)
            await resized(s, job, +2)
            await resized(s, job, -3)
            assert await c.submit(int, 1) == 1
            told = [reason for reason in reasons(s, "window") if "raised" in reason]
            assert len(told) == 3 and all(str(error) in reason for reason in told)
            assert plugin_of(s).errors == 0

    logging.disable(logging.ERROR)
    test()
    logging.disable(logging.NOTSET)


@cluster4
async def test_what_no_policy_decided_is_told_and_adds_up(c, s, *workers):
    lists, times = [], []

    async def adapt(change):
        lists.append(change)
        times.append(asyncio.get_running_loop().time() >= change.deadline)

    async with await dask_hpc.manage(c, policy="fcfs"), evolving(2, on_resize=adapt, window="1 min"):
        busy = c.submit(blocked, "go")
        e = await until(s, "e", "running")
        await async_poll_for(lambda: len(lists) == 1, 10)
        for _ in range(2):
            (name, *_), count = e.nodes, len(lists)
            await lose(next(one for one in workers if str(one.name) == name))
            await async_poll_for(lambda count=count: len(lists) > count, 10)
        await Event("go").set()
        assert await busy in {one.address for one in workers[2:]}
    assert [(len(one.staying), len(one.leaving), len(one.joining)) for one in lists] == [
        (0, 0, 2), (1, 1, 0), (0, 1, 0), (0, 0, 2),
    ]  # fmt: skip
    assert lists[1].leaving.keys() == {next(iter(lists[0].joining))}
    assert lists[1].leaving.items() <= lists[0].joining.items(), "their addresses are still known"
    assert set(lists[-1].workers) == {one.address for one in workers[2:]}
    assert all(times), "nothing waits"


@cluster4
async def test_values_follow(c, s, *workers):
    async with await dask_hpc.manage(c, policy="fcfs"):
        job = evolving()
        add = job.values.add
        assert add("constant", 7) == 7
        add("size", 0, "size")
        add("rank", 0, "rank")
        add("default", 1, "default:0.5")
        add("joining", "old", "joining:new")
        add("volatile", None, lambda nodes: nodes * 10)
        add("wrong", "kept", lambda nodes: 1 / (nodes - 4))
        async with job:
            await c.submit(where)
            await async_poll_for(lambda: job.values["size"] == 2, 10)
            e = live(s, "e")
            first, second = e.nodes
            assert job.values["rank"] == {first: 0, second: 1} and job.values["default"] == 1
            assert job.values["joining"] == {first: "old", second: "old"} and job.values["volatile"] == 20
            job.values["joining"] = {first: "mine", second: "yours"}
            await resized(s, job, +2)
            assert job.values["rank"] == dict(zip(e.nodes, range(4), strict=True))
            assert list(job.values["joining"].values()) == ["mine", "yours", "new", "new"]
            assert (job.values["constant"], job.values["size"], job.values["default"]) == (7, 4, 0.5)
            assert job.values["volatile"] == 40 and job.values["wrong"] == -0.5
            assert any("wrong stays as it was: ZeroDivision" in one for one in reasons(s, "window"))
            await resized(s, job, -3)
            assert job.values["rank"] == {first: 0} and job.values["joining"] == {first: "mine"}
            assert add("late", 5, "rank") == {first: 0}
            del job.values["late"], job.values["wrong"]
            job.values["new"] = 3
            assert "late" not in job.values and job.values["new"] == 3 and len(job.values) == 7


@cluster4
async def test_values_alone_open_windows_and_begin_in_the_midst_of_a_job(c, s, *workers):
    async with await dask_hpc.manage(c, policy="fcfs"), evolving() as job:
        x = await c.persist(da.arange(80, chunks=(10,)))
        job.values.add("nodes", 0, "size")
        job.values.add("x", x, layout={2: (2,), 3: {0: 3}})
        await async_poll_for(lambda: job.values["nodes"] == 2, 10)
        await resized(s, job, +1)
        assert job.values["nodes"] == 3
        assert {len(set(one)) for one in places(s, job.values["x"])} == {1}
        assert {one for (one,) in places(s, job.values["x"])} == set(live(s, "e").workers)
        await resized(s, job, +1)
        assert "x stays as it lies: redistribute: layout: no grid was given for 4 nodes" in str(
            reasons(s, "window")
        )
        assert np.array_equal(await c.compute(job.values["x"]), np.arange(80))


@cluster2
async def test_what_is_laid_out_by_the_program_is_not_spread(c, s, *workers):
    """Data spreads by itself after growth: not what lies as the program wants it."""
    async with await dask_hpc.manage(c, policy="fcfs"), evolving(1) as job:
        x = job.values.add("x", c.persist(da.arange(160, chunks=10)), layout=lambda x, nodes: [0] * 16)
        y = c.persist(da.arange(160, chunks=10) + 1)
        await wait([x, y])
        await resized(s, job, +1)
        there = places(s, job.values["x"])
        spread = plugin_of(s).control.spread
        await async_poll_for(lambda: len({*places(s, y)}) == 2 and not spread.is_under_way, 10)
        assert places(s, job.values["x"]) == there and len(set(there)) == 1


@cluster2
async def test_data_may_take_half_of_the_window(c, s, *workers):
    """What is not computed by then is not waited for, and the function has its time."""
    left = []

    async def adapt(change):
        left.append(change.deadline - asyncio.get_running_loop().time())

    async with await dask_hpc.manage(c, policy="fcfs"), evolving(1, on_resize=adapt, window="1s") as job:
        await c.submit(where)
        await async_poll_for(lambda: left, 10)
        job.values.add("x", c.persist(da.arange(4, chunks=2).map_blocks(late, dtype=int)))
        await resized(s, job, +1)
        assert 0 < left[1] <= 0.5
        assert "x is not laid out in half of the window" in str(reasons(s, "window"))
        await Event("late").set()
        assert np.array_equal(await c.compute(job.values["x"]), np.arange(4))


def late(block):
    Event("late").wait(60)
    return block


@cluster2
async def test_what_the_program_sets_meanwhile_is_laid_out_instead(c, s, *workers):
    async with await dask_hpc.manage(c, policy="fcfs"), evolving(1) as job:
        x, y = c.persist([da.arange(40, chunks=10), da.arange(40, chunks=10) + 1])
        await wait([x, y])
        asked = []

        def second(data, nodes):
            asked.append(data.name)
            if len(asked) == 2:
                job.values["x"] = y
            return [len(nodes) - 1] * 4

        job.values.add("x", x, layout=second)
        await async_poll_for(lambda: asked, 10)
        await resized(s, job, +1)
        assert asked[-2:] == [x.name, y.name]
        other = live(s, "e").nodes[1]
        assert {str(w.name) for w in workers for there in places(s, y) if [w.address] == [*there]} == {other}
        assert np.array_equal(await c.compute(job.values["x"]), np.arange(40) + 1)


@cluster2
async def test_nobody_tells_anything_where_nobody_manages(c, s, *workers):
    seen = []
    async with dask_hpc.job("m", on_resize=seen.append) as job:
        job.values.add("size", 3, "size")
        assert await c.submit(int, 1) == 1
    assert not seen and job.values["size"] == 3


def test_a_plain_program_with_threads():
    seen = []

    def adapt(change):
        inner = get_client().submit(where, key="inner").result()
        seen.append((len(change.nodes), inner in change.workers))
        mine[0] = dask_hpc.redistribute(mine[0])

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        dask_hpc.manage(client, policy="fcfs"),
        dask_hpc.job("e", nodes=1, min_nodes=1, max_nodes=2, kind="evolving", on_resize=adapt) as job,
    ):
        mine = [da.arange(40, chunks=10).persist()]
        wait(mine[0])
        job.request(+1)
        while len(job.status()["nodes"]) < 2:
            pass
        held = client.has_what().values()
        assert {sum(key[0] == mine[0].name for key in keys if key != "inner") for keys in held} == {2}
        assert mine[0].sum().compute() == 780
    assert seen == [(1, True), (2, True)]


@pytest.mark.parametrize(
    "given, words",
    [
        ({"on_resize": "f"}, "on_resize: found 'f'; allowed: a function"),
        ({"window": "soon"}, "window: found 'soon'"),
        ({"window": "-1s"}, "window: found '-1s'; allowed: 0 s to 24 h"),
        ({"window": float("nan")}, "window: found nan"),
        ({"window": "25h"}, "window: found '25h'; allowed: 0 s to 24 h"),
    ],
)
def test_what_a_job_cannot_have(given, words):
    with pytest.raises(InputError, match="job 'm': " + words):
        dask_hpc.job("m", **given)


def test_what_cannot_be_a_value():
    values, x = dask_hpc.job("m").values, da.zeros((4, 4), chunks=2)
    for label, given, words in [
        ("", {}, "label"),
        ("x", {"on_resize": "sometimes"}, "value x: on_resize: found 'sometimes'"),
        ("x", {"layout": "blocks"}, "value x: layout: found 'blocks'"),
        ("x", {"layout": {4: (2, 3)}}, r"value x: layout: found the grid \(2, 3\) for 4 nodes"),
        ("x", {"on_resize": "rank"}, "value x: on_resize: found 'rank' for an array"),
    ]:
        with pytest.raises(InputError, match=words):
            values.add(label, x, **given)
    with pytest.raises(InputError, match="value n: redistribute: found 3"):
        values.add("n", 3, layout="block")
    with pytest.raises(KeyError):
        values["x"]
    assert not values


@cluster2
async def test_what_a_scheduler_is_not_told(c, s, *workers):
    async with await dask_hpc.manage(c):
        for call, given, words in [
            (c.scheduler.hpc_listen, {"id": "e", "listener": "nobody"}, "a connected client"),
            (c.scheduler.hpc_listen, {"id": 3, "listener": c.id}, "listen: job"),
            (c.scheduler.hpc_listen, {"id": "e", "listener": c.id, "seconds": -1}, "seconds"),
            (c.scheduler.hpc_adapted, {"id": "e", "number": "1"}, "a whole number"),
            (c.scheduler.hpc_adapted, {"id": "e", "number": 1, "problems": "all"}, "a list of words"),
            (c.scheduler.hpc_adapted, {"id": "e", "number": 1, "placed": [3]}, "a list of words"),
        ]:
            with pytest.raises(InputError, match=words):
                await call(**given)
        await c.scheduler.hpc_adapted(id="nobody", number=1)
        assert not plugin_of(s).control.windows._programs
