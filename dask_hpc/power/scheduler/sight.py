"""Readings and occupancy, put together: what each node draws, what a job's node does, and what all do."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import ceil, sqrt
from operator import add
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler.service import Context
from dask_hpc.model.power import SOURCES, PowerRange, Source
from dask_hpc.model.snapshot import Running
from dask_hpc.model.units import show_duration
from dask_hpc.planning.power_level import ENOUGH, LevelWindow, quantiles
from dask_hpc.power.model import PowerModel
from dask_hpc.power.scheduler.meters import Meter, NodeReading, NodeUse, SensorReading
from dask_hpc.power.worker.plugin import KEY

_SETTLED = 3  # looks
_LEARN = 0.2  # weight of a new sample of a level
_MOST_KEPT = 512  # samples of a job's whole life


class JobLevel:
    """Watts per node of one running job."""

    def __init__(self) -> None:
        self.window = LevelWindow()
        self._whole_life: list[float] = []
        #: the nodes that it held at the last look
        self.nodes: tuple[str, ...] = ()
        self._settled = 0
        self._skip, self._skipped = 1, 0

    def add(self, now: float, nodes: tuple[str, ...], watts: float, doubt: float = 0.0) -> None:
        """One look at the nodes it holds: the mean of their watts, and by how much it may be wrong because
        of sensors that are not trusted."""
        if nodes != self.nodes:
            self.nodes, self._settled = nodes, 0
        self._settled += 1
        if self._settled <= _SETTLED:
            return
        if doubt:
            self.window.add(now, max(watts - doubt, 0.0))
            self.window.add(now, watts + doubt)
            return
        self.window.add(now, watts)
        self._skipped += 1
        if self._skipped < self._skip:
            return
        self._skipped = 0
        self._whole_life.append(watts)
        if len(self._whole_life) == _MOST_KEPT:  # half as many say as much
            self._whole_life, self._skip = self._whole_life[::2], 2 * self._skip

    @property
    def whole_life(self) -> PowerRange | None:
        """Over all its life, for reruns."""
        return quantiles(self._whole_life) if len(self._whole_life) >= ENOUGH else None


@dataclass(slots=True)
class _NodeLevel:
    """What one node draws when idle and when all its threads work, as far as that was seen."""

    idle: float | None = None
    full: float | None = None
    is_busy: bool = False
    settled: int = 0

    def add(self, load: float, watts: float) -> bool:
        """Whether the node has been as it is for some time."""
        is_busy = load > 0
        self.settled = self.settled + 1 if is_busy == self.is_busy else 1
        self.is_busy = is_busy
        if self.settled <= _SETTLED:
            return False
        if not is_busy:
            self.idle = watts if self.idle is None else self.idle + _LEARN * (watts - self.idle)
        elif load >= 1:
            self.full = watts if self.full is None else self.full + _LEARN * (watts - self.full)
        return True


class Levels:
    """Of all nodes and jobs. Only what trusted sensors say is learned from."""

    def __init__(self) -> None:
        self._nodes: dict[str, _NodeLevel] = {}
        #: of a node that works for anybody, and of one that works outside of jobs
        self.active = LevelWindow()
        self.outside = LevelWindow()
        self.jobs: dict[str, JobLevel] = {}
        #: the most that any node was seen to draw
        self.highest = 0.0

    def add(
        self,
        now: float,
        readings: Mapping[str, NodeReading],
        uses: Mapping[str, NodeUse],
        jobs: Collection[Running],
    ) -> None:
        """One look: what each node draws, how it is used, and the jobs that run. Nodes that they are giving
        up say nothing of them any more: they idle one by one."""
        held = {name for job in jobs for name in job.nodes}
        busy, outside = [], []
        for name, reading in readings.items():
            if reading.doubt:
                continue
            self.highest = max(self.highest, reading.watts)
            level = self._nodes.setdefault(name, _NodeLevel())
            if level.add(uses[name].load, reading.watts) and level.is_busy:
                busy.append(reading.watts)
                if name not in held:
                    outside.append(reading.watts)
        for window, found in ((self.active, busy), (self.outside, outside)):
            for watts in quantiles(found) if found else ():  # however many nodes there are
                window.add(now, watts)
        for name in self._nodes.keys() - readings.keys():
            del self._nodes[name]
        for job in jobs:
            nodes = job.nodes[: job.target]
            there = [readings[name] for name in nodes if name in readings]
            if there:
                watts = sum(one.watts for one in there) / len(there)
                doubt = sum(one.uncertainty for one in there if one.doubt) / len(there)
                self.jobs.setdefault(job.job.id, JobLevel()).add(now, nodes, watts, doubt)

    def expected(self, name: str, load: float, model: PowerModel) -> float:
        """Watts of the node under that load: as seen of it, else by the model."""
        level = self._nodes.get(name) or _NodeLevel()
        idle = model.idle if level.idle is None else level.idle
        full = max(model.busy, idle) if level.full is None else level.full
        return idle + (full - idle) * load


MOST = 50_000.0  # watts of one machine that are believed; the largest nodes one can buy draw about 15,000
_ZERO = 0.1  # watts
_MOVED = 0.25  # of its threads; a load that changes so much shows in the power
_LATE = 2.75  # readings that may fail to come; with that a look every reading finds it within three
_FROZEN = 3  # readings
_AGAIN = 3
_PATIENCE = 10.0  # seconds that a new machine has to say something: its worker plugin must get there


class Trust:
    """In one sensor. ``doubt`` says why there is none; it is empty while all is well."""

    def __init__(self, now: float) -> None:
        self.doubt = ""
        self._heard_at = now
        self._number: Any = None
        self._watts: float | None = None
        self._load = 0.0
        self._stood_still = 0
        self._right = 0

    def look(self, now: float, sensed: SensorReading | None, interval: float) -> None:
        """What the sensor says now, if it has ever said anything; ``interval`` is from one reading to the
        next."""
        if sensed is not None and sensed.number != self._number:
            self._heard_at, self._number = now, sensed.number
            self._judge(sensed)
        else:
            patience = _LATE * interval if self._number is not None else max(_PATIENCE, _LATE * interval)
            if now - self._heard_at > patience:
                self._distrust(f"no new reading for {show_duration(now - self._heard_at)}")

    def _judge(self, sensed: SensorReading) -> None:
        problem = sensed.problem
        if not 0 <= sensed.watts <= MOST:
            problem = problem or f"it says {sensed.watts:g} W, which cannot be"
        elif sensed.watts < _ZERO:
            problem = problem or f"it says {sensed.watts:g} W for a machine that is on"
        problem = problem or self._frozen(sensed)
        if problem:
            self._distrust(problem)
        elif self.doubt:
            self._right += 1
            if self._right >= _AGAIN:
                self.doubt = ""

    def _frozen(self, sensed: SensorReading) -> str:
        if sensed.watts != self._watts:
            self._watts, self._load, self._stood_still = sensed.watts, sensed.load, 0
            return ""
        # Counted from the reading after the change: power follows load with some delay.
        self._stood_still += abs(sensed.load - self._load) >= _MOVED
        if self._stood_still < _FROZEN:
            return ""
        return f"it says {sensed.watts:g} W whatever the load is"

    def _distrust(self, problem: str) -> None:
        if not self.doubt or not problem.startswith("no new"):
            self.doubt = problem
        self._right = 0


class TrustedSensors:
    """Which sensor speaks of which node, and whether it is trusted. The story hears once when a sensor is in
    doubt, and once when it is trusted again."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._trust: dict[str, Trust] = {}
        #: the sensor that speaks of a node, and spoke of it last if it does no more
        self._sensor_of: dict[str, str] = {}

    def look(
        self, now: float, sensed: Mapping[str, SensorReading], nodes: Iterable[str], interval: float
    ) -> dict[str, str]:
        """Why the sensor of each of these nodes is in doubt; empty of one that is trusted."""
        for sensor, one in sensed.items():
            self._sensor_of |= dict.fromkeys(one.parts, sensor)
        here = self._sensor_of = {name: self._sensor_of.get(name, f"node {name}") for name in nodes}
        sensors = dict.fromkeys(here.values())
        self._trust = {sensor: self._trust.get(sensor) or Trust(now) for sensor in sensors}
        for sensor, trust in self._trust.items():
            before = trust.doubt
            trust.look(now, sensed.get(sensor), interval)
            if bool(before) != bool(trust.doubt):
                there = [name for name in here if here[name] == sensor]
                where = f"node{'s' if len(there) > 1 else ''} {', '.join(there)}"
                if trust.doubt:
                    words = f"{where}: {trust.doubt}; the model stands in for it"
                    self._context.tell("power-doubt", words)
                else:
                    words = f"{where}: the sensor is trusted again; before: {before}"
                    self._context.tell("power-trust", words)
        return {name: self._trust[sensor].doubt for name, sensor in here.items()}


