"""A worker's half: its heartbeats say how long its tasks took."""

from typing import Any

from distributed import WorkerPlugin
from distributed.utils import key_split

from dask_hpc import dask as compat

#: what it is called in heartbeats
METRIC = "dask-hpc-durations"
_MOST = 100  # tasks of one heartbeat
_SHORTEST = 0.001  # seconds; what takes less says more about the machine's other processes


class DurationPlugin(WorkerPlugin):
    """Tells of the tasks that ended since the last heartbeat."""

    name = METRIC

    def setup(self, worker: Any) -> None:
        """From now on."""
        self._log = compat.DurationLog(worker)
        self._number = 0
        self._metric = worker.metrics[METRIC] = self._tell

    def teardown(self, worker: Any) -> None:
        """It does no more, unless another one has taken its place."""
        if worker.metrics.get(METRIC) is self._metric:
            del worker.metrics[METRIC]

    def _tell(self, worker: Any) -> dict[str, Any]:
        self._number += 1  # a heartbeat is looked at more than once
        seconds: dict[str, list[float]] = {}
        for key, took in self._log.read(_MOST):
            if took >= _SHORTEST:
                seconds.setdefault(key_split(key), []).append(took)
        return {"number": self._number, "seconds": seconds}
