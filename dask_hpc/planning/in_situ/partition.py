"""Nodes, cores and analyses of an in situ pipeline: what is to be divided, and how it was divided.

Seed 004, chapter 3: a simulation is iterated on nodes that are all alike, analyses look at each iteration.
Some nodes run the simulation and, on helper cores, the analyses in situ; the others stage the analyses in
transit. Ours: a share of an analysis may not spread over cores, and it need not move all that it looks at.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import inf
from typing import Any, Literal, NamedTuple, TypedDict, cast

from dask_hpc.model.errors import InputError, insist, is_number, shown

#: analyses of an iteration run beside the next one ("async"), or the simulation waits for those in situ
Mode = Literal["async", "sync"]
MODES: tuple[str, ...] = ("async", "sync")


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualNodes:
    """Nodes that are all alike: how many, cores and bytes of memory of each, and bytes per second that each
    can send or receive."""

    count: int
    cores: int
    memory: float = inf
    bandwidth: float = inf

    def __post_init__(self) -> None:
        for name in ("count", "cores"):
            value = getattr(self, name)
            fine = isinstance(value, int) and not isinstance(value, bool) and value >= 1
            insist(fine, f"nodes.{name}", value, "a whole number from 1")
        for name in ("memory", "bandwidth"):
            value = getattr(self, name)
            insist(is_number(value, 0, inf) and value != 0, f"nodes.{name}", value, "more than 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """One iteration of the simulation: seconds on a single core, bytes at its peak over all nodes, and the
    share of its time that no further core makes shorter (Amdahl)."""

    time: float
    memory: float = 0.0
    serial: float = 0.0

    def __post_init__(self) -> None:
        _check_costs(self, "simulation", ("time", "memory"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """One analysis of one iteration: seconds on a single core, bytes at its peak, and what it costs in
    transit: the bytes that have to be moved (the source's model: as many as its peak)."""

    name: str
    time: float
    memory: float = 0.0
    moved: float | None = None
    serial: float = 0.0

    def __post_init__(self) -> None:
        fine = isinstance(self.name, str) and self.name != "" and self.name.isprintable()
        insist(fine, "analyses.name", self.name, "a name")
        costs = ("time", "memory") if self.moved is None else ("time", "memory", "moved")
        _check_costs(self, f"analysis {self.name}", costs)

    @property
    def volume(self) -> float:
        """Bytes that go to the staging nodes if it runs there."""
        return self.memory if self.moved is None else self.moved


@dataclass(frozen=True, slots=True)
class PartitionProblem:
    """What is to be divided."""

    nodes: EqualNodes
    simulation: Simulation
    analyses: tuple[Analysis, ...]
    mode: Mode = "async"

    def __post_init__(self) -> None:
        insist(self.mode in MODES, "mode", self.mode, ", ".join(MODES))
        names = [one.name for one in self.analyses]
        if twice := {name for name in names if names.count(name) > 1}:
            raise InputError("analyses", f"found {shown(min(twice))} more than once", "each name once")


class Phases(NamedTuple):
    """Seconds that one iteration takes in each part of the machine."""

    simulation: float
    in_situ: float
    in_transit: float

    def iteration(self, mode: Mode) -> float:
        """Seconds from one iteration to the next, once the pipeline is full."""
        before = self.simulation + self.in_situ if mode == "sync" else max(self.simulation, self.in_situ)
        return max(before, self.in_transit)


@dataclass(frozen=True, slots=True)
class Partition:
    """Who runs where: so many nodes run the simulation, so many cores of each of them are helper cores, and
    the other nodes stage. Fractions of nodes and cores are those of a relaxed problem."""

    mode: Mode
    nodes: float
    helper_cores: float
    in_situ: tuple[str, ...]
    in_transit: tuple[str, ...]
    phases: Phases
    #: what of it is beyond what was asked, in words; empty if it fits
    warning: str = ""

    @property
    def iteration(self) -> float:
        """Seconds from one iteration to the next that were planned."""
        return self.phases.iteration(self.mode)

    def runs_like(self, other: "Partition | None") -> bool:
        """Whether nothing would be done differently."""
        mine, its = ((p.mode, p.nodes, p.helper_cores, {*p.in_situ}) for p in (self, other or self))
        return other is not None and mine == its


@dataclass(frozen=True, slots=True)
class PipelineView:
    """What may be known of a pipeline between two of its iterations."""

    #: name of the pipeline, for the story
    name: str
    #: how many iterations are done, and how many are to come (inf: nobody knows)
    done: int
    left: float
    #: the nodes that it has now, and its parts as they were measured last (as declared, before)
    problem: PartitionProblem
    #: in force; None before the first
    partition: Partition | None = None
    #: measured: one of the last iterations (a median)
    phases: Phases | None = None
    #: how many iterations were measured since the partition came into force
    measured: int = 0
    #: seconds that changing the partition is expected to cost
    change_cost: float = 0.0


@dataclass(frozen=True, slots=True)
class Placement:
    """From the next iteration on, a pipeline's simulation and analyses run where this partition says."""

    pipeline: str
    partition: Partition
    reason: str


def _check_costs(one: Any, where: str, names: tuple[str, ...]) -> None:
    for name in names:
        value = getattr(one, name)
        insist(is_number(value, 0, inf) and value != inf, f"{where}.{name}", value, "0 or more")
    insist(is_number(one.serial, 0, 1), f"{where}.serial", one.serial, "0 to 1")


class PartitionStatus(TypedDict):
    """A partition; ``planned`` are seconds of each part, ``expected`` those until the next iteration."""

    mode: str
    nodes: float
    helper_cores: float
    in_situ: list[str]
    in_transit: list[str]
    planned: dict[str, float]
    expected: float
    warning: str


class IterationStatus(TypedDict):
    """One iteration that is done: seconds until the next, and of each part, measured and planned."""

    iteration: int
    seconds: float
    measured: dict[str, float]
    planned: dict[str, float] | None
    expected: float | None


class ChangeStatus(TypedDict):
    """From this iteration on, another partition."""

    iteration: int
    time: float
    reason: str
    partition: PartitionStatus


class PipelineStatus(TypedDict):
    """One pipeline. ``iterations`` is how many there will be (None: nobody knows), ``history`` and
    ``changes`` are the newest ones, oldest first, and ``skipped`` says of each analysis how many iterations
    it did not look at, and which ones those were last."""

    name: str
    #: "running", "done" or "failed"
    state: str
    job: str | None
    #: how many iterations are done
    iteration: int
    iterations: int | None
    #: nodes that it has, those that simulate first, and cores of each of them
    nodes: list[str]
    cores: int
    analyses: list[str]
    when_slow: str
    partition: PartitionStatus | None
    history: list[IterationStatus]
    changes: list[ChangeStatus]
    #: how often another partition came into force, including what is forgotten
    changed: int
    skipped: dict[str, "SkippedStatus"]


class SkippedStatus(TypedDict):
    """Iterations that an analysis did not look at: how many, the newest of them, and what was done."""

    count: int
    newest: list[int]
    how: str


def tell_partition(partition: Partition) -> PartitionStatus:
    """A partition as plain data."""
    told: Any = asdict(partition)
    told |= {"in_situ": [*partition.in_situ], "in_transit": [*partition.in_transit]}
    told |= {"planned": told.pop("phases")._asdict(), "expected": partition.iteration}
    return cast(PartitionStatus, told)


def hear_partition(told: Mapping[str, Any]) -> Partition:
    """The partition that was told."""
    return Partition(
        told["mode"],
        told["nodes"],
        told["helper_cores"],
        tuple(told["in_situ"]),
        tuple(told["in_transit"]),
        Phases(**told["planned"]),
        told["warning"],
    )


def tell_iteration(
    number: int, seconds: float, measured: Phases, partition: Partition | None
) -> IterationStatus:
    """An iteration that is done, under the partition that was in force."""
    return {
        "iteration": number,
        "seconds": seconds,
        "measured": measured._asdict(),
        "planned": None if partition is None else partition.phases._asdict(),
        "expected": None if partition is None or partition.iteration == inf else partition.iteration,
    }
