"""A job: a named piece of work with a size range."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from math import inf, isfinite, isnan
from typing import Any, Literal, get_args

from dask_hpc.model.errors import InputError, insist, shown, within
from dask_hpc.model.power import PowerRange
from dask_hpc.model.speedup import CONSTRAINTS, Constraint, IoDemand, Speedup, is_legal

Kind = Literal["rigid", "moldable", "malleable", "evolving"]
KINDS: tuple[Kind, ...] = get_args(Kind)
#: those that may have several sizes
_OF_SEVERAL_SIZES = tuple(kind for kind in KINDS if kind != "rigid")
#: nodes that no machine has: who asks for so many has made a mistake
TOO_MANY = 2**31


def is_over(state: str) -> bool:
    """Whether a job of which that is told has ended, however: done, failed, cancelled, or in simulations also
    killed and so on."""
    return state not in ("running", "waiting", "unknown")


#: asked one by one only when something is wrong: a replay makes a million jobs
_CHECKS: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("id", lambda v: type(v) is str and v != "", "a name"),
    ("walltime", lambda v: v > 0, "more than 0 s"),
    ("submitted", isfinite, "a finite number of seconds"),
    ("priority", lambda v: not isnan(v), "a number"),
    ("value", lambda v: v is None or 0 <= v < inf, "0 or more, or nothing"),
    ("deadline", lambda v: v is None or not isnan(v), "a number of seconds, or nothing"),
    ("soft_deadline", lambda v: v is None or not isnan(v), "a number of seconds, or nothing"),
    ("recorded", lambda v: v is None or v > 0, "more than 0 s, or nothing"),
    ("memory", lambda v: v is None or 0 < v < inf, "more than 0 B, or nothing"),
    ("messages", lambda v: 0 <= v <= 1, "a share of its time, 0 to 1"),
    ("traffic", lambda v: v is None or 0 <= v < inf, "0 B/s or more, or nothing"),
    ("user", lambda v: type(v) is str, "a name"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a decision may know about a job. Its true runtime is not among it.

    ``nodes`` is the start size; ``min_nodes`` and ``max_nodes`` default to it. ``walltime`` is the
    user's limit in seconds; ``power`` is that of one node that works for it; ``value`` is what it is worth if
    it ends by its ``soft_deadline``, and it is worth nothing after its ``deadline``, both times in seconds
    (see ``worth``); ``io_intensity`` is for strategies that watch the shared file system. ``recorded`` is how
    many seconds such jobs have taken on the start nodes before: a body knows it, from a history or from what
    it simulates; no user says it. One that ``commits`` goes on from its last commit when it is stopped, on
    whatever size it is started again. What it has to keep for that are ``memory`` bytes on each node, and a
    share of its time goes into ``messages``: for strategies that reckon with failures. ``traffic`` is what
    each of its nodes sends to the others of it, all alike, in bytes per second while nothing keeps it from
    working; None: nobody knows. The tasks of one that is ``impure`` do more than to give results, and never
    run twice at a time.
    """

    id: str
    nodes: int
    kind: Kind = "rigid"
    min_nodes: int = 0
    max_nodes: int = 0
    constraint: Constraint = "any"
    walltime: float = inf
    submitted: float = 0.0
    priority: float = 0.0
    power: PowerRange | None = None
    value: float | None = None
    deadline: float | None = None
    soft_deadline: float | None = None
    user: str = ""
    speedup: Speedup | None = None
    io_intensity: IoDemand | None = None
    recorded: float | None = None
    commits: bool = False
    memory: float | None = None
    messages: float = 0.0
    traffic: float | None = None
    impure: bool = False

    def __post_init__(self) -> None:
        if type(self.nodes) is not int or not 1 <= self.nodes < TOO_MANY:
            self._insist(False, "nodes", f"a whole number from 1 to {TOO_MANY - 1:,}")
        if not self.min_nodes and not self.max_nodes and self.kind == "rigid" and self.constraint == "any":
            object.__setattr__(self, "min_nodes", self.nodes)
            object.__setattr__(self, "max_nodes", self.nodes)
        else:
            self._check_range()
        try:
            fine = (
                self.walltime > 0
                and isfinite(self.submitted)
                and not isnan(self.priority)
                and (self.value is None or 0 <= self.value < inf)
                and (self.deadline is None or not isnan(self.deadline))
                and (self.soft_deadline is None or not isnan(self.soft_deadline))
                and (self.recorded is None or self.recorded > 0)
                and (self.memory is None or 0 < self.memory < inf)
                and 0 <= self.messages <= 1
                and (self.traffic is None or 0 <= self.traffic < inf)
            )
        except (ArithmeticError, TypeError, ValueError):
            fine = False
        if not fine or type(self.id) is not str or type(self.user) is not str or not self.id:
            self._complain()
        if self.deadline is not None or self.soft_deadline is not None:
            self._check_deadlines()
        if self.power is not None and type(self.power) is not PowerRange:
            with within(self._where("power")):
                object.__setattr__(self, "power", PowerRange.read(self.power))
        if self.speedup is not None:
            self._insist(isinstance(self.speedup, Speedup), "speedup", "a speed-up model")
        if self.io_intensity is not None:
            self._insist(isinstance(self.io_intensity, IoDemand), "io_intensity", "an IoDemand")

    def _where(self, field: str) -> str:
        return f"job {shown(self.id)}: {field}"

    def _insist(self, is_fine: bool, field: str, allowed: str) -> None:
        if not is_fine:  # a picture of the name takes longer than all checks
            insist(False, self._where(field), getattr(self, field), allowed)

    def _check_range(self) -> None:
        low, high = self.min_nodes, self.max_nodes
        fine = type(low) is int and type(high) is int and 1 <= low <= self.nodes <= high
        if fine and self.constraint == "any" and self.kind in _OF_SEVERAL_SIZES:
            return
        self._insist(self.kind in KINDS, "kind", ", ".join(KINDS))
        self._insist(self.constraint in CONSTRAINTS, "constraint", ", ".join(CONSTRAINTS))
        for field in ("min_nodes", "max_nodes"):
            if getattr(self, field) in (0, None):
                object.__setattr__(self, field, self.nodes)
            self._insist(type(getattr(self, field)) is int, field, "a whole number >= 1")
        self._insist(1 <= self.min_nodes <= self.nodes, "min_nodes", f"1 to nodes={self.nodes}")
        self._insist(self.max_nodes >= self.nodes, "max_nodes", f"nodes={self.nodes} or more")
        if self.kind == "rigid" and self.min_nodes != self.max_nodes:
            raise InputError(
                self._where("kind"),
                f"a rigid job has one size, found {self.min_nodes} to {self.max_nodes}",
                "moldable, malleable or evolving for a range",
            )
        self._insist(is_legal(self.constraint, self.nodes), "nodes", f"a size that is {self.constraint}")

    def _check_deadlines(self) -> None:
        for field in ("deadline", "soft_deadline"):
            if (time := getattr(self, field)) is not None:
                self._insist(
                    time > self.submitted, field, f"later than its submission at {self.submitted:g} s"
                )
        if self.deadline is not None and self.soft_deadline is not None:
            fine = self.soft_deadline <= self.deadline
            self._insist(fine, "soft_deadline", f"no later than its deadline at {self.deadline:g} s")

    def _complain(self) -> None:
        for field, check, allowed in _CHECKS:
            fine = False
            with suppress(ArithmeticError, TypeError, ValueError):
                fine = check(getattr(self, field))
            self._insist(fine, field, allowed)

    @property
    def resizable(self) -> bool:
        """Whether its size may change while it runs."""
        return self.kind in ("malleable", "evolving")

    @property
    def restarts(self) -> bool:
        """Whether its size may change by stopping it and starting it again."""
        return self.kind == "moldable" and self.commits

    @property
    def moldable(self) -> bool:
        """Whether it may start on another size than its own, if a policy likes."""
        return self.kind in ("moldable", "malleable")

    def walltime_on(self, nodes: int) -> float:
        """The walltime, which was meant for the start size, on another number of nodes."""
        return self.walltime if nodes == self.nodes else self.walltime * stretch(self, self.nodes, nodes)

    def recorded_on(self, nodes: int) -> float:
        """How long it is expected to take on so many nodes: as recorded, else as its walltime allows."""
        if self.recorded is None:
            return self.walltime_on(nodes)
        return self.recorded if nodes == self.nodes else self.recorded * stretch(self, self.nodes, nodes)


#: of a job's value that is left at its deadline
_LEFT = 0.4


def worth(job: Job, end: float, default: float | None = None) -> float:
    """What a job is worth that ends then; seed 003, section 4.7.5, equations 4.40 to 4.42.

    All of its value until its soft deadline, from there on less and less, two fifths at its deadline, and
    nothing after that. One without a soft deadline keeps all of it until the deadline, one without a deadline
    for ever. ``default`` is the value of one that says none.
    """
    value = default if job.value is None else job.value
    if value is None or (job.deadline is not None and end > job.deadline):
        return 0.0
    soft, hard = job.soft_deadline, job.deadline
    if soft is None or hard is None or end <= soft:
        return value
    return value * (1.0 - (1.0 - _LEFT) * (end - soft) / (hard - soft))


def stretch(job: Job, before: int, after: int) -> float:
    """How many times longer the same work takes on ``after`` nodes than on ``before``."""
    if job.speedup is None:
        return before / after
    return job.speedup.factor(before) / job.speedup.factor(after)


def runs(numbers: Iterable[int]) -> list[list[int]]:
    """From the smallest to the largest."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number <= found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found
