"""What whole nodes can do: with the number of idle nodes fixed, power moves in multiples of a common step."""

from collections.abc import Sequence
from math import inf, isinf

import numpy as np

from dask_hpc.planning.corridor.enumerate import Floats
from dask_hpc.planning.corridor.problem import TINY, Part

_SCALES = (1.0, 2.0, 10.0, 100.0, 1000.0)


def common_step(watts: Floats) -> float:
    """The greatest common divisor of the differences: what exchanges of nodes between parts change power by.

    0 if there is none to speak of: watts are then measured ones, or all equal.
    """
    values = np.unique(watts)
    if len(values) < 2:
        return 0.0
    if len(values) == 2:
        return float(values[1] - values[0])
    for scale in _SCALES:
        scaled = (values - values[0]) * scale
        if np.abs(scaled - np.rint(scaled)).max() < TINY / 10:
            return float(np.gcd.reduce(np.rint(scaled).astype(np.int64))) / scale
    return 0.0


def node_step(parts: Sequence[Part]) -> int:
    """The greatest common divisor of all differences of sizes; 0 if no size can change."""
    if any(part.is_contiguous and len(part.sizes) > 1 for part in parts):
        return 1
    steps = {size - part.sizes[0] for part in parts for size in part.sizes}
    return int(np.gcd.reduce(list(steps))) if steps else 0


def down_to(limit: float, known: Floats, step: float) -> Floats:
    """The largest powers not above the limit that are a multiple of the step away from a known one."""
    if not step or isinf(limit):
        return np.full(len(known), limit)
    reached: Floats = known + np.floor((limit - known + TINY) / step) * step
    return reached


def slack_on_steps(edge: float, bound: float, known: float, step: float) -> float:
    """The largest distance from an upper edge, not above the bound, that a power on the steps can have."""
    if isinf(edge):
        return -inf
    return edge + float(down_to(bound - edge, np.array([-known]), step)[0]) if step else bound
