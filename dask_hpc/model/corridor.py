"""The power corridor: a lower and an upper bound in watts, constant or scheduled over time."""

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from math import inf, isfinite

from dask_hpc.model.errors import InputError, shown


@dataclass(frozen=True, slots=True)
class Corridor:
    """Steps of ``(from time, lower, upper)``; the first also holds before its time."""

    steps: tuple[tuple[float, float, float], ...]

    def __post_init__(self) -> None:
        if not self.steps:
            raise InputError("corridor", "found no step", "at least one (time, lower, upper)")
        try:
            steps = tuple((float(time), float(lower), float(upper)) for time, lower, upper in self.steps)
        except (ArithmeticError, TypeError, ValueError):
            found = f"found {shown(self.steps)}"
            raise InputError("corridor", found, "a list of (time, lower, upper)") from None
        object.__setattr__(self, "steps", steps)
        for time, lower, upper in steps:
            if not isfinite(time):
                raise InputError("corridor", f"found the time {shown(time)}", "finite times")
            if not 0 <= lower <= upper:
                raise InputError(
                    f"corridor at {time:g} s",
                    f"found {shown((lower, upper))}",
                    "0 <= lower <= upper",
                )
        if any(a[0] >= b[0] for a, b in pairwise(steps)):
            raise InputError("corridor", f"found {shown(steps)}", "rising times")

    @classmethod
    def constant(cls, lower: float = 0.0, upper: float = inf) -> "Corridor":
        """The same bounds at all times."""
        return cls(((0.0, lower, upper),))

    def at(self, time: float) -> tuple[float, float]:
        """Lower and upper bound at ``time``."""
        index = bisect_right(self.steps, (time, inf, inf)) - 1
        _, lower, upper = self.steps[max(index, 0)]
        return lower, upper
