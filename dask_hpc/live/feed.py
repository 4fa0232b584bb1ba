"""What is new on a managed cluster, for somebody who looks several times a second, such as a widget.

A reader says how far it has read; the answer holds what came since, so it costs what has changed and not
what there is. The scheduler remembers nothing about its readers: any number of them may look, each as often
as it likes, and one that comes back late gets what is remembered.
"""

from collections.abc import Iterable, Iterator
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

from dask_hpc.live.power.trace import Sample
from dask_hpc.live.protection import status_of_checkpoint
from dask_hpc.live.request import read_number
from dask_hpc.live.status import status_of_job, status_of_power
from dask_hpc.model.errors import InputError, is_number, shown

if TYPE_CHECKING:
    from dask_hpc.live.plugin import HpcPlugin

#: what of the status one may ask for besides
PARTS = ("power", "checkpoint", "pipelines", "holds", "nodes")
_MOST = 2_000  # rows or samples in one answer: who is far behind asks again


def feed(plugin: "HpcPlugin", state: str, story: Any, power: Any, jobs: Any, parts: Any) -> dict[str, Any]:
    """``story`` and ``power`` are how many rows of the story and samples of power the reader has read.
    ``jobs`` is the time of its last look at jobs: the answer has those that are not done, and those that
    have ended since; all of them for -1, none for None. ``parts`` of the status are given whole.

    Of a row of the story: time, decision, job, nodes, reason; of a sample: time, watts, lower and upper bound
    (None if there is none), least and most that is forecast (None if nothing is)."""
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
        "story": {
            "first": first,
            "rows": [(row.time, row.decision, row.job, row.nodes, row.reason) for row in rows[:_MOST]],
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


def _sample(one: Sample) -> tuple[float | None, ...]:
    least, most = (None, None) if one.forecast is None else (one.forecast.least, one.forecast.most)
    return one.time, one.watts, one.lower, one.upper if isfinite(one.upper) else None, least, most


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
        elif part == "nodes":
            yield part, list(control.indices.nodes)
        else:
            raise InputError("parts", f"found {shown(part)}", ", ".join(PARTS))
