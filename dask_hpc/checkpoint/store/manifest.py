"""What a version of a checkpoint consists of, as one file: written last, it makes the version.

It has its own sum, and with a key it is encrypted as a whole, since coordinates and attributes are in it.
Reading one never runs anything: it is JSON, and every field is checked before it is believed.
"""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dask_hpc.checkpoint.faults import reach
from dask_hpc.checkpoint.store.files import Files, Missing, Trouble
from dask_hpc.checkpoint.store.seal import Damaged, Key, Services, WrongKey, has_sum, seal, unseal
from dask_hpc.model.errors import InputError, shown

FORMAT = "dask-hpc checkpoint 1"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._ -]{0,199}")


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """One file. ``content`` is the same for the same contents; ``note`` is needed to open it."""

    file: str
    nbytes: int
    content: str
    note: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Item:
    """Something that was added under a label. ``meta`` says how its blocks make it up."""

    kind: str
    meta: Mapping[str, Any]
    #: by place in the item: "u/0.3" is chunk (0, 3) of the variable u, "" the only block
    blocks: Mapping[str, StoredBlock] = field(default_factory=dict)
    on_resize: str = "constant"

    @property
    def nbytes(self) -> int:
        """Of all blocks, as they are in memory."""
        return sum(block.nbytes for block in self.blocks.values())


@dataclass(frozen=True, slots=True)
class Manifest:
    """One version. ``step`` is where the program was; ``token`` tells graphs and inputs apart."""

    name: str
    version: int
    time: float
    items: Mapping[str, Item]
    step: int | None = None
    nodes: tuple[str, ...] = ()
    token: str = ""

    @property
    def nbytes(self) -> int:
        """Of all items."""
        return sum(item.nbytes for item in self.items.values())

    def write(self, key: Key | None = None) -> bytes:
        """As a file."""
        body = json.dumps(_as_data(self), separators=(",", ":"), allow_nan=False).encode()
        sealed = seal([body], self._where, Services("never", key=key))
        head = {"format": FORMAT, "note": sealed.note}
        if key is not None:
            head["body"] = b64encode(sealed.frames[0]).decode()
        else:
            head["body"] = body.decode()
        return json.dumps(head, separators=(",", ":")).encode()

    @classmethod
    def read(cls, found: bytes, name: str, version: int, key: Key | None = None) -> "Manifest":
        """From a file that lies where that version of that name would. Raises ``Damaged`` or ``WrongKey``."""
        where = f"{name} version {version}: manifest"
        try:
            head = json.loads(found)
            if head["format"] != FORMAT:
                raise Damaged(f"{where}: its format is {shown(head['format'])}, not {FORMAT!r}")
            is_secret = "cipher" in head["note"]
            body = b64decode(head["body"], validate=True) if is_secret else head["body"].encode()
            (text,) = unseal(body, _where(name, version), head["note"], key)
            manifest = _read(json.loads(bytes(text)))
        except (Damaged, WrongKey) as error:
            raise type(error)(str(error).replace(_where(name, version), where)) from None
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            raise Damaged(f"{where} is damaged, or not ours ({type(error).__name__})") from None
        if (manifest.name, manifest.version) != (name, version):
            raise Damaged(f"{where} is that of {manifest.name} version {manifest.version}")
        return manifest

    @property
    def _where(self) -> str:
        return _where(self.name, self.version)


