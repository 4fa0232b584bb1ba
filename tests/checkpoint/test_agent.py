"""An agent on a worker: what it takes, sends, keeps and gives, and what it says of itself."""

import asyncio
import threading

import numpy as np
import pytest
from distributed.utils_test import async_poll_for
from small_agents import PART, agent_of, agents3, little_parts, results, start, value, wanted

from dask_hpc import dask as compat
from dask_hpc.checkpoint.worker.agent import METRIC, SAYS
from dask_hpc.checkpoint.worker.block import Block
from dask_hpc.checkpoint.worker.kept import Shelf
from dask_hpc.strategies.checkpoint.agents import AgentNode

SIZES = [0, 1, 700, 400, PART, PART + 1, 5 * PART + 7, 30]


def counted(worker, name):
    """How often a remote call came."""
    calls, call = [], worker.handlers[name]

    async def counting(*args, **kwargs):
        calls.append(kwargs)
        return await call(*args, **kwargs)

    worker.handlers[name] = counting
    return calls


@pytest.mark.parametrize("way", ["take", "send"])
def test_what_comes_is_what_was_there(way):

    @agents3
    async def run(c, s, a, b, d):
        agent, other, _ = await start(c, a, b, d)
        little_parts(agent, other)
        some = await results(c, b, *SIZES)
        if way == "take":
            found = await s.rpc(a.address).hpc_agent_take(blocks=wanted(some, b))
        else:
            found = await s.rpc(b.address).hpc_agent_send(blocks=[{"key": f.key} for f in some], to=a.address)
        for number, (size, one) in enumerate(zip(SIZES, found, strict=True)):
            assert one["nbytes"] == one["moved"] == size
            np.testing.assert_array_equal(value(agent, one["content"]), np.full(size, number, np.uint8))
        assert agent.traffic.bytes_in == other.traffic.bytes_out == sum(SIZES) == agent.kept.nbytes
        assert other.giver.held == 0
        assert not {key for key in a.data if "x-" in key}  # copies are no results

    run()


@agents3
async def test_many_small_blocks_come_in_few_messages(c, s, a, b, d):
    agent, *_ = await start(c, a, b, d)
    some = await results(c, b, *[10_000] * 200)
    calls = counted(b, "hpc_agent_offers")
    found = await agent.take(wanted(some, b))
    assert sum(one["moved"] for one in found) == 2_000_000 and len(agent.kept) == 200
    assert len(calls) <= 20


@agents3
async def test_what_is_unchanged_does_not_come_again(c, s, a, b, d):
    agent, *_ = await start(c, a, b, d)
    some = await results(c, b, 100, 200)
    first = await agent.take(wanted(some, b))
    contents = [one["content"] for one in first]
    asked = [one | {"have": [contents[1], contents[0], "xxh3:00"]} for one in wanted(some, b)]
    again = await agent.take(asked)
    assert [one["moved"] for one in again] == [0, 0]
    assert [one["content"] for one in again] == contents
    # what it has not any longer it does get
    await agent.drop(contents[:1])
    assert [one["moved"] for one in await agent.take(asked)] == [100, 0]
    # and one that is asked for by its content
    sources = [{"content": content, "source": a.address} for content in contents]
    third = agent_of(d)
    assert [one["moved"] for one in await third.take(sources)] == [100, 200]
    assert [one["moved"] for one in await third.take(sources)] == [0, 0]


@agents3
async def test_a_content_is_found_once_and_again_if_the_result_is_another_one(c, s, a, b, d):
    agent, other, _ = await start(c, a, b, d)
    (one,) = await results(c, b, 100)
    await agent.take(wanted([one], b))
    assert set(other.giver._content) == {one.key}
    b.kept_futures.clear()
    one.release()
    await async_poll_for(lambda: not b.data, 5)
    assert not other.giver._content
    assert "is not here" in (await agent.take([{"key": "x-0", "source": b.address}]))[0]["error"]
    await c.scatter({"x-0": np.arange(3)}, workers=[b.address])
    (found,) = await agent.take([{"key": "x-0", "source": b.address}])
    np.testing.assert_array_equal(value(agent, found["content"]), np.arange(3))


@agents3
async def test_a_result_that_was_changed_in_place(c, s, a, b, d):
    """Dask forbids it, and a copy of what it is now is better than none."""
    agent, *_ = await start(c, a, b, d)
    (one,) = await results(c, b, 100)
    await agent.take(wanted([one], b))
    b.data[one.key][5] = 77
    (found,) = await agent.take(wanted([one], b))
    assert value(agent, found["content"])[5] == 77


