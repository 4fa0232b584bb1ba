"""What takes commits: nodes for agents, the shared file system behind them, and what everything costs. A
``World`` is what all applications of a run share: time, links, the agents' nodes, the store and the dice.

Every cost can be nothing. Seconds and bytes per second; the symbols are those of 000, 6.2 to 6.5.
"""

import random
from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

from dask_hpc.model.errors import InputError, shown
from dask_hpc.simulator.checkpoint.result import CommitResult, Committed
from dask_hpc.simulator.network import Clock, Network, Process, Slots, all_of
from dask_hpc.strategies.checkpoint.agent_rule import AgentRule, shares, to_remove
from dask_hpc.strategies.checkpoint.agents import AgentNode


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
_LEAST = 0.1  # of what an operation takes without noise
_ROUNDING = 1 + 1e-9
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

    def noise(self) -> float:
        """How many times as long something takes, by chance."""
        noise = self.service.costs.noise
        return max(_LEAST, self.random.gauss(1.0, noise)) if noise else 1.0

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


@dataclass(slots=True, eq=False)
class Version:
    """One commit: its way to the agents on ``nodes``, what they keep of it, and its way to the store. It is
    handed over in so many ``parts``, some of each node."""

    world: World
    seen: Committed
    nodes: Sequence[str]
    parts: int
    per_node: int
    #: bytes by node
    kept: dict[str, float] = field(default_factory=dict)
    is_flushing: bool = False
    is_superseded: bool = False
    is_broken: bool = False
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.world.now

    def lost(self, node: str) -> None:
        """A node is gone with what it kept."""
        if self.kept.pop(node, None) is not None:
            self.is_broken = True

    def to_agents(self, reads: int) -> Process:
        """Each agent takes its parts one after the other, all agents at once."""
        world = self.world
        chains, first = [], 0
        for node, share in zip(self.nodes, shares(self.parts, len(self.nodes)), strict=True):
            parts = range(first, first + share)
            chains.append(world.clock.start(self._serve(world.seats[node], parts, reads)))
            first += share
        yield from all_of(chains)

    def _serve(self, seat: Seat, parts: range, reads: int) -> Process:
        world, app = self.world, self.seen.app
        service, size = world.service, self.seen.nbytes / self.parts
        mine = 0.0
        for part in parts:
            if self.is_broken:
                return
            yield self._setup(size, reads)
            has_room = seat.used + size <= service.memory * _ROUNDING
            keeps = has_room and mine + size <= service.buffer * _ROUNDING
            if app not in seat.agents:
                self.is_broken = True
                return
            if keeps:
                seat.used += size
                self.kept[seat.name] = self.kept.get(seat.name, 0.0) + size
                mine += size
            links = (self._way_out(part), seat.link, FABRIC)
            arrived = world.network.send(size, links, service.costs.agent / world.noise())
            yield arrived
            if arrived.is_broken:
                self.is_broken = True
                return
            seat.heard.append((world.now, app, size))
            world.log.traffic.to_agents += size
            if not keeps:  # it goes to the store before the next part is taken
                yield service.store.open
                arrived = world.network.send(size, (seat.way_out, STORE), service.store.writer)
                yield arrived
                if arrived.is_broken:
                    self.is_broken = True
                else:
                    self.seen.spilled += 1
                    world.log.traffic.spilled += size
            self.seen.parts[part] = world.now - self.began

    def _setup(self, size: float, reads: int) -> float:
        service = self.world.service
        costs = service.costs
        seconds = costs.operation + costs.turn * reads
        if self.seen.is_first:
            seconds += (costs.registering - 1) * (seconds + size / min(costs.agent, service.link))
        return seconds * self.world.noise()

    def past_agents(self) -> Process:
        """One process of each node writes a file of its own."""
        world, store = self.world, self.world.service.store
        writers = -(-self.parts // self.per_node)
        size = self.seen.nbytes / writers

        def write(node: int) -> Process:
            yield store.open * world.noise()
            yield world.network.send(size, (self._way_out(node * self.per_node), STORE), store.writer)
            world.log.traffic.direct += size

        yield from all_of([world.clock.start(write(node)) for node in range(writers)])

    def flush(self) -> Process:
        """Write what agents keep of it to the store, while they go on."""
        world, store, seen = self.world, self.world.service.store, self.seen
        squeeze = store.compression if store.compression and seen.nbytes > store.compression.above else None
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
            if arrived.is_broken or self.is_broken:
                lost.append(seat.name)
                return
            world.log.traffic.flushed += size
            world.log.traffic.written += smaller

        yield from all_of(
            [world.clock.start(write(world.seats[name], size)) for name, size in self.kept.items()]
        )
        if not lost:
            world.log.stored[seen.app] = max(seen.number, world.log.stored.get(seen.app, 0))
            world.log.flushed.append((world.now, seen.app, seen.number))

    def _way_out(self, part: int) -> tuple[str, str, int]:
        return ("app", self.seen.app, part // self.per_node)
