"""Speed-up models: how much faster a job runs on n nodes than on one.

A model answers ``factor(n)`` with ``factor(1) == 1``; everything else follows from it.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import inf, isqrt
from typing import Literal, get_args

from dask_hpc.model.errors import InputError, insist, is_number, shown


@dataclass(frozen=True, slots=True)
class Speedup:
    """What all speed-up models share; subclasses say ``factor``."""

    def factor(self, nodes: int) -> float:
        """How many times faster than on one node."""
        raise NotImplementedError

    def efficiency(self, nodes: int) -> float:
        """The share of the nodes that does useful work."""
        return self.factor(nodes) / nodes

    def mtct(self, nodes: int) -> float:
        """Communication time over compute time, as seed 001 (2.14) measures it.

        The compute part on n nodes is ``work / n``; what the run takes beyond that is communication,
        so MTCT = 1 / efficiency - 1. The source also prints MPI time over *total* time; we take the
        ratio its name says. Super-linear scaling counts as no communication.
        """
        return max(0.0, 1.0 / self.efficiency(nodes) - 1.0)


@dataclass(frozen=True, slots=True)
class Linear(Speedup):
    """Twice the nodes, half the time."""

    def factor(self, nodes: int) -> float:
        return float(nodes)


@dataclass(frozen=True, slots=True)
class Amdahl(Speedup):
    """A serial share of the work does not profit from nodes."""

    serial: float

    def __post_init__(self) -> None:
        insist(is_number(self.serial, 0, 1), "serial", self.serial, "0 to 1")

    def factor(self, nodes: int) -> float:
        return 1.0 / (self.serial + (1.0 - self.serial) / nodes)


@dataclass(frozen=True, slots=True)
class PowerLaw(Speedup):
    """``nodes ** exponent``: 1 is linear, 0 does not scale."""

    exponent: float

    def __post_init__(self) -> None:
        insist(is_number(self.exponent, 0, 1.5), "exponent", self.exponent, "0 to 1.5")

    def factor(self, nodes: int) -> float:
        return float(nodes**self.exponent)


@dataclass(frozen=True, slots=True)
class Tabulated(Speedup):
    """Measured factors; between two measured sizes the smaller one's factor holds."""

    points: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        try:
            sizes = [size for size, _ in self.points]
            begins = bool(sizes) and sizes[0] == 1 and self.points[0][1] == 1.0
            rises = all(a < b for a, b in pairwise(sizes)) and all(0 < one < inf for _, one in self.points)
        except (TypeError, ValueError):
            raise InputError("points", f"found {shown(self.points)}", "pairs of (nodes, factor)") from None
        insist(begins, "points", self.points, "a table that starts with (1, 1.0)")
        insist(rises, "points", self.points, "rising sizes, positive factors")

    def factor(self, nodes: int) -> float:
        at = bisect_left(self.points, (nodes + 1,)) - 1
        return self.points[max(at, 0)][1]


@dataclass(frozen=True, slots=True)
class Interpolated(Tabulated):
    """Measured factors with straight lines between them, flat beyond the last."""

    def factor(self, nodes: int) -> float:
        at = bisect_left(self.points, (nodes,))
        if at == len(self.points):
            return self.points[-1][1]
        size, factor = self.points[at]
        if size == nodes or at == 0:
            return factor
        size0, factor0 = self.points[at - 1]
        return factor0 + (factor - factor0) * (nodes - size0) / (size - size0)


@dataclass(frozen=True, slots=True, kw_only=True)
class IoDemand:
    """``compute`` operations and ``data`` bytes of a job, on nodes of ``speed`` operations per second,
    each with a ``link`` to a ``file_system`` (bytes per second)."""

    compute: float
    data: float
    speed: float = 1.0
    link: float = inf
    file_system: float = inf

    def __post_init__(self) -> None:
        try:  # of all at once: there is one for each of many jobs
            fine = 0 <= self.compute < inf and 0 <= self.data < inf
            if fine and self.speed > 0 and self.link > 0 and self.file_system > 0:
                return
        except TypeError:
            pass
        for name in ("compute", "data", "speed", "link", "file_system"):
            value, may_be_zero = getattr(self, name), name in ("compute", "data")
            fine = is_number(value, 0, inf) and value != (inf if may_be_zero else 0)
            insist(fine, f"io_intensity.{name}", value, "0 or more" if may_be_zero else "more than 0")

    @classmethod
    def of_share(cls, share: float) -> "IoDemand":
        """Of a job that was seen to read and write for this share of its time, on whatever nodes."""
        return cls(compute=1.0 - share, data=share, link=1.0)

    def intensity(self, nodes: int) -> float:
        """The share of its time that the job spends reading and writing when it has the file system
        to itself; 0 for a job that does nothing."""
        total = self.seconds(nodes)
        return self.data / min(nodes * self.link, self.file_system) / total if total > 0 else 0.0

    def seconds(self, nodes: int) -> float:
        """How long it takes on so many nodes when it has the file system to itself."""
        return self.data / min(nodes * self.link, self.file_system) + self.compute / (nodes * self.speed)


