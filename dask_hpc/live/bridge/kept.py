"""Copies of the blocks that a producer put last, in case a worker dies before consumers have had them."""

from threading import Lock
from typing import Any

import numpy as np

_Where = tuple[str, tuple[int, ...]]
_Array = np.ndarray[Any, Any]


class Kept:
    """The blocks of the last ``most`` steps. The memory of older ones is used again: a new array costs more
    than copying into an old one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._steps: dict[int, dict[_Where, _Array]] = {}
        self._free: list[_Array] = []
        self._lock = Lock()

    def add(self, variable: str, step: int, index: tuple[int, ...], block: _Array) -> None:
        """Copy a block."""
        if self._most:
            with self._lock:
                blocks = self._steps.setdefault(step, {})
                if (variable, index) not in blocks:
                    blocks[variable, index] = self._array_for(block)
                np.copyto(blocks[variable, index], block)

    def trim(self) -> None:
        """The newest step has been taken: steps before the last ones are not kept any more."""
        while len(self._steps) > self._most:
            self.drop(min(self._steps))

    def drop(self, step: int) -> None:
        """A step is not kept: nobody wants it."""
        with self._lock:
            self._free = list(self._steps.pop(step, {}).values()) or self._free

    def find(self, variable: str, step: int, index: tuple[int, ...]) -> _Array | None:
        """A copy of a block, if it is still kept: its memory may be used again while it is sent."""
        with self._lock:
            found = self._steps.get(step, {}).get((variable, index))
            return None if found is None else found.copy()

    def _array_for(self, block: _Array) -> _Array:
        for i, old in enumerate(self._free):
            if old.shape == block.shape and old.dtype == block.dtype:
                return self._free.pop(i)
        return np.empty(block.shape, block.dtype)