def check_name(name: object, what: str = "name") -> str:
    """A name that may be a folder's, or ``InputError``."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    raise InputError(what, f"found {shown(name)}", "letters, digits, _ . and -, at most 100, not . first")


def check_label(label: object) -> str:
    """A label of an item, or ``InputError``."""
    if isinstance(label, str) and _LABEL.fullmatch(label):
        return label
    raise InputError("label", f"found {shown(label)}", "letters, digits, spaces, _ . and -, at most 200")


def is_within(file: object) -> bool:
    """Whether it is a path that stays in the folder of its version."""
    return isinstance(file, str) and all(
        part not in ("", ".", "..") and part.isprintable() and "\\" not in part for part in file.split("/")
    )


def _where(name: str, version: int) -> str:
    return f"{name}/{version}/manifest"


def _as_data(manifest: Manifest) -> dict[str, Any]:
    return {
        "name": manifest.name,
        "version": manifest.version,
        "time": manifest.time,
        "step": manifest.step,
        "nodes": list(manifest.nodes),
        "token": manifest.token,
        "items": {
            label: {
                "kind": item.kind,
                "meta": item.meta,
                "on_resize": item.on_resize,
                "blocks": {
                    place: [block.file, block.nbytes, block.content, block.note]
                    for place, block in item.blocks.items()
                },
            }
            for label, item in manifest.items.items()
        },
    }


def _read(found: Any) -> Manifest:
    items = {}
    for label, item in found["items"].items():
        if not _LABEL.fullmatch(label):
            raise ValueError(label)
        blocks = {}
        for place, (file, nbytes, content, note) in item["blocks"].items():
            if not is_within(file) or not isinstance(content, str) or not isinstance(note, dict):
                raise TypeError(place)
            blocks[place] = StoredBlock(file, int(nbytes), content, note)
        if not isinstance(item["meta"], dict):
            raise TypeError(label)
        items[label] = Item(str(item["kind"]), item["meta"], blocks, str(item["on_resize"]))
    step = found["step"]
    return Manifest(
        name=str(found["name"]),
        version=int(found["version"]),
        time=float(found["time"]),
        items=items,
        step=None if step is None else int(step),
        nodes=tuple(map(str, found["nodes"])),
        token=str(found["token"]),
    )


MANIFEST = "manifest.json"
_DIGITS = 8


class Versions:
    """Those of one name. May raise ``Trouble`` if the store cannot be used."""

    def __init__(self, files: Files, name: str, key: Key | None = None) -> None:
        self.files = files
        self.name = check_name(name)
        self.key = key

    # reading

    def numbers(self) -> list[int]:
        """Of the versions that are there, the oldest first. Whether they are intact is not looked at."""
        found = []
        for folder in self.files.names(self.name):
            if folder.isdecimal() and MANIFEST in self.files.names(f"{self.name}/{folder}"):
                found.append(int(folder))
        return sorted(found)

    def read(self, version: int) -> Manifest:
        """Raises ``Missing``, ``Damaged`` or ``WrongKey``."""
        found = self.files.read(f"{self._folder(version)}/{MANIFEST}")
        return Manifest.read(found, self.name, version, self.key)

    def latest(self) -> tuple[Manifest | None, list[str]]:
        """The newest version whose manifest is intact, and what was wrong with newer ones."""
        wrong: list[str] = []
        for version in reversed(self.numbers()):
            try:
                return self.read(version), wrong
            except Missing:  # pruned by somebody meanwhile
                continue
            except Damaged as error:
                wrong.append(str(error))
        return None, wrong

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

    def block(self, version: int, place: str, block: StoredBlock) -> list[Any]:
        """The frames of a block. Raises ``Missing``, ``Damaged`` or ``WrongKey``."""
        body = self.files.read(f"{self._folder(version)}/{block.file}")
        return unseal(body, self._block_name(block.content), dict(block.note), self.key)

    def problems(self, manifest: Manifest) -> Iterator[str]:
        """Everything that is wrong with a version: each block is read and its sum checked."""
        for label, item in manifest.items.items():
            for place, block in item.blocks.items():
                where = f"{label}[{place}]" if place else label
                try:
                    body = self.files.read(f"{self._folder(manifest.version)}/{block.file}")
                except Missing:
                    yield f"{where} is missing"
                except Trouble as error:
                    yield f"{where} cannot be read: {error.strerror}"
                else:
                    if not has_sum([body], str(block.note.get("sum", ""))):
                        yield f"{where} is damaged"

    # writing

    def next_number(self) -> int:
        """Of a version that is to be written: above all folders, finished or not."""
        numbers = [int(folder) for folder in self.files.names(self.name) if folder.isdecimal()]
        return max(numbers, default=0) + 1

    def put(self, version: int, file: str, frames: list[Any], services: Services) -> StoredBlock:
        """Write a block of a version that is not there yet."""
        content = services.name_of(frames)
        sealed = seal(frames, self._block_name(content), services)
        self.files.write(f"{self._folder(version)}/{file}", sealed.frames)
        nbytes = sum(memoryview(frame).nbytes for frame in frames)
        return StoredBlock(file, nbytes, content, sealed.note)

    def keep(self, version: int, file: str, old: int, block: StoredBlock) -> StoredBlock:
        """A block as it is in an older version, which may be gone: ``Missing`` then."""
        self.files.same(f"{self._folder(old)}/{block.file}", f"{self._folder(version)}/{file}")
        return StoredBlock(file, block.nbytes, block.content, block.note)

    def commit(self, manifest: Manifest) -> None:
        """All its blocks are there: from now on it is a version."""
        path = f"{self._folder(manifest.version)}/{MANIFEST}"
        self.files.write(path, [manifest.write(self.key)], "manifest", make_folder=False)

    def prune(self, keep: int) -> list[int]:
        """Delete all but the last ``keep`` versions, and what was never finished before the last one. Gives
        the numbers of versions that went. One with a damaged manifest does not count as one that is kept."""
        there = self.numbers()
        intact = [number for number in there if self._is_intact(number)]
        if not intact:
            return []
        kept = intact[-max(1, keep) :]
        old = [number for number in there if number < intact[-1] and number not in kept]
        for number in old:
            reach("prune-begun")
            self.files.delete(f"{self._folder(number)}/{MANIFEST}")
            reach("prune-hidden")
            self.files.delete(self._folder(number))
        for folder in self.files.names(self.name):
            if folder.isdecimal() and int(folder) < intact[-1] and int(folder) not in there:
                self.files.delete(f"{self.name}/{folder}")
        self.files.sweep(self.name)
        return old

    def _is_intact(self, version: int) -> bool:
        try:
            return bool(self.read(version))
        except WrongKey:  # not for us to say
            return True
        except (Missing, Damaged):
            return False

    def _folder(self, version: int) -> str:
        return f"{self.name}/{version:0{_DIGITS}}"

    def _block_name(self, content: str) -> str:
        # A block may be in several versions under several names; its contents are what it is.
        return f"{self.name}/{content}"


def names_in(files: Files) -> list[str]:
    """The names of all checkpoints in a store."""
    return [name for name in files.names() if not name.startswith(".") and Versions(files, name).numbers()]


FILE = "journal.json"
_FORMAT = "dask-hpc journal 1"


def note(root: str, name: str, version: Mapping[str, Any], where: Sequence[str]) -> None:
    """Leave it; ``where`` are the agents. May raise ``Trouble``."""
    told = {"format": _FORMAT, "name": name, "where": list(where)}
    told |= {key: version[key] for key in ("step", "time", "nbytes", "levels")}
    Files(root).write(f"{check_name(name)}/{FILE}", [json.dumps(told).encode()], "journal")


def read(root: str, name: str) -> dict[str, Any] | None:
    """What it says, if there is one that can be read. May raise ``Trouble``."""
    try:
        told = json.loads(Files(root).read(f"{check_name(name)}/{FILE}"))
        if told["format"] != _FORMAT or told["name"] != name:
            return None
        return {
            "step": int(told["step"]),
            "time": float(told["time"]),
            "nbytes": int(told["nbytes"]),
            "where": [str(one) for one in told["where"]],
        }
    except Missing:
        return None
    except (ValueError, LookupError, TypeError):
        return None
