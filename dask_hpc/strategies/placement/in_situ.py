"""In situ or in transit: which analyses of a pipeline run where, and when that is thought of again."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from dask_hpc.model.parameter import Parameter
from dask_hpc.model.units import count_nodes, show_duration, show_large
from dask_hpc.planning.in_situ.back_pressure import SlowWish
from dask_hpc.planning.in_situ.partition import (
    Mode,
    Partition,
    PartitionProblem,
    Phases,
    PipelineView,
    Placement,
)
from dask_hpc.planning.in_situ.phases import placed
from dask_hpc.planning.in_situ.plan import partition
from dask_hpc.strategies.strategy import PlacementStrategy

#: a part whose cost changed by less than this share of it is not what anything is put down to
_NOTICEABLE = 0.1
_PHASES = ("the simulation takes", "analyses in situ take", "staging nodes take")


def difference(before: PartitionProblem, now: PartitionProblem, expected: Phases, found: Phases) -> str:
    """What is not as it was: the part of an iteration that costs most more or less, else the phase."""
    costs, parts = (
        {f"analysis {one.name} takes": one.time for one in problem.analyses}
        | {"the simulation takes": problem.simulation.time}
        for problem in (before, now)
    )
    changed = {
        name: abs(time - costs[name])
        for name, time in parts.items()
        if name in costs and abs(time - costs[name]) > _NOTICEABLE * costs[name]
    }
    if changed:
        name = max(changed, key=lambda name: changed[name])
        return f"{name} {show_duration(parts[name])} of a core instead of {show_duration(costs[name])}"
    at = max(range(3), key=lambda at: abs(found[at] - expected[at]))
    return f"{_PHASES[at]} {show_duration(found[at])} an iteration instead of {show_duration(expected[at])}"


def come_or_gone(before: PartitionProblem, now: PartitionProblem) -> str:
    """Which nodes and analyses came or went; empty if none did. What moving costs does not count: it is
    measured anew all the time."""
    words = []
    for name, unit in (("count", ""), ("cores", ""), ("memory", "B")):
        old, new = getattr(before.nodes, name), getattr(now.nodes, name)
        if old != new:
            change_ = " -> ".join(show_large(n, unit) if unit and n < inf else f"{n:g}" for n in (old, new))
            words.append(f"{'nodes' if name == 'count' else f'{name} of a node'} {change_}")
    old_names, new_names = ([one.name for one in problem.analyses] for problem in (before, now))
    words += [f"analysis {name} is new" for name in new_names if name not in old_names]
    words += [f"analysis {name} is gone" for name in old_names if name not in new_names]
    return ", ".join(words)


def change(before: Partition | None, after: Partition, problem: PartitionProblem) -> str:
    """What is done differently from now on, and what is expected of it."""
    words = _first(after, problem) if before is None else _changes(before, after)
    words.append(f"{show_duration(after.iteration)} an iteration expected")
    return ", ".join(words) + (f" ({after.warning})" if after.warning else "")


def _first(after: Partition, problem: PartitionProblem) -> list[str]:
    words = [f"the simulation runs on {after.nodes:g} of {count_nodes(problem.nodes.count)}"]
    if after.in_situ:
        helped = f" on {after.helper_cores:g} of {problem.nodes.cores} cores" if after.mode == "async" else ""
        words.append(f"{_names(after.in_situ, 'runs', 'run')} in situ{helped}")
    if after.in_transit:
        words.append(f"{_names(after.in_transit, 'runs', 'run')} on staging nodes")
    return words


def _changes(before: Partition, after: Partition) -> list[str]:
    words = []
    if leave := [name for name in after.in_transit if name not in before.in_transit]:
        words.append(f"{_names(leave, 'goes', 'go')} to staging nodes")
    if come := [name for name in after.in_situ if name not in before.in_situ]:
        words.append(f"{_names(come, 'runs', 'run')} in situ")
    if before.mode != after.mode:
        words.append(f"{before.mode} -> {after.mode}")
    for name, old, new in (
        ("simulation nodes", before.nodes, after.nodes),
        ("helper cores", before.helper_cores, after.helper_cores),
    ):
        if old != new:
            words.append(f"{name} {old:g} -> {new:g}")
    return words


def _names(names: Sequence[str], one: str, several: str) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last} {several}" if first else f"{last} {one}"


Order = Literal[
    "exact", "enumerate", "increasing-time", "decreasing-time", "increasing-peak", "decreasing-peak", "random"
]
#: of the simulation's time: what an analysis is taken to need of which nothing is known
_GUESSED = 0.1


class Followed(NamedTuple):
    """What the partition in force was made for, and what is expected of it."""

    wish: tuple[str, str]
    problem: PartitionProblem
    expected: Phases
    #: whether the problem's figures were measured; else they were declared, or guessed
    is_measured: bool
    #: how many iterations were done when that was written down, and when it was looked at last
    since: int
    seen: int
    #: iterations in a row that were not as expected
    drifting: int = 0
    #: whether the partition in force was made by what was measured under another one, and not yet held to it
    is_promised: bool = False
    #: what was in force since there was a reason to divide, with the phases that were measured under it
    tried: tuple[Partition, ...] = ()


@dataclass(frozen=True, slots=True)
class InSitu(PlacementStrategy):
    """Nodes, cores and analyses are divided so that an iteration takes the least time; seed 004, 2.1 to 2.7.

    The seed divides them once, before the run, from figures that are given. Ours watches: the first
    iterations run as declared (where nothing was declared, as if an analysis took a tenth of the
    simulation) and are measured, then they are divided by what was measured. They are divided again when
    ``patience`` iterations in a row depart by more than ``drift`` of an iteration's time from what was
    expected, if that saves at least ``gain`` of the time that is left; if not, what was measured is
    expected from then on. When nodes or analyses come or go, or memory no longer holds those in situ,
    they are divided at once.

    What a part takes depends on what runs beside it, and that is not modelled: a partition made by what was
    measured under another one is a promise. Once it was measured itself it is judged by what it took,
    however little that departs. If one that was tried for the same reason took less, that one returns; if
    another one promises more, and was not tried, it is tried.
    """

    name: ClassVar[str] = "in-situ"
    essential = ("mode", "order", "when_slow")

    mode: Annotated[
        Mode, Parameter("analyses run beside the next iteration, or the simulation waits for those in situ")
    ] = "async"
    order: Annotated[
        Order, Parameter("how analyses are chosen: exactly, all subsets, or one after another in this order")
    ] = "exact"
    warm_up: Annotated[
        int, Parameter("iterations that are only measured", unit="iterations", low=1, high=10**6)
    ] = 3
    drift: Annotated[
        float, Parameter("share of an iteration by which phases may depart from the plan", low=0.0, high=1e6)
    ] = 0.3
    patience: Annotated[
        int, Parameter("iterations in a row that must depart", unit="iterations", low=1, high=10**6)
    ] = 2
    gain: Annotated[
        float, Parameter("least share of the remaining time that another partition saves", low=0.0, high=1.0)
    ] = 0.05
    when_slow: Annotated[
        Literal["wait", "skip", "subsample", "spill"], Parameter("what is done if analyses do not keep up")
    ] = "wait"
    stall: Annotated[
        float, Parameter("longest that a step waits for slow analyses first", unit="s", low=0.0, none=inf)
    ] = 1.0

    @property
    def slow(self) -> SlowWish:
        return SlowWish(self.when_slow, self.stall)

    def decide(self, view: PipelineView, memory: Any) -> tuple[Placement | None, Any]:
        """Another partition if there is a reason and it is worth it; and what the next is compared to."""
        problem = replace(view.problem, mode=self.mode)
        if view.partition is None:
            known = guessed(problem)
            first = partition(known, self.order)
            cause = "as declared" if known == problem else "guessed where nothing was declared"
            reason = f"first partition, {cause}: {change(None, first, problem)}"
            return Placement(view.name, first, reason), self._note(view, problem, first.phases, False)
        if not isinstance(memory, Followed):  # somebody else's partition: it has to do what it promises
            memory = self._note(view, problem, view.partition.phases, False)
        if must := self._must(memory, problem, view.partition):
            return self._divide_at_once(view, problem, must, memory)
        if view.phases is None or min(view.measured, view.done - memory.since) < self.warm_up:
            return None, memory
        if not memory.is_measured:
            return self._divide(view, problem, view.phases, 0.0, f"measured in {view.measured} iterations")
        if memory.is_promised:
            return self._hold_to_promise(view, problem, view.phases, memory)
        if view.done == memory.seen:
            return None, memory
        drifting = memory.drifting + 1 if self._departs(view.phases, memory.expected) else 0
        if drifting < self.patience:
            return None, memory._replace(drifting=drifting, seen=view.done)
        cause = difference(memory.problem, problem, memory.expected, view.phases)
        return self._divide(view, problem, view.phases, self.gain, cause)

    def _must(self, memory: Followed, problem: PartitionProblem, current: Partition) -> str:
        """Why the partition in force may not stay, whatever another one costs; empty if it may."""
        if memory.wish != (self.mode, self.order):
            return f"the policy now says {self.mode}, {self.order}"
        if words := come_or_gone(memory.problem, problem):
            return words
        # what was made to fit barely needs a little more or less every time: only growth is a reason
        needed, room = memory_in_situ(problem, current), problem.nodes.memory * current.nodes
        if needed > room and needed > (1 + self.drift) * memory_in_situ(memory.problem, current):
            needs, has = (show_large(value, "B") for value in (needed, room))
            nodes = count_nodes(round(current.nodes))
            return f"simulation and analyses in situ need {needs}, {nodes} have {has}"
        return ""

    def _divide_at_once(
        self, view: PipelineView, problem: PartitionProblem, cause: str, memory: Followed
    ) -> tuple[Placement | None, Followed]:
        new = partition(guessed(problem), self.order)
        known = {one.name for one in memory.problem.analyses}
        all_known = memory.is_measured and all(one.name in known for one in problem.analyses)
        note = self._note(view, problem, new.phases, all_known)
        return self._answer(view, new, cause), note._replace(is_promised=all_known)

    def _divide(
        self, view: PipelineView, problem: PartitionProblem, found: Phases, gain: float, cause: str
    ) -> tuple[Placement | None, Followed]:
        """By what was measured, if it saves that share of the time left."""
        new = partition(guessed(problem), self.order)
        answer = self._answer(view, new, cause) if self._pays(view, problem, found, new, gain) else None
        # if nothing changes, what was found is what is expected now: the same drift is no reason again
        note = self._note(view, problem, found if answer is None else new.phases, True)
        if answer is not None and view.partition is not None:
            note = note._replace(is_promised=True, tried=(replace(view.partition, phases=found),))
        return answer, note

    def _hold_to_promise(
        self, view: PipelineView, problem: PartitionProblem, found: Phases, memory: Followed
    ) -> tuple[Placement | None, Followed]:
        """The partition in force was measured now: whether another one is better after all."""
        current = view.partition
        assert current is not None
        took, promised = found.iteration(self.mode), memory.expected.iteration(self.mode)
        words = f"an iteration takes {show_duration(took)}, {show_duration(promised)} were expected"
        better = [
            one
            for one in memory.tried
            if holds(problem, one) and self._saves(view, took - one.iteration, took, self.gain)
        ]
        new = partition(guessed(problem), self.order)
        is_tried = any(new.runs_like(one) for one in memory.tried)
        if not is_tried and self._pays(view, problem, found, new, self.gain):
            better.append(new)
        best = min(better, key=lambda one: one.iteration, default=current)
        answer = self._answer(view, best, words)
        if answer is None:
            return None, self._note(view, problem, found, True)
        note = self._note(view, problem, best.phases, True)
        if best is new:
            note = note._replace(is_promised=True, tried=(*memory.tried, replace(current, phases=found)))
        return answer, note

    def _answer(self, view: PipelineView, new: Partition, cause: str) -> Placement | None:
        """The new partition, unless it is the one in force."""
        current = view.partition
        assert current is not None
        if new.runs_like(current) and {*new.in_transit} == {*current.in_transit}:
            return None
        return Placement(view.name, new, f"{cause}: {change(current, new, view.problem)}")

    def _departs(self, found: Phases, expected: Phases) -> bool:
        """Whether a phase is not as expected by so much that an iteration's time could be another."""
        allowed = self.drift * expected.iteration(self.mode)
        return any(abs(one - other) > allowed for one, other in zip(found, expected, strict=True))

    def _pays(
        self, view: PipelineView, problem: PartitionProblem, found: Phases, new: Partition, gain: float
    ) -> bool:
        """Whether it saves so much of the time that is left, or what is in force does not fit.

        Both are modelled from the same figures: what the model does not know of costs both the same.
        """
        current = view.partition
        assert current is not None
        if not holds(problem, current):
            return True
        now = placed(problem, int(current.nodes), int(current.helper_cores), current.in_situ).iteration
        iteration = found.iteration(self.mode)
        return new.iteration < now and self._saves(
            view, (1 - new.iteration / now) * iteration, iteration, gain
        )

    def _saves(self, view: PipelineView, seconds: float, iteration: float, gain: float) -> bool:
        """Whether that is so much less for an iteration, and in what is left more than the change costs."""
        least = gain * iteration + (view.change_cost / view.left if view.left > 0 else inf)
        return 0 < seconds >= least

    def _note(
        self, view: PipelineView, problem: PartitionProblem, expected: Phases, is_measured: bool
    ) -> Followed:
        return Followed((self.mode, self.order), problem, expected, is_measured, view.done, view.done)


def guessed(problem: PartitionProblem) -> PartitionProblem:
    """With figures for what takes no time, as nothing is known of it: the simulation takes a second on all
    cores, an analysis a tenth of the simulation."""
    nodes, simulation = problem.nodes, problem.simulation
    if not simulation.time:
        simulation = replace(simulation, time=float(nodes.count * nodes.cores))
    analyses = tuple(
        one if one.time else replace(one, time=_GUESSED * simulation.time) for one in problem.analyses
    )
    return replace(problem, simulation=simulation, analyses=analyses)


def holds(problem: PartitionProblem, current: Partition) -> bool:
    """Whether the nodes that simulate have the memory for it."""
    return memory_in_situ(problem, current) <= problem.nodes.memory * current.nodes


def memory_in_situ(problem: PartitionProblem, current: Partition) -> float:
    """Bytes that the simulation and the analyses beside it need."""
    inside = sum(one.memory for one in problem.analyses if one.name in current.in_situ)
    return problem.simulation.memory + inside
