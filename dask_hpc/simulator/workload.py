"""A workload: jobs with what only the simulator knows of them, in order of submission.

``malleable_overlay`` asks of a rigid one: what if a share of these jobs could change size? Which jobs are
chosen depends on the seed alone, and shares are nested: the jobs malleable at 20 % are among those at 50 %,
so that a sweep compares like with like.
"""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from math import ceil, floor, inf, isfinite, nan
from typing import Any, Literal, get_args

from dask_hpc.model.errors import InputError, insist, is_number, shown
from dask_hpc.model.job import Job
from dask_hpc.model.safe_yaml import nearest
from dask_hpc.model.speedup import (
    CONSTRAINTS,
    Constraint,
    Linear,
    Speedup,
    is_legal,
    largest_legal,
    smallest_legal,
)
from dask_hpc.model.units import parse_duration, parse_quantity
from dask_hpc.simulator.application import Application
from dask_hpc.simulator.in_situ import Pipeline
from dask_hpc.simulator.platform import Platform
from dask_hpc.simulator.swing import Swing
from dask_hpc.simulator.values import Readers, as_it_is, flag, list_of, read_values

LevelName = Literal["partner", "store"]
Rule = Literal["auto", "young", "daly"]
_RULES: tuple[Rule, ...] = get_args(Rule)
_EVERY = f"a time more than 0 s, {', '.join(_RULES)}"


@dataclass(frozen=True, slots=True)
class DeclaredCheckpoint:
    """``nbytes`` of the whole job, ``every`` so many seconds of work, or by a rule. If it is not
    ``asynchronous`` the job stands still meanwhile."""

    nbytes: float
    every: float | Rule = "auto"
    levels: tuple[LevelName, ...] = ("store",)
    asynchronous: bool = True

    def __post_init__(self) -> None:
        insist(0 <= self.nbytes < inf, "bytes", self.nbytes, "0 B or more")
        known = self.every in _RULES if isinstance(self.every, str) else self.every > 0
        insist(known, "every", self.every, _EVERY)
        known = tuple(self.levels) in (("partner",), ("store",), ("partner", "store"))
        insist(known, "levels", list(self.levels), "partner, store, or both in this order")

    @classmethod
    def read(cls, found: Any) -> "DeclaredCheckpoint":
        """From a mapping; complaints name the key."""
        values = read_values(found, _CHECKPOINT)
        if "bytes" not in values:
            raise InputError("bytes", "is missing", ", ".join(_CHECKPOINT))
        return cls(values.pop("bytes"), **values)


def _every(value: Any) -> float | str:
    if value in _RULES:
        return str(value)
    try:
        return parse_duration(value)
    except InputError:
        raise InputError("", f"found {shown(value)}", _EVERY) from None


