"""The sensors of power that a node may have: RAPL, hwmon, IPMI and NVML."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from dask_hpc.power.worker.sensors import (
    Covers,
    EnergyCounter,
    OneProcess,
    SensorKind,
    SensorRow,
    number,
    read_text,
    why_not,
)

POWERCAP = "sys/class/powercap"
# Share of the watts, as half-width of a 95 % interval. Intel gives none; comparisons with other meters find a
# few per cent for packages and up to a fifth for memory (Desrochers and others, MEMSYS 2016).
_RAPL_DOUBT: dict[Covers, float] = {"processor": 0.05, "memory": 0.2, "node": 0.05, "other": 0.2}
# Watts that a zone cannot exceed for longer than an instant, if its limits do not say more.
_RAPL_BOUND: dict[Covers, float] = {"processor": 1000.0, "memory": 500.0, "node": 5000.0, "other": 1000.0}
_SLACK = 1.5  # peaks above the limit that a zone has
_LEAST_BOUND = 250.0  # watts: a small limit may be a cap that somebody set, not what the zone can do
_CONSTRAINTS = 4  # long term, short term and peaks
_SECOND = "intel-rapl-mmio:"
_RIGHTS = "as root: chmod a+r {}/*/energy_uj (a tmpfiles.d or udev rule keeps it over a boot)"


class Rapl(SensorKind):
    """Energy counters of processors and memory, as Linux shows them under ``/sys/class/powercap``.

    Zones are called ``intel-rapl:0`` (a package, also on AMD's processors), ``intel-rapl:0:1`` (a part of it)
    and so on. A package counts its cores and what is on the chip; memory (``dram``) is beside it, though it
    lies under it in the tree; ``psys`` counts the whole node, so it is not added to the packages. Laptops
    show a package a second time as ``intel-rapl-mmio:0``. Kernels since 5.10 let only root read the counters,
    because they tell of other people's work as well.
    """

    def __init__(self, root: str = "/") -> None:
        self._place = os.path.join(root, POWERCAP)
        #: by name of the folder; None of those that count no energy
        self._zones: dict[str, _Zone | None] = {}
        #: by sensor: what was there once and is missed
        self._gone: dict[str, SensorRow] = {}

    def sense(self, now: float, use: float) -> list[SensorRow]:
        try:
            names = {name for name in os.listdir(self._place) if ":" in name}
        except OSError as error:
            names = set()
            if not self._zones and not self._gone:
                return [self._nothing(why_not(error, self._place))]
        for name in self._zones.keys() - names:
            zone = self._zones.pop(name)
            if zone is not None and not zone.within and not self._twin(zone):  # else it is not missed
                gone = SensorRow("rapl", zone.sensor, zone.covers, problem="it has disappeared")
                self._gone[zone.sensor] = gone
        rows = [row for name in sorted(names, key=_order) if (row := self._zone(name, now, use))]
        return rows + list(self._gone.values()) or [self._nothing(f"no zone with a counter in {self._place}")]

    def _nothing(self, problem: str) -> SensorRow:
        fix = "modprobe intel_rapl_msr (Intel, AMD); virtual machines rarely have it"
        return SensorRow("rapl", "", "processor", problem=problem, fix=fix)

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
            energy = float(read_text(path)) / 1e6
        except (OSError, ValueError) as error:
            zone.counter.lose()
            fix = _RIGHTS.format(self._place) if isinstance(error, PermissionError) else ""
            return row._replace(problem=why_not(error, path), fix=fix)
        watts, problem = zone.counter.look(now, energy, use)
        return row._replace(
            watts=watts, uncertainty=_RAPL_DOUBT[zone.covers] * (watts or 0.0), problem=problem
        )

    def _discover(self, name: str) -> "_Zone | None":
        """What a zone is; None if it is no counter of energy."""
        folder = os.path.join(self._place, name)
        files = set(os.listdir(folder))
        if "energy_uj" not in files:
            return None
        label = read_text(os.path.join(folder, "name")).strip()
        span = number(os.path.join(folder, "max_energy_range_uj"))
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
            number(os.path.join(folder, f"constraint_{which}_{what}"))
            for which in range(_CONSTRAINTS)
            for what in ("power_limit_uw", "max_power_uw")
            if f"constraint_{which}_{what}" in files
        ]
        most = max((limit for limit in limits if limit), default=0.0) / 1e6
        return max(_LEAST_BOUND, _SLACK * most) if most else _RAPL_BOUND[covers]


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


HWMON = "sys/class/hwmon"
_HWMON_DOUBT = 0.05  # of the watts, where a sensor does not say how accurate it is
_CHANNELS = 32
#: what the sensors of these drivers speak of; nobody knows it of all others, so those are shown and not used
_COVERS: dict[str, Covers] = {
    "power_meter": "node",  # acpi_power_meter
    "corsairpsu": "node",  # a power supply, its channel for all outputs
    "amdgpu": "gpu",
    "radeon": "gpu",
    "nouveau": "gpu",
    "fam15h_power": "processor",
}
#: of drivers that show several, the one that is the sum of the others
_TOTAL = {"corsairpsu": "power total"}


class Hwmon(SensorKind):
    """All power sensors that Linux shows under ``/sys/class/hwmon``; ACPI's is the whole node's."""

    def __init__(self, root: str = "/") -> None:
        self._place = os.path.join(root, HWMON)

    def sense(self, now: float, use: float) -> list[SensorRow]:
        """All of them now. Slow where the firmware has to be asked."""
        try:
            names = sorted(os.listdir(self._place))
        except OSError as error:
            return [self._nothing(why_not(error, self._place))]
        rows = [row for name in names for row in self._device(os.path.join(self._place, name))]
        return rows or [self._nothing(f"no sensor of power in {self._place}")]

    def _nothing(self, problem: str) -> SensorRow:
        fix = "modprobe acpi_power_meter, if the firmware has one"
        return SensorRow("hwmon", "", "node", problem=problem, fix=fix)

    def _device(self, folder: str) -> list[SensorRow]:
        try:
            files = set(os.listdir(folder))
            if not any(file.startswith("power") for file in files):
                return []
            driver = read_text(os.path.join(folder, "name")).strip()
        except OSError:  # it has gone while we looked
            return []
        found = []
        for channel in range(1, _CHANNELS):
            for kind in ("input", "average"):  # what is now, or what was on average
                if f"power{channel}_{kind}" in files:
                    found.append(self._sensor(folder, driver, channel, kind))
                    break
        return found

    def _sensor(self, folder: str, driver: str, channel: int, kind: str) -> SensorRow:
        path = os.path.join(folder, f"power{channel}")
        try:
            label = read_text(f"{path}_label").strip()
        except OSError:
            label = f"power{channel}"
        covers = _COVERS.get(driver, "other")
        if driver in _TOTAL and label != _TOTAL[driver]:
            covers = "other"
        row = SensorRow("hwmon", f"{driver} {label}", covers)
        try:
            watts = float(read_text(f"{path}_{kind}")) / 1e6
        except (OSError, ValueError) as error:
            fix = "as root: chmod a+r that file" if isinstance(error, PermissionError) else ""
            return row._replace(problem=why_not(error, f"{path}_{kind}"), fix=fix)
        if not 0 < watts < 1e6:
            return row._replace(problem=f"it says {watts:g} W, which cannot be")
        return row._replace(watts=watts, uncertainty=watts * self._accuracy(path))

    def _accuracy(self, path: str) -> float:
        try:
            return float(read_text(f"{path}_accuracy").strip().rstrip("%")) / 100
        except (OSError, ValueError):
            return _HWMON_DOUBT


_COMMAND = ("dcmi", "power", "reading")
_ANSWER = re.compile(r"Instantaneous power reading:\s*(\d+)\s*Watts")
_EVERY = 10.0  # seconds between questions: an answer costs a process, and the controller is slow
_IPMI_AGAIN = 300.0  # seconds until the next question after one that failed
_IPMI_DOUBT = 0.05  # of the watts
_DEVICES = ("dev/ipmi0", "dev/ipmi/0", "dev/ipmidev/0")


class Ipmi(SensorKind):
    """The node's management controller. Asks every ten seconds, and answers the same in between; blocks while
    it asks, for ``patience`` seconds at most."""

    def __init__(
        self,
        root: str = "/",
        command: str = "ipmitool",
        one: str = "dask-hpc-ipmi",
        patience: float = 5.0,
    ) -> None:
        self._patience = patience
        self._root = root
        self._command = command
        self._one = OneProcess(one)  # it is a slow controller
        self._next = float("-inf")
        self._last = SensorRow("ipmi", "", "node")

    def sense(self, now: float, use: float) -> list[SensorRow]:
        if now >= self._next:
            self._last = self._ask()
            self._next = now + (_IPMI_AGAIN if self._last.watts is None else _EVERY)
        return [self._last]

    def _ask(self) -> SensorRow:
        row = SensorRow("ipmi", "dcmi", "node")
        path = shutil.which(self._command)
        if path is None:
            return row._replace(problem=f"no command {self._command}", fix=f"install {self._command}")
        devices = [os.path.join(self._root, one) for one in _DEVICES]
        device = next(filter(os.path.exists, devices), None)
        if device is None:
            return row._replace(problem=f"no {devices[0]}", fix="modprobe ipmi_devintf ipmi_si")
        if not os.access(device, os.R_OK | os.W_OK):
            return row._replace(problem=f"permission denied: {device}", fix=f"as root: chmod a+rw {device}")
        if not self._one.take():
            return row._replace(problem="another process of this machine asks already")
        try:
            told = subprocess.run(
                [path, *_COMMAND],
                capture_output=True,
                text=True,
                timeout=self._patience,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            return row._replace(problem=f"no answer in {self._patience:g} s")
        except (OSError, subprocess.SubprocessError) as error:
            return row._replace(problem=f"{self._command}: {error}")
        found = _ANSWER.search(told.stdout)
        watts = float(found[1]) if found else 0.0
        if watts <= 0:
            words = (told.stderr or told.stdout).strip().splitlines() or ["it says nothing"]
            return row._replace(problem=f"{self._command}: {words[0]}")
        return row._replace(watts=watts, uncertainty=_IPMI_DOUBT * watts)

    def close(self) -> None:
        self._one.release()


_NVML_DOUBT = 0.05  # of the watts; NVIDIA says so of its boards
_GPU_BOUND = 3000.0  # watts that a board cannot exceed
_NVML_AGAIN = 300.0  # seconds until the next try where there is none


class Nvml(SensorKind):
    """GPUs of NVIDIA's. ``library`` is what to import; ``root`` is not used, a driver has no file tree."""

    def __init__(self, root: str = "/", library: str = "pynvml") -> None:
        self._library = library
        self._nvml: Any = None
        self._gpus: list[_Gpu] = []
        self._next = float("-inf")
        self._nothing: list[SensorRow] = []

    def sense(self, now: float, use: float) -> list[SensorRow]:
        if self._nvml is None and now >= self._next:
            problem, fix = self._open()
            self._next = now + _NVML_AGAIN
            self._nothing = [SensorRow("nvml", "", "gpu", problem=problem, fix=fix)]
        if self._nvml is None:
            return self._nothing
        return [gpu.sense(self._nvml, now) for gpu in self._gpus]

    def close(self) -> None:
        if self._nvml is not None:
            nvml, self._nvml, self._gpus = self._nvml, None, []
            nvml.nvmlShutdown()

    def _open(self) -> tuple[str, str]:
        try:
            nvml = import_module(self._library)
        except ImportError:
            return "the Python package nvidia-ml-py is not there", 'pip install "dask-hpc[power]"'
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            return f"no GPU of NVIDIA's, or no driver ({str(error).lower()})", ""
        handles, problem = [], "no GPU"
        try:
            handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        except nvml.NVMLError as error:
            problem = str(error)
        if not handles:
            nvml.nvmlShutdown()
            return problem, ""
        self._nvml = nvml
        self._gpus = [_Gpu(index, handle) for index, handle in enumerate(handles)]
        return "", ""


class _Gpu:
    def __init__(self, index: int, handle: Any) -> None:
        self._row = SensorRow("nvml", f"gpu-{index}", "gpu")
        self._handle = handle
        self._energy: EnergyCounter | None = EnergyCounter(None, _GPU_BOUND)

    def sense(self, nvml: Any, now: float) -> SensorRow:
        try:
            watts = self._mean(nvml, now)
            if watts is None:
                watts = nvml.nvmlDeviceGetPowerUsage(self._handle) / 1e3
        except nvml.NVMLError as error:
            return self._row._replace(problem=str(error))
        return self._row._replace(watts=watts, uncertainty=_NVML_DOUBT * watts)

    def _mean(self, nvml: Any, now: float) -> float | None:
        """Since the last look, from the counter of energy that newer boards have."""
        if self._energy is None:
            return None
        try:
            joules = nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle) / 1e3
        except nvml.NVMLError:
            self._energy = None  # it has none
            return None
        return self._energy.look(now, joules, 0.0).watts
