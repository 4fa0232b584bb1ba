"""A block: a value as plain bytes with a name that tells its contents from all others."""

import asyncio
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, groupby, pairwise, takewhile
from typing import Any, ClassVar

import numpy as np
from distributed.protocol import to_serialize

from dask_hpc.checkpoint.store.seal import Damaged, has_sum, sum_of
from dask_hpc.checkpoint.store.value import decode, encode, is_opaque

_ALIGNED = 16  # where arrays may begin in memory
#: bytes whose sum takes less time than a thread that makes it
QUICK = 4 * 2**20
_FORGED = "blake2b"  # sums that nobody can forge
_DIGEST = 32


@dataclass(frozen=True, slots=True)
class Block:
    """``head`` can be written as JSON, ``sizes`` are those of the frames that it tells of. ``pieces`` are the
    bytes of all frames in a row, cut anywhere: at the frames' ends if the value still owns them, as they
    arrived otherwise."""

    content: str
    head: Any
    sizes: tuple[int, ...]
    pieces: Sequence[Any]
    in_memory: ClassVar[bool] = True

    @classmethod
    def of(cls, value: Any, content: str = "") -> "Block":
        """Of a value; nothing is copied. Takes as long as a sum of its bytes does, if it is not known."""
        encoded = encode(value)
        frames = [memoryview(frame) for frame in encoded.frames]
        sizes = tuple(frame.nbytes for frame in frames)
        return cls(content or _content(encoded.head, frames), encoded.head, sizes, frames)

    @classmethod
    def of_frames(cls, head: Any, frames: Sequence[Any]) -> "Block":
        """Of bytes that ``head`` tells of, which is not opaque."""
        views = [memoryview(frame) for frame in frames]
        return cls(_content(head, views), head, tuple(view.nbytes for view in views), views)

    @property
    def nbytes(self) -> int:
        return sum(self.sizes)

    @property
    def frames(self) -> list[Any]:
        """Each in one piece, where an array may begin: copied if it is not."""
        ends = accumulate(self.sizes, initial=0)
        found = []
        for parts in (list(self.part(begin, end)) for begin, end in pairwise(ends)):
            is_one = len(parts) == 1 and np.frombuffer(parts[0], np.uint8).ctypes.data % _ALIGNED == 0
            found.append(parts[0] if is_one else _joined(parts))
        return found

    def check(self) -> None:
        """Raises ``Damaged`` if these are not the contents that the name tells."""
        whole = sum(memoryview(piece).nbytes for piece in self.pieces) == self.nbytes
        if is_opaque(self.head):
            is_right = _content(self.head, self.pieces) == self.content
        else:
            is_right = has_sum([_said(self.head), *self.pieces], self.content)
        if not whole or not is_right:
            raise Damaged(f"a copy of {self.content} is damaged")

    async def check_aside(self) -> None:
        """The same, in a thread if it takes long."""
        if self.nbytes > QUICK:
            await asyncio.to_thread(self.check)
        else:
            self.check()

    def value(self, may_unpickle: bool = True) -> Any:
        """The value again. What comes from the memory of this cluster's workers may be unpickled as whatever
        they send to each other may."""
        return decode(self.head, self.frames, may_unpickle=may_unpickle)

    def part(self, begin: int, end: int) -> Iterator[memoryview]:
        """Bytes of all frames in a row, from one place to another."""
        at = 0
        for piece in self.pieces:
            view = memoryview(piece).cast("B")
            first, last = max(begin - at, 0), min(end - at, view.nbytes)
            if first < last:
                yield view[first:last]
            at += view.nbytes

    def apart(self) -> "Block":
        """The same in memory of its own."""
        return Block(self.content, self.head, self.sizes, [_joined(self.part(0, self.nbytes))])


def _joined(pieces: Iterable[Any]) -> memoryview:
    """A copy of pieces, one behind the other."""
    found = [np.frombuffer(piece, np.uint8) for piece in pieces]
    return np.concatenate([np.empty(0, np.uint8), *found]).data


def _said(head: Any) -> bytes:
    return json.dumps(head, separators=(",", ":"), sort_keys=True).encode()


def _content(head: Any, pieces: Iterable[Any]) -> str:
    """Pickles get a sum that nobody can forge, as whoever can chooses what is run."""
    if not is_opaque(head):
        return sum_of([_said(head), *pieces])
    made = hashlib.blake2b(_said(head), digest_size=_DIGEST)
    for piece in pieces:
        made.update(piece)
    return f"{_FORGED}:{made.hexdigest()}"


#: bytes of one message. Memory of that size goes back to the system as soon as it is free (smaller pieces
#: may stay in the process for ever, and would count as used)
CHUNK = 32 * 2**20
#: a block that is larger than this part of a message travels in messages of its own
SMALL = 1 / 64
_JOINED = 2**16  # smaller ones are put together, as each piece of a message costs some time


def told(block: Any) -> dict[str, Any]:
    """What to know of a block before its bytes come."""
    return {"content": block.content, "head": block.head, "sizes": list(block.sizes)}


def packed(blocks: Iterable[Any]) -> list[Any]:
    """The bytes of blocks, one behind the other. May read files."""
    parts: list[Any] = []
    views = chain.from_iterable(block.part(0, block.nbytes) for block in blocks)
    for is_little, some in groupby(views, lambda view: view.nbytes < _JOINED):
        several = list(some)
        parts += [_joined(several)] if is_little else several
    return travelling(parts)


def travelling(parts: Iterable[Any]) -> list[Any]:
    """As they go into a message: nothing is copied."""
    return [to_serialize(np.frombuffer(part, np.uint8)) for part in parts]


def unpacked(
    offers: Sequence[dict[str, Any]], parts: Sequence[Any], apart: bool = True
) -> Iterator[Block | Damaged]:
    """The blocks again, checked, each in memory of its own; or in that of the message, for a short time."""
    for offer, pieces in zip(offers, _dealt(parts, (sum(one["sizes"]) for one in offers)), strict=True):
        block = arrived(offer, pieces)
        if apart:
            block = block.apart()
        try:
            block.check()
        except Damaged as error:
            yield error
        else:
            yield block


def _dealt(parts: Iterable[Any], sizes: Iterable[int]) -> Iterator[list[memoryview]]:
    """Bytes in a row, cut anywhere, as pieces of so many bytes; fewer if there are no more. One pass over
    all parts, however many there are."""
    left = (memoryview(part).cast("B") for part in parts)
    view = memoryview(b"")
    for size in sizes:
        pieces: list[memoryview] = []
        while size:
            if not view.nbytes:
                if (more := next(left, None)) is None:
                    break
                view = more
                continue
            pieces.append(view[:size])
            view, size = view[size:], size - pieces[-1].nbytes
        yield pieces


def arrived(offer: dict[str, Any], pieces: Sequence[Any]) -> Block:
    return Block(offer["content"], offer["head"], tuple(offer["sizes"]), pieces)


def spans(nbytes: int, chunk: int) -> list[tuple[int, int]]:
    """The parts of a large block: where each begins and ends."""
    return [(begin, min(begin + chunk, nbytes)) for begin in range(0, nbytes, chunk)]


def first_few(sizes: Iterable[int], most: int) -> int:
    """How many go into the next message: one at least."""
    return max(1, sum(1 for _ in takewhile(lambda total: total <= most, accumulate(sizes))))
