"""What a managed cluster looks like, as plain data."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

from dask_hpc.checkpoint.scheduler.rescue import status_of_checkpoint
from dask_hpc.cluster.request import read_number
from dask_hpc.cluster.scheduler.jobs import LiveJob
from dask_hpc.model.errors import InputError, is_number, shown
from dask_hpc.model.story import Happening, Story
from dask_hpc.model.units import count_nodes, show_large
from dask_hpc.power.scheduler.status import PowerTrace, Sample

if TYPE_CHECKING:
    from dask_hpc.cluster.scheduler.loop import ControlLoop
    from dask_hpc.cluster.scheduler.plugin import HpcPlugin


def told(story: Story, happening: Happening) -> dict[str, Any]:
    """A row of the story. An event has no rule, no inputs and no alternatives."""
    why = story.explanation(happening)
    explained = {"rule": "", "inputs": {}, "rejected": ()} if why is None else asdict(why)
    row = asdict(happening) | explained
    del row["why"]
    return row


def status_of(control: "ControlLoop") -> dict[str, Any]:
    """Nodes and who holds them; jobs, their state, and why those that wait do."""
    jobs = control.jobs.values()
    holders = {name: job.id for job in jobs if job.state == "running" for name in job.nodes}
    return {
        "policy": control.policy.name,
        "time": control.indices.now,
        "nodes": [
            {"name": name, "workers": control.nodes.workers(name), "job": holders.get(name)}
            for name in control.indices.nodes
        ],
        "jobs": [status_of_job(control, job) for job in jobs],
        "io": control.gate.waves.lanes.as_status(),
        "io_next": control.gate.waves.lanes.paired,
        "scripts": sorted({request["id"] for request in control.script_of.values()}),
        **control.holds.as_status(),
    }


def status_of_power(control: "ControlLoop", trace: PowerTrace) -> dict[str, Any] | None:
    """Watts now and the corridor, if power is observed; no upper bound is None."""
    view, now = control.indices.power, trace.last
    if view is None or now is None:
        return None
    verdict = None
    if control.verdict is not None:
        verdict = _plain(asdict(control.verdict)) | {"text": str(control.verdict)}
    return {
        **_plain(now._asdict()),
        "is_outside": now.is_outside,
        "is_steered": control.policy.power is not None,
        "idle_node": view.idle,
        "jobs": {
            name: view.per_node(name).times(len(running.nodes))
            for name, running in control.indices.running.items()
        },
        "outside_nodes": view.outside_nodes,
        "held_nodes": view.held,
        "released_nodes": view.released,
        "threads": view.threads,
        "cap": view.cap,
        "verdict": verdict,
        "seconds_outside": trace.outside_seconds,
        "joules_outside": trace.outside_energy,
        "violations": trace.violation_count,
    }


def _plain(found: dict[str, Any]) -> dict[str, Any]:
    """JSON knows no infinity."""
    return {key: None if value == inf else value for key, value in found.items()}


def status_of_job(control: "ControlLoop", job: LiveJob) -> dict[str, Any]:
    """One job: what it asked for, what it has, what it did, and why it waits if it does."""
    model = job.model
    return {
        "id": job.id,
        "name": job.name,
        "script": job.script,
        "state": job.state,
        "kind": model.kind,
        "asks": model.nodes,
        "min_nodes": model.min_nodes,
        "max_nodes": model.max_nodes,
        "walltime": None if model.walltime == inf else model.walltime,
        "nodes": list(job.nodes),
        "gives_up": _gives_up(control, job),
        "requested": control.indices.requests.get(job.id),
        "submitted": model.submitted,
        "started": job.started,
        "ended": job.ended,
        "unfinished_tasks": len(job.unfinished),
        **_performance(control, job),
        "context": "closed" if job.closed else "open",
        "cancelled": job.is_cancelled,
        "reason": job.reason,
        "waiting_because": _waiting_because(control, job) if job.state == "waiting" else None,
    }


def _gives_up(control: "ControlLoop", job: LiveJob) -> list[str]:
    """Those of its nodes that it leaves: others get them when its tasks there have ended."""
    running = control.indices.running.get(job.id)
    return [] if running is None or running.target is None else list(running.nodes[running.target :])


def _performance(control: "ControlLoop", job: LiveJob) -> dict[str, Any]:
    """Seconds are sums over its tasks; ``mtct`` and ``expected_end`` are what the policy goes by."""
    performance, running = job.performance, control.indices.running.get(job.id)
    end = running.expected_end if running else inf
    return {
        "finished_tasks": performance.tasks,
        "bytes": performance.nbytes,
        "compute": performance.compute,
        "transfer": performance.transfer,
        "disk": performance.disk,
        "mtct": control.indices.mtct.get(job.id),
        "progress": performance.progress(control.expected),
        "expected_end": None if end == inf else end,
    }


def _waiting_because(control: "ControlLoop", job: LiveJob) -> str:
    if job.kept_back:
        return f"held: {job.kept_back}"
    if producer := job.blocking:
        return f"needs results of job {producer.id}, which has not started"
    if control.is_paused:
        return "decisions are paused"
    asked, there, idle = job.model.nodes, len(control.indices.nodes), len(control.indices.idle)
    if asked > there:
        return f"asks for {count_nodes(asked)}, the cluster has {there}"
    if asked > idle:
        held = len(control.indices.withheld)
        return f"needs {count_nodes(asked)}, {idle} idle" + (f", {held} held" if held else "")
    first = control.indices.waiting.first
    if first is not None and first.id != job.id:
        return f"{count_nodes(idle)} idle, but the policy keeps the order: job {first.id} is first"
    return _power_in_the_way(control, job) or "the next decision will look at it"


def _power_in_the_way(control: "ControlLoop", job: LiveJob) -> str:
    """What a job that would fit waits for, if that is room below the power corridor's upper bound."""
    view, corridor = control.indices.power, control.power.corridor
    if view is None or corridor is None:
        return ""
    _, upper = corridor.at(control.indices.now)
    nodes = job.model.nodes if job.model.kind == "rigid" else job.model.min_nodes
    more = nodes * (view.per_node(job.id).most - view.idle)
    if view.watts + view.uncertainty + more <= upper:
        return ""
    watts, most, asked = (show_large(value, "W") for value in (view.watts, upper, more))
    return f"{count_nodes(nodes)} more would draw {asked}; power is {watts} and is to stay below {most}"


