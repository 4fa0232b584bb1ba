"""Results that the last worker stored are loaded, or computed again if their file is no good."""

import asyncio
import re
import threading
import time
from pathlib import Path

import dask
import pytest
from distributed import Worker, wait
from distributed.utils_test import async_poll_for, gen_cluster, inc
from small_cluster import plugin_of

import dask_hpc
from dask_hpc.checkpoint.scheduler.service import CheckpointService
from dask_hpc.cluster.worker.farewell import NAME

one = gen_cluster(client=True, nthreads=[("", 1)])
ran = []


def effect(x, *rest):
    ran.append(x)
    return x + sum(rest)


def told(s, *kinds):
    return [h.reason for h in plugin_of(s).story.happenings if h.decision in kinds]


def results(directory):
    return sorted(Path(directory).glob("*.result"))


@pytest.fixture
def directory(tmp_path):
    ran.clear()
    return tmp_path / "store"


async def managed(c, directory, *workers, farewell="8s"):
    with dask.config.set({"hpc.rescue": str(directory), "hpc.farewell": farewell}):
        manager = await dask_hpc.manage(c)
    await async_poll_for(lambda: all(NAME in w.plugins for w in workers), 10)
    return manager


def test_the_last_worker_stores_and_the_next_loads(directory):
    @one
    async def run(c, s, a):
        async with await managed(c, directory, a):
            source = c.submit(effect, 1, pure=False)
            futures = [c.submit(effect, i, source, key=("x", i)) for i in range(5)]
            await wait(futures)
            key = source.key
            source.release()
            del source
            await async_poll_for(lambda: not s.tasks[key].who_has, 10)
            await a.close(reason="signal-15")
            assert "0 of 5 results handed over, 5 stored (100 %" in told(s, "farewell")[-1]
            assert told(s, "lost") == [] and plugin_of(s).status.lost == 0
            assert len(results(directory)) == 5
            assert len(s.tasks) == 5, "what only the old recipes needed is forgotten"
            before = len(ran)
            async with Worker(s.address, nthreads=1):
                assert await c.gather(futures) == [1 + i for i in range(5)]
                assert len(ran) == before
                for future in futures:
                    future.release()
                await async_poll_for(lambda: not results(directory), 10)
            assert plugin_of(s).errors == 0

    run()


@pytest.mark.parametrize("how", ["damaged", "gone"])
def test_an_unreadable_file_is_computed_again_with_all_it_needs(directory, how):
    @one
    async def run(c, s, a):
        async with await managed(c, directory, a):
            source = c.submit(effect, 1, key="source", retries=2)
            middle = c.submit(effect, 2, source, key="middle")
            futures = [c.submit(effect, i, middle, key=("x", i)) for i in range(3)]
            await wait(futures)
            del source, middle
            await a.close(reason="signal-15")
            assert set(s.tasks) == {("x", i) for i in range(3)}
            for file in results(directory):
                if how == "damaged":
                    file.write_bytes(file.read_bytes()[:-1])
                else:
                    file.unlink()
            ran.clear()
            async with Worker(s.address, nthreads=1):
                assert await c.gather(futures) == [3, 4, 5]
            assert sorted(ran) == [0, 1, 1, 2, 2]
            assert len(told(s, "rescue")) == 1 + 3 and "is computed again" in told(s, "rescue")[-1]
            assert plugin_of(s).errors == 0

    run()


def test_scattered_data_is_saved_too(directory):
    @one
    async def run(c, s, a):
        async with await managed(c, directory, a):
            data = await c.scatter({"x": [1, 2]})
            await a.close(reason="signal-15")
            async with Worker(s.address, nthreads=1):
                assert await data["x"] == [1, 2]

    run()


def test_a_graph_that_is_submitted_again_loads_what_is_stored(directory):
    """A new scheduler; S5 does the same with processes."""

    def graph(last=7):
        first = [dask.delayed(effect, pure=True)(i) for i in range(3)]
        return dask.delayed(effect, pure=True)(last, *first)

    @one
    async def before(c, s, a):
        async with await managed(c, directory, a):
            assert await c.compute(graph()) == 10
            kept = c.persist(graph())
            await wait(kept)
            await a.close(reason="signal-15")

    @one
    async def after(c, s, a):
        async with await managed(c, directory, a):
            ran.clear()
            future = c.compute(graph())
            assert await future == 10 and ran == []
            assert set(s.tasks) == {future.key}
            assert await c.compute(graph(8)) == 11 and len(ran) == 4  # another input

    before()
    after()


