"""One brain, two bodies, for I/O lanes: the same limits and reasons, simulated and on a live cluster."""

import asyncio

from distributed import Event
from distributed.utils_test import async_poll_for, gen_cluster

import dask_hpc
from dask_hpc import Policy
from dask_hpc.lanes import scheduler as live_lanes
from dask_hpc.model.job import Job
from dask_hpc.simulator import Arrival
from dask_hpc.simulator.application import Application, Fixed, Phase, Task
from dask_hpc.simulator.engine import Engine
from dask_hpc.simulator.lanes import FILE_SYSTEM, ReadDesk
from dask_hpc.simulator.platform import Crowding, Platform

NODES, EACH = 8, 10
POLICY = Policy.load("io-lanes").with_(**{"io.cost": 0.3, "io.pair": False, "io.together": False})


def open_dataset(path, i):
    """A known reader, by its name."""
    Event(f"go-{i}").wait(60)


class Watched(ReadDesk):
    """What there is after each end of a read."""

    def begin(self):
        self.seen = []

    def ended(self, read, now):
        super().ended(read, now)
        view = self.lane.view()
        self.seen.append((now, view.limit, view.in_flight, view.waiting, view.done))


def limits(story, name):
    """What was decided when, why, by which numbers, and what not."""
    return [
        (row.time, row.reason.replace(name, "DISK"), row.why.rule, dict(row.why.inputs), row.why.rejected)
        for row in story.happenings
        if row.decision == "io-limit"
    ]


def simulated():
    """One job that reads on all nodes, from a file system that serves three of them well."""
    platform = Platform(NODES, file_system=4.0, crowding=Crowding(3, 1.0, EACH))
    application = Application((Phase((Task("read", Fixed(float(EACH))),)),))
    desk = Watched()
    engine = Engine(platform, POLICY, services=[desk])
    engine.run([Arrival(Job(id="reads", nodes=NODES), 1.0, application=application)])
    return desk.seen, limits(engine.story, FILE_SYSTEM)


def test_the_same_limits_for_the_same_reads(monkeypatch):
    seen, predicted = simulated()
    assert len(seen) == NODES * EACH and len(predicted) >= 3, predicted
    now, found = 0.0, []
    monkeypatch.setattr(live_lanes, "monotonic", lambda: now)

    @gen_cluster(client=True, nthreads=[("", NODES)], config={"distributed.scheduler.worker-saturation": 1.0})
    async def run(c, s, worker):
        nonlocal now
        async with await dask_hpc.manage(c, policy=POLICY) as manager:
            context = s.plugins["dask-hpc"].context
            context.clock = lambda: now
            lanes = s.plugins["dask-hpc"].context.get(live_lanes.Lanes)
            count = NODES * EACH
            keys = [f"open_dataset-{i:03}" for i in range(count)]
            futures = c.map(open_dataset, ["/disk/x"] * count, range(count), key=keys)

            def view():
                for lane in lanes.by_name.values():
                    one = lane.view()
                    return one.limit, one.in_flight, one.waiting, one.done
                return None

            await async_poll_for(lambda: view() == (None, NODES, count - NODES, 0), 10)
            for time, *expected in seen:
                now = time
                (lane,) = lanes.by_name.values()
                await Event(f"go-{int(next(iter(lane.in_flight)).rpartition('-')[2])}").set()
                await async_poll_for(lambda expected=expected: view() == tuple(expected), 10, period=0.002)
                await asyncio.sleep(0)
                assert view() == tuple(expected)
            await c.gather(futures)
            found.extend(limits(s.plugins["dask-hpc"].story, "/disk"))
            assert (await manager.status())["errors"] == 0

    run()
    assert found == predicted