_REPLACED_DOUBT = 0.25  # of the watts that stand in for a sensor, at least
_NAMED = 3  # nodes in doubt that are named


class Sight:
    """What is seen through a meter."""

    def __init__(self, context: Context, meter: Meter) -> None:
        self._context = context
        self.meter = meter
        self.levels = Levels()
        self._trust = TrustedSensors(context)
        #: the threads that workers came with: they may be given fewer
        self._threads: dict[str, int] = {}
        self._seen: dict[str, NodeReading] = {}
        #: whether the power of each node can be capped
        self.can_cap = False

    def look(self, now: float) -> None:
        """Read all sensors, and learn what nodes draw, and jobs."""
        context = self._context
        workers = self._workers()
        uses = self._by_node(workers)
        sensed = self.meter.look(now, workers, context.nodes, uses)
        interval = max(self.meter.interval, compat.heartbeat_seconds(context.scheduler))
        doubts = self._trust.look(now, sensed, uses, interval)
        self.can_cap = 0 < sum(one.can_cap for one in sensed.values()) == len(uses)
        self._seen = {
            name: part
            for sensor in sensed.values()
            for name, part in sensor.parts.items()
            if name in uses and not doubts[name]
        }
        for name, use in uses.items():
            if name not in self._seen and doubts[name]:
                self._seen[name] = self._modelled(name, use, doubts[name])
        self.levels.add(now, self._seen, uses, context.indices.running.values())

    def uses(self) -> dict[str, NodeUse]:
        return self._by_node(self._workers())

    def readings(self, uses: Mapping[str, NodeUse]) -> dict[str, NodeReading]:
        """What each node draws: by the last look, else by the model."""
        return {name: self._seen.get(name) or self._modelled(name, use) for name, use in uses.items()}

    def idle(self, uses: Mapping[str, NodeUse]) -> float:
        """Watts of a node on which nothing runs, on average."""
        found = [self.levels.expected(name, 0.0, self.meter.model(use)) for name, use in uses.items()]
        return sum(found) / len(found) if found else 0.0

    def active(self, uses: Mapping[str, NodeUse]) -> PowerRange:
        """Of a node on which something runs: as seen, else between idle and full by the model."""
        if seen := self.levels.active.range:
            return seen
        full = (self.levels.expected(name, 1.0, self.meter.model(use)) for name, use in uses.items())
        most = max(full, default=0.0)
        return PowerRange(min(self.idle(uses), most), most)

    def _modelled(self, name: str, use: NodeUse, doubt: str = "") -> NodeReading:
        model = self.meter.model(use)
        watts = self.levels.expected(name, use.load, model)
        uncertainty = max(model.uncertainty(use.load), _REPLACED_DOUBT * watts)
        return NodeReading(watts, uncertainty, "modelled", False, doubt)

    def _workers(self) -> dict[str, compat.WorkerUse]:
        return {one.address: one for one in compat.worker_uses(self._context.scheduler, KEY)}

    def _by_node(self, workers: Mapping[str, compat.WorkerUse]) -> dict[str, NodeUse]:
        before, self._threads = self._threads, {}
        found = {name: NodeUse(0, 0, 0) for name in self._context.nodes}
        for address, worker in workers.items():
            name = self._context.nodes.node_of(address)
            threads = self._threads[address] = max(worker.threads, before.get(address, 0))
            if name in found:
                used = (worker.running, threads, 1, worker.tasks)
                found[name] = NodeUse(*map(add, found[name], used))
        return found


