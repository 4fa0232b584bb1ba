"""A node: the unit that is allotted."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from math import inf
from sys import float_info
from typing import Any, Self

from dask_hpc.model.errors import InputError, insist, is_number, shown


@dataclass(frozen=True, slots=True)
class Node:
    """One machine node, or on a live cluster all Dask workers of one host. Powers in watts.

    ``place`` names the parts of the machine that it is in, the outermost first: ``("cabinet0", "chassis2")``.
    """

    name: str
    idle_power: float = 0.0
    active_power: float = 0.0
    place: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        insist(type(self.name) is str and self.name != "", "node", self.name, "a name")
        if not (
            is_number(self.idle_power, 0, inf)
            and is_number(self.active_power, self.idle_power, float_info.max)
        ):
            raise InputError(
                f"node {shown(self.name)}",
                f"found idle {shown(self.idle_power)} W, active {shown(self.active_power)} W",
                "0 <= idle <= active, finite",
            )


@dataclass(frozen=True, slots=True)
class NodeWish:
    """What a service asks for: so many nodes of its own. It fails without if that ``is_urgent``; else it
    would only serve better."""

    count: int
    is_urgent: bool
    reason: str
    #: when a decision first looked at it
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Lent:
    """A node that a service has for itself: no job's work runs there. ``free`` is the share of what it can
    keep there that is empty."""

    node: str
    free: float = 1.0


@dataclass(frozen=True, slots=True)
class Borrower:
    """A service that asks for nodes or has some."""

    lent: tuple[Lent, ...] = ()
    wish: NodeWish | None = None
    #: how many of them it was told to give back and has not answered yet
    owed: int = 0
    #: when it last gave back fewer than it was told to
    short_at: float = -inf

    def emptiest(self, count: int) -> tuple[str, ...]:
        """So many of its nodes, those first that can be missed most easily."""
        return tuple(one.node for one in sorted(self.lent, key=lambda one: -one.free)[:count])


def is_a_node(mode: str, address: str, host: str) -> bool:
    """Whether a worker is a node by itself; else all of its host make one. ``mode`` is ``hpc.node``: by
    "auto" those are that can only be on the scheduler's own machine, as on a laptop."""
    if mode != "auto" or address.startswith("inproc://"):
        return mode in ("worker", "auto")
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


class Nodes:
    """The connected workers by node. ``mode`` is ``hpc.node``. Whoever groups workers does it with this."""

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self._workers: dict[str, dict[str, None]] = {}
        self._node_of: dict[str, str] = {}

    @classmethod
    def of(cls, mode: str, workers: Iterable[tuple[str, Any, str]]) -> Self:
        """Those of these workers: address, name and host of each."""
        nodes = cls(mode)
        for worker in workers:
            nodes.join(*worker)
        return nodes

    def join(self, address: str, name: Any, host: str) -> tuple[str, bool]:
        """A worker connects. Its node, and whether that is a new one. Saying it twice does no harm."""
        if address in self._node_of:
            return self._node_of[address], False
        if is_a_node(self._mode, address, host):
            node = str(name)
            if node in self._workers:  # worker names are unique, but 1 and "1" are two of them
                node = address
        else:
            node = host
        is_first = node not in self._workers
        self._workers.setdefault(node, {})[address] = None
        self._node_of[address] = node
        return node, is_first

    def leave(self, address: str) -> tuple[str, bool] | None:
        """A worker is gone. Its node, and whether that was its last; None if we never knew it."""
        node = self._node_of.pop(address, None)
        if node is None:
            return None
        workers = self._workers[node]
        del workers[address]
        if not workers:
            del self._workers[node]
        return node, not workers

    def node_of(self, address: str) -> str:
        """The node of a worker; the address itself of one we do not know."""
        return self._node_of.get(address, address)

    def workers(self, node: str) -> list[str]:
        """Addresses of the workers of a node."""
        return list(self._workers.get(node, ()))

    def __len__(self) -> int:
        return len(self._workers)

    def __iter__(self) -> Iterator[str]:
        return iter(self._workers)
