"""What a machine draws by the figures of its jobs, as it is and once everything decided has happened; and
what is remembered of that between decisions.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import exp, floor, inf
from typing import Literal, NamedTuple

from dask_hpc.model.job import Job
from dask_hpc.model.plan import Resize, Start
from dask_hpc.model.power import UNKNOWN, Corridor, PowerRange, PowerView
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.model.speedup import largest_legal, smallest_legal

TINY = 1e-6  # watts that count as nothing: rounding errors of sums


@dataclass(slots=True)
class Sum:
    """Nodes that jobs hold, and their power."""

    nodes: int = 0
    least: float = 0.0
    most: float = 0.0

    def add(self, nodes: int, power: PowerRange) -> None:
        """So many nodes more (or less, if negative) of this power."""
        self.nodes += nodes
        self.least += nodes * power.least
        self.most += nodes * power.most


@dataclass(slots=True)
class Balance:
    """The account of one decision: whatever is decided is booked here at once.

    A job that is changing its size counts with the larger one in ``peak``, because tasks that run cannot be
    interrupted, and with the one it is on its way to in ``planned``. Starts and growths must fit under
    the peak; whether the corridor is broken, and what is done about it, goes by what is planned, or the
    same violation would be answered again and again until the first answer has come to effect.

    ``bias`` is what the machine draws beyond all figures; ``extra`` what somebody foretells beyond that.
    """

    view: PowerView
    size: int
    bias: float = 0.0
    extra: PowerRange = UNKNOWN
    held: int = 0
    #: nodes that no job holds and that cannot be held, either
    restless: int = 0
    #: watts that caps and releases of a moment ago are going to save
    cut: float = 0.0
    #: nobody is trusted to draw less than a node that works usually does
    is_wary: bool = False
    jobs: Sum = field(default_factory=Sum)
    peak_jobs: Sum = field(default_factory=Sum)

    @classmethod
    def of(cls, snapshot: Snapshot, view: PowerView, **more: object) -> "Balance":
        """The machine as it is, with everything that is under way."""
        balance = cls(view, snapshot.size, held=view.held, **more)  # type: ignore[arg-type]
        for job_id, running in snapshot.running.items():
            power, nodes = balance.view.per_node(job_id), len(running.nodes)
            balance.peak_jobs.add(nodes, balance.at_worst(job_id))
            balance.jobs.add(nodes if running.target is None else running.target, power)
        if view.holdable is not None:
            balance.restless = max(0, snapshot.size - balance.peak_jobs.nodes - view.holdable)
        return balance

    def at_worst(self, job_id: str) -> PowerRange:
        """What one node may draw at most: where readings are in doubt, what working nodes usually do."""
        power = self.view.per_node(job_id)
        return PowerRange(power.least, max(power.most, self.view.active.most)) if self.is_wary else power

    @property
    def outside_power(self) -> PowerRange:
        """Of a node that works outside of jobs."""
        return self.view.active if self.view.outside == UNKNOWN else self.view.outside

    @property
    def outside(self) -> int:
        """Nodes that will work outside of jobs."""
        return min(self.view.outside_wanted, max(0, self.free - self.held))

    @property
    def free(self) -> int:
        """Nodes that no job will hold."""
        return self.size - self.jobs.nodes

    @property
    def planned(self) -> PowerRange:
        """Of the machine, once everything decided has happened."""
        return self._total(self.jobs, self.outside)

    @property
    def peak(self) -> float:
        """The most that may be drawn until then."""
        return self.with_outside(max(self.view.outside_nodes, self.outside))

    def with_outside(self, nodes: int) -> float:
        """The most that may be drawn until then with so many nodes at work outside of jobs."""
        return self._total(self.peak_jobs, nodes).most

    @property
    def working(self) -> int:
        """Nodes that work, until then."""
        outside = max(self.view.outside_nodes, self.outside)
        return self.peak_jobs.nodes + min(outside, self.size - self.peak_jobs.nodes)

    @property
    def resting(self) -> float:
        """Watts of all nodes that do not, and whatever has no node."""
        return (self.size - self.working) * self.view.idle + self.bias + self.extra.most

    @property
    def active(self) -> float:
        """Watts that work adds to the planned power."""
        outside = self.outside * (self.outside_power.most - self.view.idle)
        return self.jobs.most - self.jobs.nodes * self.view.idle + outside

    @property
    def now(self) -> PowerRange:
        """Of the machine as it is, by its figures alone."""
        total = self._total(self.peak_jobs, self.view.outside_nodes)
        return PowerRange(
            total.least - self.bias + self.extra.least, total.most - self.bias - self.extra.most
        )

    def _total(self, jobs: Sum, outside: int) -> PowerRange:
        free = self.size - jobs.nodes
        outside = min(outside, free)
        power = self.outside_power
        rest = (free - outside) * self.view.idle + self.bias - self.cut
        return PowerRange(
            jobs.least + outside * power.least + rest - self.extra.least,
            jobs.most + outside * power.most + rest + self.extra.most,
        )

    def book(self, job_id: str, before: int, after: int) -> None:
        """A job is to have another size. What it gives up it draws until it is gone."""
        self.jobs.add(after - before, self.view.per_node(job_id))
        if after > before or self.at_worst(job_id).most < self.view.idle:
            self.peak_jobs.add(after - before, self.at_worst(job_id))

    def fits(self, job_id: str, before: int, after: int, ceiling: float) -> bool:
        """Whether a job may grow so far, or start so large, without exceeding a bound on the way."""
        if ceiling == inf:
            return True
        peak = self.peak
        self.peak_jobs.add(after - before, self.at_worst(job_id))
        fits = self.peak <= max(ceiling, peak) + TINY  # who adds nothing does no harm
        self.peak_jobs.add(before - after, self.at_worst(job_id))
        return fits

    def alone(self, job_id: str, nodes: int) -> float:
        """The most that would be drawn if nobody worked but this job, on so many nodes."""
        power = self.at_worst(job_id).most
        return nodes * power + (self.size - nodes) * self.view.idle + self.bias + self.extra.most

    def largest(self, job: Job, before: int, wanted: int, ceiling: float) -> int:
        """The largest legal size up to the wanted one that fits; ``before`` (0: it waits) if none does."""
        least = max(before + 1, job.min_nodes)
        size = largest_legal(job.constraint, least, wanted)
        if size is None or self.fits(job.id, before, size, ceiling):
            return size or before
        step = self.at_worst(job.id).most - self.view.idle
        room = max(0.0, ceiling - self.peak)
        high = min(size - 1, before + floor((room + TINY) / step)) if step > 0 else size - 1
        while high >= least:
            size = largest_legal(job.constraint, least, high)
            if size is None:
                break
            if self.fits(job.id, before, size, ceiling):
                return size
            high = size - 1
        return before


Side = Literal["", "lower", "upper"]


class PowerBounds(NamedTuple):
    """A corridor at one time; decisions aim ``edge`` watts inside."""

    lower: float
    upper: float
    edge: float = 0.0

    @classmethod
    def around(cls, lower: float, upper: float, edge: float) -> "PowerBounds":
        """With as much of the edge as leaves half of the corridor."""
        return cls(lower, upper, min(edge, (upper - lower) / 4))

    @property
    def ceiling(self) -> float:
        """What decisions stay below."""
        return self.upper - self.edge if self.upper < inf else inf

    @property
    def floor(self) -> float:
        """What decisions stay above."""
        return self.lower + self.edge if self.lower > 0 else -inf

    @property
    def is_open(self) -> bool:
        """Whether there is no bound at all."""
        return self.lower <= 0 and self.upper == inf

    def side(self, power: PowerRange) -> Side:
        """Where power would be outside; too much is worse than too little."""
        if power.most > self.upper + TINY:
            return "upper"
        return "lower" if power.least < self.lower - TINY else ""


def common(corridor: Corridor, now: float, lookahead: float, edge: float) -> PowerBounds | None:
    """What is inside now and at every step to come within a time; None if there are none, or nothing is."""
    steps = corridor.coming(now, now + lookahead)
    if not steps:
        return None
    lower, upper = corridor.at(now)
    lower = max(lower, *(low for _, low, _ in steps))
    upper = min(upper, *(high for _, _, high in steps))
    return PowerBounds.around(lower, upper, edge) if lower < upper else None


class Coming:
    """The upper bounds to come, and the least that the machine can draw then.

    Jobs that can change their size count with their smallest, those that will have ended not at all.
    """

    def __init__(self, snapshot: Snapshot, balance: Balance, corridor: Corridor, until: float, edge: float):
        self._now, self._balance = snapshot.now, balance
        self._room: list[tuple[float, float]] = []
        for time, _, upper in corridor.coming(snapshot.now, until):
            if upper < inf:
                drawn = sum(self._above_idle(one) for one in _floor(snapshot, time))
                rest = balance.size * balance.view.idle + balance.bias + balance.extra.most
                self._room.append((time, upper - min(edge, upper / 4) - rest - drawn))

    def _above_idle(self, one: tuple[Job, int]) -> float:
        job, nodes = one
        return nodes * (self._balance.at_worst(job.id).most - self._balance.view.idle)

    def admits(self, job: Job, nodes: int) -> bool:
        """Whether a job that starts now on so many nodes leaves all of these bounds possible, or at least
        as possible as they are."""
        watts = self._above_idle((job, _least(job, nodes)))
        ends = self._now + job.walltime_on(nodes)
        return watts <= 0 or all(time >= ends or watts <= max(room, 0.0) + TINY for time, room in self._room)

    def book(self, job: Job, nodes: int) -> None:
        """It starts: from now on it counts."""
        watts = self._above_idle((job, _least(job, nodes)))
        ends = self._now + job.walltime_on(nodes)
        self._room = [(time, room - watts if time < ends else room) for time, room in self._room]


def _floor(snapshot: Snapshot, time: float) -> Iterator[tuple[Job, int]]:
    """Jobs that will run at that time, and their least nodes then."""
    for running in snapshot.running.values():
        if running.expected_end > time:
            nodes = len(running.nodes) if running.target is None else running.target
            yield running.job, _least(running.job, nodes)


def _least(job: Job, nodes: int) -> int:
    if job.kind != "malleable":
        return nodes
    return smallest_legal(job.constraint, job.min_nodes, nodes) or nodes


_SETTLES = 10.0  # seconds that meters and machines take to follow a change, at least
_STALE = 10  # so many times as long, after which a forecast that was never renewed counts no more


class Learned(NamedTuple):
    """``bias``: watts drawn beyond all figures. ``extra``: watts that a forecast goes beyond those, at
    either end. Learned while nothing changed: readings lag, and who takes the lag for a lasting
    difference answers each of its own changes with another one."""

    bias: float = 0.0
    extra: PowerRange = UNKNOWN
    foretold: float = -inf
    forecast: PowerRange | None = None
    foretold_in: int = -1
    revision: int = -1
    time: float = -inf
    since: float = -inf


def learn(
    before: Learned,
    snapshot: Snapshot,
    view: PowerView,
    figures: PowerRange,
    dwell: float,
    follows_forecast: bool,
) -> Learned:
    """What is known after this look. ``figures``: what the machine as it is should draw."""
    now, settles = snapshot.now, max(dwell, _SETTLES)
    is_same = before.revision == snapshot.revision
    after = before._replace(revision=snapshot.revision, time=now, since=before.since if is_same else now)
    if view.doubt:
        return after._replace(bias=max(0.0, before.bias))
    if view.source == "modelled":
        after = after._replace(bias=0.0)
    elif is_same:
        missed = view.watts - max(figures.least, min(view.watts, figures.most))
        if abs(missed) <= view.uncertainty:
            missed = 0.0
        share = 1.0 - exp(-(now - before.time) / settles)
        after = after._replace(bias=before.bias + share * (missed - before.bias))
    if view.forecast is None or not follows_forecast or now - after.foretold > _STALE * settles:
        after = after._replace(extra=UNKNOWN)
    # the same forecast after it was answered is only an old one
    is_news = view.forecast != after.forecast or snapshot.revision == after.foretold_in
    if view.forecast is not None and follows_forecast and is_news and now - after.since >= settles:
        least, most = figures.least + after.bias, figures.most + after.bias
        extra = PowerRange(max(0.0, least - view.forecast.least), max(0.0, view.forecast.most - most))
        after = after._replace(extra=extra, foretold=now, forecast=view.forecast, foretold_in=after.revision)
    return after


class Told(NamedTuple):
    """The verdict that was told last: who hears it twice learns nothing."""

    lower: float = 0.0
    upper: float = inf
    is_kept: bool = True
    is_wary: bool = False


class Seen(NamedTuple):
    """What a decision was made from that came to nothing: the same again will come to the same."""

    revision: int
    arrivals: int
    until: float
    bounds: tuple[PowerBounds, ...]
    doubt: str
    outside: tuple[int, int, int]
    wishes: tuple[tuple[Start, ...], tuple[Resize, ...]]
    watts: tuple[float, ...]

    def is_like(self, other: "Seen", hysteresis: float, now: float) -> bool:
        """Whether nothing that matters has changed."""
        return (
            now < self.until
            and self._replace(until=0.0, watts=()) == other._replace(until=0.0, watts=())
            and all(abs(a - b) <= hysteresis + TINY for a, b in zip(self.watts, other.watts, strict=True))
        )


class Memory(NamedTuple):
    """All of it."""

    learned: Learned = Learned()
    #: the corridor that was planned for last
    bounds: tuple[float, float] | None = None
    #: sizes and starts that were decided and wait for nodes that others are giving up
    goal: Mapping[str, int] = {}
    #: when jobs gave nodes for the sake of power
    gave: Mapping[str, float] = {}
    #: which way sizes were last changed for power, and when
    turned: Side = ""
    turned_at: float = -inf
    #: when levers were last pulled, and what that is going to save
    pulled: Mapping[str, float] = {}
    cut: float = 0.0
    told: Told = Told()
    quiet: Seen | None = None
