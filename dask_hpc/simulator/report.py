"""Simulation results as one self-contained HTML page."""

from collections.abc import Iterable, Sequence
from html import escape
from math import nan

from dask_hpc.model.units import show_duration
from dask_hpc.planning.in_situ.partition import tell_iteration
from dask_hpc.simulator.pipelines import PipelineRun
from dask_hpc.simulator.result import METRICS, Result, shown_metric
from dask_hpc.view import Section, course_html, html_page, table
from dask_hpc.view.in_situ import phases_svg

_MOST_JOBS = 200  # that are over, or not, in a table
#: metrics that are only worth a line if they are not zero everywhere
_IF_ANY = {"killed", "cancelled", "rejected", "dropped", "unfinished", "resizes", "moved_bytes", "restarts",
           "lost_node_hours", "commits", "commit_time", "commit_bytes", "mean_transfer", "placements",
           "iteration", "left_out", "energy", "site_energy"}  # fmt: skip
#: and those that are, if there was something to keep
_IF_THERE = {"value_earned", "violations", "time_outside", "energy_outside", "theta", "least_theta"}


def worth_a_line(metric: str, values: Iterable[float]) -> bool:
    """Whether a table should show the metric at all."""
    if metric in _IF_THERE:
        return any(value == value for value in values)
    return metric not in _IF_ANY or any(value and value == value for value in values)


def report_page(results: Sequence[Result]) -> str:
    """A comparison of the policies, then each with its pictures and decisions. The results must have
    been recorded with ``allotments=True``."""
    first = results[0]
    rows = [
        [
            name.replace("_", " "),
            *(shown_metric(name, result.metrics[name]) for result in results),
            METRICS[name][1],
        ]
        for name in sorted(METRICS, key=lambda name: name not in _IF_THERE)  # what was asked for goes first
        if worth_a_line(name, (result.metrics[name] for result in results))
    ]
    heads = ["metric", *(result.policy.name for result in results), "meaning"]
    sections = [Section("Comparison", table(heads, rows))]
    sections += [Section(result.policy.name, _pictures(result)) for result in results]
    title = f"{first.workload} on {first.nodes:,} nodes"
    names = ", ".join(result.policy.name for result in results)
    lead = f"{len(first.record.id):,} jobs, simulated under {names}."
    return html_page(title, lead, sections)


def _pictures(result: Result) -> str:
    trace, course = result.trace, result.course()
    time, busy = trace["time"].values.tolist(), trace["busy_nodes"].values
    curves = [
        ("busy nodes", "", busy.tolist(), result.nodes),
        ("waiting jobs", "", trace["waiting_jobs"].values.tolist(), 0),
    ]
    platform = result.platform
    if not result.has_power and platform.active_power:  # the platform's powers for all jobs
        more = busy * (platform.active_power - platform.idle_power)
        watts = platform.idle_power * platform.nodes + more
        curves.append(("power", "kW", (watts / 1000.0).round(3).tolist(), 0))
    over = [job for job in course["jobs"] if job["state"] not in ("running", "waiting")]
    newest = sorted(over, key=lambda job: job["ended"] or 0.0)[-_MOST_JOBS:]
    going_on = [job for job in course["jobs"] if job["state"] in ("running", "waiting")]
    course["jobs"] = going_on[:_MOST_JOBS] + newest
    course["curves"] = [
        {"name": name, "unit": unit, "time": time, "value": value, "top": top}
        for name, unit, value, top in curves
    ]
    policy = f"<details><summary>The policy</summary><pre>{escape(result.policy.to_yaml())}</pre></details>"
    return course_html(course) + _pipelines(result.pipelines) + policy


#: columns of ``pipeline_row``
PIPELINE_HEADS = (
    "pipeline", "policy", "iterations", "partitions", "planned", "simulated", "total",
    "all in situ", "all in transit", "divided once", "at the end",
)  # fmt: skip
_MEANING = (
    "Planned and simulated: seconds of an iteration under the last partition, simulated as a median. The "
    "total is compared to the same iterations with everything in situ, everything in transit (each divided "
    "as well as it could have been, had all been known before), and divided once, from what was declared."
)


def pipeline_row(policy: str, run: PipelineRun) -> list[str]:
    """One pipeline under one policy."""
    planned = run.changes[-1].partition.iteration if run.changes else nan
    others = (run.all_in_situ, run.all_in_transit, run.never_again)
    times = (planned, run.last_iteration, run.total, *others)
    counts = (f"{len(run.iterations):,}", f"{len(run.changes):,}")
    shown = ("-" if seconds != seconds else show_duration(seconds) for seconds in times)
    return [run.name, policy, *counts, *shown, run.layout]


def _pipelines(runs: Sequence[PipelineRun]) -> str:
    """Their table, and of each its iterations as a picture and its partitions with the reasons."""
    if not runs:
        return ""
    # without the policy, and without what is said of each below
    heads, *rows = [
        [row[0], *row[2:-1]] for row in (PIPELINE_HEADS, *(pipeline_row("", run) for run in runs))
    ]
    parts = ["<h3>In situ pipelines</h3>", table(heads, rows), f"<p>{_MEANING}</p>"]
    for run in runs:
        iterations = [
            tell_iteration(one.number, seconds, one.phases, one.partition)
            for one, seconds in zip(run.iterations, run.seconds, strict=True)
            if seconds == seconds  # else the simulation ended before it did
        ]
        reasons = [(str(one.iteration), show_duration(one.time), one.reason) for one in run.changes]
        parts += [
            f"<h4>{escape(run.name)}</h4><p>At the end: {escape(run.layout)}.</p>",
            phases_svg(iterations, {change.iteration: change.reason for change in run.changes}),
            table(("from iteration", "time", "why"), reasons),
        ]
    return "".join(parts)
