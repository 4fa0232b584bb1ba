"""Protected results outlive all workers, and the cluster, if the store is one of the levels."""

import asyncio
import errno
import os
from pathlib import Path
from time import perf_counter

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Event, futures_of, wait
from distributed.utils_test import async_poll_for, gen_cluster, inc

import dask_hpc
from dask_hpc import config
from dask_hpc.checkpoint.scheduler import series
from dask_hpc.checkpoint.store.files import Files, Trouble
from dask_hpc.checkpoint.store.versions import Versions, names_in

# Two threads: one may be blocked by a task that nobody needs any longer.
three = gen_cluster(client=True, nthreads=[("", 2)] * 3)
LEVELS = ("partner", "store")
ran = []


@pytest.fixture(autouse=True)
def nothing_ran():
    ran.clear()


def using(store, **more):
    given = {f"hpc.checkpoint.{key}": value for key, value in more.items()}
    return dask.config.set({"hpc.checkpoint.store": store and str(store), **given})


def three_with(store, **more):
    """A test on three workers; ``gen_cluster`` begins with a configuration of its own."""

    def decorate(test):
        @three
        async def run(*args):
            with using(store, **more):
                await test(*args)

        return run

    return decorate


def effect(x, *rest):
    ran.append(x)
    return np.full(100, x + sum(map(np.sum, rest)))


class Thing:
    def __init__(self, x):
        self.x = x


def thing(x):
    ran.append(x)
    return Thing(x)


def source():
    Event("go").wait(60)
    return 0


def controller(s):
    return s.plugins["dask-hpc-checkpoint"]


def told(s, kind):
    events = s.get_events("dask-hpc-checkpoint")
    return [event["reason"] for _, event in events if event["decision"] == kind]


async def stored(c, name):
    """All of what a name means is in the store."""
    while True:
        found = await dask_hpc.protected(name, wait=True, client=c)
        if found["stored"] == found["copied"] == found["keys"]:
            return found
        await asyncio.sleep(0.01)


async def dies(s, *workers):
    """As by SIGKILL: the scheduler hears of it afterwards."""
    for worker in workers:
        await s.remove_worker(worker.address, stimulus_id="dies", close=False)
    for worker in workers:
        await worker.close(nanny=False, executor_wait=False, reason="killed")


def files_of(store, name):
    return sorted(Path(store, f"{name}.protected").glob("*/results.parts/*"))


def test_what_all_copies_are_lost_of_is_loaded_from_the_store(tmp_path):
    @three_with(tmp_path)
    async def run(c, s, a, b, d):
        x = c.map(effect, range(8))
        await dask_hpc.protect(x, "it", levels=LEVELS, client=c)
        await stored(c, "it")
        await dies(s, a, b)
        assert [one[0] for one in await c.gather(x)] == list(range(8))
        assert sorted(ran) == list(range(8)), "nothing was computed twice"
        assert not controller(s).errors

    run()


def test_scattered_data_is_loaded_from_the_store(tmp_path):
    @three_with(tmp_path)
    async def run(c, s, a, b, d):
        x = await c.scatter(np.arange(5), workers=[a.address], hash=False)
        await dask_hpc.protect(x, "it", levels=LEVELS, client=c)
        await stored(c, "it")
        await dies(s, a, *([b] if b.plugins["dask-hpc-agent"].kept.contents() else [d]))
        np.testing.assert_array_equal(await x, np.arange(5))

    run()


@pytest.mark.parametrize("key", [None, "env:SECRET_OF_TEST"])
def test_a_new_cluster_loads_what_is_stored(tmp_path, key, monkeypatch):
    """Tasks that have not begun when the name is protected again, and those that are submitted later."""
    monkeypatch.setenv("SECRET_OF_TEST", "ab" * 32)

    def graph(c):
        first = dask.delayed(source, pure=True)()
        return c.persist([dask.delayed(effect, pure=True)(number, first) for number in range(6)])

    @three_with(tmp_path, key=key)
    async def one(c, s, a, b, d):
        await Event("go").set()
        x, last = graph(c), c.submit(effect, 100)
        await dask_hpc.protect([*x, last], "it", levels=LEVELS, client=c)
        await stored(c, "it")

    @three_with(tmp_path, key=key)
    async def other(c, s, a, b, d):
        x = graph(c)
        await dask_hpc.protect(x, "it", levels=LEVELS, client=c)
        assert [int(one[0]) for one in await c.gather(futures_of(x))] == list(range(6))
        later = c.submit(effect, 100)
        assert (await later)[0] == 100
        assert ran == [] and not controller(s).errors
        found = await stored(c, "it")
        assert found["stored"] == 6

    one()
    assert len(ran) == 7
    ran.clear()
    other()


