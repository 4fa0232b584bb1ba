"""Every method of every part of ours raises at random, before it does anything or after it has."""

import inspect
import random
import types
from functools import wraps

from distributed.utils_test import inc

import dask_hpc
from dask_hpc.cluster.scheduler.fair_shares import FairShares, VirtualTime
from dask_hpc.cluster.scheduler.farewell import Farewells
from dask_hpc.cluster.scheduler.gate import Gate
from dask_hpc.cluster.scheduler.hand_over import HandOvers
from dask_hpc.cluster.scheduler.holds import Holds
from dask_hpc.cluster.scheduler.jobs import Performance
from dask_hpc.cluster.scheduler.leaving import Leaving
from dask_hpc.cluster.scheduler.lifecycle import Lifecycle, Measurements
from dask_hpc.cluster.scheduler.loop import ControlLoop
from dask_hpc.cluster.scheduler.plan_execution import PlanExecution
from dask_hpc.cluster.scheduler.service import guarded
from dask_hpc.cluster.scheduler.sizing import Sizing
from dask_hpc.cluster.scheduler.spread import Spread
from dask_hpc.cluster.scheduler.waves import Waves

PARTS = (
    ControlLoop, PlanExecution, Gate, Holds, Leaving, HandOvers, Spread, Lifecycle, FairShares, VirtualTime,
    Measurements,
    Performance,
    Waves, Farewells, Sizing,
)  # fmt: skip
#: how everything is let go of; a failure there is tried apart
WAY_OUT = {
    "__init__", "release_all", "close", "lift_all", "nudge_freed", "end", "tell", "_tell", "_let_work",
    "stop_timer", "stop", "cancel", "start",
}  # fmt: skip


def failing(method, is_late=False, fails=lambda: True):
    """The method, but that it raises when ``fails`` says so: before it does anything, or once it has."""

    def perhaps(when):
        if when == is_late and fails():
            raise ZeroDivisionError(f"on purpose, in {method.__qualname__}")

    if inspect.iscoroutinefunction(method):

        async def instead(*args, **kwargs):
            perhaps(False)
            found = await method(*args, **kwargs)
            perhaps(True)
            return found

    else:

        def instead(*args, **kwargs):
            perhaps(False)
            found = method(*args, **kwargs)
            perhaps(True)
            return found

    return wraps(method)(instead)


def sabotage(monkeypatch, seed, rate, parts=PARTS, way_out=WAY_OUT, is_late=False):
    """Every method of every part of ours now raises at random: before it does anything, or ``is_late``, once
    it has. The hooks among them that are guarded stay so, and raise inside."""
    dice = random.Random(seed)

    def spoilt(method):
        return failing(method, is_late, lambda: dice.random() < rate)

    for part in parts:
        for name, method in list(vars(part).items()):
            if not isinstance(method, types.FunctionType) or name in way_out:
                continue
            is_guarded = method.__code__.co_qualname.startswith("guarded.")
            monkeypatch.setattr(
                part, name, guarded(spoilt(method.__wrapped__)) if is_guarded else spoilt(method)
            )


async def workload(c, s):
    """Jobs that wait, grow, need each other and end; work outside of jobs; a worker that leaves."""
    futures = c.map(inc, range(100), pure=False)
    with dask_hpc.job("m", nodes=1, min_nodes=1, max_nodes=4, client=c):
        one = c.map(inc, range(30), pure=False)
        two = c.map(inc, one, pure=False)
    with dask_hpc.job("r", nodes=3, client=c):
        three = c.map(inc, two, pure=False)
    with dask_hpc.job("s", nodes=2, client=c):
        four_ = c.map(inc, range(20), pure=False)
    s.workers_to_close(n=1)
    address = list(s.workers)[-1]
    await c.retire_workers([address])
    found = [await c.gather(each) for each in (futures, one, two, three, four_)]
    assert found == [[i + k for i in range(n)] for k, n in ((1, 100), (1, 30), (2, 30), (3, 30), (1, 20))]
