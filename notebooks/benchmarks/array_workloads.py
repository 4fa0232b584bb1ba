"""Real workloads on arrays: reductions, layouts, stencils, linear algebra, memory, stores."""

import tempfile
from pathlib import Path

import dask.array as da
import numpy as np
from workload_kit import computed, workload


def numbers(shape, chunks, seed=1):
    """Random numbers that are the same wherever they are made."""
    return da.random.default_rng(seed).random(shape, chunks=chunks)


@workload(
    "root tasks of less than a millisecond: how fast they are let through",
    tiny={"columns": 150}, small={"columns": 800}, full={"columns": 6_000},
)  # fmt: skip
def thin_sum(client, columns, rows=1_000):
    """The sum of an array that is made fast and has thin chunks."""
    return float(computed(client, da.ones((rows, columns), chunks=(rows, 1)).sum()))


@workload(
    "few root tasks that take long and make much: none too many at once",
    tiny={"chunks": 16}, small={"chunks": 60}, full={"chunks": 300},
)  # fmt: skip
def fat_map(client, chunks, length=500_000):
    """A map over chunks of 4 MB, and how its values are distributed."""
    x = numbers(chunks * length, length)
    y = da.sqrt(da.sin(x) ** 2 + da.cos(x) ** 2) * da.log1p(x)
    counts, _ = da.histogram(y, bins=50, range=(0, 1))
    return computed(client, counts)


@workload(
    "chunks that are read again when their mean is known: they stay, or are made twice",
    tiny={"rows": 16}, small={"rows": 80}, full={"rows": 400},
)  # fmt: skip
def anomaly(client, rows, width=400):
    """Deviations from a mean over time, squared and averaged again."""
    x = numbers((rows * 10, width, 50), (10, width // 4, 50), seed=2).persist()
    return computed(client, ((x - x.mean(axis=0)) ** 2).mean(axis=(0, 2)))


@workload(
    "a layout changed by tasks: many small slices, each wanted by one other task",
    tiny={"side": 7}, small={"side": 22}, full={"side": 70},
)  # fmt: skip
def rechunk_tasks(client, side, block=100):
    """Rows into columns, by tasks."""
    x = numbers((side * block, side * block), (block, side * block), seed=3)
    y = x.rechunk((side * block, block), method="tasks")
    return computed(client, (y * np.arange(side * block)).sum(axis=1))


@workload(
    "a layout changed by P2P: workers that take part have to stay",
    tiny={"side": 8}, small={"side": 40}, full={"side": 140},
)  # fmt: skip
def rechunk_p2p(client, side, block=100):
    """Rows into columns, by P2P."""
    x = numbers((side * block, side * block), (block, side * block), seed=4)
    y = x.rechunk((side * block, block), method="p2p")
    return computed(client, (y * np.arange(side * block)).sum(axis=1))


def smoothed(block):
    """Each cell becomes the mean of its neighbours."""
    total = sum(np.roll(block, shift, axis) for axis in (0, 1) for shift in (1, -1))
    return total / 4


@workload(
    "halos: chunks that need edges of all their neighbours",
    tiny={"side": 3, "steps": 2}, small={"side": 6, "steps": 4}, full={"side": 12, "steps": 6},
)  # fmt: skip
def map_overlap(client, side, steps, block=200):
    """Some steps of a stencil over a field that is cut into squares."""
    field = numbers((side * block, side * block), (block, block), seed=5)
    for _ in range(steps):
        field = field.map_overlap(smoothed, depth=1, boundary="periodic", dtype=float, meta=np.empty((0, 0)))
    return computed(client, field.sum(axis=0))


@workload(
    "results that are each needed many times, in another order than they are made",
    tiny={"side": 3}, small={"side": 8}, full={"side": 13},
)  # fmt: skip
def matmul(client, side, block=200):
    """A matrix times another one."""
    x = numbers((side * block, side * block), (block, block), seed=6)
    y = numbers((side * block, side * block), (block, block), seed=7)
    return computed(client, (x @ y).sum(axis=0))


@workload(
    "a tree of factorisations, then back up: results that wait long for their second use",
    tiny={"rows": 8}, small={"rows": 200}, full={"rows": 1_000},
)  # fmt: skip
def svd_tall(client, rows, block=1_000, columns=50):
    """The singular values of a tall and skinny matrix."""
    x = numbers((rows * block, columns), (block, columns), seed=8)
    _, values, _ = da.linalg.svd(x)
    return computed(client, values)


@workload(
    "several arrays that have to meet: elementwise work on shifted fields",
    tiny={"times": 10}, small={"times": 60}, full={"times": 300},
)  # fmt: skip
def vorticity(client, times, side=300):
    """The curl of a field of wind, and its mean square at each time."""
    u, v = (numbers((times, side, side), (1, side, side), seed=9 + i) for i in range(2))
    curl = da.diff(v, axis=2)[:, 1:, :] - da.diff(u, axis=1)[:, :, 1:]
    return computed(client, (curl**2).mean(axis=(1, 2)))


@workload(
    "a chain across all chunks: nothing else to do when it is late",
    tiny={"chunks": 30}, small={"chunks": 200}, full={"chunks": 800},
)  # fmt: skip
def cumulative_sum(client, chunks, length=10_000):
    """A running sum along the array, and its mean."""
    x = numbers(chunks * length, length, seed=11) - 0.5
    return computed(client, da.cumsum(x, method="sequential").mean())


@workload(
    "results of more than memory may hold, all of them needed twice",
    tiny={"side": 4}, small={"side": 10}, full={"side": 28},
)  # fmt: skip
def spill(client, side, block=500):
    """A matrix that is kept (1.6 GB at full size), added to its transpose."""
    x = numbers((side * block, side * block), (block, block), seed=12).persist()
    return computed(client, (x + x.T).mean(axis=0))


@workload(
    "tasks that write and read files, whose results are not their purpose",
    tiny={"side": 4}, small={"side": 12}, full={"side": 30},
)  # fmt: skip
def zarr_store(client, side, block=250):
    """Chunks written to a store and read back in another order."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "x.zarr")
        x = numbers((side * block, side * block), (block, block), seed=13)
        client.compute(x.to_zarr(path, compute=False)).result()
        y = da.from_zarr(path)
        return computed(client, (y.T - y.mean()).std(axis=0))
