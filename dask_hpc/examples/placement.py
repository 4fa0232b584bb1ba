"""Does it matter where analyses run? Heat in a plate under three placements, measured in turns in one run.

For a machine with two cores: two workers of one thread each are two nodes, so every core is one that exists,
and analyses in situ take turns with the steps (mode "sync"). One analysis sees the whole plate and does not
spread over cores; the other does. So neither is it best to do all in situ (the whole one keeps the other
core waiting) nor all in transit (one core has more to do than the other).
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from statistics import median
from typing import Any, NamedTuple

import dask
import numpy as np
import xarray as xr

from dask_hpc.examples import heat

#: blocks are narrow, so that two cores that compute do not fight for the memory's bandwidth
BLOCKS, COLUMNS = 2, 128
PLACEMENTS = ("auto", "in situ", "in transit")
#: iterations before those that count: three that are measured, and as many under each of two partitions with
#: the one before them, which moves blocks
WARM_UP = 11
#: where nothing is chosen: one partition from the start, and what is measured
PLAIN_WARM_UP = 4
_TURNS = 20  # of the plate's own iterations, in one of this example's: blocks are to compute for long
HALO = {"y": _TURNS * heat.STEPS}
#: distances over which the analyses look. How long a transform takes beside a step differed by about a factor
#: of two between processors we tried. The far one is such that the whole analysis takes longer than a step on
#: each of them: were it shorter, both plain placements might take the same, and nothing could be gained. The
#: near one is such that it matters where that analysis runs, as its time is all that can be gained: at 10
#: distances that was 7 % of an iteration, as much as two runs of the same placement differ by.
_NEARBY, _FAR = 60, 130


def advance(block: xr.Dataset) -> xr.Dataset:
    """One iteration; as wide a rim as ``HALO`` says is wrong afterwards, and cut off."""
    for _ in range(_TURNS):
        block = heat.advance(block)
    return block


def grain(block: xr.Dataset) -> np.ndarray:
    """How rough the plate is over small distances: waves in a block."""
    return _waves(block["temperature"].values, _NEARBY)


def texture(state: xr.Dataset) -> np.ndarray:
    """How rough the plate is over any distance: waves in the whole of it, so on one core."""
    return _waves(state["temperature"].values, _FAR)


def _waves(field: np.ndarray, distances: int) -> np.ndarray:
    """Power of the waves in both directions by their length, of what changes over each distance."""
    length = np.hypot(*np.meshgrid(*(np.fft.fftfreq(n) * n for n in field.shape), indexing="ij"))
    which = length.astype(int).ravel()
    power = np.zeros(which.max() + 1)
    for distance in range(1, distances + 1):
        waves = np.fft.fft2(field - np.roll(field, distance, axis=0))
        power += np.bincount(which, np.abs(waves).ravel() ** 2)
    return power


def analyses() -> dict[str, Any]:
    """One analysis by block, and one of the whole."""
    from dask_hpc import InSituPipeline

    temperature = ["temperature"]
    return {
        "grain": InSituPipeline.per_block(grain, combine=heat.added, variables=temperature),
        "texture": InSituPipeline.whole(texture, variables=temperature),
    }


@contextmanager
def two_nodes() -> Iterator[Any]:
    """A client of two workers with a core each."""
    from distributed import Client, LocalCluster

    # Processes that give memory back after every array spend much of their time on getting it again, the
    # more the more of them do, and that is no work which could be divided.
    keep = {"MALLOC_TRIM_THRESHOLD_": str(2**30), "MALLOC_MMAP_THRESHOLD_": str(2**30)}
    before = dask.config.get("distributed.nanny.pre-spawn-environ", {})
    with (
        dask.config.set({"distributed.nanny.pre-spawn-environ": {**before, **keep}}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


class PlacementOutcome(NamedTuple):
    """How the iterations went that count, under one placement."""

    placement: str
    #: seconds from one iteration to the next: the median, and as was expected before these
    seconds: float
    predicted: float
    #: the same as was expected before the placement was in force at all; 0 if nothing was known then
    promised: float
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
    rows: int = 4096,
    check: Callable[[int, Mapping[str, Any]], None] = lambda i, results: None,
) -> list[PlacementOutcome]:
    """Run the pipeline under each placement in turns, so many iterations at a time: what else the machine
    does meanwhile is much the same for all. ``check`` is given every iteration's results."""
    from dask_hpc import InSituPipeline

    lazy = heat.plate(rows, COLUMNS, BLOCKS)
    state, chunks = lazy.compute(scheduler="synchronous"), {"y": lazy.chunks["y"]}
    pipes = {
        placement: InSituPipeline(
            advance,
            state,
            analyses(),
            mode="sync",
            placement=placement,
            chunks=chunks,
            halo=HALO,
            client=client,
        )
        for placement in PLACEMENTS
    }
    seconds: dict[str, list[float]] = {placement: [] for placement in PLACEMENTS}
    predicted: dict[str, list[float]] = {placement: [] for placement in PLACEMENTS}
    for turn in range(rounds + 1):
        for placement, pipe in pipes.items():
            warm_up = WARM_UP if placement == "auto" else PLAIN_WARM_UP
            for i, results in pipe.run(warm_up + iterations if turn == 0 else iterations + 1):
                check(i, results)
            if turn:
                partition = pipe.partition
                assert partition is not None
                # the first of a turn also waits for what the pipeline before left to do
                seconds[placement] += [one["seconds"] for one in pipe.status()["history"][-iterations:]]
                predicted[placement].append(partition.iteration)
    return [
        PlacementOutcome(
            placement,
            median(seconds[placement]),
            median(predicted[placement]),
            _promised(pipe),
            pipe.partition.in_situ if pipe.partition else (),
            pipe.partition.nodes if pipe.partition else 0,
        )
        for placement, pipe in pipes.items()
    ]


def _promised(pipe: Any) -> float:
    """By what was measured under the partition before."""
    changes = pipe.status()["changes"]
    return float(changes[-1]["partition"]["expected"]) if len(changes) > 1 else 0.0
