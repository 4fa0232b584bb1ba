"""ElastiSim's distribution patterns as what each node does.

A vector pattern says who works on a payload; a matrix pattern, who sends how much to whom. Our tasks end
when the last node is done, so what counts is the node with the most work and the link with the most
traffic (sending and receiving at the same time, as SimGrid's split-duplex links do). Shares are those of
ElastiSim's own code (BSD-3, read, not copied), but for ``master_worker``: there each worker gets
``2 * payload / (nodes - 1)`` in each direction, four payloads in all; its documentation and every other
pattern divide *one* payload, and so do we.
"""

from dataclasses import dataclass
from typing import Any

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.safe_yaml import nearest
from dask_hpc.simulator.amount import Fixed
from dask_hpc.simulator.application import Amount

VECTOR_PATTERNS = ("all_ranks", "total", "uniform", "root_only", "even_ranks", "odd_ranks", "vector")
MATRIX_PATTERNS = (
    "all_to_all", "gather", "scatter", "master_worker", "ring", "ring_clockwise",
    "ring_counter_clockwise", "matrix",
)  # fmt: skip
#: patterns under which some nodes have nothing to do
UNEVEN = ("root_only", "even_ranks", "odd_ranks", "vector")


@dataclass(frozen=True, slots=True)
class Busiest:
    """What the node with the most work does, or the link with the most traffic carries."""

    payload: Amount
    pattern: str

    def __call__(self, nodes: int) -> float:
        payload = self.payload(nodes)
        match self.pattern:
            case "all_ranks" | "total":
                return payload / nodes
            case "uniform" | "root_only":
                return payload
            case "even_ranks":
                return payload / ((nodes + 1) // 2)
            case "odd_ranks":
                return payload / (nodes // 2) if nodes > 1 else 0.0
        if nodes == 1:  # nobody to talk to
            return 0.0
        match self.pattern:
            case "gather" | "scatter":  # the root's link; its own share stays at home
                return payload * (nodes - 1) / nodes
            case "master_worker":  # half of it goes out over the root's link, half comes in
                return payload / 2
            case _:  # all_to_all and the rings: every link carries the same
                return payload / nodes


@dataclass(frozen=True, slots=True)
class SharedByAll:
    """A payload shared by some of the nodes, as the same total shared by all of them."""

    payload: Amount
    pattern: str

    def __call__(self, nodes: int) -> float:
        if self.pattern == "odd_ranks" and nodes == 1:
            return 0.0
        return self.payload(nodes) / nodes


@dataclass(frozen=True, slots=True)
class Scaled:
    """An amount in another unit, or done several times."""

    amount: Amount
    factor: float

    def __call__(self, nodes: int) -> float:
        return self.amount(nodes) * self.factor


@dataclass(frozen=True, slots=True)
class Repeated:
    """An amount as often as a formula says; parts of a time do not count."""

    amount: Amount
    times: Amount

    def __call__(self, nodes: int) -> float:
        return self.amount(nodes) * max(0, int(self.times(nodes)))


@dataclass(frozen=True, slots=True)
class NotHidden:
    """Bytes that are still under way when the computation that overlaps them is over."""

    sent: Amount
    computed: Amount
    bytes_per_operation: float

    def __call__(self, nodes: int) -> float:
        return max(0.0, self.sent(nodes) - self.computed(nodes) * self.bytes_per_operation)


@dataclass(frozen=True, slots=True)
class BetweenNodes:
    """The part of a payload among all GPUs that goes from node to node."""

    payload: Amount
    pattern: str
    gpus: int

    def __call__(self, nodes: int) -> float:
        payload, gpus = self.payload(nodes), nodes * self.gpus
        if nodes == 1:
            return 0.0
        if self.gpus == 1:
            return payload
        if self.pattern == "all_to_all":
            return payload * (gpus - self.gpus) / (gpus - 1)
        return payload / self.gpus  # a ring: one GPU of each node has its neighbour elsewhere


def known_pattern(value: Any, known: tuple[str, ...], where: str) -> str:
    """Its name in small letters."""
    name = value.lower() if isinstance(value, str) else value
    if name not in known:
        raise InputError(where, f"found {shown(value)}{nearest(name, known)}", ", ".join(known))
    return str(name)


def explicit(value: Any, length: int | None, where: str) -> list[float]:
    """The payloads of a ``vector`` or a ``matrix``, which only jobs of one size can have."""
    if length is None:
        raise InputError(where, "a vector or a matrix fits one size only", "a rigid job, or another pattern")
    if not isinstance(value, list) or len(value) != length:
        found = f"{len(value)} numbers" if isinstance(value, list) else shown(value)
        raise InputError(where, f"found {found}", f"a list of {length} numbers")
    for at, one in enumerate(value):
        if isinstance(one, bool) or not isinstance(one, int | float) or not 0 <= one <= 1e300:
            raise InputError(f"{where}[{at}]", f"found {shown(one)}", "a number, 0 or more")
    return [float(one) for one in value]


def busiest_link(value: Any, nodes: int | None, where: str) -> Fixed:
    """Of an explicit matrix: the most that any node sends, or receives."""
    cells = explicit(value, nodes * nodes if nodes else None, where)
    assert nodes is not None
    off = [0.0 if at // nodes == at % nodes else cell for at, cell in enumerate(cells)]
    sent = max(sum(off[row * nodes : (row + 1) * nodes]) for row in range(nodes))
    received = max(sum(off[column::nodes]) for column in range(nodes))
    return Fixed(max(sent, received))
