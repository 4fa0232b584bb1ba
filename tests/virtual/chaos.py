"""Jobs of all kinds on a virtual cluster to which everything happens, by seed.

    PYTHONHASHSEED=0 python tests/virtual/chaos.py 1234        # one seed: what went wrong, and the story
    PYTHONHASHSEED=0 python tests/virtual/chaos.py 0:1000      # many: one line of JSON for each

Two coroutines take turns: ``Programs`` submits graphs of known answer, and ``Faults`` does to the cluster
whatever comes to its mind. Then peace comes, and everything has to be right: see ``Chaos.check``.
"""

import asyncio
import json
import random
import sys
import time
import traceback
import zlib
from collections import defaultdict
from contextlib import suppress
from typing import NamedTuple

import virtual_cluster
from distributed import get_worker
from distributed.client import FutureCancelledError
from distributed.diagnostics.plugin import SchedulerPlugin

import dask_hpc
from dask_hpc.model.job import is_over

POLICIES = (
    "fcfs", "easy-backfill", "fpsma-pwma", "egs-prma", "performance-aware", "elastic", "malleable-easy",
    "fcfs-malleable", "node-stealing", "moldable", "conservative-backfill", "urgent-first",
)  # fmt: skip
CONFIG = {"hpc.drain": "2s", "hpc.story-length": 100_000, "hpc.max-errors": 100}
FEWEST = 3  # workers; no job asks for more
MOST = 7
LATE = 1.0  # seconds that messages are late at most
PATIENCE = 900.0  # virtual seconds for what is left when the faults are over
COMMAND = "PYTHONHASHSEED=0 python tests/virtual/chaos.py"
_REFUSALS = (dask_hpc.InputError, RuntimeError)  # what one may be told: it is gone, or not of that kind


class Run(NamedTuple):
    """One execution of a task."""

    worker: str
    began: float
    ended: float


#: by key: the executions so far
RUNS = defaultdict(list)


def part(key, seconds, *values):
    """A task: its value is known by its name and what it needs."""
    began = time.monotonic()
    time.sleep(seconds)
    RUNS[key].append(Run(get_worker().name, began, time.monotonic()))
    return value_of(key, values)


def value_of(key, values):
    """What ``part`` gives."""
    return (zlib.crc32(key.encode()) + 31 * sum(values)) % 1_000_003


class Departures(SchedulerPlugin):
    """When workers left."""

    name = "departures"

    def __init__(self, scheduler, clock):
        self._clock = clock
        self._names = {address: worker.name for address, worker in scheduler.workers.items()}
        self.gone = {}

    def add_worker(self, scheduler, worker):
        self._names[worker] = scheduler.workers[worker].name

    def remove_worker(self, scheduler, worker, **kwargs):
        self.gone[self._names[worker]] = self._clock()


class Program(NamedTuple):
    """Something submitted, by whom and as which job, and what must come out."""

    client: str
    job: str
    futures: list
    answers: list


