"""A workload: jobs with what only the simulator knows of them, in order of submission."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.job import Job


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job and its true runtime in seconds on its start nodes, which no strategy may see."""

    job: Job
    runtime: float

    def __post_init__(self) -> None:
        if not 0 <= self.runtime < float("inf"):
            raise InputError(
                f"job {shown(self.job.id)}: runtime", f"found {shown(self.runtime)}", "0 s or more"
            )


@dataclass(frozen=True, slots=True)
class Workload:
    """Arrivals sorted by submission, and what the source says about its machine."""

    name: str
    arrivals: Sequence[Arrival]
    nodes: int | None = None
    #: what a reader left out or guessed, one line each
    notes: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if any(a.job.submitted > b.job.submitted for a, b in pairwise(self.arrivals)):
            arrivals = sorted(self.arrivals, key=lambda arrival: arrival.job.submitted)
            object.__setattr__(self, "arrivals", arrivals)

    def __iter__(self) -> Iterator[Arrival]:
        return iter(self.arrivals)

    def __len__(self) -> int:
        return len(self.arrivals)


def load_workload(path: str | Path, *, processors: str = "requested", per_node: int = 1) -> Workload:
    """Read a workload file: Standard Workload Format (``.swf``, ``.swf.gz``) or our YAML.

    ``processors`` ("requested" or "used") and ``per_node`` say how SWF's processors become nodes.
    """
    from dask_hpc.simulator.swf import read_swf
    from dask_hpc.simulator.yaml_workload import read_yaml_workload

    path = Path(path)
    name = path.name.lower()
    if name.endswith((".swf", ".swf.gz")):
        return read_swf(path, processors=processors, per_node=per_node)
    if name.endswith((".yaml", ".yml")):
        return read_yaml_workload(path)
    raise InputError(shown(str(path)), "unknown kind of workload file", ".swf, .swf.gz, .yaml")
