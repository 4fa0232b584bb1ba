"""One of Dask's shuffles (P2P) of a dataframe begins while a worker is on its way out, for longer than its
drain budget lasts. Beside ``test_leaving_meanwhile.py``."""

import asyncio
from collections import Counter
from threading import Event

import dask
import pandas as pd
import pytest
from distributed import Status
from distributed.shuffle._worker_plugin import ShuffleWorkerPlugin
from distributed.utils_test import async_poll_for, gen_cluster
from small_cluster import losses, plugin_of, reasons

import dask_hpc
from dask_hpc.cluster.worker.farewell import NAME

P2P = {"optimization.fuse.active": False, "scheduler": "sync"}
# a busy machine takes a second or two to begin a shuffle
BUDGETS = {"hpc.drain": "3 s", "hpc.farewell": "8 s"}
PARTS, ROWS = 5, 40
EMPTY = pd.DataFrame({"a": [0], "b": [0]})

cluster3 = gen_cluster(client=True, nthreads=[("", 1), ("", 2), ("", 2)], config=BUDGETS)
ran, go, last = Counter(), Event(), Event()


@pytest.fixture(autouse=True)
def nothing_ran():
    ran.clear()
    go.clear()
    last.clear()


def part(i, gate=""):
    """All but the last one are there at once, and begin the shuffle."""
    ran[i] += 1
    assert not gate or {"go": go, "last": last}[gate].wait(60)
    return pd.DataFrame({"a": range(ROWS), "b": [i] * ROWS})


def beside():
    ran["beside"] += 1
    assert go.wait(60)


def shuffled(c, parts):
    import dask.dataframe as dd

    with dask.config.set(P2P):
        frame = dd.from_delayed(parts, meta=EMPTY, verify_meta=False)
        return c.compute(frame.shuffle("a", npartitions=4, shuffle_method="p2p").b.sum())


EXPECTED = ROWS * sum(range(PARTS))


def counted(s):
    """How often each shuffle begins, from now on."""
    shuffles, begun = s.plugins["shuffle"], Counter()
    create = shuffles._create
    shuffles._create = lambda id, key, worker: begun.update([id]) or create(id, key, worker)
    return begun


def taking_part(s):
    """The workers that a shuffle uses now."""
    runs = s.plugins["shuffle"].active_shuffles.values()
    return {address for run in runs for address in run.participating_workers}


def leave(c, worker, way):
    if way == "retired":
        return asyncio.ensure_future(c.retire_workers(workers=[worker.address]))
    return asyncio.ensure_future(worker.close(executor_wait=False, reason="signal-15"))


async def begun_meanwhile(c, s, a, way, what, managed):
    """How often shuffles began anew, and tasks ran again, where ``a`` leaves and runs a task."""
    begun = counted(s)
    bound = {"workers": [a.address], "allow_other_workers": True}
    if what == "it feeds the shuffle":
        parts = [c.submit(part, 0, "go", key="part-0", **bound)]
        runs, name = parts[0], 0
    else:
        parts = [c.submit(part, 0, key="part-0", **bound)]
        await parts[0]
        runs, name = c.submit(beside, key="beside", **bound), "beside"
    await async_poll_for(lambda: ran[name], 10)
    leaving = leave(c, a, way)
    if managed:
        await async_poll_for(lambda: s.workers[a.address].status == Status.paused, 10)
    parts += [c.submit(part, i, key=f"part-{i}") for i in range(1, PARTS - 1)]
    parts.append(c.submit(part, PARTS - 1, "last", key="part-last"))
    future = shuffled(c, parts)
    await async_poll_for(lambda: begun and taking_part(s), 10)
    if managed:
        assert a.address in s.workers and a.address not in taking_part(s)
    await leaving
    await async_poll_for(lambda: a.address not in s.workers, 10)
    go.set()  # where it runs again, it runs to its end
    await runs
    assert not future.done()
    last.set()
    assert await future == EXPECTED
    return sum(begun.values()) - len(begun), sum(ran.values()) - len(ran)


