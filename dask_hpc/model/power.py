"""What is known of power at one instant, and what a decision says about it. Watts throughout."""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from itertools import pairwise
from math import inf, isclose, isfinite
from typing import Any, Literal, NamedTuple, get_args

from dask_hpc.model.errors import InputError, insist, shown, within
from dask_hpc.model.safe_yaml import check_keys, read_yaml
from dask_hpc.model.units import parse_duration, parse_quantity, show_bounds, write_quantity

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

    @property
    def help(self) -> str:
        """What would make it possible, if it is not and somebody knows: the reason says so behind a colon."""
        _, _, ways = self.reason.partition("; ")[0].partition(": ")
        return "" if self.is_kept else ways

    def __str__(self) -> str:
        can = "can" if self.is_kept else "cannot"
        why = f": {self.reason}" if self.reason else ""
        return f"the corridor ({show_bounds(self.lower, self.upper, 'W')}) {can} be kept{why}"


_SAID = 3  # steps that are said to a person
_LIMIT = 1_000_000  # bytes of a corridor as text; a year of hours is 500,000
_WRITTEN = "{lower: 1.7 kW, upper: 2.5 kW}, or a list of {at: TIME, lower: ..., upper: ...}"


@dataclass(frozen=True, slots=True)
class Corridor:
    """Steps of ``(from time, lower, upper)``; the first also holds before its time."""

    steps: tuple[tuple[float, float, float], ...]

    def __post_init__(self) -> None:
        if not self.steps:
            raise InputError("corridor", "found no step", "at least one (time, lower, upper)")
        try:
            steps = tuple((float(time), float(lower), float(upper)) for time, lower, upper in self.steps)
        except (ArithmeticError, TypeError, ValueError):
            found = f"found {shown(self.steps)}"
            raise InputError("corridor", found, "a list of (time, lower, upper)") from None
        object.__setattr__(self, "steps", steps)
        for time, lower, upper in steps:
            if not isfinite(time):
                raise InputError("corridor", f"found the time {shown(time)}", "finite times")
            insist(0 <= lower <= upper, f"corridor at {time:g} s", (lower, upper), "0 <= lower <= upper")
        insist(all(a[0] < b[0] for a, b in pairwise(steps)), "corridor", steps, "rising times")

    @classmethod
    def constant(cls, lower: float = 0.0, upper: float = inf) -> "Corridor":
        """The same bounds at all times."""
        return cls(((0.0, lower, upper),))

    @classmethod
    def parse(cls, text: str | bytes, seconds: Callable[[Any], float] = parse_duration) -> "Corridor":
        """From YAML or JSON, as ``read`` says."""
        tab, space = (b"\t", b" ") if isinstance(text, bytes) else ("\t", " ")
        # YAML refuses the tabs that JSON may be indented with.
        return cls.read(read_yaml(text.replace(tab, space), _LIMIT), seconds)  # type: ignore[arg-type]

    @classmethod
    def read(cls, found: Any, seconds: Callable[[Any], float] = parse_duration) -> "Corridor":
        """From ``{lower, upper}``, or a list of ``{at, lower, upper}`` in order of time, all as people write
        them. A bound that is not said, or ``none``, does not bind. ``seconds`` reads the times."""
        if isinstance(found, dict):
            check_keys(found, ("lower", "upper"), "corridor")
            if found:
                return cls(((0.0, *_bounds(found, "corridor")),))
        if not isinstance(found, list | tuple) or not found:
            raise InputError("corridor", f"found {shown(found)}", _WRITTEN)
        steps = []
        for number, step in enumerate(found, 1):
            where = f"corridor: step {number}"
            check_keys(step, ("at", "lower", "upper"), where)
            if "at" not in step or len(step) < 2:
                raise InputError(where, f"found {shown(step)}", "{at: TIME, lower: ..., upper: ...}")
            with within(f"{where}: at"):
                time = seconds(step["at"])
            steps.append((time, *_bounds(step, where)))
        return cls(tuple(steps))

    def in_words(self) -> str:
        """For a person: its first steps."""
        _, lower, upper = self.steps[0]
        words = [show_bounds(lower, upper, "W")]
        words += [f"from {time:.1f} s on {show_bounds(a, b, 'W')}" for time, a, b in self.steps[1:_SAID]]
        more = len(self.steps) - len(words)
        return ", ".join(words) + (f" and {more} more steps" if more else "")

    def written(self) -> Any:
        """Plain data that ``read`` reads back to an equal corridor."""
        units = {"at": "s", "lower": "W", "upper": "W"}
        steps = [
            {key: write_quantity(value, units[key]) for key, value in zip(units, step, strict=True)}
            for step in self.steps
        ]
        if len(steps) == 1 and self.steps[0][0] == 0:
            del steps[0]["at"]
            return steps[0]
        return steps

    def without(self, at: float) -> "Corridor":
        """The same without the change at that time: what held before goes on."""
        rest = (self.steps[0], *(one for one in self.steps[1:] if not isclose(one[0], at, abs_tol=1e-3)))
        if len(rest) == len(self.steps):
            known = ", ".join(write_quantity(time, "s") for time, _, _ in self.steps[1:])
            raise InputError("corridor: at", f"no change at {at:g} s", known or "none: nothing is to change")
        return Corridor(rest)

    def coming(self, after: float, until: float) -> tuple[tuple[float, float, float], ...]:
        """The steps that begin after one time, and at another or before."""
        first, last = (bisect_right(self.steps, (time, inf, inf)) for time in (after, until))
        return self.steps[max(first, 1) : last]

    def at(self, time: float) -> tuple[float, float]:
        """Lower and upper bound at ``time``."""
        index = bisect_right(self.steps, (time, inf, inf)) - 1
        _, lower, upper = self.steps[max(index, 0)]
        return lower, upper


def _bounds(found: dict[str, Any], where: str) -> tuple[float, float]:
    bounds = []
    for key, otherwise in (("lower", 0.0), ("upper", inf)):
        value = found.get(key)
        is_said = value is not None and not (isinstance(value, str) and value.strip().lower() == "none")
        bounds.append(parse_quantity(value, "W", f"{where}: {key}") if is_said else otherwise)
    return bounds[0], bounds[1]


GROUP = "dask_hpc.corridors"
PREFIX = "signal:"


@dataclass(frozen=True)
class CorridorSignal:
    """Answers lower and upper bound in watts for a time in seconds: on a live cluster since 1970, in the
    simulator since the simulation began."""

    name: str
    function: Callable[[float], Any]

    @classmethod
    def find(cls, name: str) -> "CorridorSignal":
        """The entry point of that name in the group ``dask_hpc.corridors``."""
        known = {point.name: point for point in entry_points(group=GROUP)}
        if name not in known:
            allowed = ", ".join(known) or "none"
            raise InputError(f"signal {name}", f"no entry point of {GROUP} has that name", allowed)
        return cls(name, known[name].load())

    def at(self, time: float) -> Corridor:
        """What it says for now, and until it says something else."""
        found = self.function(time)
        try:
            lower, upper = found
            return Corridor(((0.0, lower, upper),))
        except (TypeError, ValueError):  # InputError is one
            allowed = "(lower, upper), 0 <= lower <= upper"
            raise InputError(f"signal {self.name}", f"said {shown(found)}", allowed) from None
