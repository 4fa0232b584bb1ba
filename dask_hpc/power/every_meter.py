"""All meters that we know, put together for one machine."""

import os
import socket
from collections.abc import Sequence

from dask_hpc.power.hwmon import Hwmon
from dask_hpc.power.ipmi import Ipmi
from dask_hpc.power.model import PowerModel, calibrate
from dask_hpc.power.node_meter import NodeMeter
from dask_hpc.power.nvml import Nvml
from dask_hpc.power.rapl import Rapl


def this_node(root: str = "/", measured: Sequence[tuple[float, float]] = ()) -> NodeMeter:
    """The meter of the machine that this runs on, or of another one's file tree. ``measured`` are pairs of
    use (0 to 1) and watts that calibrate the model."""
    processors = os.cpu_count() or 1
    model = calibrate(measured, processors) if measured else PowerModel.default(processors)
    return NodeMeter(socket.gethostname(), model, [Rapl(root), Hwmon(root), Ipmi(root), Nvml(root)])
