"""How many nodes there are to be for the sake of copies. Whoever adapts the size of the cluster asks us."""

from collections.abc import Callable
from math import ceil
from typing import Any

from dask_hpc.checkpoint.controller.agents import Agents
from dask_hpc.model.agents import AgentNode


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
