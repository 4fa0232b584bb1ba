"""How much tasks of some kinds slow each other, as decisions take it: pair by pair.

Each neighbour adds to how long a task takes what one of its kind adds alone, ``1 + sum of n_j (s_j - 1)``. A
kind that has only its own kind beside it was often seen with just so many of them: then that counts, and
between two numbers the line between them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from dask_hpc.planning.colocation.observed import Slowdown


@dataclass(frozen=True, slots=True)
class Slowdowns:
    """Of all kinds beside each other. ``beside``: of a task of a kind beside one of another. ``crowds``: of
    one with so many of its own kind beside it, and nothing else. ``known``: tasks that make something known.
    """

    beside: Mapping[str, Mapping[str, Slowdown]]
    crowds: Mapping[str, Mapping[int, Slowdown]]
    known: int

    def is_known(self, kind: str, other: str) -> bool:
        """Whether enough tasks of a kind were seen beside another."""
        found = self.beside.get(kind, {}).get(other)
        return found is not None and found.tasks >= self.known and found.stderr < inf

    def harm(self, kind: str, other: str) -> float:
        """By how much one of the other kind slows a task of this one, as far as that is sure: two standard
        errors below what was seen. 0 if nobody knows."""
        if not self.is_known(kind, other):
            return 0.0
        found = self.beside[kind][other]
        return max(0.0, found.ratio - 1 - 2 * found.stderr)

    def rate(self, kind: str, count: int) -> float:
        """What so many of a kind get done at once, and nothing else, in terms of one alone."""
        return count / self(kind, {kind: count - 1})

    def is_seen(self, kind: str, count: int) -> bool:
        """Whether enough of a kind were seen when just so many of it ran."""
        found = self.crowds.get(kind, {}).get(count - 1)
        return found is not None and found.tasks >= self.known

    def __call__(self, kind: str, others: Mapping[str, int]) -> float:
        """How many times as long a task takes beside these. What nobody knows does no harm."""
        here = {other: count for other, count in others.items() if count}
        if here.keys() == {kind} and (found := self._crowd(kind, here[kind])) is not None:
            return found
        known = self.beside.get(kind, {})
        added = (count * (known[other].ratio - 1) for other, count in here.items() if other in known)
        return max(1.0, 1.0 + sum(added))

    def _crowd(self, kind: str, others: int) -> float | None:
        """With so many of its own; None if that is between no two numbers that were seen."""
        seen = {0: 1.0} | {
            count: max(1.0, found.ratio)
            for count, found in self.crowds.get(kind, {}).items()
            if count and found.tasks >= self.known
        }
        above = min((count for count in seen if count >= others), default=None)
        if above is None:
            return None
        below = max(count for count in seen if count <= others)
        if above == below:
            return seen[above]
        return seen[below] + (seen[above] - seen[below]) * (others - below) / (above - below)
