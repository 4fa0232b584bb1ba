"""Blocks in messages: several small ones in one, or a part of a large one.

Workers get this module by value: it imports nothing of ours but its neighbours.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from distributed.protocol import to_serialize

from dask_hpc.checkpoint.agent.block import Block, join
from dask_hpc.checkpoint.store.seal import Damaged

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
    little: list[memoryview] = []
    for block in blocks:
        for view in block.part(0, block.nbytes):
            if view.nbytes < _JOINED:
                little.append(view)
                continue
            _flush(little, parts)
            parts.append(view)
    _flush(little, parts)
    return travelling(parts)


def _flush(little: list[memoryview], parts: list[Any]) -> None:
    if little:
        whole = np.empty(sum(view.nbytes for view in little), np.uint8)
        join(little, whole)
        parts.append(whole.data)
        little.clear()


def travelling(parts: Iterable[Any]) -> list[Any]:
    """As they go into a message: nothing is copied."""
    return [to_serialize(np.frombuffer(part, np.uint8)) for part in parts]


async def views(block: Any, begin: int, end: int) -> list[memoryview]:
    """Bytes of a block; those of files are read in a thread."""
    found = block.part(begin, end)
    return list(found) if block.in_memory else await asyncio.to_thread(list, found)


def unpacked(offers: Sequence[dict[str, Any]], parts: Sequence[Any]) -> Iterator[Block | Damaged]:
    """The blocks again, each in memory of its own and checked."""
    whole = Block("", None, tuple(memoryview(part).nbytes for part in parts), parts)
    at = 0
    for offer in offers:
        end = at + sum(offer["sizes"])
        block = arrived(offer, list(whole.part(at, end))).apart()
        at = end
        try:
            block.check()
        except Damaged as error:
            yield error
        else:
            yield block


def arrived(offer: dict[str, Any], pieces: Sequence[Any]) -> Block:
    """A block whose bytes have come."""
    return Block(offer["content"], offer["head"], tuple(offer["sizes"]), pieces)


def spans(nbytes: int, chunk: int) -> list[tuple[int, int]]:
    """The parts of a large block: where each begins and ends."""
    return [(begin, min(begin + chunk, nbytes)) for begin in range(0, nbytes, chunk)]


def first_few(sizes: Iterable[int], most: int) -> int:
    """How many go into the next message: one at least."""
    count = total = 0
    for size in sizes:
        total += size
        if count and total > most:
            break
        count += 1
    return count
