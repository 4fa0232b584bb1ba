"""A corridor's plan for a list of jobs: what ``dask-hpc plan corridor`` prints, for programs."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from math import ceil, inf
from typing import Any

import numpy as np

from dask_hpc.model.errors import InputError, insist, is_number, shown, within
from dask_hpc.model.job import KINDS, Kind
from dask_hpc.model.power import PowerRange
from dask_hpc.model.safe_yaml import check_keys
from dask_hpc.model.speedup import CONSTRAINTS, Constraint
from dask_hpc.model.units import count_nodes, parse_quantity, show_large
from dask_hpc.planning.corridor.enumeration import common_step, reachable
from dask_hpc.planning.corridor.integer_program import How, solve
from dask_hpc.planning.corridor.problem import TINY, CorridorProblem, Distribution, Part, sizes_of

_MOST_NODES = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CorridorJob:
    """A job that runs on ``nodes``, or waits if that is 0; ``power`` is of one node.

    ``min_nodes`` and ``max_nodes`` default to each other or to ``nodes``; ``kind`` to malleable if they
    differ, else to rigid. What is rigid or moldable keeps its nodes while it runs.
    """

    id: str
    nodes: int
    power: PowerRange
    min_nodes: int = 0
    max_nodes: int = 0
    constraint: Constraint = "any"
    kind: Kind | None = None

    @classmethod
    def read(cls, found: Any, where: str) -> "CorridorJob":
        """From a mapping, as in a file; what is wrong with it is said of ``where``."""
        check_keys(found, tuple(field.name for field in fields(cls)), where)
        name = str(found.get("id", ""))
        where = f"job {shown(name)}" if name else where
        for key in ("id", "nodes", "power"):
            if found.get(key) in (None, ""):
                raise InputError(f"{where}: {key}", "is missing", "id, nodes (0 if it waits) and power")
        nodes, least, most = (_count(found, key, where) for key in ("nodes", "min_nodes", "max_nodes"))
        with within(f"{where}: power"):
            power = PowerRange.read(found["power"])
        least, most = least or nodes or most, most or nodes or least
        if not most:
            raise InputError(f"{where}: max_nodes", "is missing", "the nodes that a job that waits can use")
        if least > most or (nodes and not least <= nodes <= most):
            found_ = f"{nodes} nodes, {least} at least, {most} at most" if nodes else f"{least} to {most}"
            raise InputError(f"{where}: nodes", f"found {found_}", "min_nodes <= nodes <= max_nodes")
        constraint: Any = found.get("constraint") or "any"
        kind: Any = found.get("kind") or None
        for key, value, allowed in (("constraint", constraint, CONSTRAINTS), ("kind", kind, (None, *KINDS))):
            insist(value in allowed, f"{where}: {key}", value, ", ".join(word for word in allowed if word))
        kind = kind or ("malleable" if least < most else "rigid")
        sizes = {"nodes": nodes, "min_nodes": least, "max_nodes": most}
        job = cls(id=name, power=power, constraint=constraint, kind=kind, **sizes)
        if not nodes and len(job.sizes()) == 1:
            raise InputError(where, f"no size from {least} to {most} is {constraint}", "a wider range")
        return job

    def sizes(self) -> Any:
        """All it may have; empty if it cannot change."""
        if self.nodes and self.kind in ("rigid", "moldable"):
            return ()
        sizes = sizes_of(self.constraint, self.min_nodes, self.max_nodes, may_wait=not self.nodes)
        return sizes if not self.nodes or self.nodes in sizes else sorted({*sizes, self.nodes})


def _count(found: Mapping[str, Any], key: str, where: str) -> int:
    value = found.get(key) or 0
    fine = not isinstance(value, bool) and is_number(value, 0, _MOST_NODES) and value == int(value)
    insist(fine, f"{where}: {key}", value, f"a whole number from 0 to {_MOST_NODES}")
    return int(value)


@dataclass(frozen=True, slots=True)
class CorridorPlan:
    """Where the power is, where it should be, and what to change for that. Watts.

    ``sizes`` are the nodes of every job afterwards, 0 for those that (go on to) wait; ``lowest`` and
    ``highest`` the least and the most power there can be, and ``help`` what would make the corridor possible
    if it is not.
    """

    lower: float
    upper: float
    before: PowerRange
    after: PowerRange
    lowest: float
    highest: float
    jobs: tuple[CorridorJob, ...]
    sizes: dict[str, int]
    idle_before: int
    idle_after: int
    idle: float
    distribution: Distribution
    help: str

    @property
    def is_feasible(self) -> bool:
        """Whether power is inside the corridor afterwards, as far as ``margin`` says."""
        return self.distribution.is_feasible

    @property
    def changes(self) -> dict[str, tuple[int, int]]:
        """The jobs whose size changes: nodes before and after."""
        return {
            job.id: (job.nodes, self.sizes[job.id]) for job in self.jobs if job.nodes != self.sizes[job.id]
        }

    @property
    def reason(self) -> str:
        """What the plan reaches and how sure that is, for a person."""
        found = self.distribution
        if not found.is_feasible:
            text = f"impossible: {self.help}"
        elif not self.changes:
            text = "inside, and no change leaves fewer nodes idle"
        else:
            idle = count_nodes(found.idle_nodes, "idle")
            text = f"inside with {idle}, by {count_nodes(found.changed)} given or taken"
        if found.is_optimal:
            return f"{text}; no plan is better"
        what = _UNPROVEN[found.unproven]
        return f"{text}; not proven to be the best: {what} could be better by {min(found.gap, 1):.1%}"


_UNPROVEN = {
    "outside": "the distance from the corridor",
    "idle": "the number of idle nodes",
    "changed": "the number of changed nodes",
    "slack": "the distance from the bounds",
}


def plan_corridor(
    nodes: int,
    jobs: Iterable[Mapping[str, Any]],
    lower: float | str = 0.0,
    upper: float | str = inf,
    *,
    idle: float | str = 0.0,
    margin: float | str = 0.0,
    time_limit: float | str = 10.0,
    how: How = "auto",
) -> CorridorPlan:
    """Who should have how many of ``nodes`` so that their power stays from ``lower`` to ``upper``.

    Each job is a mapping with the fields of ``CorridorJob``; quantities may be written as ``"2.5 kW"``.
    ``idle`` is the power of an idle node, ``margin`` what to keep from both bounds. A job that waits may be
    started. The optimum has power inside, then fewest idle nodes, then fewest changed nodes, then the
    largest distance from both bounds; if power cannot be inside, it is as near as can be.
    """
    fine = isinstance(nodes, int) and not isinstance(nodes, bool) and 1 <= nodes <= _MOST_NODES
    insist(fine, "nodes", nodes, f"a whole number from 1 to {_MOST_NODES}")
    read = [CorridorJob.read(job, f"job {number}") for number, job in enumerate(jobs, 1)]
    now = {job.id: job.nodes for job in read}
    if len(now) < len(read):
        twice = Counter(job.id for job in read).most_common(1)[0][0]
        raise InputError(f"job {shown(twice)}: id", "is said twice", "each job once")
    if sum(now.values()) > nodes:
        raise InputError("nodes", f"found {nodes}, but jobs hold {sum(now.values())}", "as many or more")
    watts = {
        name: _quantity(name, value, "W")
        for name, value in (("lower", lower), ("upper", upper), ("idle", idle), ("margin", margin))
    }
    moving = [(job, job.sizes()) for job in read]
    staying = [job for job, sizes in moving if not sizes]
    problem = CorridorProblem(
        nodes - sum(job.nodes for job in staying),
        watts["idle"],
        watts["lower"],
        watts["upper"],
        tuple(Part(job.id, job.power, sizes, job.nodes) for job, sizes in moving if sizes),
        PowerRange(
            sum(job.power.least * job.nodes for job in staying),
            sum(job.power.most * job.nodes for job in staying),
        ),
        watts["margin"],
    )
    found = solve(problem, _quantity("time_limit", time_limit, "s"), how)
    sizes = {job.id: found.sizes.get(job.id, job.nodes) for job in read}
    lowest, highest = reachable(problem)
    return CorridorPlan(
        lower=problem.lower,
        upper=problem.upper,
        before=problem.power_of({part.id: part.now for part in problem.parts}),
        after=found.power,
        lowest=lowest,
        highest=highest,
        jobs=tuple(read),
        sizes=sizes,
        idle_before=nodes - sum(now.values()),
        idle_after=found.idle_nodes,
        idle=problem.idle,
        distribution=found,
        help=what_would_help(problem, found),
    )


def _quantity(where: str, value: float | str, unit: str) -> float:
    found = parse_quantity(value, unit, where)
    insist(found >= 0, where, value, "0 or more")
    return found


_watts = partial(show_large, unit="W")


def what_would_help(problem: CorridorProblem, answer: Distribution) -> str:
    """Why the answer is outside and what would bring it in; nothing if it is inside."""
    if answer.is_feasible:
        return ""
    lowest, highest = reachable(problem)
    if problem.floor > problem.ceiling + TINY:
        return f"a margin of {_watts(problem.margin)} on both sides leaves nothing of the corridor"
    if lowest > problem.ceiling + TINY:
        return _too_much(problem, lowest)
    if highest < problem.floor - TINY:
        return _too_little(problem, highest)
    return _between(problem, answer)


def _too_much(problem: CorridorProblem, lowest: float) -> str:
    lacks = lowest - problem.ceiling
    text = f"the least that can be drawn is {_watts(lowest)}: raise the upper bound by {_watts(lacks)}"
    ways = []
    idle = problem.nodes - sum(part.sizes[0] for part in problem.parts)
    if problem.idle > 0 and 0 < ceil(lacks / problem.idle - TINY) <= idle:
        ways.append(f"release {count_nodes(ceil(lacks / problem.idle - TINY), 'idle')}")
    held = [(part.power.most - problem.idle, part.sizes[0], part.id) for part in problem.parts]
    if saving := [(watts * (least - 1), job, least) for watts, least, job in held if least > 1 and watts > 0]:
        saved, job, least = max(saving)
        ways.append(f"let {job} run on fewer than {count_nodes(least)} (saves up to {_watts(saved)})")
    if without := [(watts * least, job) for watts, least, job in held if least]:
        saved, job = max(without)
        ways.append(f"run without {job} (saves {_watts(saved)})")
    return ", or ".join([text, *ways])


def _too_little(problem: CorridorProblem, highest: float) -> str:
    lacks = problem.floor - highest
    text = f"the most that can be drawn is {_watts(highest)}: lower the lower bound by {_watts(lacks)}"
    ways = []
    idle = problem.nodes - sum(part.sizes[-1] for part in problem.parts)
    growing = [
        ((part.power.least - problem.idle) * idle, part.id, part.sizes[-1])
        for part in problem.parts
        if part.power.least > problem.idle
    ]
    if growing and idle > 0:
        added, job, most = max(growing)
        ways.append(f"let {job} run on more than {count_nodes(most)} (adds up to {_watts(added)})")
    if idle > 0:
        per_node = problem.idle + lacks / idle
        ways.append(f"start a job that draws {_watts(per_node)} per node on the {count_nodes(idle, 'idle')}")
    else:
        ways.append("start a job that draws more per node than those that run")
    return ", or ".join([text, *ways])


def _between(problem: CorridorProblem, answer: Distribution) -> str:
    width = problem.ceiling - problem.floor
    text = f"no distribution hits the {_watts(width)} of the corridor"
    spread = answer.power.most - answer.power.least
    if spread > width:
        text += f" (least and most power are {_watts(spread)} apart)"
    else:
        powers = {part.power.most for part in problem.parts if len(part.sizes) > 1}
        step = common_step(np.array([problem.idle, *powers]))
        if step > width:
            text += f" (whole nodes change power in steps of {_watts(step)})"
    is_below = answer.power.least < problem.floor
    bound, way = ("lower", "down") if is_below else ("upper", "up")
    return f"{text}: move the {bound} bound {way} by {_watts(answer.outside)}"
