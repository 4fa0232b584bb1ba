"""Power of jobs, per node: as measured, as their users said, or as jobs of that name drew before."""

import asyncio
import json
from collections.abc import Container, Mapping
from pathlib import Path
from time import time
from typing import Any

from dask_hpc.cluster.scheduler.service import Context
from dask_hpc.cluster.worker.farewell import in_thread
from dask_hpc.data_file import DataFile, data_path, keep_newest
from dask_hpc.model.errors import is_number, one_line
from dask_hpc.model.power import PowerRange
from dask_hpc.model.snapshot import Running
from dask_hpc.power.scheduler.sight import Levels

_FORMAT = "dask-hpc power history 1"
_NAMES, _SIZES = 1000, 16  # jobs by name, and numbers of nodes of each, that are kept: the newest
_MOST = 1e6  # watts of a node that are believed

#: by name and number of nodes: least and most watts per node, and when they were noted
Jobs = dict[str, dict[int, tuple[float, float, float]]]


def default_path() -> Path:
    """In the user's data directory."""
    return data_path("power.json")


class PowerHistory:
    """What is known of past jobs. ``read`` and ``write`` may block; nothing else touches the disk."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.jobs: Jobs = {}
        #: the most that a node ever drew
        self.highest = 0.0
        self._news: Jobs = {}

    @property
    def is_due(self) -> bool:
        """Whether there is something to write."""
        return self.path is not None and bool(self._news)

    def expected(self, name: str, nodes: int) -> PowerRange | None:
        """Watts per node of a job of that name: on so many nodes if it ever had them, else the last time."""
        sizes = self.jobs.get(name)
        if not sizes:
            return None
        least, most, _ = sizes.get(nodes) or max(sizes.values(), key=lambda noted: noted[2])
        return PowerRange(least, most)

    def note(self, name: str, nodes: int, seen: PowerRange, time: float) -> None:
        """A job of that name has drawn so much per node."""
        for jobs in (self.jobs, self._news):
            _merge(jobs, {name: {nodes: (seen.least, seen.most, time)}})
        self.highest = max(self.highest, seen.most)

    def read(self) -> tuple[Jobs, float]:
        """What the file says; nothing if there is none. Raises ``InputError`` if it makes no sense."""
        found = None if self.path is None else DataFile(self.path, _checked).read()
        return found or ({}, 0.0)

    def learn(self, found: tuple[Jobs, float]) -> None:
        """What ``read`` found is known from now on; what was noted since is newer."""
        jobs, highest = found
        _merge(jobs, self._news)
        self.jobs, self.highest = jobs, max(self.highest, highest)

    def write(self) -> None:
        """Add to the file what was noted since the last time. Raises ``OSError``."""
        news, self._news = self._news, {}
        if self.path is None or not news:
            return

        def with_news(found: tuple[Jobs, float] | None) -> str:
            jobs, highest = found or ({}, 0.0)
            _merge(jobs, news)
            most = max(noted[1] for sizes in jobs.values() for noted in sizes.values())
            return json.dumps({"format": _FORMAT, "highest": max(highest, most), "jobs": jobs})

        try:
            DataFile(self.path, _checked).update(with_news)
        except OSError:
            _merge(news, self._news)
            self._news = news  # perhaps there is room the next time
            raise


def _merge(jobs: Jobs, newer: Jobs) -> None:
    """What is newer counts, and the oldest is forgotten."""
    for name, sizes in newer.items():
        jobs.setdefault(name, {}).update(sizes)
    for sizes in jobs.values():
        keep_newest(sizes, _SIZES, lambda noted: noted[2])
    keep_newest(jobs, _NAMES, lambda sizes: max(noted[2] for noted in sizes.values()))


def _checked(found: Any) -> tuple[Jobs, float]:
    if found["format"] != _FORMAT or not is_number(found["highest"], 0, _MOST):
        raise ValueError
    jobs = {
        name: {int(nodes): _noted(noted) for nodes, noted in sizes.items()}
        for name, sizes in found["jobs"].items()
        if sizes
    }
    _merge(jobs, {})
    return jobs, float(found["highest"])


def _noted(found: Any) -> tuple[float, float, float]:
    least, most, time = found
    if not (is_number(least, 0, _MOST) and is_number(most, least, _MOST) and is_number(time, 0, 1e12)):
        raise ValueError
    return float(least), float(most), float(time)


_KEPT = 2_000  # jobs, the newest


class JobEnergies:
    """Joules of each job since power is watched, by what its nodes draw at every look."""

    def __init__(self) -> None:
        self._joules: dict[str, float] = {}
        #: what running jobs drew at the last look, and when that was
        self._watts: dict[str, float] = {}
        self._at: float | None = None

    def look(self, now: float, watts: Mapping[str, float], running: Mapping[str, Running]) -> None:
        """What nodes draw now. Between two looks power goes straight from one to the other."""
        before, self._watts = self._watts, {}
        for job_id, job in running.items():
            drawn = self._watts[job_id] = sum(watts.get(name, 0.0) for name in job.nodes)
            self._add(
                job_id, (before.get(job_id, drawn) + drawn) / 2, max(self._since(now), job.started), now
            )
        self._at = now

    def ends(self, job_id: str, now: float) -> None:
        """A job is over: until now it drew what it did at the last look."""
        if (watts := self._watts.pop(job_id, None)) is not None:
            self._add(job_id, watts, self._since(now), now)

    def stop(self) -> None:
        """Nobody watches: what is drawn until somebody does again is in no sum."""
        self._watts, self._at = {}, None

    def of(self, job_id: str) -> float | None:
        """None of a job that nobody has watched."""
        return self._joules.get(job_id)

    def _since(self, now: float) -> float:
        return now if self._at is None else self._at

    def _add(self, job_id: str, watts: float, since: float, now: float) -> None:
        self._joules[job_id] = self._joules.get(job_id, 0.0) + watts * max(0.0, now - since)
        while len(self._joules) > _KEPT:
            del self._joules[next(iter(self._joules))]


_PATIENCE = 5.0  # seconds that a disk has when control ends


class JobPowers:
    """Knows the jobs of one control loop, and remembers them for others if there is a ``path``."""

    def __init__(self, context: Context, path: Path | None) -> None:
        self._context = context
        self.history = PowerHistory(path)
        self._writing: asyncio.Task[None] | None = None
        if path is not None:
            context.do("what jobs drew", self._learn(in_thread(self.history.read)))

    def now(self, levels: Levels, idle: float, active: PowerRange) -> dict[str, PowerRange]:
        """Of the jobs that run or wait. Nothing known of one that waits: the worst that is possible."""
        context, found = self._context, {}

        def expected(job_id: str, nodes: int) -> PowerRange | None:
            job = context.jobs[job_id]
            return job.model.power or self.history.expected(job.name, nodes)

        for job_id, running in context.indices.running.items():
            level = levels.jobs.get(job_id)
            seen = None if level is None else level.window.range
            found[job_id] = seen or expected(job_id, len(running.nodes)) or active
        most = max(self.history.highest, levels.highest, active.most)
        worst = PowerRange(min(idle, active.least), most)
        for model in context.indices.waiting:
            found[model.id] = expected(model.id, model.nodes) or worst
        return found

    def note_ended(self, levels: Levels, still: Container[str]) -> None:
        """Remember what the jobs drew that are not among those that still run."""
        for job_id in [one for one in levels.jobs if one not in still]:
            level = levels.jobs.pop(job_id)
            job, seen = self._context.jobs.get(job_id), level.whole_life
            if job is not None and seen is not None:
                self.history.note(job.name, len(level.nodes), seen, time())
        if self.history.is_due and self._writing is None:
            self._writing = self._context.do("what jobs drew", self._wrote(in_thread(self.history.write)))

    async def settle(self) -> None:
        """What was to be remembered is, if the disk answers in time."""
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=_PATIENCE)

    async def _learn(self, reading: asyncio.Future[Any]) -> None:
        try:
            self.history.learn(await reading)
        except Exception as problem:
            self._context.tell("warning", one_line(f"{problem}; goes without a history of power"))

    async def _wrote(self, writing: asyncio.Future[Any]) -> None:
        try:
            await writing
        except Exception as problem:
            words = f"{self.history.path}: cannot be written: {problem}; power is not remembered"
            self._context.tell("warning", one_line(words))
            self.history.path = None
        finally:
            self._writing = None
