"""S7: work comes in bursts, and the workers of the last one are still there for the next."""

import asyncio
from contextlib import suppress
from time import monotonic, sleep

import pytest
from distributed import Client, LocalCluster, Scheduler, SpecCluster, Worker
from distributed.deploy.spec import ProcessInterface
from distributed.utils_test import gen_test

import dask_hpc

BURSTS, TASKS, SECONDS, EVERY = 4, 16, 0.3, 8.0
WAIT = 10.0  # seconds in the queue of a batch system
SCALE = 4  # so many of the scenario's seconds pass in one, where only starts and removals are counted


def nap(seconds, i):
    sleep(seconds)


async def bursts(cluster, scale=1, ours=True, pause=0.0, **adapt):
    """Worker starts and removals, the length of each burst, and why workers left. After a burst nothing comes
    for ``pause`` seconds at least."""
    async with cluster, Client(cluster, asynchronous=True) as client:
        manager = await dask_hpc.malleable(cluster) if ours else None
        cluster.adapt(minimum=0, maximum=2, **adapt)
        took, next_one = [], monotonic()
        for _ in range(BURSTS):
            await asyncio.sleep(max(0.0, next_one - monotonic()))
            next_one += EVERY / scale
            since = monotonic()
            await client.gather(client.map(nap, [SECONDS / scale] * TASKS, range(TASKS), pure=False))
            took.append(monotonic() - since)
            next_one = max(next_one, monotonic() + pause / scale)
        events = [msg.get("action") for _, msg in cluster.scheduler.get_events("all")]
        why = []
        if manager is not None:
            why = [row["reason"] for row in await manager.story() if row["decision"] == "unit-leaves"]
            assert (await manager.status())["errors"] == 0
            await manager.close()
        return events.count("add-worker"), events.count("remove-worker"), took, why


def local():
    return LocalCluster(n_workers=0, threads_per_worker=1, asynchronous=True, dashboard_address=":0")


@pytest.mark.timed
@pytest.mark.slow
def test_bursts_find_their_workers_still_there(report):
    found = {}

    @gen_test(timeout=200)
    async def run():
        found["ours"] = await bursts(local())  # alone: it is timed
        found["plain"], found["thrifty"] = await asyncio.gather(
            bursts(local(), ours=False), bursts(local(), forbid_idling=True)
        )

    run()
    (starts, removals, took, _), plain = found["ours"], found["plain"]
    report.add("S7", "worker starts", plain=plain[0], ours=starts, bound="2")
    report.add("S7", "removals", plain=plain[1], ours=removals, bound="0")
    report.add(
        "S7",
        "longest burst after the first, s",
        plain=f"{max(plain[2][1:]):.1f}",
        ours=f"{max(took[1:]):.1f}",
        bound="<= 3",
    )
    report.add("S7", "removals when idling is forbidden", plain="-", ours=found["thrifty"][1], bound=">= 1")
    assert plain[0] > 2 and plain[1] > 0
    assert (starts, removals) == (2, 0)
    assert max(took[1:]) <= 3.0
    assert found["thrifty"][1] >= 1
    assert all("forbids" in why for why in found["thrifty"][3])


# --- the same where a worker comes late


class QueuedJob(ProcessInterface):
    """A stand-in for a batch job: asked for, it waits in a queue, and only then its worker starts. Nobody can
    be asked how far it is."""

    def __init__(self, scheduler, wait, asked, **options):
        super().__init__(scheduler)
        self.scheduler, self.wait, self.options = scheduler, wait, options
        self.job_id = str(len(asked))
        self.worker = None
        asked.append(options["name"])

    async def start(self):
        self.waiting = asyncio.ensure_future(self._wait())
        await super().start()

    async def _wait(self):
        await asyncio.sleep(self.wait)
        self.worker = await Worker(self.scheduler, **self.options)

    async def close(self):
        self.waiting.cancel()
        with suppress(asyncio.CancelledError):
            await self.waiting
        if self.worker is not None:
            await self.worker.close()
        await super().close()


def queued(asked):
    """A cluster of such jobs; ``asked`` collects the names of all that were asked for."""
    return SpecCluster(
        scheduler={"cls": Scheduler, "options": {"dashboard_address": ":0", "port": 0}},
        worker={"cls": QueuedJob, "options": {"wait": WAIT / SCALE, "asked": asked, "nthreads": 1}},
        asynchronous=True,
    )


#: what both have by default, in the scenario's seconds
OF_BOTH = {"interval": 1.0, "target_duration": 5.0}
OURS = OF_BOTH | {"idle_grace": 15.0, "cool_down": 5.0}


def scaled(seconds):
    return {name: f"{one / SCALE} s" for name, one in seconds.items()}


@pytest.mark.slow
def test_bursts_behind_a_queue(report):
    """Who gives a worker back waits for the next one for as long as the queue is."""
    found, asked = {}, {"plain": [], "ours": [], "thrifty": []}

    @gen_test(timeout=120)
    async def run():
        ways = {
            "plain": scaled(OF_BOTH) | {"ours": False},
            "ours": scaled(OURS),
            "thrifty": scaled(OURS) | {"forbid_idling": True},
        }
        rest = EVERY - TASKS * SECONDS / 2
        runs = (bursts(queued(asked[how]), SCALE, pause=rest, **options) for how, options in ways.items())
        found.update(zip(ways, await asyncio.gather(*runs), strict=True))

    run()
    (plain, *_), (ours, removals, took, _) = found["plain"], found["ours"]
    _, given_back, _, why = found["thrifty"]
    plain_took = f"{SCALE * max(found['plain'][2][1:]):.1f}"
    title = f"queue wait of {WAIT:g} s (seconds / {SCALE}): "
    report.add("S7", f"{title}worker starts", plain=plain, ours=ours, bound="2")
    report.add("S7", f"{title}removals", plain=found["plain"][1], ours=removals, bound="0")
    report.add("S7", f"{title}longest burst after the first, s", plain=plain_took,
               ours=f"{SCALE * max(took[1:]):.1f}", bound="-")  # fmt: skip
    report.add("S7", f"{title}removals when idling is forbidden", plain="-", ours=given_back, bound=">= 1")
    assert plain > 2 and found["plain"][1] > 0
    assert (len(asked["ours"]), ours, removals) == (2, 2, 0)
    assert given_back >= 1 and why
    assert all("forbids to save cost" in one for one in why)
