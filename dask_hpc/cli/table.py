"""Rows for a person: fitted to a terminal, or one row per line when piped."""

import sys
from collections.abc import Iterable, Sequence

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dask_hpc.model.errors import one_line

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
