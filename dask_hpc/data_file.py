"""What is remembered between clusters: a small JSON file of the user's that no writer, crash or damage can
break. The rooms that remember something say what is in theirs."""

import fcntl
import json
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from dask_hpc.model.errors import InputError, one_line, shown

Content = TypeVar("Content")

LIMIT = 4_000_000  # bytes
_OURS = "a history that dask-hpc wrote"


def data_path(name: str) -> Path:
    """A file in the user's data directory."""
    home = os.environ.get("XDG_DATA_HOME", "")
    return (Path(home) if os.path.isabs(home) else Path.home() / ".local" / "share") / "dask-hpc" / name


class DataFile(Generic[Content]):
    """May be written by many processes at once: each adds to what is there, under a lock, and a new file
    takes the old one's place. ``check`` makes the content of what the JSON says, and raises any of the errors
    of wrong data if that makes no sense; ``ours`` says what it should be. Its methods may block."""

    def __init__(self, path: Path, check: Callable[[Any], Content], ours: str = _OURS) -> None:
        self.path = path
        self._check = check
        self._ours = ours

    def read(self) -> Content | None:
        """The content; None if there is no file. Raises ``InputError`` if it makes no sense."""
        try:
            with open(self.path, "rb") as file:
                return self._checked(file.read(LIMIT + 1))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError("", f"cannot be read: {error.strerror}", file=one_line(str(self.path))) from None
        except InputError as error:
            raise error.in_file(one_line(str(self.path))) from None

    def update(self, change: Callable[[Content | None], str]) -> None:
        """Write what ``change`` makes of the content, as JSON; of None if there is no file or a damaged one.
        Raises ``OSError``, and then the file is as it was."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path.with_suffix(".lock"), "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                content = self.read()
            except InputError:
                content = None
            _replace(Path(os.path.realpath(self.path)), change(content))

    def _checked(self, data: bytes) -> Content:
        if len(data) > LIMIT:
            raise InputError("", f"more than {LIMIT:,} bytes", self._ours)
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            raise InputError("", "damaged: not JSON", self._ours) from None
        try:
            return self._check(found)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise InputError("", f"found {shown(found)}", self._ours) from None


def keep_newest(found: dict[Any, Any], most: int, age: Callable[[Any], float]) -> None:
    """Forget the oldest of what is more than ``most``."""
    if len(found) > most:
        for key in sorted(found, key=lambda key: age(found[key]))[: len(found) - most]:
            del found[key]


def _replace(final: Path, text: str) -> None:
    draft = final.with_name(f".{final.name}.{secrets.token_hex(4)}")
    try:
        with open(draft, "x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())  # or a power cut may leave the new name with no content
        draft.replace(final)
    finally:
        draft.unlink(missing_ok=True)
