"""Power as it is now, as plain data: of the machine, of every node and of every job."""

from dataclasses import asdict
from math import inf
from typing import TYPE_CHECKING, Any

from dask_hpc.model.power import PowerRange

if TYPE_CHECKING:
    from dask_hpc.live.control import ControlLoop


def power_of(control: "ControlLoop") -> dict[str, Any]:
    """All that is known of power now; by the model alone while nobody watches. Watts throughout; what has no
    bound is None."""
    watch, indices = control.power, control.indices
    control.look_at_the_clock()
    watch.refresh()
    view = watch.view() if indices.power is None else indices.power
    corridor = watch.corridor
    lower, upper = (0.0, inf) if corridor is None else corridor.at(indices.now)
    source = watch.source
    return {
        "time": indices.now,
        "is_watched": watch.sight is not None,
        "meter": watch.meter_name,
        "watts": view.watts,
        "uncertainty": view.uncertainty,
        "source": view.source,
        "doubt": view.doubt,
        "corridor": {
            "lower": lower,
            "upper": None if upper == inf else upper,
            "is_kept": lower <= view.watts <= upper,
            "steps": None if corridor is None else corridor.written(),
            "follow": "" if source is None else source.follow,
            "problem": "" if source is None else source.problem,
        },
        "verdict": None if control.verdict is None else _verdict(control),
        "forecast": None if view.forecast is None else list(view.forecast),
        "idle_node": view.idle,
        "busy_node": list(view.active),
        "nodes": _nodes(control),
        "jobs": [_job(control, job_id, per_node) for job_id, per_node in view.jobs.items()],
        "outside": {
            "working": view.outside_nodes,
            "wanted": view.outside_wanted,
            "per_node": list(view.outside),
        },
        "levers": sorted(view.levers),
        "held": view.held,
        "threads": view.threads,
        "cap": view.cap,
        "released": view.released,
    }


def _verdict(control: "ControlLoop") -> dict[str, Any]:
    verdict = control.verdict
    assert verdict is not None
    found = {key: None if value == inf else value for key, value in asdict(verdict).items()}
    return found | {"expected": list(verdict.expected), "text": str(verdict)}


def _nodes(control: "ControlLoop") -> list[dict[str, Any]]:
    holders = {name: job_id for job_id, running in control.indices.running.items() for name in running.nodes}
    return [
        {
            "name": name,
            "watts": reading.watts,
            "uncertainty": reading.uncertainty,
            "source": reading.source,
            "doubt": reading.doubt,
            "job": holders.get(name),
        }
        for name, reading in control.power.readings().items()
    ]


def _job(control: "ControlLoop", job_id: str, per_node: PowerRange) -> dict[str, Any]:
    job = control.jobs[job_id]
    nodes = len(job.nodes) if job.state == "running" else 0
    return {
        "id": job_id,
        "name": job.name,
        "nodes": nodes,
        "per_node": list(per_node),
        "watts": list(per_node.times(nodes)),
    }
