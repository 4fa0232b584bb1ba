"""What it costs a job to change size: a fixed part, a part per process, and moving its data."""

from dataclasses import dataclass
from math import inf

from dask_hpc.model.errors import InputError, is_number, shown


@dataclass(frozen=True, slots=True)
class ResizeCost:
    """Seconds a job stands still during a resize. All zero by default: the ideal machine."""

    fixed: float = 0.0
    per_process: float = 0.0
    bandwidth: float = inf

    def __post_init__(self) -> None:
        for name in ("fixed", "per_process"):
            if not is_number(getattr(self, name), 0, inf):
                raise InputError(name, f"found {shown(getattr(self, name))}", "0 s or more")
        if not (is_number(self.bandwidth, 0, inf) and self.bandwidth > 0):
            raise InputError("bandwidth", f"found {shown(self.bandwidth)}", "more than 0 B/s")

    def seconds(self, before: int, after: int, moved_bytes: float = 0.0) -> float:
        """Cost of going from ``before`` to ``after`` processes."""
        if before == after:
            return 0.0
        processes = abs(after - before)
        return self.fixed + self.per_process * processes + moved_bytes / self.bandwidth