class Chaos:
    """One seed."""

    def __init__(self, cluster, seed):
        self.cluster = cluster
        self.random = random.Random(f"chaos {seed}")
        self.programs = []
        #: ids of jobs that somebody cancelled
        self.cancelled = set()
        self.clients = []
        #: whether workers may be lost with all they have; if not, there is scattered data, too
        self.is_deadly = self.random.random() < 0.5
        self.policies = self.random.sample(POLICIES, 3)
        self.held = set()
        #: when workers were told to close at once
        self.closing = {}
        self.under_way = []
        self.log = []
        self.tasks = 0
        self.number = 0
        #: whether Dask's own state can be expected to be
        self.is_valid = True

    def say(self, *words):
        self.log.append(f"{self.cluster.time():9.3f} " + " ".join(map(str, words)))

    async def run(self):
        """All of it. Gives what went wrong, and the story."""
        first = await self.cluster.client()
        self.clients = [first, await self.cluster.client()]
        scheduler = self.cluster.scheduler
        self.departures = Departures(scheduler, self.cluster.time)
        scheduler.add_plugin(self.departures, name="departures")
        self.manager = await dask_hpc.manage(first, policy=self.policies[0])
        count = self.random.randint(4, 7)
        await asyncio.gather(Programs(self).go_on(count), Faults(self).go_on(self.random.randint(10, 25)))
        await self.make_peace()
        problems = await self.check()
        story = await self.manager.story()
        await self.manager.close()
        if left := [task.key for task in scheduler.tasks.values() if task.worker_restrictions]:
            problems.append(f"restricted after control was closed: {left}")
        if "dask-hpc" in scheduler.plugins or "dask-hpc-farewell" in scheduler.worker_plugins:
            problems.append("a plugin of ours is left")
        return problems, story

    async def make_peace(self):
        """No more faults; enough workers; nobody is held."""
        self.say("peace")
        cluster = self.cluster
        await asyncio.gather(*self.under_way)
        for name in list(cluster.network.late):
            cluster.delay(name, 0)
        cluster.forget_closed()
        for name in cluster.workers:
            cluster.slow_down(name, 1)
        while len(cluster.workers) < FEWEST + 1:
            await cluster.add_worker()
        await asyncio.sleep(2 * LATE)
        await self.manager.resume()
        status = await self.manager.status()
        for held in status["holds"]:
            await self.manager.release([held["worker"]], why=None)
        for job in status["jobs"]:
            if job["state"] == "waiting":
                with suppress(*_REFUSALS):
                    await self.manager.release_job(job["id"])

    async def check(self):
        """What is wrong: answers that are wrong, lost or never come; tasks that ran again though they had
        ended; jobs that are not done; errors of ours; nodes that are still held."""
        problems = []
        for program in self.programs:
            for future, answer in zip(program.futures, program.answers, strict=True):
                try:
                    async with asyncio.timeout(PATIENCE):
                        found = await future
                except (asyncio.CancelledError, FutureCancelledError) as error:
                    if program.job not in self.cancelled:
                        problems.append(f"{future.key} of {program.job or 'no job'}: {error}")
                except TimeoutError:
                    problems.append(f"{future.key} of {program.job or 'no job'} never comes")
                    break
                except Exception as error:
                    problems.append(f"{future.key} erred: {type(error).__name__}: {error}")
                else:
                    if found != answer:
                        problems.append(f"{future.key} is {found}, not {answer}")
        problems += self._again()
        await asyncio.sleep(5)
        status = await self.manager.status()
        for job in status["jobs"]:
            if not is_over(job["state"]):
                problems.append(f"job {job['id']} is {job['state']}: {job['waiting_because']}")
        if status["errors"] or status["state"] != "on":
            problems.append(f"{status['errors']} errors of ours, control is {status['state']}")
        if status["holds"]:
            problems.append(f"still held: {status['holds']}")
        if different := (await self.manager.replay())["different"]:
            problems.append(f"decided otherwise when replayed: {different}")
        problems += held_twice(await self.manager.story())
        problems += self._miscounted()
        if self.is_valid:
            self.cluster.scheduler.validate_state()
        return problems

    def _miscounted(self):
        """Figures that went astray on the way."""
        control = self.cluster.scheduler.plugins["dask-hpc"].control
        run, indices = control.figures.run, control.indices
        held = sum(len(running.nodes) for running in indices.running.values())
        if (run.there, run.held) != (len(indices.nodes), held):
            yield f"figures count {run.held} of {run.there} nodes, there are {held} of {len(indices.nodes)}"
        if not 0 <= run.used <= run.available * (1 + 1e-9):
            yield f"figures have used {run.used} of {run.available} node-seconds"
        ended = sum(job.figures.ended is not None for job in control.jobs.values())
        if run.wait.count != ended:
            yield f"figures of {run.wait.count} jobs, {ended} have ended"

    def _again(self):
        """Tasks that ran once more than they had to."""
        if self.is_deadly:
            return
        for key, runs in RUNS.items():
            for run in runs[:-1]:
                since = self.closing.get(run.worker, self.departures.gone.get(run.worker, float("inf")))
                if run.ended < since - 2 * LATE:  # it may have been done before anybody knew
                    yield f"{key} ran {len(runs)} times, though it had ended: {runs}"
                    break


