"""When the steps of a pipeline begin, and which analyses of them are done."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from dask_hpc.model.partition import Mode, Partition, PartitionProblem, Phases
from dask_hpc.planning.back_pressure import BackPressure, Skipped, Slow
from dask_hpc.planning.partition_phases import phase_times, work_of_each


class Costs(NamedTuple):
    """Seconds of the simulation and of each analysis of one iteration, where they run."""

    simulation: float
    in_situ: Mapping[str, float]
    in_transit: Mapping[str, float]

    @property
    def phases(self) -> Phases:
        """One after another, in situ and in transit."""
        return Phases(self.simulation, sum(self.in_situ.values()), sum(self.in_transit.values()))


def costs(problem: PartitionProblem, partition: Partition) -> Costs:
    """By the planner's model."""
    each = work_of_each(problem.analyses)
    times = phase_times(problem, partition.nodes, partition.helper_cores, each, each)
    names = [one.name for one in problem.analyses]
    in_situ, in_transit = np.asarray(times.in_situ), np.asarray(times.in_transit)
    inside = {name: float(in_situ[names.index(name)]) for name in partition.in_situ}
    outside = {name: float(in_transit[names.index(name)]) for name in partition.in_transit}
    return Costs(float(times.simulation), inside, outside)


class Pace:
    """Analyses of an iteration begin when its step is done: those in situ one after another, those in transit
    one after another, and after what has begun before.

    The next step begins meanwhile, in "sync" after those in situ. At most two iterations are alive: an
    analysis that still looks at the last iteration but one is late, and dealt with by the rule.
    """

    def __init__(self, names: Iterable[str], rule: Slow | None = None) -> None:
        self._pressure = BackPressure(dict.fromkeys(names, rule or Slow("wait")))
        #: by analysis, when the runs that have begun are done
        self._ends: dict[str, dict[int, float]] = {}
        self._in_situ = self._in_transit = 0.0

    def restart(self) -> None:
        """Another partition is in force."""
        self._pressure.restart()

    def begins(self, iteration: int, now: float) -> float:
        """When an iteration begins that could begin now."""
        begins = now
        for name, seconds in self._pressure.waits(iteration, self._late(iteration, now)).items():
            last = max(end for one, end in self._ends[name].items() if one < iteration - 1)
            begins = max(begins, min(last, now + seconds))
        return begins

    def left_out(self, iteration: int, now: float) -> list[Skipped]:
        """The analyses that are not done for an iteration that begins now."""
        deeds = self._pressure.deeds(iteration, self._late(iteration, now))
        return [Skipped(iteration, name, why) for name, (deed, why) in deeds.items() if deed == "skip"]

    def stepped(
        self, iteration: int, now: float, found: Costs, mode: Mode, left_out: Iterable[str] = ()
    ) -> float:
        """The step of an iteration is done: its analyses begin. Answers when the next may begin."""
        for runs in self._ends.values():
            for done in [one for one, end in runs.items() if end <= now]:
                del runs[done]
        out = set(left_out)
        self._in_situ = self._run(iteration, max(now, self._in_situ), found.in_situ, out)
        self._in_transit = self._run(iteration, max(now, self._in_transit), found.in_transit, out)
        return max(now, self._in_situ) if mode == "sync" else now

    @property
    def end(self) -> float:
        """When everything that has begun is done."""
        return max(self._in_situ, self._in_transit)

    def _run(self, iteration: int, begins: float, seconds: Mapping[str, float], out: set[str]) -> float:
        for name, time in seconds.items():
            if name not in out:
                begins += time
                self._ends.setdefault(name, {})[iteration] = begins
        return begins

    def _late(self, iteration: int, now: float) -> dict[str, list[int]]:
        """Runs that should have ended by now: those of the iteration before run beside this step."""
        return {
            name: [one for one, end in runs.items() if one < iteration - 1 and end > now]
            for name, runs in self._ends.items()
        }
