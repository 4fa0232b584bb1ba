"""A whole commit straight to a store, and the parts of which others make commits of their own.

``save`` does it all, with tasks on the workers that hold the blocks. Whoever has other means to write blocks
(agents, in the background) does the same in four steps:

1. ``begin(...)`` claims a version and gives a ``Commit``. Its ``specs`` say by (label, place) what each block
   is to be: plain data, to be sent to wherever the block is.
2. ``commit.samples()`` names one block of each array of which it is not known yet whether to compress it.
   Call ``Sampler(commit.services)(spec, value)`` where the block is, and tell ``commit.decide(...)``.
   This step may be left out: such arrays are stored as they are.
3. ``Writer(...)``, which ``commit.writer`` is, writes a block: ``writer(spec, value)``, or
   ``cells.write_block``, gives the fields of a ``StoredBlock``. A block may be written twice.
4. ``finish(commit, blocks, ...)`` makes it a version and deletes old ones, or ``abandon(commit)`` gives up.

All of these may raise ``Trouble``; nothing of a commit is seen before ``finish`` has written its manifest.

Two that write one name at the same time do not mix: each claims a folder of its own. A version that is
finished makes unfinished older ones void; who wrote one of these gets ``Overtaken`` and may begin again.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.checkpoint.client.nodes import nodes_of
from dask_hpc.checkpoint.faults import reach
from dask_hpc.checkpoint.store import cells
from dask_hpc.checkpoint.store.cells import VALUE, Sampler, Writer
from dask_hpc.checkpoint.store.files import Files, Missing, Trouble
from dask_hpc.checkpoint.store.items import Described, Held, Plain, block_specs, describe
from dask_hpc.checkpoint.store.manifest import Item, Manifest, StoredBlock, Versions
from dask_hpc.checkpoint.store.seal import Damaged, Services, WrongKey
from dask_hpc.checkpoint.store.zarr_metadata import metadata_files
from dask_hpc.model.errors import InputError
from dask_hpc.model.job import OnResize

_CLAIM = "claim"

#: a block of a commit
Place = tuple[str, str]


class Overtaken(Trouble):
    """Another commit to the same name was finished while this one was written."""


@dataclass
class Commit:
    """A version that is being written."""

    versions: Versions
    version: int
    services: Services
    items: Mapping[str, Described]
    specs: dict[Place, dict[str, Any]] = field(repr=False)
    _claim: bytes = field(repr=False)

    @property
    def writer(self) -> Writer:
        """What writes blocks of this version."""
        return Writer(self.versions.files.root, self.versions.name, self.version, self.services)

    def samples(self) -> dict[tuple[str, str], Place]:
        """Arrays, by label and variable, of which it is not decided whether to compress them; one block
        of each."""
        found: dict[tuple[str, str], Place] = {}
        for (label, place), spec in self.specs.items():
            if spec["form"] != VALUE and "compress" not in spec:
                found.setdefault((label, _variable(place)), (label, place))
        return found

    def decide(self, label: str, variable: str, is_compressed: bool) -> None:
        """Compress an array, or do not."""
        for (its_label, place), spec in self.specs.items():
            if its_label == label and _variable(place) == variable and spec["form"] != VALUE:
                spec["compress"] = "always" if is_compressed else "never"


def begin(
    store: str,
    name: str,
    items: Iterable[Described],
    services: Services = Services(),  # noqa: B008
) -> Commit:
    """Claim the next version. What did not change since the last one is going to keep its files."""
    versions = Versions(Files(store), name, services.key)
    described = {item.label: item for item in items}
    old = _last(versions)
    specs = {}
    hidden = 0
    for label, item in described.items():
        known = old.items.get(label) if old else None
        for place, spec in block_specs(label, item.kind, item.meta).items():
            hidden += 1
            if services.key is not None:
                spec["file"] = f"blocks/{hidden:08}"
            elif services.compress != "auto":
                spec["compress"] = services.compress
            if old and known and place in known.blocks:
                spec["old"] = {"version": old.version, **_as_plain(known.blocks[place])}
            specs[label, place] = spec
    version, claim = _claimed(versions)
    reach("claimed")
    commit = Commit(versions, version, services, described, specs, claim)
    if services.key is None and services.compress == "auto" and old:
        _as_before(commit, old)
    return commit


def finish(
    commit: Commit,
    blocks: Mapping[Place, Mapping[str, Any]],
    *,
    step: int | None = None,
    nodes: Iterable[str] = (),
    token: str = "",
    on_resize: Mapping[str, Any] = {},
    keep: int = 3,
) -> Manifest:
    """All blocks are there (``blocks`` has what writing each of them gave): make it a version, and delete
    all but the last ``keep``."""
    items = {
        label: Item(
            item.kind,
            item.meta,
            {place: StoredBlock(**blocks[label, place]) for place in _places(commit, label)},
            rule_text(on_resize.get(label, "constant")),
        )
        for label, item in commit.items.items()
    }
    versions = commit.versions
    folder = cells.folder_of(versions.name, commit.version)
    if commit.services.key is None:
        for label, item in items.items():
            for path, body in metadata_files(label, item).items():
                versions.files.write(f"{folder}/{path}", [body], "metadata")
    manifest = Manifest(
        versions.name, commit.version, time.time(), items, step=step, nodes=tuple(nodes), token=token
    )
    _check_claim(commit)
    try:
        versions.commit(manifest)
    except Missing:
        raise _overtaken(commit) from None
    if not versions.files.is_local:
        _check_claim(commit)
    with suppress(Trouble):  # they are deleted the next time
        versions.prune(keep)
    return manifest


def abandon(commit: Commit) -> None:
    """Nothing becomes of it."""
    with suppress(Trouble):
        commit.versions.files.delete(cells.folder_of(commit.versions.name, commit.version))


def rule_text(rule: Any) -> str:
    """What becomes of a value on a resize, as a manifest says it."""
    found = OnResize.read(rule)
    return f"{found.rule}:{found.value!r}" if found.rule in ("default", "joining") else found.rule


def travelling(thing: Any) -> Any:
    """A ``Writer``, ``Sampler`` or ``Reader`` as something that workers can call without having us."""
    return compat.Portable(compat.pickled(thing))


def save(
    client: Any,
    store: str,
    name: str,
    items: Mapping[str, Any],
    *,
    step: int | None = None,
    token: str = "",
    on_resize: Mapping[str, Any] = {},
    services: Services = Services(),  # noqa: B008
    keep: int = 3,
    progress: Callable[[int, int], None] | None = None,
) -> Any:
    """Commit these items, by their labels, and give the manifest (an awaitable of it if the client is an
    asynchronous one). Blocks are written by the workers that have them; plain values from here.

    ``progress`` is called with the number of blocks that are written, and of all. Without a client,
    only plain values can be saved. Raises ``InputError`` or ``Trouble``.
    """
    described = [describe(one, label) for label, one in items.items()]
    for label in on_resize:
        rule_text(on_resize[label])
    told: dict[str, Any] = {"step": step, "token": token, "on_resize": on_resize, "keep": keep}
    if client is not None:
        return client.sync(_saved, client, store, name, described, services, progress, told)
    for item in described:
        if any(isinstance(source, Held) for source in item.sources.values()):
            raise InputError(
                f"item {item.label}", f"found a {item.kind}", "plain values, if there is no client"
            )
    commit = begin(store, name, described, services)
    try:
        return finish(commit, _write_here(commit), **told)
    except BaseException:
        abandon(commit)
        raise


async def _saved(
    client: Any,
    store: str,
    name: str,
    described: list[Described],
    services: Services,
    progress: Callable[[int, int], None] | None,
    told: dict[str, Any],
) -> Manifest:
    kept = []  # what is persisted is needed until the end
    for number, item in enumerate(described):
        if item.collection:
            kept.append(client.persist(list(item.collection)))
            described[number] = item.after(kept[-1])
    keys = [source.key for item in described for source in item.sources.values() if isinstance(source, Held)]
    await _computed(client, keys)
    commit = await asyncio.to_thread(begin, store, name, described, services)
    try:
        await _decide(client, commit)
        blocks = await asyncio.to_thread(_write_here, commit)
        if progress:
            progress(len(blocks), len(commit.specs))
        async for place, block in _written_there(client, commit):
            blocks[place] = block
            if progress:
                progress(len(blocks), len(commit.specs))
        nodes = tuple(await nodes_of(client))
        return await asyncio.to_thread(lambda: finish(commit, blocks, nodes=nodes, **told))
    except BaseException:
        await asyncio.to_thread(abandon, commit)
        raise


async def _computed(client: Any, keys: list[Any]) -> None:
    """Wait for results; what went wrong with them is raised here."""
    from distributed import Future

    futures = [Future(key, client) for key in keys]
    from distributed import wait

    await wait(futures)
    for future in futures:
        if future.status != "finished":
            await future.result()


async def _decide(client: Any, commit: Commit) -> None:
    places = commit.samples()
    if not places:
        return
    here = {array: place for array, place in places.items() if isinstance(_source(commit, place), Plain)}
    sampler = Sampler(commit.services)
    for array, place in here.items():
        commit.decide(*array, sampler(commit.specs[place], _source(commit, place).value))
    there = {array: place for array, place in places.items() if array not in here}
    async for place, pays in _on_holders(client, commit, sampler, list(there.values())):
        commit.decide(place[0], _variable(place[1]), pays)


def _write_here(commit: Commit) -> dict[Place, dict[str, Any]]:
    writer = commit.writer
    return {
        place: writer(spec, source.value)
        for place, spec in commit.specs.items()
        if isinstance(source := _source(commit, place), Plain)
    }


def _written_there(client: Any, commit: Commit) -> Any:
    places = [place for place in commit.specs if isinstance(_source(commit, place), Held)]
    return _on_holders(client, commit, commit.writer, places)


async def _on_holders(client: Any, commit: Commit, work: Any, places: list[Place]) -> Any:
    """Do something with blocks where they are, and tell of each when it is done."""
    from distributed import Future, as_completed

    keys = {place: _source(commit, place).key for place in places}
    holders = await compat.who_holds(client, set(keys.values()))
    groups: dict[tuple[str, ...], list[Place]] = defaultdict(list)
    for place, key in keys.items():
        groups[tuple(holders.get(key, ()))].append(place)
    portable = travelling(work)
    place_of: dict[Any, Place] = {}
    for addresses, group in groups.items():
        futures = client.map(
            portable,
            [commit.specs[place] for place in group],
            [Future(keys[place], client) for place in group],
            key=f"hpc-checkpoint-{token_hex(8)}",
            pure=False,
            workers=list(addresses) or None,
            # Whoever gets the block when its holder is gone can write it as well.
            allow_other_workers=bool(addresses),
        )
        place_of |= zip(futures, group, strict=True)
    async for future in as_completed(list(place_of)):
        yield place_of[future], await future.result()


def _source(commit: Commit, place: Place) -> Any:
    return commit.items[place[0]].sources[place[1]]


def _places(commit: Commit, label: str) -> Iterator[str]:
    return (place for its_label, place in commit.specs if its_label == label)


def _variable(place: str) -> str:
    return place.rpartition("/")[0] or place


def _last(versions: Versions) -> Manifest | None:
    """What a new version may share files with."""
    try:
        return versions.latest()[0]
    except (WrongKey, Damaged):
        return None  # another key from now on


def _as_plain(block: StoredBlock) -> dict[str, Any]:
    return {"file": block.file, "nbytes": block.nbytes, "content": block.content, "note": dict(block.note)}


def _as_before(commit: Commit, old: Manifest) -> None:
    """Arrays that are as they were are compressed if they were: only then they can keep files."""
    for label, item in commit.items.items():
        known = old.items.get(label)
        if known is None or known.meta.get("variables") is None:
            continue
        before = {one["place"]: one for one in known.meta["variables"]}
        for one in item.meta.get("variables", ()):
            was = before.get(one["place"], {})
            if any(was.get(key) != one[key] for key in ("dtype", "cells", "form")):
                continue
            notes = [block.note for place, block in known.blocks.items() if _variable(place) == one["place"]]
            if notes:
                commit.decide(label, one["place"], any("codec" in note for note in notes))


def _claimed(versions: Versions) -> tuple[int, bytes]:
    claim = token_hex(16).encode()
    version = versions.next_number()
    while not versions.files.claim(f"{cells.folder_of(versions.name, version)}/{_CLAIM}", claim):
        version = max(version + 1, versions.next_number())
    return version, claim


def _check_claim(commit: Commit) -> None:
    folder = cells.folder_of(commit.versions.name, commit.version)
    with suppress(Missing):
        if commit.versions.files.read(f"{folder}/{_CLAIM}") == commit._claim:
            return
    raise _overtaken(commit)


def _overtaken(commit: Commit) -> Overtaken:
    name = commit.versions.name
    return Overtaken(
        11,
        f"{name}: somebody else finished a version of that name while version {commit.version} was written",
    )


def problems(versions: Versions, version: int) -> Iterator[str]:
    """Of one version, a line each."""
    try:
        manifest = versions.read(version)
    except (Damaged, Missing) as error:
        yield str(error)
        return
    where = f"{manifest.name} version {version}"
    for problem in versions.problems(manifest):
        yield f"{where}: {problem}"
    if versions.key is not None:
        return
    for label, item in manifest.items.items():
        try:
            expected = metadata_files(label, item)
        except (WrongKey, ValueError, LookupError, TypeError, AttributeError) as error:
            yield f"{where}: item {label}: its description is damaged ({type(error).__name__})"
            continue
        for path, body in expected.items():
            try:
                found = versions.files.read(f"{versions.name}/{version:08}/{path}")
            except Trouble as error:
                yield f"{where}: {path}: {error.strerror}"
                continue
            if found != body:
                yield f"{where}: {path} is damaged: we do not need it, but plain xarray does"
