"""Blocks that wait in files on their worker for an analysis that does not keep up.

A file is written as Dask writes results that it spills, one for each block, and is gone once it was read.
What is never read goes with the pipeline's plugin.
"""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from shutil import rmtree
from typing import Any

import xarray as xr
from distributed.protocol import deserialize_bytes, serialize_bytelist


class Filed:
    """Blocks in files, on the worker that made this."""

    __slots__ = ("paths",)

    def __init__(self, paths: dict[int, str]) -> None:
        self.paths = paths

    def take(self, wanted: Collection[int]) -> dict[int, xr.Dataset]:
        """Some of the blocks; their files are gone then."""
        found = {}
        for number in self.paths.keys() & set(wanted):
            path = Path(self.paths[number])
            found[number] = deserialize_bytes(path.read_bytes())
            path.unlink()
        return found


def folder(worker: Any, pipeline: str) -> Path:
    """Where the files of a pipeline are on a worker."""
    return Path(worker.local_directory) / f"in-situ-{pipeline}"


def file_away(where: Path, name: str, blocks: Mapping[int, xr.Dataset]) -> Filed:
    """Write blocks to files; their names tell them from those of other analyses and iterations."""
    where.mkdir(parents=True, exist_ok=True)
    paths = {}
    for number, block in blocks.items():
        path = where / f"{name}-{number}"
        with path.open("wb") as file:
            file.writelines(serialize_bytelist(block, on_error="raise"))
        paths[number] = str(path)
    return Filed(paths)


def remove_files(worker: Any, pipeline: str) -> None:
    """Of a pipeline that has ended."""
    rmtree(folder(worker, pipeline), ignore_errors=True)


def taken(given: Iterable[Any], wanted: Collection[int]) -> dict[int, xr.Dataset]:
    """Blocks out of all files among what a task is given."""
    return {
        number: block for one in given if isinstance(one, Filed) for number, block in one.take(wanted).items()
    }
