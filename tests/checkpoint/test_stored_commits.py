"""What a program has in the store is loaded while the cluster lives, if all copies are gone."""

import sys

import dask
import numpy as np
import pytest
from distributed import Worker, wait
from distributed.utils_test import async_poll_for, gen_cluster
from test_protect import controller, dies

import dask_hpc
from dask_hpc.checkpoint.scheduler.stored import StoredVersion
from dask_hpc.checkpoint.store.manifest import Item, Manifest, StoredBlock
from dask_hpc.checkpoint.version import KeptVersion

two = gen_cluster(client=True, nthreads=[("", 1)] * 2)
ran = []


@pytest.fixture(autouse=True)
def nothing_ran():
    ran.clear()


class Thing:
    def __init__(self, x):
        self.x = x


def effect(x, i):
    ran.append(i)
    return x + 1


def thing(x, i):
    ran.append(i)
    return Thing(i + 1)


def name(i):
    """Of a result: as of collections, it says what it is."""
    return f"u-{i:032x}"


async def program(c, s, tmp_path, steps, kept, do=effect, **more):
    """Runs so many steps; those that are ``kept`` are committed, by the levels they go to."""
    u = c.submit(np.zeros, 4, key=name(0))
    with dask.config.set({"hpc.checkpoint.store": str(tmp_path)}):
        ck = await dask_hpc.Checkpoint("run", client=c, every=1, **more)
        u = await ck.add("u", u)
        for i in range(steps):
            u = c.submit(do, u, i, key=name(i + 1))
            await u
            ck.step = i + 1
            ck.update(u=u)
            if i + 1 in kept:
                ck.levels = kept[i + 1]
                series = controller(s).commits.series["run"]
                await ck.commit(wait="store" in ck.levels)
                await async_poll_for(lambda: series.target is None and series.writing is None, 10)  # noqa: B023
    return ck, u


async def all_die(s, *workers):
    """Then another one comes."""
    await dies(s, *workers)
    return await Worker(s.address, nthreads=1)


BOTH, PARTNER, STORE = ("partner", "store"), ("partner",), ("store",)


@pytest.mark.parametrize(
    ("kept", "again"),
    [
        ({5: BOTH}, []),
        ({5: STORE}, []),
        ({3: BOTH, 5: PARTNER}, [3, 4]),
        ({3: STORE, 5: PARTNER}, [3, 4]),
        ({2: BOTH, 3: PARTNER, 4: BOTH, 5: PARTNER}, [4]),
        ({3: BOTH}, [3, 4]),
        ({5: PARTNER}, [0, 1, 2, 3, 4]),
    ],
)
def test_no_more_is_computed_again_than_what_came_after_the_newest_in_the_store(kept, again, tmp_path):
    @two
    async def run(c, s, a, b):
        ck, u = await program(c, s, tmp_path, 5, kept)
        ran.clear()
        async with await all_die(s, a, b):
            assert (await u == np.full(4, 5.0)).all()
            assert ran == again and controller(s).errors == 0
            await ck.close()

    run()


def test_what_is_damaged_there_is_computed_again(tmp_path):
    @two
    async def run(c, s, a, b):
        ck, u = await program(c, s, tmp_path, 4, {2: BOTH, 4: PARTNER})
        ran.clear()
        (block,) = tmp_path.rglob("u.value*")
        block.write_bytes(b"x" * block.stat().st_size)
        async with await all_die(s, a, b):
            assert (await u == np.full(4, 4.0)).all()
            assert ran == [0, 1, 2, 3] and controller(s).errors == 0
            assert name(2) not in controller(s).stored, "it is not tried again"
            await ck.close()

    run()


@pytest.mark.parametrize("unpickle", [True, False])
def test_pickles_are_loaded_if_that_is_allowed(unpickle, tmp_path):
    @two
    async def run(c, s, a, b):
        ck, u = await program(c, s, tmp_path, 3, {3: BOTH}, do=thing, unpickle=unpickle)
        assert (u.key in controller(s).stored) == unpickle
        ran.clear()
        async with await all_die(s, a, b):
            assert (await u).x == 3
            assert ran == ([] if unpickle else [0, 1, 2]) and controller(s).errors == 0
            await ck.close()

    run()


@two
async def test_what_was_stored_is_forgotten_with_all_else(c, s, a, b, tmp_path):
    ck, u = await program(c, s, tmp_path, 2, {2: BOTH})
    stored = controller(s).stored
    assert u.key in stored
    await ck.close()
    assert u.key in stored, "it did not come to the end of a loop: it may go on"
    await c.restart(wait_for_workers=False)
    assert u.key not in stored


def test_of_shuffles_nothing_is_loaded():
    """They do more than their results tell."""
    block = StoredBlock("00000001/u", "sum", 8, {})
    manifest = Manifest("run", 1, 0.0, {"u": Item("plain", {}, {"0": block, "1": block})})
    keys = {("u", "0"): name(0), ("u", "1"): f"shuffle-{name(1)}"}
    assert StoredVersion(KeptVersion(None, keys, store={}), manifest).places == {name(0): ("u", "0")}


@pytest.mark.parametrize("kept", [{3: BOTH}, {2: BOTH, 3: PARTNER}])
def test_a_name_that_may_mean_something_else_by_now_is_not_loaded(kept, tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "name", "u{}".format)

    @two
    async def run(c, s, a, b):
        ck, u = await program(c, s, tmp_path, 3, kept)
        ran.clear()
        async with await all_die(s, a, b):
            assert (await u == np.full(4, 3.0)).all()
            assert ran == [0, 1, 2] and controller(s).errors == 0
            await ck.close()

    run()


def test_what_several_need_is_loaded_once(tmp_path):
    """Also if that waits in Dask's queue behind them, as one has asked for it before there was a worker."""

    @two
    async def run(c, s, a, b):
        ck, u = await program(c, s, tmp_path, 2, {2: BOTH})
        others = [c.submit(effect, u, i, key=f"other-{i}") for i in range(6)]
        await dask_hpc.protect(others, "others", levels=PARTNER, client=c)
        await wait(others)
        await dask_hpc.protected("others", wait=True, client=c)
        newer = c.submit(effect, u, 6, key=name(3))
        ck.update(u=newer)
        ck.step, ck.levels = 3, PARTNER
        await ck.commit()
        u.release()
        await async_poll_for(lambda: name(2) not in s.tasks, 10)
        ran.clear()
        await dies(s, a, b)
        await controller(s).no_copy(key="other-0", why="a worker asked that is dead by now")
        async with Worker(s.address, nthreads=1):
            assert [one[0] for one in await c.gather([*others, newer])] == [3.0] * 7
            assert sorted(ran) == [*range(7)] and controller(s).errors == 0
            await ck.close()

    run()


@two
async def test_of_a_program_that_is_over_nothing_is_read(c, s, a, b, tmp_path):
    await dask_hpc.protect(c.submit(np.zeros, 3), "other", client=c)
    with dask.config.set({"hpc.checkpoint.store": str(tmp_path)}):
        async with dask_hpc.Checkpoint("run", client=c, every=1, levels=BOTH) as ck:
            u = await ck.add("u", c.submit(np.zeros, 4))
            async for _ in ck.loop(range(3)):
                u = c.submit(effect, u, ck.step)
                ck.update(u=u)
            stored = controller(s).stored
            await ck.commit(wait=True)
            assert u.key in stored
    assert u.key not in stored
