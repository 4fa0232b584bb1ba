"""What all applications of a run share: time, links, the agents' nodes, the store and the dice."""

import random
from collections.abc import Hashable

from dask_hpc.simulator.checkpoint.clock import Clock, Process, Slots
from dask_hpc.simulator.checkpoint.fleet import Fleet
from dask_hpc.simulator.checkpoint.network import Network
from dask_hpc.simulator.checkpoint.record import Log
from dask_hpc.simulator.checkpoint.service import Service
from dask_hpc.strategies.agents.pool import to_remove

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
