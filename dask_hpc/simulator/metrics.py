"""What a run is judged by, from the record's columns.

All times in seconds. Killed jobs count like completed ones; rejected ones count only as rejected.
"""

from collections.abc import Mapping

import numpy as np

from dask_hpc.simulator.record import STATES, Record

#: jobs shorter than this do not dominate the slowdown
SLOWDOWN_THRESHOLD = 10.0

#: metric -> (unit, meaning), in the order in which people read them
METRICS: Mapping[str, tuple[str, str]] = {
    "makespan": ("s", "from the first submission to the last end"),
    "utilisation": ("", "node-seconds in use over node-seconds there were, during the makespan"),
    "mean_wait": ("s", "start minus submission"),
    "median_wait": ("s", "start minus submission"),
    "max_wait": ("s", "start minus submission"),
    "mean_response": ("s", "end minus submission"),
    "mean_bounded_slowdown": ("", "response over runtime, runtimes below 10 s counted as 10 s, at least 1"),
    "throughput": ("1/s", "jobs ended per second of makespan"),
    "completed": ("jobs", "ended by themselves"),
    "killed": ("jobs", "ended by their walltime"),
    "rejected": ("jobs", "larger than the machine"),
}


def metrics(record: Record, nodes: int) -> dict[str, float]:
    """Every metric of ``METRICS``; those that need a finished job are nan without one."""
    states = np.frombuffer(record.state, np.uint8)
    counts = {state: int((states == code).sum()) for code, state in enumerate(STATES)}
    start, end, submit = (np.frombuffer(c) for c in (record.start, record.end, record.submit))
    size = np.frombuffer(record.nodes, np.int32)
    done = ~np.isnan(end)
    totals = {state: float(counts[state]) for state in ("completed", "killed", "rejected")}
    if not done.any():
        return {name: totals.get(name, float("nan")) for name in METRICS}
    start, end, submit, size = start[done], end[done], submit[done], size[done]
    runtime, wait, response = end - start, start - submit, end - submit
    makespan = float(end.max() - submit.min())
    slowdown = np.maximum(response / np.maximum(runtime, SLOWDOWN_THRESHOLD), 1.0)
    used = float((runtime * size).sum())
    values = {
        "makespan": makespan,
        "utilisation": used / (nodes * makespan) if makespan else 0.0,
        "mean_wait": float(wait.mean()),
        "median_wait": float(np.median(wait)),
        "max_wait": float(wait.max()),
        "mean_response": float(response.mean()),
        "mean_bounded_slowdown": float(slowdown.mean()),
        "throughput": len(end) / makespan if makespan else float("inf"),
    }
    return values | totals
