"""What of this cluster's results is in stores and may be loaded from there when nobody has it any more.

Of what is protected: all that a name means is a version there, by keys, written as those of a ``Checkpoint``
are, under a name of its own, so that none of these is ever pruned for it. A block whose content did not
change keeps its file, whatever its key is. A key with a content token means the same in every cluster: if the
same name is protected again, what is stored of it is loaded by tasks that have not begun. Any other key has a
place that nobody else looks for.

Of what a program commits: the newest version that it has there. If a result is lost with all its copies, no
more is computed again than what was done since that version.
"""

import json
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from time import monotonic
from typing import Any

from dask_hpc.checkpoint.scheduler.context import ControllerContext, holders, node_names
from dask_hpc.checkpoint.scheduler.recipes import Recipes
from dask_hpc.checkpoint.scheduler.series import Series, to_copy
from dask_hpc.checkpoint.store.files import Files
from dask_hpc.checkpoint.store.items import RESULTS, block_specs
from dask_hpc.checkpoint.store.manifest import Manifest, StoredBlock
from dask_hpc.checkpoint.store.seal import Damaged, Key, WrongKey
from dask_hpc.checkpoint.store.versions import Commit, Versions
from dask_hpc.checkpoint.version import STORE, KeptVersion
from dask_hpc.checkpoint.worker.loaders import is_content_key, may_be_stored, name_of
from dask_hpc.cluster.scheduler.service import Timer
from dask_hpc.model.errors import one_line

#: of the name in the store
SUFFIX = ".protected"
_LABEL = "results"
_DIGEST = 16
_LONG = 1e8  # seconds; who waits longer waits for ever


@dataclass(frozen=True, slots=True)
class _Stored:
    """``content`` is the agents' name of what is in the block."""

    version: int
    block: StoredBlock
    content: str


def _reading(
    settings: dict[str, Any], name: str, version: int, spec: dict[str, Any], block: StoredBlock
) -> dict[str, Any]:
    """How a worker reads a block."""
    return {
        **{one: settings[one] for one in ("root", "secret", "unpickle")},
        "name": name,
        "version": version,
        "spec": spec,
        "block": json.dumps(block.as_plain()),  # Dask would make its lists tuples
    }


class StoredVersion:
    """A program's newest version in the store: its results by key, as far as that says what they are. Any
    other key may mean something else by the time that it is lost."""

    def __init__(self, version: KeptVersion, manifest: Manifest) -> None:
        assert version.store is not None
        self._settings, self._manifest = version.store, manifest
        self._specs: dict[str, dict[str, dict[str, Any]]] = {}
        self.places = {
            key: at
            for at, key in version.keys.items()
            if is_content_key(key) and may_be_stored(key) and self._may_be_read(*at)
        }

    def where(self, key: Hashable) -> dict[str, Any]:
        label, place = self.places[key]
        item = self._manifest.items[label]
        if label not in self._specs:
            self._specs[label] = block_specs(label, item.kind, item.meta)
        spec, block = self._specs[label][place], item.blocks[place]
        return _reading(self._settings, self._manifest.name, self._manifest.version, spec, block)

    def _may_be_read(self, label: str, place: str) -> bool:
        is_pickled = "opaque" in self._manifest.items[label].blocks[place].note
        return not is_pickled or self._settings["unpickle"] is True


