"""Nodes that can keep copies of others' data, and what a rule for them answers."""

from dataclasses import dataclass, field
from math import inf
from typing import Any


@dataclass(frozen=True, slots=True)
class AgentNode:
    """A node whose memory can keep copies of others' data, and what its agents do there."""

    name: str
    #: bytes that copies may take, and that they take
    budget: float
    used: float
    #: bytes per second by which that grows
    filling: float = 0.0
    #: bytes per second of copies that come in, and that its link can take
    traffic: float = 0.0
    link: float = inf
    #: commits per second
    commits: float = 0.0
    watts: float = 0.0
    agents: int = 0
    #: agents that came in the last minute: of nodes that are equal otherwise, the calmest is taken
    joined: int = 0
    #: seconds in which nothing was kept here
    idle_for: float = 0.0
    #: what fails together with it; empty: nothing else
    domain: str = ""
    #: agents of one item that it can have at most: on a live cluster its worker processes
    most: float = inf

    @property
    def free(self) -> float:
        return max(0.0, self.budget - self.used)

    @property
    def fill(self) -> float:
        return self.used / self.budget if self.budget > 0 else 1.0


@dataclass(frozen=True, slots=True)
class MoreNodes:
    """One more node is wanted for copies. ``is_urgent``: commits fail without."""

    is_urgent: bool
    reason: str


@dataclass(frozen=True, slots=True)
class GiveBack:
    """A node that nobody needs for copies."""

    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class Direct:
    """What is remembered of the time without agents: the tries since, and when to try again."""

    tries: int
    again_at: float


@dataclass(frozen=True, slots=True)
class ItemAgents:
    """What a rule remembers of one item: its agents, the nodes that its data is on, its last commit."""

    agents: int
    nodes: int
    seconds: float = inf
    #: of the search for a better number
    search: Any = None
    #: why it has that many agents, as far as something was decided
    why: str = field(default="", compare=False)
