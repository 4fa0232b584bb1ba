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

    def idle(self):
        return [name for name in self.observed if not self.queue.units[name].busy]

    async def target(self):
        wanted, there = min(ceil(self.queue.work / 5.0), self.queue.tasks), len(self.observed)
        return wanted if wanted >= there else there - len(self.idle())

    async def workers_to_close(self, target):
        return self.idle()[: max(0, len(self.observed) - target)]

    async def scale_up(self, n):
        queue = self.queue
        while len(queue.units) < n:
            wait = queue.waits[min(queue.submissions, len(queue.waits) - 1)]
            name = queue.submissions  # sets of numbers have the same order each time
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
        self.memory.minimum = self.minimum
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
    report.add(
        "S10",
        f"queue wait {name}: seconds of work that is left",
        plain=f"{plain.work:g}",
        ours=f"{ours.work:g}",
        bound="0 if enough units come",
    )
    if name in ("30 min", "never"):
        # The defect does not show: nothing has arrived that Dask could give back.
        assert plain.submissions == ours.submissions == 4 and plain.work == ours.work
    elif "never" in name:
        # What Dask gives back between the bursts does not come again: work is left, and ours ends.
        assert plain.submissions > ours.submissions and plain.work > 0
    else:
        # Dask gives units back between the bursts, and waits for new ones each time.
        assert plain.submissions > 2 * ours.submissions and plain.work == 0
    assert ours.submissions <= 4 + len(ours.done("leave", "cancel"))
    assert len(ours.done("leave")) + len(ours.done("cancel")) <= 4
    assert most <= 4
    if "0 s" in name or name == "30 min":
        assert ours.work == 0


def each_way(waits, *phases, strategy=None, **options):
    """The same queue with Dask deciding, and with us, after phases of so many seconds and what changes."""
    queues = PlainQueue(list(waits), **options), BatchQueue(list(waits), **options)
    for queue in queues:
        for seconds, changes in phases:
            for name, value in changes.items():
                setattr(queue, name, value)
            queue.run(strategy or Demand(), seconds)
    return queues


def test_pending_units_are_capped(report):
    """Dask asks for a unit for each task, however many wait already."""
    plain, ours = each_way([inf], (30 * MINUTE, {}), strategy=Demand(max_pending=3), work=1e3)
    report.add(
        "S10", "units that wait, of 100 tasks", plain=plain.count()[1], ours=ours.count()[1], bound="3"
    )
    assert plain.submissions == 100
    assert ours.submissions == 3 and ours.count() == (0, 3)


def test_useless_pending_units_are_cancelled_and_running_ones_kept(report):
    """Dask does so as well: what has not arrived goes first."""
    options = {"maximum": 5, "work": 30.0, "task_length": 1.0}
    plain, ours = each_way([0.0, 0.0, inf], (60, {}), **options)
    first = [queue.done("cancel", "leave")[0][1] for queue in (plain, ours)]
    report.add(
        "S10", "given up first, of units that run or wait", plain=first[0], ours=first[1], bound="cancel"
    )
    assert first == ["cancel", "cancel"]
    assert [kind for _, kind, *_ in plain.done("cancel", "leave")] == ["cancel"] * 3 + ["leave"] * 2
    assert [name for _, _, name, _ in ours.done("cancel")] == ["u4", "u3", "u2"]


def test_a_running_unit_is_not_given_up_for_one_that_waits():
    """The target falls to what runs: all that waits goes, nothing that runs does. Nor with Dask."""
    options = {"maximum": 5, "work": 1e6, "task_length": 1.0}
    for queue in each_way([0.0, 0.0, inf], (60, {}), **options):
        assert queue.count() == (2, 3)
    phases = (60, {}), (10 * MINUTE, {"minimum": 2, "work": 0.0})
    for queue in each_way([0.0, 0.0, inf], *phases, **options):
        assert queue.count() == (2, 0)
        assert not queue.done("leave")
