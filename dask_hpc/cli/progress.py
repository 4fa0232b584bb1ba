"""A progress bar on a terminal, once a second has passed."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


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
