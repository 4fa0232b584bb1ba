"""Prometheus metrics ``dask_hpc_*`` on the scheduler's ``/metrics``, read when somebody scrapes.

``/metrics`` shows what all of a process's schedulers registered, hence one collector for all managed
clusters of this process, and a label that tells them apart. Without prometheus_client there is none. Metrics
of services are theirs.
"""

import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any

import dask

from dask_hpc.cluster.scheduler.figures import Figures
from dask_hpc.cluster.scheduler.loop import ControlLoop
from dask_hpc.cluster.scheduler.service import Context, Samples
from dask_hpc.cluster.scheduler.status import Status

logger = logging.getLogger(__name__)

_STATES = ("on", "paused", "off")
_JOB_STATES = ("waiting", "running", "done", "failed", "cancelled")
#: name -> whether it only grows, what it is, by what samples are told apart
_OURS: dict[str, tuple[Any, ...]] = {
    "state": (False, "1 for the state control is in", "state"),
    "jobs": (False, "Jobs by state; of those that are over only the remembered ones", "state"),
    "nodes": (False, "Nodes by state; a node on hold is held, whoever it is allotted to", "state"),
    "decisions": (True, "Decisions and events told in the story", "kind"),
    "resizes": (True, "Running jobs that became larger or smaller", "direction"),
    "results_lost": (True, "Results that left with the only worker that had them"),
    "errors": (True, "Errors in our own code or in a policy"),
    "policy_cycle_seconds": (False, "How long the last decision took"),
    "jobs_ended": (True, "Jobs that ran and ended, failed or not, and those that were cancelled", "how"),
    "node_seconds": (True, "Node-seconds since the first job came", "of"),
    "utilisation": (False, "Node-seconds jobs held over those there were, since the first job came"),
    "wait_seconds": (False, "From submission to first start, of jobs that have ended", "of"),
    "response_seconds": (False, "From submission to end, of jobs that have ended", "of"),
    "bounded_slowdown": (False, "Mean response over runtime, runtimes below 10 s counted as 10 s"),
    "adaptation_seconds": (False, "What changes of size of running jobs take", "direction", "phase", "of"),
}


class Metrics:
    """The metrics of one managed cluster."""

    def __init__(self, context: Context, status: Status) -> None:
        self.context = context
        self._status = status

    def show(self) -> None:
        """From now on."""
        try:
            from prometheus_client import REGISTRY
        except ImportError:
            return
        _collector.shown[self] = None
        if len(_collector.shown) == 1:
            REGISTRY.register(_collector)

    def hide(self) -> None:
        """No more. Does nothing if they are not shown."""
        if self in _collector.shown:
            from prometheus_client import REGISTRY

            del _collector.shown[self]
            if not _collector.shown:
                REGISTRY.unregister(_collector)

    def samples(self) -> dict[str, Samples]:
        """All of them now, by name."""
        status, counts = self._status.whole(), self.context.story.counts
        states = Counter(job["state"] for job in status["jobs"])
        held = {hold["worker"] for hold in status["holds"]}
        nodes = Counter(
            "held" if held.intersection(node["workers"]) else "allotted" if node["job"] else "idle"
            for node in status["nodes"]
        )
        found: dict[str, Samples] = {
            "state": {state: float(state == status["state"]) for state in _STATES},
            "jobs": {state: states[state] for state in _JOB_STATES},
            "nodes": {state: nodes[state] for state in ("idle", "allotted", "held")},
            "decisions": dict(counts),
            "resizes": {"grow": counts["grow"], "shrink": counts["shrink"]},
            "results_lost": {"": self._status.lost},
            "errors": {"": counts["error"]},
            "policy_cycle_seconds": {"": self.context.get(ControlLoop).cycle},
            **self.context.get(Figures).samples(),
        }
        for service in self.context.services:
            found |= service.samples(status)
        return found


class _Collector:
    """What prometheus_client asks for the metrics of all managed clusters here."""

    def __init__(self) -> None:
        self.shown: dict[Metrics, None] = {}

    def collect(self) -> Iterator[Any]:
        """One family after the other, each with the samples of all clusters."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        namespace = dask.config.get("distributed.dashboard.prometheus.namespace", default="dask")
        prefix = f"{namespace}_hpc_" if namespace else "hpc_"
        clusters: list[tuple[str, dict[str, Samples]]] = []
        families = dict(_OURS)  # as in ``Service.metrics``
        for metrics in self.shown:
            for service in metrics.context.services:
                families |= service.metrics
            address = metrics.context.scheduler.address
            try:
                clusters.append((address, metrics.samples()))
            except Exception:  # Dask's own metrics are to be shown in any case
                logger.exception("dask-hpc: no metrics of %s", address)
        for name, (is_counter, text, *labels) in families.items():
            kind = CounterMetricFamily if is_counter else GaugeMetricFamily
            family = kind(prefix + name, text, labels=["scheduler", *labels])
            for address, found in clusters:
                for values, amount in found.get(name, {}).items():
                    words = values if isinstance(values, tuple) else (values,) if values else ()
                    family.add_metric([address, *words], amount)
            yield family


_collector = _Collector()
