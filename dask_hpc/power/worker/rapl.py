"""Energy counters of processors and memory: RAPL, as Linux shows it under ``/sys/class/powercap``.

Zones are called ``intel-rapl:0`` (a package, also on AMD's processors), ``intel-rapl:0:1`` (a part of it) and
so on. A package counts its cores and what is on the chip; memory (``dram``) is beside it, though it lies
under it in the tree; ``psys`` counts the whole node, so it is not added to the packages. Laptops show a
package a second time as ``intel-rapl-mmio:0``.

Kernels since 5.10 let only root read the counters, because they tell of other people's work as well.
"""

import os
from dataclasses import dataclass

from dask_hpc.power.worker.sensors import Covers, EnergyCounter, Read, SensorRow, number, read_text, why_not

PLACE = "sys/class/powercap"
# Share of the watts, as half-width of a 95 % interval. Intel gives none; comparisons with other meters find a
# few per cent for packages and up to a fifth for memory (Desrochers and others, MEMSYS 2016).
_DOUBT: dict[Covers, float] = {"processor": 0.05, "memory": 0.2, "node": 0.05, "other": 0.2}
# Watts that a zone cannot exceed for longer than an instant, if its limits do not say more.
_BOUND: dict[Covers, float] = {"processor": 1000.0, "memory": 500.0, "node": 5000.0, "other": 1000.0}
_SLACK = 1.5  # peaks above the limit that a zone has
_LEAST_BOUND = 250.0  # watts: a small limit may be a cap that somebody set, not what the zone can do
_CONSTRAINTS = 4  # long term, short term and peaks
_SECOND = "intel-rapl-mmio:"
_RIGHTS = "as root: chmod a+r {}/*/energy_uj (a tmpfiles.d or udev rule keeps it over a boot)"


class Rapl:
    """All zones under ``root``."""

    def __init__(self, root: str = "/", read: Read = read_text) -> None:
        self._place = os.path.join(root, PLACE)
        self._read = read
        #: by name of the folder; None of those that count no energy
        self._zones: dict[str, _Zone | None] = {}
        #: by sensor: what was there once and is missed
        self._gone: dict[str, SensorRow] = {}

    def sense(self, now: float, use: float) -> list[SensorRow]:
        """All zones now."""
        try:
            names = {name for name in os.listdir(self._place) if ":" in name}
        except OSError as error:
            names = set()
            if not self._zones and not self._gone:
                return [self._nothing(why_not(error, self._place))]
        for name in self._zones.keys() - names:
            self._lose(name)
        rows = [row for name in sorted(names, key=_order) if (row := self._zone(name, now, use))]
        return rows + list(self._gone.values()) or [self._nothing(f"no zone with a counter in {self._place}")]

    def _nothing(self, problem: str) -> SensorRow:
        fix = "modprobe intel_rapl_msr (Intel, AMD); virtual machines rarely have it"
        return SensorRow("rapl", "", "processor", problem=problem, fix=fix)

    def _lose(self, name: str) -> None:
        zone = self._zones.pop(name)
        if zone is not None and not zone.within and not self._twin(zone):  # else it is not missed
            self._gone[zone.sensor] = SensorRow(
                "rapl", zone.sensor, zone.covers, problem="it has disappeared"
            )

    def _zone(self, name: str, now: float, use: float) -> SensorRow | None:
        path = os.path.join(self._place, name, "energy_uj")
        try:
            if name not in self._zones:
                self._zones[name] = zone = self._discover(name)
                self._gone.pop(zone.sensor if zone else "", None)
        except OSError:  # it has gone while we looked
            return None
        zone = self._zones[name]
        if zone is None:
            return None
        row = SensorRow("rapl", zone.sensor, zone.covers, within=zone.within or self._twin(zone))
        try:
            energy = float(self._read(path)) / 1e6
        except (OSError, ValueError) as error:
            zone.counter.lose()
            fix = _RIGHTS.format(self._place) if isinstance(error, PermissionError) else ""
            return row._replace(problem=why_not(error, path), fix=fix)
        watts, problem = zone.counter.look(now, energy, use)
        return row._replace(watts=watts, uncertainty=_DOUBT[zone.covers] * (watts or 0.0), problem=problem)

    def _discover(self, name: str) -> "_Zone | None":
        """What a zone is; None if it is no counter of energy."""
        folder = os.path.join(self._place, name)
        files = set(os.listdir(folder))
        if "energy_uj" not in files:
            return None
        label = self._read(os.path.join(folder, "name")).strip()
        span = number(self._read, os.path.join(folder, "max_energy_range_uj"))
        parent = name.rpartition(":")[0]
        is_nested = ":" in parent
        covers = _covers(label, is_nested)
        sensor, within = label, ""
        if is_nested:
            above = self._zones.get(parent)
            package = above.sensor if above else parent
            sensor = f"{package} {label}"
            within = "" if covers == "memory" else package
        elif name.startswith(_SECOND):
            sensor = f"{label} (mmio)"
        counter = EnergyCounter(span / 1e6 if span else None, self._bound(folder, files, covers))
        return _Zone(label, sensor, covers, within, counter)

    def _twin(self, zone: "_Zone") -> str:
        """The package that this zone shows a second time, if it does."""
        if zone.sensor != f"{zone.label} (mmio)":
            return ""
        return zone.label if any(one and one.sensor == zone.label for one in self._zones.values()) else ""

    def _bound(self, folder: str, files: set[str], covers: Covers) -> float:
        limits = [
            number(self._read, os.path.join(folder, f"constraint_{which}_{what}"))
            for which in range(_CONSTRAINTS)
            for what in ("power_limit_uw", "max_power_uw")
            if f"constraint_{which}_{what}" in files
        ]
        most = max((limit for limit in limits if limit), default=0.0) / 1e6
        return max(_LEAST_BOUND, _SLACK * most) if most else _BOUND[covers]


@dataclass
class _Zone:
    label: str
    sensor: str
    covers: Covers
    within: str
    counter: EnergyCounter


def _covers(label: str, is_nested: bool) -> Covers:
    if label == "psys":
        return "node"
    if label.startswith("dram"):
        return "memory"
    return "other" if is_nested else "processor"


def _order(name: str) -> tuple[bool, str, list[int]]:
    """Packages before their parts, and what is mapped into memory last."""
    kind, *numbers = name.split(":")
    return kind.endswith("mmio"), kind, [int(one) if one.isdecimal() else -1 for one in numbers]
