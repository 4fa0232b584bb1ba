"""What the demo shows: live progress in the terminal, a summary, and the HTML report."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from html import escape

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dask_hpc.cli.demo_run import JOBS, NODES, Demo
from dask_hpc.model.units import show_duration
from dask_hpc.report import Held, Section, gantt_svg, html_page, table

_COLOURS = dict(
    zip((job[0] for job in JOBS), ("blue", "yellow", "green", "magenta", "cyan", "red"), strict=True)
)


@contextmanager
def live_view(console: Console, run: Demo) -> Iterator[Callable[[], None]]:
    """A picture that changes on a terminal; elsewhere a line for each thing that happens."""
    console.print(f"Four nodes, six jobs, policy [bold]{run.policy.name}[/]. Starting the cluster ...")
    if console.is_terminal:
        with Live(console=console, refresh_per_second=8, transient=True) as live:
            yield lambda: live.update(_picture(run))
        return
    told = 0

    def tell() -> None:
        nonlocal told
        lines = _lines(run)
        for line in lines[told:]:
            console.print("  ".join(line), soft_wrap=True, highlight=False)
        told = len(lines)

    yield tell


def print_summary(console: Console, run: Demo) -> None:
    """What happened to each job, beside what the simulator had predicted."""
    rows = _comparison(run)
    shown = Table(title="What happened, and what the simulator had predicted", title_justify="left")
    for head in ("job", "nodes", "submitted", "started", "predicted", "ended", "why then"):
        shown.add_column(head, justify="left" if head in ("job", "why then") else "right")
    for row in rows:
        shown.add_row(*row)
    console.print(shown)
    console.print(f"{run.done} of {run.total} tasks done, every result checked, in {show_duration(run.now)}.")


def report_page(run: Demo) -> str:
    """The run as one HTML page."""
    names = [node["name"] for node in run.status["nodes"]]
    rename = {name: f"node {i}" for i, name in enumerate(names)}
    held = [_renamed(one, rename) for one in run.held]
    predicted = [_renamed(one, {str(i): f"node {i}" for i in range(NODES)}) for one in run.predicted.held]
    rows = [f"node {i}" for i in range(NODES)]
    end = max(one.end for one in [*held, *predicted])
    heads = ("job", "nodes", "submitted", "started", "predicted", "ended", "why then")
    return html_page(
        f"Six jobs on four nodes under {run.policy.name}",
        f"A run of dask-hpc demo on a live Dask cluster of four workers: {run.done} of {run.total} tasks "
        f"done in {show_duration(run.now)}.",
        [
            Section("Who held which node", gantt_svg(held, rows, end)),
            Section("What the simulator had predicted", gantt_svg(predicted, rows, end)),
            Section("Jobs", table(heads, _comparison(run))),
            Section("What happened and why", table(("time", "what", "job", "nodes", "why"), _lines(run))),
            Section("The policy", f"<pre>{escape(run.policy.to_yaml())}</pre>"),
        ],
    )


def _renamed(one: Held, names: dict[str, str]) -> Held:
    return replace(one, nodes=[names.get(node, node) for node in one.nodes])


def _picture(run: Demo) -> Panel:
    nodes = Table.grid(padding=(0, 2))
    names = {job["id"]: job["name"] for job in run.status["jobs"]}
    for index, node in enumerate(run.status["nodes"]):
        job = names.get(node["job"], "")
        bar = Text(
            f" {job:<12}" if job else " idle        ", style=f"black on {_COLOURS[job]}" if job else "dim"
        )
        nodes.add_row(f"node {index}", bar)
    waiting = Table.grid(padding=(0, 2))
    for job in run.status["jobs"]:
        if job["state"] == "waiting":
            waiting.add_row(
                Text(job["name"], style=_COLOURS[job["name"]]), Text(run.named(job["waiting_because"]))
            )
    latest = Table.grid(padding=(0, 2))
    for line in _lines(run)[-6:]:
        latest.add_row(*line)
    body = Group(
        nodes, "", Text("waiting", style="bold"), waiting, "", Text("latest", style="bold"), latest, ""
    )
    return Panel(
        Group(body, ProgressBar(total=run.total, completed=run.done)), title=f"{run.now:.0f} s", width=100
    )


def _lines(run: Demo) -> list[tuple[str, ...]]:
    """Time, what, job, nodes, why: for everything in the story that concerns a job."""
    names = {job["id"]: job["name"] for job in run.status.get("jobs", ())}
    return [
        (
            f"{max(row['time'] - run.zero, 0):.1f} s",
            row["decision"],
            names[row["job"]],
            str(len(row["nodes"])) if row["nodes"] else "-",
            run.named(row["reason"]),
        )
        for row in run.story
        if row["job"] in names
    ]


def _comparison(run: Demo) -> list[tuple[str, ...]]:
    predicted = run.predicted.jobs.set_index("id")["start"]

    def clock(time: float | None) -> str:
        return "-" if time is None else f"{time - run.zero:.1f} s"

    return [
        (
            job["name"],
            str(job["asks"]),
            clock(job["submitted"]),
            clock(job["started"]),
            f"{predicted[job['name']]:.1f} s",
            clock(job["ended"]),
            run.named(job["reason"]),
        )
        for job in run.status["jobs"]
    ]
