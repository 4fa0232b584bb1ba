"""What others may do while a job that has waited too long still waits."""

from math import inf
from typing import NamedTuple

from dask_hpc.model.job import Job
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.strategies.malleability.worth import work_of
from dask_hpc.strategies.queue.profile import shadow_time

#: times what the whole machine would take for a job's work: so much later it is due. More is kinder to small
#: jobs, and leaves more wide ones for the end, when nothing fills the gaps beside them: at 0.7 makespan was
#: over 2 % worse than the best other strategy's in 2 of 112 cells of the tuning half, and at 0.2 mean bounded
#: slowdown in 5 (at 0.5 in none and 2)
LENIENCY = 0.5

#: times the longest walltime of those that run: nobody is first in line for longer before others mind it
FIRM = 4.0


class DueTimes(NamedTuple):
    """By when each job should have started: after ``patience``, and later if it has much work.

    Where a machine is so full that everybody waits longer than that, whoever is due first goes first. If it
    were whoever came first, a user's small jobs would wait for days behind a few of the whole machine, one
    after the other, that would hardly be later for letting them pass.
    """

    patience: float
    #: of the machine
    nodes: int

    def due(self, job: Job) -> float:
        """The time; infinite for a job without a walltime."""
        return job.submitted + self.patience + LENIENCY * work_of(job) / self.nodes


class Precedence:
    """The job that has waited too long starts as soon as it can; in the end nobody may delay it any more.

    EASY's reservation lets only those overtake whose whole walltime ends before the job in front can start.
    People ask for far more time than they need: where many ask for as much as the site allows, nodes stand
    idle for hours for the sake of one wide job, and everybody pays. So there is none at first. There is one
    when that job has been first in line for ``FIRM`` times the longest walltime of those that run, for
    otherwise narrow jobs could keep a wide one waiting for ever. First in line means that it is due, and that
    no job that runs was due before it and has started since.
    """

    def __init__(self, snapshot: Snapshot, times: DueTimes) -> None:
        self._snapshot, self._times = snapshot, times
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
            if self._is_firm():
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

    def _is_firm(self) -> bool:
        assert self._job is not None
        due, longest = self._times.due, 0.0
        since = limit = due(self._job)
        for running in self._snapshot.running.values():
            if longest < running.job.walltime < inf:
                longest = running.job.walltime
            if running.started > since and due(running.job) < limit:
                since = running.started
        return self._snapshot.now - since >= FIRM * longest
