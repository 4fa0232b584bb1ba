"""What a managed cluster shows of its scratch files: status, feed, metrics, story; and nodes they want."""

import asyncio
from importlib.util import find_spec
from time import sleep

import pytest
from distributed import Client, LocalCluster
from distributed.utils_test import async_poll_for, gen_cluster, gen_test

import dask_hpc
from dask_hpc.cluster.request import NAME as MANAGED
from dask_hpc.memory_files.scheduler.plugin import NAME, FilesPlugin
from dask_hpc.memory_files.scheduler.service import ScratchFilesService
from dask_hpc.policy import Policy

cluster3 = gen_cluster(client=True, nthreads=[("", 1)] * 3)
ROW = {"name": "scratch", "state": "ready", "files": 2, "nbytes": 20_000, "writers": 0, "lost": 0}


def service_of(s):
    return s.plugins[MANAGED].context.get(ScratchFilesService)


async def filled(c, **settings):
    """Two files of 10,000 bytes, in six blocks."""
    files = await dask_hpc.MemoryFiles("scratch", block="4 kiB", client=c, **settings)
    for name in ("a", "sub/b"):
        await files.fs._pipe_file(files.url(name), b"x" * 10_000)
    await files.fs._info(files.url("a"))  # how fast that was goes along with what is asked next
    return files


def told(s, word="files"):
    return [one.reason for one in s.plugins[MANAGED].context.story.happenings if one.decision == word]


@cluster3
async def test_the_status_has_a_row_for_each_file_system(c, s, *workers):
    async with await dask_hpc.manage(c) as m:
        assert (await m.status())["files"] is None
        files = await filled(c, recommended="1 B/s")  # else nobody tells how fast operations are
        (row,) = (await m.status())["files"]
        assert ROW.items() <= row.items()
        assert len(row["nodes"]) == 3 and sum(node["blocks"] for node in row["nodes"]) == 6
        assert row["throughput"] > 0 and row["socket"].endswith(".sock") and row["staging"] == []
        assert row["settings"]["block"] == 4096
        assert (await m.feed(parts=["files"]))["files"] == [row]
        assert told(s)[0] == "scratch: made on 3 nodes"
        await files.close()
        assert (await m.status())["files"] is None and told(s)[-1] == "scratch: closed"
        assert (await m.status())["errors"] == 0


@cluster3
async def test_an_error_of_files_is_none_of_the_clusters(c, s, *workers):
    async with await dask_hpc.manage(c) as m, await filled(c):
        s.plugins[NAME].rows = lambda: 1 // 0
        status = await m.status()
        assert status["files"] is None and status["state"] == "on" and status["errors"] == 0


@cluster3
async def test_to_say_how_files_are_takes_little_of_the_schedulers_time(c, s, *workers):
    async with await dask_hpc.manage(c), await filled(c):
        service, said = service_of(s), []
        rows = s.plugins[NAME].rows

        def slow_rows():
            said.append(rows())
            sleep(0.01)
            return said[-1]

        s.plugins[NAME].rows = slow_rows
        service._said_until = 0.0
        first = service.part("files")
        assert all(service.part("files") is first for _ in range(20)) and len(said) == 1
        service._said_until = 0.0
        assert service.part("files") is not first and len(said) == 2


@pytest.mark.skipif(not find_spec("prometheus_client"), reason="needs prometheus_client")
@cluster3
async def test_metrics_tell_file_systems_apart(c, s, *workers):
    async with (
        await dask_hpc.manage(c) as m,
        await filled(c, recommended="2 GB/s"),
        dask_hpc.MemoryFiles("other", client=c),
    ):
        found = service_of(s).samples(await m.status())
        assert found["files"] == {"scratch": 2, "other": 0}
        assert found["files_bytes"] == {"scratch": 20_000, "other": 0}
        assert found["files_nodes"] == {"scratch": 3, "other": 3}
        assert found["files_blocks"] == {"scratch": 6, "other": 0}
        assert found["files_recommended_bytes_per_second"] == {"scratch": 2e9}
        assert found["files_bytes_per_second"].keys() == {"scratch"}
        assert (
            found["files_to_store"]
            == found["files_writers"]
            == found["files_lost_blocks"]
            == {"scratch": 0, "other": 0}
        )
        assert found.keys() == ScratchFilesService.metrics.keys()
        from tornado.httpclient import AsyncHTTPClient

        page = await AsyncHTTPClient().fetch(f"http://127.0.0.1:{s.http_server.port}/metrics")
        lines = page.body.decode().splitlines()
        (line,) = [one for one in lines if one.startswith("dask_hpc_files_bytes{") and "scratch" in one]
        assert line.endswith(" 20000.0")


@cluster3
async def test_what_speed_makes_of_the_number_of_nodes_is_foreseen_told_and_can_be_decided_again(c, s, *w):
    policy = "{queue: {strategy: fcfs}, files: {strategy: throughput, fewest: 1, cool_down: 0}}"
    async with (
        await dask_hpc.manage(c, Policy.parse(policy, name="quick")) as m,
        await filled(c, nodes=1, max_nodes=3, recommended="1 GB/s"),
    ):
        await m.pause()
        plugin: FilesPlugin = s.plugins[NAME]
        system = plugin.systems["scratch"]
        system.rates.clear()
        system.rates.extend([4e8] * 5)
        preview = await m.preview()
        assert "scratch: 5 operations at 400 MB/s on average" in str(preview)
        plugin._judge()
        await asyncio.sleep(0.05)
        assert len(system.nodes()) == 1  # somebody wants nothing to be decided
        await m.resume()
        plugin._judge()
        await async_poll_for(lambda: len(system.nodes()) == 3, 5)
        (row,) = [row for row in await m.story() if "5 operations" in row["reason"]]
        assert row["decision"] == "files" and row["rule"] == "files: throughput"
        assert row["inputs"]["nodes"] == 1 and row["inputs"]["bytes per second"] == 4e8
        assert (await m.replay())["different"] == []
        assert (await m.status())["files"][0]["wanted"] == 3


@gen_test(timeout=60)
async def test_a_cluster_that_adapts_has_the_nodes_that_files_want():
    quiet = {"processes": False, "dashboard_address": ":0", "asynchronous": True, "threads_per_worker": 1}
    async with LocalCluster(n_workers=0, **quiet) as cluster, Client(cluster, asynchronous=True) as c:
        s = cluster.scheduler
        async with await dask_hpc.malleable(cluster) as manager:
            cluster.adapt(minimum=1, maximum=4, interval="20ms", cool_down=0, idle_grace="50ms")
            async with await dask_hpc.MemoryFiles("scratch", nodes=3, client=c) as files:
                await async_poll_for(lambda: len(s.workers) == 3, 20)
                story = await manager.story()
                assert any("files in memory on 3 nodes" in row["reason"] for row in story)
                await async_poll_for(lambda: len(s.plugins[NAME].systems["scratch"].nodes()) == 3, 20)
                await files.fs._pipe_file(files.url("a"), b"x" * 10_000)
                await files.resize(1)
                await async_poll_for(lambda: len(s.workers) == 1, 20)
                assert await files.fs._cat_file(files.url("a")) == b"x" * 10_000
