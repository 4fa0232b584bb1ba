"""Units of a simulated machine: nodes that are asked for, wait in a batch system's queue, and are given back.

The policy's ``size`` strategy is asked at every interval, with what a live cluster would show it, and what it
says is done: units are asked for, taken back from the queue, and let go. The machine begins without any, and
nobody is asked while there is neither a job nor a unit. Paid for is a unit from when it is there to when it
is gone; at the end of a run, to the end of the last job.

What differs from a live cluster. All work is in jobs, so what they hold and ask for is all there is to go by;
of a running job that may grow, its remaining work is known. Nothing lies on a node when no job holds it. A
unit that is told to go while a job holds some of it is given to nobody else; the job goes on on other nodes
as these come, at once and without a loss, or the unit goes when the job is over. When its walltime ends first
the job goes on with its other nodes, if it can, or else stops and waits again.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from dask_hpc.model.cluster_view import ClusterView, JobNeed, Unit
from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.job import Job
from dask_hpc.model.snapshot import Indices, Running
from dask_hpc.model.story import Explanation, Happening
from dask_hpc.simulator.platform import Units
from dask_hpc.simulator.service import MachineService

_MOST_ENDS = 1000  # of units under one job, after which it will never be done
_PATIENCE = 10_000  # looks at a machine where nothing runs and nothing is to come


@dataclass(slots=True)
class SimulatedUnit:
    """One that was asked for."""

    name: str
    asked: float
    starts: float
    ends: float
    #: while it is there
    nodes: tuple[str, ...] = ()
    state: str = "queued"
    is_leaving: bool = False


@dataclass(slots=True)
class PaidNodes:
    """Node-seconds of all units of one run."""

    node_seconds: float = 0.0
    submitted: int = 0


class UnitDesk(MachineService):
    """Asks for units and gives them back, as the ``size`` strategy of the policy says."""

    follows_decisions = True

    def __init__(self, units: Units) -> None:
        self._units = units
        self._memory: Any = None
        self._there: dict[str, SimulatedUnit] = {}
        self._paid = PaidNodes()
        self._next_look = inf
        self._looks_in_vain = 0
        #: how often units have ended under each job
        self._ended_under: Counter[str] = Counter()
        #: of nodes that no unit has, the first ones last
        self._free: list[str] = []

    def watch(self, indices: Indices) -> Indices:
        self._nodes = dict(indices.nodes)
        self._free = list(self._nodes)[::-1]
        indices.nodes.clear()
        indices.idle.clear()
        return indices

    def begin(self) -> None:
        if self.site.record is not None:
            self.site.record.add(self._paid)

    def submitted(self, job: Job) -> None:
        """Somebody has to look again, at this instant."""
        if self._next_look == inf:
            self._looks_in_vain = 0
            self._look_at(self.site.indices.now)

    def woken(self, now: float) -> None:
        for unit in list(self._there.values()):
            if unit.state == "queued" and unit.starts <= now:
                self._starts(unit, now)
            elif unit.state == "running" and unit.ends <= now:
                self._ends(unit, now)
        if self._next_look <= now:
            self._look(now)

    def look(self) -> None:
        """Units that were told to go do so as soon as nobody holds them."""
        for unit in [unit for unit in self._there.values() if unit.is_leaving]:
            holders = {name: running.job.id for running in self._holders() for name in running.nodes}
            held = [name for name in unit.nodes if name in holders]
            others = self.site.indices.idle[: -len(held) - 1 : -1]
            for name, instead in zip(held, others, strict=False):
                self.site.move_job(holders[name], name, instead)
            if len(held) <= len(others):
                self._goes(unit, self.site.indices.now)

    def end(self, now: float) -> None:
        for unit in self._there.values():
            self._pay(unit, now)

    # what becomes of a unit

    def _starts(self, unit: SimulatedUnit, now: float) -> None:
        unit.state = "running"
        for _ in range(self._units.nodes - len(self._free)):  # successors overlap with those that end
            name = str(len(self._nodes))
            self._nodes[name] = replace(self._nodes["0"], name=name)
            self._free.insert(0, name)
        unit.nodes = tuple(self._free.pop() for _ in range(self._units.nodes))
        for name in unit.nodes:
            self.site.join_node(self._nodes[name], now)
        self.site.decide_at(unit.ends, self)

    def _ends(self, unit: SimulatedUnit, now: float) -> None:
        """Its walltime is over."""
        self._pay(unit, now)
        for running in self._holders():
            if not set(running.nodes).isdisjoint(unit.nodes):
                self._ended_under[running.job.id] += 1
                if self._ended_under[running.job.id] > _MOST_ENDS:
                    found = f"units have ended {_MOST_ENDS} times while it ran"
                    raise InputError(f"job {shown(running.job.id)}", found, "units with a longer walltime")
        for name in unit.nodes:
            self.site.lose_node(name, now, survive=True)
        self._free += unit.nodes[::-1]
        unit.state, unit.nodes = "gone", ()
        if unit.is_leaving:
            del self._there[unit.name]

    def _goes(self, unit: SimulatedUnit, now: float) -> None:
        """Nobody holds it."""
        self._pay(unit, now)
        del self._there[unit.name]
        for name in unit.nodes:
            self.site.indices.remove_node(name)
        self._free += unit.nodes[::-1]

    def _pay(self, unit: SimulatedUnit, now: float) -> None:
        if unit.state == "running":
            self._paid.node_seconds += (now - unit.starts) * self._units.nodes

    # what is decided

    def _look_at(self, time: float) -> None:
        self._next_look = time
        self.site.decide_at(time, self)

    def _look(self, now: float) -> None:
        view = self.view(now)
        strategy = self.site.policy.size
        plan, self._memory = strategy.decide(view, self._memory)
        why = Explanation(f"size: {strategy.name}", plan.inputs, plan.rejected)
        for word, reason in plan.rows():
            self.site.story.tell(Happening(self.site.indices.revision, now, word, "", (), reason, why))
        for parting in (*plan.dead, *plan.cancel):
            unit = self._there[parting.unit]
            if unit.nodes:
                unit.is_leaving = True
            else:
                del self._there[parting.unit]
        for parting in plan.leave:
            self._there[parting.unit].is_leaving = True
        leaving = [name for unit in self._there.values() if unit.is_leaving for name in unit.nodes]
        self.site.indices.withhold(set(leaving))
        self.look()
        for _ in range(plan.submit):
            self._submit(now)
        self._next_look = inf
        indices = self.site.indices
        is_coming = any(unit.state == "queued" for unit in self._there.values())
        self._looks_in_vain = 0 if plan or is_coming or indices.running else self._looks_in_vain + 1
        has_more = self._there or indices.running or len(indices.waiting)
        if has_more and self._looks_in_vain < _PATIENCE:
            self._look_at(now + self._units.interval)

    def _submit(self, now: float) -> None:
        self._paid.submitted += 1
        starts = now + self._units.wait
        name = f"unit-{self._paid.submitted}"
        self._there[name] = unit = SimulatedUnit(name, now, starts, starts + self._units.walltime)
        self.site.decide_at(unit.starts, self)

    def view(self, now: float) -> ClusterView:
        """The cluster as the strategy sees it."""
        size = self._units.nodes
        holders = {name: running.job.id for running in self._holders() for name in running.nodes}
        return ClusterView(
            now=now,
            interval=self._units.interval,
            units=tuple(self._seen(unit, now, holders) for unit in self._there.values()),
            minimum=self._units.minimum,
            maximum=self.site.platform.most_units,
            threads=size,
            nodes_per_unit=float(size),
            steps=self.site.indices.revision,
            jobs=tuple(self._needs()),
        )

    def _seen(self, unit: SimulatedUnit, now: float, holders: dict[str, str]) -> Unit:
        held_by = next((holders[name] for name in unit.nodes if name in holders), "")
        return Unit(
            name=unit.name,
            members=self._units.nodes,
            connected=len(unit.nodes),
            state=unit.state,  # type: ignore[arg-type]
            why="TIMEOUT" if unit.state == "gone" else "",
            age=now - unit.asked,
            running_for=None if unit.state == "queued" else now - unit.starts,
            left=unit.ends - now if unit.state == "running" else inf,
            is_busy=bool(held_by),
            pinned=f"job {held_by} holds it" if held_by else "",
            is_leaving=unit.is_leaving,
        )

    def _needs(self) -> Iterator[JobNeed]:
        """Of jobs that run, then of those that wait."""
        for running in self._holders():
            job, nodes = running.job, len(running.nodes)
            most = job.max_nodes if job.resizable else nodes
            yield JobNeed(nodes, most, self.site.work_left(job.id), most)
        yield from (JobNeed(job.nodes, job.nodes) for job in self.site.indices.waiting)

    def _holders(self) -> Iterator[Running]:
        return iter(self.site.indices.running.values())
