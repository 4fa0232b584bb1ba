"""What if a share of a workload's jobs could change size, or more of them came? For traces and all others.

A trace says nothing of how jobs scale, nor which sizes they could use: an ``Overlay`` says it, the same for
all policies that are compared.
"""

import random
import re
import zlib
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf, log
from typing import Literal, get_args

from dask_hpc.model.errors import InputError, insist, is_number
from dask_hpc.model.job import Job
from dask_hpc.model.speedup import (
    Amdahl,
    Constraint,
    IoDemand,
    IoScaling,
    Linear,
    PowerLaw,
    Speedup,
    is_legal,
)
from dask_hpc.simulator.workload import Arrival, Workload, malleable_overlay, platform_for

Law = Literal["unchanged", "linear", "power", "amdahl", "io", "mixed"]
LAWS: tuple[Law, ...] = get_args(Law)
#: with a number each: of ``n ** x``, or the serial share
_NUMBERED = {"power": PowerLaw, "amdahl": Amdahl}
_LAWS_ALLOWED = ", ".join(LAWS) + ", power:0.8, amdahl:0.05"
_MIXED: tuple[Law, ...] = ("linear", "power", "amdahl", "io")
#: whoever asks for so many nodes uses such a share of them
EFFICIENCY = (0.5, 0.98)
#: share of its time that one reads and writes on the nodes that it asks for, which is as fast as it gets
READS = (0.02, 0.3)
_DRAWN: tuple[Constraint, ...] = ("any", "even", "pof2", "square")
#: a job that asks for fewer nodes scales as if it had asked for so many: nobody knows how one node scales
_LEAST = 8
#: of efficiencies and shares: few laws, which can be kept
_STEPS = 32


@dataclass(frozen=True, slots=True)
class Overlay:
    """A ``malleable`` share of the rigid jobs, which can have sizes by ``rule`` and scale by ``law``; time
    squeezed to a ``load``; the ``first`` so many jobs only.

    Rules are those of ``malleable_overlay``; "wide" is from one to all nodes, under a constraint that each
    job draws out of those that allow its size: any, even, power of two, square. Laws: unchanged (of a trace:
    linear, but nobody says so), linear, power (``n ** x``), amdahl, io (computing scales, and the file system
    is at its end on the nodes asked for), or mixed, a quarter of each. Users are taken to know what they ask
    for: exponents and serial shares are such that a job uses 50 to 98 % of its nodes. Jobs of one user on as
    many nodes have the same law and constraint. ``power:0.8`` and ``amdahl:0.05`` are one law for all.

    If laws are not ``declared`` policies do not know them, only what they measure; as limits then follow
    sizes as if all scaled linearly, those jobs may overstay them.

    ``overrun`` says what becomes of jobs that would run past their walltime: "keep" lets them overstay,
    "kill" ends all that do, None leaves it to the workload.

    ``load`` is node-seconds of the jobs over those of the machine from the first to the last submission.
    """

    malleable: float = 0.0
    rule: str = "half-double"
    law: str = "unchanged"
    load: float | None = None
    first: int | None = None
    declared: bool = True
    overrun: str | None = None

    def __post_init__(self) -> None:
        insist(is_number(self.malleable, 0, 1), "malleable", self.malleable, "0 to 1")
        insist(self.law in LAWS or _numbered(self.law) is not None, "law", self.law, _LAWS_ALLOWED)
        insist(self.overrun in (None, "keep", "kill"), "overrun", self.overrun, "keep, kill")
        if self.load is not None:
            fine = is_number(self.load, 0, 100) and self.load > 0
            insist(fine, "load", self.load, "more than 0, at most 100")
        if self.first is not None:
            insist(type(self.first) is int and self.first >= 1, "first", self.first, "1 or more")

    def over(self, workload: Workload, seed: int = 0, nodes: int | None = None) -> Workload:
        """The same workload with all that. ``seed`` chooses which jobs are malleable; ``nodes`` is the
        machine, if the workload does not say."""
        if self.first is not None:
            workload = replace(workload, arrivals=workload.arrivals[: self.first])
        if self.overrun is not None:
            keeps = self.overrun == "keep"
            kept = [a if a.overstays == keeps else replace(a, overstays=keeps) for a in workload]
            workload = replace(workload, arrivals=kept)
        if self.load is not None:
            workload = squeezed(workload, self.load, nodes)
        workload = malleable_overlay(
            workload,
            self.malleable,
            seed,
            self.rule,
            None if self.law == "unchanged" else self._law,
            constraint=self._constraint if self.rule == "wide" else None,
            nodes=nodes,
        )
        if self.declared or self.law == "unchanged":
            return workload
        return replace(workload, arrivals=[_undeclared(arrival) for arrival in workload])

    @property
    def told(self) -> str:
        """For a person: which jobs can change to which sizes, and how they scale."""
        sizes = _SIZES.get(self.rule, f"{self.rule} times the nodes they ask for")
        law = _SCALING.get(self.law, f"{self.law.replace(':', ' ')} for all of them")
        return (
            f"{self.malleable:.0%} of the rigid jobs are malleable; sizes {self.rule}: {sizes}; "
            f"speed-up {self.law}: {law}"
        )

    def _law(self, job: Job) -> Speedup:
        if (found := _numbered(self.law)) is not None:
            return found
        draw = random.Random(_alike("law", job))
        name = draw.choice(_MIXED) if self.law == "mixed" else self.law
        return _law_of(name, max(job.nodes, _LEAST), draw.randrange(_STEPS))

    def _constraint(self, job: Job) -> Constraint:
        if job.constraint != "any":
            return job.constraint
        draw = random.Random(_alike("constraint", job))
        return draw.choice([one for one in _DRAWN if is_legal(one, job.nodes)])


