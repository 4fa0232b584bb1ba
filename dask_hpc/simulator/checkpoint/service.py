"""What takes commits: nodes for agents, the shared file system behind them, and what everything costs.

Every cost can be nothing. Seconds and bytes per second; the symbols are those of 000, 6.2 to 6.5.
"""

from dataclasses import dataclass, field
from math import inf

from dask_hpc.model.errors import InputError, shown
from dask_hpc.strategies.agents.rule import AgentRule


@dataclass(frozen=True, slots=True)
class Costs:
    """``t_(msg+copy)`` is ``message`` plus a node's bytes at ``copy``; an agent takes one part after the
    other at the rate ``agent``, with ``operation`` seconds for each and ``turn`` for each read of it."""

    agent: float = inf
    copy: float = inf
    message: float = 0.0
    operation: float = 0.0
    turn: float = 0.0
    #: the first commit to new agents takes so many times as long, as memory is registered: 5 to 10 (9.3.4)
    registering: float = 7.0
    #: asking whether agents should change, if they need not
    probe: float = 0.002
    #: a probe that changes them
    change: float = 0.0
    #: starting any agents, each new one, and connecting an agent to one node
    launch: float = 0.0
    per_agent: float = 0.0
    connect: float = 0.0
    #: before an agent that does not answer is given up, and until the next probe after that
    give_up: float = 0.0
    retry_wait: float = 60.0
    #: operations take a share longer or shorter, normally distributed
    noise: float = 0.0


@dataclass(frozen=True, slots=True)
class Compression:
    """Of what goes to the store, on the agents' side (9.4.1.5 finds that the other side costs too much)."""

    ratio: float = 2.0
    #: bytes per second, of one agent
    rate: float = 400e6
    #: commits that are smaller are written as they are
    above: float = 1e9


@dataclass(frozen=True, slots=True)
class Store:
    """The shared file system. Every ``flush_every``-th commit is written to it in the background; 0: none."""

    bandwidth: float = inf
    #: of one writer
    writer: float = inf
    #: writers that agents may be at once, and what they may take of the bandwidth
    writers: int = 1_000_000
    background: float = inf
    #: seconds to open and close a file
    open: float = 0.0
    flush_every: int = 0
    compression: Compression | None = None


@dataclass(frozen=True, slots=True)
class Pool:
    """How the number of agents' nodes follows what they do: ``rule`` looks at them ``every`` so many seconds,
    and node by node gives back what nobody used for its ``idle`` time."""

    every: float = 10.0
    rule: AgentRule = field(default_factory=AgentRule)
    #: nodes that may still be had, and how long that takes
    spare: int = 0
    grant: float = 0.0


@dataclass(frozen=True, slots=True)
class Service:
    """``nodes`` for agents, each with ``memory`` for copies and a ``link``, as the nodes of applications have
    it. What ``joins`` and ``leaves`` say is given and taken at those times; what ``failures`` names is gone
    then, with all it kept."""

    nodes: int = 1
    link: float = inf
    memory: float = inf
    #: all agents' nodes together
    fabric: float = inf
    #: bytes of one commit that one agent keeps; what is more it writes to the store at once
    buffer: float = inf
    costs: Costs = field(default_factory=Costs)
    store: Store = field(default_factory=Store)
    pool: Pool | None = None
    joins: tuple[tuple[float, int], ...] = ()
    leaves: tuple[tuple[float, int], ...] = ()
    failures: tuple[tuple[float, str], ...] = ()
    #: after how many seconds a node that failed is back, empty
    repair: float = inf
    #: over how many seconds traffic and commits are averaged where nodes are ranked
    window: float = 30.0

    def __post_init__(self) -> None:
        if type(self.nodes) is not int or self.nodes < 1:
            raise InputError("service: nodes", f"found {shown(self.nodes)}", "1 or more")
        for name in ("link", "memory", "fabric"):
            if not getattr(self, name) > 0:
                raise InputError(f"service: {name}", f"found {shown(getattr(self, name))}", "more than 0")
