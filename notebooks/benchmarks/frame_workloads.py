"""Real workloads on tables and on labelled arrays: shuffles, joins, groups, climatologies, quantiles."""

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import xarray as xr
from workload_kit import computed, workload


def rows_of(part, rows, keys, seed=0):
    """One partition; the same rows wherever it is made."""
    dice = np.random.default_rng([seed, part])
    return pd.DataFrame(
        {
            "key": dice.integers(0, keys, rows),
            "group": dice.integers(0, 20, rows),
            "a": dice.integers(0, 1_000, rows),
            "b": dice.random(rows),
        }
    )


def frame(parts, rows, keys, seed=0):
    """A table of random rows; nothing of it is made here."""
    meta = rows_of(0, 0, 1)
    return dd.from_map(rows_of, range(parts), rows=rows, keys=keys, seed=seed, meta=meta)


def digest(part):
    """Of rows in any order."""
    return pd.DataFrame(
        {
            "rows": [len(part)],
            "keys": [part.key.nunique()],
            "sum": [int((part.key * part.a).sum())],
        }
    )


@workload(
    "P2P of a table: all that comes in goes out to all others",
    tiny={"parts": 8}, small={"parts": 60}, full={"parts": 250},
)  # fmt: skip
def shuffle(client, parts, rows=20_000):
    """A table laid out anew by a key, so that each key is in one partition."""
    laid_out = frame(parts, rows, keys=10_000).shuffle("key", npartitions=parts, shuffle_method="p2p")
    meta = digest(rows_of(0, 0, 1))
    return computed(client, laid_out.map_partitions(digest, meta=meta).sum())


@workload(
    "two shuffles whose outputs have to meet",
    tiny={"parts": 6}, small={"parts": 30}, full={"parts": 120},
)  # fmt: skip
def join(client, parts, rows=10_000):
    """Two large tables joined on a key."""
    one, other = frame(parts, rows, 20_000), frame(parts // 2, rows, 20_000, seed=1)
    both = one.merge(other, on="key", shuffle_method="p2p")
    return computed(client, (both.a_x * both.b_y).sum(), both.a_y.sum(), both.b_x.mean())


@workload(
    "a tree of small tables, and some large ones beside it",
    tiny={"parts": 6}, small={"parts": 40}, full={"parts": 200},
)  # fmt: skip
def group_by(client, parts, rows=20_000):
    """Sums and means of a few large groups and of many small ones."""
    table = frame(parts, rows, 5_000)
    few = table.groupby("group").agg({"a": ["sum", "max"], "b": "mean"})
    many = table.groupby("key").b.mean(split_out=2)
    few, many = computed(client, few, many)
    return few.sort_index(), many.sort_index()


def weather(days, side, seed):
    """Some years of a daily field, a month or so in a chunk."""
    times = pd.date_range("2001-01-01", periods=days)
    values = da.random.default_rng(seed).random((days, side, side), chunks=(30, side, side))
    return xr.DataArray(values, dims=("time", "y", "x"), coords={"time": times}, name="t")


@workload(
    "groups that cut across chunks: hundreds of small slices of each",
    tiny={"days": 60}, small={"days": 240}, full={"days": 900},
)  # fmt: skip
def climatology(client, days, side=60):
    """The mean of each month over all years, and how far each month's days are from it."""
    t = weather(days, side, seed=1)
    mean = t.groupby("time.month").mean()
    away = abs(t.groupby("time.month") - mean).groupby("time.month").mean()
    mean, away = computed(client, mean.mean(("y", "x")), away.mean(("y", "x")))
    return mean.to_numpy(), away.to_numpy()


@workload(
    "all times of a place in one chunk: a rechunk before some real work",
    tiny={"days": 300}, small={"days": 3_000}, full={"days": 9_000},
)  # fmt: skip
def quantile(client, days, side=80):
    """Quantiles over time at each place."""
    t = weather(days, side, seed=2).chunk({"time": -1, "y": 10, "x": 40})
    return computed(client, t.quantile([0.1, 0.5, 0.9], dim="time").mean(("y", "x"))).to_numpy()
