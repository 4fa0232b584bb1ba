"""What takes commits: nodes for agents, the shared file system behind them, and what everything costs. A
``World`` is what all applications of a run share: time, links, the agents' nodes, the store and the dice.

Every cost can be nothing. Seconds and bytes per second; the symbols are those of 000, 6.2 to 6.5.
"""

import random
from collections import Counter, deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from dask_hpc.model.checkpoint import AgentNode
from dask_hpc.model.errors import InputError, shown
from dask_hpc.simulator.checkpoint.result import Committed, Log
from dask_hpc.simulator.network import Clock, Network, Process, Slots, all_of
from dask_hpc.strategies.checkpoint.agent_rule import AgentRule, shares, to_remove


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


@dataclass(slots=True)
class Seat:
    """One node of the fleet."""

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
        """Its way to everybody else."""
        return ("agents", self.name)

    @property
    def way_out(self) -> Hashable:
        """The same link in the other direction."""
        return ("out", self.name)


class Fleet:
    """All of them; names are never used again."""

    def __init__(self, service: CommitService, network: Network) -> None:
        self._service, self._network = service, network
        self.seats: dict[str, Seat] = {}
        #: changes when a node comes or goes
        self.revision = 0
        self._filled: dict[str, tuple[float, float]] = {}
        for _ in range(service.nodes):
            self.add(0.0)

    def add(self, now: float) -> Seat:
        """One node more."""
        seat = Seat(f"n{len(self.seats) + 1}", idle_since=now)
        self.seats[seat.name] = seat
        self._network.links[seat.link] = self._network.links[seat.way_out] = self._service.link
        self.revision += 1
        return seat

    def lose(self, name: str) -> None:
        """It is gone, with all that it kept."""
        seat = self.seats[name]
        seat.is_up, seat.used = False, 0.0
        seat.agents.clear()
        seat.promised.clear()
        self.revision += 1
        self._network.cut(seat.link)
        self._network.cut(seat.way_out)

    def vacate(self, name: str) -> None:
        """Nobody may come any more; it is gone once nothing is kept there."""
        self.seats[name].is_leaving = True
        self.revision += 1

    def settle(self) -> list[str]:
        """Those that leave and are empty now are gone; answers which."""
        gone = [
            seat.name
            for seat in self.seats.values()
            if seat.is_up and seat.is_leaving and not seat.agents and seat.used < 1e-6
        ]
        for name in gone:
            self.seats[name].is_up = False
        return gone

    def back(self, name: str, now: float) -> None:
        """It is there again, empty."""
        self.seats[name].is_up, self.seats[name].idle_since = True, now
        self.revision += 1

    @property
    def up(self) -> list[Seat]:
        """Those that can have agents."""
        return [seat for seat in self.seats.values() if seat.is_up and not seat.is_leaving]

    def views(self, now: float, without: str = "") -> list[AgentNode]:
        """As rules see them; what one application does is left out if that is to be decided anew."""
        loads = self._loads(now, without)
        return [self._view(seat, now, without, loads) for seat in self.up]

    def views_of_promises(self, now: float, without: str) -> list[AgentNode]:
        """As rules see them that place agents: room that others were promised is taken, used or not."""
        return [
            replace(
                view,
                used=sum(nbytes for app, nbytes in self.seats[view.name].promised.items() if app != without),
            )
            for view in self.views(now, without)
        ]

    def note_fill(self, now: float) -> None:
        """Remember how full they are, to know how fast they fill."""
        self._filled = {seat.name: (now, seat.used) for seat in self.up}

    def _loads(self, now: float, without: str) -> dict[str, tuple[float, float]]:
        """Of each application what one of its agents brings: bytes and commits per second. What an agent did
        before it moved counts where it is now, or a node that has just joined would get all of them."""
        window = min(self._service.window, now) or 1.0
        nbytes: Counter[str] = Counter()
        commits: Counter[str] = Counter()
        agents: Counter[str] = Counter()
        for seat in self.seats.values():
            while seat.heard and seat.heard[0][0] < now - self._service.window:
                seat.heard.popleft()
            for _, app, size in seat.heard:
                nbytes[app] += size  # type: ignore[assignment]
                commits[app] += not size
            agents.update(seat.agents)
        return {
            app: (nbytes[app] / window / number, commits[app] / window / number)
            for app, number in agents.items()
            if app != without
        }

    def _view(self, seat: Seat, now: float, without: str, loads: dict[str, tuple[float, float]]) -> AgentNode:
        while seat.joined and seat.joined[0] < now - _RECENT:
            seat.joined.popleft()
        here = {app: number for app, number in seat.agents.items() if app != without}
        own = seat.agents.get(without, 0)
        since, before = self._filled.get(seat.name, (now, seat.used))
        return AgentNode(
            seat.name,
            self._service.memory,
            seat.used,
            filling=(seat.used - before) / (now - since) if now > since else 0.0,
            traffic=sum(loads[app][0] * number for app, number in here.items()),
            link=self._service.link,
            commits=sum(loads[app][1] * number for app, number in here.items()),
            agents=sum(here.values()),
            joined=max(0, len(seat.joined) - own),
            idle_for=0.0 if seat.used or here else now - seat.idle_since,
        )

    def seat_agents(self, app: str, nodes: tuple[str, ...], nbytes: float, now: float) -> None:
        """An application's agents are on these nodes, and nowhere else; each needs so much memory."""
        for seat in self.seats.values():
            had = seat.agents.pop(app, 0)
            seat.promised.pop(app, None)
            has = nodes.count(seat.name)
            if has:
                seat.agents[app] = has
                seat.promised[app] = has * nbytes
                seat.joined.extend([now] * (has - had))
            elif had and not seat.agents:
                seat.idle_since = now


