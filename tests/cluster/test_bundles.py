"""Many small results travel together: nothing is lost, whatever happens meanwhile, and it is fast."""

import asyncio
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic

import pytest
from distributed import Event, Worker, wait
from distributed.core import Status
from distributed.protocol import dask_deserialize, dask_serialize
from distributed.utils_test import async_poll_for, captured_logger, gen_cluster
from forks import forked_nannies
from small_cluster import blocked, plugin_of
from test_moves import Told, all_to, cluster3, held_by, spread_out

import dask_hpc
from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler import moves
from dask_hpc.cluster.worker.bundles import MOVE, BundlePlugin

FOLDER = Path(__file__).parents[2] / "notebooks" / "benchmarks"


class Slow(BundlePlugin):
    """What it gives is under way until it may arrive."""

    def __init__(self):
        self.asked = 0
        self.is_asked, self.may_arrive = asyncio.Event(), asyncio.Event()

    async def give(self, keys):
        packed = await super().give(keys)
        self.asked += 1
        self.is_asked.set()
        await self.may_arrive.wait()
        return packed


class Heard:
    """What goes through the handlers of a server."""

    def __init__(self, handlers, name):
        self.messages = []
        theirs = handlers[name]

        def handler(*args, **message):
            self.messages.append(message)
            return theirs(*args, **message)

        handlers[name] = handler


def one_by_one(worker):
    """Requests for data that are served by Dask."""
    return worker.transfer_outgoing_count_total


async def bundles(c, *without):
    """From now on, on all workers but these."""
    await c.register_plugin(BundlePlugin())
    for worker in without:
        await worker.plugin_remove(name=BundlePlugin.name)


@asynccontextmanager
async def bundles_under_way(c, s, a, *others, count=20):
    """``count`` results of the first worker, under way to the second one until they may arrive."""
    slow = Slow()
    await bundles(c, a)
    await a.plugin_add(plugin=slow, name=slow.name)
    futures = await spread_out(c, a, count)
    blocks = await moves.blocks_on(s, [a.address])
    told = Told()
    doing = asyncio.ensure_future(moves.carry_out(s, all_to(blocks, others[0]), "why", told))
    await slow.is_asked.wait()
    yield futures, slow.may_arrive.set, doing, told
    slow.may_arrive.set()


@cluster3
async def test_many_small_ones_come_together(c, s, a, b, d):
    heard = Heard(s.stream_handlers, "add-keys")
    async with bundles_under_way(c, s, a, b) as (futures, go, doing, told):
        go()
        assert await doing == set() and held_by(s, b) == {f.key for f in futures}
        assert [len(message["keys"]) for message in heard.messages] == [20]
        assert not one_by_one(a) and "20 results" in told[0][1]
        await async_poll_for(lambda: not a.data and len(b.data) == 20, 5)
        assert sum(map(len, await c.gather(futures))) == 2000
        # They are results as all others are: used, moved again, forgotten.
        assert await c.submit(len, futures[0], workers=[b.address]) == 100
        blocks = await moves.blocks_on(s, [b.address])
        assert await moves.carry_out(s, all_to(blocks, d), "", told) == set()
        assert held_by(s, d) >= {f.key for f in futures}


@cluster3
async def test_the_source_dies_in_the_middle(c, s, a, b, d):
    x = await Worker(s.address)
    async with bundles_under_way(c, s, x, b) as (futures, _go, doing, told):
        await s.remove_worker(x.address, close=False, stimulus_id="test")
        assert await doing == {f.key for f in futures}
        assert [decision for decision, _ in told] == ["not-moved"] and "lost with the worker" in told[0][1]
    await x.close()
    await async_poll_for(lambda: not b.plugins[BundlePlugin.name]._fetching, 10)


@cluster3
async def test_the_target_dies_in_the_middle(c, s, a, b, d):
    x = await Worker(s.address)
    async with bundles_under_way(c, s, a, x) as (futures, go, doing, told):
        await x.close()
        assert await doing == {f.key for f in futures} and "takes nothing" in told[0][1]
        go()
        assert held_by(s, a) == {f.key for f in futures}
        assert sum(map(len, await c.gather(futures))) == 2000


@cluster3
async def test_the_target_pauses_in_the_middle(c, s, a, b, d):
    async with bundles_under_way(c, s, a, b, d) as (futures, go, doing, told):
        b.status = Status.paused
        assert await doing == {f.key for f in futures} and "takes nothing" in told[0][1]
        go()
        await async_poll_for(lambda: len(b.data) == 20, 5)
        s.extensions["amm"].run_once()
        assert held_by(s, a) | held_by(s, b) == {f.key for f in futures}
        # Asked now, it fetches them when it goes on, as Dask has it.
        more = await spread_out(c, d, 10, name="y")
        keys = [f.key for f in more]
        assert set(await compat.bring_together(s, b.address, d.address, keys)) == set(keys)
        compat.copy_to(s, b.address, keys, MOVE)
        await async_poll_for(lambda: b.state.fetch_count == 10, 5)
        b.status = Status.running
        await async_poll_for(lambda: held_by(s, b) >= {f.key for f in more}, 5)


