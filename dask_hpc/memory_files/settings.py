"""What a person may say about a file system, checked on the client and checked again on the scheduler."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from math import inf
from typing import Any

from dask_hpc.model.errors import InputError, insist, shown, within
from dask_hpc.model.units import parse_quantity
from dask_hpc.planning.moves.file_layout import DEALINGS

LEVELS = ("memory", "disk", "store")
#: of these, all that may be changed while it is used
CHANGEABLE = ("copies", "write_back", "batch", "proxy", "recommended", "encrypt")
_LEAST_BLOCK, _MOST_BLOCK = 4096, 2**30
_LONGEST = 100  # characters of a name


@dataclass(frozen=True)
class FilesSettings:
    """``nodes`` of None means all there are; ``recommended`` and times are in bytes per second and seconds,
    sizes in bytes."""

    nodes: int | None = None
    max_nodes: int | None = None
    recommended: float = 0.0
    block: int = 2**20
    copies: int = 0
    levels: tuple[str, ...] = ("memory",)
    store: str = ""
    dealing: str = "round-robin"
    write_back: float = 0.0
    batch: int = 2**20
    proxy: bool | None = None
    encrypt: bool = False

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "FilesSettings":
        """From what a person may write. Raises ``InputError``."""
        return cls().changed(given, [field.name for field in fields(cls)])

    def changed(self, given: Mapping[str, Any], among: Any = CHANGEABLE) -> "FilesSettings":
        """With other values for some of them. Raises ``InputError``."""
        for name in given:
            insist(name in among, "files", name, ", ".join(among))
        found = {}
        for name, value in given.items():
            with within(f"files: {name}"):
                found[name] = _READERS[name](value)
        new = replace(self, **found)
        low, high = new.nodes, new.max_nodes
        if high is not None and (low is None or high < low):
            allowed = "max_nodes >= nodes, and both or only nodes"
            raise InputError("files: nodes", f"found {low} to {high}", allowed)
        if ("store" in new.levels) != bool(new.store):
            raise InputError(
                "files: store", f"found {shown(new.store)}", 'a directory or URL, with the level "store"'
            )
        return new

    @classmethod
    def read(cls, plain: Mapping[str, Any]) -> "FilesSettings":
        """As they came over the wire."""
        found = {field.name: plain[field.name] for field in fields(cls)}
        return cls(**{**found, "levels": tuple(plain["levels"])})

    def as_plain(self) -> dict[str, Any]:
        """For the wire."""
        return asdict(self)


def check_files_name(name: object) -> str:
    """The name of a file system: the first part of all its paths. Raises ``InputError``."""
    fine = isinstance(name, str) and 0 < len(name) <= _LONGEST and name.isprintable()
    fine = fine and name not in (".", "..") and not set(str(name)) & set("/\\*?[]{}#: ")
    insist(
        fine,
        "files: name",
        name,
        f"1 to {_LONGEST} printable characters, no blanks, none of / \\ * ? [ ] {{ }} # :",
    )
    return str(name)


def _size(low: float, high: float, allowed: str) -> Any:
    def read(value: Any) -> int:
        found = parse_quantity(value, "B")
        insist(low <= found <= high, "", value, allowed)
        return int(found)

    return read


def _count(value: Any) -> int | None:
    insist(
        value is None or (type(value) is int and 1 <= value <= 1_000_000),
        "",
        value,
        "a whole number >= 1, or None",
    )
    found: int | None = value
    return found


def _copies(value: Any) -> int:
    insist(type(value) is int and 0 <= value <= 10, "", value, "0 to 10")
    return int(value)


def _rate(value: Any) -> float:
    found = 0.0 if value in (None, 0) else parse_quantity(value, "B/s")
    has_unit = not isinstance(value, str) or "/" in value
    insist(has_unit and 0 <= found < inf, "", value, 'bytes per second, such as "2 GB/s", or None')
    return found


def _time(value: Any) -> float:
    found = 0.0 if value in (None, 0) else parse_quantity(value, "s")
    insist(0 <= found <= 3600, "", value, "0 s to 1 h")
    return found


def _yes_or_no(value: Any) -> bool:
    insist(type(value) is bool, "", value, "True, False")
    return bool(value)


def _maybe(value: Any) -> bool | None:
    insist(value is None or type(value) is bool, "", value, "True, False, None")
    found: bool | None = value
    return found


def _levels(value: Any) -> tuple[str, ...]:
    found = (value,) if isinstance(value, str) else value
    fine = isinstance(found, list | tuple) and set(found) <= set(LEVELS) and "memory" in found
    insist(fine, "", value, "memory, and perhaps disk and store")
    return tuple(one for one in LEVELS if one in found)


def _text(value: Any) -> str:
    insist(value is None or isinstance(value, str), "", value, "a directory or a URL")
    return os.path.abspath(os.path.expanduser(value)) if value and "://" not in value else value or ""


def _dealing(value: Any) -> str:
    insist(value in DEALINGS, "", value, ", ".join(DEALINGS))
    return str(value)


_READERS: Mapping[str, Any] = {
    "nodes": _count,
    "max_nodes": _count,
    "recommended": _rate,
    "block": _size(_LEAST_BLOCK, _MOST_BLOCK, "4 kB to 1 GiB"),
    "copies": _copies,
    "levels": _levels,
    "store": _text,
    "dealing": _dealing,
    "write_back": _time,
    "batch": _size(0, _MOST_BLOCK, "0 to 1 GiB"),
    "proxy": _maybe,
    "encrypt": _yes_or_no,
}