class Programs:
    """Submits graphs."""

    def __init__(self, chaos):
        self.chaos, self.random = chaos, chaos.random

    async def go_on(self, count):
        for _ in range(count):
            client = self.random.choice(self.chaos.clients)
            if self.random.random() < 0.2:
                await self._submit(client, "")
            else:
                await self._submit_job(client)
            await asyncio.sleep(self.random.expovariate(0.3))

    async def _submit_job(self, client):
        chaos = self.chaos
        chaos.number += 1
        low, high = sorted(self.random.choices(range(1, FEWEST + 1), k=2))
        kind = self.random.choice([None, None, "evolving", "moldable"])
        if kind is None or kind == "moldable":
            high = self.random.choice([high, high, MOST])
        context = dask_hpc.job(
            f"job{chaos.number}",
            nodes=self.random.randint(low, min(high, FEWEST)),
            min_nodes=low,
            max_nodes=high,
            kind=kind,
            walltime=self.random.choice([None, "5s", "1 min"]),
            layout=self.random.choice([None, None, "block"]),
            client=client,
        )
        async with context:
            await self._submit(client, context.id)
            if self.random.random() < 0.3:
                await asyncio.sleep(self.random.expovariate(0.5))
                await self._submit(client, context.id)

    async def _submit(self, client, job):
        """Some tasks of one kind, pairs of them, and one of all."""
        chaos = self.chaos
        if client.status != "running":
            return
        chaos.number += 1
        name = f"p{chaos.number}"
        # Many are more than all workers can have at once: such root tasks wait for a slot.
        count = self.random.randint(3, 8) if self.random.random() < 0.8 else self.random.randint(16, 24)
        data, values = [], []
        if not chaos.is_deadly and self.random.random() < 0.5:
            values = [self.random.randrange(1000) for _ in range(2)]
            try:
                data = await client.scatter(values, hash=False)
            except (KeyError, OSError):
                # Dask's ``Scheduler.scatter`` fails so if a worker leaves meanwhile, and is left with tasks
                # "in memory" that nobody has.
                chaos.is_valid = False
                return
        answers = {}

        def submit(key, futures, values):
            answers[key] = value_of(key, values)
            chaos.tasks += 1
            return client.submit(part, key, self._seconds(), *futures, key=key)

        roots = [f"{name}-root-{i}" for i in range(count)]
        if data:
            futures = [submit(key, data, values) for key in roots]
        else:
            futures = client.map(part, roots, [self._seconds() for _ in roots], key=roots)
            chaos.tasks += count
            answers |= {key: value_of(key, ()) for key in roots}
        pairs = [
            submit(f"{name}-pair-{i}", [one, other], [answers[one.key], answers[other.key]])
            for i, (one, other) in enumerate(zip(futures, futures[1:] + futures[:1], strict=True))
        ]
        total = submit(f"{name}-total", pairs, [answers[one.key] for one in pairs])
        kept = [total] if self.random.random() < 0.5 else [*futures, total]
        chaos.programs.append(Program(client.id, job, kept, [answers[one.key] for one in kept]))
        chaos.say("submit", name, "job", job or "none", "client", client.id, "tasks", 2 * count + 1)

    def _seconds(self):
        return self.random.choice([0.05, 0.2, 0.5, 1.0, 3.0])