FABRIC: Hashable = "fabric"
STORE: Hashable = "store"
BACKGROUND: Hashable = "background"
_LEAST = 0.1  # of what an operation takes without noise


class World:
    """One run's."""

    def __init__(self, service: CommitService, seed: int) -> None:
        self.service = service
        self.clock = Clock()
        links = {
            FABRIC: service.fabric,
            STORE: service.store.bandwidth,
            BACKGROUND: service.store.background,
        }
        self.network = Network(self.clock, links)
        self.fleet = Fleet(service, self.network)
        self.writers = Slots(service.store.writers)
        self.log = Log()
        self.random = random.Random(seed)
        #: applications that are not through
        self.live = 0
        self._tell("there from the start")

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return self.clock.now

    def noise(self) -> float:
        """How many times as long something takes, by chance."""
        noise = self.service.costs.noise
        return max(_LEAST, self.random.gauss(1.0, noise)) if noise else 1.0

    # nodes that come and go

    def join(self, count: int, reason: str) -> None:
        """So many nodes more."""
        for _ in range(count):
            self.fleet.add(self.now)
        self._tell(reason)

    def leave(self, names: tuple[str, ...]) -> None:
        """They take no more commits, and go when the next ones have replaced what they keep."""
        for name in names:
            self.fleet.vacate(name)
        self.settle()

    def settle(self) -> None:
        """Those that are to leave and can."""
        if self.fleet.settle():
            self._tell("not needed any more")

    def give_back(self, count: int) -> None:
        """Whoever owns the nodes wants so many of them."""
        self.leave(to_remove(self.fleet.views(self.now), count))

    def watch_pool(self) -> Process:
        """Look now and then whether there are too few nodes, or too many."""
        pool = self.service.pool
        assert pool is not None
        spare = pool.spare
        while self.live:
            views = self.fleet.views(self.now)
            wish = pool.rule.more_nodes(views)
            if wish is not None and spare:
                spare -= 1
                yield pool.grant
                self.join(1, wish.reason)
            elif back := pool.rule.idle_nodes(views):
                spare += len(back)
                self.leave(tuple(one.node for one in back))
            self.fleet.note_fill(self.now)
            yield pool.every

    def _tell(self, reason: str) -> None:
        there = sum(seat.is_up for seat in self.fleet.seats.values())
        self.log.nodes.append((self.now, there, reason))


_ROUNDING = 1 + 1e-9


@dataclass(slots=True)
class Version:
    """What agents keep of one commit: bytes by node."""

    parts: dict[str, float] = field(default_factory=dict)
    is_flushing: bool = False
    is_superseded: bool = False
    is_broken: bool = False

    def lost(self, node: str) -> None:
        """A node is gone with what it kept."""
        if self.parts.pop(node, None) is not None:
            self.is_broken = True