@cluster3
async def test_released_in_the_middle(c, s, a, b, d):
    async with bundles_under_way(c, s, a, b) as (futures, go, doing, _):
        kept = {f.key for f in futures[::2]}
        for f in futures[1::2]:
            f.release()
        await async_poll_for(lambda: len(s.tasks) == 10, 5)
        go()
        assert await doing == set() and held_by(s, b) == kept
        await async_poll_for(lambda: set(b.data) == kept, 5)


@cluster3
async def test_a_task_on_the_target_needs_one_in_the_middle(c, s, a, b, d):
    """Dask fetches that one, and the bundle brings the others."""
    async with bundles_under_way(c, s, a, b) as (futures, go, doing, _):
        user = c.submit(len, futures[3], workers=[b.address])
        assert await user == 100
        assert one_by_one(a) == 1 and futures[3].key in b.data
        go()
        assert await doing == set() and held_by(s, b) == {f.key for f in (*futures, user)}


@cluster3
async def test_one_is_computed_again_on_the_target_in_the_middle(c, s, a, b, d):
    """What comes is not taken for what is made there."""
    async with bundles_under_way(c, s, a, b) as (futures, go, doing, _):
        key = futures.pop(3).key
        await async_poll_for(lambda: key not in s.tasks, 5)
        again = c.submit(blocked, "go", key=key, workers=[b.address])
        await async_poll_for(lambda: b.state.executing_count == 1, 5)
        go()
        await async_poll_for(lambda: len(b.data) == 19, 5)
        await Event("go").set()
        assert await doing <= {key}
        assert await again == b.address
        assert held_by(s, b) == {key, *(f.key for f in futures)}


@cluster3
async def test_used_on_the_source(c, s, a, b, d):
    async with bundles_under_way(c, s, a, b) as (futures, go, doing, _):
        user = c.submit(blocked, "go", futures[3], workers=[a.address])
        task = compat.find_task(s, futures[3].key)
        await async_poll_for(lambda: compat.is_used_on(task, a.address), 5)
        go()
        await async_poll_for(lambda: held_by(s, a) == {futures[3].key}, 5)
        assert not doing.done() and futures[3].key in a.data
        await Event("go").set()
        assert await user == a.address and await doing == set()
        assert held_by(s, b) >= {f.key for f in futures}


@cluster3
async def test_asked_again_it_waits_for_the_bundle(c, s, a, b, d):
    async with bundles_under_way(c, s, a, b) as (futures, go, doing, _):
        keys = [f.key for f in futures]
        assert not await compat.bring_together(s, b.address, a.address, keys)
        go()
        assert await doing == set() and not one_by_one(a) and a.plugins[Slow.name].asked == 1
        # What is there is left to Dask, which does nothing.
        assert set(await compat.bring_together(s, b.address, a.address, keys)) == set(keys)


@cluster3
async def test_nobody_else_is_asked_while_a_bundle_is_under_way(c, s, a, b, d, monkeypatch):
    looks = 0

    class Counting(moves._Carrying):
        def step(self, now):
            nonlocal looks
            looks += 1
            return super().step(now)

    monkeypatch.setattr(moves, "_Carrying", Counting)
    monkeypatch.setattr(moves, "_AGAIN", 0.0)
    async with bundles_under_way(c, s, a, b) as (futures, go, doing, _):
        looks = 0
        await async_poll_for(lambda: looks > 3, 5)
        assert await c.submit(len, "hear", workers=[b.address]) == 4  # so it would have heard
        assert not b.state.tasks.keys() & {f.key for f in futures}
        go()
        assert await doing == set() and not one_by_one(a)


@cluster3
async def test_bundles_end_in_the_middle(c, s, a, b, d, monkeypatch):
    """As when control is closed: the results come as in Dask, at once and not when they are late. One that
    is wanted no more does not."""
    monkeypatch.setattr(moves, "_AGAIN", 1e9)
    async with bundles_under_way(c, s, a, b) as (futures, _go, doing, _):
        futures.pop().release()
        await async_poll_for(lambda: len(s.tasks) == 19, 5)
        fetching = list(b.plugins[BundlePlugin.name]._fetching)
        await b.plugin_remove(name=BundlePlugin.name)
        await asyncio.wait(fetching, timeout=1)
        assert all(one.cancelled() for one in fetching)
        assert await doing == set() and held_by(s, b) == {f.key for f in futures}


class Odd:
    """Dask can send it, and it cannot be pickled."""

    def __reduce__(self):
        raise TypeError("not to be pickled")


@dask_serialize.register(Odd)
def _serialize(odd):
    return {}, []


@dask_deserialize.register(Odd)
def _deserialize(header, frames):
    return Odd()


