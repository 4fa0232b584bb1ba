"""What all applications of a run share: time, links, the agents' nodes, the store and the dice."""

import random
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from dask_hpc.simulator.checkpoint.result import Committed, Log
from dask_hpc.simulator.checkpoint.service import Clock, Fleet, Network, Process, Seat, Service, Slots, all_of
from dask_hpc.strategies.checkpoint.agent_rule import shares, to_remove

FABRIC: Hashable = "fabric"
STORE: Hashable = "store"
BACKGROUND: Hashable = "background"
_LEAST = 0.1  # of what an operation takes without noise


class World:
    """One run's."""

    def __init__(self, service: Service, seed: int) -> None:
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
