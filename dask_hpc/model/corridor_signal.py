"""Signals: functions of time that say a corridor, found by name among entry points (price, carbon)."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from dask_hpc.model.corridor import Corridor
from dask_hpc.model.errors import InputError, shown

GROUP = "dask_hpc.corridors"
PREFIX = "signal:"


@dataclass(frozen=True)
class CorridorSignal:
    """Answers lower and upper bound in watts for a time in seconds: on a live cluster since 1970, in the
    simulator since the simulation began."""

    name: str
    function: Callable[[float], Any]

    @classmethod
    def find(cls, name: str) -> "CorridorSignal":
        """The entry point of that name in the group ``dask_hpc.corridors``."""
        known = {point.name: point for point in entry_points(group=GROUP)}
        if name not in known:
            allowed = ", ".join(known) or "none"
            raise InputError(f"signal {name}", f"no entry point of {GROUP} has that name", allowed)
        return cls(name, known[name].load())

    def at(self, time: float) -> Corridor:
        """What it says for now, and until it says something else."""
        found = self.function(time)
        try:
            lower, upper = found
            return Corridor(((0.0, lower, upper),))
        except (TypeError, ValueError):  # InputError is one
            allowed = "(lower, upper), 0 <= lower <= upper"
            raise InputError(f"signal {self.name}", f"said {shown(found)}", allowed) from None
