"""What workers tell of their machines' power with their heartbeats, as readings of sensors.

A *sensor* speaks of one machine, which may be several nodes (on a local cluster), and is trusted or not as a
whole. A *part* is what it says of one node.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp
from random import Random
from typing import Any, Literal, NamedTuple

from dask_hpc.dask import WorkerUse
from dask_hpc.model.errors import InputError
from dask_hpc.model.node import Nodes
from dask_hpc.model.power import SOURCES, Source
from dask_hpc.power.model import PowerModel, calibrate
from dask_hpc.power.worker.plugin import Heartbeat, of_each


class NodeUse(NamedTuple):
    """How one node is used now: tasks that run there, its workers, and the threads they came with."""

    running: int
    threads: int
    workers: int
    #: with those that do not run yet
    tasks: int = 0

    @property
    def load(self) -> float:
        """The share of its threads that work."""
        return min(self.running / self.threads, 1.0) if self.threads else 0.0


class NodeReading(NamedTuple):
    """Power of one node, as far as it can be trusted, with the half-width of its 95 % interval."""

    watts: float
    uncertainty: float
    source: Source
    #: whether the error is chance, another one for each sensor; those of models are alike everywhere
    is_chance: bool
    #: why the sensor is not trusted and these watts are the model's, if so
    doubt: str = ""


_LATELY = 3.0  # seconds

_NOTHING = NodeReading(0.0, 0.0, "modelled", False)


class SensorReading(NamedTuple):
    """What one sensor says now."""

    #: another one with each new reading
    number: Any
    watts: float
    #: how busy the machine was, 0 to 1; its power should show that
    load: float
    #: of each node that it speaks of
    parts: Mapping[str, NodeReading]
    #: why it cannot even be read
    problem: str = ""
    #: whether this machine is one node whose power can be capped
    can_cap: bool = False


class WorkerMeter:
    """What the workers tell. ``interval`` is how often they look at their sensors; ``measured`` calibrates
    the model, with pairs of use (0 to 1) and watts of a node."""

    def __init__(self, interval: float, measured: Sequence[tuple[float, float]] = ()) -> None:
        self.interval = interval
        self.measured = list(measured)
        self._model = calibrate(measured) if measured else None

    def look(
        self, now: float, workers: Mapping[str, WorkerUse], nodes: Nodes, uses: Mapping[str, NodeUse]
    ) -> dict[str, SensorReading]:
        machines: dict[str, dict[str, Heartbeat]] = {}
        found = {}
        for address, worker in workers.items():
            if worker.said is None:
                continue
            try:
                told = Heartbeat.read(worker.said)
            except InputError as error:
                part = {nodes.node_of(address): _NOTHING}
                found[address] = SensorReading(worker.heard, 0.0, 0.0, part, str(error))
            else:
                machines.setdefault(told.host, {})[address] = told
        for host, there in machines.items():
            found[host] = _machine(there, workers, nodes)
        return found

    def model(self, use: NodeUse) -> PowerModel:
        return self._model or PowerModel.default(max(use.threads, 1))


def _machine(told: Mapping[str, Heartbeat], workers: Mapping[str, WorkerUse], nodes: Nodes) -> SensorReading:
    """Several workers of one machine read the same sensors: they count once."""
    # A worker may be silent while others of its machine are not: whoever looked last is right. But only one
    # of them may ask the machine's controller, so of those who looked lately it is whoever knows best.
    looked = {address: workers[address].heard - said.age for address, said in told.items()}
    lately = max(looked.values()) - _LATELY
    best = min(
        (address for address in told if looked[address] >= lately),
        key=lambda address: (SOURCES.index(told[address].source), -looked[address]),
    )
    one = told[best]
    whole = NodeReading(one.watts, one.uncertainty, one.source, one.source == "measured")
    names = {nodes.node_of(address) for address in told}
    if len(names) == 1:
        parts = {names.pop(): whole}
    else:
        alike = {
            address: said._replace(watts=one.watts, uncertainty=one.uncertainty, idle=one.idle)
            for address, said in told.items()
        }
        parts = dict.fromkeys(names, whole._replace(watts=0.0, uncertainty=0.0))
        for address, (watts, uncertainty) in of_each(alike).items():
            name = nodes.node_of(address)
            so_far = parts[name]
            parts[name] = so_far._replace(
                watts=so_far.watts + watts, uncertainty=so_far.uncertainty + uncertainty
            )
    can_cap = len(parts) == 1 and any(said.cap is not None for said in told.values())
    return SensorReading((one.pid, one.sequence), one.watts, one.use, parts, can_cap=can_cap)


Fault = Literal["freeze", "zero"]
_TWO_SIDED = 1.96  # standard deviations on each side of a 95 % interval


@dataclass
class SimulatedMeter:
    """A worker draws ``idle`` watts, and ``busy`` more when all its threads run tasks. Its node follows with
    a first-order ``lag``, and its sensor errs by ``noise`` (a standard deviation, as a share of the watts),
    in the same way for the same ``seed``. ``faults`` says which nodes' sensors are broken, and how."""

    idle: float = 60.0
    busy: float = 140.0
    lag: float = 1.0
    noise: float = 0.03
    seed: int = 0
    interval: float = 1.0
    faults: dict[str, Fault] = field(default_factory=dict)
    #: what each node draws indeed
    true_watts: dict[str, float] = field(default_factory=dict)

    #: how many readings each sensor has given
    readings: int = 0

    def __post_init__(self) -> None:
        self._then: float | None = None
        self._number = -1
        self._random: dict[str, Random] = {}
        self._sensed: dict[str, SensorReading] = {}

    def look(
        self, now: float, workers: Any, nodes: Any, uses: Mapping[str, NodeUse]
    ) -> dict[str, SensorReading]:
        """The newest reading of each node's sensor. The true power follows the use at every look; there is a
        new reading once in an ``interval``."""
        passed = 0.0 if self._then is None else now - self._then
        self._then = now
        follow = 1.0 - exp(-passed / self.lag) if self.lag > 0 else 1.0
        before, self.true_watts = self.true_watts, {}
        for name, use in uses.items():
            level = use.workers * (self.idle + self.busy * use.load)
            was = before.get(name, use.workers * self.idle)
            self.true_watts[name] = was + follow * (level - was)
        number = int(now / self.interval)
        is_new = number != self._number
        self._number = number
        self.readings += is_new
        self._sensed = {
            name: self._reading(name, use) if is_new or name not in self._sensed else self._sensed[name]
            for name, use in uses.items()
        }
        return self._sensed

    def model(self, use: NodeUse) -> PowerModel:
        """Of such a node, without lag and noise."""
        workers = max(use.workers, 1)
        idle, full = workers * self.idle, workers * (self.idle + self.busy)
        return PowerModel(idle, full, self.noise * idle, self.noise * full, "the simulated meter")

    def _reading(self, name: str, use: NodeUse) -> SensorReading:
        random = self._random.setdefault(name, Random(f"{self.seed} {name}"))
        watts = max(0.0, self.true_watts[name] * (1.0 + random.gauss(0.0, self.noise)))
        fault = self.faults.get(name)
        if fault == "zero":
            watts = 0.0
        elif fault == "freeze" and name in self._sensed:
            watts = self._sensed[name].watts
        part = NodeReading(watts, _TWO_SIDED * self.noise * watts, "modelled", True)
        return SensorReading(self._number, watts, use.load, {name: part})


Meter = WorkerMeter | SimulatedMeter


def meter_of(settings: Mapping[str, Any]) -> Meter:
    """The one that the settings ask for; ``power-model`` is what somebody measured to calibrate the model."""
    kind, interval, model = settings["power-meter"], settings["power-interval"], settings["power-model"]
    if kind == "simulated":
        return SimulatedMeter(interval=interval)
    if isinstance(kind, Mapping):
        return SimulatedMeter(interval=interval, **kind["simulated"])
    return WorkerMeter(interval, [] if model is None else [(0.0, model["idle"]), (1.0, model["busy"])])
