"""The evaluation of in situ placement (seed 004, chapter 5; digest 5.1): its platform and its samples."""

from dataclasses import dataclass
from typing import cast

import numpy as np

from dask_hpc.model.in_situ import Analysis, EqualNodes, Mode, Partition, PartitionProblem, Simulation
from dask_hpc.planning.in_situ.plan import partition
from dask_hpc.reproduce.claim import Bench, Measured, mean

HEURISTICS = ("increasing-time", "decreasing-time", "increasing-peak", "decreasing-peak", "random")
OPTIMAL, OURS = "enumerate", "exact"
ORDERS = (*HEURISTICS, OPTIMAL, OURS)
#: what is kept of each partition
FIELDS = ("time", "memory", "work", "simulation", "in_situ", "in_transit", "mix")
NODES, CORES, ANALYSES = 50, 8, 8
CAPACITY = 1.33
#: application memory loads; closer to each other where the source sees something happen
LOADS = (1.05, 1.1, 1.15, 1.2, 1.25, 1.3, 1.35, 1.4, 1.5, 1.6, 1.8, 2.0)
BANDWIDTHS = (0.1, 0.25, 0.5, 1.0)
T_SIM = 1000.0
#: "close" and "far", in per cent: the source calls so much between two curves little (5.4)
CLOSE = 10.0
_LEAST, _MOST = 0.01, 0.1

ASSUMPTIONS = (
    f"t_sim, not given: {T_SIM:g} of the units of time that bandwidths are given in; others are beside. Only "
    "its product with the bandwidth matters: ten times t_sim is ten times the bandwidth.",
    f"Analysis times, whose two bounds are not given: uniform from {_LEAST:.0%} to {_MOST:.0%} of t_sim.",
    "Peaks, whose distribution is not given: uniform numbers, scaled to their sum.",
    "Memory loads, whose number is not given: " + ", ".join(f"{load:g}" for load in LOADS) + ".",
    "Algorithm 1 is repaired: it remembers what it has reached, and the simulation gets at least the nodes "
    "that its memory and that of the analyses in situ needs (without which no single move is viable below "
    "1.33, and all orders are one). Both numbers are rounded up, each side keeps a node or a core.",
    "Normalised: each sample's time over that of Algorithm 3 on the same sample, then averaged.",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Setup:
    """What is compared, at every load and for every sample."""

    t_sim: float = T_SIM
    modes: tuple[Mode, ...] = ("async",)
    bandwidths: tuple[float, ...] = BANDWIDTHS
    orders: tuple[str, ...] = ORDERS
    cores: int = CORES


class Curves:
    """Figures by load, sample, mode, bandwidth, order and field."""

    def __init__(self, setup: Setup, loads: tuple[float, ...], values: np.ndarray) -> None:
        self.setup, self.loads, self._values = setup, loads, values

    def of(self, field: str, order: str, bandwidth: float, mode: Mode = "async") -> np.ndarray:
        """By load and sample."""
        setup = self.setup
        at = setup.modes.index(mode), setup.bandwidths.index(bandwidth), setup.orders.index(order)
        return cast(np.ndarray, self._values[(slice(None), slice(None), *at, FIELDS.index(field))])

    def normalised(self, order: str, bandwidth: float, mode: Mode = "async") -> np.ndarray:
        """Times over the optimum's in the same mode."""
        return self.of("time", order, bandwidth, mode) / self.of("time", OPTIMAL, bandwidth, mode)


def curves(bench: Bench, setup: Setup, loads: tuple[float, ...]) -> Curves:
    """Every seed of the bench is a sample at every load."""
    found = bench.each(sampled, [(setup, load, seed) for load in loads for seed in range(bench.seeds)])
    return Curves(setup, loads, np.array(found).reshape(len(loads), bench.seeds, *found[0].shape))


def ranked(found: Curves, bandwidth: float, mode: Mode = "async") -> list[str]:
    """The orders by their mean time over all loads, the fastest first."""
    means = {order: float(found.normalised(order, bandwidth, mode).mean()) for order in HEURISTICS}
    return sorted(HEURISTICS, key=lambda order: means[order])


def sampled(setup: Setup, load: float, seed: int) -> np.ndarray:
    """One sample: figures by mode, bandwidth, order and field."""
    rows = []
    for mode in setup.modes:
        for bandwidth in setup.bandwidths:
            problem = problem_of(setup, load, seed, bandwidth, mode)
            rows.append([_figures(problem, partition(problem, order, seed=seed)) for order in setup.orders])
    shape = len(setup.modes), len(setup.bandwidths), len(setup.orders), len(FIELDS)
    return np.array(rows).reshape(shape)


def problem_of(setup: Setup, load: float, seed: int, bandwidth: float, mode: Mode) -> PartitionProblem:
    """The same analyses for every bandwidth and mode; memory in units of what the simulation needs."""
    random = np.random.default_rng([seed, round(1000 * load)])
    peaks = random.random(ANALYSES)
    peaks *= (load - 1) / peaks.sum()
    times = random.uniform(_LEAST, _MOST, ANALYSES) * setup.t_sim
    memory = CAPACITY / NODES
    return PartitionProblem(
        EqualNodes(count=NODES, cores=setup.cores, memory=memory, bandwidth=bandwidth * memory),
        Simulation(time=setup.t_sim, memory=1.0),
        tuple(
            Analysis(name=f"A{number + 1}", time=float(time), memory=float(peak))
            for number, (time, peak) in enumerate(zip(times, peaks, strict=True))
        ),
        mode,
    )


def _figures(problem: PartitionProblem, found: Partition) -> list[float]:
    inside = [one for one in problem.analyses if one.name in found.in_situ]
    is_mix = bool(found.in_situ) and bool(found.in_transit)
    memory, work = sum(one.memory for one in inside), sum(one.time for one in inside)
    return [found.iteration, memory, work, *found.phases, float(is_mix)]


def per_cent(ratios: np.ndarray) -> Measured:
    """How much more than one, over the samples (the last axis; others are averaged first)."""
    return mean(100 * (by_sample(ratios) - 1))


def by_sample(values: np.ndarray) -> np.ndarray:
    """One number for each sample."""
    return cast(np.ndarray, values.reshape(-1, values.shape[-1]).mean(axis=0))
