"""Where files are beside the memory of one worker: copies, disks, a store; and what is said when they are
nowhere."""

import errno
import os
import signal
from time import monotonic, sleep
from types import SimpleNamespace

import numpy as np
import pytest
from distributed import Client, LocalCluster
from forks import forked_nannies

import dask_hpc
from dask_hpc.checkpoint.worker import agent as agents


def some(nbytes, seed=0):
    return np.random.default_rng(seed).bytes(nbytes)


def until(is_so, seconds=20.0):
    """Wait for something that comes on its own."""
    end = monotonic() + seconds
    while not is_so():
        assert monotonic() < end, "it did not come"
        sleep(0.01)


@pytest.fixture
def cluster():
    """Three worker processes."""
    with (
        forked_nannies(),
        LocalCluster(
            n_workers=3, threads_per_worker=1, dashboard_address=":0", memory_limit="400MB"
        ) as cluster,
        Client(cluster) as client,
    ):
        yield SimpleNamespace(cluster=cluster, client=client)


@pytest.fixture
def three():
    """Three workers in this process."""
    with (
        LocalCluster(
            n_workers=3, threads_per_worker=1, processes=False, dashboard_address=":0", memory_limit="2GB"
        ) as cluster,
        Client(cluster) as client,
    ):
        yield SimpleNamespace(cluster=cluster, client=client)


def kill(client, address):
    """A worker dies. Its nanny starts another one, which has nothing."""
    os.kill(client.run(os.getpid, workers=[address])[address], signal.SIGKILL)
    until(lambda: address not in client.scheduler_info(n_workers=-1)["workers"])


def a_server(files):
    """One that has blocks."""
    return max(files.status()["nodes"], key=lambda node: node["blocks"])["agents"][0]


def test_what_died_without_a_copy_is_named(cluster):
    with dask_hpc.MemoryFiles("one", block="64 kiB", client=cluster.client) as files:
        data = some(1_000_000)
        files.fs.pipe_file(files.url("a"), data)
        files.fs.pipe_file(files.url("empty"), b"")
        address = a_server(files)
        kill(cluster.client, address)
        with pytest.raises(FileNotFoundError, match=rf"block \d+ was lost with .*{address}.*copies=1"):
            files.fs.cat_file(files.url("a"))
        assert files.fs.cat_file(files.url("empty")) == b""
        assert files.status()["lost"] > 0
        files.fs.pipe_file(files.url("a"), data)
        assert files.fs.cat_file(files.url("a")) == data
        assert files.status()["lost"] == 0


def test_with_copies_one_may_die(cluster):
    with dask_hpc.MemoryFiles("two", block="64 kiB", copies=1, client=cluster.client) as files:
        data = some(2_000_000)
        files.fs.pipe_file(files.url("a"), data)
        with files.open("b", "wb") as file:
            file.write(data)
        kill(cluster.client, a_server(files))
        assert files.fs.cat_file(files.url("a")) == data
        assert files.open("b").read() == data
        assert files.status()["lost"] == 0


def test_a_worker_that_is_started_again_has_its_disk(cluster):
    with dask_hpc.MemoryFiles(
        "disk", block="64 kiB", levels=["memory", "disk"], client=cluster.client
    ) as files:
        data = some(1_000_000)
        files.fs.pipe_file(files.url("a"), data)
        address = a_server(files)
        kill(cluster.client, address)
        assert files.fs.cat_file(files.url("a")) == data
        until(lambda: len(files.status()["nodes"]) == 3)
        assert address not in cluster.client.scheduler_info(n_workers=-1)["workers"]
        assert files.fs.cat_file(files.url("a")) == data


def test_what_is_in_the_store_is_read_from_there(cluster, tmp_path):
    store = tmp_path / "store"
    settings = {"block": "64 kiB", "levels": ["memory", "store"], "store": str(store)}
    with dask_hpc.MemoryFiles("stored", client=cluster.client, **settings) as files:
        data = some(1_000_000)
        files.fs.pipe_file(files.url("deep/a"), data)
        files.fs.pipe_file(files.url("b"), b"b")
        files.fs.pipe_file(files.url("gone"), b"c")
        until(lambda: (store / "gone").exists())
        files.fs.rm(files.url("gone"))
        files.fs.mv(files.url("b"), files.url("moved"))
        until(lambda: files.status()["to_store"] == 0)
        assert (store / "deep/a").read_bytes() == data
        assert sorted(path.name for path in store.rglob("*") if path.is_file()) == ["a", "moved"]
        for address in [node["agents"][0] for node in files.status()["nodes"]][:2]:
            kill(cluster.client, address)
        assert files.fs.cat_file(files.url("deep/a")) == data
        assert files.fs.cat_file(files.url("deep/a"), 100_000, 500_000) == data[100_000:500_000]
    assert (store / "deep/a").read_bytes() == data


def test_what_cannot_be_stored_is_told_once_and_tried_again(three, tmp_path, monkeypatch):
    monkeypatch.setattr("dask_hpc.memory_files.scheduler.store_level._PAUSE", 0.05)
    blocked = tmp_path / "store"
    blocked.write_text("a file")
    settings = {"levels": ["memory", "store"], "store": str(blocked)}
    with dask_hpc.MemoryFiles("stored", client=three.client, **settings) as files:
        files.fs.pipe_file(files.url("a"), b"abc")
        sleep(0.3)
        told = [
            row["reason"]
            for _, row in three.client.get_events("dask-hpc-files")
            if "tried again" in row["reason"]
        ]
        assert len(told) == 1
        blocked.unlink()
        until(lambda: files.status()["to_store"] == 0)
        assert (blocked / "a").read_bytes() == b"abc"


