"""Steers a pipeline: measures its iterations, asks the placement strategy, and carries out what it answers.

The strategy is that of the policy in force on a managed cluster, if that has one, else the pipeline's own.
What it decides holds from the next iteration on, so none is lost and none runs twice: its steps run where
the new places say, and blocks that live elsewhere move to them, from workers that hold them until then.
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from math import ceil, inf
from time import monotonic
from typing import Any, ClassVar

import dask.config
from dask.utils import parse_bytes
from distributed import Client

from dask_hpc import config
from dask_hpc.cluster.request import is_managed
from dask_hpc.in_situ.analysis import InSituAnalysis
from dask_hpc.in_situ.client.iteration import Finished, Orders, Running
from dask_hpc.in_situ.client.job import PipelineDiary, PipelineJob
from dask_hpc.in_situ.client.measured import Observer, PipelineCosts
from dask_hpc.model.errors import InputError
from dask_hpc.model.node import Nodes
from dask_hpc.planning.in_situ.back_pressure import BackPressure, Skipped, Slow, SlowWish
from dask_hpc.planning.in_situ.partition import (
    EqualNodes,
    Mode,
    Partition,
    PartitionProblem,
    PipelineView,
    Placement,
)
from dask_hpc.planning.in_situ.phases import placed
from dask_hpc.planning.in_situ.places import PipelineNode, Places, make_places
from dask_hpc.policy import Policy


@dataclass(frozen=True, slots=True)
class PipelineMachine:
    """Nodes by name, as the scheduler has them, and what they have in common."""

    nodes: tuple[PipelineNode, ...]
    memory: float = field(compare=False)
    bandwidth: float = field(compare=False)

    def equal(self, bandwidth: float = float("inf")) -> EqualNodes:
        """The nodes as the planner sees them: all like the one with the fewest cores, and that with the
        least memory. ``bandwidth`` is what was measured, if it was."""
        cores = min(node.cores for node in self.nodes)
        known = bandwidth if bandwidth < float("inf") else self.bandwidth
        return EqualNodes(count=len(self.nodes), cores=cores, memory=self.memory, bandwidth=known)


async def look(
    client: Client, bandwidth: float, allotted: Collection[str] | None = None, leaving: Collection[str] = ()
) -> PipelineMachine:
    """The nodes now, of workers that run and are not leaving; those that are allotted, if not all are. None
    at all is an ``InputError``."""
    identity = await client.scheduler.identity(n_workers=-1)
    workers: dict[str, Any] = {
        address: facts for address, facts in identity["workers"].items() if facts["status"] == "running"
    }
    known = Nodes.of(
        config.settings()["node"],
        sorted(
            ((address, facts["name"], facts["host"]) for address, facts in workers.items()),
            key=lambda one: (len(str(one[1])), str(one[1])),
        ),
    )
    names = list(known)
    if allotted is not None:
        names = [name for name in names if name in allotted]
    nodes = _nodes(known, names, workers, leaving) or _nodes(known, names, workers, ())
    if not nodes:
        raise InputError("pipeline", "found no worker", "at least one")
    memory = min(
        sum(workers[one]["memory_limit"] or float("inf") for one, _ in node.workers) for node in nodes
    )
    return PipelineMachine(nodes, memory, bandwidth)


def _nodes(
    known: Nodes, names: list[str], workers: dict[str, Any], leaving: Collection[str]
) -> tuple[PipelineNode, ...]:
    """These nodes, without workers that leave."""
    found = (
        PipelineNode(
            name, tuple((one, workers[one]["nthreads"]) for one in known.workers(name) if one not in leaving)
        )
        for name in names
    )
    return tuple(node for node in found if node.workers)


_LOOK = 0.5  # seconds between two looks at which nodes there are


@dataclass(frozen=True, slots=True)
class Steered:
    """A pipeline as far as it matters to whoever steers it."""

    name: str
    analyses: Mapping[str, InSituAnalysis]
    blocks: int
    #: decides where a cluster's policy does not
    strategy: Any
    #: what is done when analyses do not keep up, as far as their owner said it
    slow: SlowWish
    #: whether the policy of a managed cluster decides
    follows_policy: bool = True


class Auto:
    """Steering by measurement. Goes on where it was when a pipeline is run again."""

    def __init__(self, client: Client, steered: Steered, diary: PipelineDiary) -> None:
        self._client = client
        self._steered = steered
        self._diary = diary
        #: the last iteration that will be asked for
        self._last = 0
        self._strategy = steered.strategy
        self._policy = ""
        self._memory: Any = None
        self._is_managed: bool | None = None
        self._is_paused = False
        wholes = [name for name, one in steered.analyses.items() if not one.per_block]
        self._observer = Observer(wholes)
        self._measured = PipelineCosts(one.declared(name) for name, one in steered.analyses.items())
        self._pressure = BackPressure(self._rules())
        self._machine: PipelineMachine | None = None
        self._job: PipelineJob | None = None
        #: names of the job's nodes, and workers that are leaving, when the machine was looked at
        self._allotted: frozenset[str] | None = None
        self._avoided: frozenset[str] = frozenset()
        self._leaving: frozenset[str] = frozenset()
        self._looked = -inf
        self._places: Places | None = None
        #: of the iteration that was done last
        self._ran: Places | None = None
        self._partition: Partition | None = None
        self._done = 0
        self._ended: float | None = None
        self._state_bytes = 0
        #: whether what is expected of the partition in force was measured under it
        self._is_expected = False

    def begin(self, last: int, job: PipelineJob | None = None) -> None:
        """A run begins, up to this iteration, perhaps as a job."""
        self._last = last
        self._job = job
        self._looked = -inf
        self._is_managed = None  # perhaps it is now
        self._ended = None

    def look_again(self) -> None:
        """Workers are gone: which nodes there are is looked at before the next orders."""
        self._looked = -inf

    async def orders(self, iteration: int, home: Mapping[int, str], running: Running) -> Orders:
        """Where this iteration runs, after waiting for the analyses that it has to wait for."""
        if self._is_managed is None:
            await self.tell(at_once=True)
        await self._hold_back(iteration, running)
        changed = await self._look(home)
        placement = None if self._is_paused and self._partition is not None else self._decide()
        if placement is not None:
            self._come_into_force(iteration, placement)
        self._expect()
        if placement is not None or changed or self._places is None:
            assert self._machine is not None and self._partition is not None
            self._places = make_places(self._partition, self._machine.nodes, self._steered.blocks, home)
            self._show_nodes(self._places)
        deeds = self._pressure.deeds(iteration, self._earlier(iteration, running))
        for name, (deed, why) in deeds.items():
            if deed == "skip":
                self._diary.skip(Skipped(iteration, name, why), self._pressure.what(name))
        done = frozenset(name for name, (deed, _) in deeds.items() if deed != "skip")
        spilled = frozenset(name for name, (deed, _) in deeds.items() if deed == "spill")
        assert self._machine is not None
        workers = ((address, node.name) for node in self._machine.nodes for address, _ in node.workers)
        idle = tuple(one for one in workers if one[0] not in self._places.addresses)
        return Orders(self._places, done, spilled, idle)

    async def finished(self, done: Finished) -> None:
        """An iteration is done: learn what it cost, and tell."""
        before = done.submitted if self._ended is None else self._ended
        self._ended, self._done = max(before, done.ended), done.iteration  # one may overtake the other
        seconds = self._ended - before
        observed = self._observer.observe(done)
        is_first, self._ran = done.orders.places != self._ran, done.orders.places
        if done.orders.places == self._places and not is_first:  # the first also moves blocks, loads code
            assert self._machine is not None and self._partition is not None
            self._measured.add(observed, self._machine.equal(), self._partition)
        self._state_bytes = sum(one.bytes_out for one in done.records if one.part == "step")
        self._diary.add(done.iteration, seconds, observed.phases)
        await self.tell()

    async def _hold_back(self, iteration: int, running: Running) -> None:
        """At most two iterations live, besides what a late analysis still reads."""
        earlier = self._earlier(iteration, running)
        waits = self._pressure.waits(iteration, earlier)
        clock = asyncio.get_running_loop().time
        began = clock()
        for name, seconds in sorted(waits.items(), key=lambda one: one[1]):
            ends = [running[name][one] for one in earlier[name] if one in running.get(name, ())]
            if ends:
                left = None if seconds == inf else max(0.0, seconds - (clock() - began))
                await asyncio.wait(ends, timeout=left)

    @staticmethod
    def _earlier(iteration: int, running: Running) -> dict[str, list[int]]:
        """What should have ended by now: those of the iteration before run beside this step."""
        return {name: [one for one in runs if one < iteration - 1] for name, runs in running.items()}

    async def _look(self, home: Mapping[int, str]) -> bool:
        """Which nodes there are now; whether they are others than before."""
        allotted = None if self._job is None else await self._job.nodes()
        is_same = allotted == self._allotted and self._leaving == self._avoided
        if self._machine is not None and is_same and monotonic() - self._looked < _LOOK:
            return False
        found = await self._found(allotted)
        before, self._machine = self._machine, found
        if before is None or before == found:
            return before is None
        come = [node.name for node in found.nodes if node.name not in {one.name for one in before.nodes}]
        gone = [node.name for node in before.nodes if node.name not in {one.name for one in found.nodes}]
        words = [f"{', '.join(come)} joined"] if come else []
        words += [f"{', '.join(gone)} left"] if gone else []
        self._diary.tell("nodes-changed", "; ".join(words) or "workers of its nodes changed")
        return True

    async def _found(self, allotted: frozenset[str] | None) -> PipelineMachine:
        """The nodes. A job's may be on their way out, all of them: then it will get others, or wait."""
        bandwidth = parse_bytes(dask.config.get("distributed.scheduler.bandwidth", "100 MB"))
        while True:
            self._allotted, self._avoided, self._looked = allotted, self._leaving, monotonic()
            try:
                return await look(self._client, bandwidth, allotted, self._avoided)
            except InputError:
                if self._job is None or allotted is None:
                    raise
            await asyncio.sleep(_LOOK)
            allotted = await self._job.nodes()

    def _show_nodes(self, places: Places) -> None:
        assert self._machine is not None
        simulating = list(dict.fromkeys(place.node for place in places.simulation))
        others = [node.name for node in self._machine.nodes if node.name not in simulating]
        self._diary.nodes = simulating + others
        self._diary.cores = self._machine.equal().cores

    def _problem(self) -> PartitionProblem:
        assert self._machine is not None
        nodes = self._machine.equal(self._measured.bandwidth)
        mode = self._partition.mode if self._partition is not None else "async"
        analyses = self._measured.analyses(self._steered.analyses)
        return PartitionProblem(nodes, self._measured.simulation, analyses, mode)

    def _decide(self) -> Placement | None:
        problem = self._problem()
        nodes = problem.nodes
        view = PipelineView(
            name=self._steered.name,
            done=self._done,
            left=self._last - self._done,
            problem=problem,
            partition=self._partition,
            phases=self._measured.phases,
            measured=self._measured.count,
            change_cost=self._state_bytes / nodes.bandwidth / nodes.count,
        )
        placement: Placement | None
        placement, self._memory = self._strategy.decide(view, self._memory)
        return placement

    def _come_into_force(self, iteration: int, placement: Placement) -> None:
        self._is_expected = False
        self._partition = placement.partition
        self._measured.restart()
        self._pressure.restart()
        self._diary.change(iteration, placement.partition, placement.reason)

    def _expect(self) -> None:
        """What is expected of a partition, once its parts were measured under it. Before, that was guessed,
        or what they took under another one, beside others."""
        current = self._partition
        if self._is_expected or current is None or self._measured.count < self._strategy.warm_up:
            return
        self._is_expected = True
        known = placed(self._problem(), ceil(current.nodes), ceil(current.helper_cores), current.in_situ)
        self._partition = replace(current, phases=known.phases)
        self._diary.expect(self._partition)

    async def tell(self, at_once: bool = False) -> None:
        """Say how it goes to a managed cluster, and hear by which policy it is to be placed."""
        if self._is_managed is None:
            self._is_managed = await is_managed(self._client)
        if not self._is_managed:
            return
        try:
            answer = await self._diary.send(self._client, at_once)
        except RuntimeError:
            self._is_managed = self._is_paused = False
            self._leaving = frozenset()
            return
        if answer is None:
            return
        self._leaving = frozenset(answer["leaving"])
        if not self._steered.follows_policy:
            return
        text = answer["policy"]
        self._is_paused = text is None
        if text is not None and text != self._policy:
            self._policy = text
            strategy = Policy.parse(text).placement or self._steered.strategy
            if strategy != self._strategy:
                self._diary.tell(
                    "pipeline", f"is placed by the strategy {strategy.name} of the policy in force"
                )
                self._strategy = strategy
                self._pressure.follow(self._rules())

    def _rules(self) -> dict[str, Slow]:
        """What is done about slow analyses: as is said of each, of the pipeline, and by the strategy."""
        said = self._steered.slow.over(self._strategy.slow)
        return {name: one.slow.over(said).rule() for name, one in self._steered.analyses.items()}


