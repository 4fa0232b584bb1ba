"""A live cluster whose nodes are joined by links that a file tells of: what jobs send, and what they get."""

import os
import socket
from unittest.mock import patch

import numpy as np
import pytest
from distributed import Event, Worker, get_worker
from distributed.utils_test import async_poll_for, gen_cluster
from small_cluster import blocked, plugin_of, until

import dask_hpc
from dask_hpc import InputError, Policy
from dask_hpc.checkpoint.scheduler.controller import NAME
from dask_hpc.network import scheduler as network
from dask_hpc.network.scheduler import NetworkWatch
from dask_hpc.network.worker import METRIC

#: two switches, and narrow links up from them
FILE = "tree: {left: [0, 1], right: [2, 3]}\nbandwidths: {level1: 4 MB/s}\nport: 100 MB/s\n"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "topology.yaml"
    path.write_text(FILE)
    return path


def on_cluster(topology, test, workers=4, **config):
    """Run it on a new cluster with that topology."""
    config = {"hpc.topology": None if topology is None else str(topology), "hpc.history": None, **config}
    config["distributed.scheduler.worker-ttl"] = None

    @gen_cluster(client=True, nthreads=[("", 2)] * workers, config=config)
    async def run(c, s, *workers):
        await test(c, s, workers)

    run()


def watch_of(s):
    return plugin_of(s).context.find(NetworkWatch)


async def placed(s, count=4):
    nodes = plugin_of(s).control.indices.nodes
    await async_poll_for(lambda: sum(bool(node.place) for node in nodes.values()) == count, 10)


def policy(name):
    return Policy.load("fcfs").with_(**{"nodes.strategy": name})


def block(size, event=None):
    if event:
        Event(event).wait(60)
    return np.zeros(size, np.uint8)


def take(block):
    return len(block), get_worker().address


# what is sent


def test_what_a_job_sends_is_measured(path):
    async def test(c, s, workers):
        async with await dask_hpc.manage(c, policy("first")) as manager:
            await placed(s)
            with dask_hpc.job("j", nodes=2) as job:
                one = c.submit(block, 3_000_000, workers=[workers[0].address], key="one")
                two = c.submit(take, one, workers=[workers[1].address], key="two")
                waits = c.submit(blocked, "go", workers=[workers[1].address], key="waits")
            found = await until(s, "j", "running")
            await async_poll_for(lambda: found.model.traffic, 20)
            flow = watch_of(s)._flows[found]
            assert flow.nbytes == s.tasks["one"].nbytes >= 3_000_000
            assert found.model.traffic == pytest.approx(flow.nbytes / flow.seconds / 2, rel=0.2)
            told = (await manager.status())["network"]
            assert told["jobs"][found.id]["is_measured"] and told["jobs"][found.id]["theta"] == 1.0
            # of the part of the machine that both are in nothing goes up
            assert (await job.status())["theta"] == 1.0
            # as time goes by without anything being sent, less was sent
            first = found.model.traffic
            await async_poll_for(lambda: found.model.traffic < 0.8 * first, 20)
            await Event("go").set()
            await c.gather([two, waits])
            await until(s, "j", "done")
            assert (await job.status())["theta"] is None
            # the next one of that name is taken to send as much
            with dask_hpc.job("j", nodes=2):
                three = c.submit(blocked, "more")
            again = await until(s, "j", "running")
            assert again is not found and again.model.traffic > 0
            await Event("more").set()
            await three
        assert all(METRIC not in w.plugins and METRIC not in w.metrics for w in workers)

    on_cluster(path, test)


def test_what_comes_from_other_jobs_and_within_a_node_does_not_count(path):
    async def test(c, s, workers):
        async with await dask_hpc.manage(c, policy("first")):
            await placed(s)
            with dask_hpc.job("a", nodes=1):
                one = c.submit(block, 2_000_000, key="one")
                stays = c.submit(blocked, "go", key="stays")
            await one
            with dask_hpc.job("b", nodes=2):
                two = c.submit(take, one, key="two")
                waits = c.submit(blocked, "go", key="waits")
            found = await until(s, "b", "running")
            await async_poll_for(lambda: any(w.transfer_incoming_log for w in workers), 20)
            heard = watch_of(s)._heard
            await async_poll_for(lambda: any(one.values() for one in heard.values()), 20)
            await async_poll_for(lambda: found.model.traffic is not None, 20)
            assert found.model.traffic == 0.0 and watch_of(s)._flows[found].nbytes == 0
            await Event("go").set()
            await c.gather([two, waits, stays])

    on_cluster(path, test)


