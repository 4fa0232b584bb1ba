"""What the demo of a pipeline shows: the field, who computes what where, times; a summary, and the report."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from statistics import mean
from typing import Any

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from dask_hpc.cli.demo_in_situ import CORES, NODES, SLOWER, InSituDemo, Rival
from dask_hpc.cli.demo_seen import live_picture
from dask_hpc.examples import heat
from dask_hpc.model.in_situ import hear_partition
from dask_hpc.model.units import show_duration
from dask_hpc.view import Section, html_page, table
from dask_hpc.view.field import FieldPicture, field_html
from dask_hpc.view.in_situ import COLOURS, NAMES, heard, partition_svg, phases_svg
from dask_hpc.view.terminal import IterationBars

_MADE_UP = "Cores are played: a task computes, then waits for as long as a slow core would have taken."
_COLUMNS = "display:grid;grid-template-columns:repeat(auto-fit,minmax(24rem,1fr));gap:1rem 2rem"
_WIDTH = 110
_TOLD = 5  # of the newest decisions
_BAR = 16  # characters of the longest phase


@contextmanager
def live_view(console: Console, run: InSituDemo) -> Iterator[Callable[[], None]]:
    """A picture that changes on a terminal; elsewhere a line for each thing that happens."""
    console.print(
        f"Heat in a plate, {len(heat.ANALYSES)} analyses of every step, {NODES} nodes of {CORES} cores, "
        f"policy [bold]{run.policy.name}[/]. {_MADE_UP} Starting the cluster ..."
    )
    with live_picture(console, lambda: picture(run), run) as update:
        yield update


def picture(run: InSituDemo) -> Panel:
    """All of it."""
    status = run.pipeline
    if status is None or run.field is None:
        return Panel(Text("waiting for the first iteration"), width=_WIDTH)
    top = Table.grid(padding=(0, 3))
    top.add_row(
        FieldPicture(run.field, *run.bounds),
        Group(_grid(status), "", _analyses(run, status), "", _bars(status)),
    )
    latest = Table.grid(padding=(0, 2))
    for time, what, _, _, why in run.lines()[-_TOLD:]:
        latest.add_row(time, what, why)
    body = Group(top, "", IterationBars(run.history, run.changes), "", Text("latest", style="bold"), latest)
    mode = f", {status['partition']['mode']}" if status["partition"] else ""
    of = "" if status["iterations"] is None else f" of {status['iterations']}"
    return Panel(body, title=f"{run.now:.0f} s, iteration {status['iteration']}{of}{mode}", width=_WIDTH)


def _grid(status: Mapping[str, Any]) -> Table:
    """A row for every node, a block for every core."""
    rows = Table.grid(padding=(0, 2))
    for number in range(len(status["nodes"])):
        row = Text(no_wrap=True)
        for part in core_parts(status, number):
            row.append("■ ", COLOURS[part])
        rows.add_row(f"node {number}", row)
    legend = Text(no_wrap=True)
    for part, colour in COLOURS.items():
        legend.append("■ ", colour)
        legend.append(f"{NAMES[part]}  ", "dim")
    rows.add_row("", legend)
    return rows


def core_parts(status: Mapping[str, Any], node: int) -> list[str]:
    """What each core of a node is for. In sync mode all of a simulation node's cores do both, by turns."""
    partition, cores = status["partition"], status["cores"]
    if partition is None:
        return ["simulation"] * cores
    if node >= partition["nodes"]:
        return ["in_transit"] * cores
    helpers = round(partition["helper_cores"])
    return ["simulation"] * (cores - helpers) + ["in_situ"] * helpers


def _analyses(run: InSituDemo, status: Mapping[str, Any]) -> Table:
    """Where each of them runs, and what it found last."""
    rows = Table.grid(padding=(0, 2))
    for name in status["analyses"]:
        where = place_of(status, name)
        place = Text(NAMES[where], COLOURS[where]) if where else Text("not placed yet", "dim")
        found = Text(run.found.get(name, ""), no_wrap=True)
        if name == run.slow:
            found = Text(f"{SLOWER:g}x slower", "bold red", no_wrap=True)
        rows.add_row(name, place, found)
    return rows


