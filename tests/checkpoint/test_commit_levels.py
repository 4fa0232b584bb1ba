"""Commits to the levels that were asked for, each when it is due."""

import asyncio
import threading
from time import monotonic

import dask.array as da
import numpy as np
import psutil
import pytest
from distributed import Client, Worker, WorkerPlugin
from distributed.utils_test import async_poll_for, gen_cluster
from small_agents import copy, results, start
from worker_process import empty_cluster, family, worker_process

import dask_hpc
from dask_hpc.checkpoint.client.loop import in_memory
from dask_hpc.checkpoint.scheduler.commits import Program
from dask_hpc.checkpoint.scheduler.copies import Made
from dask_hpc.checkpoint.version import read_levels
from dask_hpc.checkpoint.worker.agent import Agent
from dask_hpc.model.errors import InputError

NAME = "dask-hpc-checkpoint"
three = gen_cluster(client=True, nthreads=[("", 1)] * 3)


def test_levels_are_read():
    assert read_levels(["store", "process"], True) == ("partner", "store")
    assert read_levels(["partner", "store"], False) == ("partner",)
    assert read_levels("store", True) == ("store",)
    for wrong in ("disk", [], ["partner", "tape"], 3, "store"):
        with pytest.raises(InputError, match="levels"):
            read_levels(wrong, False)


@three
async def test_each_level_has_its_own_interval(c, s, *workers, tmp_path):
    every = {"partner": "1 h", "disk": "2 h", "store": "10 h"}
    levels = ("partner", "disk", "store")
    async with dask_hpc.Checkpoint("run", str(tmp_path), levels=levels, every=every, client=c) as ck:
        u = await ck.add("u", c.persist(da.ones(6, chunks=2)))
        await ck.commit()
        series = s.plugins[NAME].commits.series["run"]
        await async_poll_for(lambda: series.reached == dict.fromkeys(levels, 0), 10)
        found = await ck.stats()
        assert found.due.keys() == set(levels) and "as was said" in found.why
        assert 3590 < float(found.due["partner"].split()[1]) <= 3600
        assert 35990 < float(found.due["store"].split()[1]) <= 36000
        ck.step = 1
        ck.update(u=u)
        await ck.commit()
        await async_poll_for(lambda: series.reached["partner"] == 1 and series.target is None, 10)
        assert series.reached == {"partner": 1, "disk": 0, "store": 0}


@pytest.mark.parametrize("is_known", [True, False])
def test_a_short_loop_goes_to_the_store_at_its_end_alone(is_known, tmp_path):
    """Of a loop whose end nobody knows, what is committed first is stored at once."""

    @three
    async def run(c, s, *workers):
        async with dask_hpc.Checkpoint("run", str(tmp_path), client=c) as ck:
            u = await ck.add("u", c.persist(da.ones(6, chunks=2)))
            series = s.plugins[NAME].commits.series["run"]
            async for i in ck.loop(range(3) if is_known else iter(range(3))):
                if i == 1:  # what the first iteration made is committed
                    levels = {"partner"} if is_known else {"partner", "store"}
                    await async_poll_for(lambda: series.reached and not series.target, 10)
                    await async_poll_for(lambda: not series.writing and not series.to_write, 10)
                    assert series.reached.keys() == levels
                    assert ("no more to the store" in (await ck.stats()).why) == is_known
                    assert ((await ck.stats()).due["store"] == "never") == is_known
                u = c.persist(u + 1)
                ck.update(u=u)
        assert ck.step == 3 and series.reached["store"] == 3

    run()


@three
async def test_without_a_store_it_says_so(c, s, *workers):
    async with dask_hpc.Checkpoint("run", client=c) as ck:
        await ck.add("u", c.persist(da.ones(6, chunks=2)))
        await ck.commit(wait=True)
        found = await ck.stats()
    assert found.versions == {"partner": 0} and found.due.keys() == {"partner"}
    assert any("no store" in one for one in found.notes) and "no store" in repr(found)
    assert "to partner every" in found.why


@three
async def test_the_store_alone(c, s, *workers, tmp_path):
    async with dask_hpc.Checkpoint("run", str(tmp_path), levels="store", client=c) as ck:
        await ck.add("u", c.persist(da.ones(6, chunks=2)))
        await ck.commit(wait=True)
        assert (await ck.stats()).versions == {"store": 0}
        assert not s.plugins[NAME].catalogue.contents
    with pytest.raises(InputError, match="levels"):
        await dask_hpc.Checkpoint("run", str(tmp_path), levels="partner", client=c)


@pytest.mark.parametrize(
    "failures, taken, tries, levels",
    [(2, 0, [3, 3, 3], ["partner"]), (2, 1, [3, 2, 1], ["partner"]), (3, 0, [3, 3, 3], [])],
)
@three
async def test_what_agents_did_not_take_is_tried_three_times(
    c, s, *workers, monkeypatch, failures, taken, tries, levels
):
    """Who took copies may have died meanwhile."""
    asked, copies = [], Program.copy

    async def fails_at_first(program, keys, like=None):
        asked.append(len(keys))
        some = keys[:taken] if len(asked) <= failures else keys
        return await copies(program, some, like) if some else Made()

    monkeypatch.setattr(Program, "copy", fails_at_first)
    async with dask_hpc.Checkpoint("run", levels="partner", every=1, client=c) as ck:
        await ck.add("u", c.persist(da.arange(6, chunks=2)))
        await ck.commit(wait=True)
        found = await ck.stats()
    assert asked == tries and list(found.versions) == levels


