"""What the demo of checkpoints shows: the plate, what nodes hold and keep, a summary, and the report."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from dask_hpc.cli.demo_checkpoint import EVERY, NODES, CheckpointDemo
from dask_hpc.cli.demo_seen import live_picture
from dask_hpc.model.units import show_large
from dask_hpc.view import Section, html_page, table
from dask_hpc.view.checkpoint import copies_svg, course_svg
from dask_hpc.view.field import FieldPicture, field_html

_WIDTH = 110
_TOLD = 6  # of the newest decisions
_BAR = 14  # characters of the longest bar
_TOLD_OF = ("commit", "recovery", "agents", "store", "drain", "node-left", "node-joined", "lost", "error")


@contextmanager
def live_view(console: Console, run: CheckpointDemo) -> Iterator[Callable[[], None]]:
    """A picture that changes on a terminal; elsewhere a line for each thing that happens."""
    console.print(
        f"Heat in a plate on {NODES[0]} nodes, a commit every {EVERY} iterations; workers are killed one "
        f"after the other, then all of them; then {NODES[1]} nodes go on. Starting the cluster ..."
    )
    with live_picture(console, lambda: picture(run), run) as update:
        yield update


def picture(run: CheckpointDemo) -> Panel:
    """All of it."""
    if run.field is None:
        return Panel(Text("waiting for the first iteration"), width=_WIDTH)
    top = Table.grid(padding=(0, 3))
    top.add_row(FieldPicture(run.field, *run.bounds), _nodes(run.checkpoint))
    latest = Table.grid(padding=(0, 2))
    rows = [line for line in run.lines() if line[1] in _TOLD_OF]
    for time, what, _, _, why in rows[-_TOLD:]:
        latest.add_row(time, what, Text(why, no_wrap=True, overflow="ellipsis"))
    happened = "; ".join(mark.label for mark in run.marks[-3:])
    body = Group(top, "", Text(happened, "bold red"), "", Text("latest", style="bold"), latest)
    seconds = run.course[-1][0]
    return Panel(body, title=f"{seconds:.0f} s, iteration {run.done} of {run.iterations}", width=_WIDTH)


def _nodes(checkpoint: dict[str, Any] | None) -> Table:
    """Two bars for each node: results that it holds, copies that it keeps."""
    rows = Table.grid(padding=(0, 1))
    if checkpoint is None:
        return rows
    found = [(node["name"], node["own"], sum(node["kept"].values())) for node in checkpoint["nodes"]]
    most = max((size for _, *sizes in found for size in sizes), default=0) or 1
    for name, own, kept in found:
        rows.add_row(f"node {name}", _bar(own, most, "#0072b2"), _bar(kept, most, "#e69f00"))
    rows.add_row("", Text("■ holds", "#0072b2"), Text("■ keeps for others", "#e69f00"))
    return rows


def _bar(size: float, most: float, colour: str) -> Text:
    bar = Text("█" * max(round(_BAR * size / most), bool(size)), colour, no_wrap=True)
    return bar.append(f" {show_large(size, 'B')}" if size else "nothing", "dim")


def print_summary(console: Console, run: CheckpointDemo) -> None:
    """What it came to."""
    for line in summary(run):
        console.print(line, soft_wrap=True, highlight=False)


def summary(run: CheckpointDemo) -> list[str]:
    """In words: what was lost, what came back, what was done twice, whether all was right."""
    killed = sum(not mark.ends for mark in run.marks)
    again = run.ended_at - run.resumed_at
    died, them = ("worker", "it") if killed == 1 else ("workers", "them")
    lines = [
        f"{killed} {died} died; {run.recovered} results that were lost with {them} were loaded from copies "
        "on other nodes, and the program did not notice.",
        f"Everything died after iteration {run.ended_at}. The same program, on {NODES[1]} nodes instead of "
        f"{NODES[0]}, went on from iteration {run.resumed_at}: {again} of {run.iterations} iterations "
        f"{'was' if again == 1 else 'were'} done twice.",
        f"The plate in the end {'is' if run.is_same else 'is NOT'} that of a plain loop to the last bit.",
    ]
    return lines + [line for said in run.stats for line in said.splitlines()]


def report_page(run: CheckpointDemo) -> str:
    """Everything in one HTML page."""
    told = summary(run)
    words = "".join(f"<p>{escape(line)}</p>" for line in told[:3])
    stats = "".join(f"<pre>{escape(said)}</pre>" for said in run.stats)
    moments = "".join(
        '<div style="display:flex;gap:1.2rem;align-items:center;flex-wrap:wrap;margin-bottom:.8rem">'
        f'<figure style="margin:0;flex:1;min-width:12rem">{field_html(one.field, *run.bounds, alt="plate")}'
        f"<figcaption>{escape(one.title)}</figcaption></figure>"
        f'<div style="flex:2;min-width:26rem">{copies_svg(one.checkpoint["nodes"], width=640)}</div></div>'
        for one in run.moments
    )
    happened = [(time, what, why) for time, what, _, _, why in run.lines()]
    return html_page(
        "dask-hpc demo: checkpoints",
        f"Heat in a plate on a live Dask cluster of {NODES[0]} nodes that loses everything, and on one of "
        f"{NODES[1]} nodes that goes on. Cores are played: a task computes, "
        "then waits for as long as a slow core would have taken.",
        [
            Section("How it went", words),
            Section("How far the program was when", course_svg(run.course, run.marks)),
            Section("The plate, and where its copies were", moments),
            Section("What commits cost", stats),
            Section("What happened and why", table(("time", "what", "why"), happened)),
        ],
    )