def test_a_damaged_block_is_computed(tmp_path):
    @three_with(tmp_path)
    async def run(c, s, a, b, d):
        x = c.map(effect, range(4))
        await dask_hpc.protect(x, "it", levels=LEVELS, client=c)
        await stored(c, "it")
        for file in files_of(tmp_path, "it")[:1]:
            body = bytearray(file.read_bytes())
            body[-1] ^= 1
            file.write_bytes(body)
        await dies(s, a, b)
        assert [one[0] for one in await c.gather(x)] == list(range(4))
        assert len(ran) <= 5, "only the damaged one was computed again"
        assert not controller(s).errors

    run()


@pytest.mark.parametrize("unpickle", [False, True])
def test_pickles_are_read_if_that_is_allowed(tmp_path, unpickle):
    @three_with(tmp_path)
    async def run(c, s, a, b, d):
        x = c.map(thing, range(4))
        await dask_hpc.protect(x, "it", levels=LEVELS, unpickle=unpickle, client=c)
        found = await dask_hpc.protected("it", wait=True, client=c)
        while found["copied"] < 4 or not files_of(tmp_path, "it"):
            found = await dask_hpc.protected("it", wait=True, client=c)
        assert found["stored"] == (4 if unpickle else 0)
        assert len([one for one in told(s, "store") if "unpickle=True" in one]) == (0 if unpickle else 1)
        held = [w for w in (a, b, d) if s.workers[w.address].has_what]
        copies = [w for w in (a, b, d) if w not in held]
        await dies(s, *(held + copies)[:2])
        assert [one.x for one in await c.gather(x)] == list(range(4))
        assert not unpickle or len(ran) == 4

    run()


def test_a_store_out_of_reach_is_told_once_and_tried_again(tmp_path):
    root = tmp_path / "store"
    root.write_text("a file where a directory is to be")

    @three_with(root)
    async def run(c, s, a, b, d):
        x = c.map(effect, range(4))
        await dask_hpc.protect(x, "it", levels=LEVELS, client=c)
        while (found := await dask_hpc.protected("it", wait=True, client=c))["copied"] < 4:
            pass
        assert found["stored"] == 0 and found["store_problem"]
        await dies(s, a)
        assert [one[0] for one in await c.gather(x)] == list(range(4)) and len(ran) == 4
        assert len([one for one in told(s, "store") if "not stored" in one]) == 1
        root.unlink()
        await async_poll_for(lambda: controller(s).stored.as_plain("it")["stored"] == 4, 20)
        assert len([one for one in told(s, "store") if "works again" in one]) == 1
        assert not controller(s).errors

    run()


