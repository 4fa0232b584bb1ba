"""Work that belongs to no job: how much of it there is to do."""

from collections.abc import Callable, Mapping
from math import ceil
from typing import Any

from dask_hpc.live import compat
from dask_hpc.live.jobs import LiveJob
from dask_hpc.live.power.meters import NodeUse
from dask_hpc.model.nodes import Nodes

_SAMPLE = 100  # tasks that stand for all of those that are queued, or on one worker
_LOOK = 2000  # tasks that wait for a worker that are looked through


def outside_nodes(
    scheduler: Any, nodes: Nodes, uses: Mapping[str, NodeUse], held: set[str], owner: Mapping[Any, LiveJob]
) -> tuple[int, int]:
    """How many nodes that no job holds work now, and how many could, with the tasks there are. ``held``: the
    nodes that jobs hold; ``owner``: the job of a task."""
    free = [use for name, use in uses.items() if name not in held]
    working = sum(use.running > 0 for use in free)
    tasks = sum(use.tasks for use in free)
    there = [compat.given(scheduler, address, _SAMPLE) for name in held for address in nodes.workers(name)]
    for number, sample in (compat.queued(scheduler, _SAMPLE), *there):
        tasks += _share(number, sample, lambda task: _is_outside(task, owner))
    number, sample = compat.waiting_for_workers(scheduler, _LOOK)
    tasks += _share(
        number, sample, lambda task: _is_outside(task, owner) and not any(compat.is_restricted(task))
    )
    threads = sum(use.threads for use in uses.values()) / len(uses) if uses else 1
    return working, max(working, min(len(uses), ceil(tasks / max(threads, 1))))


def _share(number: int, sample: list[Any], counts: Callable[[Any], bool]) -> int:
    """How many of so many tasks count, by what a sample of them says."""
    return ceil(number * sum(map(counts, sample)) / len(sample)) if sample else 0


def _is_outside(task: Any, owner: Mapping[Any, LiveJob]) -> bool:
    job = owner.get(compat.key(task))
    return job is None or job.state == "done"
