"""Kinds that are let pass one by one, in whatever order things happen, on Dask's own state of tasks."""

from collections import Counter

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kind_body import GB, MEMORY, PLAIN, KindBody

from dask_hpc.policy import Policy


class AnyKinds(RuleBasedStateMachine):
    """Two kinds whose need becomes known and changes, in jobs and outside of them, on workers that come and
    go."""

    NEEDS = {"a": [0, 4, 6], "b": [1, 3, 20]}

    @initialize()
    def begin(self):
        self.body = KindBody(MEMORY, workers=3)
        self.ran, self.lost, self.unwanted = Counter(), set(), set()
        self.number = 3
        plain = self.body.scheduler._moved

        def moved(key, start, finish):
            if (start, finish) == ("processing", "memory"):
                self.ran[key] += 1
            if (start, finish) == ("no-worker", "processing") and key in self.body.lanes.row_of:
                self.fits(key)
            plain(key, start, finish)

        self.body.scheduler._moved = moved

    def fits(self, key):
        """By our own count: what is let pass there needs no more than there is, or it is alone."""
        lanes, address = self.body.lanes, self.body.scheduler.tasks[key].processing_on.address
        kinds = [
            one.name for one in lanes.by_name.values() for where in one.in_flight.values() if where == address
        ]
        needs = [lanes.memory.peaks.of(kind).peak for kind in kinds]
        known = sum(5 * GB if need is None else need for need in needs)
        assert len(kinds) == 1 or known <= 10 * GB, (kinds, needs)
        job = self.body.owner.get(key)
        assert job is None or job.state == "running"
        assert job is None or not job.confined or address in job.workers

    @rule(
        kind=st.sampled_from("ab"), count=st.integers(1, 15), where=st.integers(0, 4), chained=st.booleans()
    )
    def graph_arrives(self, kind, count, where, chained):
        jobs = [job for job in self.body.jobs.values() if job.state != "done"]
        job = jobs[where % len(jobs)] if jobs and where < 3 else None
        if where == 4 and len(self.body.jobs) < 5:
            job = self.body.job(f"j{len(self.body.jobs)}")
        tasks = self.body.submit(kind, count, job=job)
        if chained:
            self.body.submit("b" if kind == "a" else "a", count, needs=[tasks[0].key], job=job)

    @rule(kind=st.sampled_from("ab"), which=st.integers(0, 2))
    def it_is_known(self, kind, which):
        self.body.say(kind, self.NEEDS[kind][which])

    @rule(data=st.data(), most=st.integers(1, 6))
    def tasks_end(self, data, most):
        for _ in range(most):
            if found := self.body.running():
                found.sort(key=lambda task: task.key)
                self.body.scheduler.finish(data.draw(st.sampled_from(found)))
        if data.draw(st.booleans()):
            self.body.turn()

    @rule(data=st.data())
    def a_task_is_given_back(self, data):
        """As by Reschedule, or when it is tried again."""
        if found := sorted(self.body.running(), key=lambda task: task.key):
            task = data.draw(st.sampled_from(found))
            self.body.scheduler.transitions({task.key: "released"}, "test")

    @rule(data=st.data())
    def nobody_wants_it(self, data):
        if keys := sorted(self.body.scheduler.tasks):
            key = data.draw(st.sampled_from(keys))
            self.unwanted.add(key)
            self.body.scheduler.release(self.body.scheduler.tasks[key])

    @precondition(lambda self: len(self.body.scheduler.workers) > 1)
    @rule(data=st.data())
    def worker_leaves(self, data):
        address = data.draw(st.sampled_from(sorted(self.body.scheduler.workers)))
        worker = self.body.scheduler.workers[address]
        self.lost.update(task.key for task in (*worker.processing, *worker.has_what))
        self.body.leave(address)
        for job in self.body.jobs.values():
            if job.state == "running" and not job.workers:
                job.state = "waiting"
                self.body.gate.shut(job)

    @rule()
    def worker_joins(self):
        if len(self.body.scheduler.workers) < 4:
            for job in self.body.jobs.values():
                if job.state == "running" and not job.confined:
                    self.body.gate.confine(job)
            self.body.join(f"tcp://w{self.number}:1")
            self.number += 1

    @rule(data=st.data(), is_paused=st.booleans())
    def worker_pauses_or_goes_on(self, data, is_paused):
        address = data.draw(st.sampled_from(sorted(self.body.scheduler.workers)))
        self.body.scheduler.pause(address, is_paused)

    def idle(self):
        held = {a for job in self.body.jobs.values() if job.state == "running" for a in job.workers}
        return sorted(set(self.body.scheduler.workers) - held)

    @rule(data=st.data())
    def job_starts_or_grows(self, data):
        jobs = [job for job in self.body.jobs.values() if job.state != "done"]
        if jobs and (idle := self.idle()):
            job = data.draw(st.sampled_from(jobs))
            some = data.draw(st.lists(st.sampled_from(idle), min_size=1, unique=True))
            self.body.start(job, {*job.workers, *some})

    @rule(data=st.data())
    def job_waits_again(self, data):
        jobs = [job for job in self.body.jobs.values() if job.state == "running"]
        if jobs:
            job = data.draw(st.sampled_from(jobs))
            job.state = "waiting"
            self.body.gate.shut(job)

    @rule(is_on=st.booleans())
    def the_policy_changes(self, is_on):
        self.body.policy = Policy.parse(MEMORY if is_on else PLAIN, name="test")
        self.body.lanes.policy_changes()

    @rule(seconds=st.sampled_from([0.1, 1.0]))
    def time_passes(self, seconds):
        self.body.look(seconds)

    @invariant()
    def the_books_are_right(self):
        if not hasattr(self, "body"):
            return
        lanes, tasks = self.body.lanes, self.body.scheduler.tasks
        assert not self.body.scheduler.errors, self.body.scheduler.errors
        by_row = Counter(one.name for one in lanes.row_of.values())
        assert by_row == {name: one.tasks for name, one in lanes.by_name.items()}
        waiting = set()
        for one in lanes.by_name.values():
            assert one.on == Counter(one.in_flight.values())
            for key in one.in_flight:
                assert lanes.row_of[key] is one and tasks[key].state == "processing"
            for job, ready in one.ready.items():
                for key in ready:
                    assert lanes.row_of[key] is one and self.body.owner.get(key) is job
                    waiting.add(key)
        for key, one in lanes.row_of.items():
            task = tasks[key]
            assert task.prefix.name == one.name
            assert (task.state == "processing") == (key in one.in_flight), (key, task.state)
            assert (task.state == "no-worker") == (key in waiting), (key, task.state)
            job = self.body.owner.get(key)
            assert job is None or (key not in job.ready and key not in job.passed)
        for key, task in tasks.items():
            if key not in lanes.row_of and key not in self.body.owner and task.worker_restrictions:
                raise AssertionError(f"{key!r} is restricted, by nobody")

    def teardown(self):
        if not hasattr(self, "body"):
            return
        body = self.body
        for address in body.scheduler.workers:
            body.scheduler.pause(address, False)
        body.turn()
        for _ in range(400):
            body.look(0.3)
            if self.idle() and (waiting := [job for job in body.jobs.values() if job.state == "waiting"]):
                body.start(waiting[0], self.idle()[:1])
            for task in body.running():
                if task.state == "processing":
                    body.scheduler.finish(task)
            body.turn()
            for job in body.jobs.values():
                if job.state == "running" and not job.unfinished:
                    job.state = "done"
                    body.gate.lift(job)
            self.the_books_are_right()
            if not body.running() and all(job.state == "done" for job in body.jobs.values()):
                body.look(0.3)
                if not body.running():
                    break
        left = [key for key, task in body.scheduler.tasks.items() if task.state not in ("memory", "released")]
        assert not left, f"waits for ever: {left}"
        again = {key for key, times in self.ran.items() if times > 1}
        assert again <= self.lost | self.unwanted, f"ran twice: {sorted(again - self.lost - self.unwanted)}"


TestAnyKinds = AnyKinds.TestCase
TestAnyKinds.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
