"""Power corridor: sizes and starts keep the machine's power between two bounds.

Seed 000, 2.9 to 2.14 (Algorithm 4 there), with the corrections of its digest: power per node, a balance of
nodes, a solution also with an empty queue.
"""

from dataclasses import dataclass
from math import inf
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from dask_hpc.model.corridor import Corridor
from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.parameter import Parameter
from dask_hpc.model.plan import Resize, Start
from dask_hpc.model.power import PowerView, Verdict
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.model.units import count_nodes, write_quantity
from dask_hpc.strategies.power_balance import TINY, Balance
from dask_hpc.strategies.strategy import Powered, Resizes, Starts

_WARY = 0.05  # share of a bound that is kept free besides, when readings cannot be trusted


class Memory(NamedTuple):
    """What the strategy remembers."""

    #: bounds and kind of the last verdict that was told
    told: tuple[float, float, bool, bool] | None = None


class Bounds(NamedTuple):
    """The corridor now, and how far inside of it decisions stay."""

    lower: float
    upper: float
    edge: float

    @property
    def ceiling(self) -> float:
        """What decisions stay below."""
        return self.upper - self.edge if self.upper < inf else inf

    @property
    def floor(self) -> float:
        """What they stay above."""
        return self.lower + self.edge if self.lower > 0 else 0.0


@dataclass(frozen=True, slots=True)
class PowerCorridor:
    """Keep the power of the machine in a corridor."""

    concern: ClassVar[str] = "power"
    name: ClassVar[str] = "power-corridor"

    lower: Annotated[float, Parameter("power is not to fall below", unit="W", low=0.0, high=1e12)] = 0.0
    upper: Annotated[float, Parameter("power is not to rise above", unit="W", low=0.0, none=inf)] = inf
    schedule: Annotated[
        Corridor | None, Parameter("bounds that change with time, instead of lower and upper")
    ] = None
    follow: Annotated[
        str, Parameter('who says the bounds while it runs: path of a file, or "signal:NAME"', none="")
    ] = ""
    mode: Annotated[
        Literal["reactive", "proactive", "both"],
        Parameter("act when power is outside, or when it is going to be"),
    ] = "both"
    scope: Annotated[
        Literal["running", "queue"],
        Parameter("only running jobs are resized, or starts are chosen and held, too"),
    ] = "queue"
    candidates: Annotated[
        int, Parameter("how many waiting jobs are considered", unit="jobs", low=0, high=10_000)
    ] = 16
    favour_elastic: Annotated[
        bool, Parameter("of the waiting jobs, offer only malleable ones to a broken corridor")
    ] = False
    margin: Annotated[
        float, Parameter("kept from both edges, beside the uncertainty of readings", unit="W", low=0.0)
    ] = 0.0
    hysteresis: Annotated[
        float, Parameter("room there must be before something is given back", unit="W", low=0.0)
    ] = 0.0
    dwell: Annotated[
        float, Parameter("least time before what was done for power is undone", unit="s", low=0.0)
    ] = 30.0
    lookahead: Annotated[float, Parameter("how far ahead coming bounds count already", unit="s", low=0.0)] = (
        30.0
    )
    time_limit: Annotated[
        float, Parameter("the longest that a solver may take", unit="s", low=0.01, high=60.0)
    ] = 1.0

    def __post_init__(self) -> None:
        if self.lower > self.upper:
            found = f"found {write_quantity(self.lower, 'W')}"
            raise InputError("lower", found, f"at most upper={write_quantity(self.upper, 'W')}")
        if self.schedule is not None and (self.lower, self.upper) != (0.0, inf):
            raise InputError(
                "schedule", f"found {shown(self.schedule.written())} beside lower and upper", "one of the two"
            )

    @property
    def corridor(self) -> Corridor:
        """As the policy says it."""
        return Corridor.constant(self.lower, self.upper) if self.schedule is None else self.schedule

    def decide(
        self, snapshot: Snapshot, starts: Starts, resizes: Resizes, memory: Memory | None
    ) -> tuple[Powered, Memory]:
        """Let pass what fits and make the rest smaller."""
        view = snapshot.power
        assert view is not None
        memory = memory or Memory()
        bounds = self._bounds(snapshot, view)
        balance = Balance.of(snapshot, view, is_wary=bool(view.doubt))
        kept_resizes = self._resizes(snapshot, balance, bounds, resizes)
        kept_starts = starts
        if self.scope == "queue":
            kept_starts = _starts(snapshot, balance, bounds, starts)
        else:
            for start in starts:
                balance.book(start.job, 0, start.nodes)
        verdict, memory = self._verdict(view, balance, bounds, memory)
        return Powered(kept_starts, kept_resizes, verdict=verdict), memory

    def _bounds(self, snapshot: Snapshot, view: PowerView) -> Bounds:
        lower, upper = (snapshot.corridor or self.corridor).at(snapshot.now)
        edge = self.margin + view.uncertainty
        if view.doubt:
            edge += _WARY * (upper if upper < inf else lower)
        return Bounds(lower, upper, min(edge, (upper - lower) / 4))

    def _resizes(self, snapshot: Snapshot, balance: Balance, bounds: Bounds, resizes: Resizes) -> Resizes:
        """Shrinks first, as bodies do; growths as far as they fit."""
        kept = {}
        size_of = {resize.job: len(snapshot.running[resize.job].nodes) for resize in resizes}
        for resize in resizes:
            before = size_of[resize.job]
            if resize.nodes < before:
                balance.book(resize.job, before, resize.nodes)
                kept[resize.job] = resize
        for resize in resizes:
            before = size_of[resize.job]
            if resize.nodes > before:
                job = snapshot.running[resize.job].job
                size = balance.largest(job, before, resize.nodes, bounds.ceiling)
                if size > before:
                    balance.book(resize.job, before, size)
                    kept[resize.job] = resize if size == resize.nodes else _less(resize, size, bounds)
        return [kept[resize.job] for resize in resizes if resize.job in kept]

    def _verdict(
        self, view: PowerView, balance: Balance, bounds: Bounds, memory: Memory
    ) -> tuple[Verdict | None, Memory]:
        expected = balance.planned
        is_kept = bounds.lower - TINY <= expected.least and expected.most <= bounds.upper + TINY
        key = (bounds.lower, bounds.upper, is_kept, bool(view.doubt))
        if key == (memory.told or (0.0, inf, True, False)):
            return None, memory
        reason = f"careful, because {view.doubt}" if view.doubt else ""
        verdict = Verdict(bounds.lower, bounds.upper, is_kept, expected, 0.0, inf, reason)
        return verdict, memory._replace(told=key)


def _starts(snapshot: Snapshot, balance: Balance, bounds: Bounds, starts: Starts) -> Starts:
    kept = []
    for start in starts:
        job = snapshot.waiting[start.job]
        if job.kind == "rigid":
            size = start.nodes if balance.fits(job.id, 0, start.nodes, bounds.ceiling) else 0
        else:
            size = balance.largest(job, 0, start.nodes, bounds.ceiling)
        if size:
            balance.book(job.id, 0, size)
            kept.append(start if size == start.nodes else _less(start, size, bounds))
    return (
        starts
        if len(kept) == len(starts) and all(a is b for a, b in zip(kept, starts, strict=True))
        else kept
    )


def _less(one: Any, size: int, bounds: Bounds) -> Any:
    """The same decision with fewer nodes."""
    more = f"{one.reason}; {count_nodes(one.nodes - size)} less, to stay below {bounds.upper:g} W"
    return Start(one.job, size, more) if isinstance(one, Start) else Resize(one.job, size, more)
