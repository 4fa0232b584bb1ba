"""What an in situ pipeline really costs, iteration by iteration: as declared, with drift and jitter."""

from dataclasses import dataclass, replace
from math import inf

import numpy as np

from dask_hpc.model.errors import InputError, is_number, shown
from dask_hpc.model.partition import Analysis, EqualNodes, PartitionProblem, Simulation
from dask_hpc.planning.partition import partition
from dask_hpc.simulator.platform import Platform

#: what a drift calls the simulation
SIMULATION = "simulation"


@dataclass(frozen=True, slots=True)
class Drift:
    """From iteration ``start`` on a part takes ``times`` as long; it gets there within ``over`` iterations,
    by the same amount in each."""

    part: str
    start: int
    times: float
    over: int = 0

    def __post_init__(self) -> None:
        for name in ("start", "over"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise InputError(f"drift.{name}", f"found {shown(value)}", "a whole number, 0 or more")
        if not is_number(self.times, 0, 1e9) or self.times == 0:
            raise InputError("drift.times", f"found {shown(self.times)}", "more than 0")

    def factor(self, iteration: int) -> float:
        """How many times as long the part takes in this iteration."""
        if iteration < self.start:
            return 1.0
        share = 1.0 if not self.over else min(1.0, (iteration - self.start + 1) / self.over)
        return 1.0 + share * (self.times - 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A simulation and its analyses, as they are declared, and how what they take departs from that.

    ``jitter`` is the standard deviation of the logarithm of each part's time, which is as declared on
    average. Nodes have so many ``cores`` and bytes of ``memory``; staging nodes receive ``bandwidth``
    bytes per second each, but no more than the platform's links carry. A change of the partition stops the
    pipeline for ``change_cost`` seconds.
    """

    iterations: int
    simulation: Simulation
    analyses: tuple[Analysis, ...]
    cores: int
    memory: float = inf
    bandwidth: float = inf
    drifts: tuple[Drift, ...] = ()
    jitter: float = 0.0
    seed: int = 0
    change_cost: float = 0.0

    def __post_init__(self) -> None:
        for name, low, high in (("iterations", 1, 10**6), ("seed", 0, 2**63 - 1)):
            value = getattr(self, name)
            if type(value) is not int or not low <= value <= high:
                raise InputError(name, f"found {shown(value)}", f"a whole number, {low} to {high:,}")
        for name, most in (("jitter", 2.0), ("change_cost", 1e9)):
            if not is_number(getattr(self, name), 0, most):
                raise InputError(name, f"found {shown(getattr(self, name))}", f"0 to {most:g}")
        known = [SIMULATION, *(one.name for one in self.analyses)]
        if known.count(SIMULATION) > 1:
            raise InputError("analyses", f"found one named {SIMULATION}", "other names")
        for drift in self.drifts:
            if drift.part not in known:
                raise InputError("drift.part", f"found {shown(drift.part)}", ", ".join(known))
        times = [self.simulation.time, *(one.time for one in self.analyses)]
        for name, time in zip(known, times, strict=True):
            if not time:
                raise InputError(f"{name}.time", "found 0", "more than 0 s on a single core")
        try:
            self.declared(1, Platform(1))
        except InputError as error:  # of nodes, which are this one's own
            raise InputError(error.where.removeprefix("nodes."), error.found, error.allowed) from None

    def declared(self, nodes: int, platform: Platform) -> PartitionProblem:
        """What is to be divided, as it is declared."""
        return PartitionProblem(self._nodes(nodes, platform), self.simulation, self.analyses)

    def quiet_runtime(self, nodes: int, platform: Platform) -> float:
        """Seconds on so many nodes if everything is as declared."""
        return self.iterations * partition(self.declared(nodes, platform)).iteration

    def real(self, iteration: int, nodes: int, platform: Platform) -> PartitionProblem:
        """The same as it is in one iteration. It does not depend on where anything runs."""
        draws = np.random.default_rng([self.seed, iteration]).standard_normal(len(self.analyses) + 1)
        factors = np.exp(self.jitter * draws - self.jitter**2 / 2)
        first, *others = factors.tolist()
        time = self.simulation.time * first * self._drift(SIMULATION, iteration)
        analyses = tuple(
            replace(one, time=one.time * factor * self._drift(one.name, iteration))
            for one, factor in zip(self.analyses, others, strict=True)
        )
        return PartitionProblem(self._nodes(nodes, platform), replace(self.simulation, time=time), analyses)

    def _drift(self, part: str, iteration: int) -> float:
        factor = 1.0
        for drift in self.drifts:
            if drift.part == part:
                factor *= drift.factor(iteration)
        return factor

    def _nodes(self, count: int, platform: Platform) -> EqualNodes:
        bandwidth = min(self.bandwidth, platform.link)
        return EqualNodes(count=count, cores=self.cores, memory=self.memory, bandwidth=bandwidth)