@dataclass(frozen=True, slots=True)
class IoScaling(Speedup):
    """The speed-up that an I/O demand implies: computing scales, the file system has an end."""

    demand: IoDemand

    def factor(self, nodes: int) -> float:
        one = self.demand.seconds(1)
        return one / self.demand.seconds(nodes) if one > 0 else 1.0


@dataclass(frozen=True, slots=True)
class PhasedSpeedup(Speedup):
    """One law after the other: ``(share of the work, law)``, shares as one node does them.

    As a whole the run takes what its phases take together, so that its MTCT is the mean of theirs by
    share: nobody who asks for one figure need know that there are phases.
    """

    phases: tuple[tuple[float, Speedup], ...]

    def __post_init__(self) -> None:
        try:
            fine = all(is_number(share, 0, 1) and share > 0 for share, _ in self.phases)
            fine = fine and all(isinstance(law, Speedup) for _, law in self.phases)
            total = sum(share for share, _ in self.phases) if fine else 0.0
        except (TypeError, ValueError):
            raise InputError("phases", f"found {shown(self.phases)}", "pairs of (share, speed-up)") from None
        insist(fine, "phases", self.phases, "shares above 0, each with a speed-up")
        insist(abs(total - 1.0) < 1e-9, "phases", f"shares that add up to {total:g}", "to 1")

    def factor(self, nodes: int) -> float:
        whole = sum(share for share, _ in self.phases)  # 1 but for rounding, which is not to show on one node
        return whole / sum(share / law.factor(nodes) for share, law in self.phases)

    @property
    def ends(self) -> tuple[tuple[float, Speedup], ...]:
        """The share of the work at which each phase ends, with its law; the last ends at 1 exactly."""
        ends = list(accumulate(share for share, _ in self.phases))
        return tuple(zip([*ends[:-1], 1.0], (law for _, law in self.phases), strict=True))


Constraint = Literal["any", "even", "odd", "pof2", "cube", "square"]
CONSTRAINTS: tuple[Constraint, ...] = get_args(Constraint)


def _cube_root(n: int) -> int:
    root = round(n ** (1 / 3))
    while root**3 > n:
        root -= 1
    while (root + 1) ** 3 <= n:
        root += 1
    return root


#: the largest legal size up to a number, and the smallest from it on
_LEGAL: dict[Constraint, tuple[Callable[[int], int], Callable[[int], int]]] = {
    "any": (lambda n: n, lambda n: n),
    "even": (lambda n: n - n % 2, lambda n: n + n % 2),
    "odd": (lambda n: n - 1 + n % 2, lambda n: n + 1 - n % 2),
    "pof2": (lambda n: 1 << (n.bit_length() - 1), lambda n: 1 << (n - 1).bit_length()),
    "cube": (lambda n: _cube_root(n) ** 3, lambda n: (_cube_root(n - 1) + 1) ** 3),
    "square": (lambda n: isqrt(n) ** 2, lambda n: (isqrt(n - 1) + 1) ** 2),
}


def largest_legal(constraint: Constraint, low: int, high: int) -> int | None:
    """The largest legal size in ``[low, high]``, or None if there is none."""
    if high < 1:
        return None
    size = high if constraint == "any" else _LEGAL[constraint][0](high)  # nearly always
    return size if size >= low and size >= 1 else None


def smallest_legal(constraint: Constraint, low: int, high: int) -> int | None:
    """The smallest legal size in ``[low, high]``, or None if there is none."""
    size = low if low > 1 else 1
    if constraint != "any":
        size = _LEGAL[constraint][1](size)
    return size if size <= high else None


def next_legal_down(constraint: Constraint, size: int, low: int) -> int | None:
    """The next legal size below ``size`` that is still at least ``low``, or None."""
    return largest_legal(constraint, low, size - 1)


def is_legal(constraint: Constraint, size: int) -> bool:
    """Whether ``size`` itself satisfies the constraint."""
    return size >= 1 and (constraint == "any" or _LEGAL[constraint][0](size) == size)
