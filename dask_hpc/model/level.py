"""Where a checkpoint can lie, what it costs to put it there, and which failures it survives."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, inf

from dask_hpc.model.errors import InputError, shown


@dataclass(frozen=True, slots=True)
class Level:
    """One level of a checkpoint. A list of levels goes from the cheapest to the safest: what lies on a level
    survives the failures of that level and of all before it."""

    name: str
    #: seconds that one commit takes from the work, those of the levels below included
    commit: float
    #: seconds until work goes on from here
    restart: float
    #: per second: failures that nothing below this level survives
    failures: float

    def __post_init__(self) -> None:
        for name in ("commit", "restart", "failures"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < inf:
                raise InputError(
                    f"level {shown(self.name)}: {name}", f"found {shown(value)}", "0 or more, and finite"
                )


def failure_rate(levels: Sequence[Level]) -> float:
    """Failures of any kind, per second."""
    return fsum(level.failures for level in levels)
