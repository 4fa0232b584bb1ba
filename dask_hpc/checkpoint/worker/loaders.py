"""What tasks do instead of computing their results again: load them, from the rescue store (``Loader``), or
from an agent that has a copy, or a checkpoint's store (``CopyLoader``).

The rescue store lies on a shared directory: written when the last worker that has them must go, and read
when they are needed again, by the same cluster or by the next one.

One file per result, named by a hash of its key: a line that says what it is, the value as in any store
(``store.value``), and a keyed hash (blake2b) of all before, so a damaged file is told apart from a good one,
and a file of somebody else from one of ours. The hash's key lies in the directory, readable for its owner
alone, and is not used if it belongs to another user or others may read it. Nothing is unpickled before the
hash was found right: whoever can make us unpickle something could write as us already.

A key with a content token in it (keys of collections, of ``submit`` with ``pure=True``) means the same result
in every cluster, and a changed input has another key. Any other key means something in one cluster only: its
file has a name that nobody else looks for, and goes when control ends. The files of content keys stay until
the user deletes them.
"""

import asyncio
import json
import os
import re
import stat
from collections import Counter
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from io import BytesIO
from itertools import accumulate, pairwise
from secrets import token_bytes, token_hex
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from distributed import Reschedule, get_worker
from distributed.protocol import pickle
from distributed.utils import sync

from dask_hpc.checkpoint.faults import reach
from dask_hpc.checkpoint.store.cells import Reader
from dask_hpc.checkpoint.store.files import Files, Trouble
from dask_hpc.checkpoint.store.seal import Key
from dask_hpc.checkpoint.store.value import decode, encode
from dask_hpc.checkpoint.worker.agent import NAME as AGENT
from dask_hpc.checkpoint.worker.transfer import fetch

UNREADABLE = "hpc-unreadable"  # of the events that say a file could not be read
_KEY_FILE = ".hpc-rescue-key"
_SUFFIX = ".result"
_FORMAT, _FIRST_FORMAT = "dask-hpc result 2", "dask-hpc result 1"
_TRIES = 3  # at a file that cannot be read
_ERRORS = 20  # of ours, before a task fails: twice as many as switch us off
_DIGEST = 32  # bytes
_ALIGNED = 64  # bytes
_LONGEST_LINE = 100_000  # that says what is in a file
_TOKEN = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")


class Unreadable(Exception):
    """A file is not there, is damaged, or is not ours."""


def is_content_key(key: Hashable) -> bool:
    """Whether a key says what the result is, so that it is the same in every cluster."""
    name = key[0] if isinstance(key, tuple) and key else key
    return isinstance(name, str) and _TOKEN.search(name) is not None


def name_of(key: Hashable, run: str, digest: int) -> str:
    """For a file with a key's result; a key that says not what it is has one of this run."""
    meant = repr(key) if is_content_key(key) else f"{key!r} of {run}"
    return blake2b(meant.encode(), digest_size=digest).hexdigest()


def may_be_stored(key: Hashable) -> bool:
    """Whether the result is all there is to a task: those of Dask's shuffles do more than it tells."""
    name = str(key[0] if isinstance(key, tuple) and key else key)
    return "shuffle" not in name and "p2p" not in name


@dataclass(frozen=True)
class Store:
    """The results in one directory. ``run`` tells one cluster from another. Raises ``OSError``."""

    directory: str
    run: str

    def open(self) -> set[str]:
        """Make the directory ours if it is new. Gives the names of the files in it: the one listing."""
        files = self._files
        if _KEY_FILE not in files.names():
            new = f"{_KEY_FILE}.{token_hex(8)}"
            files.write(new, [token_bytes(_DIGEST)])
            with suppress(FileExistsError):
                os.link(files.path(new), files.path(_KEY_FILE))  # whole at once; the first of several wins
            files.delete(new)
        self._secret()
        probe = f".{token_hex(8)}"
        files.write(probe, [b"can be written"])
        files.delete(probe)
        return {name for name in files.names() if name.endswith(_SUFFIX)}

    def name(self, key: Hashable) -> str:
        return name_of(key, self.run, 20) + _SUFFIX

    def write(self, key: Hashable, value: Any) -> int:
        """Store a result. Gives the size of its file in bytes."""
        signed = blake2b(key=self._secret(), digest_size=_DIGEST)
        encoded = encode(value)
        frames: list[Any] = [_padded(json.dumps(encoded.head).encode()), *encoded.frames]
        told = {"format": _FORMAT, "key": repr(key), "sizes": [memoryview(one).nbytes for one in frames]}
        frames.insert(0, _padded(json.dumps(told).encode()))
        for frame in frames:
            signed.update(frame)
        return self._files.write(self.name(key), [*frames, signed.digest()])

    def read(self, key: Hashable) -> Any:
        """The result of that key, or ``Unreadable``."""
        name = self.name(key)
        try:
            secret = self._secret()
            content = memoryview(self._files.load(name))
        except OSError as error:
            raise Unreadable(f"{name}: {error.strerror or error}") from None
        body, digest = content[:-_DIGEST], content[-_DIGEST:]
        if blake2b(body, key=secret, digest_size=_DIGEST).digest() != digest:
            raise Unreadable(f"{name}: damaged, or not written by us")
        line, _, _ = bytes(body[:_LONGEST_LINE]).partition(b"\n")
        at, told = len(line) + 1, json.loads(line)
        if told.get("format") not in (_FORMAT, _FIRST_FORMAT) or told.get("key") != repr(key):
            raise Unreadable(f"{name}: holds something else")
        if told["format"] == _FIRST_FORMAT and told["kind"] == "array":  # as numpy writes it
            return np.lib.format.read_array(BytesIO(body[at:]), allow_pickle=False)
        if told["format"] == _FIRST_FORMAT:
            return pickle.loads(body[at:])
        ends = accumulate(told["sizes"], initial=at)
        head, *frames = (body[begin:end] for begin, end in pairwise(ends))
        return decode(json.loads(bytes(head)), frames, may_unpickle=True)

    def delete(self, key: Hashable) -> None:
        self._files.delete(self.name(key))

    @property
    def _files(self) -> Files:
        return Files(self.directory, is_private=True)

    def _secret(self) -> bytes:
        path = self._files.path(_KEY_FILE)
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            found = os.fstat(file.fileno())
            if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
                raise Trouble(13, f"{path}: its key must belong to this user, and to nobody else", path)
            secret = file.read()
        if len(secret) != _DIGEST:
            raise Trouble(13, f"{path}: its key is damaged", path)
        return secret


