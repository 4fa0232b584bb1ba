"""A batch system on a clock of numbers: it starts, preempts and requeues jobs, and answers as squeue does."""

from dataclasses import dataclass
from math import inf

from dask_hpc.batch.job_state import Heard
from dask_hpc.batch.slurm import OF_ALL, SEPARATOR

COMPLETING = 2.0  # seconds from the end of a job's processes until it is over, or back in the queue


def row(job, state, **more):
    """One job as squeue prints it when it is asked about everybody's."""
    usual = {
        "TimeUsed": "0:00", "TimeLeft": "N/A", "EndTime": "N/A", "StartTime": "N/A", "RestartCnt": "0",
        "Partition": "debug", "NumNodes": "1", "tres-alloc": "cpu=1,node=1,billing=1", "TimeLimit": "10:00",
        "SubmitTime": "970", "PriorityLong": "3000", "UserName": "ann", "NodeList": "", "QOS": "low",
        "OverSubscribe": "OK", "ArrayTaskID": "N/A", "Reason": "None",
    }  # fmt: skip
    words = {"JobID": job, "State": state} | usual | more
    return "".join(f"{words[field]:<{OF_ALL[field]}}{SEPARATOR}" for field in OF_ALL) + "\n"


@dataclass
class BatchJob:
    """One job. Its workers connect ``boot`` seconds after its start."""

    id: str
    submitted: float
    starts: float
    boot: float = 3.0
    end: float = inf
    #: seconds that it waits at least when it was put back; None: it ends for good
    again_after: float | None = None
    completes: float | None = None
    restarts: int = 0
    is_held: bool = False
    is_over: bool = False

    def state(self, now):
        """In Slurm's words."""
        if self.is_over:
            return "CANCELLED"
        if self.completes is not None:
            return "COMPLETING"
        return "RUNNING" if now >= self.starts and not self.is_held else "PENDING"


class SimulatedSlurm:
    """``submitter`` gives the seconds that the next new job waits."""

    def __init__(self, clock, next_wait):
        self._clock, self._next_wait = clock, next_wait
        self.jobs = {}
        self.questions = []
        self.is_full = False
        self._ids = 0

    @property
    def now(self):
        return self._clock()

    # what users and admins do

    def submit(self):
        """Its id, or None if it is refused."""
        if self.is_full:
            return None
        self._ids += 1
        job = BatchJob(str(self._ids), self.now, self.now + self._next_wait())
        self.jobs[job.id] = job
        return job.id

    def cancel(self, job):
        self.jobs[job].is_over = True

    def preempt(self, job, grace, again_after):
        """Its end moves; then it is back in the queue."""
        self.jobs[job].end = self.now + grace
        self.jobs[job].again_after = again_after

    def requeue(self, job, again_after, is_held=False):
        """At once."""
        self.preempt(job, 0.0, again_after)
        self.jobs[job].is_held = is_held

    def release(self, job):
        self.jobs[job].is_held = False

    # what can be seen

    def there(self):
        """Jobs that are not over."""
        return [job for job in self.jobs.values() if not job.is_over]

    def running(self):
        return [job for job in self.there() if job.state(self.now) == "RUNNING"]

    def connects(self, job):
        """Whether its workers are there."""
        one = self.jobs[job]
        return one.state(self.now) == "RUNNING" and self.now >= one.starts + one.boot

    async def hear(self, words, directory=""):
        """In place of running a command."""
        self.questions.append(self.now)
        return Heard("".join(self._line(job) for job in self.jobs.values()))

    def tick(self):
        """Time has passed. Jobs whose end has come."""
        ended = []
        for job in self.there():
            if job.completes is None and job.state(self.now) == "RUNNING" and self.now >= job.end:
                job.completes = self.now + COMPLETING
                ended.append(job.id)
            if job.completes is not None and self.now >= job.completes:
                job.completes, job.end = None, inf
                if job.again_after is None:
                    job.is_over = True
                else:
                    job.restarts += 1
                    job.starts = self.now + job.again_after
        return ended

    def _line(self, job):
        state = job.state(self.now)
        is_running = state == "RUNNING"
        seconds = int(self.now - job.starts) if is_running else 0
        used = f"{seconds // 60}:{seconds % 60:02}"
        end = f"{job.end:.0f}" if is_running and job.end < inf else "N/A"
        start = f"{job.starts:.0f}" if state == "PENDING" and job.restarts and not job.is_held else "N/A"
        reason = "JobHeldUser" if job.is_held else "BeginTime" if job.restarts else "Resources"
        return f"{job.id}|{state}|{used}|UNLIMITED|{end}|{start}|{job.restarts}|{reason}|\n"
