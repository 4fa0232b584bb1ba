"""The indices both bodies keep: who waits, who runs until when, which nodes are idle.

They are brought up to date event by event, so a decision costs what it looks at. This is also the one
place where nodes change hands, which is why no node can be held twice in either body.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from dask_hpc.model.job import Job
from dask_hpc.model.node import Node
from dask_hpc.model.waiting import Waiting, by_arrival


@dataclass(frozen=True, slots=True)
class Running:
    """A job that runs: its allotment and when it is expected to end, by its walltime."""

    job: Job
    nodes: tuple[str, ...]
    started: float
    expected_end: float
    order: int


class Indices:
    """Mutable; owned by one body. Strategies see it through a ``Snapshot``."""

    __slots__ = ("by_end", "idle", "nodes", "now", "revision", "running", "waiting")

    def __init__(
        self, nodes: Iterable[Node] = (), rank: Callable[[Job], Any] = by_arrival, now: float = 0.0
    ) -> None:
        self.now = now
        #: counts changes of what runs and of the nodes (not of what waits)
        self.revision = 0
        self.nodes: dict[str, Node] = {node.name: node for node in nodes}
        self.idle: list[str] = list(self.nodes)[::-1]  # taken from the end: first nodes first
        self.waiting = Waiting(rank)
        self.running: dict[str, Running] = {}
        self.by_end: list[tuple[float, int, Running]] = []

    def start(self, job_id: str, nodes: int) -> Running:
        """Move a job from the queue onto ``nodes`` idle nodes."""
        idle = self.idle
        if not 0 < nodes <= len(idle):
            raise ValueError(f"cannot start job {job_id!r} on {nodes} nodes: {len(idle)} are idle")
        job = self.waiting.remove(job_id)
        allotment = tuple(idle[: -nodes - 1 : -1])
        del idle[-nodes:]
        now = self.now
        order = self.revision = self.revision + 1
        running = Running(job, allotment, now, now + job.walltime, order)
        self.running[job_id] = running
        insort(self.by_end, (running.expected_end, order, running))
        return running

    def end(self, job_id: str) -> Running:
        """A job is over, for whatever reason: its nodes become idle."""
        running = self.running.pop(job_id)
        self._drop_end(running)
        self.idle.extend(running.nodes[::-1])
        self.revision += 1
        return running

    def withdraw(self, job_id: str) -> Job:
        """A waiting job will never start: its owner cancelled it or went away."""
        self.revision += 1
        return self.waiting.remove(job_id)

    def add_node(self, node: Node) -> None:
        """A node joins, idle."""
        if node.name in self.nodes:
            raise ValueError(f"node {node.name!r} is already here")
        self.nodes[node.name] = node
        self.idle.append(node.name)
        self.revision += 1

    def remove_node(self, name: str) -> Running | None:
        """A node is gone. Returns the job that held it, now one node smaller (or ended, if it held
        no other: then its ``nodes`` are empty)."""
        del self.nodes[name]
        self.revision += 1
        if name in self.idle:
            self.idle.remove(name)
            return None
        holder = next(r for r in self.running.values() if name in r.nodes)
        left = tuple(n for n in holder.nodes if n != name)
        smaller = Running(holder.job, left, holder.started, holder.expected_end, holder.order)
        if left:
            self._replace(holder, smaller)
        else:
            self._drop_end(holder)
            del self.running[holder.job.id]
        return smaller

    def expect_end(self, job_id: str, expected_end: float) -> None:
        """A running job will end at another time than its walltime says."""
        old = self.running[job_id]
        new = Running(old.job, old.nodes, old.started, expected_end, old.order)
        self._replace(old, new)
        self.revision += 1

    def reorder(self, rank: Callable[[Job], Any]) -> None:
        """Another policy, another order: rank the waiting jobs anew, keeping their arrivals."""
        self.waiting = self.waiting.ranked(rank)

    def copy(self) -> "Indices":
        """An independent copy; everything immutable is shared."""
        twin = Indices.__new__(Indices)
        twin.now, twin.revision = self.now, self.revision
        twin.nodes, twin.idle = dict(self.nodes), list(self.idle)
        twin.waiting = self.waiting.copy()
        twin.running, twin.by_end = dict(self.running), list(self.by_end)
        return twin

    def _drop_end(self, running: Running) -> None:
        del self.by_end[bisect_left(self.by_end, (running.expected_end, running.order))]

    def _replace(self, old: Running, new: Running) -> None:
        self._drop_end(old)
        self.running[old.job.id] = new
        insort(self.by_end, (new.expected_end, new.order, new))
