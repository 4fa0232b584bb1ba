"""All meters that we know, put together for the machine that this runs on."""

import os
import socket
from collections.abc import Sequence

from dask_hpc.power.hwmon import Hwmon
from dask_hpc.power.ipmi import Ipmi
from dask_hpc.power.model import PowerModel, calibrate
from dask_hpc.power.node_meter import NodeMeter, NodePower
from dask_hpc.power.nvml import Nvml
from dask_hpc.power.processors import Busy, Processors
from dask_hpc.power.rapl import Rapl
from dask_hpc.power.sensed import Meter


class ThisNode:
    """``measured`` are pairs of use (0 to 1) and watts that calibrate the model; ``root`` is where the file
    tree of the sensors begins. Without ``sensors`` there is only the model.
    """

    def __init__(
        self, root: str = "/", measured: Sequence[tuple[float, float]] = (), sensors: bool = True
    ) -> None:
        processors = os.cpu_count() or 1
        model = calibrate(measured, processors) if measured else PowerModel.default(processors)
        meters: list[Meter] = [Rapl(root), Hwmon(root), Ipmi(root), Nvml(root)] if sensors else []
        self.meter = NodeMeter(socket.gethostname(), model, meters)
        self._processors = Processors()

    def sample(self, now: float) -> tuple[Busy, NodePower]:
        """Its power now, and how busy it was since the last time. May take seconds where IPMI is asked."""
        busy = self._processors.look(now)
        return busy, self.meter.read(now, busy.use)

    def close(self) -> None:
        """Let go of what the meters hold."""
        self.meter.close()
