"""The jobs that wait, in the policy's order, searchable by size without looking at each.

The order is kept in blocks of neighbours; a block knows the smallest jobs and the shortest ones in it,
and the shortest of each size, so a search for "the next job that fits" skips whole blocks. All operations
cost about the square root of the number of waiting jobs, or less.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import chain
from math import exp, floor, inf, log
from typing import Any, Protocol

from dask_hpc.model.job import Job

#: position in the queue: 0, or less for jobs that were stopped; the policy's rank; the order of arrival
Key = tuple[int, Any, int]
#: before every job
FRONT: Key = (-(2**63), 0, 0)
_BLOCK = 64


class _Block:
    """Neighbours in the queue. No job in it asks for fewer than ``nodes``, could use fewer than ``least``,
    or has less than ``walltime``, and each asks for as much of nodes and walltime as one of the ``corners``,
    or more."""

    __slots__ = ("corners", "jobs", "keys", "least", "loose", "nodes", "walltime")

    def __init__(self, keys: list[Key], jobs: list[Job]) -> None:
        self.keys = keys
        self.jobs = jobs
        self.loose = False
        #: none if they are not known: somebody who never looks for holes does not pay for them
        self.corners: list[tuple[int, float]] = []
        if len(jobs) == 1:
            self.nodes, self.walltime, self.least = jobs[0].nodes, jobs[0].walltime, jobs[0].min_nodes
        else:
            self.measure()

    def measure(self) -> None:
        """Make the bounds tight."""
        shortest: dict[int, float] = {}
        for job in self.jobs:
            if job.walltime <= shortest.get(job.nodes, inf):
                shortest[job.nodes] = job.walltime
        self.nodes, self.walltime = min(shortest), inf
        self.corners = []
        for nodes in sorted(shortest):
            if shortest[nodes] < self.walltime or not self.corners:
                self.walltime = shortest[nodes]
                self.corners.append((nodes, self.walltime))
        self.least = min(job.min_nodes for job in self.jobs)
        self.loose = False

    def reaches(self, nodes: int, walltime: float) -> bool:
        """Whether there may be somebody in it who needs no more of either; if the bounds are tight, whether
        there is."""
        if not self.corners:
            self.measure()
        for least, shortest in self.corners:  # noqa: SIM110  any() takes twice as long
            if least <= nodes and shortest <= walltime:
                return True
        return False


class Ranking(Protocol):
    """What puts jobs in order; a queue strategy is one. This keeps the order of arrival."""

    def rank(self, job: Job) -> Any:
        """Sort key of a waiting job; equal ranks keep their order of arrival. Must never change."""
        return 0


class ByArrival(Ranking):
    """First come, first."""


@dataclass(slots=True)
class Hole:
    """What jobs must fit into: ``idle`` nodes, and moreover either ``window`` seconds (by their walltime) or
    the ``spare`` ones of these nodes. Who lets one in makes it smaller."""

    idle: int
    window: float = inf
    spare: int = 0


class _ByUrgency:
    """Who waits, in groups for whom waiting counts about as much, the oldest of each first: who has waited
    longest for what that counts is found among few, however many wait."""

    _GROUPS = 12  # for each factor of e between what it counts for two jobs

    def __init__(self, count: Callable[[Job], float], jobs: dict[str, tuple[Key, Job]]) -> None:
        self.count = count
        #: by id, those of whom it is not known yet what it counts: most start before anybody asks
        self._new = jobs
        #: by number of the group: when they were submitted, their place, who, and what a second counts
        self._groups: dict[int, list[tuple[float, Key, Job, float]]] = {}
        #: what it counts in each at the most
        self._most: dict[int, float] = {}
        #: who it was the last time: mostly still the one
        self._last: tuple[float, Key, Job, float] | None = None

    def add(self, job: Job, key: Key) -> None:
        self._new[job.id] = key, job

    def remove(self, job: Job, key: Key) -> None:
        if self._new.pop(job.id, None) is None and (counts := self.count(job)) > 0:
            group = self._groups[self._number(counts)]
            del group[bisect_left(group, (job.submitted, key))]
            if self._last is not None and self._last[1] is key:
                self._last = None

    def first(self, now: float, submitted_by: float) -> Job | None:
        """Who has waited longest until now for what that counts; of several, the one that comes first."""
        for job_id in list(self._new):
            self._take_in(*self._new[job_id])
            del self._new[job_id]
        best, highest, most = self._last, 0.0, self._most
        if best is not None:
            highest = (now - best[0]) * best[3] if best[0] <= submitted_by else 0.0
        for number, group in self._groups.items():
            most_here = most[number]
            for one in group:
                if one[0] > submitted_by or (now - one[0]) * most_here < highest:
                    break
                urgency = (now - one[0]) * one[3]
                if urgency > highest or (urgency == highest > 0 and best is not None and one[1] < best[1]):
                    best, highest = one, urgency
        self._last = best
        return best[2] if best is not None and highest > 0 else None

    def _take_in(self, key: Key, job: Job) -> None:
        if (counts := self.count(job)) > 0:
            number = self._number(counts)
            if number not in self._groups:
                self._groups[number], self._most[number] = [], exp((number + 1.001) / self._GROUPS)
            insort(self._groups[number], (job.submitted, key, job, counts))

    def _number(self, counts: float) -> int:
        return floor(log(counts) * self._GROUPS)


class Waiting:
    """An ordered collection of jobs. Strategies only read it."""

    __slots__ = ("_arrivals", "_blocks", "_by_age", "_by_urgency", "_keys", "_lasts", "_order")

    def __init__(self, order: Ranking | None = None) -> None:
        self._order: Ranking = order or ByArrival()
        self._arrivals = 0
        self._keys: dict[str, Key] = {}
        self._blocks: list[_Block] = []
        self._lasts: list[Key] = []  # the last key of each block
        #: when they were submitted, and some that are gone; made when somebody asks
        self._by_age: list[tuple[float, Key, Job]] | None = None
        #: made when somebody asks, too
        self._by_urgency: _ByUrgency | None = None

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._keys

    def __getitem__(self, job_id: str) -> Job:
        key = self._keys[job_id]
        block = self._blocks[bisect_left(self._lasts, key)]
        return block.jobs[bisect_left(block.keys, key)]

    def __iter__(self) -> Iterator[Job]:
        blocks = self._blocks
        if len(blocks) == 1:  # nearly always
            return iter(blocks[0].jobs)
        return chain.from_iterable(block.jobs for block in blocks)

    @property
    def first(self) -> Job | None:
        """The job at the head, or None."""
        return self._blocks[0].jobs[0] if self._blocks else None

    @property
    def last_key(self) -> Key | None:
        """The key of the job at the tail, or None."""
        return self._lasts[-1] if self._lasts else None

    @property
    def order(self) -> Ranking:
        """What puts the jobs in order, but for those that were put ahead."""
        return self._order

    @property
    def oldest(self) -> Job | None:
        """The job with a walltime that was submitted first; of several, the one that comes first in order."""
        ages = self._by_age
        if ages is None or len(ages) > 2 * len(self._keys) + _BLOCK:
            ages = self._by_age = [
                (job.submitted, self._keys[job.id], job) for job in self if job.walltime < inf
            ]
            heapify(ages)
        while ages:
            _, key, job = ages[0]
            if self._keys.get(job.id) is key:
                return job
            heappop(ages)
        return None

    def at(self, place: int) -> Job:
        """The job with so many others before it."""
        for block in self._blocks:
            if place < len(block.jobs):
                return block.jobs[place]
            place -= len(block.jobs)
        raise IndexError("nobody waits there")

    def within(self, depth: int, hole: "Hole") -> Iterator[Job]:
        """Those of the first ``depth`` jobs whose smallest size fits into the idle nodes of a hole, which may
        get smaller meanwhile."""
        for block in self._blocks:
            if depth <= 0 or hole.idle <= 0:
                return
            if block.least <= hole.idle:
                in_vain = True
                for job in block.jobs if len(block.jobs) <= depth else block.jobs[:depth]:
                    if job.min_nodes <= hole.idle:
                        in_vain = False
                        yield job
                if in_vain and block.loose:
                    block.measure()
            depth -= len(block.jobs)

    def most_urgent(self, count: Callable[[Job], float], now: float, submitted_by: float) -> Job | None:
        """Of those that were submitted by a time the one whose wait counts most, if a second of it counts so
        much for each job; of several, the one that comes first in order. None if it counts for nobody."""
        if self._by_urgency is None or self._by_urgency.count != count:
            self._by_urgency = _ByUrgency(count, {job.id: (self._keys[job.id], job) for job in self})
        return self._by_urgency.first(now, submitted_by)

    def key(self, job_id: str) -> Key:
        """The place of a waiting job in the order. Keys outlive their jobs' waiting."""
        return self._keys[job_id]

    def fitting(self, after: Key, hole: Hole) -> Iterator[Job]:
        """The jobs behind ``after`` that fit into a hole, which may get smaller meanwhile."""
        at = bisect_left(self._lasts, after)
        start = bisect_right(self._blocks[at].keys, after) if at < len(self._blocks) else 0
        for block in self._blocks[at:] if at else self._blocks:
            idle, window = hole.idle, hole.window
            if not idle:
                return
            least = block.nodes
            if least <= idle and (
                least <= hole.spare or (block.walltime <= window and block.reaches(idle, window))
            ):
                in_vain = True
                for job in block.jobs[start:] if start else block.jobs:
                    nodes = job.nodes
                    if nodes <= hole.idle and (nodes <= hole.spare or job.walltime <= hole.window):
                        in_vain = False
                        yield job
                if in_vain and block.loose:  # the bounds are worth making tight again
                    block.measure()
            start = 0

    def add(self, job: Job, arrival: int | None = None, ahead: int = 0) -> int:
        """Put a job in its place; ``arrival`` gives back an earlier place (see ``arrival_of``).

        ``ahead`` puts it before all jobs of a smaller ``ahead``, whatever their rank. Answers the arrival.
        """
        if job.id in self._keys:
            raise ValueError(f"job {job.id!r} waits already")
        if arrival is None:
            arrival = self._arrivals
        if arrival >= self._arrivals:  # no later job may get the same place
            self._arrivals = arrival + 1
        key = (-ahead, self._order.rank(job), arrival)
        self._keys[job.id] = key
        if self._by_age is not None and job.walltime < inf:
            heappush(self._by_age, (job.submitted, key, job))
        if self._by_urgency is not None:
            self._by_urgency.add(job, key)
        lasts = self._lasts
        if not lasts:
            self._blocks.append(_Block([key], [job]))
            lasts.append(key)
            return arrival
        at = len(lasts) - 1 if key > lasts[-1] else bisect_left(lasts, key)
        block = self._blocks[at]
        if key > block.keys[-1]:
            block.keys.append(key)
            block.jobs.append(job)
            lasts[at] = key
        else:
            place = bisect_left(block.keys, key)
            block.keys.insert(place, key)
            block.jobs.insert(place, job)
        if job.nodes < block.nodes:
            block.nodes = job.nodes
        if job.walltime < block.walltime:
            block.walltime = job.walltime
        if job.min_nodes < block.least:
            block.least = job.min_nodes
        if block.corners and not block.reaches(job.nodes, job.walltime):
            block.corners.append((job.nodes, job.walltime))
        if len(block.keys) > 2 * _BLOCK:
            self._split(at)
        return arrival

    def remove(self, job_id: str) -> Job:
        """Take a job out; KeyError if it does not wait."""
        key = self._keys.pop(job_id)
        at = bisect_left(self._lasts, key)
        block = self._blocks[at]
        place = bisect_left(block.keys, key)
        job = block.jobs.pop(place)
        del block.keys[place]
        if self._by_urgency is not None:
            self._by_urgency.remove(job, key)
        if not block.keys:
            del self._blocks[at], self._lasts[at]
            return job
        if place == len(block.keys):
            self._lasts[at] = block.keys[-1]
        nodes, walltime = job.nodes, job.walltime
        is_least = nodes == block.nodes or walltime == block.walltime or job.min_nodes == block.least
        if is_least or (nodes, walltime) in block.corners:
            block.loose = True
        return job

    def replace(self, job: Job) -> None:
        """Another description of a job that waits, which asks for the same: it keeps its place."""
        key = self._keys[job.id]
        block = self._blocks[bisect_left(self._lasts, key)]
        block.jobs[bisect_left(block.keys, key)] = job
        self._by_age = self._by_urgency = None

    @property
    def arrivals(self) -> int:
        """How many jobs have arrived so far: the next one's arrival."""
        return self._arrivals

    def ahead_of(self, job_id: str) -> int:
        """The ``ahead`` it was added with."""
        return -self._keys[job_id][0]

    def arrival_of(self, job_id: str) -> int:
        """Which arrival this job was: its place among jobs of equal rank."""
        return self._keys[job_id][2]

    def rerank(self, order: Ranking) -> None:
        """Another order from now on; each job keeps the arrival it had."""
        jobs = [(job, *self._keys[job.id]) for job in self]
        arrivals = self._arrivals
        self.__init__(order)  # type: ignore[misc]
        for job, ahead, _, arrival in jobs:
            self.add(job, arrival, -ahead)
        self._arrivals = arrivals

    def copy(self) -> "Waiting":
        """An independent copy that shares the (immutable) jobs."""
        twin = Waiting(self._order)
        twin._arrivals = self._arrivals
        twin._keys = dict(self._keys)
        twin._lasts = list(self._lasts)
        twin._blocks = [_Block(list(b.keys), list(b.jobs)) for b in self._blocks]
        return twin

    def _split(self, at: int) -> None:
        block = self._blocks[at]
        left = _Block(block.keys[:_BLOCK], block.jobs[:_BLOCK])
        right = _Block(block.keys[_BLOCK:], block.jobs[_BLOCK:])
        self._blocks[at : at + 1] = [left, right]
        insort(self._lasts, left.keys[-1])
