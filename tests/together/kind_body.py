"""Kinds that are let pass one by one, on Dask's own state of tasks: no event loop, no clock, no messages."""

import sys
from collections import Counter
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

from pure_scheduler import PureScheduler, Turns

from dask_hpc import config
from dask_hpc.cluster.scheduler.gate import Gate
from dask_hpc.cluster.scheduler.jobs import LiveJob
from dask_hpc.cluster.scheduler.service import Context
from dask_hpc.model.job import Job
from dask_hpc.policy import Policy
from dask_hpc.together.scheduler.service import KindLanes

W0, W1, W2 = (f"tcp://w{i}:1" for i in range(3))
GB = 10**9
MEMORY = "{queue: {strategy: fcfs}, memory: {strategy: memory-lanes, most: 1, patience: 60}}"
PLAIN = "{queue: {strategy: fcfs}}"


class LaterTurns(Turns):
    """And what is to be called later, which is when a test says so."""

    def __init__(self):
        super().__init__()
        self.later = []

    def call_later(self, seconds, call):
        self.later.append(call)
        return call

    def remove_timeout(self, call):
        if call in self.later:
            self.later.remove(call)


class KindBody(Context):
    """A scheduler, the gate and the service: each worker has 10 GB."""

    def __init__(self, policy=MEMORY, workers=2, threads=4, limit=10 * GB):
        self.shape = threads, limit
        self._numbers = count()
        scheduler = PureScheduler(self._moves)
        scheduler.loop = LaterTurns()
        scheduler.extensions, scheduler.no_workers_timeout = {}, None
        self.lanes = None
        super().__init__(scheduler, Policy.parse(policy, name="test"), config.settings())
        self.time = 0.0
        self.clock = lambda: self.time
        self.renew()
        self.is_on = True
        self.decide = self._decides
        self.gate = self.add(Gate(self))
        for number in range(workers):
            self.join(f"tcp://w{number}:1")
        self.lanes = KindLanes(self)
        self.services = [self.lanes]
        self.told = []
        self.lanes.begin()
        self.turn()

    # what the body does

    def do(self, where, work):
        work.close()  # what is told to workers, and files: not here

    def count_error(self, where, error):
        raise error

    def _decides(self):
        self.gate.nudge_freed()

    def _moves(self, key, start, finish):
        if self.lanes is None:
            return
        for service, keys in self.watching:
            if key in keys:
                service.task_moves(key, start, finish)
        if (job := self.owner.get(key)) is not None:
            self.gate.task_moves(key, job, start, finish)

    def join(self, address):
        worker = self.scheduler.join(address, *self.shape)
        worker.metrics = {"memory": 0, "managed_bytes": 0, "spilled_bytes": {"memory": 0, "disk": 0}}
        self.nodes.join(address, address, worker.host)
        if self.lanes is not None:
            self.lanes.worker_joins(address)
        self.scheduler.use(worker)

    def leave(self, address):
        self.scheduler.leave(address)
        self.lanes.worker_leaves(address)
        for job in self.jobs.values():
            if address in job.workers:
                self.gate.cut(job, address)
        self.nodes.leave(address)

    # what a test does

    def turn(self):
        """The turn of the event loop is over, and those that follow from that."""
        self.scheduler.loop.end()
        assert not self.scheduler.errors, self.scheduler.errors

    def look(self, seconds=0.25):
        """Time passes, and timers are over."""
        self.time += seconds
        calls, self.scheduler.loop.later = self.scheduler.loop.later, []
        for call in calls:
            call()
        self.turn()

    def submit(self, kind, count, needs=(), job=None, workers=None, change=lambda task: None):
        keys = [(kind, next(self._numbers)) for _ in range(count)]
        tasks = self.scheduler.make(keys, needs, workers)
        for task in tasks:
            change(task)
        self.gate.submit(keys, job)
        self.lanes.graph_arrives(keys)
        self.scheduler.schedule(tasks)
        self.turn()
        return tasks

    def job(self, name, addresses=(), nodes=1):
        """A job, on these workers if it runs."""
        job = self.jobs[name] = LiveJob(name, Job(id=name, nodes=nodes), len(self.jobs))
        if addresses:
            self.start(job, addresses)
        return job

    def start(self, job, addresses):
        job.state = "running"
        self.gate.open(job, addresses)
        self.decide()
        self.turn()

    def say(self, kind, gigabytes, tasks=3, worker="tcp://w0:1", inputs=0):
        row = {
            "bytes": gigabytes * GB,
            "mean": 0,
            "inputs": inputs,
            "result": 0,
            "tasks": tasks,
            "how": "alone",
        }
        self.lanes.log_event("dask-hpc-peaks", {"worker": worker, "number": 1, "kinds": {kind: row}})
        self.turn()

    def running(self, kind=None, address=None):
        return [
            task
            for worker in self.scheduler.workers.values()
            for task in worker.processing
            if kind in (None, task.prefix.name) and address in (None, worker.address)
        ]

    def finish(self, task):
        self.scheduler.finish(task)
        self.turn()

    def run_all(self, check=lambda: None):
        """All ends, one task after the other."""
        for _ in range(100_000):
            check()
            found = self.running()
            if not found:
                self.look()
                found = self.running()
                if not found:
                    return
            self.finish(min(found, key=lambda task: task.priority))
        raise AssertionError("it does not end")


def row(body, kind="a"):
    return body.lanes.by_name[kind]


def states(tasks):
    return Counter(task.state for task in tasks)


def limit(body, *limits, job=None):
    """In force, as if a strategy had said so."""
    body.lanes.neighbours.limits[job] = {one.kind: one for one in limits}
    body.lanes._heed([one.kind for one in limits])
    body.turn()


def together(**options):
    """With a strategy that says nothing by itself."""
    body = KindBody("{queue: {strategy: fcfs}, together: {strategy: good-neighbours}}", **options)
    body.lanes.neighbours.ask = lambda: None
    return body
