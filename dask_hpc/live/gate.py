"""The gate: which task belongs to which job, and where it may run.

All tasks of a job share one restriction set. While the job waits, the set holds an address that no
worker has, so its tasks wait in Dask's state ``no-worker``; starting the job is one edit of the set and a
nudge of those tasks. Nothing outside of jobs is ever touched. Restricted root tasks lose Dask's queuing
(all that are ready are sent to the allotment at once); letting them through in waves is not built yet.

What the user said about single tasks (``workers=``) is respected: such a task waits with its job and then
runs on those of the named workers that the job holds; if it holds none of them, where the user said
(outside the allotment), or anywhere in the allotment with ``allow_other_workers=True``.
"""

from collections.abc import Hashable, Iterable
from typing import Any

from dask_hpc.live import compat
from dask_hpc.live.jobs import LiveJob


class Gate:
    """Owner of every task of every job, by key."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self.owner: dict[Hashable, LiveJob] = {}
        #: tasks that left their job: to be nudged when Dask is not in the middle of something
        self._freed: dict[Hashable, None] = {}

    def submit(self, keys: Iterable[Hashable], job: LiveJob | None) -> bool:
        """A graph arrives, from a job or from outside. Whether tasks of waiting jobs changed hands.

        New tasks become the job's. A task that another job already has stays there; if that one still
        waits, it has to start first. But somebody who runs already is not made to wait: whoever is
        outside of jobs, or in a running job, takes over the waiting tasks he needs.
        """
        foreign = []
        for key in keys:
            task = compat.find_task(self._scheduler, key)
            owner = self.owner.get(key)
            if owner is job:
                continue
            if owner is None or owner.state == "done":
                if job is not None and compat.is_new(task):
                    self._adopt(key, task, job)
            elif not compat.is_settled(task):
                if owner.state == "waiting":
                    foreign.append(key)
                if job is not None:
                    job.needs.add(key)
                    if owner not in job.producers and not owner.waits_for(job):
                        job.producers.add(owner)
        if not foreign or (job is not None and job.state != "running"):
            return False
        return self.take_over(foreign, job)

    def take_over(self, keys: Iterable[Hashable], job: LiveJob | None) -> bool:
        """Move tasks of waiting jobs, and what these need, to a running job or out of all jobs."""
        found = {}
        todo = list(keys)
        while todo:
            key = todo.pop()
            owner = self.owner.get(key)
            task = compat.find_task(self._scheduler, key)
            if owner is None or owner is job or owner.state != "waiting" or key in found or task is None:
                continue
            if not compat.is_settled(task):
                found[key] = task
                todo.extend(compat.dependencies(task))
        for key, task in found.items():
            self._disown(key, task)
            if job is not None:
                self._adopt(key, task, job)
                if compat.is_unfinished(task):
                    job.owe(key, compat.prefix(task))
            self._freed[key] = None
        return bool(found)

    def let_go(self, keys: Iterable[Hashable], job: LiveJob) -> None:
        """These tasks of the job are needed by others only: they leave it."""
        for key in keys:
            task = compat.find_task(self._scheduler, key)
            if task is not None and self.owner.get(key) is job:
                self._disown(key, task)
                self._freed[key] = None

    def open(self, job: LiveJob, addresses: Iterable[str]) -> None:
        """The job starts on these workers; its tasks are nudged."""
        self.move(job, addresses)
        compat.nudge(self._scheduler, list(job.held), f"hpc-start-{job.id}")

    def move(self, job: LiveJob, addresses: Iterable[str]) -> None:
        """What the job starts from now on runs on these workers."""
        job.gate.clear()
        job.gate.update(addresses)
        for key, wishes in job.wishes.items():
            self._place(compat.find_task(self._scheduler, key), job, wishes)

    def extend(self, job: LiveJob, addresses: Iterable[str]) -> None:
        """More workers on the job's nodes. Dask itself looks again at what waits for them."""
        job.gate.update(addresses)

    def cut(self, job: LiveJob, address: str) -> None:
        """A worker of the job is gone."""
        job.gate.discard(address)

    def shut(self, job: LiveJob) -> None:
        """The job has to wait (again). Tasks that others need meanwhile leave it, so that they can run."""
        job.gate.clear()
        job.gate.add(compat.GATE)
        for key in job.unfinished:
            task = compat.find_task(self._scheduler, key)
            # Dask's shuffles exchange the sets of their tasks, and the user's wishes may have been
            # given back: make sure that all share ours again.
            compat.take_wishes(task)
            compat.restrict(task, job.gate)
        self.take_over([key for key in job.unfinished if self._is_needed_outside(key, job)], None)

    def lift(self, job: LiveJob) -> None:
        """The job is over. What is ever computed again of it may run anywhere."""
        job.gate.clear()
        for key, wishes in job.wishes.items():
            compat.give_back(compat.find_task(self._scheduler, key), wishes)
        job.wishes.clear()
        job.needs.clear()
        job.producers.clear()

    def lift_all(self) -> None:
        """No trace of any job is left, and everything runs as in plain Dask."""
        for key, job in self.owner.items():
            task = compat.find_task(self._scheduler, key)
            if task is not None:
                compat.give_back(task, job.wishes.get(key))
                self._freed[key] = None
        self.owner.clear()
        self.nudge_freed()

    def nudge_freed(self) -> None:
        """Let Dask look at the tasks that left their job."""
        if self._freed:
            freed, self._freed = self._freed, {}
            compat.nudge(self._scheduler, freed, "hpc-freed", plainly=True)

    def forget(self, key: Hashable, job: LiveJob) -> None:
        """Dask forgot a task."""
        del self.owner[key]
        job.settle(key)
        job.wishes.pop(key, None)

    def _adopt(self, key: Hashable, task: Any, job: LiveJob) -> None:
        self.owner[key] = job
        wishes = compat.take_wishes(task)
        if wishes is None:
            compat.restrict(task, job.gate)
        else:
            job.wishes[key] = wishes
            self._place(task, job, wishes)

    def _disown(self, key: Hashable, task: Any) -> None:
        job = self.owner.pop(key)
        job.settle(key)
        job.held.pop(key, None)
        compat.give_back(task, job.wishes.pop(key, None))

    def _place(self, task: Any, job: LiveJob, wishes: compat.Wishes) -> None:
        compat.restrict(task, job.gate)
        if job.state == "waiting":
            return
        inside = job.gate & compat.wished_addresses(self._scheduler, wishes)
        if inside:
            compat.restrict(task, inside)
        elif not wishes.loose:
            compat.give_back(task, wishes)

    def _is_needed_outside(self, key: Hashable, job: LiveJob) -> bool:
        for dependent in compat.dependents(compat.find_task(self._scheduler, key)):
            owner = self.owner.get(dependent)
            if owner is None or (owner is not job and owner.state == "running"):
                return True
        return False
