"""Nodes that services have for themselves, live: held, so that no task starts there, and no job's.

The service that asked goes on using their workers. A node is lent with all its workers or not at all, and not
if somebody could then run nowhere (what ``Holds`` refuses). If a task turns out to need one, that node works
again. Who is to give nodes back says which, when nothing of what it keeps would be lost by it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from dask_hpc.cluster.scheduler.holds import Holds
from dask_hpc.cluster.scheduler.service import Context, Service
from dask_hpc.model.lending import FromService, NodeDesk, NodesReturned
from dask_hpc.model.plan import Plan
from dask_hpc.model.snapshot import Indices
from dask_hpc.model.story import Explanation, Happening, Word

WHY = "it is lent to a service"  # of holds


class Lending(NodeDesk):
    """Of one managed cluster."""

    def __init__(self, context: Context, holds: Holds) -> None:
        super().__init__()
        self._context = context
        self._holds = holds
        #: those who wait until a service has answered
        self._waiting: dict[str, list[asyncio.Future[NodesReturned]]] = {}

    # as every body's

    @property
    def indices(self) -> Indices:
        return self._context.indices

    def borrower(self, service: str) -> Service | None:
        """Nobody is asked for anything in a dry run."""
        services = () if self._context.is_dry else self._context.services
        return next((one for one in services if one.borrows == service), None)

    def tell(
        self,
        word: Word,
        service: str,
        reason: str,
        nodes: Sequence[str] = (),
        plan: Plan | None = None,
        why: Explanation | None = None,
    ) -> None:
        number = self.indices.revision if plan is None else plan.id
        time = self._context.clock() if plan is None else plan.time
        self._context.story.tell(Happening(number, time, str(word), service, tuple(nodes), reason, why))

    def wake(self) -> None:
        self._context.wake()

    def lendable(self, count: int) -> list[str]:
        """The first that are idle, as far as others can do without."""
        found: list[str] = []
        together: list[str] = []
        for name in self.indices.idle[::-1]:
            workers = self._context.nodes.workers(name)
            if len(found) < count and self._holds.refusal([*together, *workers]) is None:
                found.append(name)
                together += workers
        return found

    def lent(self, nodes: Sequence[str]) -> None:
        for service in self._context.services:
            service.nodes_given(tuple(nodes))
        if not self._context.is_dry:
            self._holds.hold((w for name in nodes for w in self._context.nodes.workers(name)), WHY)

    def returned(self, nodes: Sequence[str]) -> None:
        for name in nodes:
            for address in self._context.nodes.workers(name):
                self._holds.release(address, WHY)

    def receive(self, message: FromService) -> None:
        if isinstance(message, NodesReturned):
            self._context.look_at_the_clock()
        super().receive(message)
        if isinstance(message, NodesReturned) and message.wanted:
            waiting = self._waiting.get(message.service)
            if waiting and not (first := waiting.pop(0)).done():
                first.set_result(message)

    # what happens

    def worker_joins(self, name: str, address: str) -> None:
        """One more of a node; if that is lent, it starts nothing either."""
        if name in self.indices.lent:
            self._holds.hold([address], WHY)

    def refresh(self) -> None:
        """Before a decision: what services said, and how empty their nodes are."""
        for name in self.indices.borrowers:
            if (service := self.borrower(name)) is not None:
                self.indices.weigh(name, service.free_of_nodes())
        self.look()

    def keep(self) -> None:
        """After a decision: who asked hears of it, and no task waits for a node that is lent."""
        self.answer()
        for key, addresses in list(self._holds.in_the_way(WHY)):
            names = {self._context.nodes.node_of(address) for address in addresses}
            self._let_go(tuple(names & self.indices.lent)[:1], f"nobody else may run {key!r}")

    def let_go(self, reason: str) -> None:
        """Of all of them; services lose nothing by it, but the nodes are not theirs alone any more."""
        self._let_go(tuple(self.indices.lent), reason)
        for name in list(self.indices.borrowers):
            del self.indices.borrowers[name]

    def close(self) -> None:
        """Nobody waits for an answer any longer."""
        for futures in self._waiting.values():
            for one in futures:
                if not one.done():
                    one.set_result(NodesReturned("", (), "control was closed"))
        self._waiting.clear()

    async def give_back(self, count: int, reason: str) -> dict[str, Any]:
        """Have services give back so many nodes, and wait until they have. The last one of each stays."""
        asked, found, why = 0, list[str](), list[str]()
        for service, known in list(self.indices.borrowers.items()):
            wanted = min(count - asked, len(known.lent) - 1 - known.owed)
            if wanted > 0:
                asked += wanted
                answer = asyncio.get_running_loop().create_future()
                self._waiting.setdefault(service, []).append(answer)
                self.order_back(service, wanted, reason)
                said: NodesReturned = await answer
                found += said.nodes
                why.append(f"{service}: {said.reason}")
        if asked < count:
            why.append(f"one node of each service always stays: {count} were wanted")
        return {"nodes": found, "reason": "; ".join(why)}

    @property
    def pinned(self) -> Mapping[str, str]:
        """Workers that stay where they are, and who needs them."""
        return {
            address: service
            for service, known in self.indices.borrowers.items()
            for one in known.lent
            for address in self._context.nodes.workers(one.node)
        }

    def _let_go(self, nodes: tuple[str, ...], reason: str) -> None:
        for service, known in list(self.indices.borrowers.items()):
            theirs = tuple(one.node for one in known.lent if one.node in nodes)
            if theirs:
                self.receive(NodesReturned(service, theirs, reason))
