"""Chaos: resizes, policy swaps, power bounds, killed workers, holds and clients that vanish, all at random.

Whatever happens, every answer is right, nothing hangs, nothing is left over, and the story is consistent.
``DASK_HPC_CHAOS`` sets the seconds, ``DASK_HPC_SEED`` the order of events.
"""

import os
import random
import signal
import time
from contextlib import suppress

import dask
import pytest
from distributed import Client, LocalCluster, wait
from distributed.utils import TimeoutError as DaskTimeout

import dask_hpc
from dask_hpc.model.job import is_over

SECONDS = float(os.environ.get("DASK_HPC_CHAOS", "60"))
SEED = int(os.environ.get("DASK_HPC_SEED", "20261120"))
POLICIES = ["fcfs", "easy-backfill", "fpsma-pwma", "egs-prma", "performance-aware", "elastic"]
POWER = {  # 60 W of an idle worker, 200 W of a busy one, by a made-up meter
    "hpc.power-meter": "simulated",
    "hpc.power-interval": "0.2s",
    "hpc.power-history": None,
}
PATIENCE = 120.0  # seconds for what is left when the chaos is over


def square(x, pause):
    time.sleep(pause)
    return x * x


def total(parts):
    return sum(parts)


class Chaos:
    """Does one random thing at a time and remembers what must come out."""

    def __init__(self, cluster, client, manager):
        self.cluster, self.client, self.manager = cluster, client, manager
        self.random = random.Random(SEED)
        self.expected = {}
        self.kept = []
        self.held = set()
        self.done = {}
        self.submitted = 0
        self.last_kill = 0.0
        self.is_bounded = False

    def step(self):
        things = [
            (self.submit_job, 6),
            (self.submit_outside, 2),
            (self.resize_cluster, 1),
            (self.swap_policy, 2),
            (self.move_corridor, 2),
            (self.kill_worker, 1),
            (self.hold, 1),
            (self.release, 1),
            (self.client_vanishes, 1),
            (self.check_one, 6),
        ]
        thing = self.random.choices([t for t, _ in things], [w for _, w in things])[0]
        thing()
        self.done[thing.__name__] = self.done.get(thing.__name__, 0) + 1

    def work(self, client, count):
        """A graph of known answer: the sum of some squares."""
        start = self.random.randrange(10**6)
        pauses = [self.random.random() * 0.05 for _ in range(count)]
        parts = client.map(square, range(start, start + count), pauses, pure=False)
        return client.submit(total, parts, pure=False), sum(x * x for x in range(start, start + count))

    def job(self):
        self.submitted += 1
        low, high = sorted(self.random.choices(range(1, 4), k=2))  # three nodes are always coming
        nodes = self.random.randint(low, high)
        walltime = self.random.choice([None, "5s", "1 min"])
        return dask_hpc.job(
            f"job{self.submitted}", nodes=nodes, min_nodes=low, max_nodes=high, walltime=walltime
        )

    def submit_job(self):
        if len(self.expected) < 25:
            with self.job():
                future, answer = self.work(self.client, self.random.randint(1, 40))
            self.expected[future] = answer

    def submit_outside(self):
        future, answer = self.work(self.client, self.random.randint(1, 20))
        self.expected[future] = answer

    def resize_cluster(self):
        self.cluster.scale(self.random.randint(3, 5))

    def swap_policy(self):
        if self.random.random() < 0.3:
            with suppress(dask_hpc.InputError):  # there may be nothing to undo
                self.is_bounded = self.manager.undo()["name"] == "power-corridor"
        else:
            self.manager.set(policy=self.random.choice(POLICIES))
            self.is_bounded = False

    def move_corridor(self):
        """Bounds that can be kept, and bounds that cannot."""
        lower, upper = sorted(self.random.choices(range(200, 1500, 50), k=2))
        self.manager.set(policy="power-corridor", **{"power.lower": lower, "power.upper": upper})
        self.is_bounded = True

    def lift_bounds(self):
        """There may be too little power for a job that somebody is going to wait for."""
        if self.is_bounded:
            self.manager.set(policy="elastic")
            self.is_bounded = False

    def kill_worker(self):
        if time.monotonic() - self.last_kill < 4:
            return
        self.last_kill = time.monotonic()
        pids = list(self.client.run(os.getpid, on_error="ignore").values())
        if len(pids) > 2:
            with suppress(ProcessLookupError):
                os.kill(self.random.choice(pids), signal.SIGKILL)

    def workers(self):
        return list(self.client.nthreads())

    def hold(self):
        address = self.random.choice(self.workers() or [None])
        if address and len(self.held) < 2:
            with suppress(dask_hpc.InputError):  # gone meanwhile
                self.manager.hold([address])
                self.held.add(address)

    def release(self):
        while self.held:
            with suppress(dask_hpc.InputError):
                self.manager.release([self.held.pop()])

    def client_vanishes(self):
        self.release()  # while this waits for an answer nobody else would
        self.lift_bounds()
        with Client(self.cluster.scheduler_address, set_as_default=False) as other:
            with dask_hpc.job(f"gone{self.submitted}", nodes=1, client=other):
                future, answer = self.work(other, 5)
            if self.random.random() < 0.5:
                assert future.result(timeout=PATIENCE) == answer

    def check_one(self):
        for future in list(self.expected):
            if future.done():
                assert future.result(timeout=PATIENCE) == self.expected.pop(future)
                if self.random.random() < 0.2:
                    self.kept.append((future, future.result(timeout=PATIENCE)))
                return

    def finish(self):
        self.release()
        self.lift_bounds()
        not_done = wait(list(self.expected), timeout=PATIENCE).not_done
        assert not not_done
        for future, answer in [*self.expected.items(), *self.kept]:
            assert future.result(timeout=PATIENCE) == answer