class Noted:
    """Notes in which threads it is pickled."""

    threads: set[str] = set()

    def __reduce__(self):
        self.threads.add(threading.current_thread().name)
        return str, ()


@agents3
async def test_nothing_long_is_done_in_the_event_loop(c, s, a, b, d):
    agent, *_ = await start(c, a, b, d)
    b.update_data({"noted": Noted()})
    Noted.threads.clear()
    (found,) = await agent.take([{"key": "noted", "source": b.address}])
    assert found["content"].startswith("blake2b:")
    assert Noted.threads and threading.current_thread().name not in Noted.threads


@agents3
async def test_one_worker_sends_for_its_neighbours(c, s, a, b, d):
    await start(c, a, b, d)
    mine, theirs = await results(c, b, 100, 200), await results(c, d, 300, 400, name="y")
    blocks = [*wanted(theirs, d), *wanted(mine, b), {"key": "none"}, {"key": "none", "source": d.address}]
    found = await agent_of(b).send(blocks=blocks, to=a.address)
    assert [one.get("nbytes") for one in found] == [300, 400, 100, 200, None, None]
    assert all("is not here" in one["error"] for one in found[-2:])
    assert not len(agent_of(b).kept)


@agents3
async def test_no_room(c, s, a, b, d):
    agent, other, _ = await start(c, a, b, d)
    some = await results(c, b, 600, 700)
    for agent.kept.shelf.budget in (0, 100):
        agent.kept.budget = 1000
        found = await agent.take(wanted(some, b))
        said = await other.send(blocks=[{"key": some[1].key}], to=a.address)
        assert ["full" in one for one in found].count(True) == 1
        assert agent.kept.nbytes in (600, 700) and not agent.kept.on_disk
        assert "full" in said[0] or agent.kept.nbytes == 700


@agents3
async def test_no_room_for_a_large_block_is_said_before_it_comes(c, s, a, b, d):
    agent, other, _ = await start(c, a, b, d)
    little_parts(agent, other)
    agent.kept.budget, agent.kept.shelf.budget = 2 * PART, 0
    some = await results(c, b, 3 * PART)
    (found,) = await agent.take(wanted(some, b))
    (said,) = await other.send(blocks=[{"key": some[0].key}], to=a.address)
    assert "do not fit" in found["full"] and "do not fit" in said["full"]
    assert other.traffic.bytes_out == 0 and other.giver.held == 0


@agents3
async def test_copies_give_way_to_results(c, s, a, b, d):
    agent, *_ = await start(c, a, b, d)
    found = await agent.take(wanted(await results(c, b, 1000, 3000, 2000), b))
    limit = a.memory_manager.memory_limit
    a.monitor.get_process_memory = lambda: 0.64 * limit
    await agent.take([])
    assert agent.kept.nbytes == 6000 and agent.kept.allowed > 6000
    a.monitor.get_process_memory = lambda: 0.65 * limit + 1500  # as if by results
    await async_poll_for(lambda: agent.kept.nbytes == 3000, 5)
    a.monitor.get_process_memory = lambda: 0.69 * limit
    await async_poll_for(lambda: agent.kept.nbytes == 0, 5)
    assert agent.kept.on_disk > 6000 and len(agent.kept) == 3
    for number, one in enumerate(found):
        assert (value(agent, one["content"]) == number).all()
    # new ones go to disk at once, and are given out from there
    (new,) = await agent.take(wanted(await results(c, b, 10, 500, name="y"), b)[1:])
    assert agent.kept.nbytes == 0
    (there,) = await agent_of(d).take([{"content": new["content"], "source": a.address}])
    assert there["moved"] == 500
    assert a.status.name == "running"


@agents3
async def test_a_full_disk_is_told_once(c, s, a, b, d):
    agent, *_ = await start(c, a, b, d)
    await agent.take(wanted(await results(c, b, 1000, 2000), b))
    agent.kept.shelf.budget = 0
    a.monitor.get_process_memory = lambda: a.memory_manager.memory_limit
    await async_poll_for(lambda: s.get_events(SAYS), 30)
    (full,) = await agent.take(wanted(await results(c, b, 100, name="y"), b))
    assert "neither into memory nor on disk" in full["full"]
    for _ in range(3):
        await asyncio.sleep(0)
    assert len(agent.kept) == 2  # what is there stays
    assert [said["says"] for _, said in s.get_events(SAYS)] == [
        "no more copies on disk: the disk's budget is used up"
    ]
    assert (await agent._facts(a))["trouble"]


