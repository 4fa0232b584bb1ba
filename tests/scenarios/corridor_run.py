"""Clusters whose power is simulated, a corridor that moves, and what comes of it. For S13.

All seconds are those of the scenario page; ``scale`` of them pass in one second here, for everything alike:
tasks, the meter's lag and interval, the controller's cycle, dwell and lookahead. ``DASK_HPC_S13_SCALE=1``
runs it as the page has it. Where the machine is too busy for that pace, what was seen says nothing
(``is_late``), and the pace is to be slower.
"""

import asyncio
import os
import threading
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from random import Random
from time import monotonic

import dask
from distributed import Client, LocalCluster

import dask_hpc
from dask_hpc.policy import Policy
from dask_hpc.power.service import PowerService

SCALE = float(os.environ.get("DASK_HPC_S13_SCALE", "10"))  # where the machine is free
NODES, IDLE, BUSY = 8, 60.0, 140.0
CYCLE = 1.0  # of the meter, and so of the controller
LONG = 60.0  # a task that cannot be interrupted
SETTLING = LONG + 2 * CYCLE


def settings(scale):
    """What is configured."""
    meter = {"idle": IDLE, "busy": BUSY, "lag": 2 / scale, "noise": 0.03, "seed": 1}
    return {
        "hpc.power-interval": CYCLE / scale,
        "hpc.power-meter": {"simulated": meter},
        "hpc.power-history": None,
        "hpc.drain": f"{LONG / scale} s",
        "distributed.scheduler.worker-ttl": None,
    }


@dataclass(frozen=True)
class Phase:
    """Bounds that hold for some time."""

    seconds: float
    lower: float
    upper: float


@dataclass
class Seen:
    """What happened on one cluster."""

    scale: float
    #: seconds, true watts, bounds, seconds since these hold, and tasks begun
    samples: list = field(default_factory=list)
    story: list = field(default_factory=list)
    executed: int = 0
    submitted: int = 0
    #: executions of tasks that had been executed before
    repeated: int = 0
    #: of the body's clock when the first phase began
    offset: float = 0.0

    def inside(self, after=SETTLING, among=None):
        """The share of samples within bounds, once each phase has settled."""
        settled = [
            (lower <= watts <= upper)
            for _, watts, lower, upper, since, _ in self.samples
            if since >= after and (among is None or (lower, upper) in among)
        ]
        return sum(settled) / len(settled)

    def is_late(self):
        """Whether the machine was too busy: in a tenth of the time nobody got to look, or more."""
        lost = sum(max(0, b[0] - a[0] - 2 * CYCLE) for a, b in pairwise(self.samples))
        return lost > self.samples[-1][0] / 10

    def begun(self, phase):
        """Tasks that began while these bounds held."""
        counts = [begun for _, _, *bounds, _, begun in self.samples if bounds == [phase.lower, phase.upper]]
        return counts[-1] - counts[0]

    def during(self, phase):
        """From when to when its bounds held, on the body's clock."""
        times = [now for now, _, *bounds, _, _ in self.samples if bounds == [phase.lower, phase.upper]]
        return times[0] + self.offset, times[-1] + self.offset

    def actions_while(self, phase):
        """How many there were."""
        begin, end = self.during(phase)
        return sum(begin <= time <= end for time, _ in self.actions())

    def told(self, *decisions):
        """Seconds and words of these rows of the story."""
        rows = [row for row in self.story if row["decision"] in decisions]
        return [(row["time"] * self.scale, row["reason"]) for row in rows]

    def actions(self):
        """What was done for power: when, and whether it lets more work (+1) or less (-1)."""
        held, found = 0, []
        for row in self.story:
            if row["decision"] == "hold" and "to be held" in row["reason"]:
                nodes = int(row["reason"].split()[0])
                found.append((row["time"] * self.scale, 1 if nodes < held else -1))
                held = nodes
            elif row["decision"] in ("grow", "shrink", "cap"):
                found.append((row["time"] * self.scale, 1 if row["decision"] == "grow" else -1))
        return found

    def most_per_minute(self):
        """The most actions in any minute."""
        times = [time for time, _ in self.actions()]
        return max((sum(begin <= time < begin + 60 for time in times) for begin in times), default=0)

    def most_sign_changes(self):
        """In any settling window."""
        actions = self.actions()
        turns = [b[0] for a, b in pairwise(actions) if a[1] != b[1]]
        return max((sum(begin <= time < begin + SETTLING for time in turns) for begin in turns), default=0)


