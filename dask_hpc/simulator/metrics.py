"""What a run is judged by, from the record's columns.

All times in seconds. Killed jobs count like completed ones; rejected ones count only as rejected.
"""

from collections.abc import Mapping
from math import inf
from typing import Any

import numpy as np

from dask_hpc.simulator.platform import Platform
from dask_hpc.simulator.power_trace import power_trace
from dask_hpc.simulator.record import STATES, Record

#: jobs shorter than this do not dominate the slowdown
SLOWDOWN_THRESHOLD = 10.0

#: metric -> (unit, meaning), in the order in which people read them
METRICS: Mapping[str, tuple[str, str]] = {
    "makespan": ("s", "from the first submission to the last end"),
    "utilisation": ("", "node-seconds in use over node-seconds there were, during the makespan"),
    "mean_wait": ("s", "first start minus submission"),
    "median_wait": ("s", "first start minus submission"),
    "max_wait": ("s", "first start minus submission"),
    "mean_response": ("s", "end minus submission (flow)"),
    "max_response": ("s", "end minus submission (flow)"),
    "weighted_response": ("s", "end minus submission, weighted by the nodes asked for"),
    "mean_stretch": ("", "response over time from first start to end, jobs of no length left out"),
    "mean_bounded_slowdown": ("", "response over runtime, runtimes below 10 s counted as 10 s, at least 1"),
    "throughput": ("1/s", "jobs ended per second of makespan"),
    "completed": ("jobs", "ended by themselves"),
    "killed": ("jobs", "ended by their walltime"),
    "cancelled": ("jobs", "given up by their owners"),
    "rejected": ("jobs", "larger than the machine"),
    "unfinished": ("jobs", "still waiting or running when the simulation ended"),
    "resizes": ("jobs", "changes of size of running jobs"),
    "moved_bytes": ("B", "data that changed its node in resizes"),
    "restarts": ("jobs", "times a job was stopped and waited again"),
    "lost_node_hours": ("h", "work that failures and interrupts undid"),
    "mean_transfer": ("s", "one read or write of a job on the shared file system"),
    "commits": ("jobs", "commits of jobs that were completed"),
    "commit_time": ("s", "jobs stood still to commit and to read commits back, in all"),
    "commit_bytes": ("B", "written by commits, each level counted"),
    "placements": ("jobs", "partitions of in situ pipelines, the first ones included"),
    "iteration": ("s", "of in situ pipelines, on average"),
    "left_out": ("jobs", "analyses of in situ pipelines that were not done for an iteration"),
    "energy": ("J", "of all nodes during the makespan, if the platform has powers"),
    "violations": ("", "intervals outside the power corridor that last longer than one tick"),
    "time_outside": ("s", "outside the power corridor, however briefly each time"),
    "energy_outside": ("J", "above the corridor's upper or missing to its lower bound"),
}
_COUNTED = ("completed", "killed", "cancelled", "rejected")


def metrics(record: Record, platform: Platform, since: float | None = None) -> dict[str, float]:
    """Every metric of ``METRICS``; those that need an ended job are nan without one.

    Of a machine that was taken over as it was at ``since``, makespan and power count from then on: what was
    before is not its policy's doing.
    """
    states = np.frombuffer(record.state, np.uint8)
    counts = {state: int((states == code).sum()) for code, state in enumerate(STATES)}
    totals: dict[str, float] = {state: float(counts[state]) for state in _COUNTED}
    totals["unfinished"] = float(counts["waiting"] + counts["running"])
    details = record.details.values()
    totals["resizes"] = float(sum(one.resizes for one in details))
    totals["moved_bytes"] = sum(one.moved_bytes for one in details)
    totals["restarts"] = float(sum(one.restarts for one in details))
    totals["lost_node_hours"] = sum(one.lost for one in details) / 3600.0
    totals["commits"] = float(sum(one.commits for one in details))
    totals["commit_time"] = sum(one.commit_time for one in details)
    totals["commit_bytes"] = sum(one.commit_bytes for one in details)
    totals["mean_transfer"] = record.transfer
    totals["placements"] = float(sum(len(run.changes) for run in record.pipelines.values()))
    totals["left_out"] = float(sum(sum(run.left_out.values()) for run in record.pipelines.values()))
    lengths = [length for run in record.pipelines.values() for length in run.seconds if length == length]
    totals["iteration"] = sum(lengths) / len(lengths) if lengths else float("nan")
    begin = min(record.submit, default=0.0) if since is None else since
    totals |= _outside(record, begin)
    start, end, submit = (np.frombuffer(c) for c in (record.start, record.end, record.submit))
    size = np.frombuffer(record.nodes, np.int32)
    used = node_seconds(record)
    done = ~np.isnan(end) & ~np.isnan(start)
    if not done.any():
        return {name: totals.get(name, float("nan")) for name in METRICS}
    span = float(end[done].max() - submit.min())
    makespan = float(end[done].max()) - begin
    power = float((used * _power_above_idle(record, platform)).sum())
    start, end, submit, size = start[done], end[done], submit[done], size[done]
    runtime, wait, response = end - start, start - submit, end - submit
    ran = runtime > 0
    values = {
        "makespan": makespan,
        "utilisation": float(used.sum()) / (platform.nodes * span) if span else 0.0,
        "mean_wait": float(wait.mean()),
        "median_wait": float(np.median(wait)),
        "max_wait": float(wait.max()),
        "mean_response": float(response.mean()),
        "max_response": float(response.max()),
        "weighted_response": float((response * size).sum() / size.sum()),
        "mean_stretch": float((response[ran] / runtime[ran]).mean()) if ran.any() else 1.0,
        "mean_bounded_slowdown": float(
            np.maximum(response / np.maximum(runtime, SLOWDOWN_THRESHOLD), 1.0).mean()
        ),
        "throughput": len(end) / span if span else float("inf"),
        "energy": platform.idle_power * platform.nodes * makespan + power,
    }
    if record.drawn is not None:
        until = inf if since is None else begin + makespan
        values["energy"] = power_trace(record.drawn, begin, until).energy
    return {name: (values | totals)[name] for name in METRICS}


def _outside(record: Record, begin: float) -> dict[str, float]:
    """How well the corridor was kept; nan if there was none."""
    if record.drawn is None or not record.drawn.bounds or not record.submit:
        return {name: float("nan") for name in ("violations", "time_outside", "energy_outside")}
    trace = power_trace(record.drawn, begin)
    return {
        "violations": float(len(trace.violations)),
        "time_outside": trace.time_outside,
        "energy_outside": trace.energy_outside,
    }


def node_seconds(record: Record) -> Any:
    """What each job used, in order of submission."""
    start, end = np.frombuffer(record.start), np.frombuffer(record.end)
    used = np.nan_to_num((end - start) * np.frombuffer(record.nodes, np.int32))
    for row, detail in record.details.items():
        used[row] = detail.node_seconds
    return used


def _power_above_idle(record: Record, platform: Platform) -> Any:
    power = np.full(len(record.id), platform.active_power - platform.idle_power)
    for row, watts in record.power.items():
        power[row] = watts - platform.idle_power
    return power
