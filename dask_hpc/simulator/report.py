"""Simulation results as one self-contained HTML page."""

from collections.abc import Iterable, Sequence
from html import escape

from dask_hpc.simulator.in_situ import pipelines_html
from dask_hpc.simulator.result import METRICS, Result, shown_metric
from dask_hpc.view import Section, course_html, html_page, table

_MOST_JOBS = 200  # that are over, or not, in a table
#: metrics that are only worth a line if they are not zero everywhere
_IF_ANY = {"killed", "cancelled", "rejected", "unfinished", "resizes", "moved_bytes", "restarts",
           "lost_node_hours", "commits", "commit_time", "commit_bytes", "mean_transfer", "placements",
           "iteration", "left_out", "energy"}  # fmt: skip
#: and those that are, if there was something to keep
_IF_THERE = {"violations", "time_outside", "energy_outside"}


def worth_a_line(metric: str, values: Iterable[float]) -> bool:
    """Whether a table should show the metric at all."""
    if metric in _IF_THERE:
        return any(value == value for value in values)
    return metric not in _IF_ANY or any(value and value == value for value in values)


def report_page(results: Sequence[Result]) -> str:
    """A comparison of the policies, then each with its pictures and decisions. The results must have
    been recorded with ``allotments=True``."""
    first = results[0]
    sections = [Section("Comparison", _comparison(results))]
    for result in results:
        sections.append(Section(result.policy.name, _pictures(result)))
    title = f"{first.workload} on {first.nodes:,} nodes"
    names = ", ".join(result.policy.name for result in results)
    lead = f"{len(first.record.id):,} jobs, simulated under {names}."
    return html_page(title, lead, sections)


def _comparison(results: Sequence[Result]) -> str:
    heads = ["metric", *(result.policy.name for result in results), "meaning"]
    rows = [
        [
            name.replace("_", " "),
            *(shown_metric(name, result.metrics[name]) for result in results),
            METRICS[name][1],
        ]
        for name in sorted(METRICS, key=lambda name: name not in _IF_THERE)  # what was asked for goes first
        if worth_a_line(name, (result.metrics[name] for result in results))
    ]
    return table(heads, rows)


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
    return course_html(course) + pipelines_html(result.pipelines) + policy