class StoredName(Series):
    """What a protected name has in the store, and what of it goes there next."""

    def __init__(
        self, context: ControllerContext, protected: Series, settings: dict[str, Any], run: str
    ) -> None:
        super().__init__(context, protected.name + SUFFIX)
        self.protected = protected
        self.settings = settings
        self._run = run
        #: by place
        self.index: dict[str, _Stored] = {}
        self._by_content: dict[str, _Stored] = {}
        #: what was written last, or will be, until it is there
        self._coming: KeptVersion | None = None
        self._timer = Timer(context, f"storing {protected.name}", self.look)
        self._is_told = self._is_over = False

    def stop(self) -> None:
        self._is_over = True
        self._timer.stop()

    def look(self) -> None:
        """Something was copied, or time has passed: write it, if that is due, or when it will be."""
        schedule, following = self.protected.schedule, self.protected.next_stored
        if self._is_over or STORE not in schedule.levels or following is None or not self._has_new():
            return
        if (seconds := schedule.store_due(not following.awaited) - monotonic()) <= 0:
            self._write()
        elif not self._timer.is_set and seconds < _LONG:
            self._timer.set(seconds)

    async def now(self) -> None:
        """Write what is not stored yet. Returns when it is there, or cannot be."""
        if self._has_new() and self._coming is None:
            self._write()
        if self._coming is not None:
            await self.settled(self._coming)

    def where(self, place: str, key: Hashable) -> dict[str, Any]:
        """How to read a key's block, which is there."""
        found = self.index[place]
        spec = block_specs(_LABEL, RESULTS, {"keys": {place: repr(key)}})[place]
        return _reading(self.settings, self.name, found.version, spec, found.block)

    async def find(self) -> None:
        """What was stored under the name before, and may be loaded from now on."""
        root, secret = self.settings["root"], self.settings["secret"]
        try:
            versions = Versions(Files(root), self.name, Key(secret) if secret else None)
            manifest, wrong = await self._writer.patience(root).call(versions.latest)
        except (OSError, WrongKey, Damaged) as error:
            self._say(f"nothing is known of older versions: {error}")
            return
        for problem in wrong:
            self._say(problem)
        if manifest is None:
            return
        is_first = not self.index
        self._learn(manifest)
        keys = self.protected.keys
        found = [
            key for key in keys if is_content_key(key) and name_of(key, self._run, _DIGEST) in self.index
        ]
        if found and is_first:
            number = self._context.get(Recipes).load_stored(found)
            of = f"{len(found)} of {len(keys)} results are stored"
            self._context.tell(
                STORE, f"{self.protected.name}: {of}; {number} are loaded, the others have begun"
            )

    def _learn(self, manifest: Manifest) -> None:
        """Ours or another cluster's, it is the newest there; older ones are pruned."""
        item = manifest.items.get(_LABEL)
        if not self.learn(manifest.version) or item is None or item.kind != RESULTS:
            return
        oldest = manifest.version - self.settings["keep"]
        self.index = {place: one for place, one in self.index.items() if one.version > oldest}
        contents, pickled = item.meta.get("contents", {}), 0
        self._by_content = {}
        for place, block in item.blocks.items():
            found = _Stored(manifest.version, block, str(contents.get(place, "")))
            if "opaque" in block.note and not self.settings["unpickle"]:
                pickled += 1
                self.index.pop(place, None)
                continue
            self.index[place] = found
            if found.content:
                self._by_content[found.content] = found
        if pickled and not self._is_told:
            self._is_told = True
            why = "are pickled objects, and are not loaded from the store: unpickle=True allows that"
            self._context.tell(STORE, f"{self.protected.name}: {pickled} of {len(item.blocks)} results {why}")

    def _say(self, what: str) -> None:
        self._context.tell(STORE, one_line(f"{self.name}: {what}"))

    def _has_new(self) -> bool:
        there = self._coming.items[_LABEL]["meta"]["contents"] if self._coming is not None else {}
        for key in self._ready():
            place, content = name_of(key, self._run, _DIGEST), self._context.catalogue.where(key)[0]
            known = self.index.get(place)
            written = there.get(place) if known is None else known.content
            if written is None or (content and written and written != content):
                return True
        return False

    def _ready(self) -> list[Hashable]:
        version, where = self.protected.next_stored, self._context.catalogue.where
        keys = to_copy(version) if version is not None else ()
        return [key for key in keys if where(key)[1] or holders(self._context, key)]

    def _write(self) -> None:
        if (version := self._snapshot()) is not None:
            self.protected.schedule.done([STORE])
            self.store(version)

    def _snapshot(self) -> KeptVersion | None:
        """A version of all that is there now."""
        keys = {} if self._is_over else {name_of(key, self._run, _DIGEST): key for key in self._ready()}
        if not keys:
            return None
        contents = {place: self._context.catalogue.where(key)[0] for place, key in keys.items()}
        meta = {"keys": {place: repr(key) for place, key in keys.items()}, "contents": contents}
        self._coming = version = KeptVersion(
            self,
            {(_LABEL, place): key for place, key in keys.items()},
            name=self.name,
            store=self.settings,
            items={_LABEL: {"kind": RESULTS, "meta": meta, "on_resize": "constant"}},
            nodes=node_names(self._context),
        )
        self.need(version, filter(None, contents.values()))
        return version

    def called(self, version: KeptVersion) -> str:
        return self.name

    def again(self, version: KeptVersion) -> KeptVersion | None:
        """With what is there by now: what was lost meanwhile cannot be written."""
        return self._snapshot()

    def prepare(self, version: KeptVersion, commit: Commit) -> None:
        """What is stored under another key keeps its file."""
        contents = version.items[_LABEL]["meta"]["contents"]
        for (_, place), spec in commit.specs.items():
            if "old" not in spec and (known := self._by_content.get(contents[place])) is not None:
                spec["old"] = {"version": known.version, **known.block.as_plain()}

    def stored(self, version: KeptVersion, manifest: Manifest, seconds: float) -> None:
        if self._coming is version:
            self._coming = None
        self._learn(manifest)
        self.protected.schedule.measured(STORE, seconds)
        self.protected.schedule.kept(STORE, monotonic() - seconds)
        for (_, place), key in version.keys.items():
            if place in self.index:
                self._context.get(Recipes).load_instead(key)
        self.look()  # what came meanwhile