class Faults:
    """Does one random thing at a time."""

    def __init__(self, chaos):
        self.chaos, self.random, self.cluster = chaos, chaos.random, chaos.cluster
        self.things = {
            self.join: 3,
            self.retire: 2,
            self.close: 1,
            self.close_gracefully: 2,
            self.slow_down: 2,
            self.delay: 2,
            self.hold: 2,
            self.release: 2,
            self.resize_job: 3,
            self.hold_job: 1,
            self.release_job: 1,
            self.cancel_job: 1,
            self.forget_program: 1,
            self.cancel_futures: 1,
            self.share: 1,
            self.swap_policy: 2,
            self.undo: 1,
            self.pause: 1,
        }
        if chaos.is_deadly:
            self.things |= {self.kill: 3, self.remove: 1, self.client_vanishes: 1}

    async def go_on(self, count):
        for _ in range(count):
            await asyncio.sleep(self.random.expovariate(1.0))
            self.cluster.forget_closed()
            await self.random.choices(list(self.things), list(self.things.values()))[0]()

    def _some_worker(self):
        """One that may go, or none."""
        names = [name for name, one in self.cluster.workers.items() if one.status.name == "running"]
        return self.random.choice(names) if len(names) > FEWEST else None

    def _leaves(self, name, how):
        """It is on its way out, beside everything else."""
        self.chaos.say("leaves", name, how.__name__)
        self.chaos.under_way.append(asyncio.ensure_future(how(name)))

    async def join(self):
        if len(self.cluster.workers) < MOST:
            name = await self.cluster.add_worker()
            self.chaos.say("joins", name)

    async def kill(self):
        if name := self._some_worker():
            self.chaos.say("dies", name)
            self.cluster.kill(name)

    async def remove(self):
        """The scheduler gives it up."""
        if name := self._some_worker():
            self.chaos.say("removed", name)
            address = self.cluster.workers[name].address
            await self.cluster.scheduler.remove_worker(address, stimulus_id="chaos")

    async def retire(self):
        if name := self._some_worker():

            async def retired(name):
                worker = self.cluster.workers.get(name)
                if worker is not None:
                    client = self.chaos.clients[0]
                    await client.retire_workers([worker.address], close_workers=True, remove=True)

            self._leaves(name, retired)

    async def close(self):
        if name := self._some_worker():
            self.chaos.closing[name] = self.cluster.time()
            self._leaves(name, self.cluster.close_worker)

    async def close_gracefully(self):
        if name := self._some_worker():

            async def gracefully(name):
                with suppress(OSError):  # somebody else retires it, too, and was quicker
                    await self.cluster.close_worker(name, is_graceful=True)

            self._leaves(name, gracefully)

    async def slow_down(self):
        name = self.random.choice(list(self.cluster.workers))
        self.cluster.slow_down(name, self.random.choice([1, 3, 10]))
        self.chaos.say("slow", name)

    async def delay(self):
        name = self.random.choice([*self.cluster.workers, "client0", "client1"])
        self.cluster.delay(name, self.random.choice([0.0, 0.1, LATE]))
        self.chaos.say("late", name, self.cluster.network.late.get(name, 0))

    async def hold(self):
        addresses = [worker.address for worker in self.cluster.workers.values()]
        address = self.random.choice(addresses)
        if len(self.chaos.held) < 2:
            with suppress(*_REFUSALS):
                self.chaos.say("hold", await self.chaos.manager.hold([address]))
                self.chaos.held.add(address)

    async def release(self):
        for address in sorted(self.chaos.held):
            with suppress(*_REFUSALS):
                self.chaos.say("release", await self.chaos.manager.release([address]))
        self.chaos.held.clear()

    async def _job(self, state):
        jobs = (await self.chaos.manager.status())["jobs"]
        found = [job for job in jobs if job["state"] == state]
        return self.random.choice(found) if found else None

    async def resize_job(self):
        if job := await self._job("running"):
            change = self.random.choice([-2, -1, 1, 2])
            with suppress(*_REFUSALS):
                await self.chaos.manager.resize(job["id"], change)
                self.chaos.say("resize", job["id"], change)

    async def hold_job(self):
        if job := await self._job("waiting"):
            with suppress(*_REFUSALS):
                await self.chaos.manager.hold_job(job["id"])
                self.chaos.say("hold job", job["id"])

    async def release_job(self):
        if job := await self._job("waiting"):
            with suppress(*_REFUSALS):
                await self.chaos.manager.release_job(job["id"])

    async def cancel_job(self):
        if job := await self._job(self.random.choice(["running", "waiting"])):
            self.chaos.say("cancel", job["id"])
            self.chaos.cancelled.add(job["id"])
            with suppress(*_REFUSALS):
                await self.chaos.manager.cancel(job["id"])

    def _forgotten(self):
        """A program that is not waited for any more, or none."""
        if self.chaos.programs and self.random.random() < 0.5:
            return self.chaos.programs.pop(self.random.randrange(len(self.chaos.programs)))
        return None

    async def forget_program(self):
        """Its futures are released."""
        if program := self._forgotten():
            self.chaos.say("forget", program.futures[-1].key)

    async def cancel_futures(self):
        """The last one only: Dask's ``Scheduler.stimulus_cancel`` fails if a task in between is wanted by
        nobody, and the client loses its connection and all its futures."""
        if program := self._forgotten():
            self.chaos.say("cancel futures", program.futures[-1].key)
            client = program.futures[-1].client
            if client.status == "running":
                await client.cancel(program.futures[-1:])

    async def share(self):
        self.chaos.say("fair shares")
        await self.chaos.manager.set(**{"settings.fair-shares": self.random.random() < 0.5})

    async def swap_policy(self):
        policy = self.random.choice(self.chaos.policies)
        self.chaos.say("policy", policy)
        await self.chaos.manager.set(policy=policy)

    async def undo(self):
        with suppress(*_REFUSALS):
            self.chaos.say("undo", (await self.chaos.manager.undo())["name"])

    async def pause(self):
        self.chaos.say("pause")
        await self.chaos.manager.pause()
        await asyncio.sleep(self.random.expovariate(1.0))
        await self.chaos.manager.resume()

    async def client_vanishes(self):
        """The one that does not manage the cluster; another one comes."""
        gone = self.chaos.clients.pop()
        name = next(name for name, client in self.cluster.clients.items() if client is gone)
        self.chaos.say("client vanishes", name)
        self.chaos.programs = [one for one in self.chaos.programs if one.client != gone.id]
        self.cluster.kill(name)
        self.chaos.number += 1
        self.chaos.clients.append(await self.cluster.client(f"client-{self.chaos.number}"))


