"""What the demo of the power corridor shows: a chart and the jobs in the terminal, a summary, a report."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from html import escape
from typing import Any

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from dask_hpc.cli.demo_corridor import INTERVAL, NODES, PIECES, SETTLING, CorridorDemo
from dask_hpc.cli.demo_seen import live_picture
from dask_hpc.model.units import count_nodes, show_bounds, show_duration, show_large
from dask_hpc.view import Section, html_page, table
from dask_hpc.view.page import Kind, Mark, power_curve, timeline_html, timeline_script
from dask_hpc.view.terminal import Line, LineChart

_MADE_UP = "simulated power: no sensor is read"
_COLOURS = dict(zip((piece.name for piece in PIECES), ("blue", "yellow", "green"), strict=True))
_KINDS: Mapping[str, Kind] = {
    "start": "more",
    "grow": "more",
    "shrink": "less",
    "hand-over": "less",
    "hold": "hold",
}
_SIGNS: Mapping[Kind, tuple[str, str]] = {
    "more": ("▲", "green"),
    "less": ("▼", "yellow"),
    "hold": ("‖", "magenta"),
    "other": ("·", "bold"),
}
_TOLD = 6  # of the newest decisions


@contextmanager
def live_view(console: Console, run: CorridorDemo) -> Iterator[Callable[[], None]]:
    """A picture that changes on a terminal; elsewhere a line for each thing that happens."""
    console.print(
        f"{NODES} nodes, {len(PIECES)} malleable jobs, policy [bold]{run.policy.name}[/], {_MADE_UP}. "
        "Starting the cluster ..."
    )
    with live_picture(console, lambda: _picture(run), run) as update:
        yield update


def print_summary(console: Console, run: CorridorDemo) -> None:
    """The chart of the whole run, and how well the corridor was kept."""
    console.print(_chart(run))
    for line in summary(run):
        console.print(line, soft_wrap=True, highlight=False)


def summary(run: CorridorDemo) -> list[str]:
    """In words: how well the corridor was kept, for which price, and what became of the work."""
    settled, tally = run.settled(), run.tally
    inside = sum(one.is_inside for one in settled)
    outside = INTERVAL * sum(not one.is_inside for one in run.points)
    long = {0: "never", 1: "once"}.get(run.violations, f"{run.violations} times")
    return [
        f"The corridor moved twice, once announced and once not. Power ({_MADE_UP}) was inside in "
        f"{inside} of {len(settled)} samples ({inside / max(len(settled), 1):.0%}) after settling, for which "
        f"the start and each move have {SETTLING:.1f} s.",
        f"Outside for {show_duration(outside)} of {show_duration(run.seconds)} in all; "
        f"{long} for longer than a second. Shrinks: {run.count('shrink')}, growths: {run.count('grow')}.",
        f"{tally.done} of {tally.submitted} tasks done, every result checked: "
        f"{tally.submitted - tally.right} lost or wrong, {tally.executed - tally.submitted} executed twice.",
    ]


def report_page(run: CorridorDemo) -> str:
    """Everything in one HTML page."""
    place = {node: str(number) for number, node in enumerate(run.nodes)}
    held = [replace(one, nodes=[place[node] for node in one.nodes]) for one in run.held]
    curve = power_curve(
        [one.time for one in run.points],
        [one.watts for one in run.points],
        band=run.band,
        forecast=[(one.time, *(one.forecast or (one.watts, one.watts))) for one in run.points],
        outside=_outside(run),
        marks=[
            Mark(
                row["time"] - run.zero,
                _kind(row),
                f"{row['decision']} {_job(run, row)}: {run.named(row['reason'])}",
            )
            for row in run.for_power()
        ],
        name=_MADE_UP,
    )
    picture = timeline_script() + timeline_html(held, len(run.nodes), run.seconds, [curve])
    words = "".join(f"<p>{escape(line)}</p>" for line in summary(run))
    heads = ("time", "what", "job", "nodes", "why")
    return html_page(
        "dask-hpc demo: a power corridor that moves",
        f"{count_nodes(len(run.nodes))}, {len(PIECES)} malleable jobs, a live Dask cluster; {_MADE_UP}.",
        [
            Section("How it went", words),
            Section("Nodes and power", picture),
            Section("What happened and why", table(heads, run.lines())),
            Section("The policy", f"<pre>{escape(run.policy.to_yaml())}</pre>"),
        ],
    )


def _outside(run: CorridorDemo) -> Iterator[tuple[float, float]]:
    """From the first sample outside to the next one inside."""
    since = None
    for one in run.points:
        if since is None and not one.is_inside:
            since = one.time
        elif since is not None and one.is_inside:
            yield since, one.time
            since = None
    if since is not None:
        yield since, run.points[-1].time


def _chart(run: CorridorDemo) -> LineChart:
    marks = {row["time"] - run.zero: _SIGNS[_kind(row)] for row in run.for_power()}
    line = Line([one.time for one in run.points], [one.watts for one in run.points])
    return LineChart([line], band=run.band, marks=marks, span=(0.0, run.seconds))


def _picture(run: CorridorDemo) -> Panel:
    now = run.points[-1] if run.points else None
    heading = Text("waiting for the first reading")
    if now is not None:
        heading = Text(f"{show_large(now.watts, 'W')} ", style="bold")
        heading.append(*(("inside", "green") if now.is_inside else ("outside", "bold red")))
        heading.append(f"  the corridor of {show_bounds(now.lower, now.upper, 'W')}", "not bold")
        if now.time >= run.seconds - 0.5:
            heading = Text("The corridor is lifted; what is left runs to its end.")
    verdict = (run.status.get("power") or {}).get("verdict")
    if verdict is not None and not verdict["is_kept"]:
        heading.append(f"  {verdict['reason'] or 'it cannot be kept'}", "red")
    latest = Table.grid(padding=(0, 2))
    for line in run.lines()[-_TOLD:]:
        latest.add_row(*line)
    body = Group(heading, _chart(run), "", _jobs(run), "", Text("latest", style="bold"), latest)
    return Panel(body, title=f"{run.now:.0f} s of {run.seconds:.0f} s, {_MADE_UP}", width=110)


def _jobs(run: CorridorDemo) -> Table:
    """A block for every node that a job holds; why it waits if it does."""
    rows = Table.grid(padding=(0, 2))
    for job in run.status.get("jobs", ()):
        size = len(job["nodes"]) if job["state"] == "running" else 0
        bar = Text("■ " * size, style=_COLOURS[job["name"]])
        bar.append("· " * (NODES - size), "dim")
        more = {"running": count_nodes(size), "done": "done"}.get(job["state"], "waits: ")
        why = run.named(job["waiting_because"] or "") if job["state"] == "waiting" else ""
        rows.add_row(job["name"], bar, more + why)
    return rows


def _kind(row: Mapping[str, Any]) -> Kind:
    return _KINDS.get(row["decision"], "other")


def _job(run: CorridorDemo, row: Mapping[str, Any]) -> str:
    return run.names.get(row["job"], "")