@cluster3
async def test_what_is_large_or_few_or_odd_comes_as_in_dask(c, s, a, b, d):
    await bundles(c)
    for count, nbytes in ((20, 20_000), (3, 100)):
        before = one_by_one(a)
        futures = await spread_out(c, a, count, nbytes)
        blocks = await moves.blocks_on(s, [a.address])
        assert len(blocks) == count and await moves.carry_out(s, all_to(blocks, b), "", Told()) == set()
        assert one_by_one(a) > before and held_by(s, b) == {f.key for f in futures}
        del futures
        await async_poll_for(lambda: not s.tasks, 5)
    odd = [c.submit(Odd, key=f"odd-{i}", workers=[a.address]) for i in range(10)]
    await wait(odd)
    assert await moves.carry_out(s, all_to(await moves.blocks_on(s, [a.address]), b), "", Told()) == set()
    assert held_by(s, b) == {f.key for f in odd}


@pytest.mark.parametrize("who_has", ["source", "target"])
@cluster3
async def test_one_that_has_not_heard_of_bundles(c, s, a, b, d, who_has):
    await bundles(c, {"source": b, "target": a}[who_has])
    futures = await spread_out(c, a, 10)
    since = monotonic()
    assert await moves.carry_out(s, all_to(await moves.blocks_on(s, [a.address]), b), "", Told()) == set()
    assert held_by(s, b) == {f.key for f in futures} and one_by_one(a)
    assert monotonic() - since < 1.5  # they are asked for again after two seconds, where nobody answers


@cluster3
async def test_where_nobody_has_nobody_is_asked(c, s, a, b, d):
    futures = await spread_out(c, a, 10)
    with captured_logger("distributed.core") as log:
        assert await moves.carry_out(s, all_to(await moves.blocks_on(s, [a.address]), b), "", Told()) == set()
    assert held_by(s, b) == {f.key for f in futures} and "hpc_" not in log.getvalue()


@cluster3
async def test_nothing_is_left_behind(c, s, a, b, d):
    calls = {"hpc_bundle", "hpc_fetch"}
    async with await dask_hpc.manage(c):
        await async_poll_for(lambda: BundlePlugin.name in a.plugins, 5)
        assert a.handlers.keys() >= calls
    assert BundlePlugin.name not in a.plugins and not a.handlers.keys() & calls


@cluster3
async def test_who_leaves_is_not_told_what_it_no_longer_has_unless_it_stays(c, s, a, b, d):
    heard = Heard(a.stream_handlers, "remove-replicas")
    futures = await spread_out(c, a, 10)
    blocks, untold = await moves.blocks_on(s, [a.address]), {}
    assert await moves.carry_out(s, all_to(blocks, b), "", Told(), untold=untold) == set()
    assert not held_by(s, a) and len(a.data) == 10 and not heard.messages
    assert untold.keys() == {a.address} and set(untold[a.address]) == {f.key for f in futures}
    s.add_keys(worker=a.address, keys=[futures[0].key])  # it has come there again
    compat.remind_of_drops(s, a.address, untold[a.address])
    await async_poll_for(lambda: heard.messages, 5)
    assert set(a.data) == held_by(s, a) == {futures[0].key}
    compat.remind_of_drops(s, "tcp://gone:1", ["x"])
    assert sum(map(len, await c.gather(futures))) == 1000


@gen_cluster(
    client=True,
    nthreads=[("", 1)] * 2,
    worker_kwargs={"memory_limit": "10 MB"},
    config={
        "distributed.worker.memory.target": 1e-9,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": False,
        "distributed.worker.memory.terminate": False,
    },
)
async def test_who_leaves_and_has_spilled_is_told(c, s, a, b):
    futures = await spread_out(c, a, 10, 1000)
    await async_poll_for(lambda: compat.has_spilled(s, a.address), 5)
    untold = {}
    blocks = await moves.blocks_on(s, [a.address])
    assert await moves.carry_out(s, all_to(blocks, b), "", Told(), untold=untold) == set()
    assert not untold and held_by(s, b) == {f.key for f in futures}
    await async_poll_for(lambda: not a.data, 5)


@cluster3
async def test_who_is_refused_in_the_end_hears_what_it_no_longer_has(c, s, a, b, d):
    async with await dask_hpc.manage(c):
        futures = await spread_out(c, a, 10)
        leaving = plugin_of(s).control.leaving

        async def nobody(*args, **kwargs):
            return {}

        leaving._theirs = nobody  # Dask lets no worker go
        assert await c.retire_workers([a.address]) == {}
        await async_poll_for(lambda: not a.data, 5)
        assert held_by(s, b) | held_by(s, d) == {f.key for f in futures} and not held_by(s, a)
        assert await c.submit(len, futures[0], workers=[a.address]) == 100


@pytest.fixture
def small_results(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    import small_results

    yield small_results
    del sys.modules["small_results"]


@pytest.mark.timed
def test_ten_thousand_leave(small_results):
    """In less than half of plain Dask's time for the same ones, and no step is half as long as its longest.
    What 100,000 take in seconds ``small_results.py`` says, on an idle machine."""
    with forked_nannies():
        plain = small_results.leave(10_000, way="dask", scattered=True)
        for way in ("retire", "sigterm"):
            ours = small_results.leave(10_000, way=way, scattered=True)
            assert ours.lost == 0
            assert ours.total < plain.total / 2
            assert ours.step < plain.step / 2
