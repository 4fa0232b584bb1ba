"""Scratch files on real workers: they are resized while many write, and workers are killed."""

import hashlib
import os
import random
import signal
import threading
import time
from contextlib import contextmanager

import fsspec
import pytest
from distributed import Client, Event, LocalCluster

import dask_hpc
from dask_hpc.memory_files.client.filesystem import MemoryFileSystem
from dask_hpc.memory_files.scheduler.plugin import NAME

BLOCK = 4096
PATIENCE = 30.0  # seconds until what was lost is on two workers again
SEED = 5
#: operations of each who writes
LEAST = 50


def sha(data):
    return hashlib.sha256(data).hexdigest()


def some_bytes(rng):
    return rng.randbytes(rng.choice((0, 1, BLOCK - 1, BLOCK, BLOCK + 1, rng.randint(0, 12 * BLOCK))))


def write_some(url, rng, files):
    """One thing that somebody may do with files of his own. ``files``: what has to be in each."""
    path = f"{url}/{rng.randint(0, 5)}"
    before = files.get(path)
    match rng.choice(("write", "write", "patch", "append", "cut", "rename", "remove")):
        case "write":
            files[path] = some_bytes(rng)
            with fsspec.open(path, "wb") as file:
                for begin in range(0, len(files[path]), 3000):
                    file.write(files[path][begin : begin + 3000])
        case "patch" if before is not None:
            at, data = rng.randint(0, len(before)), some_bytes(rng)
            with fsspec.open(path, "r+b") as file:
                file.seek(at)
                file.write(data)
            files[path] = before[:at] + data + before[at + len(data) :]
        case "append":
            data = some_bytes(rng)
            with fsspec.open(path, "ab") as file:
                file.write(data)
            files[path] = (before or b"") + data
        case "cut" if before is not None:
            size = rng.randint(0, len(before))
            with fsspec.open(path, "r+b") as file:
                file.truncate(size)
            files[path] = before[:size]
        case "rename" if before is not None:
            to = f"{url}/{rng.randint(0, 5)}"
            MemoryFileSystem().mv(path, to)
            files[to] = files.pop(path)
        case "remove" if before is not None:
            MemoryFileSystem().rm(path)
            del files[path]
    if path in files:
        assert MemoryFileSystem().cat_file(path) == files[path]


def write_until(url, seed, stop):
    """Until told to stop, and on a busy machine until something was done: what has to be in each file, as a
    sum, and how much that was."""
    rng, files, done = random.Random(f"{seed} {url}"), {}, 0
    while not stop() or done < LEAST:
        write_some(url, rng, files)
        done += 1
    return {path: sha(data) for path, data in files.items()}, done


def write_in_task(url, seed):
    return write_until(url, seed, Event("stop").is_set)


@contextmanager
def writers(client, files, tasks):
    """They write while the block runs: one here, the others on workers. What has to be there afterwards."""
    found, over = {}, threading.Event()

    def write_here():
        found["here"] = write_until(files.url("here"), SEED, over.is_set)

    here = threading.Thread(target=write_here)
    here.start()
    futures = [
        client.submit(write_in_task, files.url(f"task{number}"), SEED, pure=False) for number in range(tasks)
    ]
    try:
        yield found
    finally:
        over.set()
        Event("stop", client=client).set()
        here.join()
    found |= dict(enumerate(client.gather(futures)))


def check(files, found):
    """Every byte of every file."""
    fs = files.fs
    sums = {path: one for said, done in found.values() for path, one in said.items()}
    there = fs.find(files.url())
    assert sorted(f"hpcmemory://{path}" for path in there) == sorted(sums)
    for path, wanted in sums.items():
        assert sha(fs.cat_file(path)) == wanted, path


def resize_at_random(files, times):
    rng = random.Random(SEED)
    for _ in range(times):
        nodes = rng.choice((None, 1, 2, 3, 4))
        status = files.resize(nodes)
        assert status["state"] != "decommissioning"
        if nodes is not None:
            assert len(status["nodes"]) <= nodes
    assert files.status()["lost"] == 0