#: what of the status one may ask for besides
PARTS = ("power", "checkpoint", "pipelines", "holds", "lanes", "nodes")
_MOST = 2_000  # rows or samples in one answer: who is far behind asks again


def feed(plugin: "HpcPlugin", state: str, story: Any, power: Any, jobs: Any, parts: Any) -> dict[str, Any]:
    """``story`` and ``power`` are how many rows of the story and samples of power the reader has read.
    ``jobs`` is the time of its last look at jobs: the answer has those that are not done, and those that
    have ended since; all of them for -1, none for None. ``parts`` of the status are given whole.

    Of a row of the story: time, decision, job, nodes, reason, whether it was for the sake of power; of a
    sample: time, watts, lower and upper bound (None if there is none), least and most that is forecast (None
    if nothing is), uncertainty, and why it is not to be trusted if so."""
    read_number("story", story)
    read_number("power", power)
    if jobs is not None and not is_number(jobs, -inf, inf):
        raise InputError("jobs", f"found {shown(jobs)}", "a time in seconds, or None")
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise InputError("parts", f"found {shown(parts)}", ", ".join(PARTS))
    control, trace = plugin.control, plugin.power_trace
    first, rows = plugin.story.since(story)
    samples = list(trace.since(power))[:_MOST]
    return {
        "time": plugin.clock(),
        "policy": control.policy.name,
        "version": plugin.history.version,
        "undo": len(plugin.history),
        "state": state,
        "errors": plugin.errors,
        "lost": plugin.lost,
        "resizes": plugin.story.counts["grow"] + plugin.story.counts["shrink"],
        "story": {
            "first": first,
            "rows": [_row(plugin.story, row) for row in rows[:_MOST]],
        },
        "power": {
            "first": max(power, trace.count - len(trace.samples)),
            "samples": [_sample(one) for one in samples],
        },
        "jobs": None if jobs is None else [status_of_job(control, job) for job in _newer(plugin, jobs)],
        **dict(_parts(plugin, parts)),
    }


def _newer(plugin: "HpcPlugin", since: float) -> Iterator[Any]:
    return (job for job in plugin.control.jobs.values() if job.state != "done" or (job.ended or 0.0) >= since)


def _row(story: Story, row: Happening) -> tuple[Any, ...]:
    why = story.explanation(row)
    return row.time, row.decision, row.job, row.nodes, row.reason, why is not None and why.is_for_power


def _sample(one: Sample) -> tuple[float | str | None, ...]:
    least, most = (None, None) if one.forecast is None else (one.forecast.least, one.forecast.most)
    upper = one.upper if isfinite(one.upper) else None
    return one.time, one.watts, one.lower, upper, least, most, one.uncertainty, one.doubt


def _parts(plugin: "HpcPlugin", parts: Iterable[str]) -> Iterator[tuple[str, Any]]:
    control = plugin.control
    for part in parts:
        if part == "power":
            yield "power_now", status_of_power(control, plugin.power_trace)
        elif part == "checkpoint":
            yield part, status_of_checkpoint(plugin.scheduler)
        elif part == "pipelines":
            yield part, plugin.pipelines.as_status()
        elif part == "holds":
            yield part, control.holds.as_status()["holds"]
        elif part == "lanes":
            yield part, control.gate.waves.lanes.as_status()
        elif part == "nodes":
            yield part, list(control.indices.nodes)
        else:
            raise InputError("parts", f"found {shown(part)}", ", ".join(PARTS))
