"""The I/O strategy's limits are carried out and told, and what goes next is what it says."""

import asyncio
from itertools import pairwise
from types import SimpleNamespace

import dask
import numpy as np
import pytest
from distributed import Event
from distributed.utils_test import async_poll_for, gen_cluster
from small_cluster import plugin_of

import dask_hpc
from dask_hpc.cluster.scheduler.jobs import LiveJob, Ready
from dask_hpc.lanes.scheduler import _MOST, Lane, Lanes
from dask_hpc.model.job import Job
from dask_hpc.policy import Policy

# Many tasks connect at once, which takes more than the five seconds of Dask's tests where others work too.
PATIENT = {"distributed.comm.timeouts.connect": "30s"}
wide = gen_cluster(client=True, nthreads=[("", 4)] * 2, config=PATIENT)
THREADS = 8


def open_dataset(path, i):
    """A known reader, by its name."""
    Event(f"go-{i}").wait(60)
    return i


def burn(i):
    Event(f"burn-{i}").wait(60)
    return i


def lanes_of(s):
    return plugin_of(s).context.get(Lanes)


def running(s, name):
    return [task.key for ws in s.workers.values() for task in ws.processing if task.key.startswith(name)]


def reads(c, n, first=0, **options):
    numbers = range(first, first + n)
    keys = [f"open_dataset-{i:02}" for i in numbers]
    return c.map(open_dataset, ["/fast/x"] * n, numbers, key=keys, **options)


def computes(c, n):
    return c.map(burn, range(n), key=[f"burn-{i:02}" for i in range(n)])


async def go(name, numbers):
    for i in numbers:
        await Event(f"{name}-{i}").set()


async def settle(condition):
    """It becomes so, and stays so for some turns of the event loop."""
    await async_poll_for(condition, 10)
    for _ in range(20):
        await asyncio.sleep(0)
    assert condition()


@wide
async def test_a_limit_by_policy(c, s, *workers):
    policy = Policy.load("io-lanes").with_(**{"io.limit": 3, "io.tune": False})
    async with await dask_hpc.manage(c, policy=policy) as manager:
        futures = reads(c, 30)
        await settle(lambda: len(running(s, "open")) == 3)
        (lane,) = (await manager.status())["io"]
        assert (lane["file_system"], lane["limit"], lane["tuned"]) == ("/fast", 3, True)
        assert (lane["in_flight"], lane["waiting"]) == (3, 27)
        told = [row["reason"] for row in await manager.story() if row["decision"] == "io-limit"]
        assert told == ["reads of /fast: 3 at once; 3 to begin with"]
        await manager.set(**{"io.limit": 5})
        await settle(lambda: len(running(s, "open")) == 5)
        await manager.set(**{"settings.io-lanes": {"/fast/x": 4}})  # a person's limit goes first
        await settle(lambda: row_of(s).limit == 4 or "/fast/x" not in lanes_of(s).by_name)
        await go("go", range(30))
        assert await c.gather(futures) == list(range(30))
        assert (await manager.status())["errors"] == 0


def row_of(s):
    return next(iter(lanes_of(s).by_name.values()))


@pytest.mark.queue
@wide
async def test_auto_is_one_line_and_has_no_limit_at_first(c, s, *workers):
    async with await dask_hpc.manage(c) as manager:
        await manager.set(**{"settings.io-lanes": "auto"})
        futures = reads(c, 40)
        await settle(lambda: len(running(s, "open")) >= THREADS)
        assert row_of(s).limit is None and lanes_of(s).count_waiting()
        await manager.set(**{"settings.io-lanes": None})
        await settle(lambda: not lanes_of(s).count_waiting())
        await go("go", range(40))
        assert await c.gather(futures) == list(range(40))
        later = c.submit(open_dataset, "/fast/x", 0, key="open_dataset-later")
        assert await later == 0 and "open_dataset-later" not in lanes_of(s).row_of


def reading_on(s, worker):
    return sum(task.key.startswith("open") for task in s.workers[worker.address].processing)


@pytest.mark.queue
@wide
async def test_reads_go_beside_what_computes(c, s, *workers):
    """What computes was there first; half of all there is to do is to read."""
    async with await dask_hpc.manage(c, policy="io-lanes") as manager:
        first = computes(c, 40)
        await settle(lambda: len(running(s, "burn")) >= THREADS)
        second = reads(c, 40, priority=-1)
        await async_poll_for(lambda: lanes_of(s).count_waiting() == 40, 10)
        for _ in range(5):
            # One ends on each worker, first where fewer read: of a single free slot nobody can choose.
            for w in sorted(workers, key=lambda w: reading_on(s, w)):
                end = min(t.key for t in w.state.executing if t.key.startswith("burn"))
                await go("burn", [int(end.removeprefix("burn-"))])
                await async_poll_for(lambda end=end: end not in running(s, "burn"), 10)
        await settle(lambda: len(running(s, "open")) >= 4)
        by_worker = [reading_on(s, w) for w in workers]
        assert max(by_worker) - min(by_worker) <= 1
        assert "goes next: " in (await manager.status())["io_next"]
        await go("burn", range(40))
        await go("go", range(40))
        await c.gather([*first, *second])
        assert (await manager.status())["errors"] == 0


