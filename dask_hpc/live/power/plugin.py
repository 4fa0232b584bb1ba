"""The worker's half of the power meter: read this node's sensors, and tell with every heartbeat.

While there is a ``CapPlugin`` as well, the node's packages are capped to what that says, if they can be.

Travels by value, as ``worker_plugin`` does, together with the meters of ``dask_hpc.power``. What it tells is
described in ``dask_hpc.power.heartbeat``. Sampling has a thread of its own: some sensors answer late, and the
worker's event loop must not wait for them. Nothing that goes wrong here reaches the user.
"""

import os
import socket
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from time import monotonic
from typing import Any

from distributed import WorkerPlugin

from dask_hpc.live.power.cap_plugin import NAME as CAP
from dask_hpc.power.heartbeat import KEY
from dask_hpc.power.node_cap import NodeCap
from dask_hpc.power.node_meter import NodePower
from dask_hpc.power.processors import Busy
from dask_hpc.power.this_node import ThisNode

NAME = "dask-hpc-power"
_SOON = 0.1  # seconds until the first sample: counters need two looks


class PowerPlugin(WorkerPlugin):
    """Samples every ``interval`` seconds. ``measured`` calibrates the model: pairs of use (0 to 1) and watts
    of a node. ``root`` is where the file tree of the sensors begins; without ``sensors`` there is only the
    model.
    """

    name = NAME

    def __init__(
        self,
        interval: float = 1.0,
        measured: Sequence[tuple[float, float]] = (),
        sensors: bool = True,
        root: str = "/",
    ) -> None:
        self._interval = interval
        self._measured = tuple(measured)
        self._sensors = sensors
        self._root = root
        #: when the last sample was taken, and what it says
        self._latest: tuple[float, dict[str, Any]] | None = None

    async def setup(self, worker: Any) -> None:
        """Tasks of this worker start when this is over, so nothing here waits."""
        self._worker = worker
        self._host = _host()
        self._over = threading.Event()
        threading.Thread(target=self._run, name=NAME, daemon=True).start()
        # Kept: a class that came by value can come again, and then has other functions.
        self._metric = worker.metrics[KEY] = self._tell

    async def teardown(self, worker: Any) -> None:
        """The worker closes, or this plugin is removed."""
        self._over.set()  # the thread ends as soon as no sensor keeps it
        if worker.metrics.get(KEY) is self._metric:  # else another plugin has taken our place
            del worker.metrics[KEY]

    def _tell(self, worker: Any) -> dict[str, Any] | None:
        latest = self._latest
        return latest and latest[1] | {"age": max(0.0, monotonic() - latest[0])}

    # in the thread

    def _run(self) -> None:
        with (
            closing(ThisNode(self._root, self._measured, self._sensors)) as node,
            closing(NodeCap(self._root)) as cap,
        ):
            pause, sequence = min(_SOON, self._interval), 0
            with suppress(Exception):
                node.sample(monotonic())
            while not self._over.wait(pause):
                pause = self._interval
                with suppress(Exception):  # a sequence that stands still tells the scheduler
                    busy, power = node.sample(monotonic())
                    wanted = self._worker.plugins.get(CAP)
                    cap.follow(None if wanted is None else wanted.watts, power)
                    sequence += 1
                    self._latest = (power.reading.time, self._words(sequence, busy, power, cap))

    def _words(self, sequence: int, busy: Busy, power: NodePower, cap: NodeCap) -> dict[str, Any]:
        # The processor time of a process says nothing of single workers in it: they get equal parts.
        here = sum(thread.name == NAME for thread in threading.enumerate())
        return {
            "host": self._host,
            "pid": os.getpid(),
            "sequence": sequence,
            "watts": power.reading.watts,
            "uncertainty": power.reading.uncertainty,
            "source": power.reading.source,
            "idle": power.idle,
            "use": busy.use,
            "share": busy.share / max(1, here),
            "meters": list(power.used),
            "problem": " ".join(power.problem.split()),
            "cap": cap.bounds and list(cap.bounds),
            "capped": cap.watts,
        }


def _host() -> str:
    """The same for all processes of one machine, whatever name a container gives it."""
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
    return socket.gethostname()
