"""Cutting pieces out of chunks and joining them, on workers. They get this module by value."""

from collections.abc import Sequence
from typing import Any

from dask.array.core import concatenate3

Spans = Sequence[tuple[int, int]]


class CutOut:
    """A parcel: pieces of some chunks for one other worker. Only these travel."""

    def __call__(self, chunks: Sequence[Any], spans: Sequence[Spans]) -> list[Any]:
        return [_cut_out(chunk, cut) for chunk, cut in zip(chunks, spans, strict=True)]


class Join:
    """A chunk of its pieces, in the order of the array; ``grid`` is how many there are along each axis.
    Where to find a piece: a number means that one of a parcel, spans that it is to be cut out, None that it
    is all of a chunk; ``is_own`` says that the only piece is nobody's part."""

    def __call__(
        self, given: Sequence[Any], where: Sequence[int | Spans | None], grid: Sequence[int], is_own: bool
    ) -> Any:
        parts = [_found(one, at) for one, at in zip(given, where, strict=True)]
        if len(parts) > 1:
            return concatenate3(_nested(parts, grid))
        # What is cut out is a view of the whole chunk, and would keep all of it in memory.
        return parts[0] if is_own else parts[0].copy()


def _found(given: Any, where: int | Spans | None) -> Any:
    if where is None:
        return given
    return given[where] if isinstance(where, int) else _cut_out(given, where)


def _cut_out(chunk: Any, spans: Spans) -> Any:
    return chunk[tuple(slice(*span) for span in spans)]


def _nested(parts: Sequence[Any], grid: Sequence[int]) -> Any:
    if len(grid) == 1:
        return list(parts)
    size = len(parts) // grid[0]
    return [_nested(parts[i * size : (i + 1) * size], grid[1:]) for i in range(grid[0])]
