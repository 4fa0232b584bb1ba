"""A workload: jobs with what only the simulator knows of them, in order of submission."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any, Literal, get_args

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.job import Job
from dask_hpc.model.safe_yaml import check_keys
from dask_hpc.model.speedup import Linear, Speedup
from dask_hpc.model.units import parse_duration, parse_quantity
from dask_hpc.simulator.application import Application
from dask_hpc.simulator.in_situ.run import Pipeline
from dask_hpc.simulator.platform import Platform

LevelName = Literal["partner", "store"]
_LEVELS: tuple[LevelName, ...] = get_args(LevelName)
Rule = Literal["auto", "young", "daly"]
_RULES: tuple[Rule, ...] = get_args(Rule)
_KEYS = ("bytes", "every", "levels", "asynchronous")
_EVERY = f"a time more than 0 s, {', '.join(_RULES)}"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """``nbytes`` of the whole job, ``every`` so many seconds of work, or by a rule. If it is not
    ``asynchronous`` the job stands still meanwhile."""

    nbytes: float
    every: float | Rule = "auto"
    levels: tuple[LevelName, ...] = ("store",)
    asynchronous: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.nbytes < inf:
            raise InputError("bytes", f"found {shown(self.nbytes)}", "0 B or more")
        known = self.every in _RULES if isinstance(self.every, str) else self.every > 0
        if not known:
            raise InputError("every", f"found {shown(self.every)}", _EVERY)
        if list(self.levels) not in ([one for one in _LEVELS if one in some] for some in _CHOICES):
            raise InputError(
                "levels", f"found {shown(list(self.levels))}", "partner, store, or both in this order"
            )


_CHOICES = ({"partner"}, {"store"}, {"partner", "store"})


def read_checkpoint(found: Any) -> Checkpoint:
    """From a mapping; complaints name the key."""
    check_keys(found, _KEYS, "")
    if "bytes" not in found:
        raise InputError("bytes", "is missing", ", ".join(_KEYS))
    values: dict[str, Any] = {}
    try:
        values["nbytes"] = parse_quantity(found["bytes"], "B")
    except InputError as error:
        raise error.at("bytes") from None
    if "every" in found:
        values["every"] = _every(found["every"])
    if "levels" in found:
        levels = found["levels"]
        if not isinstance(levels, list) or not all(isinstance(level, str) for level in levels):
            raise InputError("levels", f"found {shown(levels)}", "a list of partner, store")
        values["levels"] = tuple(levels)
    if "asynchronous" in found:
        if not isinstance(found["asynchronous"], bool):
            raise InputError("asynchronous", f"found {shown(found['asynchronous'])}", "true, false")
        values["asynchronous"] = found["asynchronous"]
    return Checkpoint(**values)


def _every(value: Any) -> float | str:
    if value in _RULES:
        return str(value)
    try:
        return parse_duration(value)
    except InputError:
        raise InputError("every", f"found {shown(value)}", _EVERY) from None


_LINEAR = Linear()


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job and what only the simulator knows of it.

    ``runtime`` is in seconds on the job's start nodes; on other sizes ``speedup`` says how long the same
    work takes (linear by default). An ``application`` says what the job does in detail, phase by phase or
    as an in situ pipeline; then ``runtime`` is only what a reader guessed, or 0. ``requests`` are an
    evolving job's wishes: ``(share of its work done, nodes)``. ``data`` bytes move when the size changes.
    ``cancelled`` is when its owner gives up. With a ``checkpoint`` it commits, and goes on from its last
    commit when a node of its fails or it is stopped.
    """

    job: Job
    runtime: float
    speedup: Speedup = _LINEAR
    application: Application | Pipeline | None = None
    requests: tuple[tuple[float, int], ...] = ()
    data: float = 0.0
    cancelled: float = inf
    checkpoint: Checkpoint | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.runtime < inf:
            raise InputError(
                f"job {shown(self.job.id)}: runtime", f"found {shown(self.runtime)}", "0 s or more"
            )
        if self.checkpoint is not None and isinstance(self.application, Pipeline):
            raise InputError(
                f"job {shown(self.job.id)}: checkpoint", "the job has a pipeline", "either of them"
            )


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


def load_workload(path: str | Path, *, processors: str = "requested", per_node: int = 1) -> Workload:
    """Read a workload: Standard Workload Format (``.swf``, ``.swf.gz``), our YAML, ElastiSim's ``.json``
    (a configuration or a jobs file), or a built-in one by name (``builtin:esp?malleable=0.5``).

    ``processors`` ("requested" or "used") and ``per_node`` say how SWF's processors become nodes.
    """
    # Readers know Workload, so they cannot be imported above it.
    from dask_hpc.simulator.readers.elastisim import load_elastisim
    from dask_hpc.simulator.readers.swf import read_swf
    from dask_hpc.simulator.readers.yaml_workload import read_yaml_workload
    from dask_hpc.simulator.workloads import PREFIX, parse_built_in

    if str(path).startswith(PREFIX):
        return parse_built_in(str(path))
    path = Path(path)
    name = path.name.lower()
    if name.endswith((".swf", ".swf.gz")):
        return read_swf(path, processors=processors, per_node=per_node)
    if name.endswith((".yaml", ".yml")):
        return read_yaml_workload(path)
    if name.endswith(".json"):
        return load_elastisim(path)
    raise InputError(
        shown(str(path)), "unknown kind of workload file", ".swf, .swf.gz, .yaml, .json, builtin:NAME"
    )


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
