"""What is known of power at one instant, and what a decision says about it. Watts throughout."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal, NamedTuple, get_args

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.units import parse_quantity, show_bounds

#: how a figure came to be: read from a counter of what it speaks of, derived from a counter of a part of
#: it, or computed from the use of the processor
Source = Literal["measured", "estimated", "modelled"]
SOURCES: tuple[Source, ...] = get_args(Source)  # from the best to the worst

#: what can be done about the power of nodes beside starts and sizes, from the quickest to the slowest
Lever = Literal["hold", "threads", "cap", "release"]


class PowerRange(NamedTuple):
    """The least and the most power that is to be expected."""

    least: float
    most: float

    @classmethod
    def read(cls, value: Any) -> "PowerRange":
        """From one quantity (it is both) or a pair of them, such as ``("150 W", "0.25 kW")``."""
        pair = tuple(value) if isinstance(value, tuple | list) else (value, value)
        if len(pair) == 2:
            least, most = (parse_quantity(one, "W") for one in pair)
            if 0 <= least <= most < inf:
                return cls(least, most)
        raise InputError("", f"found {shown(value)}", 'watts per node, such as "250 W" or ("150 W", "250 W")')

    def times(self, nodes: int) -> "PowerRange":
        """Of so many nodes."""
        return PowerRange(self.least * nodes, self.most * nodes)


UNKNOWN = PowerRange(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Reading:
    """Power of one node at one instant; ``uncertainty`` is the half-width of a 95 % interval."""

    node: str
    time: float
    watts: float
    uncertainty: float
    source: Source


@dataclass(frozen=True, slots=True)
class PowerView:
    """The power of the whole machine as a body knows it now. The bounds are the snapshot's corridor.

    *Outside* is what runs in no job (on a live cluster; simulated machines have none): it uses whatever
    nodes no job holds, and its share is changed by holding some of them.
    """

    #: of all nodes now, what it is known by, and the half-width of its 95 % interval
    watts: float
    source: Source = "modelled"
    uncertainty: float = 0.0
    #: of a node on which nothing runs
    idle: float = 0.0
    #: of a node on which something runs, where nothing better is known
    active: PowerRange = UNKNOWN
    #: per node, of jobs that run or wait, as measured, forecast, said by the user or remembered
    jobs: Mapping[str, PowerRange] = field(default_factory=dict)
    #: per node, of a node that works outside of jobs; how many do now, and how many could
    outside: PowerRange = UNKNOWN
    outside_nodes: int = 0
    outside_wanted: int = 0
    #: how many of the nodes that no job holds are held for the sake of power now
    held: int = 0
    #: how many of them can be held, as far as a body knows; None: all
    holdable: int | None = None
    #: the share of their threads that nodes may use now, and the cap of each node's power, if there is one
    threads: float = 1.0
    cap: float | None = None
    #: what can be done here beside starts and sizes
    levers: frozenset[Lever] = frozenset()
    #: how many idle nodes could be given back now, and how many were for the sake of power
    releasable: int = 0
    released: int = 0
    #: of the whole machine over the coming horizon, if somebody forecasts
    forecast: PowerRange | None = None
    #: why the readings cannot be trusted (too old, absurd), if they cannot: then be careful
    doubt: str = ""

    def per_node(self, job_id: str) -> PowerRange:
        """What is to be expected of one node of a job."""
        return self.jobs.get(job_id, self.active)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the corridor can be kept, as far as the strategy sees; told when it changes.

    ``expected`` is the power after the plan, ``lowest`` and ``highest`` what any plan could reach now.
    """

    lower: float
    upper: float
    is_kept: bool
    expected: PowerRange
    lowest: float
    highest: float
    #: what would make it possible, or where the power goes; for a person
    reason: str = ""

    def __str__(self) -> str:
        can = "can" if self.is_kept else "cannot"
        why = f": {self.reason}" if self.reason else ""
        return f"the corridor ({show_bounds(self.lower, self.upper, 'W')}) {can} be kept{why}"
