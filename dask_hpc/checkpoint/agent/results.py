"""Blocks of a worker's own results. Each has its content found once, for as long as it stays there.

Workers get this module by value: it imports nothing of ours but its neighbours.
"""

import asyncio
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from dask_hpc.checkpoint.agent.block import Block
from dask_hpc.checkpoint.store.value import is_opaque


class Results:
    """``data`` are the values by key. Lives in the event loop; contents are found in threads."""

    def __init__(self, data: Mapping[Any, Any]) -> None:
        self._data = data
        self._content: dict[Hashable, str] = {}
        #: what changed while contents were found, for each that waits for some
        self._waiting: list[set[Hashable]] = []

    def changed(self, key: Hashable) -> None:
        """What was known of this key no longer holds."""
        self._content.pop(key, None)
        for changed in self._waiting:
            changed.add(key)

    async def blocks(
        self, keys: Sequence[Hashable], have: Sequence[Sequence[str]] = ()
    ) -> list[Block | str | Exception | None]:
        """The block of each key: its content alone if it is one of those that it may ``have``, nothing if it
        is not here, and the error if it cannot be said in bytes."""
        have = have or [()] * len(keys)
        known = [self._content.get(key, "") for key in keys]
        here = [key in self._data for key in keys]
        values = {
            place: self._data[key]
            for place, key in enumerate(keys)
            if here[place] and (not known[place] or known[place] not in have[place])
        }
        changed: set[Hashable] = set()
        self._waiting.append(changed)
        try:
            made = await asyncio.to_thread(_made, values, known) if values else {}
        finally:
            self._waiting.remove(changed)
        for place, block in made.items():
            # a pickle may be another one the next time
            if isinstance(block, Block) and keys[place] not in changed and not is_opaque(block.head):
                self._content[keys[place]] = block.content
        found: list[Block | str | Exception | None] = []
        for place, is_here in enumerate(here):
            if place in made:
                block = made[place]
                if isinstance(block, Block) and block.content in have[place]:
                    found.append(block.content)
                else:
                    found.append(block)
            else:
                found.append(known[place] if is_here else None)
        return found


def _made(values: dict[int, Any], known: Sequence[str]) -> dict[int, Block | Exception]:
    return {place: _block(value, known[place]) for place, value in values.items()}


def _block(value: Any, content: str) -> Block | Exception:
    try:
        return Block.of(value, content)
    except Exception as error:  # whatever objects of users do when they are pickled
        return error
