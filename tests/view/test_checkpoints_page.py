"""What the checkpoint service tells is on its cluster's dashboard and among its metrics."""

from importlib.util import find_spec

import numpy as np
import pytest
from distributed.utils_test import gen_cluster
from served_page import fed, get, until_fed

import dask_hpc

shown = gen_cluster(
    client=True,
    nthreads=[("", 1)] * 2,
    scheduler_kwargs={"dashboard": True, "dashboard_address": "127.0.0.1:0"},
)


@shown
async def test_the_page_and_the_metrics_follow_what_happens(c, s, *workers):
    pytest.importorskip("bokeh")
    async with await dask_hpc.manage(c):
        assert not (await fed(s))["whole"].get("checkpoint")
        y = await c.scatter(np.arange(1000), hash=False)
        await dask_hpc.protect(y, name="y", client=c)
        await dask_hpc.protected("y", wait=True, client=c)
        await dask_hpc.protected("y", wait=True, client=c)
        whole = await until_fed(s, lambda whole: whole.get("checkpoint") and whole["checkpoint"]["protected"])
        (one,) = whole["checkpoint"]["protected"]
        assert (one["name"], one["copied"], one["keys"]) == ("y", 1, 1)
        if find_spec("prometheus_client"):
            page = await get(s, "/metrics")
            said = {line.partition("{")[0]: line for line in page.splitlines() if "checkpoint" in line}
            assert said["dask_hpc_checkpoint_bytes"].endswith(" 8000.0")
            assert said["dask_hpc_checkpoint_commits_total"].endswith(" 1.0")
            assert said["dask_hpc_checkpoint_exposed"].endswith(" 0.0")
            assert said["dask_hpc_checkpoint_store_waiting_bytes"].endswith(" 0.0")