def check_story(rows, state):
    """No node is ever held by two jobs; what ends had started."""
    holder, sizes = {}, {}
    for row in rows:
        job, nodes, what = row["job"], row["nodes"], row["decision"]
        if what in ("start", "grow", "shrink"):
            for node in [n for n, j in holder.items() if j == job]:
                del holder[node]
            for node in nodes:
                assert holder.get(node, job) == job, f"{node} is held twice: {row}"
                holder[node] = job
            sizes[job] = len(nodes)
        elif what in ("end", "requeue", "cancel"):
            for node in [n for n, j in holder.items() if j == job]:
                del holder[node]
    assert not holder, f"{state}: still held at the end: {holder}"


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 3 * PATIENCE)
def test_chaos(report):
    settings = POWER | {
        "distributed.scheduler.allowed-failures": 100,
        "hpc.story-length": 100_000,
        "hpc.drain": "2s",
    }
    with (
        dask.config.set(settings),
        LocalCluster(n_workers=4, threads_per_worker=2, dashboard_address=":0", memory_limit=0) as cluster,
        Client(cluster) as client,
    ):
        before = remains(client)
        with dask_hpc.malleable(cluster) as manager:
            chaos = Chaos(cluster, client, manager)
            until = time.monotonic() + SECONDS
            while time.monotonic() < until:
                chaos.step()
            chaos.finish()
            status = manager.status()
            client.cancel([*chaos.expected, *(future for future, _ in chaos.kept)])
            assert all(is_over(job["state"]) for job in status["jobs"])
            assert status["errors"] == 0 and status["state"] == "on"
            assert manager.replay()["different"] == []
            rows = manager.story()
            check_story(rows, status["state"])
        with suppress(DaskTimeout):
            client.wait_for_workers(1, timeout=30)
        assert remains(client) == before, "something of ours is left after close"
        counts = ", ".join(f"{count} {name}" for name, count in sorted(chaos.done.items()))
        report.add(
            "chaos", f"{SECONDS:.0f} s, seed {SEED}: {counts}", plain="-",
            ours=f"all answers right, {len(rows)} happenings", bound="right, no hang, no leftovers",
        )  # fmt: skip


def remains(client):
    """What the scheduler holds of extensions: must be the same before and after."""

    def look(dask_scheduler):
        return {
            "plugins": sorted(dask_scheduler.plugins),
            "handlers": sorted(dask_scheduler.handlers),
            "stream": sorted(dask_scheduler.stream_handlers),
            "worker plugins": sorted(dask_scheduler.worker_plugins),
            "periodic": sorted(dask_scheduler.periodic_callbacks),
            "threads": sorted({worker.nthreads for worker in dask_scheduler.workers.values()}),
            "restricted": [t.key for t in dask_scheduler.tasks.values() if t.worker_restrictions],
        }

    return client.run_on_scheduler(look)