def test_what_stays_on_a_host_does_not_count(tmp_path):
    path = tmp_path / "topology.yaml"
    path.write_text("left: [127.0.0.1]\nright: [127.0.0.2]\n")
    config = {"hpc.topology": str(path), "hpc.node": "host", "hpc.history": None}

    @gen_cluster(client=True, nthreads=[("127.0.0.1", 2), ("127.0.0.1", 2), ("127.0.0.2", 2)], config=config)
    async def run(c, s, a, b, d):
        async with await dask_hpc.manage(c, policy("first")):
            await placed(s, 2)
            with dask_hpc.job("j", nodes=2):
                one = c.submit(block, 3_000_000, workers=[a.address], key="one")
                two = c.submit(take, one, workers=[b.address], key="two")
                small = c.submit(block, 1_000_000, workers=[d.address], key="small")
                three = c.submit(take, small, workers=[a.address], key="three")
                waits = c.submit(blocked, "go", workers=[b.address], key="waits")
            found = await until(s, "j", "running")
            await async_poll_for(lambda: found.model.traffic, 20)
            heard = watch_of(s)._heard
            await async_poll_for(lambda: heard.get(b.address) and heard.get(a.address), 20)
            assert watch_of(s)._flows[found].nbytes == s.tasks["small"].nbytes
            await Event("go").set()
            await c.gather([two, three, waits])

    run()


def test_on_other_nodes_it_is_measured_anew(path):
    async def test(c, s, workers):
        async with await dask_hpc.manage(c, Policy.load("elastic")):
            await placed(s)
            with dask_hpc.job("j", nodes=1, max_nodes=2, kind="evolving") as job:
                one = c.submit(blocked, "go", key="one")
                found = await until(s, "j", "running")
                flows, alone = watch_of(s)._flows, found.nodes
                await async_poll_for(lambda: found in flows and flows[found].seconds > 0, 20)
                assert flows[found].nodes == alone
                await job.request(1)
                await async_poll_for(lambda: len(found.nodes) == 2, 20)
                before = flows[found].seconds
                await async_poll_for(lambda: flows[found].nodes == found.nodes, 20)
                assert flows[found].seconds <= before
                await Event("go").set()
                await one
                # it has nothing to do now, and that does not count
                watch = watch_of(s)
                await looked(watch)
                seconds = watch._flows[found].seconds
                await looked(watch)
                assert watch._flows[found].seconds == seconds

    on_cluster(path, test)


async def looked(watch):
    """It has listened once more, to the end."""
    before = watch._listened
    await async_poll_for(lambda: watch._listened > before, 20)


def test_what_its_user_says_is_so(path):
    async def test(c, s, workers):
        async with await dask_hpc.manage(c, policy("spread")) as manager:
            await placed(s)
            with dask_hpc.job("j", nodes=2, traffic="8 MB/s") as job:
                waits = c.submit(blocked, "go")
            found = await until(s, "j", "running")
            assert found.nodes == ("0", "2"), "one on each switch"
            await async_poll_for(lambda: watch_of(s)._flows and watch_of(s)._flows[found].seconds > 1.5, 20)
            told = (await manager.status())["network"]
            assert told["jobs"] == {found.id: {"traffic": 8e6, "is_measured": False, "theta": 0.5}}
            assert [(one["bandwidth"], one["is_assumed"]) for one in told["levels"]] == [
                (4e6, False), (100e6, False),
            ]  # fmt: skip
            row = await job.status()
            assert (row["traffic"], row["theta"]) == (8e6, 0.5)
            samples = watch_of(s).samples({"network": told})
            assert samples["network_theta"] == {"mean": 0.5, "least": 0.5}
            assert samples["network_traffic_bytes"] == {"": 16e6}
            await Event("go").set()
            await waits
            assert watch_of(s).samples(await manager.status()) == {
                "network_theta": {}, "network_traffic_bytes": {},
            }  # fmt: skip

    on_cluster(path, test)


def test_a_traffic_that_is_none_is_refused():
    for wrong in ("3 W", -1, "inf", True):
        with pytest.raises(InputError, match="traffic"):
            dask_hpc.job("j", traffic=wrong)


