"""What a run of commits writes down while it goes on."""

from dataclasses import dataclass, field
from typing import Literal

#: to agents, or past them to the store
How = Literal["agents", "direct"]


@dataclass(slots=True)
class Committed:
    """One commit."""

    app: str
    number: int
    begin: float
    nodes: int
    nbytes: float
    agents: int
    #: the first one to these agents
    is_first: bool
    how: How = "agents"
    #: seconds that the application stood still for it
    stall: float = 0.0
    #: seconds from its copy on until everything was there
    transfer: float = 0.0
    end: float = float("nan")
    #: when each part arrived, counted from the copy on, by its number
    parts: dict[int, float] = field(default_factory=dict)
    #: parts that an agent had to write to the store at once
    spilled: int = 0
    #: agents died under it, and it was done again past them
    has_failed: bool = False


@dataclass(slots=True)
class Traffic:
    """Bytes, of all applications together."""

    to_agents: float = 0.0
    direct: float = 0.0
    spilled: float = 0.0
    #: what was flushed, and what that came to in the store
    flushed: float = 0.0
    written: float = 0.0
    #: arrived before their commit failed
    wasted: float = 0.0


@dataclass(slots=True)
class Log:
    """All of it, in the order of time."""

    commits: list[Committed] = field(default_factory=list)
    #: from when on an application had its agents on these nodes
    agents: list[tuple[float, str, tuple[str, ...]]] = field(default_factory=list)
    #: probes: when, who, seconds, and whether anything changed
    probes: list[tuple[float, str, float, bool]] = field(default_factory=list)
    #: how many nodes there were for agents, and why that changed
    nodes: list[tuple[float, int, str]] = field(default_factory=list)
    #: number of the newest commit in the store, by application
    stored: dict[str, int] = field(default_factory=dict)
    #: when which commit of whom had been flushed
    flushed: list[tuple[float, str, int]] = field(default_factory=list)
    #: when each application was through
    ended: dict[str, float] = field(default_factory=dict)
    traffic: Traffic = field(default_factory=Traffic)
