"""Control without code: the preload module on the command line, and in a LocalCluster's configuration."""

import logging
import os
import re
import subprocess
import sys
from contextlib import contextmanager

import dask
import pytest
from distributed import Client, LocalCluster
from distributed.utils_test import gen_cluster, inc
from small_cluster import plugin_of

import dask_hpc

PRELOAD = {"distributed.scheduler.preload": ["dask_hpc.preload"], "distributed.scheduler.preload-argv": []}

loaded = gen_cluster(client=True, nthreads=[("", 1)] * 2, config=PRELOAD | {"hpc.policy": "fcfs"})
badly = gen_cluster(client=True, nthreads=[("", 1)], config=PRELOAD | {"hpc.policy": "no-such-policy"})


@loaded
async def test_a_cluster_is_under_control_from_its_start(c, s, a, b):
    plugin = plugin_of(s)
    assert plugin.is_on and plugin.context.policy.name == "fcfs"
    assert list(plugin.control.nodes) == ["0", "1"]
    async with dask_hpc.job("one", nodes=2):
        assert await c.submit(inc, 1) == 2
    assert "start" in {h.decision for h in plugin.story.happenings}
    m = await dask_hpc.manage(c)
    assert plugin_of(s) is plugin and (await m.status())["policy"] == "fcfs"
    await dask_hpc.manage(c, "easy-backfill")
    assert plugin_of(s) is plugin and plugin.context.policy.name == "easy-backfill"
    await m.close()
    assert "dask-hpc" not in s.plugins and not [name for name in s.handlers if name.startswith("hpc_")]
    async with await dask_hpc.manage(c) as m:
        assert (await m.status())["state"] == "on"


def test_a_bad_configuration_is_one_line_and_plain_dask(caplog):
    @badly
    async def body(c, s, a):
        assert "dask-hpc" not in s.plugins
        assert await c.submit(inc, 1) == 2

    body()
    errors = [r for r in caplog.records if r.levelno >= logging.ERROR]
    (said,) = [r.getMessage() for r in errors]
    assert "no policy is named 'no-such-policy'" in said and "\n" not in said
    assert errors[0].exc_info is None


def test_local_cluster():
    with (
        dask.config.set(PRELOAD),
        LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        with dask_hpc.job("one"):
            assert client.submit(inc, 1).result() == 2
        with dask_hpc.manage(client) as m:
            assert [job["name"] for job in m.status()["jobs"]] == ["one"]


@contextmanager
def scheduler(*args, **env):
    """``dask scheduler`` as a person starts it; yields its process and its address, or None if it ends."""
    command = [sys.executable, "-m", "dask", "scheduler", "--host", "127.0.0.1", "--port", "0",
               "--no-dashboard", "--preload", "dask_hpc.preload", *args]  # fmt: skip
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=os.environ | env
    ) as process:
        try:
            address = None
            for line in process.stderr:
                if found := re.search(r"Scheduler at:\s+(tcp://\S+)", line):
                    address = found[1]
                    break
            yield process, address
        finally:
            process.terminate()
            process.stderr.read()


@pytest.mark.slow
def test_command_line_with_and_without_a_policy():
    for args, env, expected in (
        (["--policy", "fcfs"], {}, "fcfs"),
        ([], {}, "easy-backfill"),
        ([], {"DASK_HPC__POLICY": "sjf"}, "sjf"),
    ):
        with (
            scheduler(*args, **env) as (_, address),
            Client(address) as client,
            dask_hpc.manage(client) as m,
        ):
            assert m.status()["policy"] == expected
            assert m.status()["nodes"] == []


@pytest.mark.slow
def test_an_unknown_option_is_refused_by_dask():
    with scheduler("--polcy", "fcfs") as (process, address):
        assert address is None
        assert process.wait(30) == 2
