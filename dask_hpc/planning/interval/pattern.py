"""In which order a run commits to its levels."""

from dataclasses import dataclass
from math import prod

from dask_hpc.model.errors import InputError, shown


@dataclass(frozen=True, slots=True)
class Pattern:
    """``work`` seconds of computing between two commits, and how many commits to each level but the last
    come before one to the next level. ``counts == (2, 1)`` is a period of six commits to the levels 0, 0, 1,
    0, 0, 2; a 0 leaves a level out."""

    work: float
    counts: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.work > 0:
            raise InputError("work", f"found {shown(self.work)}", "seconds, more than 0")
        if any(count < 0 for count in self.counts):
            raise InputError("counts", f"found {shown(self.counts)}", "whole numbers, 0 or more")

    @property
    def commits(self) -> int:
        """In one period, which ends with a commit to the last level."""
        return prod(count + 1 for count in self.counts)

    def level(self, number: int) -> int:
        """To which level commit ``number`` goes; the first one is 1."""
        found = 0
        for count in self.counts:
            number, left = divmod(number, count + 1)
            if left:
                break
            found += 1
        return found

    def every(self) -> tuple[float, ...]:
        """Seconds of work between two commits to each level or one above it."""
        found = [self.work]
        for count in self.counts:
            found.append(found[-1] * (count + 1))
        return tuple(found)
