"""A live job: what it asked for, which tasks it has, and where they may run."""

from asyncio import Lock
from collections.abc import Hashable
from typing import Literal

from dask_hpc.live.compat import GATE, Wishes
from dask_hpc.live.performance import Performance, Work
from dask_hpc.live.ready import Ready
from dask_hpc.model.job import Job

State = Literal["waiting", "running", "done"]


class LiveJob:
    """Mutable; owned by the control loop. Its gate set is shared by all its tasks."""

    __slots__ = (
        "arrival",
        "clients",
        "closed",
        "confined",
        "ended",
        "gate",
        "held",
        "helpers",
        "is_cancelled",
        "kept_back",
        "layout",
        "model",
        "moving",
        "name",
        "needs",
        "nodes",
        "passed",
        "performance",
        "producers",
        "ready",
        "reason",
        "script",
        "started",
        "state",
        "unfinished",
        "wave",
        "wishes",
        "workers",
    )

    def __init__(self, name: str, model: Job, arrival: int, layout: str = "") -> None:
        self.name = name
        self.model = model
        #: how its arrays lie on its nodes, if it has said so
        self.layout = layout
        #: its place in the queue among equals; given back if it has to wait again
        self.arrival = arrival
        self.state: State = "waiting"
        self.reason = ""
        self.nodes: tuple[str, ...] = ()
        self.started: float | None = None
        self.ended: float | None = None
        self.renew()
        #: whoever moves its results: two plans for them at once would undo each other
        self.moving = Lock()
        #: the tasks somebody still waits for, and those of them that Dask can place nowhere now
        self.unfinished: dict[Hashable, Work] = {}
        self.held: dict[Hashable, None] = {}
        #: what they cost
        self.performance = Performance()
        #: what the user said about single tasks
        self.wishes: dict[Hashable, Wishes] = {}
        #: the clients that submitted it, and whether its context is closed
        self.clients: set[str] = set()
        self.closed = False
        #: the clients in its own tasks that submit more of it
        self.helpers: set[str] = set()
        #: whether somebody cancelled it: what still arrives of it is cancelled, too
        self.is_cancelled = False
        #: why somebody wants it not to start, if so
        self.kept_back = ""
        #: id of the job of the script it belongs to; that of a script's own job is its own
        self.script = ""
        #: tasks of other jobs that it needs, and those jobs
        self.needs: set[Hashable] = set()
        self.producers: set[LiveJob] = set()

    def renew(self) -> None:
        """It waits, and of what it had nothing is left."""
        #: addresses of the workers it holds
        self.workers: set[str] = set()
        #: whether its tasks start on these only; not so if there are no others
        self.confined = True
        #: the one set of addresses that restricts all its tasks; editing it in place moves them all.
        #: Empty if the job is not confined, or done
        self.gate: set[str] = {GATE}
        #: the set that restricts its root tasks while they are not in flight
        self.wave: set[str] = {GATE}
        #: root tasks: those that wait for a slot, and those that carry the gate: in flight, or handed to Dask
        self.ready = Ready()
        self.passed: set[Hashable] = set()

    def __repr__(self) -> str:
        return f"<LiveJob {self.model.id}: {self.state}, {len(self.unfinished)} unfinished tasks>"

    @property
    def id(self) -> str:
        """Unique among all jobs of the cluster."""
        return self.model.id

    def owe(self, key: Hashable, prefix: str) -> None:
        """Somebody waits for a task of it."""
        if key not in self.unfinished:
            work = self.unfinished[key] = self.performance.work(prefix)
            work.left += 1

    def settle(self, key: Hashable) -> Work | None:
        """Nobody waits for a task any more; answers what it was a part of, if somebody did."""
        work = self.unfinished.pop(key, None)
        if work is not None:
            work.left -= 1
        return work

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left to do."""
        return self.closed and not self.unfinished

    @property
    def gives_way(self) -> bool:
        """Whether it leaves its nodes when it has nothing to run and others wait, though it is not over."""
        return self.script == self.id

    @property
    def blocking(self) -> "LiveJob | None":
        """A job that has to start before this one may be offered to the policy, or None."""
        return min(
            (job for job in self.producers if job.state == "waiting" and job.unfinished),
            key=lambda job: job.arrival,
            default=None,
        )

    def waits_for(self, other: "LiveJob") -> bool:
        """Whether, through any chain of producers, this job needs the other."""
        seen, todo = set(), [self]
        while todo:
            job = todo.pop()
            if job is other:
                return True
            if job not in seen:
                seen.add(job)
                todo.extend(job.producers)
        return False
