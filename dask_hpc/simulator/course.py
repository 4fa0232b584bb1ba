"""A result as the course of a cluster that is over: plain data, as those who watch a live one are told."""

from math import isfinite
from typing import TYPE_CHECKING, Any

from dask_hpc.model.runs import runs

if TYPE_CHECKING:
    from dask_hpc.simulator.result import Result

_MOST_ROWS = 2_000


def course_of(result: "Result") -> dict[str, Any]:
    """Who held which node if the allotments were recorded, power if it was followed, jobs, the story."""
    jobs = result.jobs
    end = float(max(jobs["end"].max(), jobs["submit"].max())) if len(jobs) else 0.0
    held = _held(result)
    names = sorted({node for one in held for node in one.nodes}, key=_natural)
    numbers = {name: number for number, name in enumerate(names)}
    return {
        "head": {
            "time": end,
            "policy": result.policy.name,
            "state": "simulated",
            "version": 0,
            "undo": 0,
            "errors": 0,
            "lost": 0,
            "count": 0,
        },
        "nodes": {"names": names, "gone": []},
        "changes": list(_changes(held, numbers)),
        "samples": list(_samples(result)),
        "order": {str(job): number for number, job in enumerate(jobs["id"])},
        "jobs": [_job(row) for row in jobs.itertuples(index=False)],
        "story": list(_story(result))[-_MOST_ROWS:],
    }


def _held(result: "Result") -> list[Any]:
    return [] if result.record.allotments is None else result.held


def _natural(name: str) -> tuple[int, str]:
    digits = "".join(filter(str.isdigit, name))
    return int(digits or 0), name


def _changes(held: list[Any], numbers: dict[str, int]) -> Any:
    found = []
    for one in held:
        nodes = runs(numbers[node] for node in one.nodes)
        found.append((one.start, 1, one.job, nodes, one.note))
        if isfinite(one.end):
            found.append((one.end, 0, None, nodes, ""))  # ends come before what begins at the same time
    for time, _, job, nodes, note in sorted(found, key=lambda one: one[:2]):
        yield [time, job, nodes, note]


def _samples(result: "Result") -> Any:
    if result.record.drawn is None:
        return
    trace = result.power
    for time, watts, lower, upper in zip(trace.time, trace.watts, trace.lower, trace.upper, strict=True):
        yield [float(time), float(watts), float(lower), float(upper) if isfinite(upper) else None, None, None]


def _job(row: Any) -> dict[str, Any]:
    started = None if row.start != row.start else float(row.start)
    return {
        "id": str(row.id),
        "name": str(row.id),
        "state": {"running": "running", "waiting": "waiting"}.get(str(row.state), "done"),
        "kind": "rigid",
        "asks": int(row.nodes),
        "min_nodes": int(row.nodes),
        "max_nodes": int(row.nodes),
        "nodes": int(row.nodes),
        "submitted": float(row.submit),
        "started": started,
        "ended": None if row.end != row.end else float(row.end),
        "progress": None,
        "expected_end": None,
        "compute": 0.0,
        "transfer": 0.0,
        "reason": f"{row.state}; waited {row.wait:.0f} s" if started is not None else str(row.state),
        "waiting_because": None,
    }


def _story(result: "Result") -> Any:
    number = 0
    for plan in result.story:
        for decision, ones in (("start", plan.starts), ("resize", plan.resizes)):
            for one in ones:
                yield [number, plan.time, decision, one.job, one.nodes, one.reason]
                number += 1
