"""Runs of batch jobs from what Slurm's ``sacct`` prints, for jobs that ran before there was a history."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from dask_hpc.history.runs import Ended, PastRun, Runs, key_of
from dask_hpc.model.errors import InputError, insist, one_line, shown

#: how to make such a file
COMMAND = "sacct -XP -o JobName,ElapsedRaw,TimelimitRaw,State,Submit,Start,AllocNodes,MaxRSS"
_NEEDED = ("JobName", "ElapsedRaw", "State", "Start", "AllocNodes")

#: the first word of a state, for jobs that are over; of others nothing is known yet
_ENDS: Mapping[str, Ended] = {
    "COMPLETED": "done", "TIMEOUT": "walltime", "DEADLINE": "walltime", "CANCELLED": "killed",
    "FAILED": "killed", "NODE_FAIL": "killed", "BOOT_FAIL": "killed", "OUT_OF_MEMORY": "killed",
    "PREEMPTED": "killed", "REVOKED": "killed",
}  # fmt: skip
_NOT_OVER = frozenset(
    ("PENDING", "RUNNING", "SUSPENDED", "REQUEUED", "RESIZING", "CONFIGURING", "COMPLETING", "STOPPED")
)
_SCALES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}


class Imported(NamedTuple):
    """``runs`` by the key of their jobs; how many lines were left out: of jobs that never ran or still do."""

    runs: Runs
    left_out: int


def read_sacct(path: Path) -> Imported:
    """A whole file, with its line of heads. Complaints name the file, the line and the column; a column
    ``User``, if there is one, tells jobs of different users apart."""
    runs: Runs = {}
    left_out = 0
    file = one_line(str(path))
    try:
        lines = _lines(path)
        first = next(lines, (1, ""))[1]
        heads = first.split("|")
        missing = [name for name in _NEEDED if name not in heads]
        insist(not missing, "line 1", first, f"columns {', '.join(_NEEDED)} of {COMMAND}")
        for number, line in lines:
            try:
                found = _run(heads, line)
            except InputError as error:
                raise error.at(f"line {number}") from None
            if found is None:
                left_out += 1
            else:
                runs.setdefault(found[0], []).append(found[1])
    except InputError as error:
        raise error.in_file(file) from None
    return Imported(runs, left_out)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that say something, numbered from 1."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line.rstrip("\r\n")
    except OSError as error:
        raise InputError("", f"cannot be read: {error.strerror or error}") from None


def _run(heads: list[str], line: str) -> tuple[str, PastRun] | None:
    words = line.split("|")
    if len(words) > len(heads) and heads[0] == "JobName":  # a name may have bars in it
        extra = len(words) - len(heads) + 1
        words = ["|".join(words[:extra]), *words[extra:]]
    if len(words) != len(heads):
        raise InputError("", f"{len(words)} columns", f"{len(heads)}, as in line 1")
    row = dict(zip(heads, words, strict=True))
    state = row["State"].partition(" ")[0]  # "CANCELLED by 1000"
    if state in _NOT_OVER:
        return None
    insist(state in _ENDS, "State", row["State"], f"{', '.join(_ENDS)}, or of a job that is not over")
    seconds, nodes = _number(row, "ElapsedRaw"), _number(row, "AllocNodes")
    if not seconds or not nodes or row["Start"] in ("Unknown", "None", ""):
        return None  # it was cancelled before it ran
    name = row["JobName"]
    insist(bool(name.strip()), "JobName", name, "a name")
    run = PastRun(
        nodes=nodes,
        seconds=seconds,
        ended=_ENDS[state],
        when=_time(row, "Start") + seconds,
        peak_bytes=_bytes(row, "MaxRSS") if row.get("MaxRSS") else None,
    )
    return key_of(name, row.get("User", "")), run


def _number(row: Mapping[str, str], column: str) -> float:
    word = row[column]
    fine = word.isascii() and word.isdigit() and len(word) <= 8  # up to three years, or a great many nodes
    insist(fine, column, word, "a whole number of at most 8 digits")
    return float(word)


def _time(row: Mapping[str, str], column: str) -> float:
    try:
        found = datetime.fromisoformat(row[column]).timestamp()
    except (ValueError, OverflowError, OSError):
        found = -1.0
    insist(0 <= found < 1e12, column, row[column], "a time such as 2026-03-01T12:00:00")
    return found


def _bytes(row: Mapping[str, str], column: str) -> float | None:
    word = row[column]
    scale = _SCALES.get(word[-1:] if word[-1:].isalpha() else "")
    try:
        found = float(word[:-1] if word[-1:].isalpha() else word) * (scale or 0)
    except ValueError:
        found = -1.0
    if scale is None or not 0 <= found < 1e20:
        raise InputError(column, f"found {shown(word)}", "a size such as 120K or 1.5G")
    return found or None
