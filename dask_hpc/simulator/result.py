"""The answer of a simulation: metrics, jobs, trace and story."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from dask_hpc.display import mimebundle
from dask_hpc.model.errors import InputError
from dask_hpc.model.story import Story
from dask_hpc.model.units import show_duration, show_large
from dask_hpc.policy import Policy
from dask_hpc.report.gantt import Held
from dask_hpc.simulator.course import course_of
from dask_hpc.simulator.in_situ.run import PipelineRun
from dask_hpc.simulator.metrics import METRICS, metrics
from dask_hpc.simulator.platform import Platform
from dask_hpc.simulator.power_trace import PowerTrace, power_trace
from dask_hpc.simulator.record import STATES, Record

_MOST_SHOWN = 5_000  # jobs: with more, a notebook's page would be sent tens of megabytes


@dataclass(frozen=True)
class Result:
    """One policy's run of one workload."""

    workload: str
    platform: Platform
    policy: Policy
    story: Story
    record: Record

    @property
    def nodes(self) -> int:
        """Nodes of the machine."""
        return self.platform.nodes

    @cached_property
    def metrics(self) -> dict[str, float]:
        """Figures by name; ``dask_hpc.simulator.metrics.METRICS`` says what each means."""
        return metrics(self.record, self.platform)

    @cached_property
    def jobs(self) -> pd.DataFrame:
        """One row per job in order of submission."""
        record = self.record
        start, submit = np.array(record.start), np.array(record.submit)
        return pd.DataFrame(
            {
                "id": record.id,
                "submit": submit,
                "start": start,
                "end": np.array(record.end),
                "wait": start - submit,
                "nodes": np.array(record.nodes, dtype=np.int32),
                "state": pd.Categorical.from_codes(np.array(record.state, dtype=np.int8), list(STATES)),
            }
        )

    @cached_property
    def trace(self) -> xr.Dataset:
        """The jobs, and how many nodes were busy and jobs waited after each change; where power was followed
        also the machine's watts and the corridor's bounds, from each ``power_time`` on.

        Jobs that changed size count with the nodes they asked for unless the allotments were recorded.
        """
        jobs = self.jobs.astype({"id": str, "state": str})
        columns = {name: ("job", jobs[name].to_numpy()) for name in ("submit", "start", "end", "nodes")}
        time, busy, waiting = _steps(self.record)
        units = {"units": "s"}
        trace = xr.Dataset(
            {
                **columns,
                "state": ("job", jobs["state"].to_numpy(dtype="U")),
                "busy_nodes": ("time", busy),
                "waiting_jobs": ("time", waiting),
            },
            coords={"job": jobs["id"].to_numpy(dtype="U"), "time": ("time", time, units)},
            attrs={"workload": self.workload, "nodes": self.nodes, "policy": self.policy.to_yaml()},
        )
        for name in ("submit", "start", "end"):
            trace[name].attrs.update(units)
        if self.record.drawn is not None:
            trace = trace.assign_coords(power_time=("power_time", self.power.time, units)).assign(
                {
                    name: ("power_time", values, {"units": "W"})
                    for name, values in (
                        ("power", self.power.watts),
                        ("lower", self.power.lower),
                        ("upper", self.power.upper),
                    )
                }
            )
        return trace

    @cached_property
    def power(self) -> PowerTrace:
        """Power and corridor over time, if they were followed: by a policy with a power strategy, or on a
        platform with a ``metering``."""
        if self.record.drawn is None:
            allowed = "a policy with a power strategy, or Platform(metering=Metering())"
            raise InputError("power", "was not followed", allowed)
        return power_trace(self.record.drawn, min(self.record.submit, default=0.0))

    @property
    def pipelines(self) -> list[PipelineRun]:
        """What in situ pipelines did, in order of submission."""
        return [run for _, run in sorted(self.record.pipelines.items())]

    @cached_property
    def iterations(self) -> pd.DataFrame:
        """One row per iteration of every in situ pipeline: what it took, what was planned, and where."""
        return pd.DataFrame([row for run in self.pipelines for row in run.rows()])

    @cached_property
    def held(self) -> list[Held]:
        """Who held which nodes when, if that was recorded (``allotments=True``)."""
        if self.record.allotments is None:
            raise InputError("held", "the allotments were not recorded", "simulate(..., allotments=True)")
        reasons = {start.job: start.reason for plan in self.story for start in plan.starts}
        open_: dict[int, tuple[float, tuple[str, ...]]] = {}
        spans = []
        for time, row, nodes in self.record.allotments:
            if row in open_:
                began, before = open_.pop(row)
                job = self.record.id[row]
                spans.append(Held(job, before, began, time, reasons.get(job, "")))
            if nodes:
                open_[row] = (time, nodes)
        return spans

    def course(self) -> dict[str, Any]:
        """What happened, as plain data for those who draw it: see ``course.py``."""
        return course_of(self)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return None if len(self.record.id) > _MOST_SHOWN else mimebundle(self, **kwargs)

    def __repr__(self) -> str:
        lines = [
            f"<{self.workload} on {self.nodes} nodes under {self.policy.name}: {len(self.record.id)} jobs"
        ]
        lines += [f"  {name.replace('_', ' ')}: {shown_metric(name, v)}" for name, v in self.metrics.items()]
        return "\n".join(lines) + ">"

    def __getstate__(self) -> dict[str, Any]:
        # Cached frames are made again on demand.
        fields = ("workload", "platform", "policy", "story", "record")
        return {name: self.__dict__[name] for name in fields}


