"""Which tasks read or write: from what Dask says of them, from their name, and from what was measured.

No annotation of a collection survives Dask's fusion, so this is told from what does survive. In order:

1. measured over at least 20 tasks of that name: those that compute for most of their time do not read, those
   that wait for most of it do;
2. Dask's own mark of data producers, which survives fusion (arrays and data frames made from files);
3. the name, which fusion makes by joining names with "-": one of them is that of a well-known reader, as a
   whole, and followed by what was fused to it. A function called ``read_mask`` or ``spread`` does not read.

What is measured is processor time against the rest of the thread's time. Waiting for other things (locks, the
interpreter's lock) counts as reading then, so the mark is not taken from what neither computes nor waits
for most of its time.

Dask has no mark for tasks that write, so of them the name alone tells: ``store``, ``to_zarr`` (xarray's, too)
and ``to_netcdf`` make tasks ``store-map``, the others are called as their function is.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import urlsplit

#: measurements count from so many tasks on
ENOUGH = 20

_WAITS = 0.6  # of its time, and more: it reads
_COMPUTES = 0.2  # of its time waiting, and less: it does not


def _spelled(*names: str) -> frozenset[str]:
    """Each name as keys may have it."""
    return frozenset(word for name in names for word in (name, name.replace("_", "-"), name.replace("_", "")))


#: what Dask, xarray and their likes call the functions that read, by family
_READERS = _spelled(
    "open_dataset", "open_mfdataset", "open_zarr", "open_dataarray", "open_rasterio", "open_groups",
    "from_zarr", "from_npy_stack", "from_hdf5", "from_tiledb", "from_delayed_files",
    "read_parquet", "read_csv", "read_table", "read_fwf", "read_json", "read_hdf", "read_orc", "read_sql",
    "read_sql_table", "read_sql_query", "read_text", "read_avro", "read_bytes", "read_block_from_file",
    "read_block", "read_zarr", "imread", "load_dataset", "load_dataarray",
)  # fmt: skip
#: families whose names go on: ``readparquetpyarrowfs``, ``readcsv``
_BEGINNINGS = ("readparquet", "readcsv", "fromparquet")
#: the same of the functions that write
_WRITERS = _spelled(
    "store_map", "store", "to_zarr", "to_netcdf", "to_parquet", "to_csv", "write_csv", "to_json",
    "write_json_partition", "to_hdf", "to_orc", "to_sql", "to_avro", "to_textfiles", "to_npy_stack",
    "to_tiledb", "imsave",
)  # fmt: skip
_WRITER_BEGINNINGS = ("toparquet", "tocsv")


class MeasuredCost(NamedTuple):
    """What tasks of one name have cost."""

    tasks: int
    computing: float
    waiting: float


def reads(name: str, is_producer: bool, measured: MeasuredCost | None = None) -> bool:
    """Whether tasks of that name (Dask's prefix of their keys) read."""
    if measured is not None and measured.tasks >= ENOUGH:
        busy = measured.computing + measured.waiting
        if busy > 0 and measured.waiting >= _WAITS * busy:
            return True
        if busy > 0 and measured.waiting <= _COMPUTES * busy:
            return False
    return is_producer or _has_word(name, _READERS, _BEGINNINGS)


def writes(name: str) -> bool:
    """Whether tasks of that name write."""
    return _has_word(name, _WRITERS, _WRITER_BEGINNINGS)


def file_share(name: str, is_producer: bool, measured: MeasuredCost) -> float:
    """The share of its time that such a task reads or writes files: by mark and name, and then what it does
    not compute, once that is measured. Who has neither may wait for anything: threads of a library that
    multiplies matrices, or a processor that others use, too."""
    if not (is_producer or _has_word(name, _READERS, _BEGINNINGS) or writes(name)):
        return 0.0
    busy = measured.computing + measured.waiting
    return measured.waiting / busy if measured.tasks >= ENOUGH and busy > 0 else 1.0


def intensity(name: str, is_producer: bool, measured: MeasuredCost) -> float:
    """The share of its time that such a task does not compute: measured, or all or nothing."""
    busy = measured.computing + measured.waiting
    if measured.tasks >= ENOUGH and busy > 0:
        return measured.waiting / busy
    return float(reads(name, is_producer))


@lru_cache(4096)  # of a job's prefixes it is asked at every decision
def _has_word(name: str, known: frozenset[str], beginnings: tuple[str, ...]) -> bool:
    """Whether a well-known function is among the names that were joined."""
    words = name.split("-")
    return any(
        "-".join(words[first:last]) in known or words[first].startswith(beginnings)
        for first in range(len(words))
        for last in range(first + 1, min(first + 5, len(words)) + 1)
    )


def rule_of(path: str, rules: Iterable[str]) -> str:
    """Of these folders the innermost that a path lies in, or "default"."""
    inside = (rule for rule in rules if path == rule or path.startswith(rule.rstrip("/") + "/"))
    return max(inside, key=len, default="default")


def file_system(path: str) -> str:
    """The first folder, or scheme and host of a URL."""
    if "://" in path:
        parts = urlsplit(path)
        return f"{parts.scheme}://{parts.netloc}"
    return "/" + path.strip("/").split("/")[0]
