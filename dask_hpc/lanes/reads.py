"""Which tasks read: from what Dask says of them, from their name, and from what was measured.

No annotation of a collection survives Dask's fusion, so this is told from what does survive. In order:

1. measured over at least 20 tasks of that name: those that compute for most of their time do not read, those
   that wait for most of it do;
2. Dask's own mark of data producers, which survives fusion (arrays and data frames made from files);
3. the name, which fusion makes by joining names with "-": one of them is that of a well-known reader, as a
   whole, and followed by what was fused to it. A function called ``read_mask`` or ``spread`` does not read.

What is measured is processor time against the rest of the thread's time. Waiting for other things (locks, the
interpreter's lock) counts as reading then, so the mark is not taken from what neither computes nor waits
for most of its time.
"""

from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import urlsplit

#: measurements count from so many tasks on
ENOUGH = 20

_WAITS = 0.6  # of its time, and more: it reads
_COMPUTES = 0.2  # of its time waiting, and less: it does not

#: what Dask, xarray and their likes call the functions that read, by family
_READERS = frozenset(
    word
    for name in (
        "open_dataset", "open_mfdataset", "open_zarr", "open_dataarray", "open_rasterio", "open_groups",
        "from_zarr", "from_npy_stack", "from_hdf5", "from_tiledb", "from_delayed_files",
        "read_parquet", "read_csv", "read_table", "read_fwf", "read_json", "read_hdf", "read_orc", "read_sql",
        "read_sql_table", "read_sql_query", "read_text", "read_avro", "read_bytes", "read_block_from_file",
        "read_block", "read_zarr", "imread", "load_dataset", "load_dataarray",
    )
    for word in (name, name.replace("_", "-"), name.replace("_", ""))
)  # fmt: skip
#: families whose names go on: ``readparquetpyarrowfs``, ``readcsv``
_BEGINNINGS = ("readparquet", "readcsv", "fromparquet")


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
    return is_producer or _is_reader(name)


def intensity(name: str, is_producer: bool, measured: MeasuredCost) -> float:
    """The share of its time that such a task does not compute: measured, or all or nothing."""
    busy = measured.computing + measured.waiting
    if measured.tasks >= ENOUGH and busy > 0:
        return measured.waiting / busy
    return float(reads(name, is_producer))


def _is_reader(name: str) -> bool:
    """Whether a well-known reader is among the names that were joined."""
    words = name.split("-")
    return any(
        "-".join(words[first:last]) in _READERS or words[first].startswith(_BEGINNINGS)
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
