"""The frame of the published malleability strategies: shrink for the job that waits, or else grow."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Annotated, Any, ClassVar, Literal

from dask_hpc.model.job import Job
from dask_hpc.model.parameter import Parameter
from dask_hpc.model.plan import Resize
from dask_hpc.model.snapshot import REST, Running, Snapshot
from dask_hpc.model.speedup import largest_legal, next_legal_down, smallest_legal
from dask_hpc.model.units import count_nodes
from dask_hpc.strategies.queue.moldable import smallest_size
from dask_hpc.strategies.strategy import MalleabilityStrategy, Outlook, Resizes


def malleable(snapshot: Snapshot) -> list[Running]:
    """Running jobs the scheduler may resize of its own accord, in order of start.

    Evolving jobs are not among them: by the classes of Feitelson and Rudolph they ask for themselves. Nor
    are those that have nothing to run while others have: see ``given_up``.
    """
    found = [running for running in snapshot.resizable if running.job.kind == "malleable"]
    resting = snapshot.resting
    if resting and (len(snapshot.waiting) or len(resting) < len(snapshot.running)):
        found = [running for running in found if running.job.id not in resting]
    return found


def answers(snapshot: Snapshot, idle: int) -> list[Resize]:
    """Resizes that answer what evolving jobs have asked for, oldest job first: what they give back is always
    taken, what they want is given as far as it is idle, now or later.

    Every policy does this, whatever else it does about malleability. A request beyond the job's range
    is cut to it.
    """
    resizes = []
    for running in snapshot.resizable if snapshot.requests else ():
        wanted = snapshot.requests.get(running.job.id)
        if wanted is None:
            continue
        job, size = running.job, len(running.nodes)
        wanted = max(job.min_nodes, min(wanted, job.max_nodes))
        target = largest_legal(job.constraint, job.min_nodes, min(wanted, size + idle))
        if target is None or target == size or (target < size <= wanted):
            continue
        idle -= max(0, target - size)
        resizes.append(Resize(job.id, target, f"it asked for {wanted} nodes"))
    return resizes


def given_up(snapshot: Snapshot, idle: int) -> list[Resize]:
    """Resizes of malleable jobs that have rested for ``REST``, longest first, and hold more nodes than they
    need: what somebody who waits can start on they give up. Every policy that resizes jobs does this.
    """
    now, resting = snapshot.now, snapshot.resting
    if not resting or not len(snapshot.waiting):
        return []
    jobs = [
        r
        for r in snapshot.resizable
        if r.job.kind == "malleable" and now - resting.get(r.job.id, now) >= REST
    ]
    jobs.sort(key=lambda running: resting[running.job.id])
    idle += leaving(snapshot)
    room = idle + sum(
        len(r.nodes) - (smallest_legal(r.job.constraint, r.job.min_nodes, len(r.nodes)) or 0) for r in jobs
    )
    need, whom = 0, ""
    for job in snapshot.waiting if jobs else ():
        size = job.nodes if need + job.nodes <= room else smallest_size(job)
        if need + size <= room:
            need += size
            whom = whom or job.id
    need -= idle
    resizes = []
    for running in jobs:
        size = len(running.nodes)
        target = shrunk(running.job, size, need) if need > 0 else size
        if target < size:
            need -= size - target
            resizes.append(Resize(running.job.id, target, f"has nothing to run, and job {whom} waits"))
    return resizes


def leaving(snapshot: Snapshot) -> int:
    """Nodes that jobs which are shrinking just now will give back, and services that were told to."""
    changing, borrowers = snapshot.changing, snapshot.borrowers
    if not changing and not borrowers:  # nearly always
        return 0
    return sum(
        max(0, len(running.nodes) - running.target) for running in changing if running.target is not None
    ) + sum(known.owed for known in borrowers.values())


def grown(job: Job, size: int, idle: int, steps: int = 0) -> int:
    """The size it can grow to with ``idle`` nodes: the largest legal, or ``steps`` legal sizes up."""
    limit = min(job.max_nodes, size + idle)
    if not steps:
        return largest_legal(job.constraint, size, limit) or size
    for _ in range(steps):
        larger = smallest_legal(job.constraint, size + 1, limit)
        if larger is None:
            break
        size = larger
    return size


def shrunk(job: Job, size: int, need: int, steps: int = 0) -> int:
    """The size it can shrink to in order to give ``need`` nodes, or else as many as it can: the largest
    legal one that gives them, or at most ``steps`` legal sizes down."""
    if not steps:
        enough = largest_legal(job.constraint, job.min_nodes, size - need)
        return enough or smallest_legal(job.constraint, job.min_nodes, size) or size
    target = size
    for _ in range(steps):
        smaller = next_legal_down(job.constraint, target, job.min_nodes)
        if smaller is None or size - target >= need:
            break
        target = smaller
    return target


def shrink_for(jobs: Iterable[Running], need: int, whom: Job, steps: int = 0) -> list[Resize]:
    """Shrink one after the other until ``need`` nodes are freed; nobody if they cannot free that many."""
    resizes = []
    for running in jobs:
        if need <= 0:
            break
        size = len(running.nodes)
        target = shrunk(running.job, size, need, steps)
        if target < size:
            resizes.append(gives(running, target, whom))
            need -= size - target
    return resizes if need <= 0 else []


def grow_into(jobs: Iterable[Running], idle: int, steps: int = 0) -> list[Resize]:
    """Let one after the other grow as far as it can."""
    resizes = []
    for running in jobs:
        if idle <= 0:
            break
        size = len(running.nodes)
        target = grown(running.job, size, idle, steps)
        if target > size:
            resizes.append(takes(running, target))
            idle -= target - size
    return resizes


def gives(running: Running, target: int, whom: Job) -> Resize:
    """A shrink, with its reason."""
    given = count_nodes(len(running.nodes) - target)
    return Resize(running.job.id, target, f"gives {given} so that job {whom.id} can start")


def takes(running: Running, target: int) -> Resize:
    """A growth, with its reason."""
    return Resize(running.job.id, target, f"grows into {count_nodes(target - len(running.nodes), 'idle')}")


def left(running: Running, now: float) -> float:
    """Seconds until it is expected to end; 0 if it is overdue."""
    return max(0.0, running.expected_end - now) if running.expected_end < inf else inf


@dataclass(frozen=True, slots=True)
class GrowShrink(MalleabilityStrategy):
    """Job management of seed 001, section 5.3.1, and seed 000, section 4.2; subclasses say who and how far.

    With priority ``waiting`` (PWMA) running jobs shrink if that lets the first waiting job start, all or
    nobody; otherwise they grow. With ``running`` (PRMA) nobody ever shrinks. Only the head counts; it
    starts in a later decision, once the nodes are free indeed. Nodes that are about to come free count
    as idle for the head, and while the head only waits for those nobody grows.
    """

    essential: ClassVar[tuple[str, ...]] = ("priority", "guard")

    priority: Annotated[
        Literal["waiting", "running"],
        Parameter("waiting: shrink jobs so that the first waiting one can start; running: never shrink"),
    ] = "waiting"
    guard: Annotated[
        float,
        Parameter("leave a job alone when no more than this is left of its walltime", unit="s", low=0.0),
    ] = 60.0
    max_growths: Annotated[
        int,
        Parameter("how often one job may be given nodes; 0: no limit", unit="times", low=0, high=1_000_000),
    ] = 0
    barrier: Annotated[bool, Parameter("decide nothing while any job is changing its size")] = True

    def decide(self, snapshot: Snapshot, outlook: Outlook, memory: Any) -> tuple[Resizes, Any]:
        """Shrinks for the head, or growths, or nothing."""
        if outlook.head is None and not outlook.idle:
            return (), memory
        everyone = malleable(snapshot)
        if not everyone or (self.barrier and snapshot.is_resizing):
            return (), memory
        memory = self.observe(snapshot, memory)
        now = snapshot.now
        jobs = [running for running in everyone if running.expected_end - now > self.guard]
        head = outlook.head
        if head is not None and self.priority == "waiting":
            need = head.nodes - outlook.idle - leaving(snapshot)
            if need <= 0:
                return (), memory
            shrinks = self.shrinks(jobs, len(everyone), need, head, memory)
            if shrinks:
                return shrinks, memory
        if not outlook.idle or outlook.idle < snapshot.idle:
            return (), memory  # who starts now is to share what is left, in the decision that follows
        if self.max_growths:
            jobs = [running for running in jobs if running.growths < self.max_growths]
        return self.growths(jobs, len(everyone), outlook.idle, memory), memory

    def observe(self, snapshot: Snapshot, memory: Any) -> Any:
        """What to remember of this snapshot."""
        return memory

    def shrinks(self, jobs: Sequence[Running], count: int, need: int, head: Job, memory: Any) -> list[Resize]:
        """Shrinks that free at least ``need`` nodes for ``head``, or none. ``jobs`` are in order of start;
        ``count`` is how many there are with those about to end."""
        raise NotImplementedError

    def growths(self, jobs: Sequence[Running], count: int, idle: int, memory: Any) -> list[Resize]:
        """Growths into at most ``idle`` nodes."""
        raise NotImplementedError