def held_twice(story):
    """No node is ever held by two jobs; what ends had started."""
    holder = {}
    for row in story:
        job, what = row["job"], row["decision"]
        if what in ("start", "grow", "shrink", "end", "requeue", "cancel"):
            for node in [node for node, one in holder.items() if one == job]:
                del holder[node]
        if what in ("start", "grow", "shrink"):
            for node in row["nodes"]:
                if holder.setdefault(node, job) != job:
                    yield f"{node} is held twice: {row}"
    if holder:
        yield f"still held at the end: {holder}"


def run_seed(seed):
    """What went wrong under this seed, and a sum of all that happened. Within a virtual machine."""
    RUNS.clear()
    state = {}

    async def main(cluster):
        state["cluster"] = cluster
        chaos = state["chaos"] = Chaos(cluster, seed)
        return await chaos.run()

    workers = random.Random(f"workers {seed}").randint(4, 6)
    story = []
    try:
        problems, story = virtual_cluster.run(main, seed, workers=workers, config=CONFIG)
    except Exception:
        problems = [traceback.format_exc()]
        if "chaos" not in state:
            raise
    cluster, chaos = state["cluster"], state["chaos"]
    return {
        "seed": seed,
        "problems": problems,
        "digest": cluster.record.digest(story, chaos.log, sorted(RUNS.items())),
        "seconds": cluster.time(),
        "tasks": chaos.tasks,
    }, (story, chaos, cluster)


def describe(found, story, chaos, cluster):
    """One seed for a reader: what our plugin tells, what was done to the cluster, and what went wrong."""
    for row in story:
        print(f"{row['time']:9.3f} story {row['decision']} {row['job']} {row['nodes']} {row['reason']}")
    print("\n".join(chaos.log))
    print(f"{cluster.seed}: {found['tasks']} tasks in {found['seconds']:.0f} s, deadly: {chaos.is_deadly}")
    print("\n".join(found["problems"]) or "all right")
    print(f"once more: {COMMAND} {cluster.seed}")


def main(given, *options):
    first, _, last = given.partition(":")
    with virtual_cluster.virtual_machine():
        for seed in range(int(first), int(last) if last else int(first) + 1):
            found, seen = run_seed(seed)
            if last:
                print(json.dumps(found), flush=True)
            else:
                if "--rows" in options:
                    print("\n".join(seen[2].record.rows))
                describe(found, *seen)
    return bool(found["problems"])


if __name__ == "__main__":
    if sys.flags.hash_randomization:
        sys.exit(f"strings have to hash alike: {COMMAND} {' '.join(sys.argv[1:])}")
    import chaos  # tasks are found again by the name of their module

    sys.exit(chaos.main(*sys.argv[1:]))
