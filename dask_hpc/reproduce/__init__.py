"""Published against ours, claim by claim. ``EXPERIMENTS`` is the table of all of them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from inspect import getdoc
from pathlib import Path
from typing import Any

import yaml

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.safe_yaml import nearest
from dask_hpc.reproduce import (
    agents,
    applications,
    colocation_prediction,
    colocation_scheduling,
    corridor,
    energy_intervals,
    esp_malleable_share,
    forecasters,
    in_situ,
    io_intensity,
    live_adaptation,
    live_checkpoint,
    ma_ra_vs_ma_ma,
    malleable_jobs,
    memory_files_growth,
    multilevel,
    network_fragmentation,
    proactive,
    redistribution,
    reservation_checkpoints,
    reservation_costs,
    reservation_from_history,
    reservation_memory,
    reservation_neuro,
    resilience_exact,
    resilience_managers,
    resilience_reliability,
    resilience_size,
    small_examples,
)
from dask_hpc.reproduce.claim import Bench, Outcome

_CODE: Mapping[str, Callable[[Bench], Outcome]] = {
    "elastic-five-jobs": small_examples.five_jobs,
    "elastic-ten-jobs": small_examples.ten_jobs,
    "esp-malleable-share": esp_malleable_share.run,
    "node-stealing-toy": small_examples.node_stealing,
    "malleable-easy": malleable_jobs.mebf,
    "io-intensity": io_intensity.run,
    "io-pairs": io_intensity.pairs,
    "memory-files-growth": memory_files_growth.run,
    "agents-scaling": agents.scaling,
    "agents-placement": agents.placement,
    "ma-ra-vs-ma-ma": ma_ra_vs_ma_ma.run,
    "redistribution": redistribution.run,
    "corridor-solve-time": corridor.solve_time,
    "corridor-upper": corridor.upper,
    "corridor-lower": corridor.lower,
    "corridor-dynamic": corridor.dynamic,
    "corridor-batch": corridor.batch,
    "in-situ-async": in_situ.asynchronous,
    "in-situ-sync": in_situ.synchronous,
    "adaptation-overhead": live_adaptation.overhead,
    "checkpoint-modes": live_checkpoint.modes,
    "forecasters": forecasters.run,
    "applications-that-differ": applications.run,
    "proactive-against-reactive": proactive.run,
    "reservation-costs": reservation_costs.run,
    "reservation-checkpoints": reservation_checkpoints.run,
    "reservation-neuro": reservation_neuro.run,
    "reservation-memory": reservation_memory.run,
    "reservation-from-history": reservation_from_history.run,
    "resilience-managers": resilience_managers.managers,
    "resilience-aware": resilience_managers.aware,
    "energy-intervals": energy_intervals.run,
    "multilevel-systems": multilevel.systems,
    "multilevel-exascale": multilevel.exascale,
    "multilevel-short": multilevel.short,
    "multilevel-error": multilevel.error,
    "resilience-exact": resilience_exact.run,
    "resilience-size": resilience_size.run,
    "resilience-reliability": resilience_reliability.run,
    "colocation-prediction": colocation_prediction.run,
    "colocation-scheduling": colocation_scheduling.run,
    "network-fragmentation": network_fragmentation.run,
}


@dataclass(frozen=True, slots=True)
class Experiment:
    """``simulations`` is how many one seed takes, or all of them if nothing is random (``seeds`` 0)."""

    name: str
    code: Callable[[Bench], Outcome]
    source: str
    summary: str
    simulations: int
    seeds: int
    #: what we put where the source is silent
    assumed: list[Any]

    @property
    def about(self) -> str:
        """What is compared with what, and how: the docstring of its code."""
        return getdoc(self.code) or ""

    def total(self, seeds: int) -> int:
        """All its simulations."""
        return self.simulations * (seeds if self.seeds else 1)

    def run(self, bench: Bench) -> Outcome:
        """Do it; the seeds are the bench's."""
        assumed = [line.format(seeds=bench.seeds) for line in _flat(self.assumed)]
        return replace(self.code(bench), assumptions=assumed)


def _flat(lines: list[Any]) -> Iterator[str]:
    """Lines that several experiments share are a list in the list."""
    for one in lines:
        yield from [one] if isinstance(one, str) else one


_DECLARED = yaml.safe_load(Path(__file__).with_name("experiments.yaml").read_text(encoding="utf-8"))
EXPERIMENTS: Mapping[str, Experiment] = {
    name: Experiment(name, code, **_DECLARED[name]) for name, code in _CODE.items()
}


def experiment(name: str) -> Experiment:
    """By name."""
    if name not in EXPERIMENTS:
        found = f"no experiment is named {shown(name)}{nearest(name, EXPERIMENTS)}"
        raise InputError("experiment", found, ", ".join(EXPERIMENTS))
    return EXPERIMENTS[name]
