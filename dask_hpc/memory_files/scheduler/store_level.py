"""Files of one file system that are also in a store: what was committed is written there a moment later, by
workers; what is removed goes there, too. Blocks that are lost are read from there.
"""

import asyncio
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.memory_files.scheduler.table import FileTable
from dask_hpc.model.errors import one_line

_AT_ONCE = 4  # files on their way to the store
_PAUSE = 5.0  # seconds after which what failed is tried again


class StoreLevel:
    """``store`` is a directory that all nodes share, or a URL."""

    def __init__(self, scheduler: Any, table: FileTable, tell: Callable[[str], None]) -> None:
        self._scheduler = scheduler
        self._table = table
        self._tell = tell
        self._store = table.settings.store.rstrip("/")
        self._waiting: dict[str, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = count()
        self.problem = ""

    @property
    def waiting(self) -> int:
        """How many files are not there as they are here."""
        return len(self._waiting) + len(self._tasks)

    def url(self, path: str) -> str:
        """Where a file is there."""
        return f"{self._store}/{path}"

    def follow(self, paths: Iterable[str]) -> None:
        """These have changed, or are gone."""
        self._waiting.update(dict.fromkeys(paths))
        while self._waiting and len(self._tasks) < _AT_ONCE:
            path = next(iter(self._waiting))
            del self._waiting[path]
            task = asyncio.ensure_future(self._write(path))
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            self.follow(())

    async def all_is_there(self) -> None:
        """Until nothing waits any more, or something cannot be written."""
        while self._tasks and not self.problem:
            await asyncio.wait(self._tasks, timeout=0.1)

    def close(self) -> None:
        """Nothing goes on."""
        self._waiting.clear()
        for task in self._tasks:
            task.cancel()

    async def _write(self, path: str) -> None:
        workers = sorted(compat.running_workers(self._scheduler))
        problem = "there is no worker to write it"
        if workers:
            worker = self._scheduler.rpc(workers[next(self._turn) % len(workers)])
            file = self._table.files.get(path)
            name = f"{self._table.name}/{path}" if file is not None else ""
            try:
                said = await worker.hpc_files_stage(path=name, to=self.url(path))
            except OSError as error:
                said = {"error": str(error)}
            problem = "it has no proxy" if said is None else said.get("error", "")
            if not problem and file is not None and [file.number, file.version] == list(said["version"]):
                file.stored = file.version
        if problem:
            if problem != self.problem:
                self._tell(one_line(f"{self.url(path)} could not be written, tried again later: {problem}"))
            self.problem = problem
            await asyncio.sleep(_PAUSE)
            self._waiting.setdefault(path)
        else:
            self.problem = ""
