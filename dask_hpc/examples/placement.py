"""Does it matter where analyses run? Heat in a plate under three placements, measured in turns in one run.

For a machine with two cores: two workers of one thread each are two nodes, so every core is one that exists,
and analyses in situ take turns with the steps (mode "sync"). One analysis sees the whole plate and does not
spread over cores; the others do. So neither is it best to do all in situ (the whole one keeps the other
core waiting) nor all in transit (one core has more to do than the other).
"""

from collections.abc import Callable, Mapping
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from dask_hpc.examples import heat

PLACEMENTS = ("auto", "in situ", "in transit")
_WARM_UP = 5  # iterations before those that count


def texture(state: xr.Dataset) -> np.ndarray:
    """Power of all waves in both directions, by their length: of the whole plate, so on one core."""
    field = state["temperature"].values
    power = np.zeros(field.shape[0] // 2)
    for weight in (0.0, 1.0):  # of the plate itself, and of its edges
        waves = np.fft.fft2(field - weight * np.roll(field, 1, axis=0))
        there = np.hypot(*np.meshgrid(*(np.fft.fftfreq(n) * n for n in field.shape), indexing="ij"))
        power += np.bincount(there.astype(int).ravel(), np.abs(waves).ravel() ** 2)[: power.size]
    return power


def analyses() -> dict[str, Any]:
    """Two analyses by block, and one of the whole."""
    from dask_hpc import InSituPipeline

    by_block = {name: heat.analyses()[name] for name in ("front", "spectrum")}
    return {**by_block, "texture": InSituPipeline.whole(texture, variables=["temperature"])}


class Outcome(NamedTuple):
    """How the iterations after the first five went under one placement."""

    placement: str
    #: seconds from one iteration to the next: the median, and as the planner predicted after the fifth
    seconds: float
    predicted: float
    #: who ran in situ, on how many of the nodes
    in_situ: tuple[str, ...]
    nodes: float

    @property
    def departure(self) -> float:
        """By which share of the prediction it took another time than predicted."""
        return abs(self.seconds - self.predicted) / self.predicted


def compare(
    client: Any,
    rounds: int = 5,
    iterations: int = 6,
    size: int = 640,
    check: Callable[[int, Mapping[str, Any]], None] = lambda i, results: None,
) -> list[Outcome]:
    """Run the pipeline under each placement in turns, so many iterations at a time: what else the machine
    does meanwhile is much the same for all. ``check`` is given every iteration's results."""
    from dask_hpc import InSituPipeline

    lazy = heat.plate(size, size, 8)
    state, chunks = lazy.compute(scheduler="synchronous"), {"y": lazy.chunks["y"]}
    pipes = {
        placement: InSituPipeline(
            heat.advance,
            state,
            analyses(),
            mode="sync",
            placement=placement,
            chunks=chunks,
            halo=heat.HALO,
            client=client,
        )
        for placement in PLACEMENTS
    }
    seconds: dict[str, list[float]] = {placement: [] for placement in PLACEMENTS}
    predicted: dict[str, list[float]] = {placement: [] for placement in PLACEMENTS}
    for turn in range(rounds + 1):
        for placement, pipe in pipes.items():
            for i, results in pipe.run(_WARM_UP + iterations if turn == 0 else iterations + 1):
                check(i, results)
            if turn:
                partition = pipe.partition
                assert partition is not None
                # the first of a turn also waits for what the pipeline before left to do
                seconds[placement] += [one["seconds"] for one in pipe.status()["history"][-iterations:]]
                predicted[placement].append(partition.iteration)
    return [
        Outcome(
            placement,
            median(seconds[placement]),
            median(predicted[placement]),
            pipe.partition.in_situ if pipe.partition else (),
            pipe.partition.nodes if pipe.partition else 0,
        )
        for placement, pipe in pipes.items()
    ]
