"""What the demo shows: live progress in the terminal, a summary, and the HTML report."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from html import escape

from rich.console import Console, Group
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dask_hpc.cli.demo_run import NODES, PIECES, Demo
from dask_hpc.cli.demo_seen import live_picture
from dask_hpc.model.units import show_duration
from dask_hpc.view import Held, Section, gantt_svg, html_page, table

_COLOURS = dict(
    zip((piece.name for piece in PIECES), ("blue", "yellow", "red", "green", "cyan"), strict=True)
)
_HEADS = ("job", "nodes", "priority", "submitted", "started", "predicted", "ended", "sizes it had")
_SIZES = ("start", "grow", "shrink")


@contextmanager
def live_view(console: Console, run: Demo) -> Iterator[Callable[[], None]]:
    """A picture that changes on a terminal; elsewhere a line for each thing that happens."""
    console.print(
        f"Four nodes, {len(PIECES)} jobs, policy [bold]{run.policy.name}[/]. Starting the cluster ..."
    )
    with live_picture(console, lambda: _picture(run), run) as update:
        yield update


def print_summary(console: Console, run: Demo) -> None:
    """What happened to each job, beside what the simulator had predicted; and what became of the tasks."""
    title = "What happened, and what the simulator had predicted (it knew of no hold and no node that leaves)"
    shown = Table(title=title, title_justify="left")
    for head in _HEADS:
        shown.add_column(head, justify="left" if head in ("job", "sizes it had") else "right")
    for row in _comparison(run):
        shown.add_row(*row)
    console.print(shown)
    console.print(_tally(run), soft_wrap=True)


def report_page(run: Demo) -> str:
    """The run as one HTML page."""
    rename = {name: f"node {i}" for i, name in enumerate(run.nodes)}
    held = [_renamed(one, rename) for one in run.held]
    predicted = [_renamed(one, {str(i): f"node {i}" for i in range(NODES)}) for one in run.predicted.held]
    end = max(one.end for one in [*held, *predicted])
    nodes = [f"node {i}" for i in range(max(NODES, len(run.nodes)))]
    events = [(show_duration(at), what) for at, what in run.events]
    return html_page(
        f"{len(PIECES)} jobs on four nodes under {run.policy.name}",
        f"A run of dask-hpc demo on a live Dask cluster. {_tally(run)}",
        [
            Section("Who held which node", gantt_svg(held, nodes, end)),
            Section("What was done to the cluster meanwhile", table(("time", "what"), events)),
            Section("What the simulator had predicted", gantt_svg(predicted, nodes[:NODES], end)),
            Section("Jobs", table(_HEADS, _comparison(run))),
            Section("What happened and why", table(("time", "what", "job", "nodes", "why"), run.lines())),
            Section("The policy", f"<pre>{escape(run.policy.to_yaml())}</pre>"),
        ],
    )


def _tally(run: Demo) -> str:
    tally = run.tally
    return (
        f"{tally.done} of {tally.submitted} tasks done in {show_duration(run.now)}, every result checked: "
        f"{tally.submitted - tally.right} lost or wrong, {tally.executed - tally.submitted} executed twice; "
        f"{run.count('shrink')} shrinks and {run.count('grow')} growths on the way."
    )


def _renamed(one: Held, names: dict[str, str]) -> Held:
    return replace(one, nodes=[names.get(node, node) for node in one.nodes])


def _picture(run: Demo) -> Panel:
    names = run.names
    holds = {one["worker"] for one in run.status["holds"]}
    there = {node["name"]: node for node in run.status["nodes"]}
    nodes = Table.grid(padding=(0, 2))
    for index, name in enumerate(run.nodes):
        if name not in there:
            nodes.add_row(f"node {index}", Text(" gone         ", style="dim"))
            continue
        job = names.get(there[name]["job"], "")
        bar = Text(f" {job or 'idle':<13}", style=f"black on {_COLOURS[job]}" if job else "dim")
        held = "held: starts nothing more" if holds.intersection(there[name]["workers"]) else ""
        nodes.add_row(f"node {index}", bar, held)
    waiting = Table.grid(padding=(0, 2))
    for row in run.status["jobs"]:
        if row["state"] == "waiting":
            why = Text(run.named(row["waiting_because"]))
            waiting.add_row(Text(row["name"], style=_COLOURS[row["name"]]), why)
    latest = Table.grid(padding=(0, 2))
    for line in run.lines()[-8:]:
        latest.add_row(*line)
    heading = [Text(word, style="bold") for word in ("waiting", "latest")]
    progress = ProgressBar(total=run.tally.submitted, completed=run.tally.done)
    body = Group(nodes, "", heading[0], waiting, "", heading[1], latest, "", progress)
    return Panel(body, title=f"{run.now:.0f} s", width=110)


def _comparison(run: Demo) -> list[tuple[str, ...]]:
    predicted = run.predicted.jobs.set_index("id")["start"]
    pieces = {piece.name: piece for piece in PIECES}

    def clock(time: float | None) -> str:
        return "-" if time is None else f"{time - run.zero:.1f} s"

    def sizes(job: str) -> str:
        return ", ".join(
            str(len(r["nodes"])) for r in run.story if r["job"] == job and r["decision"] in _SIZES
        )

    return [
        (
            job["name"],
            f"{job['min_nodes']}-{job['max_nodes']}" if job["kind"] == "malleable" else str(job["asks"]),
            f"{pieces[job['name']].priority:g}",
            clock(job["submitted"]),
            clock(job["started"]),
            f"{predicted[job['name']]:.1f} s",
            clock(job["ended"]),
            sizes(job["id"]),
        )
        for job in run.status["jobs"]
    ]
