"""The gate: which task belongs to which job, and where it may run.

All tasks of a job share one restriction set. While the job waits, the set holds an address that no
worker has, so its tasks wait in Dask's state ``no-worker``; starting the job is one edit of the set and a
nudge of those tasks. Nothing outside of jobs is ever touched. Root tasks, which Dask would queue if they
were not restricted, share another set and pass in waves (``waves.py``). A job that holds all workers is
not restricted: both sets are empty.

What a client scatters in a job goes to the workers of the job, unless the user named others. As long as the
job has none it goes anywhere, as in Dask.

What the user said about single tasks (``workers=``) is respected: such a task waits with its job and then
runs on those of the named workers that the job holds; if it holds none of them, where the user said
(outside the allotment), or anywhere in the allotment with ``allow_other_workers=True``.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator
from itertools import islice
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler.jobs import LiveJob, Work
from dask_hpc.cluster.scheduler.service import Context
from dask_hpc.cluster.scheduler.waves import Waves

_EXPECTED = 1000  # calls that bring data, and have been announced
_FREED = 2000  # tasks that left their job and that Dask looks at in one turn of the event loop
_LOOKED_AT = 10_000  # tasks, of those that were sent, to see whether there are others than of jobs


class Gate:
    """Owner of every task of every job, by key."""

    def __init__(self, context: Context) -> None:
        self._scheduler = context.scheduler
        self._nodes = context.nodes
        self._jobs = context.jobs
        self.owner = context.owner
        self._wake = context.wake
        self.waves = Waves(context)
        #: tasks that left their job: to be nudged when Dask is not in the middle of something
        self.freed: dict[Hashable, None] = {}
        self._count_error = context.count_error
        #: the jobs of data that their clients are about to scatter, by the first key of each call
        self._expected: dict[str, LiveJob] = {}
        self._end_hiding = compat.hide_from_stealing(context.scheduler, self._idle_in_vain)

    def submit(self, keys: Collection[Hashable], job: LiveJob | None) -> bool:
        """A graph arrives, from a job or from outside. Whether tasks of waiting jobs changed hands.

        New tasks become the job's. A task that another job already has stays there; if that one still
        waits, it has to start first. But somebody who runs already is not made to wait: whoever is
        outside of jobs, or in a running job, takes over the waiting tasks he needs.
        """
        foreign = []
        is_root = self._root_rule(job, len(keys))
        for key in keys:
            task = compat.find_task(self._scheduler, key)
            owner = self.owner.get(key)
            if owner is job:
                continue
            if owner is None or owner.state == "done":
                if job is not None and compat.is_new(task):
                    self._adopt(key, task, job, is_root)
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

    def task_moves(self, key: Hashable, job: LiveJob, start: str, finish: str) -> Work | None:
        """A task of a job changed its state. What it was a part of, if nobody waits for it any more."""
        if job.passed and key in job.passed and finish != "processing":
            self.waves.root_ends(key, job)
        if start == "no-worker":
            job.held.pop(key, None)
            job.ready.discard(key)
        if finish == "memory":
            return job.settle(key)
        if finish in compat.UNFINISHED:
            if key not in job.unfinished:
                job.tries_again(key)
                task = compat.find_task(self._scheduler, key)
                job.owe(key, compat.prefix(task), compat.is_producer(task))
            if finish == "no-worker":
                task = compat.find_task(self._scheduler, key)
                where = compat.restriction(task)
                if job.wave and where is job.wave:
                    self.waves.root_waits(key, task, job)
                elif not self.waves.queues.keeps(key):
                    job.held[key] = None
                    if where is not job.gate and key not in job.wishes:
                        self._find_again(key, task, job)
            return None
        if finish == "erred":
            job.fails(key, compat.error_of(compat.find_task(self._scheduler, key)))
        work = job.settle(key)
        if finish == "forgotten":
            del self.owner[key]
            job.forget(key)
        return work

    def expect(self, first: str, job: LiveJob) -> None:
        """Data are about to come that a client scatters in a job; ``first`` is the first of their keys."""
        if len(self._expected) >= _EXPECTED:  # of clients that have died meanwhile
            del self._expected[next(iter(self._expected))]
        self._expected[first] = job

    def home(self, keys: Iterable[Hashable]) -> Collection[str]:
        """The workers that these data from outside go to: those of the job they were scattered in; none if
        it has none yet."""
        job = self._expected.pop(str(next(iter(keys), "")), None)
        return job.workers if job is not None else ()

    def _find_again(self, key: Hashable, task: Any, job: LiveJob) -> None:
        """Dask's shuffles bind a task to a worker, and give it back a copy of the set it had then: those
        workers may all be gone when it is computed again."""
        if job.state == "running" and not compat.is_connected(self._scheduler, compat.restriction(task)):
            compat.restrict(task, job.gate)
            self.freed[key] = None
            self._wake()

    def tasks_vanish(self) -> None:
        """Dask cleared all its tasks."""
        for job in set(self.owner.values()):
            for key in list(job.unfinished):
                job.settle(key)
            for key in list(job.failed):
                job.forget(key)
            self._forget_tasks(job)
            job.held.clear()
        self.owner.clear()

    def held_back(self) -> Iterator[Hashable]:
        """Tasks that only the gate keeps from running, or that wait for a slot."""
        for job in self._jobs.values():
            if job.state == "waiting":
                yield from job.held
            yield from job.ready
        yield from self.waves.queues.waiting()

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
        is_root = self._root_rule(job)
        for key, task in found.items():
            self.owner[key].needs.add(key)  # perhaps it starts when the other waits again
            self._disown(key, task)
            if job is not None:
                self._adopt(key, task, job, is_root)
                self.waves.queues.changes_hands(key, task)
                if compat.is_unfinished(task):
                    job.owe(key, compat.prefix(task), compat.is_producer(task))
            self.freed[key] = None
        return bool(found)

    def free(self, keys: Iterable[Hashable]) -> None:
        """A service does not keep these tasks back any more: they are as others of their job, or of none."""
        rules: dict[LiveJob, compat.RootRule] = {}
        found = [task for key in keys if (task := compat.find_task(self._scheduler, key)) is not None]
        for task in sorted(found, key=lambda task: task.priority):
            key = task.key
            job = self.owner.get(key)
            if job is None:
                compat.restrict(task, None)
            else:
                if job not in rules:
                    rules[job] = self._root_rule(job)
                is_root = rules[job](task)
                compat.restrict(task, job.wave if is_root else job.gate)
                if is_root and job.confined and compat.is_sent(task):
                    compat.restrict(task, job.gate)
                    job.passed.add(key)
                elif is_root and job.confined and compat.is_held(task):
                    self.waves.root_waits(key, task, job)
                    continue
            if compat.is_held(task):
                if job is not None:
                    job.held[key] = None
                if job is None or job.state != "waiting":
                    self.freed[key] = None
        self._wake()

    def let_go(self, keys: Iterable[Hashable], job: LiveJob) -> None:
        """These tasks of the job are needed by others only: they leave it, and take along what they need."""
        needs: list[Hashable] = []
        for key in keys:
            task = compat.find_task(self._scheduler, key)
            if task is not None and self.owner.get(key) is job:
                self._disown(key, task)
                self.freed[key] = None
                needs.extend(compat.dependencies(task))
        self.take_over(needs, None)

    def open(self, job: LiveJob, addresses: Iterable[str]) -> None:
        """The job starts on these workers, or goes on there; its tasks are nudged."""
        self.move(job, addresses)
        compat.nudge(self._scheduler, list(job.held), f"hpc-start-{job.id}", plainly=not job.confined)

    def move(self, job: LiveJob, addresses: Iterable[str]) -> None:
        """What the job starts from now on runs on these workers. Holding all of them it is not restricted."""
        self.waves.hold(job, addresses)
        if job.wishes or not compat.holds_all_workers(self._scheduler, job.workers):
            self.confine(job)
        else:
            job.confined = False
            job.gate.clear()
            if not job.ready:
                job.wave.clear()
        self.waves.look_at(job)
        for key, wishes in job.wishes.items():
            self._place(compat.find_task(self._scheduler, key), job, wishes)

    def confine(self, job: LiveJob) -> None:
        """The job starts tasks on its own workers only, whether it was restricted before or not."""
        self.waves.remember_places()
        was_confined, job.confined = job.confined, True
        job.gate.clear()
        job.gate.update(job.workers)
        job.wave.add(compat.GATE)
        if not was_confined:
            self.waves.take_back(job)

    def cut(self, job: LiveJob, address: str) -> None:
        """A worker of the job is gone."""
        self.waves.hold(job, job.workers - {address})
        job.gate.discard(address)

    def shut(self, job: LiveJob) -> None:
        """The job has to wait (again). Tasks that others need meanwhile leave it, so that they can run."""
        self.waves.forget(job)
        self.waves.hold(job, ())
        self.confine(job)
        job.gate.add(compat.GATE)
        is_root = self._root_rule(job)
        for key in job.unfinished:
            task = compat.find_task(self._scheduler, key)
            # Dask's shuffles exchange the sets of their tasks, and the user's wishes may have been
            # given back: make sure that all share ours again.
            compat.take_wishes(task)
            compat.restrict(task, job.gate)
            if key not in job.wishes and key not in job.passed and is_root(task):
                compat.restrict(task, job.wave)
                if job.held.pop(key, job) is None:
                    self.waves.root_waits(key, task, job)
            self.waves.queues.changes_hands(key, task)
        self.take_over([key for key in job.unfinished if self._is_needed_outside(key, job)], None)

    def lift(self, job: LiveJob) -> None:
        """The job is over. What is ever computed again of it may run anywhere."""
        job.confined = False
        job.gate.clear()
        job.wave.clear()
        self.waves.hold(job, ())
        for key, wishes in job.wishes.items():
            compat.give_back(compat.find_task(self._scheduler, key), wishes)
        self._forget_tasks(job)
        job.producers.clear()
        for other in self._jobs.values():  # one that lasts would remember all that it ever needed
            other.producers.discard(job)
            if other.needs:
                other.needs = {key for key in other.needs if self.owner.get(key, job) is not job}

    def _forget_tasks(self, job: LiveJob) -> None:
        """None of its tasks waits for anything of ours. What is empty is cleared, too: a dictionary keeps the
        room of all that it ever held, and the job stays known for long."""
        for known in (job.unfinished, job.held):
            if not known:
                known.clear()
        job.ready.clear()
        job.passed.clear()
        job.wishes.clear()
        job.needs.clear()
        self.waves.forget(job)

    def _idle_in_vain(self) -> list[str]:
        """The idle workers that can take over nothing, as all that was sent is of jobs that run elsewhere."""
        try:
            idle = dict.fromkeys(compat.idle_workers(self._scheduler))
            holders = {address: self.waves.holder(address) for address in idle}
            found = [a for a, job in holders.items() if job is None or idle.keys() >= job.workers]
            return found if found and not self._is_sent_outside() else []
        except Exception as error:
            self._count_error("hiding idle workers", error)
            return []

    def _is_sent_outside(self) -> bool:
        """Whether somebody may take over a task that is in no job, as far as a look at some of them tells."""
        for key in islice(compat.stealable(self._scheduler), _LOOKED_AT):
            job = self.owner.get(key)
            if job is None or not job.confined or key in job.wishes:
                return True
        return False

    def lift_all(self) -> None:
        """No trace of any job is left, and everything runs as in plain Dask."""
        self._end_hiding()
        for key, job in self.owner.items():
            task = compat.find_task(self._scheduler, key)
            if task is not None:
                compat.give_back(task, job.wishes.get(key))
                self.freed[key] = None
        for job in set(self.owner.values()):
            job.ready.clear()
            job.passed.clear()
        self.owner.clear()
        self.freed.update(dict.fromkeys(self.waves.close()))
        self.nudge_freed(len(self.freed))

    def nudge_freed(self, most: int = _FREED) -> None:
        """Let Dask look at the tasks that left their job, at so many of them now."""
        if self.freed:
            freed = list(islice(self.freed, most))
            for key in freed:
                del self.freed[key]
            compat.nudge(self._scheduler, freed, "hpc-freed", plainly=True)
            if self.freed:
                self._wake()

    def _adopt(self, key: Hashable, task: Any, job: LiveJob, is_root: compat.RootRule) -> None:
        self.owner[key] = job
        wishes = compat.take_wishes(task)
        if wishes is None:
            compat.restrict(task, job.wave if is_root(task) else job.gate)
        else:
            job.wishes[key] = wishes
            if not job.confined:
                self.confine(job)
            self._place(task, job, wishes)

    def _disown(self, key: Hashable, task: Any) -> None:
        job = self.owner.pop(key)
        self._drop(key, job)
        compat.give_back(task, job.wishes.pop(key, None))
        self.waves.queues.changes_hands(key, task)

    def _drop(self, key: Hashable, job: LiveJob) -> None:
        job.settle(key)
        job.held.pop(key, None)
        job.ready.discard(key)
        job.passed.discard(key)

    def _root_rule(self, job: LiveJob | None, count: int | None = None) -> compat.RootRule:
        """Which tasks Dask would queue if the cluster were the job's workers; while it waits, those it
        asks for. Of a new graph of so many tasks none if slots are open for all: people who submit one task
        after the other would wait for a wave each time."""
        if job is None or not job.workers:
            per_node = self._scheduler.total_nthreads / max(1, len(self._nodes))
            return compat.RootRule(self._scheduler, per_node * (job.model.nodes if job else 1))
        threads = compat.threads_of(self._scheduler, job.workers)
        has_room = False
        if count is not None and count <= 2 * threads and not job.ready:
            open_ = sum(slot.free for slot in compat.free_slots(self._scheduler, job.workers))
            has_room = count <= open_
        return compat.RootRule(self._scheduler, threads, has_room)

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
        for dependent in compat.find_task(self._scheduler, key).dependents:
            owner = self.owner.get(dependent.key)
            if owner is None or (owner is not job and owner.state == "running"):
                return True
        return False


class DryGate(Gate):
    """Stands where a gate stands. Decisions are made and told; no task is kept, moved or restricted."""

    def submit(self, keys: Collection[Hashable], job: LiveJob | None) -> bool:
        """New tasks belong to the job; nothing else follows from that."""
        for key in keys:
            task = compat.find_task(self._scheduler, key)
            if job is not None and key not in self.owner and compat.is_new(task):
                self.owner[key] = job
        return False

    def _idle_in_vain(self) -> list[str]:
        """Nobody."""
        return []

    def home(self, keys: Iterable[Hashable]) -> Collection[str]:
        """Anywhere."""
        return ()

    def take_over(self, keys: Iterable[Hashable], job: LiveJob | None) -> bool:
        """Nobody waits, so there is nothing to be taken over."""
        return False

    def let_go(self, keys: Iterable[Hashable], job: LiveJob) -> None:
        """These tasks leave their job."""
        for key in keys:
            if self.owner.get(key) is job:
                self._drop(key, self.owner.pop(key))

    def open(self, job: LiveJob, addresses: Iterable[str]) -> None:
        """Only noted."""
        job.workers = set(addresses)

    move = open

    def confine(self, job: LiveJob) -> None:
        """Nothing."""

    def shut(self, job: LiveJob) -> None:
        """Only noted."""
        job.workers.clear()

    def lift_all(self) -> None:
        """Nothing is restricted, so nothing is to be lifted."""
        self._end_hiding()
        self.owner.clear()
        self.waves.close()
