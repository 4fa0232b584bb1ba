"""Protected results go to the store, too: all that a name means is a version there, by keys.

They are written as versions of a ``Checkpoint`` are (see ``store_queue``), under a name of their own, so that
none of these is ever pruned for them. A block whose content did not change keeps its file, whatever its key
is. A key with a content token means the same in every cluster: if the same name is protected again, what is
stored of it is loaded by tasks that have not begun. Any other key has a place that nobody else looks for.
"""

import asyncio
import json
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from time import monotonic
from typing import Any

from dask_hpc.checkpoint.levels import STORE
from dask_hpc.checkpoint.scheduler.context import ControllerContext, holders, node_names
from dask_hpc.checkpoint.scheduler.recipes import Recipes
from dask_hpc.checkpoint.scheduler.store_queue import StoreQueue
from dask_hpc.checkpoint.scheduler.versions import WRITING, KeptVersion, Protected
from dask_hpc.checkpoint.store.files import Files
from dask_hpc.checkpoint.store.items import RESULTS, block_specs
from dask_hpc.checkpoint.store.manifest import Manifest, StoredBlock
from dask_hpc.checkpoint.store.seal import Damaged, Key, WrongKey
from dask_hpc.checkpoint.store.versions import Commit, Versions
from dask_hpc.checkpoint.worker.rescue import is_content_key
from dask_hpc.model.errors import one_line

#: of the name in the store
SUFFIX = ".protected"
_LABEL = "results"
_DIGEST = 16


@dataclass(frozen=True, slots=True)
class _Stored:
    """``content`` is the agents' name of what is in the block."""

    version: int
    block: StoredBlock
    content: str


@dataclass
class _Name:
    """A name's versions there."""

    home: "StoredResults"
    protected: Protected
    settings: dict[str, Any]
    #: by place
    index: dict[str, _Stored] = field(default_factory=dict)
    by_content: dict[str, _Stored] = field(default_factory=dict)
    coming: KeptVersion | None = None
    number: int = 0
    timer: asyncio.TimerHandle | None = None
    is_told: bool = False

    @property
    def in_store(self) -> str:
        """How it is called there."""
        return self.protected.name + SUFFIX

    # as a version's origin

    def called(self, version: KeptVersion) -> str:
        """As in the story."""
        return self.in_store

    def again(self, version: KeptVersion) -> KeptVersion | None:
        """With what is there by now: what was lost meanwhile cannot be written."""
        return self.home.version(self)

    def prepare(self, version: KeptVersion, commit: Commit) -> None:
        """What is stored under another key keeps its file."""
        contents = version.items[_LABEL]["meta"]["contents"]
        for (_, place), spec in commit.specs.items():
            if "old" not in spec and (known := self.by_content.get(contents[place])) is not None:
                spec["old"] = {"version": known.version, **known.block.as_plain()}

    def stored(self, version: KeptVersion, manifest: Manifest, seconds: float) -> None:
        """It is in the store."""
        self.home.is_there(self, version, manifest, seconds)


