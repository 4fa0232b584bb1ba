"""A store of results on a shared directory: written when the last worker that has them must go, and read
when they are needed again, by the same cluster or by the next one.

One file per result, named by a hash of its key, written under another name, flushed to disk and renamed: a
file is there as a whole or not at all. It starts with a line that says what it is and ends with a keyed hash
(blake2b) of all before, so a damaged file is told apart from a good one, and a file of somebody else from one
of ours. The hash's key lies in the directory, readable for its owner alone, and is not used if it belongs to
another user or others may read it. Nothing is unpickled before the hash was found right: whoever can make us
unpickle something could write as us already. Plain numpy arrays are not pickled at all.

A key with a content token in it (keys of collections, of ``submit`` with ``pure=True``) means the same result
in every cluster, and a changed input has another key. Any other key means something in one cluster only: its
file has a name that nobody else looks for, and goes when control ends. The files of content keys stay until
the user deletes them.

Workers get this module by value: it imports nothing of ours.
"""

import json
import os
import re
import stat
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from secrets import token_bytes, token_hex
from typing import Any, BinaryIO

from distributed import Reschedule, get_worker
from distributed.protocol import pickle

UNREADABLE = "hpc-unreadable"  # of the events that say a file could not be read
_KEY_FILE = ".hpc-rescue-key"
_SUFFIX = ".result"
_FORMAT = "dask-hpc result 1"
_TRIES = 3  # at a file that cannot be read
_DIGEST = 32  # bytes
_TOKEN = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")
#: tasks of Dask's shuffles do more than their results tell
_SHUFFLES = ("shuffle", "p2p")


class Unreadable(Exception):
    """A file is not there, is damaged, or is not ours."""


def is_content_key(key: Hashable) -> bool:
    """Whether a key says what the result is, so that it is the same in every cluster."""
    name = key[0] if isinstance(key, tuple) and key else key
    return isinstance(name, str) and _TOKEN.search(name) is not None


def may_be_stored(key: Hashable) -> bool:
    """Whether the result is all there is to a task."""
    name = str(key[0] if isinstance(key, tuple) and key else key)
    return not any(word in name for word in _SHUFFLES)


@dataclass(frozen=True)
class Store:
    """The results in one directory. ``run`` tells one cluster from another."""

    directory: str
    run: str

    def open(self) -> set[str]:
        """Make the directory ours if it is new. Gives the names of the files in it: the one listing."""
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        path = Path(self.directory, _KEY_FILE)
        if not path.exists():
            new = Path(self.directory, f"{_KEY_FILE}.{token_hex(8)}")
            self._write_file(new, lambda file: file.write(token_bytes(_DIGEST)))
            try:
                os.link(new, path)  # whole at once; the first of several wins
            except FileExistsError:
                pass
            finally:
                new.unlink()
        self._secret()
        probe = Path(self.directory, f".{token_hex(8)}")
        self._write_file(probe, lambda file: file.write(b"can be written"))
        probe.unlink()
        return {entry.name for entry in os.scandir(self.directory) if entry.name.endswith(_SUFFIX)}

    def name(self, key: Hashable) -> str:
        """The file of that key."""
        meant = repr(key) if is_content_key(key) else f"{key!r} of {self.run}"
        return blake2b(meant.encode(), digest_size=20).hexdigest() + _SUFFIX

    def write(self, key: Hashable, value: Any) -> int:
        """Store a result. Gives the size of its file in bytes."""
        path = Path(self.directory, self.name(key))
        new = path.with_name(f".{path.name}.{token_hex(8)}")
        secret = self._secret()
        try:
            size = self._write_file(new, lambda file: _Signed(file, secret).dump(key, value))
            os.replace(new, path)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
        self._sync_directory()
        return size

    def read(self, key: Hashable) -> Any:
        """The result of that key, or ``Unreadable``."""
        path = Path(self.directory, self.name(key))
        try:
            secret = self._secret()
            content = memoryview(path.read_bytes())
        except OSError as error:
            raise Unreadable(f"{path.name}: {error.strerror or error}") from None
        body, digest = content[:-_DIGEST], content[-_DIGEST:]
        if blake2b(body, key=secret, digest_size=_DIGEST).digest() != digest:
            raise Unreadable(f"{path.name}: damaged, or not written by us")
        head, _, _ = bytes(body[:100_000]).partition(b"\n")
        told = json.loads(head)
        if told.get("format") != _FORMAT or told.get("key") != repr(key):
            raise Unreadable(f"{path.name}: holds something else")
        return _load(told["kind"], body[len(head) + 1 :])

    def delete(self, key: Hashable) -> None:
        """The result is not kept any longer."""
        Path(self.directory, self.name(key)).unlink(missing_ok=True)

    def _secret(self) -> bytes:
        path = Path(self.directory, _KEY_FILE)
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            found = os.fstat(file.fileno())
            if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
                raise PermissionError(13, "its key must belong to this user, and to nobody else", str(path))
            secret = file.read()
        if len(secret) != _DIGEST:
            raise PermissionError(13, "its key is damaged", str(path))
        return secret

    @staticmethod
    def _write_file(path: Path, write: Callable[[BinaryIO], Any]) -> int:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
            return file.tell()

    def _sync_directory(self) -> None:
        directory = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


class _Signed:
    """Writes to a file and hashes what it writes."""

    def __init__(self, file: BinaryIO, secret: bytes) -> None:
        self._file = file
        self._hash = blake2b(key=secret, digest_size=_DIGEST)

    def write(self, data: Any) -> int:
        """As of a file."""
        self._hash.update(data)
        return self._file.write(data)

    def dump(self, key: Hashable, value: Any) -> None:
        """The whole file."""
        kind = "array" if _is_plain_array(value) else "pickle"
        self.write(json.dumps({"format": _FORMAT, "key": repr(key), "kind": kind}).encode() + b"\n")
        if kind == "array":
            import numpy

            numpy.lib.format.write_array(self, value, allow_pickle=False)
        else:
            self.write(pickle.dumps(value))
        self._file.write(self._hash.digest())


def _is_plain_array(value: Any) -> bool:
    kind = type(value)
    return kind.__module__ == "numpy" and kind.__name__ == "ndarray" and not value.dtype.hasobject


def _load(kind: str, body: memoryview) -> Any:
    if kind != "array":
        return pickle.loads(body)
    from io import BytesIO

    import numpy

    return numpy.lib.format.read_array(BytesIO(body), allow_pickle=False)


@dataclass(frozen=True)
class Loader:
    """The recipe of a stored result. If its file cannot be read, the scheduler hears of it before it hears
    that the task has to run again, and puts the task's own recipe back. If nobody does, as control was
    closed meanwhile, the task fails in the end."""

    store: Store

    def __call__(self, key: Any) -> Any:
        """The result of that key."""
        try:
            return self.store.read(key)
        except Exception as error:
            worker = get_worker()
            tried = vars(worker).setdefault("hpc_unreadable", {})
            tried[key] = tried.get(key, 0) + 1
            if tried[key] > _TRIES:
                raise
            worker.log_event(UNREADABLE, {"key": key, "why": str(error)})
            raise Reschedule from None