def _without_disk():
    agents._DISK_SHARE = 0.0


def _states(client):
    return {one["status"] for one in client.scheduler_info(n_workers=-1)["workers"].values()}


def test_a_full_cluster_says_so_at_once(cluster):
    cluster.client.run(_without_disk)
    with dask_hpc.MemoryFiles("full", block="1 MiB", client=cluster.client) as files:
        data, count = some(10_000_000), 0
        with pytest.raises(OSError) as caught:
            for count in range(100):
                files.fs.pipe_file(files.url(str(count)), data)
        assert caught.value.errno == errno.ENOSPC
        assert "hpcmemory://full/" in str(caught.value)
        with pytest.raises(OSError, match="No space"), files.open("opened", "wb") as file:
            for _ in range(100):
                file.write(data)
        assert sorted(files.fs.ls(files.url(), detail=False)) == sorted(f"full/{one}" for one in range(count))
        assert files.status()["writers"] == 0
        assert files.fs.cat_file(files.url("0")) == data
        files.fs.rm(files.url("0"))
        until(lambda: _fits(files, data))
        assert _states(cluster.client) == {"running"}


def _fits(files, data):
    try:
        files.fs.pipe_file(files.url("again"), data)
    except OSError:
        return False
    return True


def test_encrypted_blocks_are_secret(three, tmp_path, monkeypatch):
    key = tmp_path / "key"
    key.write_bytes(bytes(range(32)))
    key.chmod(0o600)
    import dask

    with (
        dask.config.set({"hpc.checkpoint.key": f"file:{key}"}),
        dask_hpc.MemoryFiles("secret", block="4 kiB", encrypt=True, client=three.client) as files,
    ):
        data = b"well known words " * 1000
        files.fs.pipe_file(files.url("a"), data)
        assert files.fs.cat_file(files.url("a")) == data
        assert files.open("a").read() == data
        kept = three.client.run(_all_bytes)
        assert sum(map(len, kept.values())) > len(data)
        assert not any(b"well known" in one for one in kept.values())


def _all_bytes(dask_worker):
    kept = dask_worker.plugins["dask-hpc-agent"].kept
    blocks = [kept.get(one) for one in kept.contents()]
    return b"".join(bytes(piece) for one in blocks for piece in one.part(0, one.nbytes))


def test_files_leave_before_their_worker_does(three):
    with dask_hpc.MemoryFiles("leaves", block="4 kiB", client=three.client) as files:
        data = some(200_000)
        files.fs.pipe_file(files.url("a"), data)
        three.client.retire_workers([a_server(files)])
        assert files.fs.cat_file(files.url("a")) == data
        assert len(files.status()["nodes"]) == 2
        three.cluster.scale(4)  # it counts the one that left
        until(lambda: len(files.status()["nodes"]) == 3)
        files.fs.pipe_file(files.url("b"), data)
        assert all(node["blocks"] for node in files.status()["nodes"])


def test_files_leave_a_managed_cluster_that_shrinks(three):
    with (
        dask_hpc.manage(three.client),
        dask_hpc.MemoryFiles("managed", block="4 kiB", client=three.client) as files,
    ):
        data = some(200_000)
        files.fs.pipe_file(files.url("a"), data)
        three.cluster.scale(1)
        until(lambda: len(files.status()["nodes"]) == 1)
        assert files.fs.cat_file(files.url("a")) == data


def test_fewer_nodes_than_the_data_needs_are_refused(cluster):
    cluster.client.run(_without_disk)
    with dask_hpc.MemoryFiles("large", block="1 MiB", client=cluster.client) as files:
        budget = sum(one["budget"] for one in cluster.client.run(_agent_facts).values()) / 3
        files.fs.pipe_file(files.url("a"), some(int(budget * 1.5)))
        sleep(1.2)  # heartbeats
        with pytest.raises(dask_hpc.InputError, match="do not fit on 1 node; allowed: 2 or more"):
            files.resize(1)
        assert len(files.status()["nodes"]) == 3
        assert files.status()["state"] == "ready"
        files.resize(2)
        assert len(files.fs.cat_file(files.url("a"))) == int(budget * 1.5)


async def _agent_facts(dask_worker):
    return await dask_worker.plugins["dask-hpc-agent"]._facts(dask_worker)


def test_stage_out(three, tmp_path):
    with dask_hpc.MemoryFiles("out", block="4 kiB", client=three.client) as files:
        data = {f"a/b{one}/c": some(10_000, one) for one in range(20)}
        files.fs.pipe({files.url(path): one for path, one in data.items()})
        assert files.stage_out(str(tmp_path / "some"), "a/b3") == {"files": 1, "nbytes": 10_000}
        assert (tmp_path / "some/c").read_bytes() == data["a/b3/c"]
        files.close(stage_out=str(tmp_path / "all"))
    assert {
        str(p.relative_to(tmp_path / "all")): p.read_bytes() for p in (tmp_path / "all").rglob("c")
    } == data
    assert not list(tmp_path.rglob("*.part"))
