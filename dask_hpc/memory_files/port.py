"""What a process does with scratch files: the same for one that has a Dask client, for a worker's, and for
one that has neither and talks to the proxy of its host.

Paths begin with the name of the file system. Errors are those of files: ``FileNotFoundError``, ``OSError``
with ``ENOSPC``, and so on.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from dask_hpc.model.errors import InputError

How = Literal["new", "only-new", "change", "append"]


class FilesPort(Protocol):
    """The way to scratch files. All of it is called in the event loop ``loop``."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    async def do(self, steps: Sequence[Mapping[str, Any]]) -> list[Any]:
        """What the scheduler says of names. Raises the first error, when all is done."""

    async def read(
        self, path: str, begin: int = 0, end: int | None = None, number: int | None = None
    ) -> bytes:
        """Bytes of a file, all of the same version of it; ``number``: of that file alone, whatever other one
        has its name by now."""

    async def write(self, path: str, data: Any, how: How = "new") -> None:
        """A whole file at once."""

    async def read_many(self, wanted: Sequence[tuple[str, int, int | None]]) -> list[bytes | BaseException]:
        """Of many files, or parts of them; where something is wrong, that."""

    async def write_many(self, files: Mapping[str, Any], how: How = "new") -> None:
        """Many whole files."""

    async def open(self, path: str, how: How) -> tuple[int, int, int]:
        """Begin to write: a handle, the size that the file has, and how many bytes may be gathered before
        they are said to be written."""

    async def write_at(self, handle: int, at: int, data: Any) -> None:
        """Bytes to a place."""

    async def cut(self, handle: int, size: int) -> None:
        """The file has this size from now on."""

    async def read_back(self, handle: int, begin: int, end: int | None) -> bytes:
        """What is there, and was written here."""

    async def flush(self, handle: int) -> None:
        """Others see what was written so far."""

    async def close(self, handle: int) -> None:
        """The same, and nothing more comes."""

    async def discard(self, handle: int) -> None:
        """What was not flushed is nobody's."""


def split(path: str) -> tuple[str, str]:
    """The name of a file system, and the path in it."""
    name, _, rest = path.partition("/")
    return name, rest


def unpack(answer: Mapping[str, Any]) -> Any:
    """What one step has brought. Raises what was wrong with it."""
    if "ok" in answer:
        return answer["ok"]
    if "wrong" in answer:
        raise InputError("files", answer["wrong"])
    number, text, path = answer["error"]
    raise OSError(number, text or os.strerror(number), path)