_CHECKPOINT: Readers = {
    "bytes": partial(parse_quantity, unit="B"),
    "every": _every,
    "levels": list_of(as_it_is, "a list of partner, store"),
    "asynchronous": flag,
}
_LINEAR = Linear()


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job and what only the simulator knows of it.

    ``runtime`` is in seconds on the job's start nodes; on other sizes ``speedup`` says how long the same
    work takes (linear by default). An ``application`` says what the job does in detail, phase by phase or
    as an in situ pipeline; then ``runtime`` is only what a reader guessed, or 0. ``requests`` are an
    evolving job's wishes: ``(share of its work done, nodes)``. ``data`` bytes move when the size changes.
    ``cancelled`` is when its owner gives up. With a ``checkpoint`` it commits, and goes on from its last
    commit when a node of its fails or it is stopped. One that ``overstays`` is not killed at its walltime,
    as on a live cluster: it is what the job takes undisturbed. With a ``swing`` the power of its nodes moves
    in the range that the job says; without one it stays in the middle.
    """

    job: Job
    runtime: float
    speedup: Speedup = _LINEAR
    application: Application | Pipeline | None = None
    requests: tuple[tuple[float, int], ...] = ()
    data: float = 0.0
    cancelled: float = inf
    checkpoint: DeclaredCheckpoint | None = None
    swing: Swing | None = None
    overstays: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.runtime < inf:
            where = f"job {shown(self.job.id)}: runtime"
            raise InputError(where, f"found {shown(self.runtime)}", "0 s or more")
        if self.checkpoint is not None and isinstance(self.application, Pipeline):
            where = f"job {shown(self.job.id)}: checkpoint"
            raise InputError(where, "the job has a pipeline", "either of them")
        if self.swing is not None and self.job.power is None:
            where = f"job {shown(self.job.id)}: swing"
            raise InputError(where, "the job does not say its power", "power: [LEAST, MOST] beside it")
        if self.checkpoint is not None and self.job.kind == "moldable" and not self.job.commits:
            object.__setattr__(self, "job", replace(self.job, commits=True))

    @property
    def limit(self) -> float:
        """Seconds on its start nodes after which it is killed."""
        return inf if self.overstays else self.job.walltime

    @property
    def alone(self) -> float:
        """Seconds on its start nodes with nothing in its way; nan if an application says what it does."""
        return nan if self.application is not None else min(self.runtime, self.limit)


@dataclass(frozen=True, slots=True)
class Workload:
    """Arrivals sorted by submission, and what the source says about its machine: the number of its nodes,
    or all of it (``nodes`` is then the platform's)."""

    name: str
    arrivals: Sequence[Arrival]
    nodes: int | None = None
    #: what a reader left out or guessed, one line each
    notes: tuple[str, ...] = field(default=(), compare=False)
    platform: Platform | None = None

    def __post_init__(self) -> None:
        if self.platform is not None and self.nodes != self.platform.nodes:
            if self.nodes is not None:
                raise InputError("nodes", f"found {self.nodes} and a platform of {self.platform.nodes}")
            object.__setattr__(self, "nodes", self.platform.nodes)
        if any(a.job.submitted > b.job.submitted for a, b in pairwise(self.arrivals)):
            arrivals = sorted(self.arrivals, key=lambda arrival: arrival.job.submitted)
            object.__setattr__(self, "arrivals", arrivals)

    def __iter__(self) -> Iterator[Arrival]:
        return iter(self.arrivals)

    def __len__(self) -> int:
        return len(self.arrivals)


def platform_for(workload: object, nodes: int | None, platform: Platform | None) -> Platform:
    """The machine to play a workload on: as the caller says, else as the workload does."""
    name = "the workload"
    if isinstance(workload, Workload):
        name = workload.name
        platform = platform or workload.platform
        if nodes is None and platform is None:
            nodes = workload.nodes
    if nodes is not None:
        return replace(platform, nodes=nodes) if platform else Platform(nodes)
    if platform is None:
        raise InputError("nodes", f"{name} does not say how many nodes its machine has", "nodes=N")
    return platform


#: a job and the nodes of the machine -> fewest and most nodes it might use
Range = Callable[[Job, int], tuple[int, int]]

#: ready-made rules; every range is then narrowed to sizes that the job's constraint allows
RULES: dict[str, Range] = {
    "constraint": lambda job, machine: (1, machine),
    "wide": lambda job, machine: (1, machine),
    "half-double": lambda job, machine: (ceil(job.nodes / 2), 2 * job.nodes),
    "shrink-only": lambda job, machine: (1, job.nodes),
    "grow-only": lambda job, machine: (job.nodes, machine),
}
_FACTORS = re.compile(r"([0-9.]+):([0-9.]+)", re.ASCII)


def malleable_overlay(
    workload: Workload,
    share: float = 0.5,
    seed: int = 0,
    rule: str | tuple[float, float] | Range = "constraint",
    speedup: Speedup | Callable[[Job], Speedup] | None = None,
    *,
    constraint: Constraint | Callable[[Job], Constraint] | None = None,
    nodes: int | None = None,
) -> Workload:
    """The same workload with a share of its rigid jobs made malleable.

    ``rule`` says between which sizes: a name out of ``RULES``, two factors of the start size (``(0.5,
    4)`` or ``"0.5:4"``), or any function. ``speedup`` holds for the chosen jobs (unchanged by default);
    ``constraint`` too, for those whose start size it allows; either may be a function of the job. Start
    sizes, runtimes and walltimes stay: a walltime is meant for the start size. ``nodes`` is the machine, if
    the workload does not say.
    """
    insist(is_number(share, 0, 1), "share", share, "0 to 1")
    insist(type(seed) is int, "seed", seed, "a whole number")
    if not callable(constraint):
        insist(constraint in (None, *CONSTRAINTS), "constraint", constraint, ", ".join(CONSTRAINTS))
    machine = platform_for(workload, nodes, None).nodes
    sizes = _rule(rule)
    rigid = [at for at, arrival in enumerate(workload) if arrival.job.kind == "rigid"]
    random.Random(seed).shuffle(rigid)
    arrivals = list(workload)
    for at in rigid[: round(share * len(rigid))]:
        job = arrivals[at].job
        law = speedup(job) if callable(speedup) else speedup
        legal = constraint(job) if callable(constraint) else constraint
        arrivals[at] = _malleable(arrivals[at], sizes, machine, law, legal)
    return replace(workload, arrivals=arrivals)


def _rule(rule: str | tuple[float, float] | Range) -> Range:
    if callable(rule):
        return rule
    if isinstance(rule, str):
        if rule in RULES:
            return RULES[rule]
        match = _FACTORS.fullmatch(rule)
        with suppress(ValueError):
            rule = (float(match[1]), float(match[2])) if match else rule
    if isinstance(rule, tuple) and len(rule) == 2:
        low, high = rule
        fits = is_number(low, 0, 1) and is_number(high, 1, inf) and isfinite(high)
        insist(fits, "rule", rule, "a factor from 0 to 1 and one of 1 or more")
        return lambda job, machine: (ceil(low * job.nodes), floor(high * job.nodes))
    allowed = ", ".join(RULES) + ", or two factors such as 0.5:4"
    raise InputError("rule", f"found {shown(rule)}{nearest(rule, RULES)}", allowed)


def _malleable(
    arrival: Arrival, sizes: Range, machine: int, speedup: Speedup | None, constraint: Constraint | None
) -> Arrival:
    job = arrival.job
    if constraint is None or not is_legal(constraint, job.nodes):
        constraint = job.constraint
    low, high = sizes(job, machine)
    # a job larger than the machine stays what it is: the body rejects it
    low, high = min(max(low, 1), job.nodes), max(min(high, machine), job.nodes)
    changed = replace(
        job,
        kind="malleable",
        constraint=constraint,
        min_nodes=smallest_legal(constraint, low, job.nodes) or job.nodes,
        max_nodes=largest_legal(constraint, job.nodes, high) or job.nodes,
        speedup=speedup or job.speedup,
    )
    return replace(arrival, job=changed, speedup=speedup or arrival.speedup)
