"""Bytes on their way to where they may be damaged or read: always with a sum, smaller where that pays, and
secret if there is a key.

A sum is over the bytes as they are stored, so damage is found before anything is decrypted, decompressed or
decoded, and without the key. If the sum is right and decrypting fails, the key is another one (or somebody
changed bytes and sum on purpose): ``WrongKey`` and ``Damaged`` are never confused.

Every block has a key of its own, made from the store's key and a random salt, so that no counter must be
remembered anywhere; its name is part of what is authenticated, so no block passes for another.
"""

import hashlib
import os
import stat
from base64 import b64decode
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate, count, pairwise
from time import thread_time
from typing import Any, NamedTuple

import numpy as np

xxhash: Any
try:
    import xxhash
except ImportError:  # a worker that has not what this package requires
    xxhash = None

_SEGMENT = 64 * 2**20  # bytes that are encrypted at once: AES-GCM takes 2 GiB at most
_TAG = 16  # bytes by which each segment grows
_SALT = 16
_KEY = 32
_SAMPLE = 2**20  # bytes that are compressed to see whether it pays
_LEVEL = 1  # of zstd: the fastest
_DOMAIN = b"dask-hpc blocks"


class Damaged(ValueError):
    """These are not the bytes that were stored."""


class WrongKey(ValueError):
    """The key is not the one these bytes were encrypted with, or there is none."""


@dataclass(frozen=True)
class Key:
    """A secret of 32 bytes. Never shown."""

    secret: bytes = field(repr=False)

    @classmethod
    def read(cls, source: str) -> "Key":
        """From ``file:PATH`` or ``env:NAME``: 32 bytes as they are, or in hexadecimal or base64 digits.
        Raises ``WrongKey`` with a line that says what is wrong."""
        kind, _, name = source.partition(":")
        if kind == "env" and name:
            if name not in os.environ:
                raise WrongKey(f"the environment has no {name}")
            found = os.environ[name].encode()
        elif kind == "file" and name:
            try:
                with open(name, "rb") as file:
                    if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                        raise WrongKey(f"{name} can be read by others: chmod 600 {name}")
                    found = file.read(1000)
            except OSError as error:
                raise WrongKey(f"{name}: {error.strerror or error}") from None
        else:
            raise WrongKey("a key is read from file:PATH or env:NAME")
        secrets = [found]
        with suppress(ValueError):
            secrets.append(bytes.fromhex(found.decode().strip()))
        with suppress(ValueError):
            secrets.append(b64decode(found.strip(), validate=True))
        for secret in secrets:
            if len(secret) == _KEY:
                return cls(secret)
        raise WrongKey(f"{source} holds no key: 32 bytes, or 64 hexadecimal digits (openssl rand -hex 32)")


@dataclass(frozen=True)
class Services:
    """What happens to blocks on their way. ``compress`` is ``auto``, ``always`` or ``never``; ``auto``
    compresses blocks of at least ``least`` bytes if a sample shows that it takes less time than it saves at
    ``rate`` bytes per second."""

    compress: str = "auto"
    least: int = 2**20
    rate: float = 200e6
    key: Key | None = None

    def name_of(self, frames: Iterable[Any]) -> str:
        """The same for the same contents, and for no others. Tells nothing to those without the key."""
        if self.key is None:
            return sum_of(frames)
        made = hashlib.blake2b(key=self.key.secret, digest_size=16, person=b"dask-hpc content")
        for frame in frames:
            made.update(frame)
        return f"keyed:{made.hexdigest()}"


class Sealed(NamedTuple):
    """``frames`` are the bytes to be stored; ``note`` can be written as JSON, and is needed to open them."""

    frames: list[Any]
    note: dict[str, Any]


def sum_of(frames: Iterable[Any], kind: str = "") -> str:
    """Tells damage; nobody who wants to deceive is kept from it."""
    kind = kind or ("xxh3" if xxhash else "blake2b")
    made: Any = xxhash.xxh3_128() if kind == "xxh3" else hashlib.blake2b(digest_size=16)
    for frame in frames:
        made.update(frame)
    return f"{kind}:{made.hexdigest()}"


def has_sum(frames: Iterable[Any], told: str) -> bool:
    """Whether these are the bytes that the sum was made of."""
    kind = told.partition(":")[0]
    if kind == "xxh3" and xxhash is None:
        raise Damaged("its sum cannot be checked here: install xxhash")
    return kind in ("xxh3", "blake2b") and sum_of(frames, kind) == told


