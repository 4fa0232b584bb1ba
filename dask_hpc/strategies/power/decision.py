"""One decision about power, step by step: what passes, what is repaired, what is pulled, what is told."""

from collections.abc import Mapping
from itertools import islice
from math import exp, inf
from typing import TYPE_CHECKING, NamedTuple

from dask_hpc.model.job import Job
from dask_hpc.model.plan import Cap, Hold, Release, Resize, Start
from dask_hpc.model.power import UNKNOWN, Corridor, PowerRange, PowerView, Verdict
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.model.units import count_nodes, show_large
from dask_hpc.planning.corridor import Distribution, reachable, what_would_help
from dask_hpc.planning.corridor.problem import distribution
from dask_hpc.strategies.malleability.grow_shrink import malleable
from dask_hpc.strategies.power.admission import Admission, make_room, smallest_start, use_up
from dask_hpc.strategies.power.balance import TINY, Balance, Bounds, Coming, Side, common
from dask_hpc.strategies.power.levers import Levers, pulled_since
from dask_hpc.strategies.power.repair import Anchor, Repair
from dask_hpc.strategies.strategy import Powered, Resizes, Starts

if TYPE_CHECKING:
    from dask_hpc.strategies.power.corridor import PowerCorridor

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
    bounds: tuple[Bounds, ...]
    doubt: str
    outside: tuple[int, int, int]
    wishes: tuple[tuple[Start, ...], tuple[Resize, ...]]
    watts: tuple[float, ...]

    @classmethod
    def now(
        cls,
        snapshot: Snapshot,
        balance: Balance,
        bounds: tuple[Bounds, ...],
        wishes: tuple[tuple[Start, ...], tuple[Resize, ...]],
        until: float,
    ) -> "Seen":
        """Of this moment."""
        view = balance.view
        return cls(
            snapshot.revision,
            snapshot.waiting.arrivals,
            until,
            bounds,
            view.doubt,
            (view.outside_nodes, view.outside_wanted, view.releasable),
            wishes,
            (view.watts, *balance.planned, balance.peak),
        )

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