class StoredResults:
    """What protected names have in stores, and what of them goes there next."""

    def __init__(self, context: ControllerContext, recipes: Recipes, queue: StoreQueue) -> None:
        self._context = context
        self._recipes = recipes
        self._queue = queue
        self._run = context.scheduler.id
        self._names: dict[str, _Name] = {}

    # what happens

    def open(self, protected: Protected, settings: dict[str, Any]) -> None:
        """This name goes to a store. What is there already may be loaded from now on."""
        known = self._names.get(protected.name)
        if known is not None and known.settings["root"] == settings["root"]:
            known.protected, known.settings = protected, settings
            return
        self.close(protected.name)
        name = self._names[protected.name] = _Name(self, protected, settings)
        self._context.do(self._find(name))

    def close(self, name: str) -> None:
        """It goes there no longer. What is there stays."""
        gone = self._names.pop(name, None)
        if gone is not None and gone.timer is not None:
            gone.timer.cancel()

    def close_all(self) -> None:
        """Nothing is written any longer."""
        for name in list(self._names):
            self.close(name)

    def graph_arrives(self, keys: Iterable[Hashable]) -> None:
        """Tasks were submitted and have not moved yet. Those that are stored will load."""
        if any(name.index for name in self._names.values()):
            found = [key for key in keys if is_content_key(key) and key in self]
            self._recipes.load_stored(found)

    def copied(self, protected: Protected) -> None:
        """A name was copied: write it, if that is due, or when it will be."""
        name = self._names.get(protected.name)
        if name is None or STORE not in protected.schedule.levels or not self._has_new(name):
            return
        assert protected.next_stored is not None
        due = protected.schedule.store_due(not protected.next_stored.awaited)
        if (seconds := due - monotonic()) <= 0:
            self._write(name)
        elif name.timer is None and seconds < 1e8:
            name.timer = asyncio.get_running_loop().call_later(seconds, self._fire, name)

    async def now(self, protected: Protected) -> None:
        """Write what is not stored yet. Returns when it is there, or cannot be."""
        name = self._names.get(protected.name)
        if name is None:
            return
        if self._has_new(name) and name.coming is None:
            self._write(name)
        if name.coming is not None:
            await name.coming.settled.wait()

    def cannot_be_read(self, key: Hashable) -> None:
        """What is stored of a key is damaged, gone, or out of reach."""
        place = self._place(key)
        for name in self._names.values():
            name.index.pop(place, None)

    # facts

    def __contains__(self, key: Hashable) -> bool:
        return bool(self._names) and self._stored(key) is not None

    def where(self, key: Hashable) -> dict[str, Any] | None:
        """How to read a key's block; nothing if it is not stored."""
        if not self._names or (there := self._stored(key)) is None:
            return None
        name, found = there
        place = self._place(key)
        return {
            "root": name.settings["root"],
            "name": name.in_store,
            "version": found.version,
            "spec": block_specs(_LABEL, RESULTS, {"keys": {place: repr(key)}})[place],
            "block": json.dumps(found.block.as_plain()),  # Dask would make its lists tuples
            "secret": name.settings["secret"],
            "unpickle": name.settings["unpickle"],
        }

    def as_plain(self, name: str) -> dict[str, Any]:
        """How much of a name is stored, and what is wrong with the store, if anything is."""
        known = self._names.get(name)
        if known is None:
            return {}
        stored = sum(self._place(key) in known.index for key in known.protected.keys)
        return {"stored": stored, "store_problem": self._queue.problem(known.in_store)}

    def _stored(self, key: Hashable) -> tuple[_Name, _Stored] | None:
        place = self._place(key)
        for name in self._names.values():
            if (found := name.index.get(place)) is not None:
                return name, found
        return None

    def _place(self, key: Hashable) -> str:
        meant = repr(key) if is_content_key(key) else f"{key!r} of {self._run}"
        return blake2b(meant.encode(), digest_size=_DIGEST).hexdigest()

    # what is there

    async def _find(self, name: _Name) -> None:
        settings = name.settings
        secret = settings["secret"]
        patience = self._queue.patience(settings["root"])
        try:
            versions = Versions(Files(settings["root"]), name.in_store, Key(secret) if secret else None)
            manifest, wrong = await patience.call(versions.latest)
        except (OSError, WrongKey, Damaged) as error:
            self._context.tell(
                STORE, one_line(f"{name.in_store}: nothing is known of older versions: {error}")
            )
            return
        for problem in wrong:
            self._context.tell(STORE, one_line(f"{name.in_store}: {problem}"))
        if manifest is None:
            return
        before = set(name.index)
        self._learn(name, manifest)
        found = [key for key in name.protected.keys if is_content_key(key) and self._place(key) in name.index]
        if found and not before:
            number = self._recipes.load_stored(found)
            of = f"{len(found)} of {len(name.protected.keys)} results are stored"
            self._context.tell(
                STORE, f"{name.protected.name}: {of}; {number} are loaded, the others have begun"
            )

    def _learn(self, name: _Name, manifest: Manifest) -> None:
        item = manifest.items.get(_LABEL)
        if item is None or item.kind != RESULTS:
            return
        oldest = manifest.version - name.settings["keep"]
        name.index = {place: one for place, one in name.index.items() if one.version > oldest}
        contents, pickled = item.meta.get("contents", {}), 0
        name.by_content = {}
        for place, block in item.blocks.items():
            found = _Stored(manifest.version, block, str(contents.get(place, "")))
            if "opaque" in block.note and not name.settings["unpickle"]:
                pickled += 1
                name.index.pop(place, None)
                continue
            name.index[place] = found
            if found.content:
                name.by_content[found.content] = found
        if pickled and not name.is_told:
            name.is_told = True
            why = "are pickled objects, and are not loaded from the store: unpickle=True allows that"
            self._context.tell(STORE, f"{name.protected.name}: {pickled} of {len(item.blocks)} results {why}")

    # what is written

    def _fire(self, name: _Name) -> None:
        name.timer = None
        if self._names.get(name.protected.name) is name:
            self.copied(name.protected)

    def _has_new(self, name: _Name) -> bool:
        there = name.coming.items[_LABEL]["meta"]["contents"] if name.coming is not None else {}
        for key in self._ready(name):
            place, content = self._place(key), self._context.catalogue.where(key)[0]
            known = name.index.get(place)
            written = there.get(place) if known is None else known.content
            if written is None or (content and written and written != content):
                return True
        return False

    def _ready(self, name: _Name) -> list[Hashable]:
        version = name.protected.next_stored
        keys = version.to_copy() if version is not None else ()
        return [key for key in keys if self._context.catalogue.where(key)[1] or holders(self._context, key)]

    def _write(self, name: _Name) -> None:
        version = self.version(name)
        if version is not None:
            name.protected.schedule.done([STORE])
            self._queue.flush(version)

    def version(self, name: _Name) -> KeptVersion | None:
        """Of all that is there now."""
        if self._names.get(name.protected.name) is not name:
            return None
        keys = {self._place(key): key for key in self._ready(name)}
        if not keys:
            return None
        contents = {place: self._context.catalogue.where(key)[0] for place, key in keys.items()}
        meta = {"keys": {place: repr(key) for place, key in keys.items()}, "contents": contents}
        name.number += 1
        version = KeptVersion(
            name,
            name.in_store,
            name.number,
            0,
            "",
            tuple(node_names(self._context)),
            {_LABEL: {"kind": RESULTS, "meta": meta, "on_resize": "constant"}},
            {(_LABEL, place): key for place, key in keys.items()},
            name.settings,
        )
        version.holds.add(WRITING)
        for content in filter(None, contents.values()):
            nbytes = self._context.catalogue.contents[content].nbytes
            version.nbytes += nbytes
            self._context.catalogue.need(version.owner, content, nbytes)
        name.coming = version
        return version

    def is_there(self, name: _Name, version: KeptVersion, manifest: Manifest, seconds: float) -> None:
        """A version of it is in the store."""
        if name.coming is version:
            name.coming = None
        self._learn(name, manifest)
        name.protected.schedule.measured(STORE, seconds, version.nbytes)
        for key in version.keys.values():
            if key in self:
                self._recipes.load_instead(key)
        if self._names.get(name.protected.name) is name:
            self.copied(name.protected)  # what came meanwhile