def _padded(line: bytes) -> bytes:
    """What comes after it begins where an array may."""
    return line + b" " * (-(len(line) + 1) % _ALIGNED) + b"\n"


@dataclass(frozen=True)
class Loader:
    """The recipe of a stored result. If its file cannot be read, the scheduler hears of it before it hears
    that the task has to run again, and puts the task's own recipe back. If nobody does, as control was
    closed meanwhile, the task fails in the end."""

    store: Store

    def __call__(self, key: Any) -> Any:
        try:
            return self.store.read(key)
        except Exception as error:
            worker = get_worker()
            if _count_try(worker, key) > _TRIES:
                raise
            worker.log_event(UNREADABLE, {"key": key, "why": str(error)})
            raise Reschedule from None


#: of keys that could not be loaded, by worker
_tried: WeakKeyDictionary[Any, Counter[Any]] = WeakKeyDictionary()


def _count_try(worker: Any, key: Any) -> int:
    """Once more this worker has tried in vain. Gives how often it has."""
    tried = _tried.setdefault(worker, Counter())
    tried[key] += 1
    return tried[key]


#: seconds to wait before agents that did not answer are tried again
_PAUSES = (0.1, 0.5, 2.0, 5.0)
_PATIENCE = 5.0


class Lost(RuntimeError):
    """A result is gone, with all its copies."""


class _NoCopy(Exception):
    """Nobody has a copy, or none can be had."""


@dataclass(frozen=True)
class CopyLoader:
    """The recipe of a protected result, called with its key in a task's thread. Copies on this worker's node
    are tried first. One that is damaged or gone is told, so nobody tries it again; an agent that does not
    answer is tried again, as it may be busy, or about to be found dead. If no copy can be had, the scheduler
    puts the task's own recipe back and it is computed. Scattered data has none: it is lost then, and the task
    says so."""

    def __call__(self, key: Any) -> Any:
        worker = get_worker()
        try:
            found = sync(worker.loop, _fetch, worker, key)
            return _stored(found) if isinstance(found, dict) else found.value()
        except _NoCopy as error:
            why = str(error)
        except Exception as error:  # ours, here or at the scheduler's: as good as no copy
            why = f"{type(error).__name__}: {error}"
        said = sync(worker.loop, worker.scheduler.hpc_checkpoint_no_copy, key=key, why=why)
        # None: an error of ours; or the scheduler knows nothing of us any more, and of this task it knows
        # what it was before, unless that went wrong, too.
        if said is False or (said is None and _count_try(worker, key) > _ERRORS):
            raise Lost(f"{key!r} is lost with all its copies, and nothing can compute it: {why}")
        raise Reschedule from None


@dataclass(frozen=True)
class MissingRecipe:
    """The recipe of what needs something of which nobody knows any more how it was computed."""

    def __call__(self, key: Any) -> Any:
        raise Lost(
            f"{key!r} is lost with all its copies, and cannot be computed: what it needs was forgotten long "
            "ago, or is called like something else now"
        )


def _stored(where: dict[str, Any]) -> Any:
    """A result from the store, checked; pickles are read if the user allowed that."""
    key = Key(where["secret"]) if where["secret"] else None
    reader = Reader(where["root"], where["name"], where["version"], key, where["unpickle"])
    try:
        return reader({"spec": where["spec"], "block": json.loads(where["block"])})
    except Exception as error:  # of the store, of a block that is damaged, or of what unpickles it
        raise _NoCopy(f"the store: {type(error).__name__}: {error}") from None


async def _fetch(worker: Any, key: Any) -> Any:
    """A block from an agent, or where in the store it is."""
    reach("fetch-begun")
    why = "nobody has a copy"
    for pause in (*_PAUSES, None):
        said = await worker.scheduler.hpc_checkpoint_where(key=key, worker=worker.address)
        if said is None:
            break
        content, silent = said["content"], False
        for address in said["where"]:
            try:
                if address == worker.address:  # in memory of its own: the result may be changed in place
                    block = await asyncio.to_thread(worker.plugins[AGENT].kept.intact, content)
                else:
                    block = await fetch(worker.rpc(address), {"content": content})
            except (LookupError, ValueError) as error:  # it is not there, or damaged
                why = f"{address}: {type(error).__name__}: {error}"
                await worker.scheduler.hpc_checkpoint_bad(content=content, agent=address, why=why)
                with suppress(OSError, TimeoutError):  # it need not keep one that is damaged
                    async with asyncio.timeout(_PATIENCE):
                        await worker.rpc(address).hpc_agent_check(contents=[content])
            except (OSError, TimeoutError) as error:
                why = f"{address}: {type(error).__name__}: {error}"
                silent = True
            else:
                reach("fetch-come")
                return block
        if said.get("stored"):
            return said["stored"]
        if not silent:
            break
        if pause is not None:
            await asyncio.sleep(pause)
    raise _NoCopy(why)