class Decision:
    """One of them, step by step."""

    def __init__(
        self,
        strategy: "PowerCorridor",
        snapshot: Snapshot,
        view: PowerView,
        corridor: Corridor,
        bounds: Bounds,
        edge: float,
        memory: Memory,
    ) -> None:
        self.strategy, self.snapshot, self.view, self.bounds = strategy, snapshot, view, bounds
        now = self.now = snapshot.now
        dwell = strategy.dwell
        pulled = pulled_since(memory.pulled, now, dwell)
        cut = memory.cut if pulled.keys() & {"cap", "release"} else 0.0
        learned = memory.learned
        self.balance = balance = Balance.of(
            snapshot, view, bias=learned.bias, extra=learned.extra, cut=cut, is_wary=bool(view.doubt)
        )
        looks_ahead = strategy.mode != "reactive" and not _is_vague(view, bounds)
        learned = learn(learned, snapshot, view, balance.now, dwell, looks_ahead)
        balance.bias, balance.extra = learned.bias, learned.extra
        self.has_changed = memory.bounds is not None and memory.bounds != bounds[:2]
        gave = {job: when for job, when in memory.gave.items() if now - when < dwell}
        if self.has_changed:  # what was done for other bounds is no reason to wait
            gave, memory = {}, memory._replace(turned="")
        self.memory = memory._replace(
            learned=learned, pulled=pulled, cut=cut, gave=gave, bounds=(bounds.lower, bounds.upper)
        )
        common_bounds = common(corridor, now, strategy.lead, edge) if strategy.mode != "reactive" else None
        #: the corridors that are to hold, the strictest first
        self.corridors = (bounds,) if common_bounds is None else (common_bounds, bounds)
        self.anchor = Anchor(snapshot, balance, corridor, now + strategy.lookahead, strategy.candidates)
        self.levers = Levers(now, balance, bounds, strategy.hysteresis, dwell, dict(pulled))
        self.admission = Admission(
            snapshot,
            balance,
            self.corridors[0],
            Coming(snapshot, balance, corridor, now + strategy.lookahead, edge),
            self.anchor,
            strategy.hysteresis,
            gave,
            strategy.candidates,
        )

    def decide(self, starts: Starts, resizes: Resizes) -> tuple[Powered, Memory]:
        """All that is to be done now."""
        strategy, admission, memory = self.strategy, self.admission, self.memory
        seen = self._seen(starts, resizes)
        if memory.quiet is not None and memory.quiet.is_like(seen, strategy.hysteresis, self.now):
            return Powered((), ()), memory
        self.levers.tighten_hold()
        admission.asked = {(start.job, start.nodes): start for start in starts}
        is_broken = any(self._side(bounds) for bounds in self.corridors) or self.has_changed
        if strategy.scope == "running":
            admission.pass_starts(starts)
        goal = self._pursue({} if self.has_changed else memory.goal)
        # As printed: shares and new sizes are for a machine where somebody runs, the first start as they ask.
        is_empty = strategy.sharing == "equal" and not self.snapshot.running
        if strategy.scope == "queue" and (strategy.sharing == "asked" or is_empty):
            admission.take_starts(starts)
            if not is_broken and not goal:
                admission.pass_by()
        elif strategy.scope == "queue" and not is_broken and not goal and not self.snapshot.is_resizing:
            admission.share_equally(strategy.candidates)
        admission.take_resizes(resizes)
        self.memory = memory = memory._replace(goal=goal)
        is_patient = bool(goal) or bool(is_empty and admission.starts) or self._repair()
        if not is_patient:
            self._start_the_nearest()
        if strategy.scope == "queue" and not (
            is_broken or is_patient or admission.starts or admission.resizes
        ):
            self._improve()
        hold, cap, release = self._pull()
        verdict = None
        if not admission.starts and not admission.resizes:
            verdict = self._verdict(is_patient)
        powered = Powered(admission.starts, list(admission.resizes.values()), hold, cap, release, verdict)
        is_quiet = not any(powered) and not self._just_now
        return powered, self.memory._replace(quiet=self._seen(starts, resizes) if is_quiet else None)

    def _seen(self, starts: Starts, resizes: Resizes) -> Seen:
        memory, dwell = self.memory, self.strategy.dwell
        times = (*memory.gave.values(), *memory.pulled.values(), memory.turned_at)
        until = min((when + dwell for when in times if when + dwell > self.now), default=inf)
        wishes = tuple(starts), tuple(resizes)
        return Seen.now(self.snapshot, self.balance, self.corridors, wishes, until)

    def _improve(self) -> None:
        """Nothing is wrong and nothing is asked for: watts go to who needs them most."""
        admission, job = self.admission, self.admission.held
        if job is not None and not self.strategy.redistribute:
            nodes = smallest_start(job)
            for resize in make_room(
                self.snapshot, self.balance, admission.bounds, job, nodes, self.memory.gave
            ):
                admission.resize(resize)
            if not admission.resizes:
                for resize in use_up(
                    self.snapshot, self.balance, admission.bounds, admission.idle, self.memory.gave
                ):
                    admission.grow(
                        self.anchor.limit(self.snapshot.running[resize.job], resize), self.strategy.hysteresis
                    )
        if not admission.resizes and (sizes := self.anchor.shift(admission.bounds)):
            self._carry_out(sizes, "")

    def _side(self, bounds: Bounds) -> Side:
        """Where the corridor is broken, as far as this mode minds."""
        side = bounds.side(self.balance.planned)
        if side and self.strategy.mode == "reactive" and not self.view.doubt:
            measured = PowerRange(self.view.watts, self.view.watts)
            return side if bounds.side(measured) == side else ""
        return side

    @property
    def _just_now(self) -> bool:
        """Whether anybody was resized at this very time, and could therefore not be again."""
        return any(one.resized_at == self.now for one in self.snapshot.running.values())

    # sizes

    def _pursue(self, goal: Mapping[str, int]) -> dict[str, int]:
        """Growths and starts that wait for nodes; answers those that still do."""
        snapshot, admission = self.snapshot, self.admission
        left: dict[str, int] = {}
        may = {running.job.id for running in malleable(snapshot)} if goal else set()
        for job_id, target in goal.items():
            reason = self._reason(f"has {count_nodes(target)} now that they are free", "")
            if job_id in snapshot.waiting:
                job = snapshot.waiting[job_id]
                if target > admission.idle or not admission.start(job, target, Start(job_id, target, reason)):
                    left[job_id] = target
            elif job_id in may:
                size = len(snapshot.running[job_id].nodes)
                if size < target and admission.grow(Resize(job_id, target, reason)) < target:
                    left[job_id] = target
            elif job_id in snapshot.running and len(snapshot.running[job_id].nodes) < target:
                left[job_id] = target
        is_moving = snapshot.is_resizing or admission.starts or admission.resizes or self._just_now
        return left if is_moving else {}

    def _repair(self) -> bool:
        """New sizes if power would be outside; answers whether to wait and see is all there is to do."""
        strategy, memory, snapshot = self.strategy, self.memory, self.snapshot
        for bounds in self.corridors:
            side = self._side(bounds)
            if not side and not (self.has_changed and strategy.redistribute):
                continue
            if strategy.redistribute and snapshot.is_resizing:
                return True
            has_turned = memory.turned == "upper" and self.now - memory.turned_at < strategy.dwell
            if side == "lower" and has_turned:
                return True
            found = self._solve(bounds, side)
            if found is not None and (found.is_feasible or bounds is self.bounds):
                self._carry_out(found.sizes, side)
                return False
        return False

    def _solve(self, bounds: Bounds, side: Side) -> Distribution | None:
        strategy, snapshot, admission = self.strategy, self.snapshot, self.admission
        movable = [
            (running.job, len(running.nodes))
            for running in malleable(snapshot)
            if running.job.id not in admission.resizes
        ]
        repair = Repair(snapshot, self.balance, bounds, movable, strategy.time_limit)
        waiting = self._candidates()
        if strategy.redistribute:
            return repair.anew(side, waiting)
        found = repair.fewest_changes(side, waiting)
        if (found is None or not found.is_feasible) and self.view.levers & {"threads", "cap"}:
            return repair.finely(waiting) or found
        return found

    def _start_the_nearest(self) -> None:
        """Where no sizes are inside, whoever starts brings too little power nearer to its bound. As printed,
        a corridor that is out of reach would hold all starts for ever."""
        strategy, admission = self.strategy, self.admission
        shares = strategy.scope == "queue" and strategy.sharing == "equal"
        if shares and not admission.starts and not admission.resizes and self._side(self.bounds) == "lower":
            admission.share_equally(strategy.candidates)

    def _candidates(self) -> list[Job]:
        """The waiting jobs that the program may start."""
        strategy, snapshot = self.strategy, self.snapshot
        if strategy.scope == "running":
            return []
        started = {start.job for start in self.admission.starts}
        waiting = (job for job in snapshot.waiting if job.id not in started)
        if strategy.favour_elastic:
            waiting = (job for job in waiting if job.kind == "malleable")
        return list(islice(waiting, strategy.candidates))

    def _carry_out(self, sizes: Mapping[str, int], side: Side) -> None:
        """Shrinks at once; starts and growths as far as nodes and power are free now, later the rest."""
        snapshot, admission, balance = self.snapshot, self.admission, self.balance
        gave, goal = dict(self.memory.gave), {}
        grows: list[tuple[str, int]] = []
        for job_id, size in sizes.items():
            running = snapshot.running.get(job_id)
            if running is None:
                if size and job_id in snapshot.waiting:
                    grows.insert(0, (job_id, size))
            elif size < len(running.nodes):
                given = count_nodes(len(running.nodes) - size)
                admission.resize(Resize(job_id, size, self._reason(f"gives {given}", side)))
                gave[job_id] = self.now
            elif size > len(running.nodes):
                grows.append((job_id, size))
        for job_id, size in grows:
            if job_id in snapshot.waiting:
                reason = self._reason(f"starts on {count_nodes(size)}", side)
                fits = size <= admission.idle and balance.fits(job_id, 0, size, admission.bounds.ceiling)
                job = snapshot.waiting[job_id]
                if not fits or not admission.start(job, size, Start(job_id, size, reason)):
                    goal[job_id] = size
            else:
                reason = self._reason(
                    f"takes {count_nodes(size - len(snapshot.running[job_id].nodes))}", side
                )
                if admission.grow(Resize(job_id, size, reason)) < size:
                    goal[job_id] = size
        self.memory = self.memory._replace(gave=gave, goal=goal)
        if admission.resizes or admission.starts:
            self.memory = self.memory._replace(turned=side, turned_at=self.now)

    def _reason(self, what: str, side: Side) -> str:
        lower, upper = (show_large(watts, "W") for watts in (self.bounds.lower, self.bounds.upper))
        why = {"upper": f"to stay below {upper}", "lower": f"to stay above {lower}", "": ""}[side]
        return f"power: {what} {why or f'in a corridor of {lower} to {upper}'}"

    # levers and verdict

    def _pull(self) -> tuple[Hold | None, Cap | None, Release | None]:
        levers = self.levers
        levers.reserve = self._reserve()
        hold = levers.hold()
        cap = levers.cap(self._side(self.bounds) == "upper")
        release = levers.release(self._side(self.bounds) == "upper")
        self.memory = self.memory._replace(pulled=levers.pulled, cut=self.balance.cut)
        return hold, cap, release

    def _reserve(self) -> float:
        """Watts that work outside of jobs is to make room for, if it can: jobs go first."""
        job, balance = self.admission.held, self.balance
        if job is None or "hold" not in self.view.levers or balance.outside < 2:
            return 0.0
        need = smallest_start(job) * (balance.at_worst(job.id).most - self.view.idle)
        return need if balance.with_outside(1) + need <= self.bounds.ceiling else 0.0

    def _verdict(self, is_patient: bool) -> Verdict | None:
        """Whether the corridor can be kept, if that was not told yet."""
        bounds, memory = self.bounds, self.memory
        is_kept = is_patient or not self._side(bounds)
        told = Told(bounds.lower, bounds.upper, is_kept, bool(self.view.doubt))
        if told == memory.told:
            return None
        self.memory = memory._replace(told=told)
        movable = [
            (running.job, running.target or len(running.nodes))
            for running in self.snapshot.running.values()
            if running.job.kind == "malleable"
        ]
        repair = Repair(self.snapshot, self.balance, bounds, movable, self.strategy.time_limit)
        problem = repair.problem("any", self._candidates())
        expected = self.balance.planned
        lowest, highest, help_ = expected.most, expected.least, ""
        if problem is not None:
            lowest, highest = reachable(problem)
            if not is_kept:
                help_ = what_would_help(
                    problem, distribution(problem, {p.id: p.now for p in problem.parts}, "as it is")
                )
        doubt = f"careful, because {self.view.doubt}" if self.view.doubt else ""
        reason = "; ".join(words for words in (help_, doubt) if words)
        return Verdict(bounds.lower, bounds.upper, is_kept, expected, lowest, highest, reason)


def _is_vague(view: PowerView, bounds: Bounds) -> bool:
    """Whether a forecast is wider than the corridor: then it says nothing about who will be inside."""
    forecast = view.forecast
    return forecast is not None and forecast.most - forecast.least > bounds.upper - bounds.lower
