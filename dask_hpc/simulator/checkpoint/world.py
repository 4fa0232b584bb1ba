"""What takes commits: nodes for agents, the shared file system behind them, and what everything costs. A
``World`` is what all applications of a run share: time, links, the agents' nodes, the store and the dice.
What agents cost is ``platform.Costs``, as on any machine.

Every cost can be nothing. Seconds and bytes per second; the symbols are those of 000, 6.2 to 6.5.
"""

import random
from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from math import inf, sqrt
from typing import Literal

import numpy as np
import pandas as pd
import xarray as xr

from dask_hpc.model.errors import InputError, shown
from dask_hpc.simulator.network import Clock, Network, Process, Slots
from dask_hpc.simulator.platform import Costs
from dask_hpc.strategies.checkpoint.agent_rule import AgentRule, to_remove
from dask_hpc.strategies.checkpoint.agents import AgentNode

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
class BytesMoved:
    """Bytes, of all applications together."""

    to_agents: float = 0.0
    direct: float = 0.0
    spilled: float = 0.0
    #: what was flushed, and what that came to in the store
    flushed: float = 0.0
    written: float = 0.0
    #: arrived before their commit failed
    wasted: float = 0.0


_COLUMNS = ("app", "number", "begin", "end", "stall", "transfer", "nodes", "nbytes", "agents", "is_first",
            "how", "spilled", "has_failed")  # fmt: skip


@dataclass
class CommitResult:
    """One run, all in the order of time."""

    made: list[Committed] = field(default_factory=list)
    #: from when on an application had its agents on these nodes
    seated: list[tuple[float, str, tuple[str, ...]]] = field(default_factory=list)
    #: when, who, seconds, and whether anything changed
    probes: list[tuple[float, str, float, bool]] = field(default_factory=list)
    #: how many nodes there were for agents, and why that changed
    pool: list[tuple[float, int, str]] = field(default_factory=list)
    #: number of the newest commit in the store, by application
    stored: dict[str, int] = field(default_factory=dict)
    #: when which commit of whom had been flushed
    flushed: list[tuple[float, str, int]] = field(default_factory=list)
    #: when each application was through
    ended: dict[str, float] = field(default_factory=dict)
    traffic: BytesMoved = field(default_factory=BytesMoved)

    def of(self, app: str) -> list[Committed]:
        return [one for one in self.made if one.app == app]

    def agents_at(self, app: str, time: float) -> tuple[str, ...]:
        """The node of each of its agents then."""
        there = (nodes for since, name, nodes in reversed(self.seated) if name == app and since <= time)
        return next(there, ())

    def nodes_at(self, time: float) -> int:
        return next(count for since, count, _ in reversed(self.pool) if since <= time)

    @cached_property
    def commits(self) -> pd.DataFrame:
        """One row per commit, in the order in which they began. ``stall`` is what the application stood
        still for it; ``transfer`` is how long it was on its way."""
        rows = [[getattr(one, name) for name in _COLUMNS] for one in self.made]
        return pd.DataFrame(rows, columns=list(_COLUMNS))

    @cached_property
    def agents(self) -> pd.DataFrame:
        """From which time on which application had how many agents, on how many nodes."""
        rows = [(time, app, len(nodes), len(set(nodes))) for time, app, nodes in self.seated]
        return pd.DataFrame(rows, columns=["time", "app", "agents", "nodes"])

    @cached_property
    def dataset(self) -> xr.Dataset:
        """All of it: ``commit``s, ``change``s of agents, and ``pool_time``s from which on there were so many
        nodes for agents."""
        columns = {
            name: ("commit", column.to_numpy(dtype="U" if name in ("app", "how") else None))
            for name, column in self.commits.items()
        }
        agents = self.agents
        dataset = xr.Dataset(
            columns
            | {
                "agents_app": ("change", agents["app"].to_numpy(dtype="U")),
                "agents_there": ("change", agents["agents"].to_numpy()),
                "pool_nodes": ("pool_time", np.array([count for _, count, _ in self.pool])),
            },
            coords={
                "change": agents["time"].to_numpy(),
                "pool_time": np.array([time for time, _, _ in self.pool]),
            },
            attrs={f"bytes_{name}": getattr(self.traffic, name) for name in BytesMoved.__slots__},
        ).set_coords("number")
        for name in ("begin", "end", "stall", "transfer", "change", "pool_time"):
            dataset[name].attrs["units"] = "s"
        dataset["nbytes"].attrs["units"] = "B"
        return dataset


