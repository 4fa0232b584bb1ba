"""A file system in the memory of workers, as who made it has it."""

from typing import Any, cast

from distributed import Client
from distributed import default_client as the_client

from dask_hpc import config
from dask_hpc.checkpoint.scheduler.context import NAME as CONTROLLER
from dask_hpc.checkpoint.scheduler.controller import Controller
from dask_hpc.memory_files.client.filesystem import PROTOCOL, MemoryFileSystem
from dask_hpc.memory_files.client.ports import remember
from dask_hpc.memory_files.scheduler.plugin import NAME, FilesPlugin
from dask_hpc.memory_files.settings import FilesSettings, check_files_name
from dask_hpc.memory_files.socket import socket_of
from dask_hpc.model.errors import InputError, insist, shown

_TRIES = 3  # at finding a controller that stays


class MemoryFiles:
    """Scratch files in the memory of a cluster's workers, for the time that the cluster lives.

    ``url("a/b.zarr")`` is a path that everything takes which reads and writes by fsspec, on every worker.
    ``nodes`` keep them: as many as are said, or all that there are, also those that come and go. Files leave
    a worker that is retired before it goes. What a node had that died is lost, unless ``copies`` keeps one
    more on another (or more), or ``levels`` has ``disk`` (until the worker is back) or ``store`` (then
    ``store`` is where). ``recommended`` is the speed of operations below which more nodes are taken, up to
    ``max_nodes``.

    >>> files = dask_hpc.MemoryFiles("scratch", copies=1)
    >>> dataset.to_zarr(files.url("run17.zarr"))
    >>> files.close(stage_out="/scratch/out")

    With an asynchronous client its methods give awaitables, and ``await files`` makes it.
    """

    def __init__(
        self, name: str = "scratch", *, client: Any = None, stage_out: str | None = None, **settings: Any
    ) -> None:
        self.name = check_files_name(name)
        self._client: Client = the_client() if client is None else client
        if not isinstance(self._client, Client):
            raise InputError("files: client", f"found {shown(client)}", "a Dask client")
        defaults = config.memory_files()
        self._settings = FilesSettings.of(defaults | settings)
        self._stage_out = stage_out
        self._is_closed = False
        self._made = self._client.sync(self._make)

    def __await__(self) -> Any:
        async def made() -> "MemoryFiles":
            making, self._made = self._made, None
            if making is not None:  # it may be awaited again, as by ``async with await``
                await making
            return self

        return made().__await__()

    def __repr__(self) -> str:
        return f"<MemoryFiles {self.url()}{', closed' if self._is_closed else ''}>"

    def url(self, path: str = "") -> str:
        """A path in it, for whatever reads and writes by fsspec."""
        return f"{PROTOCOL}://{self.name}/{path}".rstrip("/")

    @property
    def fs(self) -> MemoryFileSystem:
        """The file system itself, as fsspec knows it."""
        return MemoryFileSystem(asynchronous=self._client.asynchronous)

    def open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        """A file in it."""
        return self.fs.open(self.url(path), mode, **kwargs)

    def status(self) -> Any:
        """What it has, on which nodes, in which state, how fast: plain data."""
        return self._client.sync(self._ask, "hpc_files_status", name=self.name)

    def resize(self, nodes: int | None) -> Any:
        """Have it on so many nodes, or on all. Ends when the blocks of those that go are on others; those
        that are to come may come later."""
        return self._client.sync(self._ask, "hpc_files_resize", name=self.name, nodes=nodes)

    def set(self, **changes: Any) -> Any:
        """Other settings from now on: copies, write_back, batch, proxy, recommended, encrypt."""
        FilesSettings().changed(changes)
        return self._client.sync(self._ask, "hpc_files_set", name=self.name, changes=changes)

    def stage_out(self, to: str, path: str = "") -> Any:
        """Copy what is below a path to a directory or a URL, by the workers. How many files and bytes."""
        return self._client.sync(self._stage, to, path)

    def close(self, stage_out: str | None = None) -> Any:
        """Its files are gone; with ``stage_out`` they are there from now on."""
        return self._client.sync(self._close, stage_out or self._stage_out)

    def __enter__(self) -> "MemoryFiles":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> "MemoryFiles":
        return await self

    async def __aexit__(self, *error: object) -> None:
        await self._close(self._stage_out)

    async def _make(self) -> None:
        found: Any = None
        for _ in range(_TRIES):
            await self._client.register_plugin(Controller(), name=CONTROLLER)
            await self._client.register_plugin(FilesPlugin(), name=NAME)
            ask = self._client.scheduler.hpc_files_make
            found = await ask(name=self.name, settings=self._settings.as_plain())
            if found is not None:
                break
        remember(self.name, self._client)

    async def _ask(self, call: str, **what: Any) -> Any:
        insist(not self._is_closed, f"files: {self.name}", "closed", "one that is open")
        found = await getattr(self._client.scheduler, call)(**what)
        if found is None:
            raise FileNotFoundError(2, "it is gone", self.url())
        return found

    async def _stage(self, to: str, path: str) -> dict[str, int]:
        found = await self._ask("hpc_files_stage_out", name=self.name, path=path, to=to)
        return cast("dict[str, int]", found)

    async def _close(self, stage_out: str | None) -> None:
        if self._is_closed:
            return
        if stage_out:
            await self._stage(stage_out, "")
        self._is_closed = True
        if self._client.status == "running":
            await self._client.scheduler.hpc_files_close(name=self.name)

    @property
    def socket(self) -> str:
        """Where the proxy of this host listens, for programs that are no part of Dask: ``DASK_HPC_FILES``."""
        return socket_of(self._client.scheduler_info()["id"])
