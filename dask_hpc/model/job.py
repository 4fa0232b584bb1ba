"""A job: a named piece of work with a size range."""

from dataclasses import dataclass
from math import inf, isnan
from typing import Literal, get_args

from dask_hpc.model.constraint import CONSTRAINTS, Constraint, is_legal
from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.speedup import Speedup

Kind = Literal["rigid", "moldable", "malleable", "evolving"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a decision may know about a job. Its true runtime is not among it.

    ``nodes`` is the start size; ``min_nodes`` and ``max_nodes`` default to it. ``walltime`` is the
    user's limit in seconds; ``power_per_node`` is in watts; ``value`` and ``deadline`` are for
    strategies that weigh jobs against each other.
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
    power_per_node: float = 0.0
    value: float | None = None
    deadline: float | None = None
    user: str = ""
    speedup: Speedup | None = None

    def __post_init__(self) -> None:
        if type(self.nodes) is not int or self.nodes < 1:
            raise InputError(self._where("nodes"), f"found {shown(self.nodes)}", "a whole number >= 1")
        if not self.min_nodes and not self.max_nodes and self.kind == "rigid" and self.constraint == "any":
            object.__setattr__(self, "min_nodes", self.nodes)
            object.__setattr__(self, "max_nodes", self.nodes)
        else:
            self._check_range()
        if not self.walltime > 0:
            raise InputError(self._where("walltime"), f"found {shown(self.walltime)}", "more than 0 s")
        if isnan(self.submitted) or isnan(self.priority) or not self.power_per_node >= 0:
            self._complain_about_numbers()

    def _where(self, field: str) -> str:
        return f"job {shown(self.id)}: {field}"

    def _check_range(self) -> None:
        if self.kind not in KINDS:
            raise InputError(self._where("kind"), f"found {shown(self.kind)}", ", ".join(KINDS))
        if self.constraint not in CONSTRAINTS:
            raise InputError(
                self._where("constraint"), f"found {shown(self.constraint)}", ", ".join(CONSTRAINTS)
            )
        for field in ("min_nodes", "max_nodes"):
            if getattr(self, field) in (0, None):
                object.__setattr__(self, field, self.nodes)
            if type(getattr(self, field)) is not int:
                raise InputError(
                    self._where(field),
                    f"found {shown(getattr(self, field))}",
                    "a whole number >= 1",
                )
        if not 1 <= self.min_nodes <= self.nodes:
            allowed = f"1 to nodes={self.nodes}"
            raise InputError(self._where("min_nodes"), f"found {shown(self.min_nodes)}", allowed)
        if self.max_nodes < self.nodes:
            allowed = f"nodes={self.nodes} or more"
            raise InputError(self._where("max_nodes"), f"found {shown(self.max_nodes)}", allowed)
        if self.kind == "rigid" and self.min_nodes != self.max_nodes:
            raise InputError(
                self._where("kind"),
                f"a rigid job has one size, found {self.min_nodes} to {self.max_nodes}",
                "moldable, malleable or evolving for a range",
            )
        if not is_legal(self.constraint, self.nodes):
            raise InputError(self._where("nodes"), f"found {self.nodes}", f"a size that is {self.constraint}")

    def _complain_about_numbers(self) -> None:
        for field in ("submitted", "priority", "power_per_node"):
            value = getattr(self, field)
            if isnan(value) or (field == "power_per_node" and value < 0):
                raise InputError(self._where(field), f"found {shown(value)}", "a number >= 0")

    @property
    def resizable(self) -> bool:
        """Whether its size may change while it runs."""
        return self.kind in ("malleable", "evolving")
