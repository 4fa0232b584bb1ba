"""S10: the batch system lets units wait: 0 s, 60 s, 30 min, for ever."""

import asyncio
from math import ceil, inf

import pytest
from batch_queue import BatchQueue, Submitted
from distributed.deploy.adaptive_core import AdaptiveCore

from dask_hpc.strategies.size.demand import Demand

MINUTE = 60.0
BURSTS = [120.0 * number for number in range(15)]  # half an hour of work, coming every two minutes


class PlainAdaptive(AdaptiveCore):
    """Dask's own decisions on the simulated queue, with the target of its scheduler."""

    def __init__(self, queue):
        super().__init__(minimum=queue.minimum, maximum=queue.maximum)
        self.queue = queue

    plan = requested = property(lambda self: set(self.queue.units))
    observed = property(
        lambda self: {name for name, unit in self.queue.units.items() if self.queue.connected(unit)}
    )

    async def target(self):
        return min(ceil(self.queue.work / 5.0), self.queue.tasks)

    async def workers_to_close(self, target):
        idle = [name for name in self.observed if not self.queue.units[name].busy]
        return idle[: len(self.observed) - target]

    async def scale_up(self, n):
        queue = self.queue
        while len(queue.units) < n:
            wait = queue.waits[min(queue.submissions, len(queue.waits) - 1)]
            name = f"u{queue.submissions}"
            queue.units[name] = Submitted(name, queue.now, queue.now + wait)
            queue.submissions += 1

    async def scale_down(self, workers):
        for name in workers:
            kind = "leave" if self.queue.connected(self.queue.units[name]) else "cancel"
            del self.queue.units[name]
            self.queue.deeds.append((self.queue.now, kind, name, ""))


class PlainQueue(BatchQueue):
    """The same queue with Dask deciding."""

    def look(self, strategy):
        if self.memory is None:
            self.memory = PlainAdaptive(self)
        asyncio.run(self.memory.adapt())


def bursts(queue):
    """40 s of work arrive every two minutes."""
    if queue.now in BURSTS:
        queue.work += 40.0
        queue.tasks = max(1, round(queue.work / queue.task_length))


def replayed(kind, waits, seconds=45 * MINUTE):
    queue = kind(list(waits), maximum=4, interval=2.0)
    most = []

    def each(queue):
        bursts(queue)
        most.append(queue.count()[1])

    queue.run(Demand(idle_grace=5 * MINUTE), seconds, each)
    return queue, max(most)


@pytest.mark.parametrize(
    ("name", "waits"),
    [
        ("0 s", [0.0]),
        ("60 s", [60.0]),
        ("30 min", [30 * MINUTE]),
        ("never", [inf]),
        ("0 s, 60 s, 30 min, never", [0.0, 60.0, 30 * MINUTE, inf]),
    ],
)
def test_a_trace_of_queue_waits(name, waits, report):
    plain, _ = replayed(PlainQueue, waits)
    ours, most = replayed(BatchQueue, waits)
    report.add(
        "S10",
        f"queue wait {name}: submissions",
        plain=plain.submissions,
        ours=ours.submissions,
        bound="<= 4 + regrowths",
    )
    if name in ("0 s", "60 s"):
        # Dask gives units back between the bursts, and waits for new ones each time.
        assert plain.submissions > 2 * ours.submissions
    assert ours.submissions <= 4 + len(ours.done("leave", "cancel"))
    assert len(ours.done("leave")) + len(ours.done("cancel")) <= 4
    assert most <= 4
    if "0 s" in name or name == "30 min":
        assert ours.work == 0


def test_pending_units_are_capped():
    queue = BatchQueue([inf], work=1e6)
    queue.run(Demand(max_pending=3), 30 * MINUTE)
    assert queue.submissions == 3 and queue.count() == (0, 3)


def test_useless_pending_units_are_cancelled_and_running_ones_kept():
    queue = BatchQueue([0.0, 0.0, inf], maximum=5, minimum=0, work=30.0, task_length=1.0)
    queue.run(Demand(), 60)
    assert [name for _, _, name, _ in queue.done("cancel")] == ["u4", "u3", "u2"]
    first = queue.done("cancel", "leave")[0]
    assert first[1] == "cancel"


def test_a_running_unit_is_not_given_up_for_one_that_waits():
    """The target falls to what runs: all that waits goes, nothing that runs does."""
    queue = BatchQueue([0.0, 0.0, inf], maximum=5, work=1e6, task_length=1.0)
    queue.run(Demand(), 60)
    assert queue.count() == (2, 3)
    queue.minimum, queue.work = 2, 0.0
    queue.run(Demand(), 10 * MINUTE)
    assert queue.count() == (2, 0)
    assert not queue.done("leave")
