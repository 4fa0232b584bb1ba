"""What a simulation writes down: one compact row per job. Recording never influences the outcome."""

from array import array
from math import nan

from dask_hpc.model.job import Job

STATES = ("waiting", "running", "completed", "killed", "rejected")


class Record:
    """Columns of machine numbers, 29 bytes a job beside its name.

    With ``allotments`` also who held which nodes from when on, which a picture needs: ``(time, row,
    nodes)``, with no nodes at the end.
    """

    __slots__ = ("allotments", "end", "id", "nodes", "start", "state", "submit")

    def __init__(self, *, allotments: bool = False) -> None:
        self.allotments: list[tuple[float, int, tuple[str, ...]]] | None = [] if allotments else None
        self.id: list[str] = []
        self.submit = array("d")
        self.start = array("d")
        self.end = array("d")
        self.nodes = array("i")
        self.state = bytearray()

    def submitted(self, job: Job) -> None:
        """A new row."""
        self.id.append(job.id)
        self.submit.append(job.submitted)
        self.start.append(nan)
        self.end.append(nan)
        self.nodes.append(job.nodes)
        self.state.append(0)

    def rejected(self, row: int) -> None:
        """It can never run on this machine."""
        self.state[row] = 4

    def started(self, row: int, time: float, nodes: tuple[str, ...]) -> None:
        """It left the queue."""
        self.start[row] = time
        self.state[row] = 1
        if self.allotments is not None:
            self.allotments.append((time, row, nodes))

    def ended(self, row: int, time: float, state: str) -> None:
        """It is over: completed or killed."""
        self.end[row] = time
        self.state[row] = STATES.index(state)
        if self.allotments is not None:
            self.allotments.append((time, row, ()))
