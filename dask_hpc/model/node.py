"""A node: the unit that is allotted."""

from dataclasses import dataclass

from dask_hpc.model.errors import InputError, shown


@dataclass(frozen=True, slots=True)
class Node:
    """One machine node, or on a live cluster all Dask workers of one host. Powers in watts."""

    name: str
    idle_power: float = 0.0
    active_power: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.idle_power <= self.active_power:
            raise InputError(
                f"node {shown(self.name)}",
                f"found idle {shown(self.idle_power)} W, active {shown(self.active_power)} W",
                "0 <= idle <= active",
            )