# where jobs go


def test_least_congested_goes_where_others_are_not_in_its_way(path):
    async def test(c, s, workers):
        async with await dask_hpc.manage(c, policy("first")) as manager:
            await placed(s)
            with dask_hpc.job("a", nodes=1):
                first = c.submit(blocked, "a")
            await until(s, "a", "running")
            await manager.set(**{"nodes.strategy": "least-congested"})
            with dask_hpc.job("b", nodes=2, traffic="8 MB/s"):
                two = c.submit(blocked, "b")
            assert (await until(s, "b", "running")).nodes == ("2", "3")
            assert "picked" not in {row["decision"] for row in await manager.story()}, "as contiguous would"
            await Event("a").set()
            await Event("b").set()
            await c.gather([first, two])

    on_cluster(path, test)


#: four switches, one of which has one node only
FOUR = "tree: {d: [0], b: [1, 2, 3], a: [4, 5, 6], c: [7, 8]}\nport: 100 MB/s\nbandwidths: {level1: 4 MB/s}\n"


def test_why_nodes_were_picked_is_told(tmp_path):
    path = tmp_path / "topology.yaml"
    path.write_text(FOUR)

    async def test(c, s, workers):
        async with await dask_hpc.manage(c, policy("spread")) as manager:
            await placed(s, 9)
            with dask_hpc.job("x", nodes=2, traffic="4 MB/s"):
                one = c.submit(blocked, "go", key="one")
            assert (await until(s, "x", "running")).nodes == ("0", "1")
            await manager.set(**{"nodes.strategy": "least-congested"})
            with dask_hpc.job("y", nodes=4, traffic="3 MB/s"):
                two = c.submit(blocked, "go", key="two")
            found = await until(s, "y", "running")
            # contiguous would take node 2, of a switch whose link up is full
            assert found.nodes == ("4", "5", "6", "7")
            (row,) = [row for row in await manager.story() if row["decision"] == "picked"]
            assert row["job"] == found.id and row["nodes"] == list(found.nodes)
            assert row["reason"].startswith("contiguous, with nodes moved: gets 100% of what it sends")
            assert "contiguous it would be" in row["reason"]
            await Event("go").set()
            await c.gather([one, two])

    on_cluster(path, test, workers=9)


# copies


def test_a_copy_of_what_is_protected_is_in_another_part_of_the_machine(path):
    async def test(c, s, workers):
        async with await dask_hpc.manage(c, policy("first")):
            await placed(s)
            parts = {w.address: "left" if w.name in (0, 1) else "right" for w in workers}
            made = [
                c.submit(block, 1000 + i, workers=[workers[i].address], key=f"made-{i}") for i in range(4)
            ]
            await dask_hpc.protect(made, name="kept", client=c)
            catalogue = s.plugins[NAME].catalogue
            await async_poll_for(lambda: sum(bool(one.where) for one in catalogue.contents.values()) == 4, 20)
            where = [(content, list(one.where)) for content, one in catalogue.contents.items()]
            assert len(where) == 4
            for content, agents in where:
                (key,) = catalogue.keys_of(content)
                (holder,) = s.tasks[key].who_has
                assert parts[holder.address] not in {parts[agent] for agent in agents}, key
            del made

    on_cluster(path, test)


# what is not known


def test_without_a_topology_nothing_is_done():
    async def test(c, s, workers):
        async with await dask_hpc.manage(c, policy("least-congested")) as manager:
            with dask_hpc.job("j", nodes=2, traffic="8 MB/s") as job:
                one = c.submit(blocked, "go")
            await until(s, "j", "running")
            assert (await manager.status())["network"] is None
            assert (await job.status())["theta"] is None
            await Event("go").set()
            await one
            assert all(METRIC not in w.plugins for w in workers)
            assert not watch_of(s)._timer.is_set

    on_cluster(None, test)


