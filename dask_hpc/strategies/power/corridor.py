"""Power corridor: sizes, starts and levers keep the machine's power between two bounds."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from math import inf
from typing import Annotated, Any, ClassVar, Literal

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.job import Job
from dask_hpc.model.parameter import Parameter
from dask_hpc.model.plan import Cap, Hold, Release, Resize, Start
from dask_hpc.model.power import UNKNOWN, Corridor, PowerRange, PowerView, Verdict
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.model.units import count_nodes, show_large, write_quantity
from dask_hpc.planning.corridor import CorridorProblem, Distribution, reachable, what_would_help
from dask_hpc.planning.corridor.problem import distribution
from dask_hpc.strategies.malleability.grow_shrink import malleable
from dask_hpc.strategies.power.admission import Admission, smallest_start
from dask_hpc.strategies.power.balance import (
    Balance,
    Coming,
    Memory,
    PowerBounds,
    Seen,
    Side,
    Told,
    common,
    learn,
)
from dask_hpc.strategies.power.levers import Levers
from dask_hpc.strategies.power.repair import Anchor, Repair
from dask_hpc.strategies.strategy import Powered, PowerStrategy, Resizes, Starts

_WARY = 0.05  # share of a bound that is kept free besides, when readings cannot be trusted


@dataclass(frozen=True, slots=True)
class PowerCorridor(PowerStrategy):
    """Keep the power of the machine in a corridor, by what its nodes, jobs and idle nodes draw.

    With ``redistribute``, ``sharing: equal`` and one ``mode`` this is the scheduler of seed 000, 5.1 and 5.2
    (digest 2.9 to 2.14): a broken corridor holds all starts, and the program there gives all malleable
    jobs new sizes, shrinks first, growths when the nodes are free; with ``scope: queue`` waiting jobs
    are offered to it one after the other, and while the corridor holds they share idle nodes equally.
    Where we deviate, as the digest recommends: figures are per node; nodes are balanced; an empty queue
    is solved, too; when power is too high the variant that starts nobody comes first; the program runs for a
    new corridor even if the old one was intact, and breaks ties by fewest changed nodes.

    Otherwise it is ours, for a corridor *and* throughput. Other strategies say what starts and who grows;
    that passes as far as it fits, moldable and malleable jobs smaller if need be, rigid ones later. Only if
    power would leave the corridor all the same, as few nodes as possible change hands. Room is kept for
    what cannot be interrupted: who shrinks counts with the larger size until it is done, nobody starts who
    would make bounds to come impossible, but on more nodes if he is over by then, and nodes are held from
    work outside of jobs that would take too much. A job without which a lower bound is out of reach is kept
    until the others end. Watts go where they bring most speed: from running jobs to one that waits for power,
    and from idle nodes on which nobody may start to those that run.

    Decisions stay ``margin`` and the uncertainty of the readings inside, but act only outside: that, and the
    time until something is undone (``dwell``), keep noise from turning into resizes. Measured power corrects
    the figures slowly, and only while nothing changes. Readings in doubt are not followed: then jobs
    count as a working node does, and more margin is kept.
    """

    name: ClassVar[str] = "power-corridor"
    notes_known: ClassVar[bool] = True
    essential = ("lower", "upper", "schedule", "margin", "mode")

    lower: Annotated[float, Parameter("power is not to fall below", unit="W", low=0.0, high=1e12)] = 0.0
    upper: Annotated[float, Parameter("power is not to rise above", unit="W", low=0.0, none=inf)] = inf
    schedule: Annotated[
        Corridor | None, Parameter("bounds that change with time, instead of lower and upper")
    ] = None
    follow: Annotated[
        str, Parameter('who says the bounds while it runs: path of a file, or "signal:NAME"', none="")
    ] = ""
    mode: Annotated[
        Literal["reactive", "proactive", "both"],
        Parameter("act when power is outside, or when it is going to be"),
    ] = "both"
    scope: Annotated[
        Literal["running", "queue"],
        Parameter("only running jobs are resized, or starts are chosen and held, too"),
    ] = "queue"
    candidates: Annotated[
        int, Parameter("how many waiting jobs are considered", unit="jobs", low=0, high=10_000)
    ] = 16
    favour_elastic: Annotated[
        bool, Parameter("of the waiting jobs, offer only malleable ones to a broken corridor")
    ] = False
    sharing: Annotated[
        Literal["asked", "equal"],
        Parameter("who starts on idle nodes: whom the queue names, or the first that fit, in equal shares"),
    ] = "asked"
    redistribute: Annotated[
        bool, Parameter("give all malleable jobs new sizes for a broken corridor, not only a few")
    ] = False
    margin: Annotated[
        float, Parameter("kept from both edges, beside the uncertainty of readings", unit="W", low=0.0)
    ] = 0.0
    hysteresis: Annotated[
        float, Parameter("room there must be before something is given back", unit="W", low=0.0)
    ] = 0.0
    dwell: Annotated[
        float, Parameter("least time before what was done for power is undone", unit="s", low=0.0)
    ] = 30.0
    lookahead: Annotated[
        float, Parameter("how far ahead coming bounds count for who starts and will still run", "s", low=0.0)
    ] = 3600.0
    lead: Annotated[
        float, Parameter("how long before coming bounds sizes change for them", unit="s", low=0.0)
    ] = 30.0
    time_limit: Annotated[
        float, Parameter("the longest that a solver may take", unit="s", low=0.01, high=60.0)
    ] = 1.0

    def __post_init__(self) -> None:
        if self.lower > self.upper:
            found = f"found {write_quantity(self.lower, 'W')}"
            raise InputError("lower", found, f"at most upper={write_quantity(self.upper, 'W')}")
        if self.schedule is not None and (self.lower, self.upper) != (0.0, inf):
            raise InputError(
                "schedule", f"found {shown(self.schedule.written())} beside lower and upper", "one of the two"
            )

    @property
    def corridor(self) -> Corridor:
        """As the policy says it."""
        return Corridor.constant(self.lower, self.upper) if self.schedule is None else self.schedule

    @property
    def looks_ahead(self) -> bool:
        """Unless it only reacts."""
        return self.mode != "reactive"

    def decide(
        self,
        snapshot: Snapshot,
        starts: Starts,
        resizes: Resizes,
        memory: Memory | None,
        known: dict[Any, Any] | None = None,
    ) -> tuple[Powered, Memory]:
        """Let pass what fits, repair what is broken, pull what is left to pull, and say how it is. Programs
        in ``known`` are not solved again."""
        view = snapshot.power
        assert view is not None
        memory = memory or Memory()
        corridor = snapshot.corridor or self.corridor
        edge = self.margin + view.uncertainty
        bounds = PowerBounds.around(*corridor.at(snapshot.now), edge)
        ahead = snapshot.now + max(self.lookahead, self.lead)
        if bounds.is_open and not corridor.coming(snapshot.now, ahead):
            is_pulled = view.held or view.released or view.threads < 1.0 or view.cap is not None
            if not is_pulled and memory.told == Told():
                return Powered(starts, resizes), memory
        if view.doubt:
            edge += _WARY * (bounds.upper if bounds.upper < inf else bounds.lower)
            bounds = PowerBounds.around(bounds.lower, bounds.upper, edge)
        decision = Decision(
            self, snapshot, view, corridor, bounds, edge, memory, {} if known is None else known
        )
        return decision.decide(starts, resizes)


class Decision:
    """One of them, step by step."""

    def __init__(
        self,
        strategy: PowerCorridor,
        snapshot: Snapshot,
        view: PowerView,
        corridor: Corridor,
        bounds: PowerBounds,
        edge: float,
        memory: Memory,
        known: dict[CorridorProblem, Distribution],
    ) -> None:
        self.known = known
        self.strategy, self.snapshot, self.view, self.bounds = strategy, snapshot, view, bounds
        now = self.now = snapshot.now
        dwell = strategy.dwell
        pulled = {lever: when for lever, when in memory.pulled.items() if now - when <= dwell}
        cut = memory.cut if pulled.keys() & {"cap", "release"} else 0.0
        learned = memory.learned
        self.balance = balance = Balance.of(
            snapshot, view, bias=learned.bias, extra=learned.extra, cut=cut, is_wary=bool(view.doubt)
        )
        # a forecast that is wider than the corridor says nothing about who will be inside
        foretold = view.forecast or UNKNOWN
        is_vague = foretold.most - foretold.least > bounds.upper - bounds.lower
        follows = strategy.looks_ahead and not is_vague
        learned = learn(learned, snapshot, view, balance.now, dwell, follows)
        balance.bias, balance.extra = learned.bias, learned.extra
        self.has_changed = memory.bounds is not None and memory.bounds != bounds[:2]
        gave = {job: when for job, when in memory.gave.items() if now - when < dwell}
        if self.has_changed:  # what was done for other bounds is no reason to wait
            gave, memory = {}, memory._replace(turned="")
        self.memory = memory._replace(
            learned=learned, pulled=pulled, cut=cut, gave=gave, bounds=(bounds.lower, bounds.upper)
        )
        common_bounds = common(corridor, now, strategy.lead, edge) if strategy.looks_ahead else None
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
        snapshot, view, balance = self.snapshot, self.view, self.balance
        return Seen(
            snapshot.revision,
            snapshot.waiting.arrivals,
            until,
            self.corridors,
            view.doubt,
            (view.outside_nodes, view.outside_wanted, view.releasable),
            (tuple(starts), tuple(resizes)),
            (view.watts, *balance.planned, balance.peak),
        )

    def _improve(self) -> None:
        """Nothing is wrong and nothing is asked for: watts go to who needs them most."""
        admission, job = self.admission, self.admission.held
        if job is not None and not self.strategy.redistribute:
            nodes = smallest_start(job)
            for resize in admission.make_room(job, nodes):
                admission.resize(resize)
            for resize in () if admission.resizes else admission.use_up():
                resize = self.anchor.limit(self.snapshot.running[resize.job], resize)
                admission.grow(resize, self.strategy.hysteresis)
        if not admission.resizes and (sizes := self.anchor.shift(admission.bounds)):
            self._carry_out(sizes, "")

    def _side(self, bounds: PowerBounds) -> Side:
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

    def _solve(self, bounds: PowerBounds, side: Side) -> Distribution | None:
        strategy, snapshot, admission = self.strategy, self.snapshot, self.admission
        movable = [
            (running.job, len(running.nodes))
            for running in malleable(snapshot)
            if running.job.id not in admission.resizes
        ]
        repair = Repair(snapshot, self.balance, bounds, movable, strategy.time_limit, self.known)
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
        strategy = self.strategy
        if strategy.scope == "running":
            return []
        waiting = self.admission.waiting
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
        repair = Repair(self.snapshot, self.balance, bounds, movable, self.strategy.time_limit, self.known)
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