@contextmanager
def cluster_of_processes(**settings):
    """Four workers; their nannies start another one for each that dies."""
    with (
        LocalCluster(
            n_workers=4, threads_per_worker=1, processes=True, dashboard_address=":0", memory_limit="1GB"
        ) as cluster,
        Client(cluster) as client,
        dask_hpc.MemoryFiles("scratch", block="4 kiB", client=client, **settings) as files,
    ):
        yield client, files


def errors_of_ours(client):
    return client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.plugins["dask-hpc-files"].errors)


def test_resizes_while_somebody_writes(small_cluster):
    files = small_cluster.files
    over, found = threading.Event(), {}

    def write_here():
        found["here"] = write_until(files.url("resized"), SEED, over.is_set)

    writer = threading.Thread(target=write_here)
    writer.start()
    resize_at_random(files, 20)
    over.set()
    writer.join()
    for path, wanted in found["here"][0].items():
        assert sha(files.fs.cat_file(path)) == wanted
    files.resize(None)
    files.fs.rm(files.url("resized"), recursive=True)


@pytest.mark.slow
def test_200_resizes_while_many_write(report):
    began = time.monotonic()
    with cluster_of_processes() as (client, files):
        with writers(client, files, 2) as found:
            resize_at_random(files, 200)
        check(files, found)
        assert errors_of_ours(client) == 0
    done = sum(one for _, one in found.values())
    report.add(
        "files", f"200 resizes of 1 to 4 workers, {done} operations meanwhile", plain="-",
        ours=f"all sums right; {time.monotonic() - began:.0f} s", bound="no byte lost or wrong",
    )  # fmt: skip


def on_too_few(dask_scheduler):
    """How many blocks are not on two workers."""
    (system,) = dask_scheduler.plugins[NAME].systems.values()
    return sum(len(system._blocks.where(one)) < 2 for one in system.table._of)


def kill(client, address):
    """At once, as the system does when memory is short."""
    pid = client.run(os.getpid, workers=[address])[address]
    os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + PATIENCE
    while address in client.scheduler_info(n_workers=-1)["workers"]:
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.slow
def test_one_death_at_a_time_costs_nothing_with_a_copy():
    with cluster_of_processes(copies=1) as (client, files):
        rng, written = random.Random(SEED), {}
        for _ in range(6):
            for _ in range(20):
                write_some(files.url("here"), rng, written)
            until = time.monotonic() + PATIENCE
            while client.run_on_scheduler(on_too_few):
                assert time.monotonic() < until
                time.sleep(0.01)
            kill(client, rng.choice(list(client.scheduler_info(n_workers=-1)["workers"])))
            for path, data in written.items():
                assert sha(files.fs.cat_file(path)) == sha(data)
            client.wait_for_workers(4)
        assert files.status()["lost"] == 0 and errors_of_ours(client) == 0


@pytest.mark.slow
def test_without_copies_what_died_says_with_whom():
    with cluster_of_processes() as (client, files):
        data = random.Random(SEED).randbytes(20 * BLOCK)
        with files.open("whole", "wb") as file:
            file.write(data)
        node = files.status()["nodes"][0]
        (dead,) = node["agents"]
        kill(client, dead)
        lost = 0
        for number in range(20):
            begin, end = number * BLOCK, (number + 1) * BLOCK
            try:
                assert files.fs.cat_file(files.url("whole"), begin, end) == data[begin:end]
            except FileNotFoundError as error:
                lost += 1
                assert f"block {number} was lost with {node['name']} ({dead})," in str(error)
                assert error.filename == "hpcmemory://scratch/whole"
        assert lost == 5 == files.status()["lost"]
        with pytest.raises(FileNotFoundError, match="was lost with"):
            files.fs.cat_file(files.url("whole"))
        with files.open("whole", "wb") as file:
            file.write(data)
        assert files.fs.cat_file(files.url("whole")) == data and files.status()["lost"] == 0
