"""S19: reads are recognised through fusion, and compute tasks with a read-like name are not taken for reads.

Rules and tables are tested in ``tests/lanes/test_reads.py``; here on graphs as xarray and Dask make them.

Plain Dask limits no reads, so nothing there has to know them. What it tells of a task is the prefix of its
key (after fusion that of the last function; and a function may be called like a reader) and its mark of data
producers (arrays in memory have it, too).
"""

import tempfile

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from distributed import SchedulerPlugin, wait
from distributed.utils_test import async_poll_for, gen_cluster

import dask_hpc
from dask_hpc.lanes.scheduler import Lanes

cluster = gen_cluster(client=True, nthreads=[("", 4)] * 2, clean_kwargs={"threads": False})
pytestmark = [
    pytest.mark.filterwarnings("ignore:Consolidated metadata"),
    pytest.mark.filterwarnings("ignore:Sending large graph"),
]


def read_mask(x):
    return x + 1


def in_lanes(s):
    """Tasks in lanes by the name of the lane."""
    lanes = s.plugins["dask-hpc"].context.get(Lanes)
    found = {}
    for key, lane in lanes.row_of.items():
        found.setdefault(lane.name, set()).add(key)
    return found


class Taken(SchedulerPlugin):
    """What one would take for reads by what plain Dask tells of tasks when they are submitted."""

    def __init__(self):
        self.by_name, self.by_mark = set(), set()

    def update_graph(self, scheduler, *, tasks, **kwargs):
        for task in map(scheduler.tasks.get, tasks):
            if task.prefix.name.startswith(("open", "read", "from_zarr")):
                self.by_name.add(task.key)
            if task.run_spec is not None and task.run_spec.data_producer:
                self.by_mark.add(task.key)


async def plainly(s, submit):
    """The same tasks once more, with Dask alone; after ours, for which nothing was measured yet."""
    assert "dask-hpc" not in s.plugins
    await async_poll_for(lambda: not s.tasks, 10)
    taken = Taken()
    s.add_plugin(taken, name="taken")
    await wait(submit())
    s.remove_plugin("taken")
    return taken


def tell(report, what, reads, taken):
    """How many reads are known, and how many other tasks are taken for one."""
    plain = [f"{len(found & reads)}, {len(found - reads)}" for found in (taken.by_name, taken.by_mark)]
    report.add("S19", f"{what}: reads known, of {len(reads)}, and others taken for reads",
               plain=f"by name {plain[0]}; by mark {plain[1]}", ours=f"{len(reads)}, 0",
               bound="all, 0")  # fmt: skip


async def recognised(c, s, limits, *collections):
    async with await dask_hpc.manage(c) as manager:
        await manager.set(**{"settings.io-lanes": limits})
        persisted = [c.persist(one) for one in collections]
        await wait(persisted)
        return in_lanes(s)


@cluster
async def test_xarray_pipelines(c, s, *workers, report):
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
        taken = await plainly(s, lambda: [c.persist(one) for one in (*pipelines, in_memory)])
    assert {name: len(keys) for name, keys in found.items()} == {f"{folder}/a.zarr": 8, f"{folder}/b.zarr": 2}
    reads = set().union(*found.values())
    tell(report, "xarray", reads, taken)
    # By their names fused reads are missed and others taken; the mark has all reads, and what is in memory.
    assert reads - taken.by_name and taken.by_name - reads
    assert reads <= taken.by_mark and len(taken.by_mark - reads) >= 4


@cluster
async def test_netcdf(c, s, *workers, report):
    made = xr.Dataset({"a": (("x", "y"), np.arange(400.0).reshape(20, 20))})
    with tempfile.TemporaryDirectory() as folder, dask.config.set(scheduler="sync"):
        made.to_netcdf(f"{folder}/b.nc", engine="netcdf4")
        with xr.open_dataset(f"{folder}/b.nc", chunks={"x": 4}, engine="netcdf4") as opened:
            total = np.sqrt(opened.a).sum("y")
            found = await recognised(c, s, {f"{folder}/b.nc": 2}, total)
            taken = await plainly(s, lambda: c.persist(total))
    assert {name: len(keys) for name, keys in found.items()} == {f"{folder}/b.nc": 5}
    reads = set().union(*found.values())
    tell(report, "NetCDF", reads, taken)
    assert not taken.by_name & reads and reads < taken.by_mark


@cluster
async def test_data_frames_and_plain_tasks(c, s, *workers, report):
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
        del total, compute
        taken = await plainly(s, lambda: [c.compute((frame.x + 1).sum()), *c.map(read_mask, range(30))])
    reads = set().union(*found.values())
    tell(report, "data frames and functions called read_mask", reads, taken)
    # Names take all functions that are called so; here the mark is right.
    assert len(taken.by_name - reads) == 30 and taken.by_mark == reads
