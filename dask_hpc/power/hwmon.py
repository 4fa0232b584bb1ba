"""Sensors of power that Linux shows under ``/sys/class/hwmon``; the ACPI power meter is the whole node's."""

import os

from dask_hpc.power.files import Read, read_text, why_not
from dask_hpc.power.sensed import Covers, Sensed

PLACE = "sys/class/hwmon"
_DOUBT = 0.05  # of the watts, where a sensor does not say how accurate it is
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


class Hwmon:
    """All power sensors under ``root``."""

    def __init__(self, root: str = "/", read: Read = read_text) -> None:
        self._place = os.path.join(root, PLACE)
        self._read = read

    def sense(self, now: float, use: float) -> list[Sensed]:
        """All of them now. Slow where the firmware has to be asked."""
        try:
            names = sorted(os.listdir(self._place))
        except OSError as error:
            return [self._nothing(why_not(error, self._place))]
        rows = [row for name in names for row in self._device(os.path.join(self._place, name))]
        return rows or [self._nothing(f"no sensor of power in {self._place}")]

    def _nothing(self, problem: str) -> Sensed:
        fix = "modprobe acpi_power_meter, if the firmware has one"
        return Sensed("hwmon", "", "node", problem=problem, fix=fix)

    def _device(self, folder: str) -> list[Sensed]:
        try:
            files = set(os.listdir(folder))
            if not any(file.startswith("power") for file in files):
                return []
            driver = self._read(os.path.join(folder, "name")).strip()
        except OSError:  # it has gone while we looked
            return []
        found = []
        for channel in range(1, _CHANNELS):
            for kind in ("input", "average"):  # what is now, or what was on average
                if f"power{channel}_{kind}" in files:
                    found.append(self._sensor(folder, driver, channel, kind))
                    break
        return found

    def _sensor(self, folder: str, driver: str, channel: int, kind: str) -> Sensed:
        path = os.path.join(folder, f"power{channel}")
        try:
            label = self._read(f"{path}_label").strip()
        except OSError:
            label = f"power{channel}"
        covers = _COVERS.get(driver, "other")
        if driver in _TOTAL and label != _TOTAL[driver]:
            covers = "other"
        row = Sensed("hwmon", f"{driver} {label}", covers)
        try:
            watts = float(self._read(f"{path}_{kind}")) / 1e6
        except (OSError, ValueError) as error:
            fix = "as root: chmod a+r that file" if isinstance(error, PermissionError) else ""
            return row._replace(problem=why_not(error, f"{path}_{kind}"), fix=fix)
        if not 0 < watts < 1e6:
            return row._replace(problem=f"it says {watts:g} W, which cannot be")
        return row._replace(watts=watts, uncertainty=watts * self._accuracy(path))

    def _accuracy(self, path: str) -> float:
        try:
            return float(self._read(f"{path}_accuracy").strip().rstrip("%")) / 100
        except (OSError, ValueError):
            return _DOUBT
