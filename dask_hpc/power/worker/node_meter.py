"""The power of one node, from the best that its sensors say.

1. A sensor of the whole node (psys, an ACPI meter, IPMI) is *measured*, unless it contradicts the parts.
2. Processors, memory and GPUs that have counters are a part of the node: *estimated*, the rest by the model.
3. Otherwise *modelled*, from how busy the processors are.

A part that is not known now (a counter that may have wrapped more than once, a zone that has just gone) is
never taken for little power: then the node is modelled, and says why.
"""

import os
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt

from dask_hpc.model.power import Reading, Source
from dask_hpc.power.model import PowerModel, calibrate
from dask_hpc.power.worker.meters import Hwmon, Ipmi, Nvml, Rapl
from dask_hpc.power.worker.sensors import Busy, Processors, SensorKind, SensorRow

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
    """One reading, and how it came to be."""

    reading: Reading
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

    def __init__(self, node: str, model: PowerModel, meters: Sequence[SensorKind]) -> None:
        self.node = node
        self.model = model
        self.meters = list(meters)
        self._idle: dict[Source, float] = {}

    def read(self, now: float, use: float) -> NodePower:
        """The node's power now; ``use`` (0 to 1) is how busy its processors were since the last time."""
        rows = tuple(row for meter in self.meters for row in self._sense(meter, now, use))
        watts, uncertainty, source, used = self._best(rows, use)
        if source == "modelled" or use >= _IDLE_USE:
            idle = min(self._idle.get(source, self.model.idle), watts)
        else:
            known = self._idle.get(source, watts)
            idle = self._idle[source] = known + _LEARN * (watts - known)
        names = tuple(f"{row.meter} {row.sensor}".strip() for row in used)
        reading = Reading(self.node, now, watts, uncertainty, source)
        return NodePower(reading, idle, names, self._problem(source, rows, used), rows)

    def close(self) -> None:
        """Let go of what the meters hold."""
        for meter in self.meters:
            meter.close()

    def _sense(self, meter: SensorKind, now: float, use: float) -> Sequence[SensorRow]:
        try:
            return meter.sense(now, use)
        except Exception as error:  # the rule says it never raises; then its author erred, not the user
            name = type(meter).__name__.lower()
            return [SensorRow(name, "", "other", problem=f"{type(error).__name__}: {error}")]

    def _best(self, rows: Sequence[SensorRow], use: float) -> tuple[float, float, Source, list[SensorRow]]:
        parts = [row for row in rows if row.covers in ("processor", "memory", "gpu") and not row.within]
        known = [row for row in parts if row.watts is not None]
        sums = {kind: _known(row for row in parts if row.covers == kind) for kind in ("processor", "memory")}
        at_least = sum(row.watts or 0.0 for row in known)
        for row in rows:
            if row.covers == "node" and row.watts and row.watts >= _BELIEVED * at_least:
                return row.watts, row.uncertainty, "measured", [row]
        gpus = [row for row in known if row.covers == "gpu"]
        gpu_watts = sum(row.watts or 0.0 for row in gpus)
        if sums["processor"] is None:
            watts, doubt = self.model.watts(use), self.model.uncertainty(use)
            total = sqrt(doubt**2 + sum(row.uncertainty**2 for row in gpus))
            return watts + gpu_watts, total, "estimated" if gpus else "modelled", gpus
        rest = _REST + (_MEMORY if sums["memory"] is None else 0.0)
        used = [row for row in known if row.covers != "memory" or sums["memory"] is not None]
        guess = rest * self.model.busy
        total = sqrt((_REST_DOUBT * guess) ** 2 + sum(row.uncertainty**2 for row in used))
        return sum(row.watts or 0.0 for row in used) + guess, total, "estimated", used

    def _problem(self, source: Source, rows: Sequence[SensorRow], used: Sequence[SensorRow]) -> str:
        if source == "measured":
            return ""
        at_least = sum(row.watts or 0.0 for row in used)
        found = []
        for row in rows:
            if row.watts is None and row.covers != "other":
                found.append(f"{row.meter}: {row.problem}")
            elif row.watts is not None and row.covers == "node":
                alone = f"its parts alone use {at_least:.0f} W"
                found.append(f"{row.meter}: {row.sensor} says {row.watts:.0f} W for the node, {alone}")
        return "; ".join(dict.fromkeys(found))


def _known(rows: Iterable[SensorRow]) -> float | None:
    """The sum of what sensors say; None if there is none, or if one of them is not known."""
    total: float | None = None
    for row in rows:
        if row.watts is None:
            return None
        total = (total or 0.0) + row.watts
    return total


class ThisNode:
    """``measured`` are pairs of use (0 to 1) and watts that calibrate the model; ``root`` is where the file
    tree of the sensors begins. Without ``sensors`` there is only the model.
    """

    def __init__(
        self, root: str = "/", measured: Sequence[tuple[float, float]] = (), sensors: bool = True
    ) -> None:
        processors = os.cpu_count() or 1
        model = calibrate(measured, processors) if measured else PowerModel.default(processors)
        meters: list[SensorKind] = [Rapl(root), Hwmon(root), Ipmi(root), Nvml(root)] if sensors else []
        self.meter = NodeMeter(socket.gethostname(), model, meters)
        self._processors = Processors()

    def sample(self, now: float) -> tuple[Busy, NodePower]:
        """Its power now, and how busy it was since the last time. May take seconds where IPMI is asked."""
        busy = self._processors.look(now)
        return busy, self.meter.read(now, busy.use)

    def close(self) -> None:
        """Let go of what the meters hold."""
        self.meter.close()
