"""Applications that differ: what it is worth to measure them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from dask_hpc.model.snapshot import Snapshot
from dask_hpc.policy import Policy
from dask_hpc.reproduce.claim import (
    Bench,
    Claim,
    Columns,
    Figure,
    Outcome,
    at_most,
    change,
    direction,
    figure,
)
from dask_hpc.simulator import Platform
from dask_hpc.simulator.built_in.published import NODES
from dask_hpc.simulator.platform import RESIZE_COSTS
from dask_hpc.strategies.malleability.performance_aware import PerformanceAware, Seen


@dataclass(frozen=True, slots=True)
class LargestFirst(PerformanceAware):
    """The performance-aware rule with the number of nodes in place of what is measured: for comparison."""

    name: ClassVar[str] = "largest-first"

    def observe(self, snapshot: Snapshot, memory: Seen | None) -> Seen:
        """Who has most nodes is taken to communicate most."""
        return {job: (len(running.nodes),) * 2 for job, running in snapshot.running.items()}


_MEASURED, _OLDER, _OURS, _BASELINE = "performance-aware", "fpsma-pwma", "elastic", "easy-backfill"
LARGEST_FIRST = replace(Policy.load(_MEASURED), name="largest-first", malleability=LargestFirst())
#: on one node nothing is measured, so that it takes every job there for a good one: without a pause it would
#: give each its second node again and again
_PATIENT = Policy.load(_OURS).with_(**{"queue.dwell": "30 s", "malleability.dwell": "30 s"})
_POLICIES = (_MEASURED, LARGEST_FIRST, _OLDER, _PATIENT, _BASELINE)
_WORLDS: dict[str, Platform] = {
    "resizing costs nothing": Platform(NODES),
    "published resize costs": Platform(NODES, resize=RESIZE_COSTS["published"]),
}
_FIGURES = (("makespan", "makespan"), ("mean response", "mean_response"), ("mean wait", "mean_wait"))
#: per cent by which performance-aware is said to be better than FPSMA with all jobs malleable
_PRINTED = {"makespan": 4.0, "mean_response": 6.1, "mean_wait": 2.0}


def run(bench: Bench) -> Outcome:
    """What measuring is worth where applications differ (seed 000, 4.2.3 and 9.1; digest 2.8 and 3.2).

    The source's jobs are one application on several sizes, and so are ours in the experiment on shares of
    malleable jobs: there who communicates most is who has most nodes, and the policy that measures decides
    as one that counts. Here each of the 230 ESP jobs is of one of five classes, one of which changes between
    two laws. Beside FPSMA is the same rule with sizes in place of measurements.
    """
    claims: list[Claim] = []
    beside: list[Figure] = []
    for world, platform in _WORLDS.items():
        found = bench.study("builtin:applications", _POLICIES, platform)
        for name, metric in _FIGURES:
            gain = change(found[_MEASURED][metric], found[_OLDER][metric])
            text = f"{world}: {name}, performance-aware against FPSMA"
            claims.append(direction(text, f"{_PRINTED[metric]:g} % less", gain, at_most(0.0)))
        beside += _beside(world, found)
    alike = bench.study("builtin:esp?malleable=1&speedup=0.9", _POLICIES[:2])
    beside.append(_another("one law for all", alike))
    return Outcome(claims, beside)


def _beside(world: str, found: dict[str, Columns]) -> list[Figure]:
    figures = [_another(world, found)]
    pairs: Sequence[tuple[str, str]] = (
        (_MEASURED, LARGEST_FIRST.name),
        (_MEASURED, _BASELINE),
        (_OURS, _MEASURED),
    )
    for one, other in pairs:
        who = f"{one} (ours, 30 s between two resizes)" if one == _OURS else one
        for name, metric in _FIGURES:
            gain = change(found[one][metric], found[other][metric])
            figures.append(figure(f"{world}: {name}, {who} against {other}", gain, "%"))
    killed = sum(columns["killed"].sum() for columns in found.values())
    figures.append(figure(f"{world}: jobs that their time limit ended", float(killed)))
    return figures


def _another(world: str, found: dict[str, Columns]) -> Figure:
    """The share of the seeds, in per cent."""
    differ = found[_MEASURED]["makespan"] != found[LARGEST_FIRST.name]["makespan"]
    text = f"{world}: seeds in which going by sizes gives another makespan than measuring"
    return figure(text, float(100 * differ.mean()), "%")
