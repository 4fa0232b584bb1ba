"""What jobs lose on a network that they share: how many times as long they take to communicate, from one
instant at which something begins or ends to the next.

A state of the machine is what all jobs, and all commits that are on their way, send at a time. In it each job
gets the share of its demands that the worst served of them gets: theta (seed 003, section 7.3.1), here by the
bounds of ``planning.network``, which are quick, and best cases. What a job does of communication takes
``1 / theta`` times as long as it would alone. Which share of its time that is it says itself (``messages``),
or its phases do; of a job that says neither all of it.

What is left out. A job that reads or writes files, or moves its data when it changes its size, is not in
anybody's way. One that launches sends already. What its phases communicate it sends all the time, as much as
on average.
"""

from collections.abc import Mapping
from math import inf

from dask_hpc.model.topology import Topology
from dask_hpc.planning.network.bounds import thetas
from dask_hpc.planning.network.demands import Traffic
from dask_hpc.planning.network.sends import sent_by
from dask_hpc.simulator.service import MachineService

#: states that are remembered
_STATES = 4096
_LEAST = 1e-9  # of a demand: who gets nothing at all would never end


class JobTheta:
    """Of one job while it communicated: the time, and the integral and the least of its theta."""

    __slots__ = ("least", "seconds", "weighted")

    def __init__(self) -> None:
        self.seconds = self.weighted = 0.0
        self.least = inf

    @property
    def mean(self) -> float:
        """Over its time."""
        return self.weighted / self.seconds if self.seconds else 1.0


class JobThetas(dict[str, JobTheta]):
    """Of one run of a machine, by the names of its jobs: those that communicate."""

    def __init__(self) -> None:
        super().__init__()
        #: of all of them, weighted by nodes and time
        self.all = JobTheta()


class NetworkPace(MachineService):
    """Sets the pace of jobs that communicate."""

    follows_instants = True

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        #: what commits that are on their way send, by job, and the jobs that stand still for theirs
        self._commits: dict[str, Traffic] = {}
        self._still: set[str] = set()
        #: what jobs and commits got since the last change, and when that was
        self._now: Mapping[str, float] = {}
        self._sizes: dict[str, int] = {}
        self._since = 0.0
        self._revision = -1
        self._known: dict[frozenset[tuple[str, Traffic]], dict[str, float]] = {}

    def begin(self) -> None:
        record = self.site.record
        self._kept = JobThetas() if record is None else record.find(JobThetas) or record.add(JobThetas())

    def end(self, now: float) -> None:
        self._account(now)

    def settled(self, now: float) -> None:
        if self.site.indices.revision == self._revision:
            return
        self._revision = self.site.indices.revision
        self._account(now)
        jobs = self._jobs()
        self._now = found = self._thetas({**jobs, **self._of_commits()})
        self._sizes = {job: len(traffic.nodes) for job, traffic in jobs.items()}
        for job in jobs:
            self.site.slow_down(job, 1.0 / max(_LEAST, found[job]))

    # commits

    def theta_of(self, job: str, traffic: Traffic, stands_still: bool) -> float:
        """What a commit of the job would get of its demand if it set out now."""
        others = {name: one for name, one in self._jobs().items() if name != job or not stands_still}
        name = _commit(job)
        found = self._thetas({**others, **self._of_commits(), name: traffic})[name]
        return max(_LEAST, found)

    def set_out(self, job: str, traffic: Traffic, stands_still: bool) -> float:
        """A commit of the job begins; what it gets of its demand."""
        theta = self.theta_of(job, traffic, stands_still)
        self._commits[job] = traffic
        if stands_still:
            self._still.add(job)
        self._revision = -1
        return theta

    def arrived(self, job: str) -> None:
        """A commit of the job is over, or given up."""
        if self._commits.pop(job, None) is not None:
            self._still.discard(job)
            self._revision = -1

    # inner workings

    def _jobs(self) -> dict[str, Traffic]:
        """What running jobs send."""
        site = self.site
        return {
            job: demand
            for job, running in site.indices.running.items()
            if running.job.traffic and job not in self._still and site.is_at_work(job)
            if (demand := sent_by(self.topology, running.nodes, running.job.traffic)) is not None
        }

    def _of_commits(self) -> dict[str, Traffic]:
        return {_commit(job): traffic for job, traffic in self._commits.items()}

    def _thetas(self, demands: dict[str, Traffic]) -> dict[str, float]:
        state = frozenset(demands.items())
        found = self._known.get(state)
        if found is None:
            if len(self._known) >= _STATES:
                self._known.clear()
            found = self._known[state] = dict(thetas(self.topology, demands))
        return found

    def _account(self, now: float) -> None:
        """The last state lasted until now."""
        seconds, self._since = now - self._since, now
        if seconds <= 0:
            return
        for job, nodes in self._sizes.items():
            theta = self._now[job]
            for one, weight in ((self._kept.setdefault(job, JobTheta()), 1), (self._kept.all, nodes)):
                one.seconds += seconds * weight
                one.weighted += theta * seconds * weight
                one.least = min(one.least, theta)


def _commit(job: str) -> str:
    return f"commit of {job}"
