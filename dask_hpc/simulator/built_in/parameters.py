"""What several built-in workloads let people say in the same way."""

from math import inf

from dask_hpc.model.errors import InputError, is_number, shown
from dask_hpc.model.speedup import Linear, PowerLaw, Speedup
from dask_hpc.model.units import parse_duration


def scaling(exponent: float) -> Speedup:
    """``nodes ** exponent``; 1 is linear."""
    checked("speedup", exponent, 0, 1.5)
    return Linear() if exponent == 1 else PowerLaw(exponent)


def walltime_of(limit: float | str, runtime: float) -> float:
    """A factor of the runtime (``1.5``), the same time for every job (``"2000 s"``), or ``"unlimited"``."""
    if isinstance(limit, str):
        try:
            limit = float(limit) if limit.lower() not in ("inf", "unlimited") else inf
        except ValueError:
            return parse_duration(limit)
    if not limit > 0:
        raise InputError(
            "walltime", f"found {shown(limit)}", 'a factor, such as 1.5, or a time, such as "2000 s"'
        )
    return max(limit * runtime, 1e-3)


def checked(name: str, value: float, low: float, high: float) -> float:
    """A number within bounds."""
    if isinstance(value, bool) or not is_number(value, low, high):
        allowed = f"{low:g} or more" if high == inf else f"{low:g} to {high:g}"
        raise InputError(name, f"found {shown(value)}", allowed)
    return value
