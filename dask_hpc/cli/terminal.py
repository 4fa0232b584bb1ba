"""What commands print: rows for a person, fitted to a terminal, or one row per line when piped; JSON for a
program; how far it is."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from dask_hpc.model.errors import one_line
from dask_hpc.model.units import finite

_ENDLESS = 10_000  # columns of a pipe: a row is never broken, so grep and awk see all of it


def print_table(heads: Sequence[str], rows: Iterable[Sequence[object]], err: bool = False) -> None:
    """Print rows under heads. The first column is never broken or cut."""
    terminal = (sys.stderr if err else sys.stdout).isatty()
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
        click.echo(line.rstrip(), err=err)


def print_json(data: Any) -> None:
    """Print plain data; what is no finite number is null."""
    click.echo(json.dumps(finite(data), indent=2))


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
