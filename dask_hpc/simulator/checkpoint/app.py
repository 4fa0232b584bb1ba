"""What commits: an application, as far as checkpoints are concerned (000, 8.2.3.1)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Literal

from dask_hpc.model.errors import InputError, shown
from dask_hpc.strategies.agents.rule import AgentRule

#: who hands its part of a commit over: each process for itself, or one for all of a node (000, 6.2)
Way = Literal["mr", "shmr"]
#: as many agents all the time, on the nodes with the least traffic
FIXED = AgentRule(count="fixed", resize="rigid", rank="bandwidth", per_node=64)


@dataclass(frozen=True, slots=True)
class Resize:
    """After so many commits it has so many nodes, and so many bytes to commit."""

    after: int
    nodes: int
    nbytes: float


@dataclass(frozen=True, slots=True)
class App:
    """It computes ``interval`` seconds, commits ``nbytes``, and so on until it has made all its commits or
    ``until`` is over. Every ``probe_every`` seconds it asks whether its agents should change."""

    name: str
    nodes: int
    nbytes: float
    interval: float
    commits: int = 10**9
    start: float = 0.0
    until: float = inf
    processes: int = 1
    way: Way = "shmr"
    asynchronous: bool = False
    agents: int = 1
    #: how that number follows commits and resizes, and where agents run: the strategy of a policy
    rule: AgentRule = field(default_factory=lambda: FIXED)
    resizes: tuple[Resize, ...] = ()
    probe_every: float = inf
    #: asked for by hand at these times: so many agents from the next commit on
    changes: tuple[tuple[float, int], ...] = ()
    #: only these nodes may have its agents; none: all
    allowed: tuple[str, ...] = ()
    #: in how many reads an agent fetches the part of one node, by the number of commits since the last resize
    reads: Callable[[int], int] | None = None
    #: each interval is this share longer or shorter at most, at random
    spread: float = 0.0

    def __post_init__(self) -> None:
        for name in ("nodes", "processes", "agents"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise InputError(f"app {shown(self.name)}: {name}", f"found {shown(value)}", "1 or more")
        for name in ("nbytes", "interval", "start", "spread"):
            value = getattr(self, name)
            if not 0 <= value < inf:
                raise InputError(f"app {shown(self.name)}: {name}", f"found {shown(value)}", "0 or more")
        if not self.interval and self.commits >= 10**9 and self.until == inf:
            raise InputError(f"app {shown(self.name)}", "never ends", "commits, or until")
