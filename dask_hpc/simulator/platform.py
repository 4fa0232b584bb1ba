"""The machine that is simulated, and the costs that real ones have. Every cost can be zero."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.node import Node
from dask_hpc.model.resize_cost import ResizeCost
from dask_hpc.simulator.failures import Failures
from dask_hpc.simulator.metering import Metering


@dataclass(frozen=True, slots=True)
class Platform:
    """``speed`` in operations per second and node, bandwidths in bytes per second, powers in watts.

    ``link`` is each node's way to the other nodes and to the file system; ``file_system`` is what all
    nodes together get from it, shared equally by the nodes that read or write. ``tick`` adds a decision
    every so many seconds while jobs are there; with ``only_ticks`` there are no others. ``launch`` and
    ``cleanup`` are seconds during which a job holds its nodes before and after its work. With a
    ``metering`` power is recorded.
    """

    nodes: int
    speed: float = 1.0
    link: float = inf
    file_system: float = inf
    idle_power: float = 0.0
    active_power: float = 0.0
    tick: float = 0.0
    only_ticks: bool = False
    launch: float = 0.0
    cleanup: float = 0.0
    resize: ResizeCost = field(default_factory=ResizeCost)
    failures: Failures | None = None
    metering: Metering | None = None

    def __post_init__(self) -> None:
        if isinstance(self.nodes, bool) or not isinstance(self.nodes, int) or not 1 <= self.nodes <= 10**7:
            raise InputError("nodes", f"found {shown(self.nodes)}", "1 to 10,000,000")
        for name in ("speed", "link", "file_system"):
            if not getattr(self, name) > 0:
                raise InputError(name, f"found {shown(getattr(self, name))}", "more than 0")
        for name in ("idle_power", "active_power", "tick", "launch", "cleanup"):
            if not 0 <= getattr(self, name) < inf:
                raise InputError(name, f"found {shown(getattr(self, name))}", "0 or more")
        if self.only_ticks and not self.tick:
            raise InputError("only_ticks", "there is no tick", "tick more than 0")
        count = sum(one.count for one in self.metering.types) if self.metering else 0
        if count not in (0, self.nodes):
            raise InputError("power.types", f"found {count} nodes", f"the {self.nodes} of the platform")

    def node_list(self) -> Iterator[Node]:
        """Its nodes, by the names they have everywhere."""
        types = self.metering.types if self.metering else ()
        powers = [(self.idle_power, self.active_power)] * (0 if types else self.nodes)
        for one in types:
            powers += [(one.idle, one.active)] * one.count
        return (Node(str(i), *power) for i, power in enumerate(powers))

    @property
    def has_powers(self) -> bool:
        """Whether it says what its nodes draw."""
        return self.active_power > 0 or bool(self.metering and self.metering.types)
