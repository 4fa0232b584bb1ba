"""Prometheus metrics ``dask_hpc_*`` on the scheduler's ``/metrics``, read when somebody scrapes.

``/metrics`` shows what all of a process's schedulers registered, hence one collector for all managed
clusters of this process, and a label that tells them apart. Without prometheus_client there is none. What is
protected on a cluster that is not managed is in the checkpoint service's own status only.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import dask

if TYPE_CHECKING:
    from dask_hpc.cluster.scheduler.plugin import HpcPlugin

logger = logging.getLogger(__name__)

_STATES = ("on", "paused", "off")
_JOB_STATES = ("waiting", "running", "done")


class _Collector:
    """What prometheus_client asks for the metrics of all managed clusters here."""

    def __init__(self) -> None:
        self.plugins: dict[HpcPlugin, None] = {}

    def collect(self) -> Iterator[Any]:
        """One family after the other, each with the samples of all clusters."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        namespace = dask.config.get("distributed.dashboard.prometheus.namespace", default="dask")
        prefix = f"{namespace}_hpc_" if namespace else "hpc_"
        clusters = []
        for plugin in self.plugins:
            try:
                clusters.append((plugin.scheduler.address, _read(plugin)))
            except Exception:  # Dask's own metrics are to be shown in any case
                logger.exception("dask-hpc: no metrics of %s", plugin.scheduler.address)
        for name, (is_counter, text, *labels) in _FAMILIES.items():
            kind = CounterMetricFamily if is_counter else GaugeMetricFamily
            family = kind(prefix + name, text, labels=["scheduler", *labels])
            for address, found in clusters:
                for values, amount in found.get(name, {}).items():
                    family.add_metric([address, *_parts(values)], amount)
            yield family


#: name -> whether it only grows, what it is, by what samples are told apart
_FAMILIES: dict[str, tuple[Any, ...]] = {
    "state": (False, "1 for the state control is in", "state"),
    "jobs": (False, "Jobs by state; of those that are done only the remembered ones", "state"),
    "nodes": (False, "Nodes by state; a node on hold is held, whoever it is allotted to", "state"),
    "decisions": (True, "Decisions and events told in the story", "kind"),
    "resizes": (True, "Running jobs that became larger or smaller", "direction"),
    "results_lost": (True, "Results that left with the only worker that had them"),
    "errors": (True, "Errors in our own code or in a policy"),
    "policy_cycle_seconds": (False, "How long the last decision took"),
    "io_limit": (False, "Most reads at once of a file system, where there is a limit", "file_system"),
    "io_in_flight": (False, "Reads in flight by file system", "file_system"),
    "io_waiting": (False, "Reads that wait by file system", "file_system"),
    "io_reads": (True, "Reads that have ended, by file system, since it was first read from", "file_system"),
    "io_reads_per_second": (False, "Reads per second by file system, as last measured", "file_system"),
    "power_watts": (False, "Power of all nodes now, by how it is known", "source"),
    "power_uncertainty_watts": (False, "Half-width of the 95 % interval of that power"),
    "power_lower_watts": (False, "Where the power corridor begins"),
    "power_upper_watts": (False, "Where the power corridor ends, if it does"),
    "power_forecast_watts": (False, "The least and the most power that is forecast", "bound"),
    "power_outside_seconds": (True, "How long power was outside its corridor"),
    "power_outside_joules": (True, "Energy above or below the power corridor"),
    "power_violations": (True, "Times that power stayed outside its corridor"),
    "power_held_nodes": (False, "Nodes that start no work for the sake of power"),
    "power_job_watts": (False, "Power of running jobs by name, the largest ones; the others together", "job"),
    "pipeline_iterations": (True, "Iterations that a pipeline has done", "pipeline"),
    "pipeline_iteration_seconds": (False, "Seconds of its last iteration", "pipeline", "is"),
    "pipeline_part_seconds": (False, "Seconds of each part of its last iteration", "pipeline", "part", "is"),
    "pipeline_nodes": (False, "Nodes that simulate or stage", "pipeline", "part"),
    "pipeline_helper_cores": (False, "Cores of each simulation node that analyse", "pipeline"),
    "pipeline_analyses": (False, "Analyses by where they run", "pipeline", "part"),
    "pipeline_changes": (True, "Partitions that came into force", "pipeline"),
    "pipeline_skipped": (True, "Iterations that an analysis did not look at", "pipeline", "analysis"),
    "checkpoint_results": (False, "Protected results, by whether they have a copy", "state"),
    "checkpoint_exposed": (False, "Results whose copies are all on the node that has them, too"),
    "checkpoint_bytes": (False, "Bytes of protected results that have a copy"),
    "checkpoint_copies": (False, "Copies that are kept", "level"),
    "checkpoint_copy_bytes": (False, "Bytes of those copies", "level"),
    "checkpoint_commits": (True, "Commits that have ended"),
    "checkpoint_commit_seconds": (False, "How long the last commit took"),
    "checkpoint_commit_age_seconds": (False, "How long ago the last commit was"),
    "checkpoint_committed_bytes": (True, "Bytes that were to be copied: those moved, those unchanged", "is"),
    "checkpoint_failed_copies": (True, "Copies that could not be made"),
    "checkpoint_recoveries": (True, "Losses of workers after which results were loaded from copies"),
    "checkpoint_recovered": (True, "Results that were loaded from copies"),
    "checkpoint_unrecovered": (True, "Results that were lost without an intact copy"),
    "checkpoint_damaged_copies": (True, "Copies that could not be read"),
    "checkpoint_agents": (False, "Workers that keep copies for others"),
    "checkpoint_agent_bytes": (False, "Memory that agents use, and that they may use", "is"),
    "checkpoint_store_waiting_bytes": (False, "Bytes on their way to the store"),
}
#: running jobs that are told apart by name: each one is a time series
_MOST_JOBS = 50
#: file systems that are told apart
_MOST_LANES = 20
_OTHERS = "(others)"

