"""A pipeline of steps and analyses equals a plain serial loop, to the last bit, wherever its parts run."""

import os
from time import monotonic

import heat
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from distributed import Client, LocalCluster
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dask_hpc
from dask_hpc.in_situ.blocks import cut, make_grid
from dask_hpc.planning.in_situ.partition import Partition, Phases

per_block = dask_hpc.InSituPipeline.per_block
whole = dask_hpc.InSituPipeline.whole

ANALYSES = {
    "mean": whole(heat.mean, variables=["heat"]),
    "hottest": heat.hottest,
    "total": per_block(heat.total, sum, variables=["heat"]),
}


def partition(mode, nodes, helpers, in_situ, in_transit=()):
    return Partition(mode, nodes, helpers, tuple(in_situ), tuple(in_transit), Phases(0, 0, 0))


@pytest.fixture(scope="module")
def three():
    """Three nodes with two cores each, in this process."""
    with (
        LocalCluster(n_workers=3, threads_per_worker=2, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


def by_block(function, state, chunks):
    """What a function answers for each block of a state."""
    state, grid = make_grid(state, chunks)
    return [function(cut(state, grid, block)) for block in range(len(grid))]


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    mode=st.sampled_from(["async", "sync"]),
    nodes=st.integers(1, 2),
    sides=st.lists(st.booleans(), min_size=3, max_size=3),
    shape=st.tuples(st.integers(2, 13), st.integers(2, 9)),
    lengths=st.tuples(st.integers(2, 6), st.integers(2, 9)),
    dtype=st.sampled_from(["float64", "float32", "float16"]),
    is_lazy=st.booleans(),
)
def test_a_pipeline_equals_the_serial_loop(three, mode, nodes, sides, shape, lengths, dtype, is_lazy):
    state = heat.plate(shape, dtype)
    chunks = {
        dim: tuple(len(part) for part in np.array_split(range(size), max(size // length, 1)))
        for dim, size, length in zip("yx", shape, lengths, strict=True)
    }
    placed = partition(
        mode,
        nodes,
        1,
        [name for name, staged in zip(ANALYSES, sides, strict=True) if not staged],
        [name for name, staged in zip(ANALYSES, sides, strict=True) if staged],
    )
    pipe = dask_hpc.InSituPipeline(
        heat.advance,
        state.chunk(chunks) if is_lazy else state,
        ANALYSES,
        mode=mode,
        placement=placed,
        chunks=None if is_lazy else chunks,
        halo={"y": 1, "x": 1},
        client=three,
    )
    wanted = heat.serial(state, 4)
    seen = []
    for i, results in pipe.run(iterations=4):
        seen.append(i)
        assert list(results) == list(ANALYSES)
        assert results["mean"] == heat.mean(wanted[i - 1])
        assert results["hottest"] == heat.hottest(wanted[i - 1])
        assert results["total"] == sum(by_block(heat.total, wanted[i - 1], chunks))
    assert seen == [1, 2, 3, 4] and pipe.iteration == 4
    xr.testing.assert_identical(pipe.state.compute(), wanted[-1])
    assert {name: one.dtype for name, one in pipe.state.variables.items()} == {
        name: one.dtype for name, one in wanted[-1].variables.items()
    }


def blow(block):
    """The wind moves everything one cell on; what comes in at the end is not looked at again."""
    moved = block["dust"].copy(data=np.roll(block["dust"].values, 1))
    return block.assign(dust=moved)


def blow_inside(block):
    return blow(block).isel(x=slice(1, -1))


@pytest.mark.slow
@pytest.mark.parametrize("step", [blow, blow_inside])
@pytest.mark.parametrize("lengths", [(12,), (1, 5, 4, 2), (3, 3, 3, 3)])
def test_the_ends_of_a_ring_are_neighbours(three, step, lengths):
    dust = np.random.default_rng(1).integers(0, 100, 12)
    ring = xr.Dataset({"dust": ("x", dust)}, {"x": pd.date_range("2026", periods=12)}, {"a": 1})
    pipe = dask_hpc.InSituPipeline(
        step,
        ring,
        {"dust": lambda state: list(state["dust"].values)},
        placement=partition("async", 3, 1, ["dust"]),
        chunks={"x": lengths},
        halo={"x": 1},
        boundary="periodic",
        client=three,
    )
    for i, results in pipe.run(14):
        assert results["dust"] == list(np.roll(dust, i))
    xr.testing.assert_identical(pipe.state.compute(), ring.assign(dust=("x", np.roll(dust, 14))))


def test_two_pipelines_at_once_do_not_mind_each_other(three):
    wanted = heat.serial(heat.plate(), 6)
    pipes = [
        dask_hpc.InSituPipeline(
            heat.advance,
            heat.plate(),
            {"mean": heat.mean},
            placement=where,
            chunks={"y": 6},
            halo={"y": 1},
            client=three,
        )
        for where in ("in situ", "in transit")
    ]
    for (i, one), (j, other) in zip(*(pipe.run(6) for pipe in pipes), strict=True):
        assert i == j and one == other == {"mean": heat.mean(wanted[i - 1])}


def in_situ_tasks(dask_scheduler):
    return [str(key) for key in dask_scheduler.tasks if "in-situ" in str(key)]


def threads_of_pipelines(dask_worker):
    return [name for name in (*dask_worker.plugins, *dask_worker.executors) if "in-situ" in name]


def test_a_loop_that_is_left_early_leaves_nothing(three):
    pipe = dask_hpc.InSituPipeline(
        heat.advance, heat.plate(), ANALYSES, chunks={"y": 6}, halo={"y": 1}, client=three
    )
    for i, _ in pipe.run(iterations=1000):
        if i == 3:
            break
    assert [*three.run(threads_of_pipelines).values()] == [[], [], []]
    deadline = monotonic() + 10
    while left := three.run_on_scheduler(in_situ_tasks):
        assert monotonic() < deadline, left


def where(block):
    """Process and address of what an analysis sees."""
    return os.getpid(), block["heat"].values.__array_interface__["data"][0]


def where_held(held):
    return {
        number: (os.getpid(), block["heat"].values.__array_interface__["data"][0])
        for number, block in held.blocks.items()
    }


@pytest.mark.slow
def test_nothing_is_copied_in_situ_in_processes_of_their_own():
    with (
        LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        analyses = {"where": per_block(where), "mean": whole(heat.mean, variables=["heat"])}
        wanted = heat.serial(heat.plate(), 5)
        for mode in ("async", "sync"):
            pipe = dask_hpc.InSituPipeline(
                heat.advance,
                heat.plate(),
                analyses,
                placement=partition(mode, 2, 1, analyses),
                chunks={"y": 6},
                halo={"y": 1, "x": 1},
                client=client,
            )
            for i, results in pipe.run(5):
                assert results["mean"] == heat.mean(wanted[i - 1])
            held = {}
            for group in pipe._last.groups:
                held |= client.submit(where_held, group.future, workers=[group.address]).result()
            assert results["where"] == [held[number] for number in range(4)]
            assert len({process for process, _ in results["where"]}) == 2
            xr.testing.assert_identical(pipe.state.compute(), wanted[-1])
