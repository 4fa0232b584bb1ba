"""What follows from the end of a task costs as much in a large cluster as in a small one, counted in calls;
and nothing is left of tasks that are over."""

import sys
from collections import deque
from pathlib import Path

import pytest
from pure_scheduler import PureScheduler

from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler.gate import Gate
from dask_hpc.cluster.scheduler.jobs import ENOUGH, KINDS, LiveJob, Performance, Ready
from dask_hpc.model.job import Job
from dask_hpc.together.scheduler.neighbours import Neighbours
from dask_hpc.together.scheduler.peaks import KindPeaks

HERE = str(Path(compat.__file__).parent.parent)


class Crowd:
    """Jobs that run on nodes of their own, on Dask's own state of tasks."""

    def __init__(self, jobs, nodes=1):
        self.scheduler = self.s = PureScheduler(self.moved)
        self.s.validate = False
        self.nodes, self.owner, self.jobs = self.s.workers, {}, {}
        self.gate = Gate(self)
        self.s.join("tcp://spare:1")  # so that no job has all workers
        for number in range(jobs):
            addresses = [f"tcp://j{number}-{i}:1" for i in range(nodes)]
            for address in addresses:
                self.s.join(address)
            job = self.jobs[f"j{number}"] = LiveJob(f"j{number}", Job(id=f"j{number}", nodes=nodes), number)
            self.start(job, addresses)

    def moved(self, key, start, finish):
        if (job := self.owner.get(key)) is not None:
            self.gate.task_moves(key, job, start, finish)

    def wake(self):
        pass

    def count_error(self, where, error):
        raise error

    def start(self, job, addresses):
        job.state = "running"
        self.gate.open(job, addresses)

    def submit(self, name, count, needs=()):
        """Tasks of a job; those that need nothing are root tasks if they are many."""
        job = self.jobs.get(name)
        tasks = self.s.make([(f"{name}-{len(self.s.tasks)}", i) for i in range(count)], needs)
        self.gate.submit([task.key for task in tasks], job)
        self.s.schedule(tasks)
        self.s.loop.end()
        return tasks

    def running(self, name):
        return [
            t for t in self.s.tasks.values() if t.state == "processing" and t.key[0].startswith(f"{name}-")
        ]

    def calls_of_an_end(self, name):
        """Functions of ours, and what they call of Python's, from the end of a task to that of the turn."""
        (task, *_), count = self.running(name), 0

        def counted(frame, event, argument):
            nonlocal count
            count += event in ("call", "c_call") and HERE in frame.f_code.co_filename

        sys.setprofile(counted)
        try:
            self.s.finish(task)
            self.s.loop.end()
        finally:
            sys.setprofile(None)
        return count


def same(few, many):
    """Nothing is done for each of the others: a dictionary may be larger, no more."""
    return many <= few + 5


def test_of_many_jobs_that_wait_for_slots_only_the_one_with_a_slot_is_looked_at():
    found = []
    for jobs in (3, 60):
        crowd = Crowd(jobs)
        for name in crowd.jobs:
            crowd.submit(name, 20)
        assert len(crowd.gate.waves.pending) == jobs
        sent = set(crowd.running("j1"))
        found.append(crowd.calls_of_an_end("j1"))
        assert len(set(crowd.running("j1")) - sent) == 1
    assert same(*found)


def test_workers_of_others_that_are_idle_are_not_looked_at():
    found = []
    for nodes in (5, 100):
        crowd = Crowd(2, nodes)
        crowd.gate.open(crowd.jobs["j0"], ["tcp://j0-0:1"])
        crowd.submit("j0", 20)
        assert list(crowd.gate.waves.pending) == [crowd.jobs["j0"]]
        found.append(crowd.calls_of_an_end("j0"))
    assert same(*found)


def test_what_ends_in_one_turn_is_followed_by_one_look():
    crowd = Crowd(3, 4)
    for name in crowd.jobs:
        crowd.submit(name, 40)
    looks, plain = [], crowd.gate.waves._let_jobs_pass
    crowd.gate.waves._let_jobs_pass = lambda: looks.append(plain())
    before = {name: len(crowd.running(name)) for name in crowd.jobs}
    assert min(before.values()) >= 4
    for task in [task for name in crowd.jobs for task in crowd.running(name)[:4]]:
        crowd.s.finish(task)
    assert not looks
    crowd.s.loop.end()
    assert len(looks) == 1 and before == {name: len(crowd.running(name)) for name in crowd.jobs}


def test_an_error_with_one_job_loses_no_task_of_another():
    crowd = Crowd(2, 2)
    crowd.submit("j0", 20)
    crowd.submit("j1", 20)
    waves, errors = crowd.gate.waves, []
    crowd.count_error = lambda where, error: errors.append(str(error))
    plain = waves._choose

    def fails(job, slots, places):
        if job is crowd.jobs["j1"] and not errors:
            raise RuntimeError("on purpose")
        plain(job, slots, places)

    waves._choose = fails
    while any(task.state != "memory" for task in crowd.s.tasks.values()):
        for name in crowd.jobs:
            for task in crowd.running(name):
                crowd.s.finish(task)
        crowd.s.loop.end()
    assert errors == ["on purpose"]


def test_an_error_while_an_error_is_counted_reaches_no_message_of_dasks_and_is_heard_of():
    crowd = Crowd(2, 2)
    crowd.submit("j0", 20)
    waves, heard = crowd.gate.waves, []

    def fails(*given):
        heard.append(given)
        if len(heard) < 3:
            raise RuntimeError("on purpose")

    waves.after_queue = waves.failed = fails
    crowd.s.finish(crowd.running("j0")[0])
    assert [len(given) for given in heard] == [0, 1]
    crowd.s.loop.end()
    assert len(heard) >= 3 and str(heard[2][0]) == "on purpose"


