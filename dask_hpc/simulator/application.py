"""What a job does, phase by phase, when a single runtime does not say enough.

An application runs its ``on_start`` tasks once, then each phase in turn, as often as the phase's
``iterations`` say. Before each iteration but the very first there is a scheduling point (unless the phase
has none): there, and only there, the job can change size. After a resize it runs ``on_resize``, and if it
grew ``on_expansion`` as well. Amounts are evaluated anew for each size.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

TaskKind = Literal["compute", "communicate", "read", "write", "idle"]
TASK_KINDS: tuple[TaskKind, ...] = get_args(TaskKind)

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
