"""``dask-hpc story`` as a person runs it: at once, as it happens, as JSON, and where there is none."""

import json
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
from distributed import Client, LocalCluster
from distributed.utils_test import inc

import dask_hpc
from dask_hpc.cli.story import clock, in_words, named_nodes, story_lines


@contextmanager
def small_cluster():
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def command(*args):
    return [sys.executable, "-m", "dask_hpc", "story", *args]


def told(*args):
    return subprocess.run(command(*args), capture_output=True, text=True, timeout=60)


def computed(client, name, **wishes):
    with dask_hpc.job(name, **wishes):
        assert client.submit(inc, 1, pure=False).result() == 2


@pytest.mark.slow
def test_the_story_at_once():
    with small_cluster() as client:
        address = client.scheduler.address
        plain = told(address)
        assert (plain.returncode, plain.stdout) == (2, "")
        assert "not managed by dask-hpc" in plain.stderr and len(plain.stderr.splitlines()) == 1
        with dask_hpc.manage(client) as manager:
            computed(client, "climate", nodes=2)
            done = told(address)
            assert (done.returncode, done.stderr) == (0, "")
            (start,) = [line for line in done.stdout.splitlines() if " start " in line]
            assert "climate-" in start and "2 nodes: 0, 1" in start and "first in the queue" in start
            rows = [json.loads(line) for line in told(address, "--json").stdout.splitlines()]
            assert rows == manager.story()[: len(rows)] and len(rows) >= 5
            with pytest.raises(dask_hpc.InputError, match="whole number"):
                client.sync(client.scheduler.hpc_story_since, number="all")


@pytest.mark.slow
def test_follow_until_control_is_closed_and_until_ctrl_c():
    with small_cluster() as client:
        address = client.scheduler.address
        manager = dask_hpc.manage(client)
        with subprocess.Popen(
            command(address, "--follow"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            computed(client, "one")
            computed(client, "two")
            seen = []
            while sum(" end " in line for line in seen) < 2:
                seen.append(process.stdout.readline())
                assert seen[-1], process.stderr.read()
            manager.close()
            rest, errors = process.communicate(timeout=30)
        assert process.returncode == 0 and errors == "dask-hpc: control was closed\n"
        assert sum(" start " in line for line in seen) == 2 and " start " not in rest
        with (
            dask_hpc.manage(client),
            subprocess.Popen(
                command(address, "-f"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            ) as process,
        ):
            assert process.stdout.readline()
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=30)[1] == ""
            assert process.returncode == 0


@pytest.mark.slow
def test_follow_until_the_scheduler_is_gone():
    with small_cluster() as client, dask_hpc.manage(client):
        process = subprocess.Popen(
            command(client.scheduler.address, "--follow", "--json"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout.readline()
    with process:
        lines, errors = process.communicate(timeout=30)
    assert process.returncode == 0
    assert errors in ("dask-hpc: the scheduler is gone\n", "dask-hpc: control was closed\n")
    assert all(json.loads(line) for line in lines.splitlines())


@pytest.mark.slow
def test_an_address_where_nobody_answers():
    done = told("127.0.0.1:1")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "no scheduler answers at '127.0.0.1:1'" in line


def test_a_row_and_its_further_fields():
    row = {
        "id": 7, "time": 3723.0, "decision": "shrink", "job": "a-1", "nodes": ("n1", "n2"),
        "reason": "[b] waits",
        "rule": "performance-aware", "inputs": {"idle": 0, "mtct": 0.25}, "rejected": [], "new": None,
    }  # fmt: skip
    assert [line.plain.strip() for line in story_lines(row)] == [
        "7    1:02:03  shrink        a-1  2 nodes: n1, n2  [b] waits",
        "rule: performance-aware",
        "inputs: idle 0, mtct 0.25",
    ]
    assert clock(0.00012) == "0.00 s" and clock(99.994) == "99.99 s" and clock(100) == "0:01:40"
    assert named_nodes([str(i) for i in range(8)]) == "8 nodes: 0, 1, 2, 3, 4, 5 and 2 more"
    assert in_words([{"job": "a"}, "too large"]) == "job a; too large"
