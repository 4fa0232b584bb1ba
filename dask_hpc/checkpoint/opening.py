"""Where a program goes on: the newest version there is, in the memory of its cluster or in its store."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from dask_hpc.checkpoint.found import Found, in_memory, in_store
from dask_hpc.checkpoint.store import journal
from dask_hpc.checkpoint.store.files import Files, Trouble
from dask_hpc.checkpoint.store.manifest import Manifest
from dask_hpc.checkpoint.store.seal import Key
from dask_hpc.checkpoint.store.versions import Versions


class Opening:
    """Of one name. ``warn`` is told what a person should know."""

    def __init__(
        self, name: str, client: Any, key: Key | None, may_unpickle: bool, warn: Callable[[str], None]
    ) -> None:
        self._name = name
        self._client = client
        self._key = key
        self._may_unpickle = may_unpickle
        self._warn = warn

    async def find(self, memory: Mapping[str, Any] | None, store: str | None) -> Found | None:
        """The newest version, if there is one; ``memory`` is what the scheduler knows of it."""
        versions = None if store is None else Versions(Files(store), self._name, self._key)
        stored: Manifest | None = None
        noted: Mapping[str, Any] | None = None
        wrong: list[str] = []
        if versions is not None:
            stored, wrong, noted = await self._newest_stored(versions)
        found = None
        # The one that was further on is newer, whatever the clocks say.
        if memory is not None and (stored is None or memory["step"] >= (stored.step or 0)):
            found = await in_memory(self._client, memory)
        elif stored is not None and versions is not None:
            found, skipped = await in_store(self._client, versions, stored, self._key, self._may_unpickle)
            wrong = [*wrong, *skipped]
        for one in dict.fromkeys(wrong):
            self._warn(f"a newer version is damaged, an older one is used: {one}")
        if found is not None and found.where == "store" and noted is not None:
            lost = noted["step"]
            self._warn(
                f"iteration {lost} was in memory of a cluster that is gone; going on from {found.step}"
            )
        return found

    async def _newest_stored(
        self, versions: Versions
    ) -> tuple[Manifest | None, list[str], Mapping[str, Any] | None]:
        """The newest that can be read, what is wrong with newer ones, and what was newer in memory."""
        try:
            stored, wrong = await asyncio.to_thread(versions.latest)
            noted = await asyncio.to_thread(journal.read, versions.files.root, self._name)
        except Trouble as error:
            if self._client is None:
                raise
            self._warn(f"the store cannot be read, so nothing is known of older versions: {error}")
            return None, [], None
        reached = stored.step or 0 if stored is not None else 0
        return stored, list(wrong), noted if noted is not None and noted["step"] > reached else None
