"""What is written down of a run: columns for its jobs, details of some, and what services add."""

from array import array
from dataclasses import dataclass
from math import nan
from typing import TypeVar

from dask_hpc.model.job import Job
from dask_hpc.planning.figures import Amounts

T = TypeVar("T")
STATES = ("waiting", "running", "completed", "killed", "cancelled", "rejected", "dropped")
_CODES = {state: code for code, state in enumerate(STATES)}


@dataclass(slots=True)
class Details:
    """What only some jobs have: those that were resized, stopped, or drew power of their own."""

    node_seconds: float = 0.0
    resizes: int = 0
    moved_bytes: float = 0.0
    restarts: int = 0
    #: node-seconds of work that failures undid
    lost: float = 0.0


class Record:
    """Columns of machine numbers, 37 bytes a job beside its name.

    With ``allotments`` also who held which nodes from when on, which a picture needs: ``(time, row,
    nodes)``, with no nodes at the end; and from when on how many nodes read or wrote.
    """

    __slots__ = ("_parts", "adaptation", "allotments", "alone", "details", "end", "id", "loads", "nodes",
                 "power", "start", "state", "submit", "transfer", "worth")  # fmt: skip

    def __init__(self, *, allotments: bool = False) -> None:
        self.allotments: list[tuple[float, int, tuple[str, ...]]] | None = [] if allotments else None
        self.loads: list[tuple[float, int]] | None = [] if allotments else None
        self.id: list[str] = []
        self.submit = array("d")
        self.start = array("d")
        self.end = array("d")
        #: what each job takes on the nodes that it asks for, with nothing in its way; nan if nobody knows
        self.alone = array("d")
        self.nodes = array("i")
        self.state = bytearray()
        self.details: dict[int, Details] = {}
        #: seconds of the changes of size that are over, each from its decision on
        self.adaptation = Amounts()
        #: watts per node of jobs that say so
        self.power: dict[int, float] = {}
        #: the jobs that have a value
        self.worth: dict[int, Job] = {}
        #: what services write down, by its type
        self._parts: dict[type, object] = {}
        #: mean seconds of a read or write on the shared file system
        self.transfer = nan

    def submitted(self, row: int, job: Job, alone: float) -> None:
        """A new row."""
        self.id.append(job.id)
        self.submit.append(job.submitted)
        self.start.append(nan)
        self.end.append(nan)
        self.alone.append(alone)
        self.nodes.append(job.nodes)
        self.state.append(0)
        if job.power is not None:
            self.power[row] = (job.power.least + job.power.most) / 2
        if job.value is not None:
            self.worth[row] = job

    def started(self, row: int, time: float, nodes: tuple[str, ...]) -> None:
        """It left the queue; only the first time counts as its start."""
        if not self.state[row]:
            self.start[row] = time
            self.state[row] = 1
        if self.allotments is not None:
            self.allotments.append((time, row, nodes))

    def held(self, row: int, time: float, nodes: tuple[str, ...]) -> None:
        """From now on it holds these nodes."""
        if self.allotments is not None:
            self.allotments.append((time, row, nodes))

    def ended(self, row: int, time: float, state: str) -> None:
        """It is over: completed, killed, cancelled, rejected or dropped."""
        if state != "rejected":
            self.end[row] = time
        self.state[row] = _CODES[state]
        if self.allotments is not None:
            self.allotments.append((time, row, ()))

    def detail(self, row: int) -> Details:
        """The details of a row, made when they are first asked for."""
        found = self.details.get(row)
        if found is None:
            found = self.details[row] = Details()
        return found

    def find(self, kind: type[T]) -> T | None:
        """What a service has written down, if it was there."""
        found = self._parts.get(kind)
        return found if isinstance(found, kind) else None

    def add(self, part: T) -> T:
        """What a service writes down, one of each type."""
        self._parts[type(part)] = part
        return part