@agents3
async def test_kept_on_disk_too(c, s, a, b, d):
    agent, *_ = await start(c, a, b, d)
    contents = [one["content"] for one in await agent.take(wanted(await results(c, b, 100, 200), b))]
    said = await s.rpc(a.address).hpc_agent_keep(contents=[*contents, "xxh3:00"])
    assert list(said["disk"]) == contents and said["trouble"] == {"xxh3:00": "it is not here"}
    assert agent.kept.nbytes == 300 and len(agent.kept) == 2 and agent.kept.on_disk > 300
    await agent.drop(contents)
    assert agent.kept.on_disk == 0 and not len(agent.kept)


def plus(number):
    return lambda value: {"sum": float(value.sum()) + number}


@agents3
async def test_functions_are_called_with_copies(c, s, a, b, d):
    agent, *_ = await start(c, a, b, d)
    some = await results(c, b, 10, 20)
    first, second = await agent.take(wanted(some, b))
    call = compat.pickled(plus(0.5))
    rpc = s.rpc(a.address)
    assert await rpc.hpc_agent_run(content=second["content"], call=call) == {"result": {"sum": 20.5}}
    assert await s.rpc(b.address).hpc_agent_run(key=some[1].key, call=call) == {"result": {"sum": 20.5}}
    wrong = compat.pickled(lambda value: value.nonsense)
    assert (
        "has no attribute 'nonsense'"
        in (await rpc.hpc_agent_run(content=second["content"], call=wrong))["error"]
    )
    assert (await rpc.hpc_agent_run(content="xxh3:00", call=call))["gone"]
    agent.kept.get(second["content"]).pieces[0][3] ^= 1
    assert "damaged" in (await rpc.hpc_agent_run(content=second["content"], call=call))["error"]
    assert first["content"] in agent.kept and second["content"] not in agent.kept


@agents3
async def test_what_it_says_of_itself(c, s, a, b, d):
    agent, other, _ = await start(c, a, b, d)
    await agent.take(wanted(await results(c, b, 1000, 2000), b))
    await a.heartbeat()
    said = dict(compat.metrics(s, METRIC))[a.address]
    node = AgentNode(
        a.address,
        said["budget"],
        said["used"],
        traffic=said["traffic"],
        commits=said["commits"],
        idle_for=said["idle_for"],
    )
    assert node.used == 3000 and node.budget > node.used and node.traffic > 0 and node.commits > 0
    assert said["disk_budget"] == agent.kept.shelf.budget > 0
    assert said["copies"] == 2 and said["bytes_in"] == 3000 and node.idle_for == 0
    assert (await other._facts(b))["bytes_out"] == 3000 and (await other._facts(b))["idle_for"] > 0


@agents3
async def test_the_service_ends_and_leaves_nothing(c, s, a, b, d):
    agent, *_ = await start(c, a, b, d)
    contents = [one["content"] for one in await agent.take(wanted(await results(c, b, 100), b))]
    await agent.keep(contents)
    folder = agent._scratch.path
    assert list(folder.glob("*.copy"))
    await c.unregister_worker_plugin("dask-hpc-agent")
    assert not folder.exists()
    assert METRIC not in a.metrics and not [name for name in a.handlers if name.startswith("hpc_agent")]


@agents3
async def test_where_no_folder_can_be_made(c, s, a, b, d):
    agent, *_ = await start(c, a, b, d)
    agent._disk = "/proc/none"
    agent.kept.shelf = Shelf()
    await agent._begin()
    await async_poll_for(lambda: s.get_events(SAYS), 5)
    assert "keeps no copies on disk" in s.get_events(SAYS)[0][1]["says"]
    (found,) = await agent.take(wanted(await results(c, b, 100), b))
    assert found["moved"] == 100


@agents3
async def test_an_error_at_the_source_is_answered(c, s, a, b, d):
    agent, *_ = await start(c, a, b, d)

    class Broken:
        def __reduce__(self):
            raise RuntimeError("cannot be pickled")

    b.update_data({"broken": Broken(), "good": 5})
    found = await agent.take([{"key": key, "source": b.address} for key in ("good", "broken")])
    assert found[0]["content"] == Block.of(5).content
    assert "cannot be pickled" in found[1]["error"]