@pytest.mark.parametrize("what", ["it runs beside the shuffle", "it feeds the shuffle"])
@pytest.mark.parametrize("way", ["retired", "closed"])
def test_who_is_on_his_way_out_has_no_part_in_it(way, what, report):
    """His task begins again elsewhere when the budget is over, which is told; the shuffle does not."""
    found = {}

    @cluster3
    async def plain(c, s, a, b, d):
        found["plain"] = await begun_meanwhile(c, s, a, way, what, False)

    @cluster3
    async def ours(c, s, a, b, d):
        async with await dask_hpc.manage(c):
            await async_poll_for(lambda: all(NAME in w.plugins for w in (a, b, d)), 10)
            found["ours"] = await begun_meanwhile(c, s, a, way, what, True)
            assert len(reasons(s, "restart")) == 1 and losses(s) == 0 and plugin_of(s).errors == 0

    for run in (plain, ours):
        for one in (ran, go, last):
            one.clear()
        run()
    words = {name: "{} / {}".format(*found[name]) for name in found}
    report.add("S20", f"{way}, {what}: begun anew / tasks that ran again", **words, bound="0 / 1")
    assert found["ours"] == (0, 1)
    assert found["plain"][1] >= 1


def stop_in_transfer(monkeypatch, worker):
    """A task of that worker is about to give its partition to a shuffle, until "go" is set."""
    there, original = [], ShuffleWorkerPlugin.add_partition

    def late(self, *args, **kwargs):
        if self.worker is worker and not there:
            there.append(worker)
            assert go.wait(60)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(ShuffleWorkerPlugin, "add_partition", late)
    return there


@pytest.mark.parametrize("is_seen_late", [False, True])
def test_one_whose_own_task_begins_it_stays_until_it_is_over(monkeypatch, is_seen_late):
    """Also if the budget ends before anybody has looked whether he is needed."""

    @gen_cluster(client=True, nthreads=[("", 1)] * 2, config=BUDGETS | {"hpc.drain": "400 ms"})
    async def run(c, s, a, b):
        there = stop_in_transfer(monkeypatch, a)
        begun = counted(s)
        async with await dask_hpc.manage(c):
            holds = plugin_of(s).control.holds
            bound = {"workers": [a.address], "allow_other_workers": True}
            parts = [c.submit(part, i, key=f"part-{i}", **bound) for i in range(PARTS - 1)]
            await c.gather(parts)
            # nobody begins the shuffle but the worker that leaves
            busy = c.submit(part, "busy", "last", workers=[b.address], key="busy")
            await async_poll_for(lambda: ran["busy"], 10)
            parts.append(c.submit(part, PARTS - 1, key="part-last", **bound))
            await parts[-1]
            future = shuffled(c, parts)
            await async_poll_for(lambda: there, 10)
            leaving = leave(c, a, "retired")
            await async_poll_for(lambda: s.workers[a.address].status == Status.paused, 10)
            if is_seen_late:
                holds._timer.stop()
            go.set()
            await async_poll_for(lambda: a.address in taking_part(s), 10)
            await asyncio.sleep(0.8)  # longer than the budget
            assert a.address in s.workers and not leaving.done()
            if is_seen_late:
                holds._look()
            await async_poll_for(lambda: holds.is_lent(a.address), 10)
            last.set()
            assert await future == EXPECTED
            await busy
            assert list(await leaving) == [a.address]
            assert sum(begun.values()) == len(begun) and set(ran.values()) == {1}
            assert not reasons(s, "restart") and losses(s) == 0 and plugin_of(s).errors == 0

    run()


@gen_cluster(client=True, nthreads=[("", 1), ("", 2), ("", 2)], config=BUDGETS | {"hpc.farewell": "2 s"})
async def test_who_has_no_time_for_it_goes_and_the_story_says_that_it_begins_anew(c, s, a, b, d):
    begun = counted(s)
    async with await dask_hpc.manage(c):
        await async_poll_for(lambda: all(NAME in w.plugins for w in (a, b, d)), 10)
        bound = {"workers": [a.address], "allow_other_workers": True}
        parts = [c.submit(part, 0, key="part-0", **bound)]
        parts += [c.submit(part, i, key=f"part-{i}") for i in range(1, PARTS - 1)]
        await c.gather(parts)
        parts.append(c.submit(part, PARTS - 1, "last", workers=[b.address, d.address], key="part-last"))
        future = shuffled(c, parts)
        await async_poll_for(lambda: a.address in taking_part(s), 10)
        await leave(c, a, "closed")
        await async_poll_for(lambda: a.address not in s.workers, 10)
        last.set()
        assert await future == EXPECTED
        assert sum(begun.values()) == 2 * len(begun)
        told = [reason for reason in reasons(s, "restart") if "begins anew" in reason]
        assert len(told) == 1 and a.address in told[0], reasons(s, "restart")
        events = [msg for _, msg in s.get_events("all") if msg.get("action") == "remove-worker"]
        lost = [key for event in events for key in event["lost-computed-tasks"]]
        assert all("shuffle-transfer" in str(key) for key in lost), "what runs again anyway"
        assert set(ran.values()) == {1} and plugin_of(s).errors == 0
