"""Power of NVIDIA's GPUs through NVML, where its library and a driver are there."""

from importlib import import_module
from typing import Any

from dask_hpc.power.energy_counter import EnergyCounter
from dask_hpc.power.sensed import Sensed

_DOUBT = 0.05  # of the watts; NVIDIA says so of its boards
_BOUND = 3000.0  # watts that a board cannot exceed
_AGAIN = 300.0  # seconds until the next try where there is none


class Nvml:
    """All GPUs. ``library`` is what to import; ``root`` is not used, a driver has no file tree."""

    def __init__(self, root: str = "/", library: str = "pynvml") -> None:
        self._library = library
        self._nvml: Any = None
        self._gpus: list[_Gpu] = []
        self._next = float("-inf")
        self._nothing: list[Sensed] = []

    def sense(self, now: float, use: float) -> list[Sensed]:
        """All of them now."""
        if self._nvml is None:
            if now < self._next:
                return self._nothing
            problem, fix = self._open()
            if problem:
                self._next = now + _AGAIN
                self._nothing = [Sensed("nvml", "", "gpu", problem=problem, fix=fix)]
                return self._nothing
        return [gpu.sense(self._nvml, now) for gpu in self._gpus]

    def close(self) -> None:
        """Let go of the driver."""
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
        try:
            handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        except nvml.NVMLError as error:
            nvml.nvmlShutdown()
            return str(error), ""
        if not handles:
            nvml.nvmlShutdown()
            return "no GPU", ""
        self._nvml = nvml
        self._gpus = [_Gpu(index, handle) for index, handle in enumerate(handles)]
        return "", ""


class _Gpu:
    def __init__(self, index: int, handle: Any) -> None:
        self._row = Sensed("nvml", f"gpu-{index}", "gpu")
        self._handle = handle
        self._energy: EnergyCounter | None = EnergyCounter(None, _BOUND)

    def sense(self, nvml: Any, now: float) -> Sensed:
        try:
            watts = self._mean(nvml, now)
            if watts is None:
                watts = nvml.nvmlDeviceGetPowerUsage(self._handle) / 1e3
        except nvml.NVMLError as error:
            return self._row._replace(problem=str(error))
        return self._row._replace(watts=watts, uncertainty=_DOUBT * watts)

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