def seal(frames: Sequence[Any], name: str, services: Services) -> Sealed:
    found: list[Any] = [memoryview(frame).cast("B") for frame in frames]
    raw = [frame.nbytes for frame in found]
    note: dict[str, Any] = {"raw": raw}
    if pays(found, services):
        found = [_compressed(frame) for frame in found]
        note["codec"] = "zstd"
    if services.key is not None:
        salt = os.urandom(_SALT)
        found = _encrypted(found, services.key, salt, name)
        note["cipher"] = "aes-gcm"
        note["salt"] = salt.hex()
    note["stored"] = [memoryview(frame).nbytes for frame in found]
    note["sum"] = sum_of(found)
    return Sealed(found, note)


def unseal(body: Any, name: str, note: dict[str, Any], key: Key | None = None) -> list[Any]:
    """The frames again, from all stored bytes in one piece. Raises ``Damaged`` or ``WrongKey``."""
    view = memoryview(body).cast("B")
    try:
        if view.nbytes != sum(note["stored"]) or not has_sum([view], note["sum"]):
            raise Damaged(f"{name} is damaged")
        ends = accumulate(note["stored"], initial=0)
        found: list[Any] = [view[begin:end] for begin, end in pairwise(ends)]
        if "cipher" in note:
            if key is None:
                raise WrongKey(f"{name} is encrypted: a key is needed")
            found = _decrypted(found, key, bytes.fromhex(note["salt"]), name)
        if note.get("codec") == "zstd":
            found = [_decompressed(frame, size) for frame, size in zip(found, note["raw"], strict=True)]
        if [memoryview(frame).nbytes for frame in found] != note["raw"]:
            raise Damaged(f"{name} has another size than it had")
    except (KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise Damaged(f"{name}: {type(error).__name__}: {error}") from None
    return found


def pays(frames: Sequence[Any], services: Services, was: bool | None = None) -> bool:
    """Whether to compress: on request, or if the time for it is less than that of the bytes it saves. What
    ``was`` compressed stays so unless that is clearly worse, and the other way round."""
    frames = [memoryview(frame).cast("B") for frame in frames]
    size = sum(frame.nbytes for frame in frames)
    if services.compress != "auto" or not size or size < services.least:
        return services.compress == "always" and size > 0
    view = max(frames, key=lambda frame: int(frame.nbytes))
    begin = (view.nbytes - _SAMPLE) // 2 if view.nbytes > _SAMPLE else 0  # ends are often unlike the rest
    sample = view[begin : begin + _SAMPLE]
    _compressed(sample[:1])  # what is imported first is no part of the time
    since = thread_time()  # others on this machine do not make it worse
    saved: float = sample.nbytes - len(_compressed(sample))
    return saved / services.rate * {None: 1, True: 2, False: 0.5}[was] > thread_time() - since


def _compressed(frame: Any) -> Any:
    from numcodecs import zstd

    return zstd.compress(frame, _LEVEL) if memoryview(frame).nbytes else b""


def _decompressed(frame: Any, size: int) -> Any:
    from numcodecs import zstd

    found = np.empty(size, np.uint8)  # not cleared first, as a bytearray is
    if size:
        zstd.decompress(frame, found)
    return found.data


def _encrypted(frames: list[Any], key: Key, salt: bytes, name: str) -> list[Any]:
    cipher, nonces, found = _cipher(key, salt), _nonces(), []
    for frame in frames:
        view = memoryview(frame).cast("B")
        parts = [
            cipher.encrypt(next(nonces), view[begin : begin + _SEGMENT], name.encode())
            for begin in range(0, max(1, view.nbytes), _SEGMENT)
        ]
        found.append(b"".join(parts) if len(parts) > 1 else parts[0])
    return found


def _decrypted(frames: list[Any], key: Key, salt: bytes, name: str) -> list[Any]:
    from cryptography.exceptions import InvalidTag

    cipher, nonces, size = _cipher(key, salt), _nonces(), _SEGMENT + _TAG
    try:
        return [
            b"".join(
                cipher.decrypt(next(nonces), frame[begin : begin + size], name.encode())
                for begin in range(0, frame.nbytes, size)
            )
            for frame in frames
        ]
    except InvalidTag:
        raise WrongKey(f"{name} was encrypted with another key") from None


def _cipher(key: Key, salt: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise WrongKey(
            "encryption needs the package cryptography: pip install 'dask-hpc[encryption]'"
        ) from None
    return AESGCM(hashlib.blake2b(salt, key=key.secret, digest_size=_KEY, person=_DOMAIN).digest())


def _nonces() -> Iterator[bytes]:
    return (number.to_bytes(12, "big") for number in count())
