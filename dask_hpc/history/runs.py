"""Runs of jobs by name: what is remembered of each, and what follows from them for the next one."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from threading import Lock
from typing import Any, Literal, get_args

from dask_hpc.data_file import LIMIT, DataFile, data_path, keep_newest
from dask_hpc.model.errors import is_number
from dask_hpc.model.job import Job, stretch

Ended = Literal["done", "walltime", "killed"]
_ENDS: tuple[Ended, ...] = get_args(Ended)

_FORMAT = "dask-hpc run history 1"
_NAMES, _RUNS = 1000, 200  # jobs by name, and runs of each, that are kept: the newest
_MOST_NODES, _LONGEST = 1e8, 1e12  # nodes and seconds that are believed


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """One run of a job. ``nodes`` is the mean over its time; ``ended`` says whether it was done, or cut off
    by its walltime or by somebody: then it would have taken longer. What is not known is None."""

    nodes: float
    seconds: float
    ended: Ended = "done"
    #: when it ended, by the system's clock
    when: float = 0.0
    #: seconds of its work that its newest checkpoint held at its end
    saved_seconds: float | None = None
    #: the most memory that one of its processes used
    peak_bytes: float | None = None
    #: seconds of its time that it read and wrote
    io_seconds: float | None = None
    #: what a commit and a restore took: seconds, bytes
    commit: tuple[float, float] | None = None
    restore: tuple[float, float] | None = None
    #: of a batch job: the walltime it asked for, and how long it waited in the queue
    requested: float | None = None
    waited: float | None = None

    def __post_init__(self) -> None:
        fine = is_number(self.nodes, 1e-6, _MOST_NODES) and is_number(self.seconds, 1e-9, _LONGEST)
        fine = fine and self.ended in _ENDS and is_number(self.when, 0, _LONGEST)
        others = (self.saved_seconds, self.peak_bytes, self.io_seconds, self.requested, self.waited)
        for one in (*others, *(self.commit or ())):
            fine = fine and (one is None or is_number(one, 0, 1e20))
        if not fine or not all(is_number(one, 0, 1e20) for one in self.restore or ()):
            raise ValueError(f"no run: {self}")

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "PastRun":
        """From a row of the file. Raises any of the errors of wrong data."""
        pairs = {key: _pair(row[key]) for key in ("commit", "restore") if row.get(key) is not None}
        return cls(**{**row, **pairs})

    def as_row(self) -> dict[str, Any]:
        """What is known, as plain data."""
        return {key: value for key, value in asdict(self).items() if value is not None}


def _pair(found: Any) -> tuple[float, float]:
    seconds, nbytes = found
    return float(seconds), float(nbytes)


#: by the key of a job, oldest first
Runs = dict[str, list[PastRun]]


def key_of(name: str, user: str) -> str:
    """Under which jobs are remembered: two users may mean different things by one name."""
    return f"{user}/{name}" if user else name


def default_path() -> Path:
    """In the user's data directory."""
    return data_path("runs.json")


def durations_of(runs: Iterable[PastRun]) -> tuple[list[float], list[float]]:
    """Seconds of the runs that were done, and of those that were cut off, as they come."""
    done: list[float] = []
    cut: list[float] = []
    for run in runs:
        (done if run.ended == "done" else cut).append(run.seconds)
    return done, cut


def path_of(setting: str | None) -> Path | None:
    """The file that a setting names; None for none."""
    if setting is None:
        return None
    return default_path() if setting == "default" else Path(setting)


