"""How much of its time a job spends on the shared file system, for any number of nodes.

Seed 002, section 4.2.2, attaches an I/O intensity to each job and size, ``io time / total time``, and
leaves open how it is estimated; ours is the estimate from volumes and rates that its digest (3.4) tried.
"""

from dataclasses import dataclass
from math import inf

from dask_hpc.model.errors import InputError, is_number, shown
from dask_hpc.model.speedup import Speedup


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
        for name in ("compute", "data"):
            if not is_number(getattr(self, name), 0, inf) or getattr(self, name) == inf:
                raise InputError(f"io_intensity.{name}", f"found {shown(getattr(self, name))}", "0 or more")
        for name in ("speed", "link", "file_system"):
            if not is_number(getattr(self, name), 0, inf) or getattr(self, name) == 0:
                raise InputError(f"io_intensity.{name}", f"found {shown(getattr(self, name))}", "more than 0")

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
