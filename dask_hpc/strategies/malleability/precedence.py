"""What others may do while a job that has waited too long still waits."""

from math import inf

from dask_hpc.model.job import Job
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.strategies.queue.profile import shadow_time

#: times the longest walltime of those that run: nobody is first in line for longer before others mind it
FIRM = 4.0


def is_due(snapshot: Snapshot, job: Job, patience: float) -> bool:
    """Whether it has been first in line far too long: see ``Precedence``."""
    longest, since, now = 0.0, job.submitted + patience, snapshot.now
    for running in snapshot.running.values():
        if longest < running.job.walltime < inf:
            longest = running.job.walltime
        if running.started > since and running.job.submitted < job.submitted:
            since = running.started
        if now - since < FIRM * longest:  # both only grow
            return False
    return now >= since


class Precedence:
    """The job that has waited too long starts as soon as it can; in the end nobody may delay it any more.

    EASY's reservation lets only those overtake whose whole walltime ends before the job in front can start.
    People ask for far more time than they need: where many ask for as much as the site allows, nodes stand
    idle for hours for the sake of one wide job, and everybody pays. So there is none at first. There is one
    when that job has been first in line for ``FIRM`` times the longest walltime of those that run, for
    otherwise narrow jobs could keep a wide one waiting for ever. First in line means that it has waited for
    ``patience``, and that no job that runs was submitted before it and has started since.
    """

    def __init__(self, snapshot: Snapshot, patience: float) -> None:
        self._snapshot, self._patience = snapshot, patience
        self._job: Job | None = None
        self._needed = (0, 0)
        #: for how long others may use the nodes that it will need; None: not known yet
        self._window: float | None = inf
        #: nodes that may be used for longer
        self.spare = 0

    def hold(self, job: Job, least: int, available: int) -> None:
        """For this job, which needs at least so many nodes, of which it could have some now."""
        self._job, self._needed, self._window = job, (least, available), None

    @property
    def window(self) -> float:
        """How much walltime those may have who use nodes that it will need; worked out when asked for."""
        if self._window is None:
            self._window = inf
            assert self._job is not None
            if is_due(self._snapshot, self._job, self._patience):
                shadow, self.spare = shadow_time(self._snapshot, (), *self._needed)
                self._window = shadow - self._snapshot.now
        return self._window

    def allows(self, job: Job, nodes: int) -> bool:
        """Whether a job may start on so many nodes. If so, it does."""
        window = self.window
        if window == inf or job.walltime_on(nodes) <= window:
            return True
        if nodes > self.spare:
            return False
        self.spare -= nodes
        return True