SIDES = ("in situ", "in transit")


class _Fixed:
    """What strategies say that do not go by what is measured."""

    concern: ClassVar[str] = "placement"
    warm_up: ClassVar[int] = 3
    slow: ClassVar[SlowWish] = SlowWish()


class OneSide(_Fixed):
    """All analyses in situ on a quarter of the cores of every node, or in transit on a quarter of the nodes;
    at least one, at most all but one."""

    name: ClassVar[str] = "one-side"

    def __init__(self, side: str, mode: Mode) -> None:
        self._side = side
        self._mode = mode

    def decide(self, view: PipelineView, memory: Any) -> tuple[Placement | None, Any]:
        """Another partition only if there are other nodes."""
        new = self._partition(replace(view.problem, mode=self._mode))
        if new.runs_like(view.partition):
            return None, None
        return Placement(view.name, new, f"all analyses {self._side}, as asked for"), None

    def _partition(self, problem: PartitionProblem) -> Partition:
        count, cores = problem.nodes.count, problem.nodes.cores
        names = [one.name for one in problem.analyses]
        if self._side == "in situ" or not names or count == 1:
            return placed(problem, count, max(1, cores // 4) if names else 0, names)
        return placed(problem, count - max(1, count // 4), 0, ())


class AsSaid(_Fixed):
    """The partition that the user made, on whatever nodes there are."""

    name: ClassVar[str] = "as-said"

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    def decide(self, view: PipelineView, memory: Any) -> tuple[Placement | None, Any]:
        if view.partition is not None:
            return None, None
        return Placement(view.name, self._partition, "the partition that was asked for"), None
