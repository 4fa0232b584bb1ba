"""Simulation results as one self-contained HTML page."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any

from dask_hpc.model.plan import Plan, Resize, Start
from dask_hpc.model.units import count_nodes, show_duration, show_large
from dask_hpc.simulator.in_situ.run import pipelines_html
from dask_hpc.simulator.result import METRICS, Result, shown_metric
from dask_hpc.view import Section, html_page, table
from dask_hpc.view.page import Curve, Kind, Mark, power_curve, timeline_html, timeline_script

#: rows of the decision table; a browser shows no more of them with pleasure
_MOST_DECISIONS = 2_000
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
        sections.append(
            Section(result.policy.name, timeline_script() * (result is first) + _pictures(result))
        )
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
    trace = result.trace
    time, busy = trace["time"].values.tolist(), trace["busy_nodes"].values
    held = result.held
    end = max((one.end for one in held), default=1.0)
    curves = [
        Curve("busy nodes", "", time, busy.tolist(), float(result.nodes)),
        Curve("waiting jobs", "", time, trace["waiting_jobs"].values.tolist()),
    ]
    if result.has_power:
        curves.insert(0, _power_curve(result))
    elif result.platform.active_power:
        curves.append(Curve("power", "kW", time, (_power(result, busy) / 1000.0).tolist()))
    policy = f"<details><summary>The policy</summary><pre>{escape(result.policy.to_yaml())}</pre></details>"
    pipelines = pipelines_html(result.pipelines)
    return timeline_html(held, result.nodes, end, curves) + pipelines + _decisions(result) + policy


def _power_curve(result: Result) -> Curve:
    """As it was followed, with the corridor and what was done about it."""
    power = result.power
    time = power.time.tolist()
    bounds = zip(time, power.lower.tolist(), power.upper.tolist(), strict=True)
    return power_curve(
        time,
        power.watts.tolist(),
        band=list(bounds) if power.has_corridor else (),
        outside=power.violations,
        marks=list(_marks(result)),
    )


def _marks(result: Result) -> Iterator[Mark]:
    """What was done for the sake of power."""
    sizes: dict[str, int] = {}
    for plan in result.story:
        changes: tuple[Start | Resize, ...] = (*plan.starts, *plan.resizes)
        for one in changes:
            before = sizes.get(one.job, 0) if isinstance(one, Resize) else 0
            sizes[one.job] = one.nodes
            if one.job in plan.for_power:
                kind: Kind = "more" if one.nodes > before else "less"
                change = (
                    f"from {before} to {count_nodes(one.nodes)}" if before else f"on {count_nodes(one.nodes)}"
                )
                yield Mark(plan.time, kind, f"{one.job} {change}: {one.reason}")
        for decision, _, reason in _levers(plan):
            yield Mark(plan.time, "hold" if decision == "hold" else "other", f"{decision}: {reason}")


def _levers(plan: Plan) -> Iterator[tuple[str, str, str]]:
    """What else a plan says about power: decision, nodes, reason."""
    if plan.hold is not None:
        yield "hold", str(plan.hold.nodes), plan.hold.reason
    if plan.cap is not None:
        watts = "" if plan.cap.watts is None else f", {show_large(plan.cap.watts, 'W')} a node"
        yield "cap", "-", f"{plan.cap.threads:.0%} of the threads{watts}: {plan.cap.reason}"
    if plan.release is not None:
        yield "give-back", str(plan.release.nodes), plan.release.reason
    if plan.verdict is not None:
        yield "corridor", "-", str(plan.verdict)


def _power(result: Result, busy: Any) -> Any:
    """Watts, with the platform's powers for all jobs."""
    platform = result.platform
    return platform.idle_power * platform.nodes + busy * (platform.active_power - platform.idle_power)


def _decisions(result: Result) -> str:
    rows = []
    for plan in result.story:
        when = show_duration(plan.time)
        rows += [(when, "interrupt", one.job, "-", one.reason) for one in plan.interrupts]
        rows += [(when, "start", one.job, str(one.nodes), one.reason) for one in plan.starts]
        rows += [(when, "resize", one.job, str(one.nodes), one.reason) for one in plan.resizes]
        rows += [(when, decision, "-", nodes, reason) for decision, nodes, reason in _levers(plan)]
    rows += [(show_duration(h.time), h.decision, h.job, "-", h.reason) for h in result.story.happenings]
    left_out = len(rows) - _MOST_DECISIONS
    note = f"<p>The first {left_out:,} decisions are left out.</p>" if left_out > 0 else ""
    shown = table(("time", "decision", "job", "nodes", "why"), rows[-_MOST_DECISIONS:])
    return f"<details><summary>{len(rows):,} decisions and their reasons</summary>{note}{shown}</details>"
