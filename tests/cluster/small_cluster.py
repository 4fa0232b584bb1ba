"""Small clusters, tasks that say where they ran, and ways to look at the plugin."""

import dask
import dask.array as da
from distributed import Event, Queue, SchedulerPlugin, get_worker
from distributed.utils_test import async_poll_for, gen_cluster

from dask_hpc import dask as compat
from dask_hpc.power.service import PowerService

cluster4 = gen_cluster(client=True, nthreads=[("", 1)] * 4)
cluster2 = gen_cluster(client=True, nthreads=[("", 1)] * 2)


def plugin_of(s):
    return s.plugins["dask-hpc"]


def power_of(s):
    return plugin_of(s).context.find(PowerService)


def live(s, name):
    """The newest job of that name."""
    return [job for job in plugin_of(s).control.jobs.values() if job.name == name][-1]


async def until(s, name, state):
    await async_poll_for(
        lambda: any(
            j.name == name and j.state == state
            for j in [j for j in plugin_of(s).control.jobs.values() if j.name == name][-1:]
        ),
        10,
    )
    return live(s, name)


async def lose(worker):
    """A worker is gone at once: it has no time for a farewell. With none at all Dask does not even tell the
    scheduler that it closes, unless that is quick."""
    await worker.close(executor_wait=False, timeout=0.05)


def where(x=None, *rest):
    return get_worker().address


def blocked(event, x=None):
    Event(event).wait(60)
    return where()


async def looks(adaptive, count):
    """So many looks have begun after this was called, and have ended: the one under way is none of them."""
    for _ in range(count):
        await async_poll_for(lambda: not adaptive._adapting, 10)
        await adaptive.adapt()


class Vetoes(SchedulerPlugin):
    """Needs workers where they are, as Dask's shuffles do."""

    name = "vetoes"

    def __init__(self):
        self.needed = set()

    def valid_workers_downscaling(self, scheduler, workers):
        return [worker for worker in workers if worker.address not in self.needed]


def marked(event, x):
    """Counts its executions, and blocks."""
    Queue("marks").put(x)
    Event(event).wait(60)
    return x


def produce(x, nbytes=1000):
    Queue("marks").put(x)
    return bytes(nbytes)


async def executions(c):
    queue = Queue("marks", client=c)
    return sorted(await queue.get(batch=True)) if await queue.qsize() else []


def losses(s):
    """Results that had to be computed again or are gone, by what Dask says of workers that left."""
    events = [msg for _, msg in s.get_events("all") if msg.get("action") == "remove-worker"]
    return sum(len(e["lost-computed-tasks"]) + len(e["lost-scattered-tasks"]) for e in events)


def reasons(s, decision):
    return [h.reason for h in plugin_of(s).story.happenings if h.decision == decision]


def decisions(s, *kinds):
    return [(h.decision, h.job) for h in plugin_of(s).story.happenings if h.decision in kinds]


async def half_shuffled(c, s):
    """An array of 36 ones in the middle of one of Dask's shuffles, until the event "go"."""

    def late(block):
        Event("go").wait(60)
        return block

    with dask.config.set({"array.rechunk.method": "p2p", "optimization.fuse.active": False}):
        y = c.persist(da.ones((6, 6), chunks=(2, 6)).rechunk((6, 2)).map_blocks(late, dtype=float))
    await async_poll_for(lambda: compat.is_shuffling(s), 10)
    return y


def held(job):
    """Keys of the job's tasks that Dask has in ``no-worker``: root tasks and others."""
    return {*job.held, *job.ready}