_collector = _Collector()


def register(plugin: "HpcPlugin") -> None:
    """Show the metrics of this cluster from now on."""
    try:
        from prometheus_client import REGISTRY
    except ImportError:
        return
    if not _collector.plugins:
        REGISTRY.register(_collector)
    _collector.plugins[plugin] = None


def unregister(plugin: "HpcPlugin") -> None:
    """Show them no more. Does nothing if they are not shown."""
    if plugin in _collector.plugins:
        from prometheus_client import REGISTRY

        del _collector.plugins[plugin]
        if not _collector.plugins:
            REGISTRY.unregister(_collector)


#: by the value of each label; of a single one it may be the value itself, of none it is ""
Found = dict[str, dict[Any, float]]


def _parts(values: str | tuple[str, ...]) -> tuple[str, ...]:
    """What stands after the scheduler's address."""
    return values if isinstance(values, tuple) else (values,) if values else ()


def _read(plugin: "HpcPlugin") -> Found:
    status, counts = plugin.calls.status(), plugin.story.counts
    states = Counter(job["state"] for job in status["jobs"])
    held = {hold["worker"] for hold in status["holds"]}
    nodes = Counter(
        "held" if held.intersection(node["workers"]) else "allotted" if node["job"] else "idle"
        for node in status["nodes"]
    )
    return {
        "state": {state: float(state == status["state"]) for state in _STATES},
        "jobs": {state: states[state] for state in _JOB_STATES},
        "nodes": {state: nodes[state] for state in ("idle", "allotted", "held")},
        "decisions": dict(counts),
        "resizes": {"grow": counts["grow"], "shrink": counts["shrink"]},
        "results_lost": {"": plugin.lost},
        "errors": {"": counts["error"]},
        "policy_cycle_seconds": {"": plugin.cycle},
        **_read_lanes(status["io"]),
        **_read_power(status["power"], {job["id"]: job["name"] for job in status["jobs"]}),
        **_read_pipelines(status["pipelines"]),
        **_read_checkpoint(status["checkpoint"]),
    }


