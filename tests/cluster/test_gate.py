"""Who may run where, in whatever order things happen: the gate on Dask's own state of tasks."""

from collections import Counter

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from pure_scheduler import PureScheduler

from dask_hpc.cluster.scheduler.gate import Gate
from dask_hpc.cluster.scheduler.jobs import LiveJob
from dask_hpc.dask import GATE
from dask_hpc.model.job import Job

ADDRESSES = [f"tcp://{name}:1" for name in "abcde"]


def some_of(addresses):
    """Some of them, and often all."""
    return st.one_of(st.just(addresses), st.lists(st.sampled_from(addresses), min_size=1, unique=True))


class Body:
    """What the gate needs of a context, and nothing else."""

    def __init__(self, scheduler):
        self.scheduler = scheduler
        self.nodes = scheduler.workers
        self.owner, self.jobs = {}, {}

    def count_error(self, where, error):
        raise error

    def wake(self):
        """Decisions come when a test makes them."""


class AnyOrder(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.s = PureScheduler(self.moved)
        self.body = Body(self.s)
        self.gate = Gate(self.body)
        self.ran = Counter()
        #: tasks whose results, or those of whose workers, were lost, and those that nobody wanted any more
        self.lost, self.unwanted = set(), set()
        self.number = 0
        for address in ADDRESSES[:3]:
            self.join(address)

    # what the body does when it hears of something

    def moved(self, key, start, finish):
        job = self.body.owner.get(key)
        if finish == "processing":
            task = self.s.tasks[key]
            if job is not None:
                assert job.state == "running", f"{key!r} starts, and its job is {job.state}"
                is_inside = not job.confined or task.processing_on.address in job.workers
                assert is_inside or key in job.wishes, f"{key!r} is outside"
        elif (start, finish) == ("processing", "memory"):
            self.ran[key] += 1
        if job is not None:
            self.gate.task_moves(key, job, start, finish)

    def join(self, address, owner=None):
        """A node joins, or more of a job's nodes."""
        worker = self.s.join(address)
        if owner is not None:
            self.gate.move(owner, {*owner.workers, address})
        for job in self.running():
            if owner is None and not job.confined:
                self.gate.confine(job)
        self.s.use(worker)

    def decide(self):
        self.gate.nudge_freed()
        jobs = self.running()
        holds_all = len(jobs) == 1 and len(jobs[0].workers) == len(self.s.workers)
        if holds_all and jobs[0].confined and not jobs[0].wishes:
            self.gate.move(jobs[0], jobs[0].workers)

    def running(self):
        return [job for job in self.body.jobs.values() if job.state == "running"]

    def waiting(self):
        return [job for job in self.body.jobs.values() if job.state == "waiting"]

    def idle(self):
        held = {address for job in self.running() for address in job.workers}
        return sorted(set(self.s.workers) - held)

    def requeue(self, job):
        job.state = "waiting"
        self.gate.shut(job)

    def start(self, job, addresses):
        job.state = "running"
        self.gate.open(job, addresses)
        self.gate.take_over(job.needs, job)

    # what happens

    @rule(number=st.sampled_from(range(len(ADDRESSES))), of_a_job=st.booleans())
    def worker_joins(self, number, of_a_job=False):
        if ADDRESSES[number] not in self.s.workers:
            self.join(ADDRESSES[number], next(iter(self.running()), None) if of_a_job else None)

    @precondition(lambda self: len(self.s.workers) > 1)
    @rule(data=st.data())
    def worker_leaves(self, data):
        address = data.draw(st.sampled_from(sorted(self.s.workers)))
        worker = self.s.workers[address]
        self.lost.update(task.key for task in (*worker.processing, *worker.has_what))
        self.s.leave(address)
        for job in self.running():
            if address in job.workers:
                self.gate.cut(job, address)
                if not job.workers:
                    self.requeue(job)

    @rule(data=st.data(), count=st.integers(1, 20), joined=st.booleans(), named=st.integers(0, 7))
    def graph_arrives(self, data, count, joined, named):
        there = [job for job in self.body.jobs.values() if job.state != "done"]
        open_jobs = [None, "new", "new", *there, *there]
        job = data.draw(st.sampled_from(open_jobs))
        if job == "new":
            name = f"job-{len(self.body.jobs)}"
            job = self.body.jobs[name] = LiveJob(name, Job(id=name, nodes=1), len(self.body.jobs))
        self.number += 1
        old = sorted(self.s.tasks) if joined else []
        needs = data.draw(st.lists(st.sampled_from(old), max_size=3, unique=True)) if old else []
        where = {data.draw(st.sampled_from(sorted(self.s.workers)))} if named == 7 else set()
        tasks = self.s.make([(f"r{self.number}", i) for i in range(count)], needs, where)
        tasks += self.s.make([(f"s{self.number}", 0)], [task.key for task in tasks])
        if self.gate.submit([*needs, *(task.key for task in tasks)], job):
            self.gate.nudge_freed()
        again = [self.s.tasks[key] for key in needs if self.s.tasks[key].state == "released"]
        self.s.schedule([*again, *tasks])

    @precondition(lambda self: self.waiting() and self.idle())
    @rule(data=st.data())
    def job_starts(self, data):
        job = data.draw(st.sampled_from(self.waiting()))
        self.start(job, data.draw(some_of(self.idle())))
        self.decide()

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def job_is_resized(self, data):
        job = data.draw(st.sampled_from(self.running()))
        free = sorted({*self.idle(), *job.workers})
        addresses = data.draw(some_of(free))
        (self.gate.open if job.workers < set(addresses) else self.gate.move)(job, addresses)
        self.decide()

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def job_waits_again(self, data):
        self.requeue(data.draw(st.sampled_from(self.running())))

    @precondition(lambda self: self.body.jobs)
    @rule(data=st.data(), cancelled=st.integers(0, 3))
    def job_is_over(self, data, cancelled):
        job = data.draw(st.sampled_from(list(self.body.jobs.values())))
        if job.state != "done" and (not job.unfinished or cancelled == 3):
            self.gate.let_go(list(job.unfinished), job)
            self.gate.lift(job)
            job.state = "done"
            self.decide()

    @precondition(lambda self: any(worker.processing for worker in self.s.workers.values()))
    @rule(data=st.data(), most=st.integers(1, 6))
    def tasks_end(self, data, most):
        for _ in range(most):
            if busy := [task for worker in self.s.workers.values() for task in worker.processing]:
                self.s.finish(data.draw(st.sampled_from(sorted(busy, key=lambda task: task.key))))

    @precondition(lambda self: self.s.tasks)
    @rule(data=st.data())
    def task_is_released(self, data):
        key = data.draw(st.sampled_from(sorted(self.s.tasks)))
        self.unwanted.add(key)
        self.s.release(self.s.tasks[key])

    @rule()
    def turn_ends(self):
        self.s.loop.end()
        self.decide()

    # what is always so

    @invariant()
    def sets_say_who_may_run(self):
        assert not self.s.errors, self.s.errors
        for job in self.body.jobs.values():
            if job.state == "waiting":
                assert GATE in job.gate and job.confined
            elif job.state == "running":
                assert job.gate == (job.workers if job.confined else set())
            else:
                assert not job.gate and not job.wave and not job.wishes and not job.ready
            assert not job.passed.intersection(job.ready)
            for key in job.ready:
                task = self.s.tasks[key]
                assert task.state == "no-worker" and task.worker_restrictions is job.wave
            for key in job.passed:
                assert self.s.tasks[key].worker_restrictions is job.gate
        for key, task in self.s.tasks.items():
            if key not in self.body.owner and task.worker_restrictions:
                assert GATE not in task.worker_restrictions, f"{key!r} waits for a job it is not of"

    @invariant()
    def nobody_who_may_run_waits_for_a_job_that_waits(self):
        for key, task in self.s.tasks.items():
            job = self.body.owner.get(key)
            if task.state == "waiting" and (job is None or job.state == "running"):
                needs = {need.key for need in task.waiting_on} - self.lost  # what was lost waits with its job
                owners = [self.body.owner.get(key) for key in needs]
                assert not any(owner is not None and owner.state == "waiting" for owner in owners)

    def teardown(self):
        """When every job has had its turn, all that somebody waits for has run, and once."""
        for number in range(len(ADDRESSES)):  # who was named by the user may be gone
            self.worker_joins(number)
        for _ in range(1000):
            if self.idle() and (waiting := self.waiting()):
                self.start(min(waiting, key=lambda job: job.arrival), self.idle()[:1])
            self.turn_ends()
            busy = [task for worker in self.s.workers.values() for task in worker.processing]
            for task in busy:
                if task.state == "processing":
                    self.s.finish(task)
            for job in self.running():
                if not job.unfinished:
                    job.state = "done"
                    self.gate.lift(job)
            if not busy and not self.running() and not self.waiting() and not self.s.loop.calls:
                break
        left = [key for key, task in self.s.tasks.items() if task.state not in ("memory", "released")]
        assert not left, f"waits for ever: {left}"
        again = {key for key, times in self.ran.items() if times > 1}
        assert again <= self.lost | self.unwanted, f"ran twice: {sorted(again - self.lost - self.unwanted)}"


def test_what_another_job_took_over_comes_back_when_that_one_waits_again():
    """Else a job would hold nodes and wait for a job that waits for nodes (found by the machine above)."""
    body = AnyOrder()
    first, other = (LiveJob(name, Job(id=name, nodes=1), number) for number, name in enumerate("ab"))
    body.body.jobs.update(a=first, b=other)
    needed, needs = body.s.make([("needed", 0)]), body.s.make([("needs", 0)], [("needed", 0)])
    body.gate.submit([("needed", 0), ("needs", 0)], first)
    body.s.schedule([*needed, *needs])
    body.start(other, ADDRESSES[:3])
    others = body.s.make([("others", 0)], [("needed", 0)])
    assert body.gate.submit([("others", 0), ("needed", 0)], other) and body.body.owner["needed", 0] is other
    body.s.schedule(others)
    body.requeue(other)
    body.start(first, ADDRESSES[:3])
    body.decide()
    assert body.body.owner["needed", 0] is first and needed[0].state == "processing"


def of_one_job():
    """Its only job waits."""
    body = AnyOrder()
    body.body.jobs["a"] = job = LiveJob("a", Job(id="a", nodes=1), 0)
    return body, job


def submit(body, job, count, hosts=None):
    """So many tasks, which may be root tasks."""
    tasks = body.s.make([("x", number) for number in range(count)])
    for task in tasks:
        task.host_restrictions = hosts
    body.gate.submit([task.key for task in tasks], job)
    body.s.schedule(tasks)
    return tasks


def processing(tasks):
    return {task.key for task in tasks if task.state == "processing"}


def test_a_job_that_waits_again_waits_whatever_the_user_said_of_its_tasks():
    """While it runs they are where he said, if that is nowhere in the job."""
    body, job = of_one_job()
    body.join("tcp://c:2")
    body.start(job, ADDRESSES[:1])
    (task,) = submit(body, job, 1, hosts={"c"})
    assert task.processing_on.host == "c"
    body.requeue(job)
    body.s.leave(task.processing_on.address)
    assert task.state == "no-worker" and task.worker_restrictions is job.gate


@pytest.mark.queue
def test_root_tasks_that_waited_are_handed_to_dask_when_their_job_has_all_workers():
    body, job = of_one_job()
    tasks = submit(body, job, 20)
    assert len(job.ready) == 20 and job.wave == {GATE}
    body.start(job, ADDRESSES[:3])
    body.turn_ends()
    assert len(processing(tasks)) == 6 and len(body.s.queued) == 14
    assert not job.confined and not job.ready and job.wave == set()


@pytest.mark.queue
def test_when_it_has_not_all_workers_any_more_they_come_back():
    body, job = of_one_job()
    body.start(job, ADDRESSES[:3])
    tasks = submit(body, job, 20)
    flying = processing(tasks)
    assert len(flying) == 6 and len(body.s.queued) == 14 and not job.passed
    body.join(ADDRESSES[3])
    assert job.passed == flying
    body.turn_ends()
    assert not body.s.queued and len(job.ready) == 14 and processing(tasks) == flying


@pytest.mark.queue
def test_root_tasks_that_a_worker_does_not_take_after_all_wait_again():
    body, job = of_one_job()
    tasks = submit(body, job, 20)
    body.start(job, ADDRESSES[:1])
    worker = body.s.workers[ADDRESSES[0]]
    body.s.running.discard(worker)  # and Dask still counts its slots
    call, args = body.s.loop.calls.popleft()
    call(*args)
    assert not processing(tasks) and len(job.ready) == 20
    assert all(task.worker_restrictions is job.wave for task in tasks)
    body.s.running.add(worker)
    body.turn_ends()
    assert processing(tasks) == job.passed == {("x", 0), ("x", 1)}


def test_a_task_that_a_shuffle_binds_to_workers_long_gone_finds_those_of_its_job():
    """Dask's shuffles give back a copy of where a task might run, and that may be old by then."""
    body, job = of_one_job()
    body.join(ADDRESSES[3])
    body.start(job, ADDRESSES[:2])
    (task,) = submit(body, job, 1)
    assert task.state == "processing"
    task.worker_restrictions = {ADDRESSES[4], "tcp://gone:7"}
    body.s.transitions({task.key: "released"}, "test")
    assert task.state == "no-worker"
    body.decide()
    assert task.state == "processing" and task.worker_restrictions is job.gate
    task.worker_restrictions = {ADDRESSES[2], "tcp://gone:7"}  # there, and it is not for us to say where
    body.s.transitions({task.key: "released"}, "test")
    assert task.state == "processing" and task.processing_on.address == ADDRESSES[2]


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_of_what_failed_a_number_is_left_when_dask_forgets_it():
    body = Body(PureScheduler(lambda *move: None))
    gate = Gate(body)
    job = LiveJob("a", Job(id="a", nodes=1), 0)
    body.owner.update(dict.fromkeys(("x", "y", "z"), job))
    for key, finish in (("x", "erred"), ("y", "erred"), ("z", "erred"), ("z", "forgotten")):
        gate.task_moves(key, job, "processing", finish)
    assert job.failures == 3 and job.failed == {"x", "y"}
    gate.tasks_vanish()
    assert job.failures == 3 and not job.failed


def test_a_job_waits_for_whoever_its_producers_wait_for():
    first, second, third = (LiveJob(name, Job(id=name, nodes=1), 0) for name in "abc")
    third.producers.add(second)
    second.producers.add(first)
    assert third.waits_for(first) and not first.waits_for(third)
    first.producers.add(second)  # in a circle everybody does
    assert first.waits_for(second) and not first.waits_for(third)
