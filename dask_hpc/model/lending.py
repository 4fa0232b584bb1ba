"""Nodes that services have for themselves: what a service and a body say to each other about them.

Seed 000, section 7.3.1: a service asks how many nodes are idle, and is told; it asks for nodes, urgently or
not; it is ordered to use some more, or to give some back, and says which it has given. What comes in is
looked at with the next decision, and a node that a service gives back is anybody's only when the service has
said so. There, resource manager and controller are processes of their own that send each other messages;
here they share one, live as simulated, and the messages are these objects. Their status messages, heartbeats
and addresses are not needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dask_hpc.model.node import NodeWish
from dask_hpc.model.plan import Plan
from dask_hpc.model.snapshot import Indices
from dask_hpc.model.story import Explanation, Word
from dask_hpc.model.units import count_nodes


@dataclass(frozen=True, slots=True)
class NodeQuery:
    """A service asks how many nodes are idle."""

    service: str


@dataclass(frozen=True, slots=True)
class NodeRequest:
    """A service asks for nodes; for none if it needs none any longer."""

    service: str
    wish: NodeWish


@dataclass(frozen=True, slots=True)
class NodesReturned:
    """A service says which nodes it has given back, of its own accord or because so many were ``wanted``, and
    why, or why not more."""

    service: str
    nodes: tuple[str, ...]
    reason: str
    wanted: int = 0


@dataclass(frozen=True, slots=True)
class IdleNodes:
    """So many nodes are idle."""

    count: int


@dataclass(frozen=True, slots=True)
class NodesLent:
    """These nodes are the service's from now on."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodesWanted:
    """The service is to give back so many nodes, whichever it can miss."""

    count: int


FromService = NodeQuery | NodeRequest | NodesReturned
ToService = IdleNodes | NodesLent | NodesWanted


class BorrowingService(Protocol):
    """A service that has nodes of its own."""

    def hear_of_nodes(self, message: ToService) -> None:
        """Something is ordered, or answered."""


class NodeDesk:
    """Where a body takes messages about nodes, and carries out what a plan says of them; each has one."""

    def __init__(self) -> None:
        self._requests: list[NodeRequest] = []
        self._queries: list[NodeQuery] = []
        #: what was told last of each service: who asks again for the same is not told of again
        self._told: dict[str, NodeWish] = {}

    # what each body does its own way

    @property
    def indices(self) -> Indices:
        """Those of the body, now."""
        raise NotImplementedError

    def borrower(self, service: str) -> BorrowingService | None:
        """The service of that name, if it is here."""
        raise NotImplementedError

    def tell(
        self,
        word: Word,
        service: str,
        reason: str,
        nodes: Sequence[str] = (),
        plan: Plan | None = None,
        why: Explanation | None = None,
    ) -> None:
        """Add to the story."""
        raise NotImplementedError

    def wake(self) -> None:
        """Something is to be looked at."""
        raise NotImplementedError

    def lendable(self, count: int) -> Sequence[str]:
        """So many idle nodes, or as many as can be lent."""
        return self.indices.idle[: -count - 1 : -1]

    def lent(self, nodes: Sequence[str]) -> None:
        """These nodes start nothing any more."""

    def returned(self, nodes: Sequence[str]) -> None:
        """These do again."""

    # what is the same in all

    def receive(self, message: FromService) -> None:
        """A service says something."""
        if isinstance(message, NodesReturned):
            self._take(message)
        elif isinstance(message, NodeRequest):
            self._requests.append(message)
            wish = message.wish
            if wish.count and wish != self._told.get(message.service):
                self._told[message.service] = wish
                urgency = "without delay" if wish.is_urgent else "when there are some to spare"
                self.tell(
                    Word.NODE_REQUEST, message.service, f"{count_nodes(wish.count)} {urgency}: {wish.reason}"
                )
        else:
            self._queries.append(message)
            self.tell(Word.NODE_QUERY, message.service, "how many nodes are idle?")
        self.wake()

    def look(self) -> None:
        """Before a decision: what was asked for counts."""
        requests, self._requests = self._requests, []
        for one in requests:
            known = self.indices.borrowers.get(one.service)
            if one.wish.count or (known is not None and known.wish is not None):
                self.indices.wish(one.service, one.wish)

    def answer(self) -> None:
        """After a decision: who asked hears what is idle."""
        queries, self._queries = self._queries, []
        for one in queries:
            if (service := self.borrower(one.service)) is not None:
                count = len(self.indices.idle)
                self.tell(Word.NODE_ANSWER, one.service, f"{count_nodes(count)} idle")
                service.hear_of_nodes(IdleNodes(count))

    def carry_out(self, plan: Plan, why: Explanation | None = None) -> None:
        """What a plan says of nodes for services."""
        if (lend := plan.lend) is not None:
            nodes = tuple(self.lendable(lend.nodes))
            self.indices.lend(lend.service, nodes, lend.nodes)
            short = f"; {count_nodes(lend.nodes - len(nodes))} cannot be" if len(nodes) < lend.nodes else ""
            self.lent(nodes)
            self._told.pop(lend.service, None)
            self.tell(Word.LEND, lend.service, lend.reason + short, nodes, plan, why)
            if nodes and (service := self.borrower(lend.service)) is not None:
                service.hear_of_nodes(NodesLent(nodes))
        if (back := plan.take_back) is not None:
            self.order_back(back.service, back.nodes, back.reason, plan, why)

    def order_back(
        self, name: str, count: int, reason: str, plan: Plan | None = None, why: Explanation | None = None
    ) -> None:
        """A service is to give back so many nodes."""
        self.indices.want_back(name, count)
        self.tell(Word.TAKE_BACK, name, f"{count_nodes(count)}: {reason}", (), plan, why)
        if (service := self.borrower(name)) is not None:
            service.hear_of_nodes(NodesWanted(count))
        else:
            self.receive(
                NodesReturned(name, self.indices.borrowers[name].emptiest(count), "nobody uses them", count)
            )

    def _take(self, message: NodesReturned) -> None:
        back = self.indices.take_back(message.service, message.nodes, message.wanted)
        self.returned(back)
        self.tell(Word.RETURNED, message.service, message.reason, back)