@dataclass(frozen=True, slots=True)
class Compression:
    """Of what goes to the store, on the agents' side (9.4.1.5 finds that the other side costs too much)."""

    ratio: float = 2.0
    #: bytes per second, of one agent
    rate: float = 400e6
    #: commits that are smaller are written as they are
    above: float = 1e9


@dataclass(frozen=True, slots=True)
class SiteStore:
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
class CommitService:
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
    store: SiteStore = field(default_factory=SiteStore)
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


_RECENT = 60.0  # seconds in which an agent counts as one that has just joined
_LEAST = 0.1  # of what an operation takes without noise
FABRIC, STORE, BACKGROUND = "fabric", "store", "background"


@dataclass(slots=True)
class Seat:
    """One node for agents."""

    name: str
    is_up: bool = True
    is_leaving: bool = False
    used: float = 0.0
    #: by application
    agents: dict[str, int] = field(default_factory=dict)
    #: bytes that their agents will need here
    promised: dict[str, float] = field(default_factory=dict)
    #: when agents came
    joined: deque[float] = field(default_factory=deque)
    #: when which application sent so many bytes, or (0 bytes) made a commit
    heard: deque[tuple[float, str, float]] = field(default_factory=deque)
    idle_since: float = 0.0

    @property
    def link(self) -> Hashable:
        return ("agents", self.name)

    @property
    def way_out(self) -> Hashable:
        return ("out", self.name)


