"""What a strategy sees of kinds of tasks that share nodes: what is left of each, and how they were seen to
slow each other; and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from dask_hpc.planning.colocation.slowdowns import Company


@dataclass(frozen=True, slots=True)
class KindWork:
    """Tasks of one kind that somebody waits for."""

    name: str
    #: how long one takes with as few neighbours as it was ever seen; None if none has ended
    seconds: float | None
    #: how many have not ended, and how many of them are ready and wait
    left: int
    waiting: int
    #: seconds until the first deadline of a job that has some of them
    due: float = inf
    #: of memory use, from I to V, as a person says it; None if nobody does
    said_class: str | None = None


@dataclass(frozen=True, slots=True)
class NeighboursView:
    """The tasks of one job, or of none, on nodes of so many threads."""

    threads: int
    nodes: int
    #: in the order in which Dask would run them
    kinds: tuple[KindWork, ...]
    #: how kinds were seen to get on with each other
    seen: tuple[Company, ...]
    #: in force
    limits: Mapping[str, "KindLimit"]


@dataclass(frozen=True, slots=True)
class KindLimit:
    """So many tasks of a kind at once on a node: ``beside`` others that wait for its threads, and ``alone``
    if there is nothing else (None: as many as there are threads)."""

    kind: str
    beside: int
    alone: int | None
    reason: str
    #: whether it only is in force to find out
    is_trial: bool = False

    def __str__(self) -> str:
        alone = "any number" if self.alone is None else str(self.alone)
        return f"{self.kind}: {self.beside} at once on a node beside others, {alone} alone; {self.reason}"
