"""File systems that follow a recommended speed, and writers that die."""

import os
import subprocess
import sys
from time import monotonic, sleep

import pytest
from distributed import Client, LocalCluster

import dask_hpc

_DIES = """
import os, sys
from distributed import Client
import dask_hpc, fsspec
if __name__ == "__main__":
    client = Client(sys.argv[1])
    file = fsspec.open("hpcmemory://follows/half", "wb").open()
    file.write(b"x" * 3_000_000)
    old = fsspec.open("hpcmemory://follows/old", "r+b").open()
    old.write(b"y" * 100_000)
    print("written", flush=True)
    sys.stdin.read()
"""


def until(is_so, seconds=20.0):
    """Wait for something that comes on its own."""
    end = monotonic() + seconds
    while not is_so():
        assert monotonic() < end, "it did not come"
        sleep(0.01)


@pytest.fixture(scope="module")
def client():
    """Of three workers in this process."""
    with (
        LocalCluster(
            n_workers=3, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def test_too_slow_operations_bring_nodes_and_fast_ones_take_them_away(client):
    settings = {"nodes": 1, "max_nodes": 3, "block": "64 kiB"}
    with dask_hpc.MemoryFiles("follows", recommended="1000 TB/s", client=client, **settings) as files:
        assert len(files.status()["nodes"]) == 1

        def use():
            files.fs.pipe_file(files.url("a"), bytes(100_000))
            return len(files.status()["nodes"])

        until(lambda: use() == 3)
        told = [row["reason"] for _, row in client.get_events("dask-hpc-files")]
        assert any("recommended: 3 nodes, the most allowed" in one for one in told)
        files.set(recommended="1 B/s")
        client.run_on_scheduler(_long_ago)
        until(lambda: client.run_on_scheduler(_long_ago) or use() == 2)
        until(lambda: sum(node["blocks"] for node in files.status()["nodes"]) == 2)
        assert files.fs.cat_file(files.url("a")) == bytes(100_000)


def _long_ago(dask_scheduler):
    """The cool-down is over."""
    for system in dask_scheduler.plugins["dask-hpc-files"].systems.values():
        system.changed -= 3600


def test_a_policy_says_how_they_follow(client):
    text = "queue: {strategy: fcfs}\nfiles: {strategy: throughput, window: 2, fewest: 1}"
    settings = {"nodes": 1, "max_nodes": 2, "recommended": "1000 TB/s"}
    with (
        dask_hpc.manage(client, dask_hpc.Policy.parse(text)),
        dask_hpc.MemoryFiles("follows", client=client, **settings) as files,
    ):
        files.fs.pipe_file(files.url("a"), b"abc")
        until(lambda: len(files.status()["nodes"]) == 2)


def test_what_a_dead_client_was_writing_is_as_before(client, tmp_path):
    with dask_hpc.MemoryFiles("follows", block="64 kiB", client=client) as files:
        files.fs.pipe_file(files.url("old"), b"o" * 200_000)
        script = tmp_path / "dies.py"
        script.write_text(_DIES)
        with subprocess.Popen(
            [sys.executable, str(script), client.scheduler.address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as program:
            assert program.stdout.readline() == b"written\n"
            assert files.status()["writers"] == 2
            program.kill()
        until(lambda: files.status()["writers"] == 0)
        assert files.fs.ls(files.url(), detail=False) == ["follows/old"]
        assert files.fs.cat_file(files.url("old")) == b"o" * 200_000
        kept = sum(len(one) for one in client.run(_contents).values())
        until(lambda: sum(len(one) for one in client.run(_contents).values()) == 4 or kept == 4)


def _contents(dask_worker):
    return dask_worker.plugins["dask-hpc-agent"].kept.contents()


def test_without_agents_there_are_no_files(client):
    files = dask_hpc.MemoryFiles("ends", client=client)
    files.fs.pipe_file(files.url("a"), b"abc")
    client.run_on_scheduler(_give_up)
    with pytest.raises(FileNotFoundError):
        files.fs.cat_file(files.url("a"))
    until(lambda: not client.run_on_scheduler(_ours))
    files.close()
    with dask_hpc.MemoryFiles("ends", client=client) as files:
        files.fs.pipe_file(files.url("a"), b"abc")
        assert files.fs.cat_file(files.url("a")) == b"abc"


async def _give_up(dask_scheduler):
    """As after too many errors of its own."""
    dask_scheduler.plugins["dask-hpc-checkpoint"].give_up("it is off after 10 errors")


def _ours(dask_scheduler):
    return [name for name in dask_scheduler.plugins if name.startswith("dask-hpc")]


def test_bad_input_is_one_line(client):
    for wrong, allowed in (
        ({"block": "1 kB"}, "4 kB to 1 GiB"),
        ({"block": "2 GiB"}, "4 kB to 1 GiB"),
        ({"nodes": 3, "max_nodes": 2}, "max_nodes >= nodes"),
        ({"recommended": "2"}, "B/s"),
        ({"copies": -1}, "0 to 10"),
        ({"levels": ["store", "memory"]}, "store"),
        ({"levels": ["tape"]}, "memory"),
        ({"blocks": 3}, "block"),
    ):
        with pytest.raises(dask_hpc.InputError, match="files") as caught:
            dask_hpc.MemoryFiles("wrong", client=client, **wrong)
        assert "\n" not in str(caught.value) and allowed in str(caught.value), wrong
    for name in ("", "a/b", "..", "a b", "x" * 101, "a*", 3):
        with pytest.raises(dask_hpc.InputError, match="files: name"):
            dask_hpc.MemoryFiles(name, client=client)
    with dask_hpc.MemoryFiles("right", client=client) as files:
        with pytest.raises(dask_hpc.InputError, match="files: nodes"):
            files.resize(0)
        with pytest.raises(dask_hpc.InputError, match="allowed: copies, write_back"):
            files.set(block="1 MiB")
        for path in ("a/../b", "x\0y"):
            with pytest.raises(OSError, match="Invalid argument"):
                files.fs.pipe_file(f"hpcmemory://right/{path}", b"")
        with pytest.raises(dask_hpc.InputError, match="other settings"):
            dask_hpc.MemoryFiles("right", copies=1, client=client)
        dask_hpc.MemoryFiles("right", client=client)
    with pytest.raises(FileNotFoundError, match=r"no such file system|no scratch files"):
        files.fs.ls("hpcmemory://right")
    assert not os.path.exists(files.socket)
