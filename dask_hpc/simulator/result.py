"""The answer of a simulation: metrics, jobs, trace and story."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from math import inf, isfinite, nan
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from dask_hpc.display import mimebundle
from dask_hpc.model.errors import InputError
from dask_hpc.model.job import worth
from dask_hpc.model.plan import Plan, Resize, Start
from dask_hpc.model.story import Kind, Story, Word
from dask_hpc.model.units import count_nodes, show_duration, show_large
from dask_hpc.planning.figures import bounded_slowdown, response, utilisation, waiting
from dask_hpc.policy import Policy
from dask_hpc.simulator.job_commits import CommitsOfJobs
from dask_hpc.simulator.network_pace import JobThetas
from dask_hpc.simulator.pipelines import PipelineRun, PipelineRuns
from dask_hpc.simulator.platform import Platform
from dask_hpc.simulator.power import PowerRecord, PowerTrace, power_trace
from dask_hpc.simulator.record import STATES, Record
from dask_hpc.simulator.units import PaidNodes
from dask_hpc.view import Held, past
from dask_hpc.view.course import spans as spans_of

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
    # the runtime of a job that changes size is the strategy's doing: on one node all the time nothing is slow
    "mean_slowdown_as_asked": ("", "response over runtime on the nodes asked for, bounded alike"),
    "throughput": ("1/s", "jobs ended per second of makespan"),
    "completed": ("jobs", "ended by themselves"),
    "killed": ("jobs", "ended by their walltime"),
    "cancelled": ("jobs", "given up by their owners"),
    "rejected": ("jobs", "larger than the machine"),
    "dropped": ("jobs", "given up, or stopped at their deadline"),
    "value_earned": ("", "of jobs that ended by themselves, less after their soft deadline"),
    "unfinished": ("jobs", "still waiting or running when the simulation ended"),
    "resizes": ("jobs", "changes of size of running jobs"),
    "mean_adaptation": ("s", "of a change of size, from the decision to its end"),
    "max_adaptation": ("s", "of a change of size, from the decision to its end"),
    "moved_bytes": ("B", "data that changed its node in resizes"),
    "restarts": ("jobs", "times a job was stopped and waited again"),
    "lost_node_hours": ("h", "work that failures and interrupts undid"),
    "mean_transfer": ("s", "one read or write of a job on the shared file system"),
    "theta": ("", "share of what they send that jobs got of the network, by nodes and time"),
    "least_theta": ("", "the same of the job that got least, when it did"),
    "commits": ("jobs", "commits of jobs that were completed"),
    "commit_time": ("s", "jobs stood still to commit and to read commits back, in all"),
    "commit_bytes": ("B", "written by commits, each level counted"),
    "paid_node_hours": ("h", "units that were there, until they went or the last job ended"),
    "placements": ("jobs", "partitions of in situ pipelines, the first ones included"),
    "iteration": ("s", "of in situ pipelines, on average"),
    "left_out": ("jobs", "analyses of in situ pipelines that were not done for an iteration"),
    "energy": ("J", "of all nodes during the makespan, if the platform has powers"),
    "site_energy": ("J", "the same with losses, switches and cooling, if the platform has a site"),
    "violations": ("", "intervals outside the power corridor that last longer than one tick"),
    "time_outside": ("s", "outside the power corridor, however briefly each time"),
    "energy_outside": ("J", "above the corridor's upper or missing to its lower bound"),
}


def metrics(record: Record, platform: Platform, since: float | None = None) -> dict[str, float]:
    """Every metric of ``METRICS``; those that need an ended job are nan without one.

    Of a machine that was taken over as it was at ``since``, makespan and power count from then on: what was
    before is not its policy's doing.
    """
    states = np.frombuffer(record.state, np.uint8)
    count = {state: int((states == code).sum()) for code, state in enumerate(STATES)}
    details = record.details.values()
    commits = (record.find(CommitsOfJobs) or {}).values()
    pipelines = (record.find(PipelineRuns) or {}).values()
    paid, shares = record.find(PaidNodes), record.find(JobThetas)
    lengths = [length for run in pipelines for length in run.seconds if length == length]
    begin = min(record.submit, default=0.0) if since is None else since
    totals: dict[str, float] = {
        **{one: count[one] for one in ("completed", "killed", "cancelled", "rejected", "dropped")},
        "value_earned": _earned(record),
        "unfinished": count["waiting"] + count["running"],
        "resizes": sum(one.resizes for one in details),
        "mean_adaptation": nan if record.adaptation.mean is None else record.adaptation.mean,
        "max_adaptation": nan if record.adaptation.largest is None else record.adaptation.largest,
        "moved_bytes": sum(one.moved_bytes for one in details),
        "restarts": sum(one.restarts for one in details),
        "lost_node_hours": sum(one.lost for one in details) / 3600.0,
        "commits": sum(one.commits for one in commits),
        "commit_time": sum(one.seconds for one in commits),
        "commit_bytes": sum(one.nbytes for one in commits),
        "mean_transfer": record.transfer,
        "theta": shares.all.mean if shares else nan,
        "least_theta": shares.all.least if shares else nan,
        "paid_node_hours": nan if paid is None else paid.node_seconds / 3600.0,
        "placements": sum(len(run.changes) for run in pipelines),
        "left_out": sum(sum(run.left_out.values()) for run in pipelines),
        "iteration": sum(lengths) / len(lengths) if lengths else nan,
        **_outside(record, begin),
    }
    start, end, submit, alone = (
        np.frombuffer(c) for c in (record.start, record.end, record.submit, record.alone)
    )
    size = np.frombuffer(record.nodes, np.int32)
    used = node_seconds(record)
    done = ~np.isnan(end) & ~np.isnan(start)
    if not done.any():
        return {name: float(totals.get(name, nan)) for name in METRICS}
    span = float(end[done].max() - submit.min())
    makespan = float(end[done].max()) - begin
    above_idle = np.full(len(used), platform.active_power - platform.idle_power)
    for row, watts in record.power.items():
        above_idle[row] = watts - platform.idle_power
    power = float((used * above_idle).sum())
    start, end, submit, size = start[done], end[done], submit[done], size[done]
    runtime, wait, flow = end - start, waiting(submit, start), response(submit, end)
    asked = np.where(np.isnan(alone[done]), runtime, alone[done])
    ran = runtime > 0
    values = totals | {
        "makespan": makespan,
        "utilisation": utilisation(used.sum(), paid.node_seconds if paid else platform.nodes * span),
        "mean_wait": wait.mean(),
        "median_wait": np.median(wait),
        "max_wait": wait.max(),
        "mean_response": flow.mean(),
        "max_response": flow.max(),
        "weighted_response": (flow * size).sum() / size.sum(),
        "mean_stretch": (flow[ran] / runtime[ran]).mean() if ran.any() else 1.0,
        "mean_bounded_slowdown": bounded_slowdown(flow, runtime).mean(),
        "mean_slowdown_as_asked": bounded_slowdown(flow, asked).mean(),
        "throughput": len(end) / span if span else inf,
        "energy": platform.idle_power * platform.nodes * makespan + power,
    }
    if (drawn := record.find(PowerRecord)) is not None:
        until = inf if since is None else begin + makespan
        values["energy"] = power_trace(drawn, begin, until).energy
    site = platform.site
    values["site_energy"] = nan if site is None else site.energy(values["energy"], makespan)
    return {name: float(values[name]) for name in METRICS}


def _earned(record: Record) -> float:
    """What the jobs that have ended were worth; nan if none has a value."""
    completed = STATES.index("completed")
    ended = [(job, record.end[row]) for row, job in record.worth.items() if record.state[row] == completed]
    return sum(worth(job, end) for job, end in ended) if record.worth else nan


def _outside(record: Record, begin: float) -> dict[str, float]:
    """How well the corridor was kept; nan if there was none."""
    drawn = record.find(PowerRecord)
    if drawn is None or not drawn.bounds or not record.submit:
        return dict.fromkeys(("violations", "time_outside", "energy_outside"), nan)
    trace = power_trace(drawn, begin)
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


_MOST_ROWS, _MOST_NODES = 2_000, 20_000


def _job(row: Any, used: float, energy: float | None) -> dict[str, Any]:
    started = None if row.start != row.start else float(row.start)
    return {
        **dict.fromkeys(("id", "name"), str(row.id)),
        "state": "done" if row.state == "completed" else str(row.state),
        "kind": "rigid",
        **dict.fromkeys(("asks", "min_nodes", "max_nodes", "nodes"), int(row.nodes)),
        "submitted": float(row.submit),
        "started": started,
        "ended": None if row.end != row.end else float(row.end),
        "reason": f"{row.state}; waited {row.wait:.0f} s" if started is not None else str(row.state),
        "waited": None if started is None else waiting(float(row.submit), started),
        "response": None if row.end != row.end else response(float(row.submit), float(row.end)),
        "node_seconds": used,
        "energy": energy,
        "theta": None if (theta := getattr(row, "theta", nan)) != theta else float(theta),
        **dict.fromkeys(("error", "user"), ""),
        "failed": 0,
        "cancelled": row.state in ("cancelled", "dropped"),
        **dict.fromkeys(("compute", "transfer"), 0.0),
        **dict.fromkeys(("progress", "expected_end", "waiting_because")),
    }


def _story(result: "Result") -> Iterator[tuple[float, str, str, int, str]]:
    for plan in result.story:
        for word, ones in ((Word.START, plan.starts), (Word.RESIZE, plan.resizes)):
            yield from ((plan.time, str(word), one.job, one.nodes, one.reason) for one in ones)
        for one in plan.interrupts:
            yield plan.time, str(Word.INTERRUPT), one.job, 0, one.reason
        for word, nodes, reason in _levers(plan):
            yield plan.time, str(word), "", nodes, reason
    for row in result.story.happenings:
        yield row.time, row.decision, row.job, 0, row.reason


def _marks(result: "Result") -> Iterator[tuple[float, Kind, str]]:
    """What was done for the sake of power."""
    sizes: dict[str, int] = {}
    for plan in result.story:
        changes: tuple[Start | Resize, ...] = (*plan.starts, *plan.resizes)
        for one in changes:
            before = sizes.get(one.job, 0) if isinstance(one, Resize) else 0
            sizes[one.job] = one.nodes
            if one.job in plan.for_power:
                kind: Kind = "more" if one.nodes > before else "less"
                nodes = count_nodes(one.nodes)
                change = f"from {before} to {nodes}" if before else f"on {nodes}"
                yield plan.time, kind, f"{one.job} {change}: {one.reason}"
        for word, _, reason in _levers(plan):
            yield plan.time, word.kind, f"{word}: {reason}"


def _levers(plan: Plan) -> Iterator[tuple[Word, int, str]]:
    """What else a plan says about power: decision, nodes, reason."""
    if plan.hold is not None:
        yield Word.HOLD, plan.hold.nodes, plan.hold.reason
    if plan.cap is not None:
        watts = "" if plan.cap.watts is None else f", {show_large(plan.cap.watts, 'W')} a node"
        yield Word.CAP, 0, f"{plan.cap.threads:.0%} of the threads{watts}: {plan.cap.reason}"
    if plan.release is not None:
        yield Word.GIVE_BACK, plan.release.nodes, plan.release.reason
    if plan.verdict is not None:
        yield Word.CORRIDOR, 0, str(plan.verdict)


_MOST_SHOWN = 5_000  # jobs: with more, a notebook's page would be sent tens of megabytes


@dataclass(frozen=True)
class Result:
    """One policy's run of one workload."""

    workload: str
    platform: Platform
    policy: Policy
    story: Story
    record: Record
    #: parts of the policy that had nothing to go by here, one line each
    notes: tuple[str, ...] = ()

    @property
    def nodes(self) -> int:
        """Nodes of the machine."""
        return self.platform.nodes

    @cached_property
    def metrics(self) -> dict[str, float]:
        """Figures by name; ``dask_hpc.simulator.result.METRICS`` says what each means."""
        return metrics(self.record, self.platform)

    @cached_property
    def jobs(self) -> pd.DataFrame:
        """One row per job in order of submission; with its mean theta if any job shared a network."""
        record = self.record
        start, submit = np.array(record.start), np.array(record.submit)
        frame = pd.DataFrame(
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
        if shares := record.find(JobThetas):
            frame["theta"] = [shares[job].mean if job in shares else nan for job in record.id]
        return frame

    @cached_property
    def trace(self) -> xr.Dataset:
        """The jobs, and how many nodes were busy and jobs waited after each change; where power was followed
        also the machine's watts and the corridor's bounds, from each ``power_time`` on.

        Jobs that changed size count with the nodes they asked for unless the allotments were recorded.
        """
        jobs = self.jobs.astype({"id": str, "state": str})
        columns = {name: ("job", jobs[name].to_numpy()) for name in ("submit", "start", "end", "nodes")}
        steps = _steps(self.record)
        units = {"units": "s"}
        trace = xr.Dataset(
            {
                **columns,
                "state": ("job", jobs["state"].to_numpy(dtype="U")),
                "busy_nodes": ("time", steps["busy"].to_numpy()),
                "waiting_jobs": ("time", steps["waiting"].to_numpy()),
            },
            coords={"job": jobs["id"].to_numpy(dtype="U"), "time": ("time", steps.index.to_numpy(), units)},
            attrs={"workload": self.workload, "nodes": self.nodes, "policy": self.policy.to_yaml()},
        )
        for name in ("submit", "start", "end"):
            trace[name].attrs.update(units)
        if self.has_power:
            curve = {"power": self.power.watts, "lower": self.power.lower, "upper": self.power.upper}
            trace = trace.assign_coords(power_time=("power_time", self.power.time, units)).assign(
                {name: ("power_time", values, {"units": "W"}) for name, values in curve.items()}
            )
        return trace

    @property
    def has_power(self) -> bool:
        """Whether power was followed."""
        return self.record.find(PowerRecord) is not None

    @cached_property
    def power(self) -> PowerTrace:
        """Power and corridor over time, if they were followed: by a policy with a power strategy, or on a
        platform with a ``metering``."""
        drawn = self.record.find(PowerRecord)
        if drawn is None:
            allowed = "a policy with a power strategy, or Platform(metering=Metering())"
            raise InputError("power", "was not followed", allowed)
        return power_trace(drawn, min(self.record.submit, default=0.0))

    @property
    def pipelines(self) -> list[PipelineRun]:
        """What in situ pipelines did, in order of submission."""
        return [run for _, run in sorted((self.record.find(PipelineRuns) or {}).items())]

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
        return spans + list(self._lent())

    def _lent(self) -> Iterator[Held]:
        """Which nodes services had for themselves, as far as the story goes back."""
        rows = [asdict(row) for row in self.story.happenings if row.decision in (Word.LEND, Word.RETURNED)]
        for one in spans_of(rows):
            yield Held(one.job, (one.node,), one.start, inf if one.end is None else one.end, one.reason)

    def course(self) -> dict[str, Any]:
        """What happened, as plain data for those who draw it: who held which node if the allotments were
        recorded, power if it was followed, jobs, the story."""
        jobs, used = self.jobs, node_seconds(self.record)
        end = float(max(jobs["end"].max(), jobs["submit"].max())) if len(jobs) else 0.0
        held = [] if self.record.allotments is None else self.held
        power = self.power if self.has_power else None
        curve = () if power is None else zip(power.time, power.watts, power.lower, power.upper, strict=True)
        samples = [
            [float(time), float(watts), float(lower), float(upper) if isfinite(upper) else None, None, None]
            for time, watts, lower, upper in curve
        ]
        return past(
            held,
            self._names(held),
            end,
            count=self.nodes,
            policy=self.policy.name,
            order=jobs["id"],
            jobs=[
                _job(row, float(used[number]), self._energy(number, float(used[number])))
                for number, row in enumerate(jobs.itertuples(index=False))
            ],
            story=sorted(_story(self), key=lambda row: row[0])[-_MOST_ROWS:],
            samples=samples,
            marks=list(_marks(self)),
            figures=self.metrics,
            outside=[] if power is None else [list(one) for one in power.violations],
        )

    def _names(self, held: list[Held]) -> list[str]:
        """Of all nodes, also those that nobody ever had; of a machine larger than any picture only others."""
        used = {node for one in held for node in one.nodes}
        every = [str(number) for number in range(min(self.nodes, _MOST_NODES))]
        if used.issubset(every) and len(every) == self.nodes:
            return every
        return sorted(used, key=lambda name: (int("".join(filter(str.isdigit, name)) or 0), name))

    def _energy(self, row: int, used: float) -> float | None:
        """Joules of a job's nodes, as far as the platform or the job says what they draw."""
        watts = self.record.power.get(row, self.platform.active_power)
        return used * watts if watts else None

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return None if len(self.record.id) > _MOST_SHOWN else mimebundle(self, **kwargs)

    def __repr__(self) -> str:
        lines = [
            f"<{self.workload} on {self.nodes} nodes under {self.policy.name}: {len(self.record.id)} jobs"
        ]
        lines += [f"  note: {note}" for note in self.notes]
        lines += [f"  {name.replace('_', ' ')}: {shown_metric(name, v)}" for name, v in self.metrics.items()]
        return "\n".join(lines) + ">"

    def __getstate__(self) -> dict[str, Any]:
        # Cached frames are made again on demand.
        return {field.name: self.__dict__[field.name] for field in fields(self)}


def shown_metric(name: str, value: float) -> str:
    """A metric for a person."""
    unit = METRICS[name][0]
    if value != value:
        return "-"
    if unit == "s":
        return show_duration(value)
    if name in ("utilisation", "theta", "least_theta"):
        return f"{value:.1%}"
    if name == "throughput":
        return f"{value * 3600:.4g}/h"
    if unit in ("J", "B"):
        return show_large(value, unit)
    if unit == "jobs" or name == "violations":
        return f"{value:,.0f}"
    return f"{value:.2f}" + (f" {unit}" if unit else "")


def _steps(record: Record) -> pd.DataFrame:
    """By times of change: the busy nodes and the waiting jobs after each."""
    start, end, submit = (np.array(c) for c in (record.start, record.end, record.submit))
    waited = np.frombuffer(record.state, np.uint8) != STATES.index("rejected")
    left = np.where(np.isnan(start), end, start)  # a job that is cancelled leaves the queue as well
    time, busy = _busy_changes(record, start, end, np.array(record.nodes, dtype=np.int64))
    changes = (
        {"time": submit[waited], "waiting": 1, "busy": 0},
        {"time": left[waited & ~np.isnan(left)], "waiting": -1, "busy": 0},
        {"time": time, "waiting": 0, "busy": busy},
    )
    return pd.concat(pd.DataFrame(one) for one in changes).groupby("time").sum().cumsum()


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
