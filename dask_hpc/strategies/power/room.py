"""Watts move to where they are worth most: to a job that waits for power, or from idle nodes to who runs."""

from collections.abc import Container
from heapq import heappop, heappush
from math import inf

from dask_hpc.model.constraint import next_legal_down, smallest_legal
from dask_hpc.model.job import Job
from dask_hpc.model.plan import Resize
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.model.units import count_nodes
from dask_hpc.strategies.elastic_room import scaling
from dask_hpc.strategies.power.balance import TINY, Balance
from dask_hpc.strategies.power.bounds import Bounds
from dask_hpc.strategies.resizing import malleable

_HYSTERESIS = 1.2  # how many times more a watt must be worth to the job that waits


def make_room(
    snapshot: Snapshot, balance: Balance, bounds: Bounds, job: Job, nodes: int, resting: Container[str]
) -> list[Resize]:
    """Shrinks that free the power for a job on so many nodes; none if there is no need, or if those
    watts are worth as much where they are. Worth is speed: idle nodes that cannot be powered are no room,
    but a strategy that looks at nodes takes them for some, and lets the first jobs keep all the power."""
    idle = balance.view.idle
    watts = nodes * (balance.at_worst(job.id).most - idle)
    need = balance.peak + watts - bounds.ceiling
    if need <= TINY or watts <= 0:
        return []
    worth = scaling(job).factor(nodes) / watts / _HYSTERESIS
    sizes: dict[str, int] = {}
    heap: list[tuple[float, int, int, Job, float]] = []

    def offer(giver: Job, size: int, order: int) -> None:
        smaller = next_legal_down(giver.constraint, size, giver.min_nodes)
        if smaller is None:
            return
        saved = (size - smaller) * (balance.at_worst(giver.id).most - idle)
        if saved > 0:
            curve = scaling(giver, size, snapshot.mtct.get(giver.id))
            loss = (curve.factor(size) - curve.factor(smaller)) / saved
            heappush(heap, (loss, order, smaller, giver, saved))

    for order, running in enumerate(malleable(snapshot)):
        if running.job.id not in resting and snapshot.now > running.started:
            offer(running.job, len(running.nodes), -order)  # of equals, the youngest gives first
    freed = 0.0
    while freed < need - TINY:
        if not heap or heap[0][0] >= worth:
            return []
        _, order, smaller, giver, saved = heappop(heap)
        sizes[giver.id] = smaller
        freed += saved
        offer(giver, smaller, order)
    if balance.planned.least - freed + watts < bounds.floor - TINY:
        return []
    return [
        Resize(giver, size, f"power: worth more to job {job.id}: {count_nodes(held - size)}")
        for giver, size in sizes.items()
        if (held := len(snapshot.running[giver].nodes))
    ]


def use_up(
    snapshot: Snapshot, balance: Balance, bounds: Bounds, nodes: int, resting: Container[str]
) -> list[Resize]:
    """Growths into idle nodes on which nobody may start, watt by watt where it brings most speed."""
    idle = balance.view.idle
    room = bounds.ceiling - balance.peak
    sizes: dict[str, int] = {}
    heap: list[tuple[float, int, int, int, float, Job]] = []

    def offer(taker: Job, size: int, order: int) -> None:
        larger = smallest_legal(taker.constraint, size + 1, taker.max_nodes)
        if larger is None:
            return
        watts = (larger - size) * (balance.at_worst(taker.id).most - idle)
        curve = scaling(taker, size, snapshot.mtct.get(taker.id))
        gain = curve.factor(larger) - curve.factor(size)
        if gain > 0:
            heappush(heap, (-gain / max(watts, TINY), order, larger, larger - size, watts, taker))

    for order, running in enumerate(malleable(snapshot)):
        if running.job.id not in resting and running.job.walltime < inf:
            offer(running.job, len(running.nodes), order)
    while heap:
        _, order, larger, more, watts, taker = heappop(heap)
        if more <= nodes and watts <= room + TINY:
            nodes, room = nodes - more, room - watts
            sizes[taker.id] = larger
            offer(taker, larger, order)
    return [
        Resize(taker, size, "power: takes idle nodes on which nobody may start now")
        for taker, size in sizes.items()
    ]
