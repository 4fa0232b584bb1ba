"""What a version of a checkpoint consists of, as one file: written last, it makes the version.

It has its own sum, and with a key it is encrypted as a whole, since coordinates and attributes are in it.
Reading one never runs anything: it is JSON, and every field is checked before it is believed.
"""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from dask_hpc.checkpoint.store.seal import Damaged, Key, Services, WrongKey, seal, unseal
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

    def as_plain(self) -> dict[str, Any]:
        return asdict(self)


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
        return sum(item.nbytes for item in self.items.values())

    def write(self, key: Key | None = None) -> bytes:
        body = json.dumps(self, default=_fields, separators=(",", ":"), allow_nan=False).encode()
        (frame,), note = seal([body], _where(self.name, self.version), Services("never", key=key))
        text = body.decode() if key is None else b64encode(frame).decode()
        return json.dumps({"format": FORMAT, "note": note, "body": text}, separators=(",", ":")).encode()

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


def _fields(one: Any) -> Any:
    """Of what is no plain data; those of a block are so many that they go without names."""
    found = {field.name: getattr(one, field.name) for field in fields(one)}
    return list(found.values()) if isinstance(one, StoredBlock) else found


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
