"""Which agents an item (what is protected under a name) has, as the policy in force says, from what its
commits have taken so far."""

from collections.abc import Callable, Collection, Hashable, Iterable
from itertools import islice
from math import ceil, inf
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.checkpoint.scheduler.agents import Agents
from dask_hpc.checkpoint.scheduler.catalogue import Dealing
from dask_hpc.checkpoint.scheduler.copies import Made
from dask_hpc.model.checkpoint import AgentNode, ItemAgents
from dask_hpc.strategies.checkpoint.agent_rule import AgentRule

_SAMPLE = 2000  # keys that say on which nodes an item's data is
_LEAST = 2**20  # bytes; what takes the time of a smaller commit is not the agents


class Choosing:
    """``tell`` is told when an item has another number of agents."""

    def __init__(
        self,
        scheduler: Any,
        agents: Agents,
        keys_of: Callable[[str], Iterable[Hashable]],
        tell: Callable[[str, str], None],
    ) -> None:
        self._scheduler = scheduler
        self._agents = agents
        self._keys_of = keys_of
        self._tell = tell
        #: by name: how many agents it has; how many it had in its last commit; bytes that stand for one
        self.known: dict[str, ItemAgents] = {}
        self._had: dict[str, int] = {}
        self._usual: dict[str, float] = {}

    @property
    def rule(self) -> Any:
        """The strategy in force: that of the policy, if the cluster is managed and it has one."""
        return getattr(self._policy, "checkpoint", None) or _DEFAULT

    def dealing(self, item: str) -> Dealing:
        """How blocks of an item are dealt now; those of no item go to all agents by turns."""
        able = self._agents.able(self._watts())
        nodes = self.rule.order(able)
        if not item or not able:
            return Dealing(nodes)
        keys = list(islice(self._keys_of(item), _SAMPLE))
        domains, nbytes = self._data(keys)
        known = self.known.get(item)
        size = self._size(keys, domains)
        now = self.rule.first(size, len(able)) if known is None else self.rule.resized(known, size)
        if known is not None and now.agents != known.agents:
            self._tell("agents", f"{item}: {now.agents} agents, as its data is on {size} nodes now")
        self.known[item] = now
        count = max(1, min(now.agents, len(able)))
        slots = self.rule.slots(count, able, nbytes / count, domains)
        self._had[item] = count
        return Dealing(nodes, slots)

    def committed(self, item: str, made: Made) -> None:
        """A commit of an item is over."""
        known = self.known.get(item)
        if known is None or made.moved < _LEAST or not made.copies or made.failed:
            return
        usual = self._usual.setdefault(item, float(made.moved))
        seconds = made.seconds * usual / made.moved
        most = max(1, len(self._agents.able()))
        now = self.rule.committed(known, self._had[item], seconds, most, self._commits_left(item, made))
        self.known[item] = now
        if now.agents != known.agents:
            self._tell(
                "agents",
                f"{item}: {now.agents} agents instead of {known.agents}: "
                f"{made.moved / 1e6:.3g} MB took {made.seconds:.3g} s",
            )

    def forget(self, item: str) -> None:
        """It is protected no longer."""
        for known in (self.known, self._had, self._usual):
            known.pop(item, None)

    def _commits_left(self, item: str, made: Made) -> float:
        return inf

    def _data(self, keys: Collection[Hashable]) -> tuple[set[str], float]:
        """The failure domains in which these results are, and their bytes."""
        domains: set[str] = set()
        nbytes = 0
        for key in keys:
            task = compat.find_task(self._scheduler, key)
            if task is not None:
                nbytes += compat.size(task)
                domains.update(map(self._agents.domain_of, compat.holders(task)))
        return domains, float(nbytes)

    def _size(self, keys: Iterable[Hashable], domains: Collection[str]) -> int:
        """On how many nodes an item is: those of its job, if it is one's, else those that hold it."""
        owner = getattr(getattr(self._control, "gate", None), "owner", {})
        job = next((owner[key] for key in keys if key in owner), None)
        return len(getattr(job, "nodes", ())) or len(domains) or 1

    def _watts(self) -> dict[str, float]:
        """By node, if somebody reads it and the rule wants to know."""
        if getattr(self.rule, "rank", "") != "power" or self._control is None:
            return {}
        return {node: reading.watts for node, reading in self._control.power.readings().items()}

    @property
    def _control(self) -> Any:
        return getattr(self._scheduler.plugins.get("dask-hpc"), "control", None)

    @property
    def _policy(self) -> Any:
        return getattr(self._control, "policy", None)


_DEFAULT = AgentRule()


class Pool:
    """``rule`` gives the strategy in force."""

    def __init__(self, agents: Agents, rule: Callable[[], Any], tell: Callable[[str, str], None]) -> None:
        self._agents = agents
        self._rule = rule
        self._tell = tell
        self._told = ""
        self._idle: set[str] = set()
        #: so many nodes
        self.wanted = 0
        #: whether commits fail without
        self.is_urgent = False

    def look(self) -> None:
        """At the room there is, and at what uses it."""
        nodes = self._agents.able()
        rule = self._rule()
        there = len({node.domain for node in nodes})
        more = rule.more_nodes(nodes)
        idle = rule.idle_nodes(nodes)
        self.wanted = there + more.nodes if more is not None else self._needed(nodes)
        self.is_urgent = more is not None and more.is_urgent
        told = ""
        if more is not None:
            told = more.reason.partition(" ")[0]
            if told != self._told:
                urgent = (
                    "without delay: commits fail soon" if more.is_urgent else "when there is one to spare"
                )
                self._tell("more-nodes", f"{more.nodes} more for copies, {urgent}: {more.reason}")
        self._told = told
        for one in idle:
            if one.node not in self._idle:
                self._tell("idle-agent", f"{one.node} is not needed for copies: {one.reason}")
        self._idle = {one.node for one in idle}

    def _needed(self, nodes: list[AgentNode]) -> int:
        """The fewest that hold all copies, none of them crowded; the data is on at least one other."""
        used = sum(node.used for node in nodes)
        if not used:
            return 0
        of_one = sum(node.budget for node in nodes) / len({node.domain for node in nodes})
        return 1 + ceil(used / (self._rule().low * of_one)) if of_one else 1