_SIZES = {
    "constraint": "from 1 node to the whole machine, as the constraint of each allows",
    "wide": "from 1 node to the whole machine, under a constraint drawn for each",
    "half-double": "from half to twice the nodes they ask for",
    "shrink-only": "from 1 node to those they ask for",
    "grow-only": "from the nodes they ask for to the whole machine",
}
_SCALING = {
    "unchanged": "as the workload says, linear where it says nothing",
    "linear": "twice the nodes, half the time",
    "power": "with n ** x, x such that they use 50 to 98 % of the nodes they ask for",
    "amdahl": "with a serial share such that they use 50 to 98 % of the nodes they ask for",
    "io": "computing scales, the file system is at its end on the nodes they ask for",
    "mixed": "a quarter each of linear, power, amdahl and io",
}


@lru_cache(maxsize=100)
def _numbered(law: object) -> Speedup | None:
    """The one law that is written with its number; None if this is none."""
    name, _, text = law.partition(":") if isinstance(law, str) else ("", "", "")
    if name not in _NUMBERED or not re.fullmatch(r"[0-9.]+", text, re.ASCII):
        return None
    try:
        return _NUMBERED[name](float(text))
    except ValueError:
        return None


def _alike(what: str, job: Job) -> int:
    return zlib.crc32(f"{what} {job.user} {job.nodes}".encode())


@lru_cache(maxsize=100_000)
def _law_of(name: str, nodes: int, step: int) -> Speedup:
    at = (step + 0.5) / _STEPS
    low, high = READS if name == "io" else EFFICIENCY
    value = low + (high - low) * at
    if name == "power":
        return PowerLaw(1.0 + log(value) / log(nodes))
    if name == "amdahl":
        return Amdahl((1.0 / value - 1.0) / (nodes - 1))
    if name == "io":
        return IoScaling(IoDemand(compute=1.0 - value, data=value, link=1.0, file_system=float(nodes)))
    return Linear()


def _undeclared(arrival: Arrival) -> Arrival:
    if not arrival.job.resizable:
        return arrival
    return replace(arrival, job=replace(arrival.job, speedup=None), overstays=True)


def offered_load(workload: Workload, nodes: int | None = None) -> float:
    """Node-seconds of the jobs that fit over those of the machine from the first to the last submission; inf
    if all are submitted at once."""
    nodes = platform_for(workload, nodes, None).nodes
    work = sum(a.job.nodes * min(a.runtime, a.limit) for a in workload if a.job.nodes <= nodes)
    if not len(workload):
        return 0.0
    span = workload.arrivals[-1].job.submitted - workload.arrivals[0].job.submitted
    return work / (nodes * span) if span > 0 else inf


def squeezed(workload: Workload, load: float, nodes: int | None = None) -> Workload:
    """The same jobs, sooner or later one after the other, so that they make this load. All gaps change by one
    factor, as is usual with traces: days become shorter or longer, too."""
    found = offered_load(workload, nodes)
    if not 0 < found < inf:
        raise InputError("load", f"{workload.name} has none that could be changed", "jobs at different times")
    factor, begin = found / load, workload.arrivals[0].job.submitted
    return replace(workload, arrivals=[_at(a, begin + (a.job.submitted - begin) * factor) for a in workload])


def _at(arrival: Arrival, time: float) -> Arrival:
    job, later = arrival.job, time - arrival.job.submitted
    dates = [None if date is None else date + later for date in (job.soft_deadline, job.deadline)]
    job = replace(job, submitted=time, soft_deadline=dates[0], deadline=dates[1])
    return replace(arrival, job=job, cancelled=arrival.cancelled + later)
