"""A made-up meter, for tests and demos where no sensor is to be had: it calls what it says *modelled*."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import exp
from random import Random
from typing import Any, Literal

from dask_hpc.live.power.meters import NodeUse, Part, Sensed
from dask_hpc.power.model import PowerModel

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
        self._sensed: dict[str, Sensed] = {}

    def look(self, now: float, workers: Any, nodes: Any, uses: Mapping[str, NodeUse]) -> dict[str, Sensed]:
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

    def _reading(self, name: str, use: NodeUse) -> Sensed:
        random = self._random.setdefault(name, Random(f"{self.seed} {name}"))
        watts = max(0.0, self.true_watts[name] * (1.0 + random.gauss(0.0, self.noise)))
        fault = self.faults.get(name)
        if fault == "zero":
            watts = 0.0
        elif fault == "freeze" and name in self._sensed:
            watts = self._sensed[name].watts
        part = Part(watts, _TWO_SIDED * self.noise * watts, use.workers * self.idle)
        return Sensed(self._number, watts, "modelled", use.load, {name: part}, is_chance=True)