class Sending:
    """One commit on its way. ``nodes`` says where each of the agents is."""

    def __init__(
        self, world: World, seen: Committed, nodes: Sequence[str], parts: int, per_node: int
    ) -> None:
        self._world, self._seen = world, seen
        self._nodes = nodes
        self._parts = parts
        self._per_node = per_node
        self.version = Version()
        self._began = world.now

    def to_agents(self, reads: int) -> Process:
        """Each agent takes its parts one after the other, all agents at once."""
        clock = self._world.clock
        chains, first = [], 0
        for node, share in zip(self._nodes, shares(self._parts, len(self._nodes)), strict=True):
            seat = self._world.fleet.seats[node]
            chains.append(clock.start(self._serve(seat, range(first, first + share), reads)))
            first += share
        yield from all_of(chains)

    def _serve(self, seat: Seat, parts: range, reads: int) -> Process:
        world, version = self._world, self.version
        service, size = world.service, self._seen.nbytes / self._parts
        mine = 0.0
        for part in parts:
            if version.is_broken:
                return
            yield self._setup(size, reads)
            keeps = (
                mine + size <= service.buffer * _ROUNDING and seat.used + size <= service.memory * _ROUNDING
            )
            if self._seen.app not in seat.agents:
                version.is_broken = True
                return
            if keeps:
                seat.used += size
                version.parts[seat.name] = version.parts.get(seat.name, 0.0) + size
                mine += size
            links = (self._way_out(part), seat.link, FABRIC)
            arrived = world.network.send(size, links, service.costs.agent / world.noise())
            yield arrived
            if arrived.is_broken:
                version.is_broken = True
                return
            seat.heard.append((world.now, self._seen.app, size))
            world.log.traffic.to_agents += size
            if not keeps:
                yield from self._spill(seat, size)
            self._seen.parts[part] = world.now - self._began

    def _setup(self, size: float, reads: int) -> float:
        service = self._world.service
        costs = service.costs
        seconds = costs.operation + costs.turn * reads
        if self._seen.is_first:
            seconds += (costs.registering - 1) * (seconds + size / min(costs.agent, service.link))
        return seconds * self._world.noise()

    def _spill(self, seat: Seat, size: float) -> Process:
        """An agent without room writes a part to the store before it takes the next one."""
        store = self._world.service.store
        yield store.open
        arrived = self._world.network.send(size, (seat.way_out, STORE), store.writer)
        yield arrived
        if arrived.is_broken:
            self.version.is_broken = True
            return
        self._seen.spilled += 1
        self._world.log.traffic.spilled += size

    def past_agents(self) -> Process:
        """One process of each node writes a file of its own."""
        store, clock = self._world.service.store, self._world.clock
        writers = -(-self._parts // self._per_node)
        size = self._seen.nbytes / writers

        def write(node: int) -> Process:
            yield store.open * self._world.noise()
            links = (self._way_out(node * self._per_node), STORE)
            yield self._world.network.send(size, links, store.writer)
            self._world.log.traffic.direct += size

        yield from all_of([clock.start(write(node)) for node in range(writers)])

    def _way_out(self, part: int) -> tuple[str, str, int]:
        return ("app", self._seen.app, part // self._per_node)


def flush(world: World, version: Version, app: str, number: int, nbytes: float) -> Process:
    """Write what agents keep of a commit to the store, while they go on."""
    store, clock = world.service.store, world.clock
    squeeze = store.compression if store.compression and nbytes > store.compression.above else None
    lost = []

    def write(seat: Seat, size: float) -> Process:
        yield world.writers.take()
        if squeeze is not None:
            yield size / squeeze.rate
        yield store.open
        smaller = size / squeeze.ratio if squeeze is not None else size
        arrived = world.network.send(smaller, (seat.way_out, STORE, BACKGROUND), store.writer)
        yield arrived
        world.writers.give()
        if arrived.is_broken or version.is_broken:
            lost.append(seat.name)
            return
        world.log.traffic.flushed += size
        world.log.traffic.written += smaller

    seats = world.fleet.seats
    writes = [clock.start(write(seats[name], size)) for name, size in version.parts.items()]
    yield from all_of(writes)
    if not lost:
        world.log.stored[app] = max(number, world.log.stored.get(app, 0))
        world.log.flushed.append((world.now, app, number))
