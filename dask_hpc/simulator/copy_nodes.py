"""Nodes of a machine that only keep copies: asked for as copies grow, and given back as they go.

All copies that jobs have at partners are there, shared evenly by the nodes there are, each of which keeps so
much (``platform.copies``). When another is asked for, and how, is decided as live: by the policy's checkpoint
strategy and ``scale``. Where nothing keeps copies yet the first is asked for at once. What finds no room is
counted, and its job commits all the same.
"""

from dataclasses import dataclass
from math import ceil

from dask_hpc.model.lending import IdleNodes, NodesReturned, NodesWanted, ToService
from dask_hpc.policy import Policy
from dask_hpc.simulator.job_commits import CommitDesk
from dask_hpc.simulator.service import MachineService
from dask_hpc.strategies.checkpoint.agent_rule import AgentRule, to_remove
from dask_hpc.strategies.checkpoint.agents import AgentNode, MoreNodes
from dask_hpc.strategies.checkpoint.scaler import Scaling, scale

BORROWS = "checkpoint"
_LOOK = 60.0  # seconds between looks while somebody has copies


@dataclass(slots=True)
class CopiesKept:
    """Node seconds that were lent, and byte seconds of copies that found no room."""

    node_seconds: float = 0.0
    short: float = 0.0


class CopyNodes(MachineService):
    """Of one machine. ``room`` is what a node keeps, in bytes."""

    borrows = BORROWS
    follows_decisions = True

    def __init__(self, room: float, policy: Policy, commits: CommitDesk) -> None:
        self._room = room
        self._rule = policy.checkpoint or AgentRule()
        self._commits = commits
        self._scaling = Scaling()
        self._used = 0.0
        self._since = 0.0
        #: since when nothing is kept
        self._unused_since: float | None = None
        self._is_looking = False

    def begin(self) -> None:
        record = self.site.record
        self._kept = CopiesKept() if record is None else record.find(CopiesKept) or record.add(CopiesKept())

    def end(self, now: float) -> None:
        self._account(now)

    def look(self) -> None:
        """Before a decision. When nothing runs there is nothing to be kept; who waits may need them all."""
        own = tuple(self._own)
        if own and not self.site.indices.running:
            self.site.desk.receive(NodesReturned(BORROWS, own, "nothing runs that could be lost"))
        if self._commits.known and self.site.indices.running and not self._is_looking:
            self._is_looking = True
            self.site.decide_at(self.site.indices.now + _LOOK, self)

    def woken(self, now: float) -> None:
        self._is_looking = False
        before, since = self._used, self._since
        self._account(now)
        filling = (self._used - before) / (now - since) if now > since else 0.0
        # what finds no room is tried again
        nodes = self._nodes(now, max(filling, self._used - len(self._own) * self._room))
        self.site.indices.weigh(BORROWS, {one.name: 1.0 - one.fill for one in nodes})
        more = self._rule.more_nodes(nodes)
        if self._used and not nodes:
            more = MoreNodes(True, "copies are kept nowhere")
        says, self._scaling = scale(self._scaling, BORROWS, more, now)
        desk = self.site.desk
        if says is not None:
            desk.receive(says)
        idle = {one.node for one in self._rule.idle_nodes(nodes)}
        if idle and more is None:
            desk.receive(NodesReturned(BORROWS, tuple(sorted(idle)), "nothing was kept there for long"))

    def hear_of_nodes(self, message: ToService) -> None:
        if isinstance(message, NodesWanted):
            self._give_back(message.count)
        elif isinstance(message, IdleNodes):
            self._scaling = self._scaling.heard(message.count)
        else:
            self._scaling = self._scaling.granted()
        self._account(self.site.indices.now)

    @property
    def _own(self) -> list[str]:
        known = self.site.indices.borrowers.get(BORROWS)
        return [] if known is None else [one.node for one in known.lent]

    def _give_back(self, count: int) -> None:
        """Those that remain keep all that is kept now."""
        now = self.site.indices.now
        nodes = self._nodes(now, 0.0)
        needed = max(1, ceil(min(self._used, len(nodes) * self._room) / self._room))
        found = to_remove(nodes, min(count, len(nodes) - needed))
        reason = "copies are on others now"
        if len(found) < count:
            reason += f"; {needed} are needed for them"
        self.site.desk.receive(NodesReturned(BORROWS, found, reason, count))

    def _nodes(self, now: float, filling: float) -> list[AgentNode]:
        own = self._own
        each = min(self._used / len(own), self._room) if own else 0.0
        self._unused_since = None if self._used else now if self._unused_since is None else self._unused_since
        idle_for = 0.0 if self._unused_since is None else now - self._unused_since
        return [AgentNode(one, self._room, each, filling / len(own), idle_for=idle_for) for one in own]

    def _account(self, now: float) -> None:
        """What is kept now was not before; what was, was until now."""
        own = len(self._own)
        self._kept.node_seconds += own * (now - self._since)
        self._kept.short += max(0.0, self._used - own * self._room) * (now - self._since)
        self._since = now
        self._used = sum(one.at_partners for one in self._commits.known.values())