@pytest.mark.slow
def test_a_version_on_disk_survives_all_processes(tmp_path):
    local, fork = ("--local-directory", str(tmp_path), "--no-nanny"), {"fork": True}
    with empty_cluster() as cluster, Client(cluster) as client:  # noqa: SIM117
        with (
            worker_process(cluster, "a", *local, **fork) as a,
            worker_process(cluster, "b", *local, **fork) as b,
        ):
            client.wait_for_workers(2)
            ck = dask_hpc.Checkpoint("run", levels=("partner", "disk"), client=client, every=1)
            u = ck.add("u", client.persist(da.random.random(8, chunks=2)))
            before = client.compute(u).result()
            scattered = client.scatter(np.arange(5.0))
            ck.add("plain", 7)
            ck.update(u=u)
            ck.commit(wait=True)
            assert ck.stats().versions == {"partner": 0, "disk": 0}
            del scattered, u
            killed = [*family(a), *family(b)]
            for one in killed:
                one.kill()
            psutil.wait_procs(killed)
            with (
                worker_process(cluster, "c", *local, **fork),
                worker_process(cluster, "d", *local, **fork),
            ):
                client.wait_for_workers(2)
                client.sync(_comes_back, client, before)


@gen_cluster(client=True, nthreads=[("", 1)] * 2)
async def test_what_a_new_worker_has_on_disk_is_waited_for(c, s, *workers, monkeypatch):
    """It joins and runs before its agent has looked at its disk and said what is there."""
    async with dask_hpc.Checkpoint("run", levels=("partner", "disk"), every=1, client=c) as ck:
        await ck.add("plain", 7)
        await ck.commit(wait=True)
        is_looking, may_look = threading.Event(), threading.Event()
        look = Agent._open_shelf

        def looks_later(agent):
            is_looking.set()
            may_look.wait(30)
            return look(agent)

        monkeypatch.setattr(Agent, "_open_shelf", looks_later)
        async with Worker(s.address, nthreads=1) as new:
            assert await asyncio.to_thread(is_looking.wait, 30)
            opening = asyncio.ensure_future(c.scheduler.hpc_checkpoint_open(name="run", client=c.id))
            await asyncio.wait([opening], timeout=0.2)
            assert not opening.done() and new.address not in s.plugins[NAME].agents
            may_look.set()
            assert (await opening)["version"]["step"] == 0 and new.address in s.plugins[NAME].agents


async def _comes_back(client, before):
    told = await client.scheduler.hpc_checkpoint_open(name="run", client=client.id)
    found = await in_memory(client, told["version"])
    assert found.values["plain"] == 7
    np.testing.assert_array_equal(await client.compute(found.values["u"]), before)


@gen_cluster(client=True, nthreads=[("", 1)])
async def test_past_the_agents_and_back(c, s, a, tmp_path):
    async with dask_hpc.Checkpoint("run", str(tmp_path), every=1, client=c) as ck:
        u = await ck.add("u", c.persist(da.ones(6, chunks=2)))
        for step in range(3):
            ck.step = step
            await ck.commit(wait=True)
        found = await ck.stats()
        assert found.versions == {"store": 2} and "no agent has room" in found.direct
        assert "directly" in repr(found)
        told = [msg["reason"] for _, msg in s.get_events(NAME) if msg["decision"] == "direct"]
        assert len(told) == 1 and "until it pays" in told[0]
        async with Worker(s.address, nthreads=1):
            await async_poll_for(lambda: len(s.plugins[NAME].agents.facts()) == 2, 10)
            ck.step = 3
            ck.update(u=u)
            await ck.commit(wait=True)
            found = await ck.stats()
            assert found.versions == {"partner": 3, "store": 3} and not found.direct


@three
async def test_a_flush_waits_for_nobody_who_has_gone(c, s, a, b, d, tmp_path):
    async with dask_hpc.Checkpoint("run", str(tmp_path), client=c) as ck:
        await ck.add("u", c.persist(da.ones(6, chunks=2)))
        service = s.plugins[NAME]
        gone = "tcp://127.0.0.1:1"
        began = monotonic()
        with pytest.raises(ConnectionError, match="has gone"):
            await service.calls.call(gone, "hpc_agent_run", call=b"")
        entered = asyncio.Event()

        async def hang():
            entered.set()
            await asyncio.Event().wait()

        b.handlers["hang"] = hang
        dying = asyncio.ensure_future(service.calls.call(b.address, "hang"))
        await entered.wait()
        service.calls.worker_is_gone(b.address)
        with pytest.raises(ConnectionError, match="has gone"):
            await dying
        assert monotonic() - began < 5
        await ck.commit(wait=True)
        assert (await ck.stats()).versions["store"] == 0


@three
async def test_an_agent_that_closes_still_answers(c, s, a, b, d, caplog):
    closes, goes_on = asyncio.Event(), asyncio.Event()

    class Slow(WorkerPlugin):
        async def teardown(self, worker):
            closes.set()
            await goes_on.wait()

    await start(c, a, b, d)
    b.plugins["slow"] = Slow()
    closing = asyncio.ensure_future(b.close())
    await closes.wait()
    await s.rpc(b.address).hpc_agent_drop(contents=["xxh3:00"])
    goes_on.set()
    await closing
    assert "No handler" not in caplog.text


@three
async def test_names_that_share_keys_make_one_copy(c, s, a, b, d):
    shared = await results(c, a, *[1000] * 20)
    await start(c, a, b, d)
    keys = [one.key for one in shared]
    first, second = await asyncio.gather(*(copy(s, shared) for _ in "ab"))
    assert first.copies == 20 and second.copies == 0
    assert all(len(s.plugins[NAME].catalogue.where(key)[1]) == 1 for key in keys)
