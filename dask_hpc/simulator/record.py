"""What a simulation writes down: one compact row per job. Recording never influences the outcome."""

from array import array
from dataclasses import dataclass
from math import nan

from dask_hpc.model.job import Job
from dask_hpc.simulator.in_situ.run import PipelineRun
from dask_hpc.simulator.power_record import PowerRecord

STATES = ("waiting", "running", "completed", "killed", "cancelled", "rejected")


@dataclass(slots=True)
class Details:
    """What only some jobs have: those that were resized, stopped, or drew power of their own."""

    node_seconds: float = 0.0
    resizes: int = 0
    moved_bytes: float = 0.0
    restarts: int = 0
    #: node-seconds of work that failures undid
    lost: float = 0.0
    commits: int = 0
    #: seconds of standing still for commits, and for reading them back
    commit_time: float = 0.0
    commit_bytes: float = 0.0


class Record:
    """Columns of machine numbers, 29 bytes a job beside its name.

    With ``allotments`` also who held which nodes from when on, which a picture needs: ``(time, row,
    nodes)``, with no nodes at the end.
    """

    __slots__ = ("allotments", "details", "drawn", "end", "id", "nodes", "pipelines", "power", "start",
                 "state", "submit", "transfer")  # fmt: skip

    def __init__(self, *, allotments: bool = False) -> None:
        self.allotments: list[tuple[float, int, tuple[str, ...]]] | None = [] if allotments else None
        self.id: list[str] = []
        self.submit = array("d")
        self.start = array("d")
        self.end = array("d")
        self.nodes = array("i")
        self.state = bytearray()
        self.details: dict[int, Details] = {}
        #: what in situ pipelines did
        self.pipelines: dict[int, PipelineRun] = {}
        #: watts per node of jobs that say so
        self.power: dict[int, float] = {}
        #: the machine's power over time, if that is followed
        self.drawn: PowerRecord | None = None
        #: mean seconds of a read or write on the shared file system
        self.transfer = nan

    def submitted(self, row: int, job: Job) -> None:
        """A new row."""
        self.id.append(job.id)
        self.submit.append(job.submitted)
        self.start.append(nan)
        self.end.append(nan)
        self.nodes.append(job.nodes)
        self.state.append(0)
        if job.power is not None:
            self.power[row] = (job.power.least + job.power.most) / 2

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
        """It is over: completed, killed, cancelled or rejected."""
        if state != "rejected":
            self.end[row] = time
        self.state[row] = STATES.index(state)
        if self.allotments is not None:
            self.allotments.append((time, row, ()))

    def detail(self, row: int) -> Details:
        """The details of a row, made when they are first asked for."""
        found = self.details.get(row)
        if found is None:
            found = self.details[row] = Details()
        return found
