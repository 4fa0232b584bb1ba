"""What a job does, phase by phase, when a single runtime does not say enough.

An application runs its ``on_start`` tasks once, then each phase in turn, as often as the phase's
``iterations`` say. Before each iteration but the very first there is a scheduling point (unless the phase
has none): there, and only there, the job can change size. After a resize it runs ``on_resize``, and if it
grew ``on_expansion`` as well. Amounts are evaluated anew for each size.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Literal, get_args

from dask_hpc.model.io import IoDemand
from dask_hpc.simulator.platform import Platform

TaskKind = Literal["compute", "communicate", "read", "write", "idle"]
TASK_KINDS: tuple[TaskKind, ...] = get_args(TaskKind)
#: how often a phase may be repeated
MOST_ITERATIONS = 10**7

#: nodes -> amount
Amount = Callable[[int], float]


@dataclass(frozen=True, slots=True)
class Task:
    """One step of a phase; the next begins when it has ended on all nodes.

    ``amount(nodes)`` is what *each* node does: operations for compute, bytes for communicate (over its
    link), bytes for read and write (through the shared file system), seconds for idle.
    ``nodes(nodes)`` is how many of the job's nodes take part in reading and writing (all, or one).
    """

    kind: TaskKind
    amount: Amount
    root_only: bool = False


@dataclass(frozen=True, slots=True)
class Phase:
    """Tasks in sequence, repeated. ``request`` is the size an evolving job asks for before it."""

    tasks: tuple[Task, ...]
    iterations: int = 1
    scheduling_point: bool = True
    request: Callable[[int], float] | None = None


@dataclass(frozen=True, slots=True)
class Application:
    """The whole job."""

    phases: tuple[Phase, ...]
    on_start: tuple[Task, ...] = ()
    on_resize: tuple[Task, ...] = ()
    on_expansion: tuple[Task, ...] = ()


def io_demand(application: Application, platform: Platform, nodes: int) -> IoDemand | None:
    """Totals over the whole run on ``nodes`` nodes; None if they are beyond all numbers.

    Everything but reading and writing counts as computing, by the time it takes.
    """
    operations = data = 0.0
    for task, times in _all_tasks(application):
        amount = task.amount(nodes) * times
        if task.kind in ("read", "write"):
            data += amount * (1 if task.root_only else nodes)
        else:
            operations += amount / rate(task.kind, platform) * platform.speed * nodes
    if not (operations < inf and data < inf):
        return None
    return platform.io_demand(operations, data)


def quiet_runtime(application: Application, platform: Platform, nodes: int) -> float:
    """Seconds on ``nodes`` nodes when nobody else uses the file system."""
    seconds = 0.0
    for task, times in _all_tasks(application):
        amount = task.amount(nodes) * times
        if task.kind in ("read", "write"):
            busy = 1 if task.root_only else nodes
            seconds += amount / min(platform.link, platform.file_system / busy)
        else:
            seconds += amount / rate(task.kind, platform)
    return seconds


def _all_tasks(application: Application) -> list[tuple[Task, int]]:
    tasks = [(task, 1) for task in application.on_start]
    return tasks + [(task, phase.iterations) for phase in application.phases for task in phase.tasks]


def rate(kind: TaskKind, platform: Platform) -> float:
    """What a node does of it in a second, but for reading and writing."""
    return {"compute": platform.speed, "communicate": platform.link, "idle": 1.0}[kind]
