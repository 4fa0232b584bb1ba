"""Blocks on their way: whoever breaks off, or sends something else, leaves nothing held and nothing wrong."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest
from distributed.utils_test import async_poll_for
from small_agents import PART, agent_of, agents3, little_parts, results, start, value, wanted

from dask_hpc.checkpoint.worker import transfer
from dask_hpc.checkpoint.worker.block import Block
from dask_hpc.checkpoint.worker.kept import KeptCopies
from dask_hpc.checkpoint.worker.transfer import AgentTraffic, Giver, Window, fetch

LARGE = 5 * PART


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def blocking(worker, name, after=0):
    """A remote call that answers nothing any more after so many times, until the event is set."""
    go, there, call, count = asyncio.Event(), asyncio.Event(), worker.handlers[name], [0]

    async def waits(*args, **kwargs):
        count[0] += 1
        if count[0] > after:
            there.set()
            await go.wait()
        return await call(*args, **kwargs)

    worker.handlers[name] = waits
    return go, there


def is_free(agent):
    return agent.kept._coming == [0, 0] and agent._window.taken == 0 and not agent.giver.held


@agents3
async def test_whoever_is_cancelled_holds_nothing(c, s, a, b, d):
    agent, other, _ = await start(c, a, b, d)
    little_parts(agent, other)
    some = await results(c, b, LARGE, 10, LARGE)
    go, there = blocking(b, "hpc_agent_part", after=2)
    taking = asyncio.ensure_future(agent.take(wanted(some, b)))
    await there.wait()
    assert not is_free(agent) and other.giver.held
    taking.cancel()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await taking
    assert is_free(agent)
    other.giver.forget(-1)  # it may have been about to answer
    assert is_free(other)
    found = await agent.take(wanted(some, b))  # and all goes on as before
    assert [one["nbytes"] for one in found] == [LARGE, 10, LARGE]


@agents3
async def test_a_reader_that_dies(c, s, a, b, d):
    _, other, _ = await start(c, a, b, d)
    little_parts(other)
    (one,) = await results(c, b, LARGE)
    said = await s.rpc(b.address).hpc_agent_offers(wanted=[{"key": one.key}])
    (offer,) = said["offers"]
    await s.rpc(b.address).hpc_agent_part(reading=offer["reading"], begin=0, end=PART)
    other.giver.forget(60)
    assert other.giver.held == LARGE
    other.giver.forget(-1)
    assert other.giver.held == 0
    said = await s.rpc(b.address).hpc_agent_part(reading=offer["reading"], begin=PART, end=2 * PART)
    assert "gone" in said


@agents3
async def test_a_sender_that_dies(c, s, a, b, d):
    agent, other, _ = await start(c, a, b, d)
    little_parts(agent, other)
    (one,) = await results(c, b, LARGE)
    go, there = blocking(b, "hpc_agent_part", after=2)
    sending = asyncio.ensure_future(other.send([{"key": one.key}], a.address))
    await there.wait()
    assert agent.kept._coming == [LARGE, 0]
    await b.close()
    go.set()
    await asyncio.gather(sending, return_exceptions=True)
    await async_poll_for(lambda: is_free(agent), 10)
    assert not len(agent.kept)


@agents3
async def test_what_a_neighbour_gathers_is_held_no_longer_than_it_is_fetched(c, s, a, b, d):
    agent, other, _ = await start(c, a, b, d)
    little_parts(agent, other)
    some = await results(c, d, LARGE, 10)
    found = await other.send(wanted(some, d), a.address)
    assert [one["moved"] for one in found] == [LARGE, 10] and not other.giver.gathered
    again = await other.send(
        [one | {"have": [f["content"] for f in found]} for one in wanted(some, d)], a.address
    )
    assert [one["moved"] for one in again] == [0, 0]
    await agent.drop([found[0]["content"]])  # and it is said so, if it has it no longer
    again = await other.send(
        [one | {"have": [f["content"] for f in found]} for one in wanted(some, d)], a.address
    )
    assert "error" in again[0] and again[1]["moved"] == 0 and not other.giver.gathered


@pytest.mark.parametrize("way", ["take", "send"])
def test_damage_on_the_way(way):
    """What is damaged once comes again; what always is never becomes a copy."""

    @agents3
    async def run(c, s, a, b, d):
        agent, other, _ = await start(c, a, b, d)
        little_parts(agent, other)
        some = await results(c, b, LARGE, 10)
        call, damages = b.handlers["hpc_agent_part"], [1]

        async def damaged(**kwargs):
            found = await call(**kwargs)
            if damages and found["parts"]:
                damages.pop()
                found["parts"] = [np.zeros(PART, np.uint8) + 9]
            return found

        b.handlers["hpc_agent_part"] = damaged
        for number in (1, 1000):
            damages[:] = [1] * number
            if way == "take":
                found = await agent.take(wanted(some, b))
            else:
                found = await other.send([{"key": one.key} for one in some], a.address)
            if number == 1:
                assert (value(agent, found[0]["content"]) == 0).all()
                await agent.drop([found[0]["content"]])
            else:
                assert "Damaged" in found[0]["error"]
            assert (value(agent, found[1]["content"]) == 1).all()
            assert len(agent.kept) == 1 and is_free(agent)

    run()


@agents3
async def test_a_copy_that_is_another_one(c, s, a, b, d):
    agent, *_ = await start(c, a, b, d)
    first, second = await agent.take(wanted(await results(c, b, 100, 100), b))
    agent.kept._blocks[first["content"]] = agent.kept.get(second["content"])
    (found,) = await agent_of(d).take([{"content": first["content"], "source": a.address}])
    assert "asked for" in found["error"] and not len(agent_of(d).kept)


@agents3
async def test_one_source_is_dead_and_the_others_are_not(c, s, a, b, d):
    agent, *_ = await start(c, a, b, d)
    mine, theirs = await results(c, b, *[100] * 50), await results(c, d, 200, name="y")
    del d.handlers["hpc_agent_offers"]
    found = await agent.take([*wanted(mine, b), *wanted(theirs, d)])
    assert all(one["nbytes"] == 100 for one in found[:-1]) and "error" in found[-1]
    await b.close()
    assert (await agent.take(wanted(theirs, d)))[0]["error"]


async def _together(window, sizes):
    most = [0]

    async def one(size):
        async with window.room(size):
            most[0] = max(most[0], window.taken)
            await asyncio.sleep(0)

    await asyncio.gather(*map(one, sizes))
    return most[0]


@pytest.mark.parametrize("sizes", [[1, 2, 3], [10, 10], [25, 1, 30], [3] * 50])
def test_a_window_is_never_exceeded_and_all_get_through(sizes):
    window = Window(10)
    assert asyncio.run(_together(window, sizes)) <= 10
    assert window.taken == 0


class Broken:
    """A worker that is there, and answers with an error."""

    def __init__(self):
        self.asked = 0

    async def hpc_agent_offers(self, wanted):
        self.asked += 1
        raise RuntimeError("broken")

    async def identity(self):
        return {}


def test_a_block_is_asked_for_three_times(monkeypatch):
    monkeypatch.setattr(transfer, "pause", lambda tried: 0)
    broken = Broken()
    with pytest.raises(RuntimeError, match="broken"):
        asyncio.run(fetch(broken, {"key": "x"}))
    assert broken.asked == 3


def giver_of(**results):
    giver = Giver(SimpleNamespace(data=results), KeptCopies(1e6), AgentTraffic())
    giver.chunk = PART
    return giver


def test_a_block_that_was_read_to_its_end_is_held_no_longer():
    async def read():
        giver, large = giver_of(), Block.of(np.zeros(LARGE, np.uint8))
        giver.gathered[large.content] = large
        (offer,) = (await giver.offers([{"content": large.content}]))["offers"]
        held = []
        for begin in range(0, LARGE, PART):
            held.append(giver.held)
            await giver.part(offer["reading"], begin, begin + PART)
        return [*held, giver.held]

    assert asyncio.run(read()) == [LARGE] * 5 + [0]


@pytest.mark.parametrize("is_changed", [False, True])
def test_the_content_of_a_result_that_changed_meanwhile_is_not_remembered(monkeypatch, is_changed):
    giver, found = giver_of(x=5), transfer._block

    def finds(value, content):
        if is_changed:
            giver.changed("x")
        return found(value, content)

    monkeypatch.setattr(transfer, "_block", finds)
    asyncio.run(giver._find([{"key": "x"}]))
    assert ("x" in giver._content) != is_changed


def test_traffic_is_forgotten_when_it_is_old_and_no_sooner():
    clock = Clock()
    traffic = AgentTraffic(clock)
    traffic.came(50)
    clock.now += 9
    traffic.came(70)
    clock.now += 2
    assert traffic.facts()["traffic"] == 7.0 and traffic.facts()["commits"] == 0.1


def test_traffic_of_late():
    clock = Clock()
    traffic = AgentTraffic(clock)
    for _ in range(20):
        traffic.came(50)
        clock.now += 0.25
    traffic.went(7)
    assert traffic.facts() == {
        "bytes_in": 1000,
        "bytes_out": 7,
        "traffic": pytest.approx(100.7),
        "commits": 2.0,
    }
    clock.now += 11
    assert traffic.facts() == {"bytes_in": 1000, "bytes_out": 7, "traffic": 0, "commits": 0}
