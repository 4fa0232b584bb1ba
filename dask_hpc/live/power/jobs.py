"""Power of jobs, per node: as measured, as their users said, or as jobs of that name drew before."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any

from dask_hpc.live.aside import aside
from dask_hpc.live.jobs import LiveJob
from dask_hpc.live.power.history import PowerHistory
from dask_hpc.live.power.levels import JobLevel, Levels
from dask_hpc.model.errors import one_line
from dask_hpc.model.power import PowerRange

if TYPE_CHECKING:
    from dask_hpc.live.control import ControlLoop

_PATIENCE = 5.0  # seconds that a disk has when control ends


class JobPowers:
    """Knows the jobs of one control loop, and remembers them for others if there is a ``path``."""

    def __init__(self, loop: Any, control: "ControlLoop", path: Path | None) -> None:
        self._loop = loop
        self._control = control
        self.history = PowerHistory(path)
        self._writing: asyncio.Future[None] | None = None
        if path is not None:
            aside(loop, self.history.read, self._read)

    def now(self, levels: Levels, idle: float, active: PowerRange) -> dict[str, PowerRange]:
        """Of the jobs that run or wait. Nothing known of one that waits: the worst that is possible."""
        control, found = self._control, {}
        for job_id, running in control.indices.running.items():
            level = levels.jobs.get(job_id)
            seen = None if level is None else level.window.range
            found[job_id] = seen or self._expected(control.jobs[job_id], len(running.nodes)) or active
        most = max(self.history.highest, levels.highest, active.most)
        worst = PowerRange(min(idle, active.least), most)
        for model in control.indices.waiting:
            found[model.id] = self._expected(control.jobs[model.id], model.nodes) or worst
        return found

    def note_ended(self, levels: Levels, still: Mapping[str, Any]) -> None:
        """Remember what the jobs drew that are not among those that still run."""
        for job_id in levels.jobs.keys() - still.keys():
            level = levels.jobs.pop(job_id)
            if job_id in self._control.jobs:
                self._note(self._control.jobs[job_id], level)
        if self.history.is_due and self._writing is None:
            self._writing = asyncio.get_running_loop().create_future()
            aside(self._loop, self.history.write, self._written)

    async def settle(self) -> None:
        """What was to be remembered is, if the disk answers in time."""
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=_PATIENCE)

    def _expected(self, job: LiveJob, nodes: int) -> PowerRange | None:
        return job.model.power or self.history.expected(job.name, nodes)

    def _note(self, job: LiveJob, level: JobLevel) -> None:
        seen = level.whole_life
        if seen is not None:
            self.history.note(job.name, level.nodes, seen, time())

    def _read(self, found: Any, problem: Exception | None) -> None:
        if problem is not None:
            self._control.tell("warning", one_line(f"{problem}; goes without a history of power"))
        else:
            self.history.learn(found)

    def _written(self, found: Any, problem: Exception | None) -> None:
        assert self._writing is not None
        if not self._writing.done():
            self._writing.set_result(None)
        self._writing = None
        if problem is not None:
            words = f"{self.history.path}: cannot be written: {problem}; power is not remembered"
            self._control.tell("warning", one_line(words))
            self.history.path = None
