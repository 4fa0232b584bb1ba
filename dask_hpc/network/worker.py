"""A worker's half: its heartbeats say how much it has fetched from which others."""

from collections import Counter
from typing import Any

from distributed import WorkerPlugin

from dask_hpc import dask as compat

#: what it is called in heartbeats
METRIC = "dask-hpc-received"
_MOST = 256  # others in one heartbeat: those that most came from


class ReceivedPlugin(WorkerPlugin):
    """Tells of all results that came from each other worker, in bytes, since it was told to."""

    name = METRIC

    def setup(self, worker: Any) -> None:
        """From now on."""
        self._log = compat.ReceivedLog(worker)
        self._total: Counter[str] = Counter()
        self._metric = worker.metrics[METRIC] = self._tell

    def teardown(self, worker: Any) -> None:
        """It does no more, unless another one has taken its place."""
        if worker.metrics.get(METRIC) is self._metric:
            del worker.metrics[METRIC]

    def _tell(self, worker: Any) -> dict[str, int]:
        self._total.update(self._log.read())
        return dict(self._total.most_common(_MOST))
