"""S19: reads are recognised through fusion, and compute tasks with a read-like name are not taken for reads.

Rules and tables are tested in ``tests/planning/test_reads.py``; here on graphs as xarray and Dask make them.
"""

import tempfile

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from distributed import wait
from distributed.utils_test import gen_cluster

import dask_hpc

cluster = gen_cluster(client=True, nthreads=[("", 4)] * 2, clean_kwargs={"threads": False})
pytestmark = [
    pytest.mark.filterwarnings("ignore:Consolidated metadata"),
    pytest.mark.filterwarnings("ignore:Sending large graph"),
]


def read_mask(x):
    return x + 1


def in_lanes(s):
    """Tasks in lanes by the name of the lane."""
    lanes = s.plugins["dask-hpc"].control.gate.waves.queue
    found = {}
    for key, lane in lanes.lane_of.items():
        found.setdefault(lane.name, set()).add(key)
    return found


async def recognised(c, s, limits, *collections):
    async with await dask_hpc.manage(c) as manager:
        await manager.set(**{"settings.io-lanes": limits})
        persisted = [c.persist(one) for one in collections]
        await wait(persisted)
        return in_lanes(s)


@cluster
async def test_xarray_pipelines(c, s, *workers):
    made = xr.Dataset({"a": (("x", "y"), np.arange(400.0).reshape(20, 20))})
    with tempfile.TemporaryDirectory() as folder:
        with dask.config.set(scheduler="sync"):
            for name in ("a", "b"):
                made.chunk(x=5).to_zarr(f"{folder}/{name}.zarr")
        a = xr.open_zarr(f"{folder}/a.zarr").a
        b = xr.open_dataset(f"{folder}/b.zarr", engine="zarr", chunks={"x": 10}).a
        pipelines = [((a + 1) * 2).mean("y"), a.diff("x"), np.sqrt(b).sum("y")]
        in_memory = xr.DataArray(np.ones((20, 20)), dims=("x", "y")).chunk(x=5)
        in_memory = in_memory.copy(data=in_memory.data.map_blocks(read_mask))
        limits = {f"{folder}/a.zarr": 2, f"{folder}/b.zarr": 2}
        found = await recognised(c, s, limits, *pipelines, in_memory)
    assert {name: len(keys) for name, keys in found.items()} == {f"{folder}/a.zarr": 8, f"{folder}/b.zarr": 2}


@cluster
async def test_netcdf(c, s, *workers):
    made = xr.Dataset({"a": (("x", "y"), np.arange(400.0).reshape(20, 20))})
    with tempfile.TemporaryDirectory() as folder, dask.config.set(scheduler="sync"):
        made.to_netcdf(f"{folder}/b.nc", engine="netcdf4")
        with xr.open_dataset(f"{folder}/b.nc", chunks={"x": 4}, engine="netcdf4") as opened:
            found = await recognised(c, s, {f"{folder}/b.nc": 2}, np.sqrt(opened.a).sum("y"))
    assert {name: len(keys) for name, keys in found.items()} == {f"{folder}/b.nc": 5}


@cluster
async def test_data_frames_and_plain_tasks(c, s, *workers):
    with tempfile.TemporaryDirectory() as folder:
        for i in range(3):
            pd.DataFrame({"x": range(10)}).to_csv(f"{folder}/{i}.csv", index=False)
        frame = dd.read_csv(f"{folder}/*.csv")
        async with await dask_hpc.manage(c) as manager:
            await manager.set(**{"settings.io-lanes": {folder: 2}})
            total = c.compute((frame.x + 1).sum())
            compute = c.map(read_mask, range(30))
            assert await total == 3 * 55
            await wait(compute)
            found = in_lanes(s)
            assert set(found) <= {folder}
            assert not any("read_mask" in str(key) for keys in found.values() for key in keys)
            assert {t.key for t in s.transition_log if t.finish == "no-worker"} == set().union(
                *found.values()
            )
