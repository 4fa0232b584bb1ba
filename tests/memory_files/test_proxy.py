"""The proxy of a host: programs that are no part of Dask, writes that stay a while, and what happens when it
goes."""

import json
import os
import subprocess
import sys
from time import monotonic, sleep

import pytest
from distributed import Client, LocalCluster

import dask_hpc
from dask_hpc.memory_files.client.filesystem import MemoryFileSystem
from dask_hpc.memory_files.socket import SERVED, socket_folder

_PLAIN = """
import fsspec, json, sys
url = sys.argv[1]
fs = fsspec.filesystem("hpc-memory")
with fsspec.open(url + "/from-outside", "wb") as file:
    for number in range(100):
        file.write(bytes([number]) * 1000)
before = fs.cat_file(url + "/from-inside").decode()
missing = "none"
try:
    fs.cat_file(url + "/nothing")
except FileNotFoundError as error:
    missing = str(error)
assert "distributed" not in sys.modules or not __import__("distributed").client._global_clients
print(json.dumps([before, missing, sorted(fs.ls(url, detail=False))]))
"""


def until(is_so, seconds=10.0):
    """Wait for something that comes on its own."""
    end = monotonic() + seconds
    while not is_so():
        assert monotonic() < end, "it did not come"
        sleep(0.01)


def plain_program(code, *args, socket=""):
    """Run by a Python that knows nothing of a cluster."""
    environment = {**os.environ, **({"DASK_HPC_FILES": socket} if socket else {})}
    run = subprocess.run([sys.executable, "-c", code, *args], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.fixture(scope="module")
def proxied():
    """Two worker processes, of which one is the proxy."""
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", memory_limit="1GB"
        ) as cluster,
        Client(cluster) as client,
        dask_hpc.MemoryFiles("proxied", block="16 kiB", client=client) as files,
    ):
        until(lambda: os.path.exists(files.socket))
        yield files


def test_a_plain_process_reads_and_writes(proxied):
    proxied.fs.pipe_file(proxied.url("from-inside"), b"hello")
    before, missing, names = plain_program(_PLAIN, proxied.url(), socket=proxied.socket)
    assert before == "hello"
    assert "hpcmemory://proxied/nothing" in missing
    assert names == ["proxied/from-inside", "proxied/from-outside"]
    found = proxied.fs.cat_file(proxied.url("from-outside"))
    assert found == b"".join(bytes([number]) * 1000 for number in range(100))


def test_the_socket_is_for_its_user_alone(proxied):
    for path in (proxied.socket, socket_folder(), socket_folder().parent):
        assert os.stat(path).st_mode & 0o077 == 0


def test_others_of_the_host_see_what_has_not_left_yet(proxied):
    proxied.set(write_back="1 h")
    fs, url = proxied.fs, proxied.url("kept back")
    sleep(1.1)  # settings are looked at once a second
    with fs.open(url, "wb") as file:
        file.write(b"first")
        outside = MemoryFileSystem(socket=proxied.socket)
        assert outside.cat_file(url) == b"first"
        assert outside.info(url)["size"] == 5
        assert proxied.status()["files"] == sum(
            not one.endswith("kept back") for one in fs.find(proxied.url())
        )
    assert fs.cat_file(url) == b"first"
    proxied.set(write_back=0)
    assert proxied.status()["writers"] == 0


def test_what_was_kept_back_leaves_in_time(proxied):
    proxied.set(write_back="200 ms")
    sleep(1.1)
    with proxied.fs.open(proxied.url("soon"), "wb") as file:
        file.write(b"x" * 100)
        before = proxied.status()["nbytes"]
        until(lambda: proxied.status()["nbytes"] >= before + 100)
    proxied.set(write_back=0)


def test_what_a_plain_process_had_opened_ends_with_it(proxied):
    code = """
import fsspec, os, sys
file = fsspec.open(sys.argv[1], "wb").open()
file.write(b"half")
os._exit(0)
"""
    environment = {**os.environ, "DASK_HPC_FILES": proxied.socket}
    subprocess.run([sys.executable, "-c", code, proxied.url("half")], env=environment, check=True)
    until(lambda: proxied.status()["writers"] == 0)
    assert not proxied.fs.exists(proxied.url("half"))


def test_another_worker_is_the_proxy_when_it_goes():
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", processes=False) as cluster,
        Client(cluster) as client,
        dask_hpc.MemoryFiles("moves", client=client) as files,
    ):
        until(lambda: files.socket in SERVED)
        files.fs.pipe_file(files.url("a"), b"abc")
        outside = MemoryFileSystem(socket=files.socket)
        assert outside.cat_file(files.url("a")) == b"abc"
        first = SERVED[files.socket]
        (address,) = [w for w in client.scheduler_info(n_workers=-1)["workers"] if w == first._reach.me]
        client.retire_workers([address])
        until(lambda: SERVED.get(files.socket) not in (None, first))
        assert outside.cat_file(files.url("a")) == b"abc"


def test_nothing_stays_behind():
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0", processes=False) as cluster,
        Client(cluster) as client,
    ):
        files = dask_hpc.MemoryFiles("ends", client=client)
        until(lambda: os.path.exists(files.socket))
        path = files.socket
        files.close()
        until(lambda: not os.path.exists(path))
        until(
            lambda: (
                not client.run_on_scheduler(
                    lambda dask_scheduler: [name for name in dask_scheduler.plugins if "dask-hpc" in name]
                )
            )
        )
