"""Node-hours: how people write them, and what is left of a budget."""

import re
from dataclasses import dataclass, field
from math import inf

from dask_hpc.model.errors import InputError, insist, is_number, shown

_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*node[- ](minute|hour|day)s?", re.ASCII)
_SECONDS = {"minute": 60.0, "hour": 3600.0, "day": 86_400.0}


@dataclass(frozen=True, slots=True)
class AskSettings:
    """How units are asked for, where a cluster asks for what fits."""

    #: node-seconds
    budget: float = inf
    #: qualities of service, and partitions, that may be asked for, the dearest to the user first
    qos: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    #: seconds of a unit in which nothing is done: its workers start, and hand over in the end
    overhead: float = 60.0
    #: no walltime is shorter
    least: float = 600.0
    #: a waiting unit is taken back if others are done sooner by this share, and by so many seconds
    margin: float = 0.25
    gain: float = 120.0
    #: seconds between two looks of the batch system at its queue
    latency: float = 30.0


def parse_node_hours(value: object, where: str = "") -> float:
    """Node-seconds from ``"500 node-hours"``, ``"20 node-days"`` or infinity from None."""
    if value is None:
        return inf
    if isinstance(value, str) and (match := _AMOUNT.fullmatch(value.strip().lower())):
        return float(match[1]) * _SECONDS[match[2]]
    raise InputError(where, f"found {shown(value)}", 'an amount such as "500 node-hours", or null')


def show_node_hours(node_seconds: float) -> str:
    """For a person: "12.5 node-hours"."""
    return "no limit" if node_seconds == inf else f"{node_seconds / 3600:.3g} node-hours"


@dataclass(slots=True)
class SpentBudget:
    """What units have used of a budget, and what those that are there or asked for may still use."""

    total: float = inf
    #: node-seconds of a second of each unit: 1 for a whole node
    share: float = 1.0
    #: by unit: its walltime, and how long it has run, as far as that is known
    _units: dict[str, tuple[float, float]] = field(default_factory=dict)
    _gone: float = 0.0

    def __post_init__(self) -> None:
        insist(is_number(self.share, 0, 1), "share of a node", self.share, "0 to 1")

    def seen(self, unit: str, walltime: float, ran: float) -> None:
        """A unit is there, or asked for."""
        before = self._units.get(unit, (walltime, 0.0))
        self._units[unit] = (before[0], max(before[1], ran))

    def only(self, units: set[str]) -> None:
        """All others are gone: they have used what they ran."""
        for unit in self._units.keys() - units:
            self._gone += self._units.pop(unit)[1]

    @property
    def used(self) -> float:
        """Node-seconds of those that ran."""
        return self.share * (self._gone + sum(ran for _, ran in self._units.values()))

    @property
    def left(self) -> float:
        """Node-seconds that nobody has used, and nobody who is there or asked for could use."""
        promised = sum(max(walltime, ran) for walltime, ran in self._units.values())
        return self.total - self.share * (self._gone + promised)
