"""The power of a node by how busy its processors are: needs no sensor, always works."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Any

from dask_hpc.model.errors import InputError, is_number, shown

# Watts per logical processor of a whole server. The averages that the methodology of Cloud Carbon Footprint
# derives for the servers of one large provider from SPECpower_ssj2008, which measures at the wall. By its
# table single microarchitectures need from 0.45 to 1.9 W idle and from 1.6 to 6 W busy.
IDLE_WATTS, BUSY_WATTS = 0.74, 3.5
_DEFAULT_DOUBT = 0.5  # of the watts: covers most of that table
_LEAST_DOUBT = 0.02  # of the watts, however well a few measurements fit
_ONE_POINT_DOUBT = 0.25  # of the watts, when only one or two measurements are there
# 97.5 % quantile of Student's t by degrees of freedom, from 1
_T = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)


@dataclass(frozen=True)
class PowerModel:
    """Watts of an idle node and of a busy one, and a straight line between them. ``doubt`` is the half-width
    of a 95 % interval in watts at ``busy``, ``idle_doubt`` at ``idle``."""

    idle: float
    busy: float
    idle_doubt: float
    busy_doubt: float
    origin: str = "given"

    @classmethod
    def default(cls, processors: int) -> "PowerModel":
        """Of a node with so many logical processors, of which nothing else is known."""
        idle, busy = IDLE_WATTS * processors, BUSY_WATTS * processors
        origin = f"typical for {processors} logical processors"
        return cls(idle, busy, _DEFAULT_DOUBT * idle, _DEFAULT_DOUBT * busy, origin)

    def watts(self, use: float) -> float:
        """When the processors are busy for this share of the time."""
        return self.idle + (self.busy - self.idle) * min(max(use, 0.0), 1.0)

    def uncertainty(self, use: float) -> float:
        """Half-width of the 95 % interval of that."""
        return self.idle_doubt + (self.busy_doubt - self.idle_doubt) * min(max(use, 0.0), 1.0)


def calibrate(measured: Iterable[Any], processors: int = 1) -> PowerModel:
    """The model that fits best to a few measurements, pairs of use (0 to 1) and watts of the node.

    Least squares, with idle power not below zero and busy power not below idle power. One measurement, or
    several at one use, scale the default of a node with so many processors.
    """
    points = [_point(number, pair) for number, pair in enumerate(measured, 1)]
    if not points:
        raise InputError("calibrate", "found no measurement", "pairs of use (0 to 1) and watts")
    n = len(points)
    mean_use, mean_watts = (sum(column) / n for column in zip(*points, strict=True))
    spread = sum((use - mean_use) ** 2 for use, _ in points)
    if spread < 1e-4 * n:
        default = PowerModel.default(processors)
        factor = mean_watts / default.watts(mean_use)
        idle, busy = factor * default.idle, factor * default.busy
    else:
        slope = sum((use - mean_use) * (watts - mean_watts) for use, watts in points) / spread
        slope = max(0.0, slope)
        idle = mean_watts - slope * mean_use
        if idle < 0:
            idle, slope = 0.0, sum(u * w for u, w in points) / sum(u * u for u, _ in points)
        busy = idle + slope
    doubts = [_ONE_POINT_DOUBT * watts for watts in (idle, busy)]
    if n > 2 and spread >= 1e-4 * n:
        left = sum((watts - idle - (busy - idle) * use) ** 2 for use, watts in points)
        quantile = _T[n - 3] if n - 3 < len(_T) else 2.2
        doubts = [
            max(
                quantile * sqrt(left / (n - 2) * (1 + 1 / n + (at - mean_use) ** 2 / spread)),
                _LEAST_DOUBT * watts,
            )
            for at, watts in ((0.0, idle), (1.0, busy))
        ]
    return PowerModel(idle, busy, doubts[0], doubts[1], f"{n} measurement{'' if n == 1 else 's'}")


def _point(number: int, pair: Any) -> tuple[float, float]:
    fine = isinstance(pair, list | tuple) and len(pair) == 2
    if not (fine and is_number(pair[0], 0, 1) and is_number(pair[1], 0, 1e7) and isfinite(pair[1])):
        found = f"found {shown(pair)}"
        raise InputError(f"calibrate: measurement {number}", found, "a use from 0 to 1, and watts")
    return float(pair[0]), float(pair[1])
