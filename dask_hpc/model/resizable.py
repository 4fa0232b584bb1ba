"""The running jobs that may change their size, and which of them have nodes to give or could use more."""

from collections.abc import Iterator
from typing import Any, Generic, Protocol, TypeVar

from dask_hpc.model.job import Job
from dask_hpc.model.speedup import smallest_legal


class Sized(Protocol):
    """What must be known of a job that runs."""

    @property
    def job(self) -> Job:
        """What it asked for."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """What it holds."""


R = TypeVar("R", bound=Sized)


class Scope(Generic[R]):
    """How far the size of a running job could change in one direction: new whenever anything about that job
    is new."""

    __slots__ = ("known", "nodes", "running")

    def __init__(self, running: R, nodes: int) -> None:
        self.running = running
        #: of one that could give: how many nodes; of one that could use more: its next larger size
        self.nodes = nodes
        #: what a strategy has worked out from the two, to find it again: nothing else, for views share it
        self.known: Any = None


class Resizable(dict[str, R], Generic[R]):
    """Running jobs by id whose size may change and is not changing just now.

    A decision that looks for nodes on a full machine sees at once that nobody has any to give, and one
    with idle nodes that nobody can use them, without asking all jobs. It is filled and emptied by item and
    with ``pop``, in no other way.
    """

    __slots__ = ("givers", "takers")

    #: malleable jobs with more nodes than their smallest legal size
    givers: dict[str, Scope[R]]
    #: malleable jobs that may have more nodes
    takers: dict[str, Scope[R]]

    def __init__(self) -> None:
        super().__init__()
        self.givers, self.takers = {}, {}

    def __setitem__(self, job_id: str, running: R) -> None:
        super().__setitem__(job_id, running)
        job = running.job
        if job.kind != "malleable":
            return
        size, constraint = len(running.nodes), job.constraint
        if size > job.min_nodes and (least := smallest_legal(constraint, job.min_nodes, size - 1)):
            self.givers[job_id] = Scope(running, size - least)
        else:
            self.givers.pop(job_id, None)
        if size < job.max_nodes and (larger := smallest_legal(constraint, size + 1, job.max_nodes)):
            self.takers[job_id] = Scope(running, larger)
        else:
            self.takers.pop(job_id, None)

    def __delitem__(self, job_id: str) -> None:
        super().__delitem__(job_id)
        self.givers.pop(job_id, None)
        self.takers.pop(job_id, None)

    def pop(self, job_id: str, default: R | None = None) -> R | None:  # type: ignore[override]
        """It ends, or begins to change its size, if it is here at all."""
        self.givers.pop(job_id, None)
        self.takers.pop(job_id, None)
        return dict.pop(self, job_id, default)

    def copy(self) -> "Resizable[R]":
        """An independent copy."""
        twin: Resizable[R] = Resizable()
        dict.update(twin, self)
        twin.givers, twin.takers = self.givers.copy(), self.takers.copy()
        return twin

    def __reduce__(self) -> tuple[type["Resizable[Any]"], tuple[()], None, None, Iterator[tuple[str, R]]]:
        return Resizable, (), None, None, iter(self.items())
