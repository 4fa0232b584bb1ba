"""Rows for a person: fitted to a terminal, or one row per line when piped."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from dask_hpc.model.errors import one_line
from dask_hpc.model.units import count_nodes

_ENDLESS = 10_000  # columns of a pipe: a row is never broken, so grep and awk see all of it


def print_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under heads. The first column is never broken or cut."""
    terminal = sys.stdout.isatty()
    cells = [[one_line(str(cell)) for cell in row] for row in rows]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, head in enumerate(heads):
        longest = max(len(word) for word in [head, *(row[number] for row in cells)])
        table.add_column(head, min_width=longest if number == 0 else None, overflow="fold")
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))  # Text: square brackets are no markup
    console = Console(width=None if terminal else _ENDLESS)
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


@contextmanager
def progress_bar(name: str, total: int) -> Iterator[Callable[[int], None] | None]:
    """Yield a function to be told how much is done; None where nobody would see it."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (TextColumn(name), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=total, visible=False)
        began = monotonic()

        def update(done: int) -> None:
            bar.update(task, completed=done, visible=monotonic() - began > 1)

        yield update


_STYLES = {
    "start": "green",
    "grow": "cyan",
    "shrink": "yellow",
    "requeue": "magenta",
    "hold": "yellow",
    "cap": "yellow",
    "give-back": "yellow",
    "corridor": "bold blue",
    "placement": "bold cyan",
    "skipped": "yellow",
    "recovered": "magenta",
    "commit": "bold cyan",
    "recovery": "magenta",
    "agents": "yellow",
    "interval": "cyan",
    "drain": "yellow",
    "store": "yellow",
    "error": "bold red",
    "off": "bold red",
    "refused": "red",
}
_PLACED = ("id", "time", "decision", "job", "nodes", "reason")  # the others get lines of their own
_MOST_NAMES = 6  # of nodes in a line


def story_lines(row: Mapping[str, Any]) -> Iterator[Text]:
    """A row in one line, and each of its further fields (rule, inputs, ...) in one below it."""
    decision = one_line(str(row["decision"]))
    line = Text(f"{row['id']:>6}  {clock(row['time']):>9}  ", style="dim", no_wrap=True)
    line.append(f"{decision:<12}", _STYLES.get(decision, "not dim bold"))
    for part in (row["job"], named_nodes(row["nodes"]), row["reason"]):
        if part:
            line.append("  " + one_line(str(part)), "not dim")
    yield line
    for key, value in row.items():
        if key not in _PLACED and (said := in_words(value)):
            yield Text(f"{'':19}{one_line(key)}: {one_line(said)}", style="dim", no_wrap=True)


def clock(seconds: float) -> str:
    """When something was, since control began: "4.55 s", "1:02:03"."""
    if seconds < 100:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def named_nodes(names: Any) -> str:
    """A count and the first names: "2 nodes: n1, n2"."""
    if not names:
        return ""
    shown = ", ".join(map(str, names[:_MOST_NAMES]))
    more = len(names) - _MOST_NAMES
    return f"{count_nodes(len(names))}: {shown}" + (f" and {more} more" if more > 0 else "")


def in_words(value: Any) -> str:
    """Any plain data as a person would write it down; nothing for nothing."""
    if value is None or value == "":
        return ""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {in_words(one)}" for key, one in value.items())
    if isinstance(value, list | tuple):
        return "; ".join(in_words(one) for one in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)