def test_a_cluster_that_closes_stores_nothing(directory):
    @gen_cluster(client=True, nthreads=[("", 1)] * 2)
    async def run(c, s, *workers):
        async with await managed(c, directory, *workers):
            await wait(c.map(inc, range(10), pure=False))
            await asyncio.gather(*(w.close() for w in workers))
            assert told(s, "farewell") == [] and results(directory) == []

    run()


def test_when_control_ends_tasks_have_their_own_recipes_again(directory):
    @gen_cluster(client=True, nthreads=[("", 1)] * 2)
    async def run(c, s, a, b):
        m = await managed(c, directory, a, b)
        source = c.submit(effect, 1, key="source")
        f = c.submit(effect, 2, source, key="f")
        await wait(f)
        del source
        await async_poll_for(lambda: s.tasks["source"].state == "released", 10)
        plugin_of(s).context.find(CheckpointService).shelter.store.write("f", 3)
        plugin_of(s).context.find(CheckpointService).shelter.wrote(["f"])
        assert set(s.tasks) == {"f"}
        await m.close()
        assert results(directory) == []
        assert set(s.tasks) == {"f", "source"}
        (holder,) = s.tasks["f"].who_has
        await s.remove_worker(holder.address, stimulus_id="dies")
        assert await f == 3 and sorted(ran) == [1, 1, 2, 2]

    run()


def test_a_stalling_file_system_stalls_nothing_else(directory):
    class Slow:
        def __init__(self):
            self.go = threading.Event()

        def write(self, key, value):
            self.go.wait(60)

    @one
    async def run(c, s, a):
        m = await managed(c, directory, a, farewell="1s")
        f = c.submit(inc, 1, pure=False)
        await wait(f)
        slow = a.plugins[NAME]._store = Slow()
        loop = asyncio.get_running_loop()
        longest, last, ticking = 0.0, loop.time(), True

        async def tick():
            nonlocal longest, last
            while ticking:
                await asyncio.sleep(0.01)
                longest, last = max(longest, loop.time() - last), loop.time()

        ticks = asyncio.ensure_future(tick())
        since = loop.time()
        await a.close(reason="signal-15")
        assert loop.time() - since < 5, "the time is over after 0.8 s"
        ticking = False
        await ticks
        assert longest < 0.5, "the event loop stood still"
        assert any("no time left" in words for words in told(s, "rescue"))
        assert "0 stored (0 %" in told(s, "farewell")[-1]
        slow.go.set()
        await m.close()

    run()


def test_beyond_its_time_a_worker_stores_the_dearest_first(directory, report):
    """A file system that takes 50 ms for each result, and 0.8 s for forty of them."""

    class Slow:
        def __init__(self, store):
            self.store = store

        def write(self, key, value):
            time.sleep(0.05)
            self.store.write(key, value)

    @one
    async def run(c, s, a):
        m = await managed(c, directory, a, farewell="1s")
        cheap = [c.submit(inc, i, key=("cheap", i)) for i in range(36)]
        dear = [c.submit(inc, i, key=("dear", i)) for i in range(4)]
        await wait([*cheap, *dear])
        s.task_prefixes["cheap"].duration_average = 1
        s.task_prefixes["dear"].duration_average = 100
        a.plugins[NAME]._store = Slow(plugin_of(s).context.find(CheckpointService).shelter.store)
        await a.close(reason="signal-15")
        words = told(s, "farewell")[-1]
        stored = int(re.search(r"0 of 40 results handed over, (\d+) stored", words)[1])
        assert 4 <= stored < 30 and f"stored ({100 * stored / 40:.0f} % of" in words
        assert len(results(directory)) - stored in (0, 1)  # the last one may have come too late to count
        store = plugin_of(s).context.find(CheckpointService).shelter.store
        assert {store.name(f.key) for f in dear} <= {file.name for file in results(directory)}
        report.add("S4", "saved of 40, nobody stays, slow disk", plain=0, ours=stored, bound="the dearest")
        await m.close()

    run()


@pytest.mark.parametrize("what", ["file", "nobody's"])
def test_a_store_that_cannot_be_used_is_told_and_all_goes_on(tmp_path, what):
    (tmp_path / "file").write_text("")
    where = tmp_path / "file" if what == "file" else "/proc/nowhere"

    @one
    async def run(c, s, a):
        m = await managed(c, where, a)
        (words,) = told(s, "rescue")
        assert str(where) in words and "nothing is stored" in words and "\n" not in words
        f = c.submit(inc, 1)
        assert await f == 2
        await a.close(reason="signal-15")
        assert plugin_of(s).errors == 0
        await m.close()

    run()
