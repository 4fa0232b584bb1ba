"""Copies of the blocks that a producer put last, in case a worker dies before consumers have had them."""

from typing import Any

import numpy as np

_Where = tuple[str, tuple[int, ...]]


class Kept:
    """The blocks of the last ``steps`` steps. Memory of older ones is used again."""

    def __init__(self, steps: int) -> None:
        self._most = steps
        self._steps: dict[int, dict[_Where, np.ndarray[Any, Any]]] = {}
        self._free: list[np.ndarray[Any, Any]] = []

    def add(self, variable: str, step: int, index: tuple[int, ...], block: np.ndarray[Any, Any]) -> None:
        """Copy a block. Steps before the last ones are not kept any more."""
        if not self._most:
            return
        if step not in self._steps:
            self._steps[step] = {}
            while len(self._steps) > self._most:
                self._free += self._steps.pop(min(self._steps)).values()
                self._free = self._free[
                    -2 * self._most * max(map(len, self._steps.values()), default=1) - 1 :
                ]
        blocks = self._steps.get(step)
        if blocks is not None:  # else it is older than all that are kept
            copy = blocks.get((variable, index))
            if copy is None:
                copy = self._buffer(block)
            np.copyto(copy, block)
            blocks[variable, index] = copy

    def find(self, variable: str, step: int, index: tuple[int, ...]) -> np.ndarray[Any, Any] | None:
        """A block, if it is still kept."""
        return self._steps.get(step, {}).get((variable, index))

    def _buffer(self, block: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        for i, old in enumerate(self._free):
            if old.shape == block.shape and old.dtype == block.dtype:
                return self._free.pop(i)
        return np.empty(block.shape, block.dtype)