class World:
    """One run's. Names of nodes are never used again."""

    def __init__(self, service: CommitService, seed: int) -> None:
        self.service = service
        self.clock = Clock()
        store = service.store
        links: dict[Hashable, float] = {
            FABRIC: service.fabric,
            STORE: store.bandwidth,
            BACKGROUND: store.background,
        }
        self.network = Network(self.clock, links)
        self.seats: dict[str, Seat] = {}
        #: changes when a node comes or goes
        self.revision = 0
        self.writers = Slots(store.writers)
        self.log = CommitResult()
        self.random = random.Random(seed)
        #: applications that are not through
        self.live = 0
        #: how full nodes were when somebody looked last
        self._filled: dict[str, tuple[float, float]] = {}
        self.join(service.nodes, "there from the start")

    @property
    def now(self) -> float:
        return self.clock.now

    def noise(self, reads: int = 1) -> float:
        """How many times as long something takes, by chance; so many reads, each with a chance of its own,
        take their mean."""
        noise = self.service.costs.noise
        return max(_LEAST, self.random.gauss(1.0, noise / sqrt(reads))) if noise else 1.0

    # nodes that come and go

    def join(self, count: int, reason: str) -> None:
        for _ in range(count):
            seat = Seat(f"n{len(self.seats) + 1}", idle_since=self.now)
            self.seats[seat.name] = seat
            self.network.links |= dict.fromkeys((seat.link, seat.way_out), self.service.link)
            self.revision += 1
        self._tell(reason)

    def fail(self, seat: Seat) -> None:
        """A node is gone, with all that it kept, for as long as its repair takes."""
        seat.is_up, seat.used = False, 0.0
        seat.agents.clear()
        seat.promised.clear()
        self.revision += 1
        self.network.cut(seat.link)
        self.network.cut(seat.way_out)

        def back() -> None:
            seat.is_up, seat.idle_since = True, self.now
            self.revision += 1

        self.clock.at(self.now + self.service.repair, back)

    def leave(self, names: Iterable[str]) -> None:
        """They take no more commits, and go when the next ones have replaced what they keep."""
        for name in names:
            self.seats[name].is_leaving = True
            self.revision += 1
        self.settle()

    def settle(self) -> None:
        """Those that leave and are empty now are gone."""
        there = [seat for seat in self.seats.values() if seat.is_up]
        gone = [seat for seat in there if seat.is_leaving and not seat.agents and seat.used < 1e-6]
        for seat in gone:
            seat.is_up = False
        if gone:
            self._tell("not needed any more")

    def give_back(self, count: int) -> None:
        """Whoever owns the nodes wants so many of them."""
        self.leave(to_remove(self.views(), count))

    def watch_pool(self, pool: Pool) -> Process:
        """Look now and then whether there are too few nodes, or too many."""
        spare = pool.spare
        while self.live:
            views = self.views()
            wish = pool.rule.more_nodes(views)
            if wish is not None and spare:
                spare -= 1
                yield pool.grant
                self.join(1, wish.reason)
            elif back := pool.rule.idle_nodes(views):
                spare += len(back)
                self.leave(one.node for one in back)
            self._filled = {seat.name: (self.now, seat.used) for seat in self._up}
            yield pool.every

    def _tell(self, reason: str) -> None:
        self.log.pool.append((self.now, sum(seat.is_up for seat in self.seats.values()), reason))

    # as rules see them

    @property
    def _up(self) -> list[Seat]:
        """Those that can have agents."""
        return [seat for seat in self.seats.values() if seat.is_up and not seat.is_leaving]

    def views(self, without: str = "") -> list[AgentNode]:
        """What one application does is left out if that is to be decided anew: room that others were
        promised is taken then, used or not."""
        loads = self._loads(without)
        return [self._view(seat, without, loads) for seat in self._up]

    def _loads(self, without: str) -> dict[str, tuple[float, float]]:
        """Of each application what one of its agents brings: bytes and commits per second. What an agent did
        before it moved counts where it is now, or a node that has just joined would get all of them."""
        window = min(self.service.window, self.now) or 1.0
        nbytes: dict[str, float] = defaultdict(float)
        commits: Counter[str] = Counter()
        agents: Counter[str] = Counter()
        for seat in self.seats.values():
            while seat.heard and seat.heard[0][0] < self.now - self.service.window:
                seat.heard.popleft()
            for _, app, size in seat.heard:
                nbytes[app] += size
                commits[app] += not size
            agents.update(seat.agents)
        return {
            app: (nbytes[app] / window / number, commits[app] / window / number)
            for app, number in agents.items()
            if app != without
        }

    def _view(self, seat: Seat, without: str, loads: dict[str, tuple[float, float]]) -> AgentNode:
        now = self.now
        while seat.joined and seat.joined[0] < now - _RECENT:
            seat.joined.popleft()
        here = {app: number for app, number in seat.agents.items() if app != without}
        since, before = self._filled.get(seat.name, (now, seat.used))
        promised = sum(nbytes for app, nbytes in seat.promised.items() if app != without)
        return AgentNode(
            seat.name,
            self.service.memory,
            promised if without else seat.used,
            filling=(seat.used - before) / (now - since) if now > since else 0.0,
            traffic=sum(loads[app][0] * number for app, number in here.items()),
            link=self.service.link,
            commits=sum(loads[app][1] * number for app, number in here.items()),
            agents=sum(here.values()),
            joined=max(0, len(seat.joined) - seat.agents.get(without, 0)),
            idle_for=0.0 if seat.used or here else now - seat.idle_since,
        )

    def seat_agents(self, app: str, nodes: tuple[str, ...], nbytes: float) -> None:
        """An application's agents are on these nodes, and nowhere else; each needs so much memory."""
        for seat in self.seats.values():
            had = seat.agents.pop(app, 0)
            seat.promised.pop(app, None)
            if has := nodes.count(seat.name):
                seat.agents[app] = has
                seat.promised[app] = has * nbytes
                seat.joined.extend([self.now] * (has - had))
            elif had and not seat.agents:
                seat.idle_since = self.now
        self.log.seated.append((self.now, app, nodes))
        self.settle()