def shown_metric(name: str, value: float) -> str:
    """A metric for a person."""
    unit = METRICS[name][0]
    if value != value:
        return "-"
    if unit == "s":
        return show_duration(value)
    if name == "utilisation":
        return f"{value:.1%}"
    if name == "throughput":
        return f"{value * 3600:.4g}/h"
    if unit in ("J", "B"):
        return show_large(value, unit)
    if unit == "jobs" or name == "violations":
        return f"{value:,.0f}"
    return f"{value:.2f}" + (f" {unit}" if unit else "")


def _steps(record: Record) -> tuple[Any, Any, Any]:
    """Times of change, and after each the busy nodes and the waiting jobs."""
    start, end, submit = (np.array(c) for c in (record.start, record.end, record.submit))
    states = np.frombuffer(record.state, np.uint8)
    nodes = np.array(record.nodes, dtype=np.int64)
    waited = states != STATES.index("rejected")
    left = np.where(np.isnan(start), end, start)  # a job that is cancelled leaves the queue as well
    waiting = [(submit[waited], 1), (left[waited & ~np.isnan(left)], -1)]
    busy = _busy_changes(record, start, end, nodes)
    times = np.concatenate([t for t, _ in waiting] + [busy[0]])
    time, where = np.unique(times, return_inverse=True)
    queue, held = np.zeros(len(time), np.int64), np.zeros(len(time), np.int64)
    changes = np.concatenate([np.full(len(t), change) for t, change in waiting])
    np.add.at(queue, where[: len(changes)], changes)
    np.add.at(held, where[len(changes) :], busy[1])
    return time, held.cumsum(), queue.cumsum()


def _busy_changes(record: Record, start: Any, end: Any, nodes: Any) -> tuple[Any, Any]:
    """When the number of busy nodes changed, and by how much."""
    if record.allotments is not None:
        held: dict[int, int] = {}
        changes = []
        for time, row, allotment in record.allotments:
            changes.append((time, len(allotment) - held.get(row, 0)))
            held[row] = len(allotment)
        found = np.array(changes, dtype=float).reshape(-1, 2)
        return found[:, 0], found[:, 1].astype(np.int64)
    ran, over = ~np.isnan(start), ~np.isnan(start) & ~np.isnan(end)
    return np.concatenate([start[ran], end[over]]), np.concatenate([nodes[ran], -nodes[over]])
