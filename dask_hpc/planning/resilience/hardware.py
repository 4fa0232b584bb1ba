"""A machine that fails, a calculation on it, and what its commits and restarts take (003, 4.3 to 4.5).

Seconds, bytes and watts throughout. What is left out is the exascale machine of the document. A failure has
one of three severities: after the mildest a node's own memory serves, after the next a partner's, after the
worst only the store does.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import fsum, inf, isfinite

from dask_hpc.model.errors import InputError, insist, is_number, shown
from dask_hpc.planning.interval import Level

#: where a commit may go, from the cheapest to the safest; a failure's severity is the first place that serves
PLACES = ("memory", "partner", "store")
YEAR = 365.25 * 86400.0
#: by which severities may miss 1 in print, as one of the document's systems does (errata G20)
_MISPRINT = 0.02


def _positive(value: float) -> bool:
    return is_number(value, 0, inf) and value > 0 and isfinite(value)


def whole_severity(shares: Sequence[float]) -> tuple[float, float, float]:
    """Three shares that make 1; those that miss it by a misprint are scaled."""
    fine = len(shares) == len(PLACES) and all(is_number(share, 0, 1 + _MISPRINT) for share in shares)
    insist(fine, "severity", shares, "three shares from 0 to 1, for memory, partner, store")
    total = fsum(shares)
    if abs(total - 1) > _MISPRINT + 1e-9:
        allowed = f"a sum of 1 (up to {_MISPRINT:.0%} off is scaled)"
        raise InputError("severity", f"found {shown(tuple(shares))}, whose sum is {total:.4g}", allowed)
    own, partner, store = (float(share) / total for share in shares)
    return own, partner, store


@dataclass(frozen=True, slots=True, kw_only=True)
class Powers:
    """Watts of a node (003, 5.3; the text's network power, not its formula's: errata G11)."""

    computing: float = 750.0
    #: to a commit or a restart: idle, and the network busy
    committing: float = 178.33
    idle: float = 150.0

    def __post_init__(self) -> None:
        for name in ("computing", "committing", "idle"):
            value = getattr(self, name)
            insist(is_number(value, 0, 1e9), f"power: {name}", value, "watts, 0 or more")
        insist(self.computing > 0, "power: computing", self.computing, "watts, more than 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """A machine of equal nodes that fail independently of one another."""

    nodes: int = 120_000
    #: seconds between two failures of one node
    mtbf: float = 2.5 * YEAR
    #: shares of failures after which a node's own memory, a partner's, and only the store serves
    severity: tuple[float, float, float] = (0.138, 0.784, 0.078)
    #: bytes per second into a node's memory
    memory_speed: float = 40e9
    #: bytes per second through one port of the store, and how many nodes it takes them from at a time
    store: float = 600e9
    ports: int = 12
    latency: float = 0.5e-6
    #: nodes that recompute together what a failed one has lost, and how much sooner they are done
    helpers: int = 32
    speedup: float = 29.04
    powers: Powers = Powers()

    def __post_init__(self) -> None:
        for name, least in (("nodes", 1), ("ports", 1), ("helpers", 1)):
            value = getattr(self, name)
            whole = isinstance(value, int) and not isinstance(value, bool) and value >= least
            insist(whole, name, value, f"a whole number, {least} or more")
        for name in ("mtbf", "memory_speed", "store"):
            value = getattr(self, name)
            insist(_positive(value), name, value, "more than 0")
        insist(is_number(self.latency, 0, 1e6), "latency", self.latency, "seconds, 0 or more")
        insist(is_number(self.speedup, 1, 1e9), "speedup", self.speedup, "1 or more")
        object.__setattr__(self, "severity", whole_severity(self.severity))


@dataclass(frozen=True, slots=True, kw_only=True)
class Calculation:
    """What runs: so much work on so many nodes, which grows with them (weak scaling)."""

    nodes: int
    #: seconds without failures and without protection
    work: float
    #: bytes of each node that a commit has to keep
    memory: float
    #: share of the time that goes into messages
    messages: float = 0.0

    def __post_init__(self) -> None:
        fine = isinstance(self.nodes, int) and not isinstance(self.nodes, bool) and self.nodes >= 1
        insist(fine, "nodes", self.nodes, "a whole number, 1 or more")
        insist(_positive(self.work), "run", self.work, "a time, more than 0 and finite")
        insist(_positive(self.memory), "memory", self.memory, "bytes of a node, more than 0")
        insist(is_number(self.messages, 0, 1), "messages", self.messages, "a share of the time, 0 to 1")


@dataclass(frozen=True, slots=True)
class CommitCosts:
    """Seconds of a commit to each place, those to the places before it included, and of a restart from it."""

    commit: tuple[float, float, float]
    restart: tuple[float, float, float]

    def __post_init__(self) -> None:
        for name in ("commit", "restart"):
            for place, seconds in zip(PLACES, getattr(self, name), strict=True):
                insist(is_number(seconds, 0, 1e15), f"{name}: {place}", seconds, "seconds, 0 or more")


@dataclass(frozen=True, slots=True)
class Case:
    """A calculation on a machine; its costs follow from both (003, Eqs 4.3 to 4.5) unless they are given."""

    calculation: Calculation
    hardware: Hardware = Hardware()
    given: CommitCosts | None = None

    def __post_init__(self) -> None:
        nodes, most = self.calculation.nodes, self.hardware.nodes
        insist(nodes <= most, "nodes", nodes, f"up to {most}, which the machine has")

    @property
    def failures(self) -> float:
        """Per second, of any node of the calculation: of those in use (errata G3), whatever the protocol."""
        return self.calculation.nodes / self.hardware.mtbf

    @property
    def costs(self) -> CommitCosts:
        if self.given is not None:
            return self.given
        size, machine = self.calculation.memory, self.hardware
        own = size / machine.memory_speed
        # two groups take turns: each saves, and sends it to the other (Eq 4.5 as printed: errata G5)
        partner = 2 * (2 * own + machine.latency)
        store = size / machine.store * self.calculation.nodes / machine.ports
        times = (own, partner, store)
        return CommitCosts(times, times)

    @property
    def levels(self) -> tuple[Level, Level, Level]:
        """The three places as levels of a checkpoint."""
        costs, rates = self.costs, [share * self.failures for share in self.hardware.severity]
        own, partner, store = map(Level, PLACES, costs.commit, costs.restart, rates)
        return own, partner, store

    def with_nodes(self, nodes: int) -> "Case":
        """The same of each node, on more or fewer of them."""
        return replace(self, calculation=replace(self.calculation, nodes=nodes))
