"""What a simulated pipeline did: its iterations, its partitions and why, and what other placements take."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, nan
from statistics import fmean, median
from typing import Any, NamedTuple

from dask_hpc.model.partition import Partition, PartitionProblem, Phases
from dask_hpc.model.pipeline_status import tell_partition
from dask_hpc.planning.partition import partition
from dask_hpc.planning.partition_split import with_split
from dask_hpc.simulator.in_situ.pace import Pace, costs
from dask_hpc.simulator.in_situ.pipeline import Pipeline
from dask_hpc.simulator.platform import Platform


class Began(NamedTuple):
    """One iteration: when, on how many nodes, what each part took, and the partition in force."""

    number: int
    time: float
    nodes: int
    phases: Phases
    partition: Partition
    #: analyses that are not done for it
    left_out: tuple[str, ...] = ()


class Changed(NamedTuple):
    """From this iteration on, another partition."""

    iteration: int
    time: float
    partition: Partition
    reason: str


@dataclass
class PipelineRun:
    """One pipeline's run, as far as it got."""

    name: str
    pipeline: Pipeline
    platform: Platform
    iterations: list[Began] = field(default_factory=list)
    changes: list[Changed] = field(default_factory=list)
    end: float = nan

    def began(
        self,
        number: int,
        now: float,
        nodes: int,
        phases: Phases,
        partition: Partition,
        left_out: tuple[str, ...] = (),
    ) -> None:
        """An iteration begins, which takes so long. If the job was stopped and does it again, the last
        time counts."""
        while self.iterations and self.iterations[-1].number >= number:
            self.iterations.pop()
        self.iterations.append(Began(number, now, nodes, phases, partition, left_out))

    def changed(self, iteration: int, now: float, partition: Partition, reason: str) -> None:
        """Another partition is in force."""
        self.changes.append(Changed(iteration, now, partition, reason))

    def ended(self, now: float) -> None:
        """Everything is done."""
        self.end = now

    @property
    def seconds(self) -> list[float]:
        """Of each iteration, from its beginning to that of the next; of the last, until all is done. What
        a change of the partition or of nodes costs is in the iteration before."""
        times = [one.time for one in self.iterations]
        return [after - time for time, after in zip(times, [*times[1:], self.end], strict=True)]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Each iteration as a row of a table."""
        for one, seconds in zip(self.iterations, self.seconds, strict=True):
            yield {
                "pipeline": self.name,
                "iteration": one.number,
                "time": one.time,
                "seconds": seconds,
                "planned": one.partition.iteration,
                **one.phases._asdict(),
                "nodes": one.nodes,
                "simulation_nodes": int(one.partition.nodes),
                "helper_cores": int(one.partition.helper_cores),
                "in_situ": ", ".join(one.partition.in_situ),
                "in_transit": ", ".join(one.partition.in_transit),
                "left_out": ", ".join(one.left_out),
            }

    @property
    def total(self) -> float:
        """Seconds from the first iteration to the end of the last."""
        return self.end - self.iterations[0].time if self.iterations else nan

    @property
    def last_iteration(self) -> float:
        """Seconds of an iteration since the partition changed last (a median; the last one of all, which
        empties the pipeline, left out)."""
        first = self.changes[-1].iteration if self.changes else 0
        pairs = zip(self.iterations, self.seconds[:-1], strict=False)
        return median([seconds for one, seconds in pairs if one.number >= first] or [nan])

    @property
    def layout(self) -> str:
        """The partition in force at the end, in words."""
        if not self.iterations:
            return "-"
        last = self.iterations[-1]
        return layout(last.partition, last.nodes)

    @property
    def left_out(self) -> dict[str, int]:
        """For how many iterations each analysis was not done, if for any."""
        return dict(Counter(name for one in self.iterations for name in one.left_out))

    def told(self) -> dict[str, Any]:
        """As plain data; None for what is not known."""
        figures = {
            "iteration": self.last_iteration,
            "total": self.total,
            "all_in_situ": self.all_in_situ,
            "all_in_transit": self.all_in_transit,
            "divided_once": self.never_again,
        }
        changes = [
            {
                "iteration": one.iteration,
                "time": one.time,
                "reason": one.reason,
                "partition": tell_partition(one.partition),
            }
            for one in self.changes
        ]
        known = {name: value if value == value else None for name, value in figures.items()}
        return {"iterations": len(self.iterations), **known, "left_out": self.left_out, "changes": changes}

    @cached_property
    def all_in_situ(self) -> float:
        """Seconds that the same iterations take with all analyses in situ: the best partition of that kind
        for what everything took on average. nan if that needs more memory or cores than there are."""
        names = [one.name for one in self.pipeline.analyses]
        return self._if_always(lambda problem: with_split(problem, names))

    @cached_property
    def all_in_transit(self) -> float:
        """The same with all analyses on staging nodes."""
        return self._if_always(lambda problem: with_split(problem, ()))

    @cached_property
    def never_again(self) -> float:
        """The same with the best partition for what was declared, which only follows the nodes."""
        mode = self.iterations[0].partition.mode if self.iterations else "async"

        def declared(problem: PartitionProblem) -> Partition:
            known = self.pipeline.declared(problem.nodes.count, self.platform)
            return partition(replace(known, mode=mode))

        return self._if_always(declared)

    def _if_always(self, divide: Callable[[PartitionProblem], Partition | None]) -> float:
        """Seconds that these iterations take, on the same nodes, if only they divide them."""
        if not self.iterations:
            return nan
        mean, mode = self._mean(), self.iterations[0].partition.mode
        divided: dict[int, Partition | None] = {}
        pace, now = Pace([one.name for one in self.pipeline.analyses]), 0.0
        for one in self.iterations:
            problem = replace(mean, nodes=replace(mean.nodes, count=one.nodes), mode=mode)
            if one.nodes not in divided:
                divided[one.nodes] = divide(problem)
            chosen = divided[one.nodes]
            if chosen is None or chosen.warning or chosen.iteration == inf:
                return nan
            real = replace(self.pipeline.real(one.number, one.nodes, self.platform), mode=chosen.mode)
            found = costs(real, chosen)
            now = pace.begins(one.number, now)
            now = pace.stepped(one.number, now + found.simulation, found, chosen.mode)
        return max(now, pace.end)

    def _mean(self) -> PartitionProblem:
        """What the parts took on average."""
        seen = list(self._real())
        declared = seen[0]
        analyses = tuple(
            replace(one, time=fmean(problem.analyses[at].time for problem in seen))
            for at, one in enumerate(declared.analyses)
        )
        simulation = replace(declared.simulation, time=fmean(one.simulation.time for one in seen))
        return replace(declared, simulation=simulation, analyses=analyses)

    def _real(self) -> Iterator[PartitionProblem]:
        return (self.pipeline.real(one.number, one.nodes, self.platform) for one in self.iterations)


def layout(chosen: Partition, nodes: int) -> str:
    """A partition in a few words."""
    words = [f"{chosen.nodes:g} of {nodes} nodes simulate"]
    if chosen.in_situ:
        cores = f"{chosen.helper_cores:g} core{'' if chosen.helper_cores == 1 else 's'}"
        helped = f" on {cores}" if chosen.mode == "async" else ""
        words.append(f"{', '.join(chosen.in_situ)} in situ{helped}")
    if chosen.in_transit:
        words.append(f"{', '.join(chosen.in_transit)} in transit")
    return "; ".join(words)
