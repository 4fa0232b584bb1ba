"""The work of a demo: jobs of tasks that take a quarter of a second, each of whose results is checked."""

from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
from distributed import Client, Future

import dask_hpc

TASK = 0.25  # seconds
_RESULT = 12_500  # numbers, 100 kB: enough for a lost one to matter


@dataclass(frozen=True)
class Piece:
    """A job of a demo. Times are in units; work is in units of one node."""

    name: str
    submitted: float
    nodes: int
    min_nodes: int
    max_nodes: int
    work: float
    walltime: float
    priority: float = 0.0

    @property
    def kind(self) -> str:
        """Malleable if it has a choice."""
        return "malleable" if self.min_nodes < self.max_nodes else "rigid"

    def tasks(self, unit: float) -> int:
        """How many tasks it has, with so many seconds to a unit."""
        return max(1, round(self.work * unit / TASK))

    def submit(self, client: Client, unit: float, diary: Path) -> list[Future]:
        """Hand it in. Its tasks write into the diary."""
        with dask_hpc.job(
            self.name,
            nodes=self.nodes,
            min_nodes=self.min_nodes,
            max_nodes=self.max_nodes,
            walltime=self.walltime * unit,
            priority=self.priority,
        ):
            count = self.tasks(unit)
            futures: list[Future] = client.map(
                work, [self.name] * count, range(count), [str(diary)] * count, pure=False
            )
        return futures


def work(job: str, number: int, diary: str) -> Any:
    """One task: a quarter of a second on one core. Each time it runs, it writes a line."""
    with open(diary, "a") as file:
        file.write(f"{job} {number}\n")
    sleep(TASK)
    return np.full(_RESULT, number, dtype="i8")


@dataclass
class Tally:
    """What became of the tasks."""

    submitted: int = 0
    done: int = 0
    #: how often tasks were executed: as often as there are tasks, if nothing was lost on the way
    executed: int = 0
    right: int = 0

    def check(self, futures: list[Future], numbers: list[int], diary: Path) -> str:
        """Whether every result is there and right, and no task had to run twice; else what is wrong."""
        self.done = sum(future.done() for future in futures)
        found = [future.result() for future in futures]
        self.right = sum(bool((array == number).all()) for array, number in zip(found, numbers, strict=True))
        self.executed = len(diary.read_text().splitlines())
        if self.right != self.submitted:
            return f"Wrong results: {self.right} of {self.submitted} are right."
        if self.executed != self.submitted:
            return f"{self.submitted} tasks were executed {self.executed} times."
        return ""
