"""A batch system and a program as simple as can be, that a chain of jobs is driven by."""

from dataclasses import dataclass, field, replace

from dask_hpc.checkpoint.client.reserved import Progress
from dask_hpc.planning.plan_reservation import plan_reservation
from dask_hpc.reservations.chain import (
    AskFor,
    ChainCancelled,
    ChainResumed,
    DropJobs,
    JobAsked,
    JobBegan,
    JobChain,
    JobRefused,
    KeepOut,
    LeaveJob,
    LowerLimit,
    NoteRun,
    ProgramEnded,
    ProgramRuns,
    RunProgram,
)
from dask_hpc.reservations.chain_rules import first_link, follow


def new_chain(
    law="empirical 600s 1200s 1800s 2400s 3600s",
    checkpoint=30.0,
    restart=10.0,
    method="discrete-ckpt",
    max_walltime=None,
    **more,
):
    plan = plan_reservation(law, checkpoint, restart, "cloud", method, max_walltime, number=12)
    known = None if checkpoint is None else (checkpoint, restart)
    return JobChain(
        id="c1", name="fmri", user="alice", command=("python", "a.py"), directory="/work", plan=plan,
        created=1e9, planned=known, **more,
    )  # fmt: skip


@dataclass
class Job:
    number: int
    limit: float
    after: str = ""
    margin: float | None = None
    memory: float | None = None
    #: pending, running, or what became of it
    state: str = "pending"
    may_requeue: bool = True
    began: float = 0.0
    leaves: int | None = None
    program: RunProgram | None = None


@dataclass
class World:
    """Slurm's jobs and the program: how much work it needs, and how much of it the store has."""

    chain: JobChain
    need: float
    uses_checkpoints: bool = True
    now: float = 1e9
    jobs: dict[str, Job] = field(default_factory=dict)
    notes: list = field(default_factory=list)
    stored: float = 0.0
    base: float = 0.0
    progress: Progress = field(default_factory=Progress)
    #: asks that Slurm did not answer
    refuses: bool = False
    lost_answers: bool = False
    #: work done in all jobs together
    worked: float = 0.0

    def begin(self):
        self.chain, instructions = first_link(self.chain, self.now)
        self.carry_out(instructions)

    def follow(self, event):
        before = self.chain
        self.chain, instructions = follow(self.chain, event)
        assert JobChain.of(self.chain.as_plain()).as_plain() == self.chain.as_plain()
        assert self.chain.saved >= before.saved and self.chain.tried >= before.tried
        if before.over and (before.over == "done" or not isinstance(event, ChainResumed)):
            assert self.chain.over == before.over
        return self.carry_out(instructions)

    def carry_out(self, instructions):
        left = []
        for one in instructions:
            match one:
                case AskFor():
                    self.ask(one)
                case LowerLimit():
                    job = self.jobs[one.job]
                    assert one.length < job.limit
                    job.limit = one.length
                case KeepOut():
                    self.jobs[one.job].may_requeue = False
                case DropJobs():
                    for job in one.jobs:
                        if self.jobs[job].state in ("pending", "running"):
                            self.jobs[job].state = "CANCELLED"
                case NoteRun():
                    self.notes.append(one.run)
                case RunProgram() | LeaveJob():
                    left.append(one)
        return left

    def ask(self, ask):
        assert not self.chain.over
        assert ask.length <= self.chain.plan.max_walltime
        if self.refuses:
            self.follow(JobRefused(now=self.now, number=ask.number, why="no answer"))
            return
        job = str(100 + len(self.jobs))
        limit = 60.0 * -(-ask.length // 60)
        self.jobs[job] = Job(ask.number, limit, ask.after, ask.margin, ask.memory)
        if not self.lost_answers:
            self.follow(JobAsked(now=self.now, number=ask.number, job=job))

    # what happens

    @property
    def running(self):
        return next((name for name, job in self.jobs.items() if job.state == "running"), None)

    def may_start(self):
        """Jobs that Slurm may start now; those that never will be are dropped."""
        found = []
        for name, job in self.jobs.items():
            if job.state != "pending":
                continue
            before = self.jobs.get(job.after)
            if before is None or before.state not in ("pending", "running", "COMPLETED"):
                found.append(name)
            elif before.state == "COMPLETED":
                job.state = "CANCELLED"
        return found

    def start(self, name):
        job = self.jobs[name]
        job.state, job.began = "running", self.now
        before = self.jobs.get(job.after)
        event = JobBegan(
            now=self.now, number=job.number, job=name, progress=self.progress,
            before="" if before is None else before.state,
        )  # fmt: skip
        (found,) = self.follow(event)
        assert job.state == "running", "it ends by itself, and is not cancelled by itself"
        if isinstance(found, LeaveJob):
            job.state = "COMPLETED" if found.code == 0 else "FAILED"
            return False
        job.program = found
        self.base = self.stored if self.uses_checkpoints else 0.0
        self.progress = replace(self.progress, final="")
        if self.uses_checkpoints:
            restore = 10.0 if self.base else None
            self.progress = Progress(
                job.number, found.restarts, {"u": ((1, self.base),)} if self.base else {},
                has_store=True, saved=self.stored,
                base=self.base, since=self.now + (restore or 0.0), restore=restore,
                commit=self.progress.commit,
            )  # fmt: skip
        return True

    def look_ahead(self):
        self.follow(ProgramRuns(now=self.now, number=self.jobs[self.running].number))

    def work_for(self, seconds):
        """The program works on; so long at most until it is done."""
        start = self.now + (10.0 if self.base and self.now == self.jobs[self.running].began else 0.0)
        self.now = start + min(seconds, max(0.0, self.need - self.reached(start)))
        return self.reached(self.now)

    def reached(self, now):
        job = self.jobs[self.running]
        restored = job.began + (10.0 if self.base else 0.0)
        return self.base + max(0.0, now - restored)

    def commit(self, is_final=False, fits=True):
        if not self.uses_checkpoints:
            return
        work = self.reached(self.now)
        self.now += 30.0
        if fits:
            self.stored = max(self.stored, work)
        final = ("safe" if fits else "begun") if is_final else self.progress.final
        points = {"u": (*self.progress.points.get("u", ()), (len(self.progress.points) + 1, work))}
        self.progress = replace(
            self.progress, saved=self.stored, points=points, final=final, commit=30.0
        )  # fmt: skip

    def end(self, code, is_told=False):
        name = self.running
        job = self.jobs[name]
        left = self.follow(
            ProgramEnded(now=self.now, number=job.number, code=code, is_told=is_told, progress=self.progress)
        )
        assert [type(one) for one in left] == [LeaveJob]
        if job.state == "running":
            job.state = "COMPLETED" if left[0].code == 0 else "FAILED"

    def die(self, state="NODE_FAIL"):
        """Without a word."""
        name = self.running
        job = self.jobs[name]
        if job.may_requeue and state == "NODE_FAIL":
            job.state = "pending"
        else:
            job.state = state

    def cancel(self):
        self.follow(ChainCancelled(now=self.now))

    def resume(self, **how):
        self.follow(ChainResumed(now=self.now, progress=self.progress, **how))
