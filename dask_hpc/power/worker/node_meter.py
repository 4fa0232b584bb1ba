"""The power of one node, from the best that its sensors say.

1. A sensor of the whole node (psys, an ACPI meter, IPMI) is *measured*, unless it contradicts the parts.
2. Processors, memory and GPUs that have counters are a part of the node: *estimated*, the rest by the model.
3. Otherwise *modelled*, from how busy the processors are.

A part that is not known now (a counter that may have wrapped more than once, a zone that has just gone) is
never taken for little power: then the node is modelled, and says why.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import hypot

from dask_hpc.model.power import Source
from dask_hpc.power.model import PowerModel, calibrate
from dask_hpc.power.worker.meters import Hwmon, Ipmi, Nvml, Rapl
from dask_hpc.power.worker.sensors import Busy, Covers, Processors, SensorKind, SensorRow

# What a busy server's power goes into: 61 % processors, 18 % memory, the rest boards, disks, network, fans
# and losses (servers of 2017; Barroso, Hoelzle, Ranganathan: The Datacenter as a Computer, 3rd edition, 1.6).
# The shares apply to the model's busy power, and do not depend on the use: that is what is known of them.
_REST, _MEMORY = 0.21, 0.18
_REST_DOUBT = 0.5  # of those watts
_BELIEVED = 0.9  # of what its parts use; a node that says less is not believed
_IDLE_USE = 0.05  # a node that is less busy than this is idle
_LEARN = 0.1  # weight of a new reading of an idle node


@dataclass(frozen=True)
class NodePower:
    """The power of a node at one instant, and how it came to be."""

    time: float
    watts: float
    #: half-width of a 95 % interval
    uncertainty: float
    source: Source
    #: watts when nothing runs
    idle: float
    #: the sensors it comes from
    used: tuple[str, ...]
    #: why nothing better was used; empty if a sensor of the whole node was
    problem: str
    #: everything that was sensed
    rows: tuple[SensorRow, ...]


class NodeMeter:
    """All meters of one node together. Deterministic: time and use are given."""

    def __init__(self, model: PowerModel, meters: Sequence[SensorKind]) -> None:
        self.model = model
        self._meters = meters
        self._idle: dict[Source, float] = {}

    def read(self, now: float, use: float) -> NodePower:
        """The node's power now; ``use`` (0 to 1) is how busy its processors were since the last time."""
        rows: list[SensorRow] = []
        for meter in self._meters:
            try:
                rows += meter.sense(now, use)
            except Exception as error:  # the rule says it never raises; then its author erred, not the user
                problem = f"{type(error).__name__}: {error}"
                rows.append(SensorRow(type(meter).__name__.lower(), "", "other", problem=problem))
        watts, uncertainty, source, used = self._best(rows, use)
        if source == "modelled" or use >= _IDLE_USE:
            idle = min(self._idle.get(source, self.model.idle), watts)
        else:
            known = self._idle.get(source, watts)
            idle = self._idle[source] = known + _LEARN * (watts - known)
        names = tuple(f"{row.meter} {row.sensor}".strip() for row in used)
        problem = _problem(source, rows, used)
        return NodePower(now, watts, uncertainty, source, idle, names, problem, tuple(rows))

    def close(self) -> None:
        for meter in self._meters:
            meter.close()

    def _best(self, rows: Sequence[SensorRow], use: float) -> tuple[float, float, Source, list[SensorRow]]:
        parts = [row for row in rows if row.covers in ("processor", "memory", "gpu") and not row.within]
        known = [row for row in parts if row.watts is not None]
        at_least = _sum(known)
        for row in rows:
            if row.covers == "node" and row.watts and row.watts >= _BELIEVED * at_least:
                return row.watts, row.uncertainty, "measured", [row]

        def counts(kind: Covers) -> bool:
            """Whether there are sensors of that kind, and all of them are known."""
            there = [row.watts for row in parts if row.covers == kind]
            return bool(there) and None not in there

        source: Source
        if counts("processor"):
            has_memory = counts("memory")
            used = [row for row in known if row.covers != "memory" or has_memory]
            guess = (_REST if has_memory else _REST + _MEMORY) * self.model.busy
            doubt, source = _REST_DOUBT * guess, "estimated"
        else:
            used = [row for row in known if row.covers == "gpu"]
            guess, doubt = self.model.watts(use), self.model.uncertainty(use)
            source = "estimated" if used else "modelled"
        return _sum(used) + guess, hypot(doubt, *(row.uncertainty for row in used)), source, used


def _sum(rows: Iterable[SensorRow]) -> float:
    return sum(row.watts or 0.0 for row in rows)


def _problem(source: Source, rows: Sequence[SensorRow], used: Sequence[SensorRow]) -> str:
    if source == "measured":
        return ""
    found = []
    for row in rows:
        if row.watts is None and row.covers != "other":
            found.append(f"{row.meter}: {row.problem}")
        elif row.watts is not None and row.covers == "node":
            alone = f"its parts alone use {_sum(used):.0f} W"
            found.append(f"{row.meter}: {row.sensor} says {row.watts:.0f} W for the node, {alone}")
    return "; ".join(dict.fromkeys(found))


class ThisNode(NodeMeter):
    """``measured`` are pairs of use (0 to 1) and watts that calibrate the model; ``root`` is where the file
    tree of the sensors begins. Without ``sensors`` there is only the model.
    """

    def __init__(
        self, root: str = "/", measured: Sequence[tuple[float, float]] = (), sensors: bool = True
    ) -> None:
        processors = os.cpu_count() or 1
        model = calibrate(measured, processors) if measured else PowerModel.default(processors)
        super().__init__(model, [Rapl(root), Hwmon(root), Ipmi(root), Nvml(root)] if sensors else [])
        self._processors = Processors()

    def sample(self, now: float) -> tuple[Busy, NodePower]:
        """Its power now, and how busy it was since the last time. May take seconds where IPMI is asked."""
        busy = self._processors.look(now)
        return busy, self.read(now, busy.use)
