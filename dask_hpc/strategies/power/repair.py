"""New sizes for a machine whose power is, or is going to be, outside the corridor."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import inf
from typing import Literal

from dask_hpc.model.job import Job, stretch
from dask_hpc.model.plan import Resize
from dask_hpc.model.power import Corridor, PowerRange
from dask_hpc.model.snapshot import Running, Snapshot
from dask_hpc.model.speedup import largest_legal, next_legal_down
from dask_hpc.model.units import count_nodes
from dask_hpc.planning.corridor import CorridorProblem, Distribution, Part, sizes_of, solve
from dask_hpc.strategies.malleability.grow_shrink import left, malleable
from dask_hpc.strategies.malleability.worth import scaling, work_of
from dask_hpc.strategies.power.balance import TINY, Balance, PowerBounds, Side

OUTSIDE = "work outside of jobs"

#: which sizes are looked at: those that repair by the fewest changes, or all there are
Way = Literal["less", "more", "any"]


@dataclass(frozen=True, slots=True)
class Repair:
    """What the program may choose from, and the machine that it is chosen for."""

    snapshot: Snapshot
    balance: Balance
    bounds: PowerBounds
    #: jobs whose size may change, and what it is; what else runs, or is decided already, is constant
    movable: Sequence[tuple[Job, int]]
    time_limit: float
    #: programs that were solved, and their answers: more are added
    known: dict[CorridorProblem, Distribution] = field(default_factory=dict)

    def problem(
        self, way: Way, candidates: Iterable[Job] = (), must_start: bool = False
    ) -> CorridorProblem | None:
        """The program for the machine once everything that is under way has happened; None if there are
        too few nodes for the jobs that must start."""
        snapshot, balance, bounds = self.snapshot, self.balance, self.bounds
        held = sum(size for _, size in self.movable)
        withheld = snapshot.size - snapshot.idle - sum(len(r.nodes) for r in snapshot.running.values())
        nodes = balance.free - withheld + held
        room = nodes - sum(min(job.min_nodes, size) for job, size in self.movable)
        parts = [
            Part(job.id, balance.view.per_node(job.id), _sizes(job, size, way, room), size)
            for job, size in self.movable
        ]
        outside = self._outside(way, nodes)
        if outside is not None:
            parts.append(outside)
        now = sum(part.now for part in parts)
        parts += [_waiting(job, balance, room, must_start) for job in candidates]
        if not all(part.sizes for part in parts) or sum(part.sizes[0] for part in parts) > nodes:
            return None
        planned = balance.planned
        idle = (nodes - now) * balance.view.idle
        constant = PowerRange(
            planned.least - idle - sum(part.power.least * part.now for part in parts),
            planned.most - idle - sum(part.power.most * part.now for part in parts),
        )
        return CorridorProblem(
            nodes, balance.view.idle, bounds.lower, bounds.upper, tuple(parts), constant, bounds.edge
        )

    def _outside(self, way: Way, nodes: int) -> Part | None:
        """Work outside of jobs, where nodes can be held from it; it is left one node at least, and those that
        cannot be held."""
        view, now = self.balance.view, self.balance.outside
        if "hold" not in view.levers or not view.outside_wanted or now < 1:
            return None
        if any(job.id == OUTSIDE for job, _ in self.movable):
            return None
        low = now if way == "more" else min(now, max(1, self.balance.restless))
        high = now if way == "less" else max(now, min(view.outside_wanted, nodes))
        return Part(OUTSIDE, self.balance.outside_power, range(low, high + 1), now)

    def solve(
        self, way: Way, candidates: Iterable[Job] = (), must_start: bool = False
    ) -> Distribution | None:
        """The best distribution, if there is anything to choose."""
        problem = self.problem(way, candidates, must_start)
        return self._answer(problem) if problem is not None and problem.parts else None

    def _answer(self, problem: CorridorProblem) -> Distribution:
        found = self.known.get(problem)
        if found is None:
            found = self.known[problem] = solve(problem, self.time_limit)
        return found

    @property
    def lacks(self) -> float:
        """Watts that the machine is outside, margin included, as things are."""
        planned, bounds = self.balance.planned, self.bounds
        return max(0.0, bounds.floor - planned.least, planned.most - bounds.ceiling)

    def fewest_changes(self, side: Side, waiting: Sequence[Job]) -> Distribution | None:
        """Ours: first by changes in the one direction that helps, then by any; the nearest that there is,
        if nothing is inside."""
        way: Way = "less" if side == "upper" else "more"
        first = self.solve(way, waiting if side == "lower" else ())
        if first is not None and first.is_feasible:
            return first
        second = self.solve("any", waiting)
        if second is not None and second.is_feasible:
            return second
        known = [one for one in (first, second) if one is not None]
        best = min(known, key=lambda one: one.outside, default=None)
        return best if best is not None and best.outside < self.lacks - TINY else None

    def finely(self, waiting: Sequence[Job]) -> Distribution | None:
        """Where a lever is finer than a node and no sizes are inside: at most one node too much."""
        problem = self.problem("any", waiting)
        if problem is None or not problem.parts:
            return None
        step = max(part.power.most for part in problem.parts) - problem.idle
        wider = replace(problem, upper=problem.upper + max(0.0, step))
        found = self._answer(wider)
        return found if found.is_feasible else None

    def anew(self, side: Side, waiting: Sequence[Job]) -> Distribution | None:
        """As published, all sizes at once: one waiting job after the other, and none; nothing happens if
        all of these are infeasible. Against too little, starting somebody comes first."""
        attempts: list[tuple[Job, ...]] = [(job,) for job in waiting]
        attempts.insert(len(attempts) if side == "lower" else 0, ())
        for jobs in attempts:
            found = self.solve("any", jobs, must_start=True)
            if found is not None and found.is_feasible:
                return found
        return None


def _sizes(job: Job, size: int, way: Way, room: int) -> Sequence[int]:
    low = size if way == "more" else job.min_nodes
    high = size if way == "less" else min(job.max_nodes, job.min_nodes + room)
    sizes = sizes_of(job.constraint, low, max(high, low))
    return sizes if size in sizes else tuple(sorted({*sizes, size}))


def _waiting(job: Job, balance: Balance, room: int, must_start: bool) -> Part:
    low, high = (job.nodes, job.nodes) if job.kind == "rigid" else (job.min_nodes, job.max_nodes)
    high = max(low, min(high, room))
    return Part(job.id, balance.view.per_node(job.id), sizes_of(job.constraint, low, high, not must_start), 0)


class Anchor:
    """Which job that is, if there must be one, and how long it is needed."""

    def __init__(self, snapshot: Snapshot, balance: Balance, corridor: Corridor, until: float, depth: int):
        self._now = snapshot.now
        self._snapshot, self._balance = snapshot, balance
        self._job: Job | None = None
        #: until when it is needed, and the weak job that runs longest
        self.needed = 0.0
        self._weak: Running | None = None
        steps = [(snapshot.now, *corridor.at(snapshot.now)), *corridor.coming(snapshot.now, until)]
        when, self._lower, _ = max(steps, key=lambda step: (step[1], -step[0]))
        base = snapshot.size * balance.view.idle + balance.bias - balance.extra.least
        if self._lower <= base + TINY:
            return
        running = list(snapshot.running.values())
        waiting = list(islice(snapshot.waiting, depth))
        work = {one.job.id: left(one, self._now) * scaling(one.job).factor(len(one.nodes)) for one in running}
        work |= {job.id: work_of(job) for job in waiting}
        jobs = [one.job for one in running] + waiting
        strong = [job for job in jobs if self._bears(job, base)]
        weak = {job.id for job in jobs} - {job.id for job in strong}
        if not strong or not weak or max(work.values()) == inf:
            return
        self._job = max(strong, key=lambda job: work[job.id])
        weak_running = [one for one in running if one.job.id in weak]
        self._weak = max(weak_running, key=lambda one: one.expected_end, default=None)
        ends = [one.expected_end for one in weak_running]
        ends += [self._now + job.walltime_on(job.min_nodes) for job in waiting if job.id in weak]
        self.needed = max(when, *ends)

    def _bears(self, job: Job, base: float) -> bool:
        most = min(job.max_nodes, self._balance.size) if job.moldable else job.nodes
        power = self._balance.view.per_node(job.id).least - self._balance.view.idle
        return base + most * power >= self._lower - TINY

    def may_start(self, job: Job, nodes: int) -> bool:
        """Whether it is still there when it is needed; a machine that does nothing else need not wait."""
        if self._job is None or job.id != self._job.id or not self._snapshot.running:
            return True
        return self._now + job.walltime_on(nodes) >= self.needed

    def limit(self, running: Running, resize: Resize) -> Resize:
        """The growth, or as much of it as leaves it there for so long."""
        job, held, size = running.job, len(running.nodes), resize.nodes
        if self._job is None or job.id != self._job.id:
            return resize
        while size > held and self._end(running, size) < self.needed:
            size = next_legal_down(job.constraint, size, held) or held
        if size == resize.nodes:
            return resize
        less = f"{count_nodes(resize.nodes - size)} less than that, to be there when others have ended"
        return resize._replace(nodes=size, reason=f"{resize.reason}; {less}")

    def shift(self, bounds: PowerBounds) -> Mapping[str, int]:
        """New sizes of it and of the weak job that runs longest, so that it is not the first to end."""
        one = None if self._job is None else self._snapshot.running.get(self._job.id)
        movable = {running.job.id for running in malleable(self._snapshot)}
        weak = self._weak
        if one is None or weak is None or not {one.job.id, weak.job.id} <= movable:
            return {}
        power = {job.job.id: self._balance.view.per_node(job.job.id).least for job in (one, weak)}
        size, found = len(one.nodes), {}
        idle = self._snapshot.idle
        grown = len(weak.nodes)
        while self._end(one, size) < self._end(weak, grown):
            smaller = next_legal_down(one.job.constraint, size, one.job.min_nodes)
            if smaller is None:
                break
            high = min(weak.job.max_nodes, len(weak.nodes) + idle + len(one.nodes) - smaller)
            larger = largest_legal(weak.job.constraint, len(weak.nodes), high) or grown
            least = self._balance.planned.least - (len(one.nodes) - smaller) * (
                power[one.job.id] - self._balance.view.idle
            )
            least += (larger - len(weak.nodes)) * (power[weak.job.id] - self._balance.view.idle)
            if larger <= grown or least < bounds.floor - TINY:
                break
            size, grown = smaller, larger
            found = {one.job.id: size, weak.job.id: grown}
        return found

    def _end(self, running: Running, size: int) -> float:
        return self._now + left(running, self._now) * stretch(running.job, len(running.nodes), size)