def test_nodes_that_are_nowhere_are_told_once(tmp_path, monkeypatch):
    monkeypatch.setattr(network, "_PATIENCE", 0.0)
    path = tmp_path / "topology.yaml"
    path.write_text("left: [0]\nright: [1]\n")

    async def test(c, s, workers):
        async with await dask_hpc.manage(c, policy("least-congested")) as manager:
            await placed(s, 2)
            with dask_hpc.job("j", nodes=4, traffic="8 MB/s"):
                one = c.submit(blocked, "go")
            found = await until(s, "j", "running")
            rows = []

            async def told():
                rows[:] = [row["reason"] for row in await manager.story() if row["decision"] == "warning"]
                return rows

            await async_poll_for(lambda: plugin_of(s).story.counts["warning"], 20)
            await async_poll_for(lambda: watch_of(s)._flows[found].seconds > 1.5, 20)
            assert await told() == ["hpc.topology: does not say where they are, of 2 nodes: 2, 3"]
            status = (await manager.status())["network"]
            assert status["unplaced"] == ["2", "3"] and all(one["is_assumed"] for one in status["levels"])
            assert status["jobs"][found.id]["theta"] == 1.0
            await Event("go").set()
            await one

    on_cluster(path, test)


def test_a_preset_has_names_for_its_nodes(tmp_path):
    path = tmp_path / "topology.yaml"
    path.write_text("{preset: xc30, cabinets: 2, chassis: 1, blades: 2, service: false, nodes: '[0-3]'}")

    async def test(c, s, workers):
        async with await dask_hpc.manage(c, policy("contiguous")) as manager:
            await placed(s)
            status = await manager.status()
            assert [node["place"] for node in status["nodes"]][1:3] == [
                ["cabinet0", "chassis0"], ["cabinet1", "chassis0"],
            ]  # fmt: skip
            with dask_hpc.job("j", nodes=2, traffic="1 GB/s"):
                one = c.submit(blocked, "go")
            found = await until(s, "j", "running")
            told = (await manager.status())["network"]
            assert [one["name"] for one in told["levels"]] == ["cabinet", "chassis", "blade"]
            assert told["jobs"][found.id]["theta"] == 1.0
            await Event("go").set()
            await one

    on_cluster(path, test)


def test_it_goes_on_when_control_is_switched_on_again(path):
    async def test(c, s, workers):
        async with await dask_hpc.manage(c, policy("first")):
            await placed(s)
            plugin = plugin_of(s)
            await async_poll_for(lambda: len(plugin.topology._told) == 4, 10)
            plugin.release("off", "for a test")
            plugin.switch_on()
            assert plugin.control.indices.topology is None
            assert all(node.place for node in plugin.control.indices.nodes.values())
            plugin.context.wake()
            await async_poll_for(lambda: plugin.control.indices.topology is not None, 10)

    on_cluster(path, test)


def test_workers_of_one_host_are_as_many_nodes_at_one_place(tmp_path):
    path = tmp_path / "topology.yaml"
    path.write_text(f"{{tree: {{left: [{socket.gethostname()}], right: [elsewhere]}}, port: 1 MB/s}}")

    async def test(c, s, workers):
        async with await dask_hpc.manage(c, policy("least-congested")) as manager:
            await placed(s)
            with dask_hpc.job("j", nodes=2, traffic="1 GB/s"):
                one = c.submit(blocked, "go")
            found = await until(s, "j", "running")
            topology = plugin_of(s).control.indices.topology
            assert set(topology.places) == {"0", "1", "2", "3", "elsewhere"}
            assert len({topology.places[name] for name in "0123"}) == 1
            # what they send each other stays on their host
            assert (await manager.status())["network"]["jobs"][found.id]["theta"] == 1.0
            await Event("go").set()
            await one

    on_cluster(path, test)


@patch.dict(os.environ, {"SLURM_TOPOLOGY_ADDR": "root.leaf.host"})
def test_of_what_slurm_tells_all_bandwidths_are_assumed():
    async def test(c, s, workers):
        async with await dask_hpc.manage(c, policy("least-congested")) as manager:
            await placed(s)
            with dask_hpc.job("j", nodes=2, traffic="25 GB/s"):
                one = c.submit(blocked, "go")
            found = await until(s, "j", "running")
            told = (await manager.status())["network"]
            assert told["levels"] == [{"name": "node", "bandwidth": 12.5e9, "is_assumed": True}]
            assert told["jobs"][found.id]["theta"] == 0.5 and told["unplaced"] == []
            # one that comes later is joined with them
            async with Worker(s.address, name="late", nthreads=1):
                await placed(s, 5)
                plugin_of(s).context.wake()
                indices = plugin_of(s).control.indices
                await async_poll_for(lambda: "late" in indices.topology.places, 10)
            await Event("go").set()
            await one

    on_cluster("slurm", test)
