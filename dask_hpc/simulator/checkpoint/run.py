"""One run: applications, their commits and the service, until the last of them is through."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from math import inf
from typing import Literal

from dask_hpc.model.errors import InputError, shown
from dask_hpc.simulator.checkpoint.world import (
    BACKGROUND,
    FABRIC,
    STORE,
    CommitResult,
    CommitService,
    Committed,
    Seat,
    World,
)
from dask_hpc.simulator.network import Process, Signal
from dask_hpc.strategies.checkpoint.agent_rule import AgentRule, shares, tries_again
from dask_hpc.strategies.checkpoint.agents import Direct, ItemAgents

#: who hands its part of a commit over: each process for itself, or one for all of a node (000, 6.2)
Way = Literal["mr", "shmr"]
#: as many agents all the time, on the nodes with the least traffic
FIXED = AgentRule(count="fixed", resize="rigid", rank="bandwidth", per_node=64)
#: of bytes that fit
_ROUNDING = 1 + 1e-9


@dataclass(frozen=True, slots=True)
class SizeChange:
    """After so many commits it has so many nodes, and so many bytes to commit."""

    after: int
    nodes: int
    nbytes: float


@dataclass(frozen=True, slots=True)
class App:
    """It computes ``interval`` seconds, commits ``nbytes``, and so on until it has made all its commits or
    ``until`` is over. Every ``probe_every`` seconds it asks whether its agents should change."""

    name: str
    nodes: int
    nbytes: float
    interval: float
    commits: int = 10**9
    start: float = 0.0
    until: float = inf
    processes: int = 1
    way: Way = "shmr"
    asynchronous: bool = False
    agents: int = 1
    #: how that number follows commits and resizes, and where agents run: the strategy of a policy
    rule: AgentRule = field(default_factory=lambda: FIXED)
    resizes: tuple[SizeChange, ...] = ()
    probe_every: float = inf
    #: asked for by hand at these times: so many agents from the next commit on
    changes: tuple[tuple[float, int], ...] = ()
    #: only these nodes may have its agents; none: all
    allowed: tuple[str, ...] = ()
    #: in how many reads an agent fetches the part of one node, by the number of commits since the last resize
    reads: Callable[[int], int] | None = None
    #: each interval is this share longer or shorter at most, at random
    spread: float = 0.0

    def __post_init__(self) -> None:
        for name in ("nodes", "processes", "agents"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise InputError(f"app {shown(self.name)}: {name}", f"found {shown(value)}", "1 or more")
        for name in ("nbytes", "interval", "start", "spread"):
            value = getattr(self, name)
            if not 0 <= value < inf:
                raise InputError(f"app {shown(self.name)}: {name}", f"found {shown(value)}", "0 or more")
        if not self.interval and self.commits >= 10**9 and self.until == inf:
            raise InputError(f"app {shown(self.name)}", "never ends", "commits, or until")


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
        yield from chains

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
            arrived = world.network.send(size, links, service.costs.agent / world.noise(reads))
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
        setup = service.costs.setup(size, service.link, reads, self.seen.is_first)
        return setup * self.world.noise(reads)

    def past_agents(self) -> Process:
        """One process of each node writes a file of its own."""
        world, store = self.world, self.world.service.store
        writers = -(-self.parts // self.per_node)
        size = self.seen.nbytes / writers

        def write(node: int) -> Process:
            yield store.open * world.noise()
            yield world.network.send(size, (self._way_out(node * self.per_node), STORE), store.writer)
            world.log.traffic.direct += size

        yield from [world.clock.start(write(node)) for node in range(writers)]

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

        yield from [world.clock.start(write(world.seats[name], size)) for name, size in self.kept.items()]
        if not lost:
            world.log.stored[seen.app] = max(seen.number, world.log.stored.get(seen.app, 0))
            world.log.flushed.append((world.now, seen.app, seen.number))

    def _way_out(self, part: int) -> tuple[str, str, int]:
        return ("app", self.seen.app, part // self.per_node)


class AppLife:
    """Its state, and the process that it is."""

    def __init__(self, app: App, world: World) -> None:
        self.app, self._world = app, world
        self._nodes, self._nbytes = app.nodes, app.nbytes
        #: where each agent is; none while commits go past agents
        self._agents: tuple[str, ...] = ()
        self._revision = -1
        self._is_first = True
        self._since_resize = 0
        #: commits that are with agents, or on their way there
        self.versions: list[Version] = []
        #: an asynchronous commit that is under way
        self._pending: tuple[Signal, Committed] | None = None
        self._next_probe = inf
        self._last_probe = 0.0
        self._changes = sorted(app.changes)
        #: what a commit took to the agents of now, to any agents, and past them
        self._heard: float | None = None
        self._to_agents = 0.0
        self._direct = 0.0
        #: how many there should be, and what the rule remembers
        self._item = ItemAgents(app.agents, self._parts)

    def live(self) -> Process:
        """From its start to its end."""
        app, world = self.app, self._world
        yield app.start
        began = world.now
        yield from self._begin()
        resizes = {one.after: one for one in app.resizes}
        number = 0
        while number < app.commits:
            yield app.interval * (1 + app.spread * world.random.uniform(-1, 1))
            if world.now >= began + app.until:
                break
            number += 1
            yield from self._finish_pending()
            yield from self._commit(number)
            if number in resizes:
                yield from self._finish_pending()
                yield from self._resize(resizes[number])
            yield from self._perhaps_probe(number)
        yield from self._finish_pending()
        world.log.ended[self.app.name] = world.now
        world.live -= 1
        self._seat(())
        for version in list(self.versions):
            self._supersede(version)

    # commits

    def _commit(self, number: int) -> Process:
        app, world = self.app, self._world
        costs = world.service.costs
        seen = Committed(
            app.name, number, world.now, self._nodes, self._nbytes, len(self._agents), self._is_first
        )
        world.log.made.append(seen)
        if any(app.name not in world.seats[node].agents for node in self._agents):
            yield costs.give_up  # they do not answer
            self._lose_agents()
            seen.agents = 0
        yield costs.message + self._nbytes / self._nodes / costs.copy
        self._since_resize += 1
        over = world.clock.start(self._send(seen))
        if app.asynchronous and self._agents:
            seen.stall = world.now - seen.begin
            self._pending = (over, seen)
            return
        yield over
        seen.stall = world.now - seen.begin

    def _finish_pending(self) -> Process:
        """Data may not change while it is under way: the next commit waits for the one before."""
        if self._pending is None:
            return
        over, seen = self._pending
        self._pending = None
        since = self._world.now
        yield over
        seen.stall += self._world.now - since

    def _send(self, seen: Committed) -> Process:
        world, app, parts = self._world, self.app, self._parts
        since = world.now
        version = Version(world, seen, self._agents[:parts], parts, parts // self._nodes)
        if self._agents:
            self.versions.append(version)
            yield from version.to_agents(app.reads(self._since_resize) if app.reads else 1)
            if version.is_broken:
                seen.has_failed = True
                world.log.traffic.wasted += seen.nbytes / self._parts * len(seen.parts)
                self._supersede(version)
                self._lose_agents()
        if not self._agents:
            seen.how = "direct"
            seen.parts.clear()
            yield from version.past_agents()
            world.log.stored[app.name] = seen.number
            self._direct = world.now - since
        seen.end, seen.transfer = world.now, world.now - since
        if seen.how == "agents":
            self._arrived(seen, version)

    def _arrived(self, seen: Committed, version: Version) -> None:
        world = self._world
        for node in set(self._agents):
            world.seats[node].heard.append((world.now, self.app.name, 0.0))
        if not seen.is_first:  # that one says nothing of those to come
            self._heard = self._to_agents = seen.transfer
        self._is_first = False
        for older in [one for one in self.versions if one is not version]:
            self._supersede(older)

        def flushed() -> None:
            version.is_flushing = False
            if version.is_superseded:
                self._supersede(version)

        every = world.service.store.flush_every
        if every and seen.number % every == 0:
            version.is_flushing = True
            world.clock.start(version.flush()).then(flushed)

    def _supersede(self, version: Version) -> None:
        """A newer one is complete: its memory is free, unless it is just being written."""
        version.is_superseded = True
        if version.is_flushing or version not in self.versions:
            return
        self.versions.remove(version)
        for node, nbytes in version.kept.items():
            seat = self._world.seats[node]
            seat.used = max(0.0, seat.used - nbytes)
            if not seat.used and not seat.agents:
                seat.idle_since = self._world.now
        self._world.settle()

    # agents

    @property
    def _parts(self) -> int:
        """What is handed over one by one."""
        return self._nodes * (self.app.processes if self.app.way == "mr" else 1)

    def _begin(self) -> Process:
        self._has_links()
        yield from self._change(self._place(self._item.agents))

    def _has_links(self) -> None:
        links = (("app", self.app.name, node) for node in range(self._nodes))
        self._world.network.links |= dict.fromkeys(links, self._world.service.link)

    def _place(self, count: int) -> tuple[str, ...]:
        app = self.app
        views = self._world.views(without=app.name)
        if app.allowed:
            views = [view for view in views if view.name in app.allowed]
        return tuple(app.rule.slots(count, views, self._needed(count), ()))

    def _needed(self, count: int) -> float:
        """Bytes that each of so many agents has to have room for: the last commit is kept until the next one
        is complete."""
        return 2 * min(self._nbytes / max(1, count), self._world.service.buffer)

    def _seat(self, nodes: tuple[str, ...]) -> None:
        self._agents = nodes
        self._world.seat_agents(self.app.name, nodes, self._needed(len(nodes)))

    def _lose_agents(self) -> None:
        self._seat(())
        self._next_probe = self._world.now + self._world.service.costs.retry_wait

    def _change(self, nodes: tuple[str, ...]) -> Process:
        """To these agents, which takes its time."""
        world = self._world
        since = self._last_probe = world.now
        new = Counter(nodes) - Counter(self._agents)
        seconds = self._changing(new.total(), len(nodes)) if nodes else world.service.costs.probe
        self._revision = world.revision
        self._seat(nodes)
        self._is_first = True
        self._heard = None
        if not nodes:
            self._next_probe = world.now + world.service.costs.retry_wait
        yield seconds * world.noise()
        world.log.probes.append((since, self.app.name, world.now - since, True))

    def _changing(self, new: int, agents: int) -> float:
        return self._world.service.costs.changing(new, agents, self._parts)

    def _resize(self, resize: SizeChange) -> Process:
        self._nodes, self._nbytes = resize.nodes, resize.nbytes
        self._since_resize = 0
        self._has_links()
        self._item = self.app.rule.resized(self._item, self._parts)
        if not self._agents:
            return
        count = self._item.agents
        nodes = self._agents if count == len(self._agents) else self._place(count) or self._agents[:count]
        yield self._world.service.costs.probe
        yield from self._change(nodes)

    # probes

    def _perhaps_probe(self, number: int) -> Process:
        world, seats = self._world, self._world.seats
        asked = [agents for time, agents in self._changes if time <= world.now]
        if not self._agents:
            is_due = tries_again(
                Direct(0, self._next_probe), world.now, past_agents=self._direct, to_agents=self._to_agents,
                change=self._changing(self._item.agents, self._item.agents), commits_left=self._left(number),
            )  # fmt: skip
        else:
            is_due = bool(asked) or world.now >= self._last_probe + self.app.probe_every
            is_due = is_due or any(seats[node].is_leaving for node in self._agents)
        if not is_due:
            return
        self._changes = self._changes[len(asked) :]
        if asked:
            self._item = ItemAgents(asked[-1], self._parts)
        elif self._agents and self._heard is not None:
            self._item = self.app.rule.committed(
                self._item, len(self._agents), self._heard, self._parts, self._left(number)
            )
        count, nodes = self._item.agents, self._agents
        if count != len(self._agents) or self._revision != world.revision:
            stays = not any(seats[node].is_leaving for node in self._agents)
            # where there is no room for others, those that one has are better than none
            nodes = self._place(count) or (self._agents if stays else ())
        if Counter(nodes) == Counter(self._agents):
            self._revision = world.revision
            self._next_probe = world.now + world.service.costs.retry_wait
            self._last_probe = world.now
            world.log.probes.append((world.now, self.app.name, world.service.costs.probe, False))
            yield world.service.costs.probe
            return
        yield from self._finish_pending()
        yield from self._change(nodes)

    def _left(self, number: int) -> float:
        """Commits that are still to come."""
        app = self.app
        by_time = (app.start + app.until - self._world.now) / app.interval if app.interval else inf
        return min(app.commits - number, by_time)


def simulate_commits(
    apps: Sequence[App], service: CommitService, *, seed: int = 0, horizon: float = inf
) -> CommitResult:
    """Let these applications commit to this service; ``horizon`` ends it after so many seconds."""
    names = [app.name for app in apps]
    if twice := {name for name in names if names.count(name) > 1}:
        raise InputError("apps", f"found {shown(min(twice))} twice", "each name once")
    endless = [app.name for app in apps if app.commits >= 10**9 and app.until == inf]
    if endless and horizon == inf:
        raise InputError(f"app {shown(endless[0])}", "never ends", "commits, until, or a horizon")
    world = World(service, seed)
    clock, lives = world.clock, [AppLife(app, world) for app in apps]
    world.live = len(lives)

    def fail(node: str) -> None:
        if node in world.seats and world.seats[node].is_up:
            # the books first: what breaks off now asks them at once
            for version in chain.from_iterable(life.versions for life in lives):
                version.lost(node)
            world.fail(world.seats[node])

    for time, count in service.joins:
        clock.at(time, partial(world.join, count, "given"))
    for time, count in service.leaves:
        clock.at(time, partial(world.give_back, count))
    for time, name in service.failures:
        clock.at(time, partial(fail, name))
    for life in lives:
        clock.start(life.live())
    if service.pool is not None:
        clock.start(world.watch_pool(service.pool))
    clock.run(horizon)
    return world.log
