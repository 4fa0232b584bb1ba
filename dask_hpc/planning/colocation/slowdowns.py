"""How much tasks of some kinds slow each other, from what was seen of them side by side, for decisions.

Each neighbour of a kind adds its share to how long a task takes: ``1 + sum of n_j a_j``. The shares are
fitted to all that was seen (least squares, by how sure each of it is), and never below 0. Where just that
company was seen often enough, what was seen counts; for a kind that has only its own beside it also between
two numbers that were seen.

What a task takes alone is not fitted with them: where nodes are always full, as Dask has them, nobody is ever
alone, and the shares and that could not be told apart. The fastest stand for it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dask_hpc.planning.colocation.observed import Slowdown

_LEAST_ERROR = 0.01  # nothing is surer than that
_RIDGE = 1e-6


class Company(NamedTuple):
    """A task of a kind took so many times as long beside these others as with as few as it was ever seen."""

    kind: str
    others: Mapping[str, int]
    slowdown: float
    #: standard error, and of how many tasks it is known
    stderr: float
    tasks: float


@dataclass(frozen=True, slots=True)
class _AddedByOthers:
    """What each neighbour adds, the standard error of that, and of how many tasks it is known."""

    added: Mapping[str, float]
    errors: Mapping[str, float]
    tasks: Mapping[str, float]


class Slowdowns:
    """Of all kinds beside each other. ``known``: tasks that make something known."""

    def __init__(self, seen: Iterable[Company], known: int) -> None:
        self._known = known
        self._by_kind: dict[str, list[Company]] = {}
        for one in seen:
            self._by_kind.setdefault(one.kind, []).append(one)
        self._shares = {kind: _fitted(found) for kind, found in self._by_kind.items()}

    def is_known(self, kind: str, other: str) -> bool:
        """Whether enough tasks of a kind were seen beside another."""
        found = self._shares.get(kind)
        return found is not None and found.tasks.get(other, 0) >= self._known

    def harm(self, kind: str, other: str) -> float:
        """By how much one of the other kind slows a task of this one, as far as that is sure: two standard
        errors below what was seen. 0 if nobody knows."""
        if not self.is_known(kind, other):
            return 0.0
        found = self._shares[kind]
        return max(0.0, found.added[other] - 2 * found.errors[other])

    def pair(self, kind: str, other: str) -> Slowdown | None:
        """Of a task of a kind beside one of another, as decisions take it; None if that was never seen."""
        found = self._shares.get(kind)
        if found is None or other not in found.tasks:
            return None
        return Slowdown(self(kind, {other: 1}), found.errors[other], found.tasks[other])

    def rate(self, kind: str, count: int) -> float:
        """What so many of a kind get done at once, and nothing else, in terms of one alone."""
        return count / self(kind, {kind: count - 1})

    def is_seen(self, kind: str, count: int) -> bool:
        """Whether enough of a kind were seen when just so many of it ran, and nothing else."""
        return self._exactly(kind, {kind: count - 1}) is not None

    def __call__(self, kind: str, others: Mapping[str, int]) -> float:
        """How many times as long a task takes beside these. What nobody knows does no harm."""
        here = {other: count for other, count in others.items() if count}
        exact = self._exactly(kind, here)
        if exact is None and here.keys() == {kind}:
            exact = self._between(kind, here[kind])
        if exact is not None:
            return exact
        found = self._shares.get(kind)
        if found is None:
            return 1.0
        return 1.0 + sum(count * found.added.get(other, 0.0) for other, count in here.items())

    def _exactly(self, kind: str, others: Mapping[str, int]) -> float | None:
        """Beside just these, if that was seen often enough."""
        here = {other: count for other, count in others.items() if count}
        for one in self._by_kind.get(kind, ()):
            if one.tasks >= self._known and one.others == here:
                return max(1.0, one.slowdown)
        return None

    def _between(self, kind: str, count: int) -> float | None:
        """With so many of its own: on the line between fewer and more; None if more were never seen."""
        alike = [one for one in self._by_kind.get(kind, ()) if one.tasks >= self._known]
        seen = {0: 1.0} | {
            one.others[kind]: max(1.0, one.slowdown) for one in alike if one.others.keys() == {kind}
        }
        above = min((one for one in seen if one >= count), default=None)
        if above is None:
            return None
        below = max(one for one in seen if one < count)
        return seen[below] + (seen[above] - seen[below]) * (count - below) / (above - below)


def _fitted(seen: list[Company]) -> _AddedByOthers:
    kinds = sorted({kind for one in seen for kind in one.others})
    if not kinds:
        return _AddedByOthers({}, {}, {})
    tasks = {kind: sum(one.tasks for one in seen if kind in one.others) for kind in kinds}
    sure = np.array([1 / max(one.stderr, _LEAST_ERROR) for one in seen])
    counts = np.array([[one.others.get(kind, 0) for kind in kinds] for one in seen], float) * sure[:, None]
    slower = np.array([one.slowdown - 1 for one in seen]) * sure
    inverse = np.linalg.inv(counts.T @ counts + _RIDGE * np.eye(len(kinds)))
    added, errors = inverse @ (counts.T @ slower), np.sqrt(np.diag(inverse))
    return _AddedByOthers(
        {kind: max(0.0, float(one)) for kind, one in zip(kinds, added, strict=True)},
        {kind: float(one) for kind, one in zip(kinds, errors, strict=True)},
        tasks,
    )
