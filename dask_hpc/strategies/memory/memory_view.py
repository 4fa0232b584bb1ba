"""What a memory strategy sees: what tasks of a kind need, and what a worker has."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KindMemory:
    """What is known of the tasks of one kind. ``peak``: bytes that one needs, at most, above what its worker
    has when it begins; None if nobody knows."""

    name: str
    peak: float | None = None
    #: while nobody knows: by how much those that run have grown so far, and for how long they have not grown
    #: further, as far as anybody has said
    grown: float = 0.0
    still: float = 0.0


@dataclass(frozen=True, slots=True)
class WorkerMemory:
    """A worker: its limit, and what it has now. Bytes."""

    limit: float
    threads: int
    #: what is there when no task runs: results, and the process itself
    base: float
    #: what the tasks that run there are counted with
    needed: float = 0.0
    #: tasks that are let pass one by one and were sent there; of them those of the kind that is asked about
    running: int = 0
    of_kind: int = 0
