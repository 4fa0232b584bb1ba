"""I/O lanes on a simulated machine: of what jobs read, only so much is in flight on the shared file system.

What a node of a job reads at once is so many tasks, one after the other (``Crowding.reads``), and these go
through the lane as the tasks of a live cluster do: the policy's ``io`` strategy says how many are in flight,
is asked whenever one has ended, and sees what was measured of them, counted by the code of the live lanes.

What differs from a live cluster. There is one file system, so one lane. A node reads one task at a time and
does nothing else meanwhile, so there is no slot for which a read and what computes are rivals: pairing and
the choice of neighbours have nothing to decide. Who reads first goes first, where Dask has priorities.
Writes are in no lane, as there; but the file system serves them as well, and they crowd it.
"""

from dataclasses import dataclass, field
from typing import Any

from dask_hpc.model.story import Happening
from dask_hpc.simulator.execution import Transfer
from dask_hpc.simulator.service import Companion, Life, MachineService
from dask_hpc.strategies.io.lane_reads import LaneReads, explained
from dask_hpc.strategies.io.lane_view import IoView

#: what it is called in reasons
FILE_SYSTEM = "the file system"
_READS = 8  # tasks of what a node reads at once, where the platform says nothing of it


@dataclass(eq=False, slots=True)
class JobReads:
    """What one job reads now: tasks of so many bytes, ``slots`` of them at a time at most."""

    life: Life
    since: float
    nbytes: float
    slots: int
    #: not in flight yet
    left: int
    flying: set["OneRead"] = field(default_factory=set)


class OneRead(Companion):
    """One task of them, in flight."""

    def __init__(self, desk: "ReadDesk", job: JobReads) -> None:
        self._desk, self.job = desk, job

    def woken(self, now: float) -> None:
        self._desk.ended(self, now)


class SimulatedLane(LaneReads):
    """The reads of the file system of a simulated machine."""

    def __init__(self) -> None:
        super().__init__(FILE_SYSTEM, None, False)
        #: in the order in which they began to read
        self.jobs: dict[Life, JobReads] = {}

    def count_waiting(self) -> int:
        return sum(job.left for job in self.jobs.values())


class ReadDesk(MachineService):
    """Lets reads pass, as the ``io`` strategy of the policy says."""

    def __init__(self) -> None:
        self._memory: Any = None
        #: as soon as somebody reads
        self.lane: SimulatedLane | None = None
        #: what jobs read at once: how often, and how long it took in all
        self._whole, self._seconds = 0, 0.0
        #: the same of the tasks that it consists of
        self._begun, self._flown = 0, 0.0

    def reads(self, life: Life, transfer: Transfer, now: float) -> bool:
        crowding = self.site.platform.crowding
        each = crowding.reads if crowding else _READS
        nodes, is_first = transfer.nodes, self.lane is None
        lane = self.lane = self.lane or SimulatedLane()
        lane.jobs[life] = JobReads(life, now, transfer.bytes_per_node / each, nodes, nodes * each)
        if is_first:
            self._ask(now)
        self._let_pass(now)
        return True

    def ended(self, read: OneRead, now: float) -> None:
        """One task of a job has read its part."""
        lane, job = self.lane, read.job
        assert lane is not None
        self._arrives(read, True, now)
        if not (job.left or job.flying):
            del lane.jobs[job.life]
            self._whole += 1
            self._seconds += now - job.since
            self.site.step_at(now, job.life)
        self._let_pass(now)
        self._ask(now)

    def abandoned(self, life: Life, now: float) -> None:
        job = self.lane.jobs.pop(life, None) if self.lane is not None else None
        if job is None:
            return
        for read in list(job.flying):
            self.site.file_system.abandon(now, read)
            self._arrives(read, False, now)
        self._let_pass(now)
        self._ask(now)

    def end(self, now: float) -> None:
        """Of jobs that read, what they waited for counts, too: not each task of it alone."""
        file_system, record = self.site.file_system, self.site.record
        count = file_system.begun - self._begun + self._whole
        if record is not None and count:
            record.transfer = (file_system.waited - self._flown + self._seconds) / count

    def _let_pass(self, now: float) -> None:
        lane = self.lane
        assert lane is not None
        for job in lane.jobs.values():
            while job.left and len(job.flying) < job.slots and not lane.is_full:
                read = OneRead(self, job)
                job.left -= 1
                job.flying.add(read)
                self._begun += 1
                lane.departs(read, None, now)
                self.site.file_system.begin(now, read, 1, job.nbytes, read.version)

    def _arrives(self, read: OneRead, is_done: bool, now: float) -> None:
        assert self.lane is not None
        read.job.flying.discard(read)
        self._flown += now - self.lane.arrives(read, is_done, now).since

    def _ask(self, now: float) -> None:
        """What the strategy says of limits is done, and told."""
        lane, strategy = self.lane, self.site.policy.io
        assert lane is not None and strategy is not None
        view = IoView(len(self.site.indices.nodes), (lane.view(),))
        changes, self._memory = strategy.decide(view, self._memory)
        for change in changes:
            lane.change(change.limit, change.reason)
            why = explained(view, change, f"io: {strategy.name}")
            revision = self.site.indices.revision
            self.site.story.tell(Happening(revision, now, "io-limit", "", (), str(change), why))
            self._let_pass(now)
