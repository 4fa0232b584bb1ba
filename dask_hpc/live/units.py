"""The units of a cluster object: their names, their workers, and sizes in whatever people count them."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, floor, inf, isinf
from typing import Any

import dask.config
from dask.utils import parse_bytes

from dask_hpc.live import compat
from dask_hpc.model.errors import InputError, shown


def members(name: Any, spec: Mapping[str, Any]) -> list[str]:
    """Names of the workers of a unit, as the scheduler has them (as text)."""
    return [f"{name}{suffix}" for suffix in spec.get("group", ("",))]


def is_closing(cluster: Any) -> bool:
    """Whether a cluster object is on its way out, or has never started."""
    return cluster.status.name != "running"


@dataclass(frozen=True, slots=True)
class Layout:
    """What one unit of a cluster object is made of, as far as its options say."""

    workers: int
    cores: int | None
    memory: int | None

    @classmethod
    def of(cls, cluster: Any) -> "Layout":
        """The layout of a new unit."""
        job = compat.batch_job_of(cluster)
        if job is not None:
            return cls(job.worker_processes, job.worker_cores, job.worker_memory)
        workers = len((cluster.new_spec or {}).get("group", ("",)))
        return cls(workers, compat.threads_per_worker(cluster), compat.memory_per_worker(cluster))

    def size(self, workers: Any = None, jobs: Any = None, cores: Any = None, memory: Any = None) -> int:
        """How many units are at least so many workers, jobs, cores, and so much memory together."""
        return max(
            (ceil(units) for _, units in self._asked("scale", workers, jobs, cores, memory)), default=0
        )

    def minimum(self, workers: Any, jobs: Any, cores: Any, memory: Any) -> int:
        """The least number of units that is at least all of these; the configured one if none is given."""
        if workers is jobs is cores is memory is None:
            workers = dask.config.get("distributed.adaptive.minimum", default=0)
        asked = self._asked("adapt: minimum", workers, jobs, cores, memory)
        return max((ceil(units) for _, units in asked), default=0)

    def maximum(self, workers: Any, jobs: Any, cores: Any, memory: Any, allow_empty: bool) -> float:
        """The largest number of units that is at most all of these; the configured one if none is given."""
        if workers is jobs is cores is memory is None:
            workers = dask.config.get("distributed.adaptive.maximum", default=inf)
        most = inf
        for asked, units in self._asked("adapt: maximum", workers, jobs, cores, memory):
            if units < 1 and not allow_empty:
                one = f"less than one unit ({self})" if units else "so every worker would be closed"
                raise InputError(
                    "adapt: maximum", f"found {asked}: {one}", "at least one unit, or allow_empty=True"
                )
            most = min(most, units if isinf(units) else floor(units))
        return most

    def __str__(self) -> str:
        words = [f"{self.workers} worker{'' if self.workers == 1 else 's'}"]
        words += [f"{self.cores} cores"] if self.cores else []
        return ", ".join([*words, *([f"{self.memory / 1e9:.3g} GB"] if self.memory else [])])

    def _asked(self, where: str, workers: Any, jobs: Any, cores: Any, memory: Any) -> list[tuple[str, float]]:
        """Each amount that was given, in words and in units."""
        found = []
        if isinstance(memory, str):
            try:
                memory = parse_bytes(memory)
            except ValueError:
                raise InputError(where, f"found {shown(memory)}", "memory such as '4 GiB'") from None
        for word, amount, one in (
            ("workers", workers, self.workers),
            ("jobs", jobs, 1),
            ("cores", cores, self.cores),
            ("bytes", memory, self.memory),
        ):
            if amount is None:
                continue
            if isinstance(amount, bool) or not isinstance(amount, int | float) or not amount >= 0:
                raise InputError(where, f"found {shown(amount)} {word}", "a number >= 0")
            if not one:
                raise InputError(
                    where, f"found {amount} {word}", "workers: how many of these one has is unknown"
                )
            found.append((f"{amount:g} {word}", amount / one))
        return found
