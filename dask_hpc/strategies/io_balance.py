"""I/O intensities of what runs and what waits, as arrays: thousands of waiting jobs are compared at once."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from dask_hpc.model.constraint import smallest_legal
from dask_hpc.model.job import Job
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.model.waiting import Key

#: a job with more legal sizes than this is compared at evenly spaced ones
_SIZES = 64


@dataclass(frozen=True, slots=True)
class Choices:
    """Every size on which each waiting job could start. Rows of a job are neighbours, in queue order.

    ``load`` is intensity times nodes. The per-job arrays have one entry per job.
    """

    revision: int
    last: Key | None
    ids: list[str]
    counts: Any
    nodes: Any
    load: Any
    preferred_nodes: Any
    preferred_load: Any
    #: at this revision nobody could start
    settled: int = -1
    #: what ran at the revision ``balanced``: load and nodes
    balanced: int = -1
    running: tuple[float, int] = (0.0, 0)


@dataclass(frozen=True, slots=True)
class Balance:
    """The sums that both intensities are made of: load and nodes of what runs and of what waits."""

    running_load: float
    running_nodes: float
    waiting_load: float
    waiting_nodes: float

    def workload(self, cluster: int | None) -> float:
        """Intensity of running and waiting jobs together, on a theoretical machine that runs them all, or
        on one of ``cluster`` nodes."""
        nodes = cluster or self.running_nodes + self.waiting_nodes
        return (self.running_load + self.waiting_load) / nodes if nodes else 0.0

    def system(self) -> float:
        """Intensity of what runs; 0 of an empty machine."""
        return self.running_load / self.running_nodes if self.running_nodes else 0.0

    def off(self, workload: float, load: Any, nodes: Any) -> Any:
        """How far from the workload's intensity the system is once this starts, too; seed 002, (4.6), (4.7).
        Numbers, or arrays of candidates."""
        return abs(workload - (self.running_load + load) / (self.running_nodes + nodes))


def load(job: Job, nodes: int) -> float:
    """Its I/O intensity times its nodes. A job of which nothing is known does no I/O."""
    return job.io_intensity.intensity(nodes) * nodes if job.io_intensity is not None else 0.0


@lru_cache(maxsize=8192)
def sizes(job: Job) -> tuple[int, ...]:
    """The legal sizes of a job, its start size among them; a selection if there are many."""
    if job.kind == "rigid" or job.min_nodes == job.max_nodes:
        return (job.nodes,)
    found = []
    size = smallest_legal(job.constraint, job.min_nodes, job.max_nodes)
    while size is not None:
        found.append(size)
        size = smallest_legal(job.constraint, size + 1, job.max_nodes)
    if len(found) > _SIZES:
        picked = {found[i * (len(found) - 1) // (_SIZES - 1)] for i in range(_SIZES)}
        found = sorted(picked | {job.nodes})
    return tuple(found)


@lru_cache(maxsize=8192)
def loads(job: Job) -> tuple[tuple[int, float], ...]:
    """Each of its ``sizes`` with its load there."""
    return tuple((nodes, load(job, nodes)) for nodes in sizes(job))


def balanced(table: Choices, snapshot: Snapshot) -> Choices:
    """The table with what runs now; nothing to do unless that has changed."""
    if table.balanced == snapshot.revision:
        return table
    return replace(table, balanced=snapshot.revision, running=running_balance(snapshot))


def running_balance(snapshot: Snapshot) -> tuple[float, int]:
    """Load and nodes of what runs, each job at the size it has or is on its way to."""
    total, nodes = 0.0, 0
    for running in snapshot.running.values():
        size = running.target or len(running.nodes)
        total += load(running.job, size)
        nodes += size
    return total, nodes


def choices(snapshot: Snapshot, known: Choices | None, every_size: bool) -> Choices:
    """The table for this snapshot, made from that of the last decision where the queue is the same."""
    waiting, revision, last = snapshot.waiting, snapshot.revision, snapshot.waiting.last_key
    if known is not None and known.last == last:
        if known.revision == revision and len(known.ids) == len(waiting):
            return known
        if known.ids == (ids := [job.id for job in waiting]):
            return _replaced(known, revision, last, ids)
    jobs = list(waiting)
    if known is None:
        return _table(jobs, revision, last, every_size)
    stay = np.fromiter((job_id in waiting for job_id in known.ids), bool, len(known.ids))
    survivors = [job_id for job_id, stays in zip(known.ids, stay, strict=True) if stays]
    if any(job.id != job_id for job, job_id in zip(jobs, survivors, strict=False)):
        return _table(jobs, revision, last, every_size)  # somebody stands ahead of known jobs
    rows = np.repeat(stay, known.counts)
    new = _table(jobs[len(survivors) :], revision, last, every_size)
    return Choices(
        revision,
        last,
        survivors + new.ids,
        np.concatenate((known.counts[stay], new.counts)),
        np.concatenate((known.nodes[rows], new.nodes)),
        np.concatenate((known.load[rows], new.load)),
        np.concatenate((known.preferred_nodes[stay], new.preferred_nodes)),
        np.concatenate((known.preferred_load[stay], new.preferred_load)),
    )


def without(table: Choices, place: int) -> Choices:
    """The table without the job at this place of the queue, which is about to start."""
    first = int(table.counts[:place].sum())
    rows = slice(first, first + int(table.counts[place]))
    return Choices(
        table.revision + 1,
        table.last,
        table.ids[:place] + table.ids[place + 1 :],
        np.delete(table.counts, place),
        np.delete(table.nodes, rows),
        np.delete(table.load, rows),
        np.delete(table.preferred_nodes, place),
        np.delete(table.preferred_load, place),
    )


def _replaced(known: Choices, revision: int, last: Key | None, ids: list[str]) -> Choices:
    return Choices(
        revision,
        last,
        ids,
        known.counts,
        known.nodes,
        known.load,
        known.preferred_nodes,
        known.preferred_load,
    )


def _table(jobs: Sequence[Job], revision: int, last: Key | None, every_size: bool) -> Choices:
    rows = [sizes(job) if every_size else (job.nodes,) for job in jobs]
    flat: Iterable[float] = (load(job, n) for job, ns in zip(jobs, rows, strict=True) for n in ns)
    return Choices(
        revision,
        last,
        [job.id for job in jobs],
        np.array([len(ns) for ns in rows], dtype=np.int64),
        np.array([n for ns in rows for n in ns], dtype=np.int64),
        np.fromiter(flat, float),
        np.array([job.nodes for job in jobs], dtype=np.int64),
        np.array([load(job, job.nodes) for job in jobs], dtype=float),
    )
