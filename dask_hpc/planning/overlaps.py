"""Where old and new chunks of one dimension meet."""

from collections.abc import Sequence
from itertools import pairwise

#: from and to, in elements of one dimension
Span = tuple[int, int]


def distinct(edges: Sequence[int]) -> tuple[int, ...]:
    """Without chunks that have no elements, unless there is nothing else."""
    return tuple(dict.fromkeys(edges)) if edges[-1] else (0, 0)


def overlaps(old: Sequence[int], new: Sequence[int]) -> list[list[tuple[int, Span]]]:
    """For each new chunk of one dimension the old chunks in it, and which of their elements."""
    if not old[-1]:
        return [[(0, (0, 0))]]
    found = []
    first = 0
    for begin, end in pairwise(new):
        while old[first + 1] <= begin:
            first += 1
        parts = []
        for place in range(first, len(old) - 1):
            if old[place] >= end:
                break
            span = (max(begin, old[place]) - old[place], min(end, old[place + 1]) - old[place])
            if span[0] < span[1]:
                parts.append((place, span))
        found.append(parts)
    return found
