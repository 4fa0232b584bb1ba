"""The version that a program goes on from: in the memory of the cluster that it finds, or in its store."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.checkpoint.client.restore import restore
from dask_hpc.checkpoint.store.files import Files, Trouble
from dask_hpc.checkpoint.store.items import ARRAYS, rebuild
from dask_hpc.checkpoint.store.manifest import Manifest
from dask_hpc.checkpoint.store.seal import Key
from dask_hpc.checkpoint.store.versions import Versions, read_note
from dask_hpc.model.errors import InputError, shown


@dataclass
class Found:
    """All values by label, and how each was described."""

    where: str
    step: int
    token: str
    nodes: tuple[str, ...]
    values: dict[str, Any] = field(repr=False)
    described: Mapping[str, tuple[str, Mapping[str, Any]]] = field(repr=False)

    def check(self, label: str, kind: str, meta: Mapping[str, Any]) -> None:
        """Whether a value of the program can have become the one that was found. ``InputError`` if not."""
        was, its = self.described[label]
        if (kind in ARRAYS) != (was in ARRAYS):
            raise InputError(
                f"add({label!r}, ...)", f"a {kind}", f"a {was}, as in the version in the {self.where}"
            )
        if kind in ARRAYS and (here := _shapes(meta)) != (there := _shapes(its)):
            raise InputError(
                f"add({label!r}, ...)", f"found {shown(here)}", f"{shown(there)}, as in the {self.where}"
            )


def _shapes(meta: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    return sorted((one["place"], tuple(one["shape"]), one["dtype"]) for one in meta["variables"])


async def in_memory(client: Any, told: Mapping[str, Any]) -> Found:
    """What the scheduler knows, as results of this client."""
    futures = compat.futures_for(client, [key for _, _, key in told["blocks"]])
    blocks: dict[str, dict[str, Any]] = {}
    for label, place, key in told["blocks"]:
        blocks.setdefault(label, {})[place] = futures[key]
    items = json.loads(told["items"])
    values = {}
    for label, item in items.items():
        there = blocks.get(label, {})
        plain = {place: there[place] for place in item["plain"]}
        there = there | dict(zip(plain, await client.gather(list(plain.values())), strict=True))
        values[label] = rebuild(item["kind"], item["meta"], there, may_unpickle=True)
    described = {label: (item["kind"], item["meta"]) for label, item in items.items()}
    return Found("memory", told["step"], told["token"], tuple(told["nodes"]), values, described)


async def in_store(
    client: Any, store: Versions, manifest: Manifest, key: Key | None, may_unpickle: bool
) -> tuple[Found, tuple[str, ...]]:
    """Read a version, or the newest before it that is intact; and what was passed over."""
    as_stored = dict.fromkeys(manifest.items, "constant")  # rules are those of the program
    wanted: dict[str, Any] = {"key": key, "unpickle": may_unpickle, "on_resize": as_stored}
    if client is not None:
        values, told = await restore(store.name, store.files.root, client=client, **wanted)
    else:
        values, told = await asyncio.to_thread(restore, store.name, store.files.root, verify=True, **wanted)
    if told.version != manifest.version:
        manifest = await asyncio.to_thread(store.read, told.version)
    if len(manifest.items) == 1:
        values = {next(iter(manifest.items)): values}
    described = {label: (item.kind, item.meta) for label, item in manifest.items.items()}
    found = Found("store", manifest.step or 0, manifest.token, manifest.nodes, dict(values), described)
    return found, told.skipped


async def newest(
    name: str,
    client: Any,
    memory: Mapping[str, Any] | None,
    root: str | None,
    key: Key | None,
    may_unpickle: bool,
) -> tuple[Found | None, list[str]]:
    """The version to go on from, if there is one, and what a person should know; ``memory`` is what the
    scheduler knows of it, ``root`` the store."""
    stored: Manifest | None = None
    noted: Mapping[str, Any] | None = None
    wrong: list[str] = []
    versions = None if root is None else Versions(Files(root), name, key)
    if versions is not None:
        try:
            stored, wrong = await asyncio.to_thread(versions.latest)
            noted = await asyncio.to_thread(read_note, versions.files.root, name)
        except Trouble as error:
            if client is None:
                raise
            told = [f"the store cannot be read, so nothing is known of older versions: {error}"]
            return (None if memory is None else await in_memory(client, memory)), told
    found, reached = None, 0 if stored is None else stored.step or 0
    # The one that was further on is newer, whatever the clocks say.
    if memory is not None and (stored is None or memory["step"] >= reached):
        found = await in_memory(client, memory)
    elif stored is not None and versions is not None:
        found, skipped = await in_store(client, versions, stored, key, may_unpickle)
        wrong = [*wrong, *skipped]
    told = [f"a newer version is damaged, an older one is used: {one}" for one in dict.fromkeys(wrong)]
    if found is not None and found.where == "store" and noted is not None and noted["step"] > reached:
        was = f"iteration {noted['step']} was in memory of a cluster that is gone"
        told.append(f"{was}; going on from {found.step}")
    return found, told