WORK = {}  # by number: tasks are pickled, what they count in is not


def uninterrupted(number, seconds, task):
    """A task."""
    WORK[number].task(seconds, task)


class Work:
    """Tasks that nothing interrupts, but the end of the scenario does."""

    def __init__(self, seed, scale):
        self.scale = scale
        self.random = Random(seed)
        self.number = len(WORK)
        WORK[self.number] = self
        #: in the order in which they began
        self.executed = []
        self.submitted = 0
        self._over = threading.Event()
        self.futures = []

    def task(self, seconds, task):
        self.executed.append(task)
        self._over.wait(seconds / self.scale)

    def submit(self, client, count, low, high):
        """So many tasks of so many seconds."""
        seconds = [self.random.uniform(low, high) for _ in range(count)]
        tasks = range(self.submitted, self.submitted + count)
        self.submitted += count
        self.futures += client.map(uninterrupted, [self.number] * count, seconds, tasks, pure=False)

    async def end(self, client):
        self._over.set()
        waiting = [future for future in self.futures if not future.done()]
        await client.cancel(waiting)


async def run(folder, policy, phases, submit, *, scale=SCALE, faults=None, lower=True):
    """One cluster under one policy (None: plain Dask, only watched). ``submit(work, client)`` submits the
    work; ``faults(plugin, seconds)`` may break sensors."""
    seen, work = Seen(scale), Work(7, scale)
    path = folder / f"{len(list(folder.iterdir()))}.yaml"
    configured = settings(scale)
    if policy is None:
        chosen, configured["hpc.power-watch"] = "fcfs", True
    else:
        chosen = Policy.load("power-corridor").with_(
            **{
                "power.follow": str(path),
                "power.dwell": f"{30 / scale} s",
                "power.lookahead": f"{30 / scale} s",
                **policy,
            }
        )
    write(path, phases[0], lower)
    cluster_options = {"n_workers": NODES, "threads_per_worker": 1, "processes": False}
    async with (
        LocalCluster(**cluster_options, dashboard_address=":0", asynchronous=True, memory_limit=0) as cluster,
        Client(cluster, asynchronous=True, set_as_default=False) as client,
    ):
        with dask.config.set(configured):
            manager = await dask_hpc.manage(client, policy=chosen)
        plugin = cluster.scheduler.plugins["dask-hpc"]
        begun = monotonic()
        seen.offset = plugin.context.clock() * scale
        submitting = asyncio.ensure_future(submit(work, client))
        passed = 0.0
        for phase in phases:
            write(path, phase, lower)
            since, passed = passed, passed + phase.seconds
            while (now := (monotonic() - begun) * scale) < passed:
                if faults is not None:
                    faults(plugin, now)
                watts = sum(plugin.context.find(PowerService).sight.meter.true_watts.values())
                seen.samples.append((now, watts, phase.lower, phase.upper, now - since, len(work.executed)))
                await asyncio.sleep(CYCLE / scale)
        submitting.cancel()
        seen.story = await manager.story()
        seen.status = await manager.status()
        await work.end(client)
        seen.executed, seen.submitted = len(work.executed), work.submitted
        seen.repeated = seen.executed - len(set(work.executed))
        await manager.close()
    return seen


def write(path, phase, lower):
    """The corridor's file, as somebody else would write it: never half."""
    bounds = {"lower": phase.lower if lower else 0, "upper": phase.upper}
    words = ", ".join(f"{key}: {'none' if value == inf else f'{value} W'}" for key, value in bounds.items())
    new = path.with_suffix(".new")
    new.write_text("{" + words + "}")
    new.replace(path)
