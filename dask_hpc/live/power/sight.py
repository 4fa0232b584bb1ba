"""Readings and occupancy, put together: what each node draws, what a job's node does, and what all do."""

from collections.abc import Callable, Container, Mapping
from math import sqrt
from typing import Any

from dask_hpc.live import compat
from dask_hpc.live.power.levels import Levels, NodeReading
from dask_hpc.live.power.meters import Meter, NodeUse
from dask_hpc.live.power.trust import TrustedSensors
from dask_hpc.model.nodes import Nodes
from dask_hpc.model.power import SOURCES, PowerRange, Source
from dask_hpc.power.heartbeat import KEY

_REPLACED_DOUBT = 0.25  # of the watts that stand in for a sensor, at least
_NAMED = 3  # nodes in doubt that are named


class Sight:
    """Of one cluster through one meter. ``look`` once in an interval; all else may be asked at any time."""

    def __init__(self, scheduler: Any, nodes: Nodes, meter: Meter, tell: Callable[[str, str], None]) -> None:
        self._scheduler = scheduler
        self._nodes = nodes
        self.meter = meter
        self.levels = Levels()
        self._trust = TrustedSensors(tell)
        #: the threads that workers came with: they may be given fewer
        self._threads: dict[str, int] = {}
        self._seen: dict[str, NodeReading] = {}
        #: whether the power of each node can be capped
        self.can_cap = False

    def look(self, now: float, jobs: Mapping[str, tuple[str, ...]], given_up: Container[str] = ()) -> None:
        """Read all sensors, and learn what nodes draw, and jobs: by id, with the nodes they hold; of these,
        the ones that they are giving up."""
        workers = {one.address: one for one in compat.worker_uses(self._scheduler, KEY)}
        uses = self._by_node(workers)
        sensed = self.meter.look(now, workers, self._nodes, uses)
        interval = max(self.meter.interval, compat.heartbeat_seconds(self._scheduler))
        doubts = self._trust.look(now, sensed, uses, interval)
        self.can_cap = 0 < sum(one.can_cap for one in sensed.values()) == len(uses)
        self._seen = {}
        for sensor in sensed.values():
            for name, part in sensor.parts.items():
                if name in uses and not doubts[name]:
                    self._seen[name] = NodeReading(
                        part.watts, part.uncertainty, sensor.source, sensor.is_chance
                    )
        for name, use in uses.items():
            if name not in self._seen and doubts[name]:
                self._seen[name] = self._modelled(name, use, doubts[name])
        self.levels.add(now, self._seen, uses, jobs, given_up)

    def uses(self) -> dict[str, NodeUse]:
        """How each node is used now."""
        return self._by_node({one.address: one for one in compat.worker_uses(self._scheduler, KEY)})

    def readings(self, uses: Mapping[str, NodeUse]) -> dict[str, NodeReading]:
        """What each node draws: by the last look, else by the model."""
        return {name: self._seen.get(name) or self._modelled(name, use) for name, use in uses.items()}

    def idle(self, uses: Mapping[str, NodeUse]) -> float:
        """Watts of a node on which nothing runs, on average."""
        found = [self.levels.idle(name, self.meter.model(use)) for name, use in uses.items()]
        return sum(found) / len(found) if found else 0.0

    def active(self, uses: Mapping[str, NodeUse]) -> PowerRange:
        """Of a node on which something runs: as seen, else between idle and full by the model."""
        seen = self.levels.active
        if seen is not None:
            return seen
        models = {name: self.meter.model(use) for name, use in uses.items()}
        most = [self.levels.expected(name, 1.0, model) for name, model in models.items()]
        return PowerRange(min(self.idle(uses), max(most, default=0.0)), max(most, default=0.0))

    def _modelled(self, name: str, use: NodeUse, doubt: str = "") -> NodeReading:
        model = self.meter.model(use)
        watts = self.levels.expected(name, use.load, model)
        uncertainty = max(model.uncertainty(use.load), _REPLACED_DOUBT * watts)
        return NodeReading(watts, uncertainty, "modelled", False, doubt)

    def _by_node(self, workers: Mapping[str, compat.WorkerUse]) -> dict[str, NodeUse]:
        for address in self._threads.keys() - workers.keys():
            del self._threads[address]
        found = {name: NodeUse(0, 0, 0) for name in self._nodes}
        for address, worker in workers.items():
            name = self._nodes.node_of(address)
            threads = self._threads[address] = max(worker.threads, self._threads.get(address, 0))
            if name in found:
                before = found[name]
                found[name] = NodeUse(
                    before.running + worker.running,
                    before.threads + threads,
                    before.workers + 1,
                    before.tasks + worker.tasks,
                )
        return found


def total(readings: Mapping[str, NodeReading]) -> tuple[float, float, Source]:
    """Watts of all nodes together, the half-width of their 95 % interval, and what they are known by.

    Errors that are chance make up for each other in part; those of models do not.
    """
    watts = sum(one.watts for one in readings.values())
    chance = sqrt(sum(one.uncertainty**2 for one in readings.values() if one.is_chance))
    alike = sum(one.uncertainty for one in readings.values() if not one.is_chance)
    worst = max((SOURCES.index(one.source) for one in readings.values()), default=len(SOURCES) - 1)
    return watts, chance + alike, SOURCES[worst]


def in_doubt(readings: Mapping[str, NodeReading]) -> str:
    """Which nodes' sensors are not trusted, and why; empty if all are."""
    found = [f"node {name}: {one.doubt}" for name, one in readings.items() if one.doubt]
    more = len(found) - _NAMED
    return "; ".join(found[:_NAMED]) + (f"; and {more} more" if more > 0 else "")