@pytest.mark.queue
@wide
async def test_without_pairing_the_order_is_dasks(c, s, *workers):
    policy = Policy.load("io-lanes").with_(**{"io.pair": False})
    async with await dask_hpc.manage(c, policy=policy):
        first = computes(c, 40)
        await settle(lambda: len(running(s, "burn")) >= THREADS)
        second = reads(c, 40, priority=-1)
        await async_poll_for(lambda: lanes_of(s).count_waiting() == 40, 10)
        await go("burn", range(10))
        await settle(lambda: len(s.queued) <= 20)
        assert not running(s, "open")
        urgent = reads(c, 5, 40, priority=1)
        await async_poll_for(lambda: lanes_of(s).count_waiting() == 45, 10)
        await go("burn", range(10, 16))
        await settle(lambda: len(running(s, "open")) == 5)
        await go("burn", range(16, 40))
        await go("go", range(45))
        await c.gather([*first, *second, *urgent])


@pytest.mark.queue
@wide
async def test_neighbours_go_to_one_worker(c, s, *workers):
    """Four to one worker, four to the other, not by turns; and what does not run at once yet."""
    async with await dask_hpc.manage(c, policy="io-lanes"):
        made = [
            dask.delayed(open_dataset)("/fast/x", i, dask_key_name=f"open_dataset-{i:02}") for i in range(40)
        ]
        pairs = c.compute([dask.delayed(np.add)(a, b) for a, b in pairwise(made)])
        await settle(lambda: len(running(s, "open")) >= THREADS)
        places = {t.key: ws.address for ws in s.workers.values() for t in ws.processing}
        both = [
            (places[key], places[beside])
            for i in range(39)
            if (key := f"open_dataset-{i:02}") in places and (beside := f"open_dataset-{i + 1:02}") in places
        ]
        assert len(both) >= 6 and sum(a == b for a, b in both) >= len(both) - 3
        await go("go", range(40))
        await c.gather(pairs)


def test_what_is_measured():
    lane = Lane("/a", "default", 2, False)
    lane.ready = {None: range(9)}
    lane.departs("a", "w", 0.0)  # not as many as may be
    lane.departs("b", "w", 0.0)
    lane.arrives("a", True, 1.0)
    lane.departs("c", None, 1.0)
    lane.arrives("b", True, 2.0)
    lane.arrives("c", False, 3.0)  # it failed
    found = lane.view()
    assert (found.done, found.tasks, found.company, found.seconds) == (2, 1, 2.0, 2.0)
    assert lane.rate == 1.0 and lane.given == {"w": 2}
    lane.departs("d", None, 3.0)
    lane.departs("e", None, 3.0)
    lane.change(3, "why")
    lane.arrives("e", True, 4.0)  # let pass under another limit
    assert lane.view().tasks == 0 and lane.view().done == 3
    lane.ready = {}
    lane.departs("f", None, 4.0)
    lane.departs("g", None, 4.0)
    lane.arrives("g", True, 5.0)  # nobody waits: that it had less company says nothing
    assert lane.view().tasks == 0


def waiting(**reads):
    """So many reads, by their keys, with the priority of each."""
    ready = Ready()
    for key, priority in reads.items():
        ready.add(priority, key)
    return ready


def test_of_all_that_wait_the_best_goes_next():
    """In whatever lane and job; of equals, in the lane that is read from for longer."""
    early, late = Lane("/a", "default", 1, False), Lane("/b", "default", 1, False)
    waits, runs = (LiveJob(name, Job(id=name, nodes=1), 0) for name in ("waits", "runs"))
    runs.state = "running"
    early.ready = {None: waiting(a=5, b=3), waits: waiting(c=0)}
    late.ready = {None: waiting(d=3), runs: waiting(e=2)}
    lanes = SimpleNamespace(by_name={"/a": early, "/b": late})

    def first(*full):
        return Lanes.first(lanes, lambda lane, job: job not in full and not lane.is_full)

    found = first()
    assert (found.key, found.row, found.job) == ("e", late, runs), "the job of c waits itself"
    assert first(runs).key == "b", "no slot is free for e"
    early.departs("x", None, 0.0)
    assert first(runs).key == "d", "its lane is full"
    assert first(runs, None) is None


def test_metrics_tell_the_file_systems_that_are_read_from_most():
    lanes = [Lane(f"/{done}", "default", None, False) for done in range(_MOST + 3)]
    for done, lane in enumerate(lanes):
        lane.done = done
    told = SimpleNamespace(by_name={lane.name: lane for lane in lanes}, metrics=Lanes.metrics, _strategy=None)
    told = Lanes.samples(told, {"io": Lanes.part(told, "lanes")})
    assert told["io_reads"] == {f"/{done}": done for done in range(3, _MOST + 3)}
    assert told["io_limit"] == told["io_reads_per_second"] == {}, "what is not known"