def _read_lanes(lanes: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Those with most reads: each file system is a time series."""
    shown = sorted(lanes, key=lambda lane: -lane["done"])[:_MOST_LANES]
    return {
        f"io_{name}": {lane["file_system"]: lane[key] for lane in shown if lane[key] is not None}
        for name, key in (
            ("limit", "limit"),
            ("in_flight", "in_flight"),
            ("waiting", "waiting"),
            ("reads", "done"),
            ("reads_per_second", "reads_per_second"),
        )
    }


def _read_power(power: dict[str, Any] | None, names: dict[str, str]) -> Found:
    if power is None:
        return {}
    jobs: Counter[str] = Counter()
    for job, (least, most) in power["jobs"].items():
        jobs[names.get(job, job)] += (least + most) / 2
    largest = dict(jobs.most_common(_MOST_JOBS))
    if len(jobs) > len(largest):
        largest[_OTHERS] = jobs.total() - sum(largest.values())
    return {
        "power_watts": {power["source"]: power["watts"]},
        "power_uncertainty_watts": {"": power["uncertainty"]},
        "power_lower_watts": {"": power["lower"]},
        "power_upper_watts": {} if power["upper"] is None else {"": power["upper"]},
        "power_forecast_watts": dict(zip(("least", "most"), power["forecast"] or (), strict=False)),
        "power_outside_seconds": {"": power["seconds_outside"]},
        "power_outside_joules": {"": power["joules_outside"]},
        "power_violations": {"": power["violations"]},
        "power_held_nodes": {"": power["held_nodes"]},
        "power_job_watts": largest,
    }


def _read_pipelines(pipelines: Iterable[Mapping[str, Any]]) -> Found:
    """Of two pipelines of one name, the one that was told of last."""
    found: Found = {name: {} for name in _FAMILIES if name.startswith("pipeline_")}
    for one in pipelines:
        name, partition = one["name"], one["partition"]
        found["pipeline_iterations"][name] = one["iteration"]
        found["pipeline_changes"][name] = one["changed"]
        for analysis, skipped in one["skipped"].items():
            found["pipeline_skipped"][name, analysis] = skipped["count"]
        if partition is not None:
            found["pipeline_helper_cores"][name] = partition["helper_cores"]
            found["pipeline_nodes"][name, "simulation"] = partition["nodes"]
            found["pipeline_nodes"][name, "in_transit"] = len(one["nodes"]) - partition["nodes"]
            for part in ("in_situ", "in_transit"):
                found["pipeline_analyses"][name, part] = len(partition[part])
        for last in one["history"][-1:]:
            seconds = {"measured": last["seconds"], "planned": last["expected"]}
            found["pipeline_iteration_seconds"] |= {
                (name, kind): value for kind, value in seconds.items() if value is not None
            }
            found["pipeline_part_seconds"] |= {
                (name, part, kind): value
                for kind in ("measured", "planned")
                for part, value in (last[kind] or {}).items()
            }
    return found


def _read_checkpoint(found: Mapping[str, Any] | None) -> Found:
    """Of the service that protects results, if anything was ever protected on this cluster."""
    if found is None:
        return {}
    counts, last, agents = found["counts"], found["last_commit"], found["agents"]
    keys, copied, nbytes = (
        sum(one[name] for one in found["protected"]) for name in ("keys", "copied", "nbytes")
    )
    return {
        "checkpoint_results": {"copied": copied, "not_copied": keys - copied},
        "checkpoint_exposed": {"": found["exposed"]},
        "checkpoint_bytes": {"": nbytes},
        "checkpoint_copies": {name: level["copies"] for name, level in found["levels"].items()},
        "checkpoint_copy_bytes": {name: level["nbytes"] for name, level in found["levels"].items()},
        "checkpoint_commits": {"": counts["commits"]},
        "checkpoint_commit_seconds": {} if last is None else {"": last["seconds"]},
        "checkpoint_commit_age_seconds": {} if last is None else {"": last["ago"]},
        "checkpoint_committed_bytes": {name: counts[name] for name in ("moved", "unchanged")},
        "checkpoint_failed_copies": {"": counts["failed"]},
        "checkpoint_recoveries": {"": counts["recoveries"]},
        "checkpoint_recovered": {"": counts["recovered"]},
        "checkpoint_unrecovered": {"": counts["unrecovered"]},
        "checkpoint_damaged_copies": {"": counts["damaged"]},
        "checkpoint_agents": {"": len(agents)},
        "checkpoint_agent_bytes": {name: sum(agent[name] for agent in agents) for name in ("used", "budget")},
        "checkpoint_store_waiting_bytes": {"": found["store"]["waiting"]},
    }