_SAMPLE = 100  # tasks that stand for all of those that are queued, or on one worker
_LOOK = 2000  # tasks that wait for a worker that are looked through


def outside_nodes(context: Context, uses: Mapping[str, NodeUse]) -> tuple[int, int]:
    """How many nodes that no job holds work now, and how many could, with the tasks there are."""
    scheduler = context.scheduler

    def is_outside(task: Any) -> bool:
        job = context.owner.get(task.key)
        return job is None or job.state == "done"

    def share(number: int, counted: list[bool]) -> int:
        """How many of so many tasks count, by what a sample of them says."""
        return ceil(number * sum(counted) / len(counted)) if counted else 0

    held = context.holders()
    free = [use for name, use in uses.items() if name not in held]
    there = (compat.given(scheduler, w, _SAMPLE) for name in held for w in context.nodes.workers(name))
    tasks = sum(use.tasks for use in free)
    for number, sample in (compat.queued(scheduler, _SAMPLE), *there):
        tasks += share(number, [is_outside(task) for task in sample])
    number, sample = compat.waiting_for_workers(scheduler, _LOOK)
    tasks += share(number, [is_outside(task) and not any(compat.is_restricted(task)) for task in sample])
    working = sum(use.running > 0 for use in free)
    threads = sum(use.threads for use in uses.values()) / len(uses) if uses else 1
    return working, max(working, min(len(uses), ceil(tasks / max(threads, 1))))


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
