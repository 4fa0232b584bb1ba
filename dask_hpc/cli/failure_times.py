"""Times of failures, from text: one to a line, as seconds or as a date; or a table with a heading that names
its column ``time`` or ``start``. What follows a ``#`` is a comment."""

import csv
from collections.abc import Iterator
from datetime import UTC, datetime
from math import isfinite

from dask_hpc.model.errors import InputError, shown

_COLUMNS = ("time", "start")
_ALLOWED = "seconds, or a date such as 2026-03-01T12:00:00"


def read_failure_times(text: str) -> list[float]:
    """Seconds, as they stand there: of dates, those since 1970, and one that names no zone is UTC. Raises
    ``InputError``, which names the line."""
    column: int | None = None
    found: list[float] = []
    dated: bool | None = None
    for line, cells in _rows(text):
        if column is None:
            names = [cell.lower() for cell in cells]
            column = next((names.index(name) for name in _COLUMNS if name in names), None)
            if column is not None:
                continue
            if len(cells) > 1:
                raise InputError(f"line {line}", "a table without a heading", "a column time or start")
            column = 0
        if column >= len(cells):
            raise InputError(f"line {line}", f"has {len(cells)} columns", f"{column + 1} or more")
        seconds, is_date = _moment(cells[column], f"line {line}")
        if dated not in (None, is_date):
            raise InputError(f"line {line}", f"found {shown(cells[column])}", "all seconds, or all dates")
        dated = is_date
        found.append(seconds)
    return found


def _rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """The lines that say something, with their numbers."""
    for number, line in enumerate(text.splitlines(), 1):
        said = line.partition("#")[0].strip()
        if not said:
            continue
        try:
            (cells,) = csv.reader([said])
        except (csv.Error, ValueError) as error:
            raise InputError(f"line {number}", str(error), _ALLOWED) from None
        yield number, [cell.strip() for cell in cells]


def _moment(word: str, where: str) -> tuple[float, bool]:
    """Seconds, and whether they were written as a date."""
    try:
        seconds = float(word)
    except ValueError:
        pass
    else:
        if not isfinite(seconds) or "_" in word:
            raise InputError(where, f"found {shown(word)}", _ALLOWED)
        return seconds, False
    try:
        date = datetime.fromisoformat(word)
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp(), True
    except (ValueError, OverflowError):
        raise InputError(where, f"found {shown(word)}", _ALLOWED) from None