class RunHistory:
    """What is known of past runs. ``read``, ``write`` and ``forget`` may block, so they may be called in
    another thread; nothing else touches the disk."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.runs: Runs = {}
        self._news: Runs = {}
        self._lock = Lock()

    @property
    def is_due(self) -> bool:
        """Whether there is something to write."""
        return self.path is not None and bool(self._news)

    def note(self, key: str, run: PastRun) -> None:
        """A job has run."""
        self.add({key: [run]})

    def add(self, found: Runs) -> None:
        """Jobs have run, perhaps long ago."""
        with self._lock:
            for runs in (self.runs, self._news):
                _merge(runs, found)

    def durations(self, key: str) -> tuple[list[float], list[float]]:
        """Seconds of the runs that were done, and of those that were cut off, oldest first."""
        return durations_of(self.runs.get(key, ()))

    def find(self, name: str, user: str) -> list[PastRun]:
        """Runs of the jobs of that name: those of the user, or if there are none, those of nobody's."""
        return self.runs.get(key_of(name, user)) or self.runs.get(name) or []

    def durations_on(self, key: str, job: Job) -> tuple[list[float], list[float]]:
        """The same, brought to the job's start nodes."""
        runs = self.runs.get(key, ())
        return durations_of([replace(run, seconds=_on_start_nodes(run, job)) for run in runs])

    def recorded(self, key: str, job: Job) -> float | None:
        """Seconds that runs which were done took, brought to the job's start nodes: their median. None if
        there is none."""
        done = [run for run in self.runs.get(key, ()) if run.ended == "done"]
        return median(_on_start_nodes(run, job) for run in done) if done else None

    def io_share(self, key: str) -> float | None:
        """The share of their time that runs read and wrote: of the newest that knows it."""
        known = (run for run in reversed(self.runs.get(key, ())) if run.io_seconds is not None)
        run = next(known, None)
        return None if run is None or run.io_seconds is None else min(1.0, run.io_seconds / run.seconds)

    def read(self) -> Runs:
        """What the file says; nothing if there is none. Raises ``InputError`` if it makes no sense."""
        found = None if self.path is None else DataFile(self.path, _checked).read()
        return found or {}

    def learn(self, found: Runs) -> None:
        """What ``read`` found is known from now on, beside what was noted since."""
        noted, self.runs = self.runs, found
        _merge(self.runs, noted)

    def write(self) -> None:
        """Add to the file what was noted since the last time. Raises ``OSError``."""
        with self._lock:
            news, self._news = self._news, {}
        if self.path is None or not news:
            return
        try:
            DataFile(self.path, _checked).update(lambda found: _text(_merge(found or {}, news)))
        except OSError:
            with self._lock:
                self._news = _merge(news, self._news)  # perhaps there is room the next time
            raise

    def forget(self, key: str) -> None:
        """Nothing is known of a job any more, in the file neither. Raises ``OSError``."""
        for runs in (self.runs, self._news):
            runs.pop(key, None)

        def without(found: Runs | None) -> str:
            runs = found or {}
            runs.pop(key, None)
            return _text(runs)

        if self.path is not None:
            DataFile(self.path, _checked).update(without)


def _on_start_nodes(run: PastRun, job: Job) -> float:
    if job.speedup is None:
        return run.seconds * run.nodes / job.nodes
    return run.seconds * stretch(job, max(1, round(run.nodes)), job.nodes)


def _merge(runs: Runs, newer: Mapping[str, Iterable[PastRun]]) -> Runs:
    """What is known of both sides counts once (of an array of batch jobs several runs may look the same), and
    the oldest are forgotten."""
    for key, found in newer.items():
        together = (Counter(runs.get(key, ())) | Counter(found)).elements()
        runs[key] = sorted(together, key=lambda run: run.when)[-_RUNS:]
    keep_newest(runs, _NAMES, lambda found: found[-1].when)
    return runs


def _text(runs: Runs) -> str:
    """As JSON, of the runs as many as there is room for: the newest."""
    while True:
        jobs = {key: [run.as_row() for run in found] for key, found in runs.items()}
        text = json.dumps({"format": _FORMAT, "jobs": jobs})
        if len(text) <= LIMIT:  # the text is ASCII
            return text
        ends = sorted(run.when for found in runs.values() for run in found)
        oldest = ends[len(ends) // 4]
        kept = {key: [run for run in found if run.when > oldest] for key, found in runs.items()}
        runs = {key: found for key, found in kept.items() if found}


def _checked(found: Any) -> Runs:
    if found["format"] != _FORMAT:
        raise ValueError
    runs = {key: [PastRun.of(row) for row in rows] for key, rows in found["jobs"].items() if rows}
    for rows in runs.values():
        rows.sort(key=lambda run: run.when)
        del rows[:-_RUNS]
    return _merge(runs, {})