def test_beside_a_queue_that_takes_every_slot_a_job_has_as_many_as_threads():
    crowd = Crowd(1, 5)
    outside = crowd.submit("out", 1000)
    crowd.submit("j0", 40)
    job = crowd.jobs["j0"]
    assert crowd.s.queued and any(task.state == "processing" for task in outside)
    assert len(crowd.running("j0")) >= 5
    for _ in range(3):
        for task in [crowd.running("j0")[0], crowd.running("out")[0]]:
            crowd.s.finish(task)
        crowd.s.loop.end()
        on = {a: [t.key[0] for t in crowd.s.workers[a].processing] for a in job.workers}
        assert all(any(name.startswith("j0-") for name in names) for names in on.values()), on


def test_a_million_ready_tasks_take_little(monkeypatch):
    ready = Ready()
    count = 2**16
    keys = [("read-0123456789", i) for i in range(count)]
    priorities = [(0, 1, i) for i in range(count)]
    for priority, key in zip(priorities, keys, strict=True):
        ready.add(priority, key)
    sizes = sum(sys.getsizeof(getattr(ready, name)) for name in Ready.__slots__)
    assert sizes / count < 75
    assert [ready.pop() for _ in range(3)] == keys[:3]
    assert isinstance(ready._row, deque) and not ready._late  # no entry of its own for any


def test_kinds_of_which_nothing_is_left_are_forgotten():
    """Where each task has a name of its own."""
    job = LiveJob("a", Job(id="a", nodes=1), 0)
    job.owe("lasting", "lasting")
    most = 0
    for i in range(5 * KINDS):
        job.owe(i, f"kind-{i}")
        work = job.settle(i)
        job.performance.add(work, [{"action": "compute", "start": 0.0, "stop": 2.0}], 1)
        most = max(most, len(job.performance.works))
    assert most <= KINDS + 1 and "lasting" in job.performance.works
    assert job.performance.compute == 10.0 * KINDS and job.performance.tasks == 5 * KINDS > ENOUGH
    assert job.performance.io_share(lambda work: 0.5) == pytest.approx(0.5)  # of what is still known
    left = Performance()
    for i in range(3 * KINDS):
        left.work(f"kind-{i}").left = 1
    assert len(left.works) == 3 * KINDS  # those are needed
    few = Performance()
    for i in range(KINDS + 1):  # of which nothing is left of a few only
        few.work(f"kind-{i}").left = i >= 300
    assert len(few.works) == KINDS + 1


def test_what_people_say_of_kinds_is_remembered_of_the_newest():
    class Told:
        tell = staticmethod(lambda *words: None)

    neighbours = Neighbours(Told(), None)
    for i in range(3000):
        neighbours.hear_class(f"kind-{i}", "II" if i % 2 else "nonsense")
    known = [name for name, value in vars(neighbours).items() if isinstance(value, dict) and value]
    assert known and all(len(vars(neighbours)[name]) <= 1000 for name in known)


def test_what_is_assumed_and_doubted_of_kinds_is_so_of_the_newest():
    peaks = KindPeaks()
    for i in range(3000):
        peaks.assume(f"kind-{i}", 0.0)
        peaks.doubt([f"kind-{i}"])
    assert all(len(value) <= 1000 for value in vars(peaks).values())
    assert peaks.is_doubted("kind-2999") and len(list(peaks.known())) == 1000


def room(job, gate):
    """Bytes of all that is kept of a job's tasks, but for the owners of all tasks: these have the room that
    was needed when tasks were most."""
    parts = (*vars(job).values(), *vars(gate).values(), *vars(gate.waves).values())
    kept = [part for part in parts if isinstance(part, dict | set | list) and part is not gate.owner]
    return sum(map(sys.getsizeof, (*kept, *(getattr(job.ready, name) for name in Ready.__slots__))))


def test_a_job_that_is_over_keeps_nothing_of_its_tasks_and_no_room_for_them():
    found = []
    for tasks in (10, 2000):
        crowd = Crowd(1, 4)
        job = crowd.jobs["j0"]
        for _ in range(3):
            mine = crowd.submit("j0", tasks)
            more = crowd.submit("j0", tasks, [mine[0].key])
            while any(task.state != "memory" for task in (*mine, *more)):
                for task in crowd.running("j0"):
                    crowd.s.finish(task)
                crowd.s.loop.end()
            for task in (*more, *mine):
                crowd.s.release(task)
        assert not crowd.s.tasks and not crowd.owner and not job.unfinished and not job.held
        crowd.gate.lift(job)
        assert not (job.ready or job.passed or crowd.gate.waves.pending or crowd.gate.freed)
        found.append(room(job, crowd.gate))
    assert found[0] == found[1]


@pytest.mark.parametrize("ended", [100, 5000])
def test_a_job_that_lasts_keeps_no_more_after_many_tasks(ended):
    crowd = Crowd(1, 4)
    job = crowd.jobs["j0"]
    for _ in range(ended // 50):
        tasks = crowd.submit("j0", 50)
        while any(task.state != "memory" for task in tasks):
            for task in crowd.running("j0"):
                crowd.s.finish(task)
            crowd.s.loop.end()
        for task in tasks:
            crowd.s.release(task)
    assert not crowd.s.tasks and room(job, crowd.gate) < 30_000
