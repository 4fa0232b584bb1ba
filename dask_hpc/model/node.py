"""A node: the unit that is allotted."""

from dataclasses import dataclass
from math import inf
from sys import float_info

from dask_hpc.model.errors import InputError, is_number, shown


@dataclass(frozen=True, slots=True)
class Node:
    """One machine node, or on a live cluster all Dask workers of one host. Powers in watts."""

    name: str
    idle_power: float = 0.0
    active_power: float = 0.0

    def __post_init__(self) -> None:
        if type(self.name) is not str or not self.name:
            raise InputError("node", f"found {shown(self.name)}", "a name")
        if not (
            is_number(self.idle_power, 0, inf)
            and is_number(self.active_power, self.idle_power, float_info.max)
        ):
            raise InputError(
                f"node {shown(self.name)}",
                f"found idle {shown(self.idle_power)} W, active {shown(self.active_power)} W",
                "0 <= idle <= active, finite",
            )
