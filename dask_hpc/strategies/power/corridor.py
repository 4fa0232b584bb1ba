"""Power corridor: sizes, starts and levers keep the machine's power between two bounds."""

from dataclasses import dataclass
from math import inf
from typing import Annotated, ClassVar, Literal

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.parameter import Parameter
from dask_hpc.model.power import Corridor
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.model.units import write_quantity
from dask_hpc.strategies.power.balance import Bounds
from dask_hpc.strategies.power.decision import Decision, Memory, Told
from dask_hpc.strategies.strategy import Powered, Resizes, Starts

_WARY = 0.05  # share of a bound that is kept free besides, when readings cannot be trusted


@dataclass(frozen=True, slots=True)
class PowerCorridor:
    """Keep the power of the machine in a corridor, by what its nodes, jobs and idle nodes draw.

    With ``redistribute``, ``sharing: equal`` and one ``mode`` this is the scheduler of seed 000, 5.1 and 5.2
    (digest 2.9 to 2.14): a broken corridor holds all starts, and the program there gives all malleable
    jobs new sizes, shrinks first, growths when the nodes are free; with ``scope: queue`` waiting jobs
    are offered to it one after the other, and while the corridor holds they share idle nodes equally.
    Where we deviate, as the digest recommends: figures are per node; nodes are balanced; an empty queue
    is solved, too; when power is too high the variant that starts nobody comes first; the program runs for a
    new corridor even if the old one was intact, and breaks ties by fewest changed nodes.

    Otherwise it is ours, for a corridor *and* throughput. Other strategies say what starts and who grows;
    that passes as far as it fits, moldable and malleable jobs smaller if need be, rigid ones later. Only if
    power would leave the corridor all the same, as few nodes as possible change hands. Room is kept for
    what cannot be interrupted: who shrinks counts with the larger size until it is done, nobody starts who
    would make bounds to come impossible, but on more nodes if he is over by then, and nodes are held from
    work outside of jobs that would take too much. A job without which a lower bound is out of reach is kept
    until the others end. Watts go where they bring most speed: from running jobs to one that waits for power,
    and from idle nodes on which nobody may start to those that run.

    Decisions stay ``margin`` and the uncertainty of the readings inside, but act only outside: that, and the
    time until something is undone (``dwell``), keep noise from turning into resizes. Measured power corrects
    the figures slowly, and only while nothing changes. Readings in doubt are not followed: then jobs
    count as a working node does, and more margin is kept.
    """

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
    sharing: Annotated[
        Literal["asked", "equal"],
        Parameter("who starts on idle nodes: whom the queue names, or the first that fit, in equal shares"),
    ] = "asked"
    redistribute: Annotated[
        bool, Parameter("give all malleable jobs new sizes for a broken corridor, not only a few")
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
    lookahead: Annotated[
        float, Parameter("how far ahead coming bounds count for who starts and will still run", "s", low=0.0)
    ] = 3600.0
    lead: Annotated[
        float, Parameter("how long before coming bounds sizes change for them", unit="s", low=0.0)
    ] = 30.0
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
        """Let pass what fits, repair what is broken, pull what is left to pull, and say how it is."""
        view = snapshot.power
        assert view is not None
        memory = memory or Memory()
        corridor = snapshot.corridor or self.corridor
        edge = self.margin + view.uncertainty
        bounds = Bounds.around(*corridor.at(snapshot.now), edge)
        ahead = snapshot.now + max(self.lookahead, self.lead)
        if bounds.is_open and not corridor.coming(snapshot.now, ahead):
            is_pulled = view.held or view.released or view.threads < 1.0 or view.cap is not None
            if not is_pulled and memory.told == Told():
                return Powered(starts, resizes), memory
        if view.doubt:
            edge += _WARY * (bounds.upper if bounds.upper < inf else bounds.lower)
            bounds = Bounds.around(bounds.lower, bounds.upper, edge)
        decision = Decision(self, snapshot, view, corridor, bounds, edge, memory)
        return decision.decide(starts, resizes)
