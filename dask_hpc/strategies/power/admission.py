"""Starts and resizes are let through as far as they fit into the corridor, and booked at once."""

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import islice
from math import inf
from typing import TypeVar

from dask_hpc.model.job import Job
from dask_hpc.model.plan import Resize, Start
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.model.speedup import largest_legal, next_legal_down, smallest_legal
from dask_hpc.model.units import count_nodes, show_large
from dask_hpc.strategies.malleability.grow_shrink import malleable
from dask_hpc.strategies.malleability.worth import scaling
from dask_hpc.strategies.power.balance import TINY, Balance, Coming, PowerBounds
from dask_hpc.strategies.power.repair import Anchor
from dask_hpc.strategies.strategy import Resizes, Starts

_One = TypeVar("_One", Start, Resize)
_HYSTERESIS = 1.2  # how many times more a watt must be worth to the job that waits


def smallest_start(job: Job) -> int:
    """The fewest nodes it can start on."""
    if not job.moldable:
        return job.nodes
    return smallest_legal(job.constraint, job.min_nodes, job.nodes) or job.nodes


@dataclass(slots=True)
class Admission:
    """One decision's starts and new sizes. What is not let through is asked for again later."""

    snapshot: Snapshot
    balance: Balance
    bounds: PowerBounds
    coming: Coming
    anchor: Anchor
    #: room that must be left before running jobs grow
    hysteresis: float = 0.0
    #: jobs that gave nodes for power a short while ago
    resting: Container[str] = ()
    #: how many waiting jobs are looked at
    depth: int = 16
    #: the starts that the queue would like: who starts just so starts as it asked
    asked: Mapping[tuple[str, int], Start] = field(default_factory=dict)
    starts: list[Start] = field(default_factory=list)
    resizes: dict[str, Resize] = field(default_factory=dict)
    #: the first job that could start if there were more power
    held: Job | None = None
    idle: int = 0

    def __post_init__(self) -> None:
        self.idle = self.snapshot.idle

    def pass_starts(self, starts: Starts) -> None:
        """All of them, whatever they draw."""
        for start in starts:
            self._start(self.snapshot.waiting[start.job], start)

    def take_starts(self, starts: Starts) -> None:
        """In their order: those that fit, and those that can start smaller."""
        started = self.started
        for start in starts:
            if start.job not in started:
                self.start(self.snapshot.waiting[start.job], start.nodes, start)

    def pass_by(self) -> None:
        """Who could not start below the bound even if nobody else worked is in nobody's way. The queue,
        which knows nothing of power, would keep nodes for it until the bound moves: those that are behind
        it start in their order, until one does not fit."""
        waiting = list(islice(self.snapshot.waiting, self.depth))
        too_large = [job.id for job in waiting if self.is_too_large(job)]
        if not too_large:
            return
        reason = f"{too_large[0]} would exceed the bound of power even alone, and is passed by"
        not_now = {*too_large, *self.started}
        for job in waiting:
            if job.id not in not_now and not self.start(job, job.nodes, Start(job.id, job.nodes, reason)):
                return

    def is_too_large(self, job: Job) -> bool:
        """Whether it could not start below the bound even if nobody else worked."""
        least = smallest_start(job)
        return least <= self.snapshot.size and self.balance.alone(job.id, least) > self.bounds.ceiling + TINY

    @property
    def started(self) -> set[str]:
        """Nobody starts twice."""
        return {start.job for start in self.starts}

    @property
    def waiting(self) -> Iterator[Job]:
        """Those who go on to wait so far."""
        started = self.started
        return (job for job in self.snapshot.waiting if job.id not in started)

    def start(self, job: Job, nodes: int, start: Start) -> bool:
        """Start it on so many nodes, or fewer if that fits and it can."""
        high = largest_legal(job.constraint, smallest_start(job), min(nodes, self.idle)) or 0
        if job.moldable:
            size = self.balance.largest(job, 0, high, self.bounds.ceiling)
        else:
            high = high if high >= nodes else 0
            size = high if high and self.balance.fits(job.id, 0, high, self.bounds.ceiling) else 0
        if size and not (self.anchor.may_start(job, size) and self.coming.admits(job, size)):
            size = self._sooner(job, size)
        if not size:
            if high and self.held is None and not self.is_too_large(job):
                self.held = job
            return False
        asked = self.asked.get((job.id, size))
        self._start(job, asked or self._with(start, size))
        return True

    def _with(self, start: Start, size: int) -> Start:
        if size > start.nodes:
            more = f"{count_nodes(size - start.nodes)} more than that, to be over before the corridor moves"
            return start._replace(nodes=size, reason=f"{start.reason}; {more}")
        return start if size == start.nodes else self._less(start, size)

    def _sooner(self, job: Job, size: int) -> int:
        """The fewest nodes more with which it is over before a bound is in its way; 0 if there are none."""
        if not job.moldable:
            return 0
        most = self.balance.largest(job, 0, min(self.idle, job.max_nodes), self.bounds.ceiling)
        larger = smallest_legal(job.constraint, size + 1, most)
        while larger is not None and self.anchor.may_start(job, larger):
            if self.coming.admits(job, larger):
                return larger
            larger = smallest_legal(job.constraint, larger + 1, most)
        return 0

    def share_equally(self, candidates: int) -> None:
        """Seed 000, Algorithm 4: waiting jobs that fit are picked in priority order, and the idle nodes are
        shared equally among them."""
        picked: list[Job] = []
        idle = self.idle
        for job in islice(self.waiting, candidates):
            least = smallest_start(job)
            if least <= idle:
                fits = self.balance.fits(job.id, 0, least, self.bounds.ceiling)
                if fits and self.anchor.may_start(job, least) and self.coming.admits(job, least):
                    picked.append(job)
                    self.coming.book(job, least)
                    idle -= least
                    self.balance.book(job.id, 0, least)
                elif self.held is None:
                    self.held = job
        sizes = {job.id: smallest_start(job) for job in picked}
        share = self.idle // max(1, len(picked))
        for limit in (share, inf):  # what some cannot use is for those who can
            for job in picked:
                size = sizes[job.id]
                high = int(min(limit, size + idle, job.max_nodes))
                if high > size and job.moldable:
                    sizes[job.id] = self.balance.largest(job, size, high, self.bounds.ceiling)
                    self.balance.book(job.id, size, sizes[job.id])
                    idle -= sizes[job.id] - size
        self.idle = idle
        reason = f"power: an equal share of {count_nodes(self.snapshot.idle, 'idle')}"
        for one in sizes.items():
            self.starts.append(self.asked.get(one) or Start(*one, reason))

    def take_resizes(self, resizes: Resizes) -> None:
        """Shrinks that help somebody or cost nothing; growths as far as they fit."""
        resizes = [resize for resize in resizes if resize.job not in self.resizes]
        sizes = {resize.job: len(self.snapshot.running[resize.job].nodes) for resize in resizes}
        for resize in self._shrinks([r for r in resizes if r.nodes < sizes[r.job]], sizes):
            self.resize(resize)
        for resize in resizes:
            if resize.nodes > sizes[resize.job] and resize.job not in self.resting:
                if self.balance.planned.least >= self.bounds.lower:  # or every watt is welcome
                    resize = self.anchor.limit(self.snapshot.running[resize.job], resize)
                if resize.nodes > sizes[resize.job]:
                    self.grow(resize, self.hysteresis)

    def _shrinks(self, shrinks: list[Resize], sizes: dict[str, int]) -> list[Resize]:
        """A shrink makes room for a job that waits, or power falls: below the lower bound that is for
        nothing, and so it is if the job that waits may not start for power."""
        balance, view = self.balance, self.balance.view
        if not shrinks or self.bounds.is_open:
            return shrinks
        given = {r.job: sizes[r.job] - r.nodes for r in shrinks}
        saved = [(nodes, balance.view.per_node(job)) for job, nodes in given.items()]
        least = balance.planned.least - sum(n * (power.least - view.idle) for n, power in saved)
        peak = balance.peak - sum(n * (power.most - view.idle) for n, power in saved)
        waiting = list(islice(self.snapshot.waiting, self.depth))
        idle = self.idle + sum(given.values())
        for job in waiting:
            nodes = smallest_start(job)
            more = nodes * (balance.view.per_node(job.id).most - view.idle)
            fits = nodes <= idle and peak + more <= self.bounds.ceiling + TINY
            if fits and self.coming.admits(job, nodes):
                return shrinks
        if not waiting and least >= self.bounds.lower - TINY and peak <= self.bounds.ceiling + TINY:
            return shrinks
        return [r for r in shrinks if r.job in self.snapshot.requests]

    def resize(self, resize: Resize) -> None:
        """This one, as it is."""
        before = len(self.snapshot.running[resize.job].nodes)
        self.balance.book(resize.job, before, resize.nodes)
        self.idle -= max(0, resize.nodes - before)
        self.resizes[resize.job] = resize

    def grow(self, resize: Resize, hysteresis: float = 0.0) -> int:
        """As far as it fits; answers the new size."""
        running = self.snapshot.running[resize.job]
        before = len(running.nodes)
        high = min(resize.nodes, before + self.idle)
        size = self.balance.largest(running.job, before, high, self.bounds.ceiling - hysteresis)
        if size > before:
            self.resize(resize if size == resize.nodes else self._less(resize, size))
        return size

    def _start(self, job: Job, start: Start) -> None:
        self.balance.book(job.id, 0, start.nodes)
        self.coming.book(job, start.nodes)
        self.idle -= start.nodes
        self.starts.append(start)

    def _less(self, one: _One, size: int) -> _One:
        watts = show_large(self.bounds.upper, "W")
        more = f"{count_nodes(one.nodes - size)} less than that, to stay below {watts}"
        return one._replace(nodes=size, reason=f"{one.reason}; {more}")

    def make_room(self, job: Job, nodes: int) -> list[Resize]:
        """Shrinks that free the power for a job on so many nodes; none if there is no need, or if those
        watts are worth as much where they are. Worth is speed: idle nodes that cannot be powered are no room,
        but a strategy that looks at nodes takes them for some, and lets the first jobs keep all the power."""
        balance, bounds, running = self.balance, self.bounds, self.snapshot.running
        watts = self._watts(job, nodes)
        need = balance.peak + watts - bounds.ceiling
        if need <= TINY or watts <= 0:
            return []
        worth = scaling(job).factor(nodes) / watts / _HYSTERESIS
        sizes: dict[str, int] = {}
        heap: list[tuple[float, int, int, Job, float]] = []

        def offer(giver: Job, size: int, order: int) -> None:
            smaller = next_legal_down(giver.constraint, size, giver.min_nodes)
            if smaller is not None and (saved := self._watts(giver, size - smaller)) > 0:
                heappush(heap, (self._speed(giver, size, smaller) / saved, order, smaller, giver, saved))

        for order, one in enumerate(malleable(self.snapshot)):
            if one.job.id not in self.resting and self.snapshot.now > one.started:
                offer(one.job, len(one.nodes), -order)  # of equals, the youngest gives first
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
        why = f"power: worth more to job {job.id}"
        return [
            Resize(one, size, f"{why}: {count_nodes(len(running[one].nodes) - size)}")
            for one, size in sizes.items()
        ]

    def use_up(self) -> list[Resize]:
        """Growths into idle nodes on which nobody may start, watt by watt where it brings most speed."""
        nodes, room = self.idle, self.bounds.ceiling - self.balance.peak
        sizes: dict[str, int] = {}
        heap: list[tuple[float, int, int, int, float, Job]] = []

        def offer(taker: Job, size: int, order: int) -> None:
            larger = smallest_legal(taker.constraint, size + 1, taker.max_nodes)
            if larger is not None and (gain := self._speed(taker, size, larger)) > 0:
                watts = self._watts(taker, larger - size)
                heappush(heap, (-gain / max(watts, TINY), order, larger, larger - size, watts, taker))

        for order, running in enumerate(malleable(self.snapshot)):
            if running.job.id not in self.resting and running.job.walltime < inf:
                offer(running.job, len(running.nodes), order)
        while heap:
            _, order, larger, more, watts, taker = heappop(heap)
            if more <= nodes and watts <= room + TINY:
                nodes, room = nodes - more, room - watts
                sizes[taker.id] = larger
                offer(taker, larger, order)
        reason = "power: takes idle nodes on which nobody may start now"
        return [Resize(taker, size, reason) for taker, size in sizes.items()]

    def _watts(self, job: Job, nodes: int) -> float:
        """What so many nodes draw more with this job than idle."""
        return nodes * (self.balance.at_worst(job.id).most - self.balance.view.idle)

    def _speed(self, job: Job, size: int, other: int) -> float:
        """How much faster it is on the larger of two sizes, the first of which is the one that it has."""
        curve = scaling(job, size, self.snapshot.mtct.get(job.id))
        return curve.factor(max(size, other)) - curve.factor(min(size, other))
