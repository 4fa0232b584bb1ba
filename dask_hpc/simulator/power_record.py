"""The power of a simulated machine as it is written down: its steps, and those of the corridor."""

from array import array
from math import inf

from dask_hpc.model.corridor import Corridor


class PowerRecord:
    """24 bytes for each instant at which the work on the machine changes."""

    __slots__ = ("bounds", "end", "level", "ramp", "tick", "time", "watts")

    def __init__(self, ramp: float = 0.0, tick: float = 0.0) -> None:
        self.ramp = ramp
        #: an interval outside the corridor counts if it is longer than this
        self.tick = tick
        self.time = array("d")
        #: at that time, and where it goes from there
        self.watts = array("d")
        self.level = array("d")
        #: ``(from time, lower, upper)``; nothing if there is no corridor
        self.bounds: list[tuple[float, float, float]] = []
        self.end = -inf

    def step(self, time: float, watts: float, level: float) -> None:
        """From now on it goes to this level; the last word of an instant counts."""
        if self.time and self.time[-1] == time:
            self.watts[-1], self.level[-1] = watts, level
        elif not self.level or level != self.level[-1]:
            self.time.append(time)
            self.watts.append(watts)
            self.level.append(level)

    def bound(self, time: float, corridor: Corridor) -> None:
        """What the corridor is from now on."""
        lower, upper = corridor.at(time)
        if self.bounds and self.bounds[-1][0] == time:
            self.bounds[-1] = (time, lower, upper)
        elif not self.bounds or self.bounds[-1][1:] != (lower, upper):
            self.bounds.append((time, lower, upper))
