"""Published against ours, claim by claim. ``EXPERIMENTS`` is the table of all of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import getdoc

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.safe_yaml import nearest
from dask_hpc.reproduce import (
    agents,
    corridor,
    corridor_batch,
    corridor_solve_time,
    esp_malleable_share,
    in_situ,
    io_intensity,
    ma_ra_vs_ma_ma,
    malleable_easy,
    redistribution,
    small_examples,
)
from dask_hpc.reproduce.claim import Bench, Outcome


@dataclass(frozen=True, slots=True)
class Experiment:
    """``simulations`` is how many one seed takes, or all of them if nothing is random (``seeds`` 0)."""

    #: runs it; the seeds are the bench's
    run: Callable[[Bench], Outcome]
    name: str
    source: str
    summary: str
    simulations: int
    seeds: int = 20

    @property
    def about(self) -> str:
        """What is compared with what, and how: the docstring of its code."""
        return getdoc(self.run) or ""

    def total(self, seeds: int) -> int:
        """All its simulations."""
        return self.simulations * (seeds if self.seeds else 1)


EXPERIMENTS: Mapping[str, Experiment] = {
    one.name: one
    for one in (
        Experiment(small_examples.five_jobs, "elastic-five-jobs", "001_15efbb08eac7da30.txt, 7.3",
                   "Five jobs on 16 nodes: who grows and shrinks when, and what that gains.", 6, 0),
        Experiment(small_examples.ten_jobs, "elastic-ten-jobs", "001_15efbb08eac7da30.txt, 7.4",
                   "Ten jobs on 16 nodes at 10, 50 and 100 % malleable jobs.", 8),
        Experiment(esp_malleable_share.run, "esp-malleable-share", "000_e95d529633a3559e.txt, 9.1",
                   "230 ESP jobs: malleable policies against backfilling at several shares.", 32),
        Experiment(small_examples.node_stealing, "node-stealing-toy", "002_fcde25df97b1d30f.txt, 3.1",
                   "A node fails: a small job is stopped so that a large one can go on.", 2, 0),
        Experiment(malleable_easy.run, "malleable-easy", "002_fcde25df97b1d30f.txt, 4.1.2",
                   "MEBF against EASY for computing, reading, writing and mixed jobs.", 30),
        Experiment(io_intensity.run, "io-intensity", "002_fcde25df97b1d30f.txt, 4.2.5",
                   "4,000 jobs: start those that balance computing and writing.", 7),
        Experiment(agents.scaling, "agents-scaling", "000_e95d529633a3559e.txt, 6.4.2, 7.1.1, 9.3.5, 9.4.1",
                   "Checkpoint agents: what more of them bring, and when a change of them pays.", 1),
        Experiment(agents.placement, "agents-placement", "000_e95d529633a3559e.txt, 7.1.2, 9.4.1.2, 9.4.1.3",
                   "On which nodes checkpoint agents are least in each other's way.", 1),
        Experiment(ma_ra_vs_ma_ma.run, "ma-ra-vs-ma-ma", "000_e95d529633a3559e.txt, 7.2, 9.4.2",
                   "A job that grows and shrinks: as many agents as before, or as many per node.", 1),
        Experiment(redistribution.run, "redistribution", "000_e95d529633a3559e.txt, 7.4, 9.4.3",
                   "An array laid out anew after a resize: by agents, through one node, peer to peer.", 1),
        Experiment(corridor_solve_time.run, "corridor-solve-time", "000_e95d529633a3559e.txt, 5.2, 9.2.4",
                   "How long the power corridor's program takes, with PuLP and without.", 316, 0),
        Experiment(corridor.upper, "corridor-upper", "000_e95d529633a3559e.txt, 9.2.2",
                   "Two applications draw too much: one shrinks, the other grows.", 1, 0),
        Experiment(corridor.lower, "corridor-lower", "000_e95d529633a3559e.txt, 9.2.2",
                   "Two applications draw too little: one shrinks, the other grows more.", 1, 0),
        Experiment(corridor.dynamic, "corridor-dynamic", "000_e95d529633a3559e.txt, 9.2.3",
                   "A power corridor that moves three times, and one application that follows it.", 1, 0),
        Experiment(corridor_batch.run, "corridor-batch", "000_e95d529633a3559e.txt, 9.2.4",
                   "Twenty jobs in a power corridor that moves twice: who stays inside, at what price.", 13),
        Experiment(in_situ.asynchronous, "in-situ-async", "004_be5a8e18bdbae0f5.txt, 5.1 to 5.3, 6.1",
                   "Which analyses run in situ beside the simulation: five orders and two optima.", 20, 130),
        Experiment(in_situ.synchronous, "in-situ-sync", "004_be5a8e18bdbae0f5.txt, 5.4",
                   "The same where the simulation waits for analyses in situ, beside async.", 32, 130),
    )
}  # fmt: skip


def experiment(name: str) -> Experiment:
    """By name."""
    if name not in EXPERIMENTS:
        found = f"no experiment is named {shown(name)}{nearest(name, EXPERIMENTS)}"
        raise InputError("experiment", found, ", ".join(EXPERIMENTS))
    return EXPERIMENTS[name]
