"""Nodes one by one: who has them, which are not there for jobs and why, and how they are."""

import dask
import pytest
from distributed import Event
from distributed.utils_test import async_poll_for
from small_cluster import blocked, cluster4, plugin_of, until

import dask_hpc
from dask_hpc import InputError
from dask_hpc.model.node import Borrower, Lent
from dask_hpc.view.course import Course


async def by_name(m):
    return {row["name"]: row for row in (await m.feed(parts=["machines"]))["machines"]}


async def marked(m, course):
    course.add(await m.feed(**course.wants(jobs=True, parts=())))
    names = list(course.numbers)
    return [
        [[name for first, last in where for name in names[first : last + 1]], state, why]
        for where, state, why in course.whole()["marked"]
    ]


@cluster4
async def test_what_is_said_of_each_node(c, s, *workers):
    with dask.config.set({"hpc.power-meter": "simulated", "hpc.power-interval": 0.05}):
        m = await dask_hpc.manage(c, "fcfs")
    async with m:
        with dask_hpc.job("a", nodes=2) as job:
            futures = [c.submit(blocked, "go", n, pure=False) for n in range(2)]
            a = await until(s, "a", "running")
        found = await by_name(m)
        assert len(found) == 4 and all(row["health"] == "ok" for row in found.values())
        assert {name for name, row in found.items() if row["job"] == job.id} == set(a.nodes)
        assert [row["state"] for row in found.values()].count("busy") == 2
        one = found[a.nodes[0]]
        assert one["workers"] == plugin_of(s).context.nodes.workers(a.nodes[0]) and one["threads"] == 1
        assert one["memory"] > 0 and one["memory_limit"] > 0 and one["watts"] is None
        await m.set("power-corridor")
        await async_poll_for(lambda: plugin_of(s).control.indices.power is not None, 10)
        assert (await by_name(m))[a.nodes[0]]["watts"] > 0
        await Event("go").set()
        await c.gather(futures)


@cluster4
async def test_a_worker_that_is_not_well(c, s, *workers):
    async with await dask_hpc.manage(c, "fcfs") as m:
        silent, paused, spills, full = (s.workers[w.address] for w in workers)
        silent.last_seen -= 60
        plugin_of(s).control.holds._worker_says(paused.address, "paused")
        spills.metrics["spilled_bytes"] = {"memory": 10, "disk": 10}
        spills.nbytes = 100
        full.metrics["memory"] = int(0.9 * full.memory_limit)
        found = {row["workers"][0]: row["health"] for row in (await by_name(m)).values()}
        assert found[silent.address].startswith("silent 6")
        assert found[paused.address] == "paused" and found[spills.address] == "spilling"
        assert found[full.address] == "memory 90%"
        spills.nbytes = 0


@cluster4
async def test_nodes_are_held_and_drained_by_their_names(c, s, *workers):
    async with await dask_hpc.manage(c, "fcfs") as m:
        course = Course()
        assert await marked(m, course) == []
        with dask_hpc.job("a", nodes=2):
            futures = [c.submit(blocked, "go", n, pure=False) for n in range(2)]
            a = await until(s, "a", "running")
        idle = next(name for name in plugin_of(s).context.nodes if name not in a.nodes)
        assert (await m.hold([idle], "a look"))["held"]
        held = await m.drain([a.nodes[0]])
        assert held["held"] == plugin_of(s).context.nodes.workers(a.nodes[0])
        found = await marked(m, course)
        assert sorted(found) == sorted([[[idle], "hold", "a look"], [[a.nodes[0]], "hold", "drain"]])
        assert (await by_name(m))[a.nodes[0]]["why"] == "drain"
        await Event("go").set()
        await c.gather(futures)
        await until(s, "a", "done")
        assert [[a.nodes[0]], "drained", "drain"] in await marked(m, course)
        assert (await by_name(m))[a.nodes[0]]["state"] == "drained"
        assert (await by_name(m))[a.nodes[0]]["health"] == "ok"
        await m.release([a.nodes[0], idle], None)
        assert await marked(m, course) == []
        indices = plugin_of(s).control.indices
        indices.borrowers["copies"] = Borrower((Lent(idle),))
        assert await marked(m, course) == [[[idle], "lent", "copies"]]
        del indices.borrowers["copies"]
        with pytest.raises(InputError, match="workers that are connected"):
            await m.hold(["no such node"])


@cluster4
async def test_a_node_that_leaves_looks_so_and_ends_where_it_left(c, s, *workers):
    async with await dask_hpc.manage(c, "fcfs") as m:
        course = Course()
        await marked(m, course)
        address = workers[0].address
        name = plugin_of(s).context.nodes.node_of(address)
        futures = [c.submit(blocked, "go", n, pure=False) for n in range(4)]
        await async_poll_for(lambda: s.workers[address].processing, 10)
        leaves = c.loop.asyncio_loop.create_task(c.retire_workers([address]))
        await async_poll_for(lambda: address in plugin_of(s).control.leaving.addresses, 10)
        assert [[name], "leaving", "it is leaving"] in await marked(m, course)
        await Event("go").set()
        await c.gather(futures)
        await leaves
        await async_poll_for(lambda: address not in s.workers, 10)
        assert await marked(m, course) == [] and course.head["nodes"] == 3
        number = course.numbers[name]
        joined, left = course.whole()["presence"]
        assert joined[1:] == ["joined", [[0, 3]]] and left[1:] == ["left", [[number, number]]]
        assert joined[0] <= left[0] <= course.head["time"]