def place_of(status: Mapping[str, Any], name: str) -> str:
    """The part of the machine where an analysis runs; empty before anything was decided."""
    for part in ("in_situ", "in_transit"):
        if status["partition"] is not None and name in status["partition"][part]:
            return part
    return ""


def _bars(status: Mapping[str, Any]) -> Table:
    """How long each part took last, and what was planned."""
    rows = Table.grid(padding=(0, 2))
    if not status["history"]:
        return rows
    last = status["history"][-1]
    planned = last["planned"] or {}
    longest = max(last["seconds"], *last["measured"].values(), *planned.values()) or 1.0

    def add(name: str, colour: str, seconds: float, plan: float | None) -> None:
        bar = Text("█" * round(_BAR * seconds / longest), colour)
        bar.append(" " * (_BAR - len(bar)))
        said = "" if plan is None else f"planned {show_duration(plan)}"
        rows.add_row(name, bar, show_duration(seconds), Text(said, "dim"))

    for part, colour in COLOURS.items():
        add(NAMES[part], colour, last["measured"][part], planned.get(part))
    add("iteration", "default", last["seconds"], last["expected"])
    return rows


def print_summary(console: Console, run: InSituDemo) -> None:
    """The iterations of the whole run, and what it came to."""
    console.print(IterationBars(run.history, run.changes))
    for line in summary(run):
        console.print(line, soft_wrap=True, highlight=False)


def summary(run: InSituDemo) -> list[str]:
    """In words: whether all was right, how good the plan was, and what was gained."""
    right = run.checked - run.wrong
    lines = [
        f"{right} of {run.done} iterations have the results of a plain serial loop to the last bit, and so "
        f"{'has' if run.is_same else 'has not'} the plate in the end.",
    ]
    if run.slow:
        changes = [f"From iteration {at} on: {why}." for at, why in run.changes.items() if at > run.slow_from]
        said = f"At iteration {run.slow_from}, {run.slow} became {SLOWER:g} times slower."
        lines += [said, *changes] if changes else [f"{said} Nothing was divided anew."]
    lines += [f"{said}, {_error(rows)}" for said, rows in run.spells if rows]
    if (ours := run.ours) is not None:
        lines += [_beside(rival, ours) for rival in run.rivals]
    return lines


def _beside(rival: Rival, ours: float) -> str:
    share = 1 - ours / rival.seconds
    return (
        f"With {rival.name}, divided as well as can be, it takes {show_duration(rival.seconds)}: "
        f"as it was divided here, {abs(share):.0%} {'less' if share >= 0 else 'more'}."
    )


def _error(rows: Sequence[Mapping[str, Any]]) -> str:
    seconds, expected = (mean(one[name] for one in rows) for name in ("seconds", "expected"))
    return (
        f"an iteration took {show_duration(seconds)} (mean of {len(rows)}), {show_duration(expected)} "
        f"were planned ({seconds / expected - 1:+.0%})."
    )


def report_page(run: InSituDemo) -> str:
    """Everything in one HTML page."""
    words = "".join(f"<p>{escape(line)}</p>" for line in summary(run))
    fields = "".join(
        f'<figure style="margin:0;flex:1;min-width:9rem">{field_html(field, *run.bounds, alt="the plate")}'
        f"<figcaption>iteration {number}</figcaption></figure>"
        for number, field in run.fields
    )
    partitions = "".join(
        f"<div>{partition_svg(hear_partition(one['partition']), NODES, CORES, width=470)}"
        f"<p>From iteration {one['iteration']} on: {escape(one['reason'])}</p></div>"
        for one in run.told_changes
    )
    iterations = phases_svg(heard(run.history), run.changes)
    happened = [(time, what, why) for time, what, _, _, why in run.lines()]
    return html_page(
        "dask-hpc demo: analyses in situ and in transit",
        f"Heat in a plate on {NODES} nodes of {CORES} cores, a live Dask cluster. {_MADE_UP}",
        [
            Section("How it went", words),
            Section("The plate", f'<div style="display:flex;gap:.6rem;flex-wrap:wrap">{fields}</div>'),
            Section("Who computed what where", f'<div style="{_COLUMNS}">{partitions}</div>'),
            Section("Iterations", iterations),
            Section("What happened and why", table(("time", "what", "why"), happened)),
            Section("The policy", f"<pre>{escape(run.policy.to_yaml())}</pre>"),
        ],
    )
