"""How the power of a simulated machine follows its work, and that it is recorded."""

from dataclasses import dataclass
from sys import float_info

from dask_hpc.model.corridor import Corridor
from dask_hpc.model.errors import InputError, is_number, shown


@dataclass(frozen=True, slots=True)
class NodeType:
    """So many nodes that draw so many watts, idle and at work."""

    count: int
    idle: float
    active: float

    def __post_init__(self) -> None:
        if type(self.count) is not int or self.count < 1:
            raise InputError("count", f"found {shown(self.count)}", "a whole number >= 1")
        most = float_info.max
        if not (is_number(self.idle, 0, most) and is_number(self.active, self.idle, most)):
            found = f"found idle {shown(self.idle)} W, active {shown(self.active)} W"
            raise InputError("", found, "0 <= idle <= active, finite")


@dataclass(frozen=True, slots=True)
class Metering:
    """A platform that has one records its power, whatever the policy.

    Power nears the level of the work at hand as a first-order lag: 63 % of a step after ``ramp`` seconds,
    95 % after three times that. ``noise`` is the standard deviation of what a policy *reads*, relative to
    the true value (drawn with ``seed``, once an instant); what is recorded is the truth. With ``types``
    the first nodes are of the first type and so on. ``corridor`` is the site's: what the run is judged by,
    and what a power strategy keeps that says no bounds of its own.
    """

    ramp: float = 0.0
    noise: float = 0.0
    seed: int = 0
    types: tuple[NodeType, ...] = ()
    corridor: Corridor | None = None

    def __post_init__(self) -> None:
        if not is_number(self.ramp, 0, float_info.max):
            raise InputError("power.ramp", f"found {shown(self.ramp)}", "0 s or more")
        if not is_number(self.noise, 0, 1):
            raise InputError("power.noise", f"found {shown(self.noise)}", "a share from 0 to 1")
