"""Files that people name: read as a whole, up to a size; complaints name them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dask_hpc.model.errors import InputError, one_line
from dask_hpc.simulator.values import read_file

LARGEST = 10_000_000  # bytes


@contextmanager
def naming(file: str | Path) -> Iterator[None]:
    """What is complained about inside is in this file."""
    try:
        yield
    except InputError as error:
        raise (error if error.file else error.in_file(one_line(str(file)))) from None


def given_bytes(file: str | Path, most: int = LARGEST) -> bytes:
    """What is in it."""
    with naming(file):
        return read_file(Path(file), most)


def given_text(file: str | Path, most: int = LARGEST) -> str:
    """What is in it, in UTF-8."""
    data = given_bytes(file, most)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("", "is no text", "UTF-8", file=one_line(str(file))) from None
