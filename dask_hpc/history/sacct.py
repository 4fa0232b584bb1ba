"""Runs of batch jobs from what Slurm's ``sacct`` prints, for jobs that ran before there was a history."""

import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from getpass import getuser
from pathlib import Path
from typing import NamedTuple

from dask_hpc.history.runs import Ended, PastRun, Runs, key_of
from dask_hpc.model.errors import InputError, insist, one_line, shown, within

#: how to make such a file
COMMAND = "sacct -XP -o JobName,User,ElapsedRaw,TimelimitRaw,State,Submit,Eligible,Start,AllocNodes,MaxRSS"
_PATIENCE = 300.0  # seconds that the accounting's data base may take: months of jobs are many
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
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return _read(_numbered(file))
    except OSError as error:
        raise InputError("", f"cannot be read: {error.strerror or error}", file=one_line(str(path))) from None
    except InputError as error:
        raise error.in_file(one_line(str(path))) from None


def ask_sacct(seconds: float) -> Imported:
    """What Slurm's accounting knows of the own jobs that ran in so many last seconds. Raises ``InputError``
    if it cannot be asked. May take minutes."""
    since = datetime.fromtimestamp(max(0.0, datetime.now().timestamp() - seconds))
    command = [*COMMAND.split(), "-u", getuser(), "-S", f"{since:%Y-%m-%dT%H:%M:%S}"]
    where, allowed = "sacct", "a machine where Slurm keeps accounts, or a FILE of what sacct printed"
    environment = {name: value for name, value in os.environ.items() if name != "SLURM_TIME_FORMAT"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", env=environment, timeout=_PATIENCE
        )
    except FileNotFoundError:
        raise InputError(where, "there is no such command here", allowed) from None
    except (OSError, subprocess.SubprocessError) as error:
        raise InputError(where, f"cannot be asked: {error}", allowed) from None
    if done.returncode:
        said = done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
        raise InputError(where, f"it says {shown(said.splitlines()[0], 200)}", allowed)
    with within(where):
        return _read(_numbered(done.stdout.splitlines()))


def _read(lines: Iterator[tuple[int, str]]) -> Imported:
    runs: Runs = {}
    left_out = 0
    first = next(lines, (1, ""))[1]
    heads = first.split("|")
    missing = [name for name in _NEEDED if name not in heads]
    insist(not missing, "line 1", first, f"columns {', '.join(_NEEDED)} of {COMMAND}")
    for number, line in lines:
        with within(f"line {number}"):
            found = _run(heads, line)
        if found is None:
            left_out += 1
        else:
            runs.setdefault(found[0], []).append(found[1])
    return Imported(runs, left_out)


def _numbered(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """The lines that say something, numbered from 1."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield number, line.rstrip("\r\n")


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
    start = _time(row, "Start")
    run = PastRun(
        nodes=nodes,
        seconds=seconds,
        ended=_ENDS[state],
        when=start + seconds,
        peak_bytes=_bytes(row, "MaxRSS") if row.get("MaxRSS") else None,
        requested=_limit(row),
        waited=_waited(row, start),
    )
    return key_of(name, row.get("User", "")), run


def _limit(row: Mapping[str, str]) -> float | None:
    """Seconds; None if the column is not there, or there was no limit of the job's own."""
    word = row.get("TimelimitRaw", "")
    return 60 * _number(row, "TimelimitRaw") if word.isdigit() else None


def _waited(row: Mapping[str, str], start: float) -> float | None:
    """Seconds in the queue, since nothing else held the job back if that is known. None if nobody knows."""
    for column in ("Eligible", "Submit"):
        if row.get(column, "") not in ("Unknown", "None", ""):
            waited = start - _time(row, column)
            return waited if waited >= 0 else None  # clocks were put back
    return None


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
