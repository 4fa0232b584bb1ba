"""When batch jobs would start: the queue played on, again and again, with other ends of those that run.

Each course plays what is to come once, as Slurm's backfilling does it (every waiting job has a reservation by
walltimes, in the order of the queue, and nobody may delay one before him; conservative backfilling, seed 001,
section 5.1.1). What differs between courses is how much of its walltime each job really uses, and who else
comes and is put ahead. So a start has a law, and an interval that holds four of five of its courses.

Nothing is drawn at random: course number k of a job takes the k-th of evenly spread levels, in an order of
the job's own (a lattice rule), so that the same queue gives the same answer, and few courses say much.

Those who are only asked about (*families*) hold nothing in the courses: they start where nobody before them
in the queue is delayed, and who would be behind them does not count.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import ceil, floor, inf, log, nextafter
from zlib import crc32

from dask_hpc.planning.asks.node_sets import NodeProfile, PieceMap, some_of
from dask_hpc.planning.asks.queue import QueueView
from dask_hpc.planning.asks.used import UsedShares

COURSES = 31  # a prime, so that every step but 0 goes through all levels
_DEPTH = 200  # waiting jobs that are looked at, as a batch system's own backfilling has a depth
_MOST_PLANS = 400  # in one course; what has not started by then starts as the last of them says
_GRAIN = 0.05  # of the time from now: so exact a start is
_STEPS = 200  # ends of running jobs that are told apart
_ARRIVALS = 50  # of those who come later and are put ahead, in one course


@dataclass(frozen=True, slots=True)
class AskFamily:
    """Equal units that somebody thinks of asking for: ``count`` jobs of so many pieces each, for ``limit``
    seconds on any of ``allowed``. ``tier`` is that of their partition."""

    key: str
    count: int
    pieces: int
    limit: float
    allowed: int
    tier: int = 1


@dataclass(frozen=True, slots=True)
class Newcomers:
    """Those who are still to come: how many in a second, of which sizes (pieces, walltime), and how many of
    them are put ahead of those who wait."""

    rate: float = 0.0
    sizes: tuple[tuple[int, float], ...] = ()
    share_ahead: float = 0.0


_GUESSED, _NOBODY = UsedShares(), Newcomers()


@dataclass(frozen=True, slots=True)
class Starts:
    """When the units of a family, or a waiting job, would start: in each course, in order of time."""

    courses: tuple[tuple[float, ...], ...]

    def law(self, unit: int = 0) -> list[float]:
        """The start of the unit in all courses, in order."""
        return sorted(course[unit] for course in self.courses)

    def at(self, level: float, unit: int = 0) -> float:
        """The time by which it has started in that share of the courses."""
        law = self.law(unit)
        return law[min(len(law) - 1, max(0, ceil(level * len(law)) - 1))]

    def interval(self, unit: int = 0, inside: float = 0.8) -> tuple[float, float]:
        """Bounds that hold that share of the courses."""
        law = self.law(unit)
        out = floor((1 - inside) / 2 * len(law))
        return law[out], law[-1 - out]


@dataclass(frozen=True, slots=True)
class Replay:
    """Plays a queue on. ``latency`` is how long the batch system takes between looks at its queue."""

    view: QueueView
    pieces: PieceMap
    used: UsedShares = _GUESSED
    newcomers: Newcomers = _NOBODY
    latency: float = 0.0
    courses: int = COURSES

    def starts(
        self, families: Sequence[AskFamily] = (), waiting: Container[str] = ()
    ) -> tuple[dict[str, Starts], dict[str, Starts]]:
        """Of each of the families, and of those waiting jobs."""
        ours: dict[str, list[tuple[float, ...]]] = {family.key: [] for family in families}
        theirs: dict[str, list[tuple[float, ...]]] = {}
        for number in range(self.courses):
            course = _Course(self, number, families, waiting)
            course.play()
            for key, times in course.family_starts():
                ours[key].append(times)
            for job, time in course.started.items():
                if job in waiting:
                    theirs.setdefault(job, []).append((time,))
        return (
            {key: Starts(tuple(found)) for key, found in ours.items()},
            {key: Starts(tuple(found)) for key, found in theirs.items()},
        )

    def plan(self) -> tuple[NodeProfile, dict[str, float]]:
        """The reservations by walltimes as of now: what is free beside them, and when each waiting job would
        start. Those whose time has come hold their pieces already."""
        course = _Course(self, 0, (), ())
        return course.plan(), course.planned


def level(number: int, courses: int, name: str) -> float:
    """The level of that course for something of this name: over all courses evenly spread."""
    mark = crc32(name.encode())
    step, shift = mark % (courses - 1) + 1 if courses > 1 else 1, mark // courses
    return ((number * step + shift) % courses + 0.5) / courses


@dataclass(slots=True)
class _Unit:
    pieces: int
    until: float


@dataclass(slots=True)
class _Waiter:
    id: str
    count: int
    limit: float
    allowed: int
    tier: int
    not_before: float
    takes: float
    is_newcomer: bool = False


@dataclass(slots=True)
class _Course:
    """One course of what is to come."""

    replay: Replay
    number: int
    families: Sequence[AskFamily]
    asked_about: Container[str]
    now: float = 0.0
    free: int = 0
    #: (true end, end by walltime, pieces) of those that run
    running: list[tuple[float, float, int]] = field(default_factory=list)
    waiting: list[_Waiter] = field(default_factory=list)
    started: dict[str, float] = field(default_factory=dict)
    planned: dict[str, float] = field(default_factory=dict)
    begun: dict[str, list[float]] = field(default_factory=dict)
    held: dict[str, list[_Unit]] = field(default_factory=dict)
    family_plan: dict[str, float] = field(default_factory=dict)
    to_come: list[_Waiter] = field(default_factory=list)

    def __post_init__(self) -> None:
        replay = self.replay
        view, pieces = replay.view, replay.pieces
        self.now = view.now
        self.free, ends = pieces.now_free(view)
        by_id = {job.id: job for job in view.running}
        for job_id, held in ends:
            if held:
                job = by_id[job_id]
                true = self._true_end(job_id, job.started, job.limit)
                heappush(self.running, (true, max(job.ends, view.now), held))
        for ask in view.pending[:_DEPTH]:
            if ask.is_held:
                continue
            allowed = 0
            for name in ask.partitions:
                if name in view.partitions:
                    allowed |= pieces.in_partition(view.partitions[name])
            count = pieces.needed_by(ask, view)
            takes = max(1.0, self._share(ask.id, 0.0, ask.limit) * ask.limit)
            self.waiting.append(
                _Waiter(ask.id, count, ask.limit, allowed, view.tier(ask), ask.not_before, takes)
            )
        self.begun = {family.key: [] for family in self.families}
        self.held = {family.key: [] for family in self.families}
        self.to_come = list(self._newcomers())

    def _share(self, name: str, after: float, limit: float) -> float:
        replay = self.replay
        return replay.used.given(after, limit).quantile(level(self.number, replay.courses, name))

    def _true_end(self, name: str, started: float, limit: float) -> float:
        now = self.now
        if limit == inf:
            # nobody knows: as long again as so far, or half or twice of it
            return now + max(now - started, 1.0) * 2 * self._share(name, 0.0, inf)
        share = self._share(name, (now - started) / limit if limit > 0 else 1.0, limit)
        return max(started + share * limit, nextafter(now, inf))

    def _newcomers(self) -> Iterator[_Waiter]:
        """Those who are put ahead, in order of time."""
        newcomers, replay = self.replay.newcomers, self.replay
        rate = newcomers.rate * newcomers.share_ahead
        if not (rate > 0 and newcomers.sizes):
            return
        time = self.now
        for at in range(_ARRIVALS):
            name = f"newcomer {at}"
            time -= log(1 - level(self.number, replay.courses, name)) / rate
            size = newcomers.sizes[int(self._pick(name) * len(newcomers.sizes))]
            takes = max(1.0, self._share(name, 0.0, size[1]) * size[1])
            yield _Waiter(name, size[0], size[1], replay.pieces.all, 1, time, takes, is_newcomer=True)

    def _pick(self, name: str) -> float:
        return level(self.number, self.replay.courses, f"size of {name}")

    def play(self) -> None:
        """Until all have started that are asked about, or nothing more is to come."""
        for _ in range(_MOST_PLANS):
            self.plan()
            if not self._is_open():
                return
            after = self._next()
            if after == inf:
                return
            self._go_on(after)

    def _is_open(self) -> bool:
        """Whether somebody has not started."""
        if any(len(self.begun[family.key]) < family.count for family in self.families):
            return True
        return any(one.id in self.asked_about for one in self.waiting)

    def _next(self) -> float:
        """When something happens: a job ends, a planned start is due, somebody comes."""
        soonest = self.running[0][0] if self.running else inf
        starts = [*self.planned.values(), *self.family_plan.values()]
        soonest = min([soonest, *(time for time in starts if time > self.now)])
        if self.to_come:
            soonest = min(soonest, self.to_come[0].not_before)
        # what is far off need not be known to the second
        pause = max(self.replay.latency, _GRAIN * (self.now - self.replay.view.now))
        return soonest if soonest == inf else max(soonest, self.now + pause)

    def _go_on(self, time: float) -> None:
        self.now = time
        while self.running and self.running[0][0] <= time:
            self.free |= heappop(self.running)[2]
        while self.to_come and self.to_come[0].not_before <= time:
            self.waiting.insert(0, self.to_come.pop(0))

    def _profile(self) -> NodeProfile:
        soon = nextafter(self.now, inf)  # who overstays still holds his nodes now
        ends = sorted((max(limit, soon), pieces) for _, limit, pieces in self.running)
        profile = NodeProfile(self.now, self.free, _merged(ends))
        for one in self.replay.view.reserved:
            if one.end > self.now:
                held = self.replay.pieces.on(one.nodes)
                start = max(one.start, self.now)
                profile.take(start, held, one.end - start)
        return profile

    def plan(self) -> NodeProfile:
        """Reservations for all who wait, and starts for those whose time has come."""
        profile = self._profile()
        self.planned, self.family_plan = {}, {}
        open_ones = [one for one in self.families if len(self.begun[one.key]) < one.count]
        still = []
        for waiter in self.waiting:
            ahead = [one for one in open_ones if one.tier > waiter.tier]
            if ahead:
                open_ones = [one for one in open_ones if one.tier <= waiter.tier]
                self._ask_about(profile, ahead)
            time, pieces = profile.earliest(waiter.count, waiter.limit, waiter.allowed, waiter.not_before)
            if time == inf:
                still.append(waiter)
                continue
            chosen = some_of(pieces, waiter.count)
            profile.take(time, chosen, waiter.limit)
            if time > self.now:
                self.planned[waiter.id] = time
                still.append(waiter)
                continue
            self.free &= ~chosen
            end = self.now + waiter.limit
            heappush(self.running, (min(self.now + waiter.takes, end), end, chosen))
            if not waiter.is_newcomer:
                self.started[waiter.id] = self.now
        self.waiting = still
        self._ask_about(profile, open_ones)
        return profile

    def _ask_about(self, profile: NodeProfile, families: Sequence[AskFamily]) -> None:
        for family in families:
            begun, held = self.begun[family.key], self.held[family.key]
            allowed = family.allowed
            for unit in held:
                if unit.until > self.now:
                    allowed &= ~unit.pieces
            while len(begun) < family.count:
                time, pieces = profile.earliest(family.pieces, family.limit, allowed)
                self.family_plan[family.key] = time
                if time > self.now:
                    break
                count = min(family.count - len(begun), pieces.bit_count() // family.pieces)
                chosen = some_of(pieces, count * family.pieces)
                held.append(_Unit(chosen, self.now + family.limit))
                begun += [self.now] * count
                allowed &= ~chosen

    def family_starts(self) -> Iterator[tuple[str, tuple[float, ...]]]:
        """Of each family's units. Who has not started does as the last plan says, all others with him: this
        is the latest that it can be."""
        for family in self.families:
            begun = self.begun[family.key]
            later = self.family_plan.get(family.key, inf)
            yield family.key, (*begun, *[later] * (family.count - len(begun)))
        for waiter in self.waiting:
            if not waiter.is_newcomer:
                self.started.setdefault(waiter.id, self.planned.get(waiter.id, inf))


def _merged(ends: list[tuple[float, int]]) -> Iterator[tuple[float, int]]:
    """Not too many of them: neighbours come free with the last of them."""
    size = max(1, ceil(len(ends) / _STEPS))
    for at in range(0, len(ends), size):
        group = ends[at : at + size]
        pieces = 0
        for _, held in group:
            pieces |= held
        yield group[-1][0], pieces