def test_a_store_whose_manifests_cannot_be_written_does_not_fill_up(tmp_path, monkeypatch):
    plain, refused = Files.write, []

    def write(self, path, parts, step="block", **how):
        if step == "manifest" and len(refused) < 3:
            refused.append(sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file()))
            raise Trouble(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return plain(self, path, parts, step, **how)

    monkeypatch.setattr(Files, "write", write)
    monkeypatch.setattr(series, "_FIRST", 0.1)

    @three_with(tmp_path)
    async def run(c, s, a, b, d):
        x = c.map(effect, range(4))
        await dask_hpc.protect(x, "it", levels=LEVELS, client=c)
        await stored(c, "it")
        assert refused[0] > 3200 and len(set(refused)) == 1, "each attempt finds what the first one found"
        assert len(files_of(tmp_path, "it")) == 4 and not controller(s).errors

    run()


def test_one_content_is_one_file_and_what_is_stored_stays(tmp_path):
    @three_with(tmp_path)
    async def run(c, s, a, b, d):
        x = [c.submit(effect, 1), c.submit(effect, 2), c.submit(np.full, 100, 1)]
        await wait(x)
        await dask_hpc.protect(x, "it", levels=LEVELS, client=c)
        await stored(c, "it")
        first = {file.stat().st_ino for file in files_of(tmp_path, "it")}
        assert len(first) == 2
        y = [x[0], c.submit(np.full, 100, 2), c.submit(effect, 3)]
        await wait(y)
        await dask_hpc.protect(y, "it", levels=LEVELS, client=c)
        await stored(c, "it")
        assert len({file.stat().st_ino for file in files_of(tmp_path, "it")} - first) == 1

    run()
    files = Files(str(tmp_path))
    assert names_in(files) == ["it.protected"]
    versions = Versions(files, "it.protected")
    assert [list(versions.problems(number)) for number in versions.numbers()] == [[]] * 2
    values, _ = dask_hpc.restore("it.protected", str(tmp_path))
    assert sorted(int(one.compute()[0]) for one in values.values()) == [1, 2, 3]


def test_each_interval_has_its_own(tmp_path):
    """What is there as a whole goes to the store at once, what follows when it is due."""

    @three_with(tmp_path)
    async def run(c, s, a, b, d):
        u = c.submit(effect, 0)
        for step in range(4):
            u = c.submit(effect, step, u)
            every = {"partner": 1, "store": "1 h"}
            await dask_hpc.protect(u, "u", levels=LEVELS, every=every, client=c)
            await wait(u)
            while True:
                found = await dask_hpc.protected("u", client=c)
                if found["copied"] == 1:
                    break
                await controller(s).protected["u"].commit()
            if step == 0:
                await async_poll_for(lambda: controller(s).stored.as_plain("u")["stored"] == 1, 10)
        assert controller(s).stored.as_plain("u")["stored"] == 0
        assert found["every"]["store"] == 3600
        assert (await stored(c, "u"))["stored"] == 1, "who waits does so for all levels"

    run()


@three
async def test_bad_input(c, s, a, b, d):
    future = c.submit(inc, 1)
    with pytest.raises(dask_hpc.InputError, match=r"hpc\.checkpoint\.store.*dask\.config\.set"):
        await dask_hpc.protect(future, "x", levels=LEVELS, client=c)
    with using("/s", key="env:NOBODY_SET_THIS"), pytest.raises(ValueError, match="NOBODY_SET_THIS"):
        await dask_hpc.protect(future, "x", client=c)
    assert "dask-hpc-checkpoint" not in s.plugins


def test_default_levels_are_those_that_are_possible(tmp_path):
    @three
    async def run(c, s, a, b, d):
        future = c.submit(inc, 1)
        await dask_hpc.protect(future, "plain", client=c)
        with using(tmp_path):
            await dask_hpc.protect(future, "stored", client=c)
        with using(tmp_path, levels=["process", "disk"]):
            await dask_hpc.protect(future, "disk", client=c)
        found = controller(s).protected
        levels = {name: list(one.schedule.levels) for name, one in found.items()}
        assert levels == {"plain": ["partner"], "stored": [*LEVELS], "disk": ["partner", "disk"]}

    run()


def test_how_often_nodes_fail_is_configured():
    assert config.checkpoint()["mtbf"] == {"partner": 30 * 86400, "disk": 300 * 86400, "store": 86400}

    @three_with(None, mtbf={"partner": "1 h"})
    async def run(c, s, a, b, d):
        await dask_hpc.protect(c.submit(inc, 1), "x", client=c)
        assert controller(s).failures.rate("partner") == pytest.approx(1 / 3600, rel=0.1)

    run()
    for bad in ({"moon": "1 h"}, {"disk": 0}, {"disk": "soon"}, "1 h", {"store": "inf"}):
        with (
            dask.config.set({"hpc.checkpoint.mtbf": bad}),
            pytest.raises(dask_hpc.InputError, match="mtbf"),
        ):
            config.checkpoint()


@pytest.mark.timed
def test_the_caller_is_not_blocked(tmp_path):
    @three_with(tmp_path)
    async def run(c, s, a, b, d):
        await dask_hpc.protect(c.submit(inc, 1), "first", client=c)
        x = c.persist(da.ones(1000, chunks=1) + 1)
        assert len(futures_of(x)) == 1000
        await wait(futures_of(x))
        begun = perf_counter()
        await dask_hpc.protect(x, "it", levels=LEVELS, client=c)
        took = perf_counter() - begun
        print(f"protect of 1,000 blocks: {took * 1e3:.1f} ms")
        assert took < 0.5 * float(os.environ.get("DASK_HPC_SLOW", 1))

    run()
