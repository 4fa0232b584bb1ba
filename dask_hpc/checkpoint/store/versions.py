"""The versions of one name in a store: which there are, how another one comes to be, and which go.

Whoever has means to write blocks commits in four steps:

1. ``begin(...)`` claims a version and gives a ``Commit``. Its ``specs`` say by (label, place) what each block
   is to be: plain data, to be sent to wherever the block is.
2. ``commit.samples()`` names one block of each array of which it is not known yet whether to compress it.
   ``commit.decide(...)`` hears what a ``Sampler`` says of it. Else such arrays are stored as they are.
3. ``commit.writer`` writes a block: ``writer(spec, value)`` gives the fields of a ``StoredBlock``. A block
   may be written twice.
4. ``finish(commit, blocks, ...)`` makes it a version and deletes old ones, or ``abandon(commit)`` gives up.

All of these may raise ``Trouble``; nothing of a commit is seen before its manifest is written. Two that write
one name at the same time do not mix: each claims a folder of its own. A version that is finished makes
unfinished older ones void; who wrote one of these gets ``Overtaken`` and may begin again.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from errno import EAGAIN
from secrets import token_hex
from typing import Any

from dask_hpc.checkpoint.faults import reach
from dask_hpc.checkpoint.store.arrays import metadata_files
from dask_hpc.checkpoint.store.cells import VALUE, Sampler, Writer, folder_of
from dask_hpc.checkpoint.store.files import Files, Missing, Trouble
from dask_hpc.checkpoint.store.items import Described, Plain, block_specs, describe
from dask_hpc.checkpoint.store.manifest import Item, Manifest, StoredBlock, check_name
from dask_hpc.checkpoint.store.seal import Damaged, Key, Services, WrongKey, has_sum
from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.on_resize import OnResize

_MANIFEST = "manifest.json"
_CLAIM = "claim"
_NOTE = "journal.json"
_NOTE_FORMAT = "dask-hpc journal 1"

#: a block of a commit: label and place
Place = tuple[str, str]


class Overtaken(Trouble):
    """Another commit to the same name was finished while this one was written."""


class Versions:
    """Those of one name. May raise ``Trouble`` if the store cannot be used."""

    def __init__(self, files: Files, name: str, key: Key | None = None) -> None:
        self.files = files
        self.name = check_name(name)
        self.key = key

    def folder(self, version: int) -> str:
        return folder_of(self.name, version)

    def numbers(self) -> list[int]:
        """Of the versions that are there, the oldest first. Whether they are intact is not looked at."""
        return [one for one in self._folders() if _MANIFEST in self.files.names(self.folder(one))]

    def read(self, version: int) -> Manifest:
        """Raises ``Missing``, ``Damaged`` or ``WrongKey``."""
        found = self.files.read(f"{self.folder(version)}/{_MANIFEST}")
        return Manifest.read(found, self.name, version, self.key)

    def intact(self, wrong: list[str]) -> Iterator[Manifest]:
        """Those whose manifest is intact, the newest first. ``wrong`` hears of the others on the way."""
        for version in reversed(self.numbers()):
            try:
                yield self.read(version)
            except Missing:  # pruned by somebody meanwhile
                continue
            except Damaged as error:
                wrong.append(str(error))

    def latest(self) -> tuple[Manifest | None, list[str]]:
        """The newest version whose manifest is intact, and what was wrong with newer ones."""
        wrong: list[str] = []
        return next(self.intact(wrong), None), wrong

    def find(self, version: object) -> Manifest:
        """One by number, or ``"latest"``; ``InputError`` if there is none."""
        if version == "latest":
            manifest, wrong = self.latest()
            if manifest is None:
                why = f": {wrong[0]}" if wrong else ""
                raise InputError("version", f"{self.name} has none in {self.files.root}{why}")
            return manifest
        there = self.numbers()
        if type(version) is int and version in there:
            return self.read(version)
        known = ", ".join(map(str, there[-5:])) or "none"
        raise InputError("version", f"found {shown(version)}", f"latest, or one of {known}")

    def problems(self, version: int) -> Iterator[str]:
        """Everything that is wrong with a version, a line each: every file is read and its sum checked."""
        try:
            manifest = self.read(version)
        except (Damaged, Missing) as error:
            yield str(error)
            return
        where = f"{self.name} version {version}"
        for label, item in manifest.items.items():
            for place, block in item.blocks.items():
                at = f"{where}: {label}{place and f'[{place}]'}"
                try:
                    body = self.files.read(f"{self.folder(version)}/{block.file}")
                    if not has_sum([body], str(block.note.get("sum", ""))):
                        yield f"{at} is damaged"
                except Missing:
                    yield f"{at} is missing"
                except Trouble as error:
                    yield f"{at} cannot be read: {error.strerror}"
        for label, item in manifest.items.items() if self.key is None else ():
            try:
                expected = metadata_files(label, item)
            except (WrongKey, ValueError, LookupError, TypeError, AttributeError) as error:
                yield f"{where}: item {label}: its description is damaged ({type(error).__name__})"
                continue
            for path, body in expected.items():
                try:
                    if self.files.read(f"{self.folder(version)}/{path}") != body:
                        yield f"{where}: {path} is damaged: we do not need it, but plain xarray does"
                except Trouble as error:
                    yield f"{where}: {path}: {error.strerror}"

    def prune(self, keep: int) -> list[int]:
        """Delete all but the last ``keep`` versions, and what was never finished before the last one. Gives
        the numbers of versions that went. One with a damaged manifest does not count as one that is kept."""
        there = self.numbers()
        intact = []
        for number in there:
            with suppress(Missing, Damaged):
                with suppress(WrongKey):  # not for us to say
                    self.read(number)
                intact.append(number)
        if not intact:
            return []
        kept = intact[-max(1, keep) :]
        old = [number for number in there if number < intact[-1] and number not in kept]
        for number in old:
            reach("prune-begun")
            self.files.delete(f"{self.folder(number)}/{_MANIFEST}")
            reach("prune-hidden")
            self.files.delete(self.folder(number))
        for number in self._folders():
            if number < intact[-1] and number not in there:
                self.files.delete(self.folder(number))
        self.files.sweep(self.name)
        return old

    def claim(self) -> tuple[int, bytes]:
        """The number of a version that is to be written, above all folders, finished or not; and what its
        claim says."""
        version, body = 0, token_hex(16).encode()
        while True:
            version = max([version, *self._folders()]) + 1
            if self.files.claim(f"{self.folder(version)}/{_CLAIM}", body):
                return version, body

    def _folders(self) -> list[int]:
        return sorted(int(folder) for folder in self.files.names(self.name) if folder.isdecimal())


def names_in(files: Files) -> list[str]:
    return [name for name in files.names() if not name.startswith(".") and Versions(files, name).numbers()]


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
        return Writer(self.versions.files.root, self.versions.name, self.version, self.services)

    def samples(self) -> dict[Place, Place]:
        """Arrays, by label and variable, of which it is not decided whether to compress them; one block
        of each."""
        found: dict[Place, Place] = {}
        for (label, place), spec in self.specs.items():
            if spec["form"] != VALUE and "compress" not in spec and self.services.key is None:
                found.setdefault((label, _variable(place)), (label, place))
        return found

    def decide(self, is_compressed: Mapping[Place, bool]) -> None:
        """Compress these arrays, or do not: all cells of an array alike, as Zarr wants it."""
        for (label, place), spec in self.specs.items():
            if (array := (label, _variable(place))) in is_compressed:
                spec["compress"] = "always" if is_compressed[array] else "never"

    def check_claim(self) -> None:
        """Nobody has deleted the folder, or made another one. Raises ``Overtaken``."""
        with suppress(Missing):
            if self.versions.files.read(f"{self.versions.folder(self.version)}/{_CLAIM}") == self._claim:
                return
        raise self.overtaken()

    def overtaken(self) -> Overtaken:
        what = f"somebody else finished a version of that name while version {self.version} was written"
        return Overtaken(EAGAIN, f"{self.versions.name}: {what}")


def begin(
    store: str,
    name: str,
    items: Iterable[Described],
    services: Services = Services(),  # noqa: B008
) -> Commit:
    """Claim the next version. What did not change since the last one is going to keep its files."""
    versions = Versions(Files(store), name, services.key)
    described = {item.label: item for item in items}
    try:
        old = versions.latest()[0]
    except WrongKey:
        old = None  # another key from now on
    specs: dict[Place, dict[str, Any]] = {}
    for label, item in described.items():
        known = old.items[label].blocks if old and label in old.items else {}
        for place, spec in block_specs(label, item.kind, item.meta).items():
            if services.key is not None:
                spec["file"] = f"blocks/{len(specs) + 1:08}"
            elif services.compress != "auto":
                spec["compress"] = services.compress
            if old and place in known:
                spec["old"] = {"version": old.version, **known[place].as_plain()}
            specs[label, place] = spec
    version, claim = versions.claim()
    reach("claimed")
    return Commit(versions, version, services, described, specs, claim)


def finish(
    commit: Commit,
    blocks: Mapping[Place, Mapping[str, Any]],
    *,
    step: int | None = None,
    nodes: Iterable[str] = (),
    token: str = "",
    keep: int = 3,
) -> Manifest:
    """All blocks are there (``blocks`` has what writing each of them gave): make it a version, and delete
    all but the last ``keep``."""
    stored: dict[str, dict[str, StoredBlock]] = {label: {} for label in commit.items}
    for label, place in commit.specs:
        stored[label][place] = StoredBlock(**blocks[label, place])
    items = {
        label: Item(item.kind, item.meta, stored[label], item.on_resize)
        for label, item in commit.items.items()
    }
    versions, folder = commit.versions, commit.versions.folder(commit.version)
    if commit.services.key is None:
        for label, item in items.items():
            for path, body in metadata_files(label, item).items():
                versions.files.write(f"{folder}/{path}", [body], "metadata")
    now = time.time()
    manifest = Manifest(versions.name, commit.version, now, items, step=step, nodes=tuple(nodes), token=token)
    commit.check_claim()
    try:  # in no folder but that of the claim: whoever deletes it after the check wins, too
        body = manifest.write(versions.key)
        versions.files.write(f"{folder}/{_MANIFEST}", [body], "manifest", make_folder=False)
    except Missing:
        raise commit.overtaken() from None
    if not versions.files.is_local:
        try:
            commit.check_claim()
        except Overtaken:
            with suppress(Trouble):  # without a claim it is our manifest alone that made it again
                if _CLAIM not in versions.files.names(folder):
                    versions.files.delete(folder)
            raise
    with suppress(Trouble):  # they are deleted the next time
        versions.prune(keep)
    return manifest


def abandon(commit: Commit) -> None:
    """Nothing becomes of it."""
    with suppress(Trouble):
        commit.check_claim()  # else the folder may be somebody else's
        commit.versions.files.delete(commit.versions.folder(commit.version))


def save(
    store: str,
    name: str,
    items: Mapping[str, Any],
    *,
    step: int | None = None,
    token: str = "",
    on_resize: Mapping[str, Any] = {},
    services: Services = Services(),  # noqa: B008
    keep: int = 3,
) -> Manifest:
    """Commit these plain values, by their labels, from here. Raises ``InputError`` or ``Trouble``."""
    described = [
        replace(describe(one, label), on_resize=rule_text(on_resize.get(label, "constant")))
        for label, one in items.items()
    ]
    values: dict[Place, Any] = {}
    for item in described:
        for place, source in item.sources.items():
            if not isinstance(source, Plain):
                allowed = "plain values, if there is no client"
                raise InputError(f"item {item.label}", f"found a {item.kind}", allowed)
            values[item.label, place] = source.value
    commit = begin(store, name, described, services)
    try:
        sampler, writer, specs = Sampler(services), commit.writer, commit.specs
        commit.decide({array: sampler(specs[one], values[one]) for array, one in commit.samples().items()})
        blocks = {place: writer(spec, values[place]) for place, spec in specs.items()}
        return finish(commit, blocks, step=step, token=token, keep=keep)
    except BaseException:
        abandon(commit)
        raise


def rule_text(rule: Any) -> str:
    """What becomes of a value on a resize, as a manifest says it."""
    found = OnResize.read(rule)
    return f"{found.rule}:{found.value!r}" if found.rule in ("default", "joining") else found.rule


def _variable(place: str) -> str:
    return place.rpartition("/")[0] or place


def leave_note(root: str, name: str, version: Mapping[str, Any], where: Sequence[str]) -> None:
    """Of a version that is newer than those in the store; ``where`` are the agents that have it. May raise
    ``Trouble``."""
    told = {"format": _NOTE_FORMAT, "name": name, "where": list(where)}
    told |= {key: version[key] for key in ("step", "time", "nbytes", "levels")}
    Files(root).write(f"{check_name(name)}/{_NOTE}", [json.dumps(told).encode()], "journal")


def read_note(root: str, name: str) -> dict[str, Any] | None:
    """What it says, if there is one that can be read. May raise ``Trouble``."""
    try:
        told = json.loads(Files(root).read(f"{check_name(name)}/{_NOTE}"))
        if told["format"] != _NOTE_FORMAT or told["name"] != name:
            return None
        numbers = {"step": int(told["step"]), "time": float(told["time"]), "nbytes": int(told["nbytes"])}
        return numbers | {"where": [str(one) for one in told["where"]]}
    except (Missing, ValueError, LookupError, TypeError):
        return None