class StoredResults:
    """What protected names, and programs, have in stores."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._recipes = context.get(Recipes)
        self._recipes.stored = self
        self._run = context.scheduler.id
        self.names: dict[str, StoredName] = {}
        #: by program
        self._committed: dict[str, StoredVersion] = {}

    def open(self, protected: Series, settings: dict[str, Any]) -> None:
        """This name goes to a store. What is there already may be loaded from now on."""
        known = self.names.get(protected.name)
        if known is not None and known.settings["root"] == settings["root"]:
            known.protected, known.settings = protected, settings
            return
        self.close(protected.name)
        name = self.names[protected.name] = StoredName(self._context, protected, settings, self._run)
        self._context.do("a copy", name.find())

    def close(self, name: str) -> None:
        if (gone := self.names.pop(name, None)) is not None:
            gone.stop()

    def close_all(self) -> None:
        for name in list(self.names):
            self.close(name)
        self._committed.clear()

    def is_committed(self, version: KeptVersion, manifest: Manifest) -> None:
        """A version of a program is there: its results need not be computed again."""
        self._committed[version.name] = found = StoredVersion(version, manifest)
        for key in found.places:
            self._recipes.load_instead(key)

    def forget(self, program: str) -> None:
        """Nobody needs what a program has committed."""
        self._committed.pop(program, None)

    def graph_arrives(self, keys: Iterable[Hashable]) -> None:
        """Tasks were submitted and have not moved yet. Those that are stored will load."""
        if any(name.index for name in self.names.values()):
            self._recipes.load_stored([key for key in keys if is_content_key(key) and key in self])

    def cannot_be_read(self, key: Hashable) -> None:
        """What is stored of a key is damaged, gone, or out of reach."""
        place = name_of(key, self._run, _DIGEST)
        for name in self.names.values():
            name.index.pop(place, None)
        for version in self._committed.values():
            version.places.pop(key, None)

    def __contains__(self, key: object) -> bool:
        if any(key in version.places for version in self._committed.values()):
            return True
        if not self.names:
            return False
        place = name_of(key, self._run, _DIGEST)
        return any(place in name.index for name in self.names.values())

    def where(self, key: Hashable) -> dict[str, Any] | None:
        """How to read a key's block; nothing if it is not stored."""
        if version := next((one for one in self._committed.values() if key in one.places), None):
            return version.where(key)
        if not self.names:
            return None
        place = name_of(key, self._run, _DIGEST)
        return next((one.where(place, key) for one in self.names.values() if place in one.index), None)

    def as_plain(self, name: str) -> dict[str, Any]:
        """How much of a name is stored, and what is wrong with the store, if anything is."""
        known = self.names.get(name)
        if known is None:
            return {}
        stored = sum(name_of(key, self._run, _DIGEST) in known.index for key in known.protected.keys)
        return {"stored": stored, "store_problem": known.store_problem}
