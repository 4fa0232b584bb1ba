"""ElastiSim's application models as forms, which the arguments of a job are filled into.

Many jobs have the same model: it is read once, and what depends on a job is left open. A ``Formula`` becomes
an amount with the job's arguments; a sequence becomes so many tasks; a phase has so many iterations.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

from dask_hpc.model.errors import InputError, shown
from dask_hpc.simulator.application import (
    MOST_ITERATIONS,
    Amount,
    Application,
    Arguments,
    Fixed,
    Phase,
    Task,
    TaskKind,
    during,
    insist_on_least,
    varies,
)
from dask_hpc.simulator.expression import Expression
from dask_hpc.simulator.values import Notes


def _between_all_gpus(nodes: int, payload: float, gpus: int) -> float:
    if nodes == 1 or gpus == 1:
        return payload if nodes > 1 else 0.0
    return payload * (nodes * gpus - gpus) / (nodes * gpus - 1)


#: rule -> the amount on so many nodes, by other amounts there and by figures
_RULES: Mapping[str, Callable[..., float]] = {
    # of a payload, what the node with the most work does
    "all_ranks": lambda nodes, payload: payload / nodes,
    "total": lambda nodes, payload: payload / nodes,
    "uniform": lambda nodes, payload: payload,
    "root_only": lambda nodes, payload: payload,
    "even_ranks": lambda nodes, payload: payload / ((nodes + 1) // 2),
    "odd_ranks": lambda nodes, payload: payload / (nodes // 2) if nodes > 1 else 0.0,
    # and what the link with the most traffic carries: rings and exchanges load all links alike
    "all_to_all": lambda nodes, payload: payload / nodes if nodes > 1 else 0.0,
    "gather": lambda nodes, payload: payload * (nodes - 1) / nodes,  # the root's own share stays at home
    "scatter": lambda nodes, payload: payload * (nodes - 1) / nodes,
    # ElastiSim divides this payload by half of the workers and sends that to and from each
    "master_worker": lambda nodes, payload: 2 * payload if nodes > 1 else 0.0,
    "ring": lambda nodes, payload: payload / nodes if nodes > 1 else 0.0,
    "ring_clockwise": lambda nodes, payload: payload / nodes if nodes > 1 else 0.0,
    "ring_counter_clockwise": lambda nodes, payload: payload / nodes if nodes > 1 else 0.0,
    # of such a payload, what one node sends to another one: the most of all pairs
    "a stream of all_to_all": lambda nodes, payload: payload / (nodes * nodes - nodes) if nodes > 1 else 0.0,
    "a stream of gather": lambda nodes, payload: payload / nodes if nodes > 1 else 0.0,
    "a stream of scatter": lambda nodes, payload: payload / nodes if nodes > 1 else 0.0,
    "a stream of master_worker": lambda nodes, payload: 2 * payload / (nodes - 1) if nodes > 1 else 0.0,
    "a stream of ring": lambda nodes, payload: (
        payload / (2 * nodes if nodes > 2 else 2) if nodes > 1 else 0.0
    ),
    "a stream of ring_clockwise": lambda nodes, payload: payload / nodes if nodes > 1 else 0.0,
    "a stream of ring_counter_clockwise": lambda nodes, payload: payload / nodes if nodes > 1 else 0.0,
    "the slower": lambda nodes, carried, stream, ratio: max(carried, stream * ratio),
    # the part of a payload among all GPUs that goes from node to node: in a ring one GPU of each node has
    # its neighbour elsewhere
    "all GPUs": _between_all_gpus,
    "a ring of GPUs": lambda nodes, payload, gpus: payload / gpus if nodes > 1 else 0.0,
    "scaled": lambda nodes, amount, factor: amount * factor,
    "repeated": lambda nodes, amount, times: amount * max(0, int(times)),  # parts of a time do not count
    "clipped": lambda nodes, amount, low, high: float(min(max(int(amount), low), high)),
    "not hidden": lambda nodes, sent, computed, ratio: max(0.0, sent - computed * ratio),
    # whatever there is of it begins after a latency: the seconds, or what a link could carry meanwhile
    "a latency": lambda nodes, amount, seconds: seconds if amount > 0 else 0.0,
    "delayed": lambda nodes, amount, more: amount + more if amount > 0 else 0.0,
}


@dataclass(frozen=True, slots=True)
class Derived:
    """An amount that follows from others, and from figures that are the same on any nodes, by a rule."""

    rule: str
    amounts: tuple[Amount, ...]
    figures: tuple[float, ...] = ()
    #: whether any of the amounts depends on the iteration of its phase
    varies: bool = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "varies", any(map(varies, self.amounts)))

    def during(self, iteration: int) -> "Derived":
        """The same in that iteration."""
        return Derived(self.rule, tuple(during(amount, iteration) for amount in self.amounts), self.figures)

    def __call__(self, nodes: int) -> float:
        rule, amounts = _RULES[self.rule], self.amounts
        if len(amounts) == 1:
            return rule(nodes, amounts[0](nodes), *self.figures)
        return rule(nodes, *(amount(nodes) for amount in amounts), *self.figures)


class Filling(NamedTuple):
    """What a job fills the forms of its model with."""

    arguments: Arguments
    #: sizes on which every amount is tried, the least in front and the most at the end
    sizes: tuple[int, ...]
    notes: Notes
    #: iterations of the phase at hand, if it is one
    rounds: int = 0


@dataclass(frozen=True, slots=True)
class Formula:
    """An amount that is open; ``where`` is its place in the model, which says so."""

    expression: Expression
    where: str
    said: object

    def amount(self, filling: Filling, least: float = 0.0) -> Amount:
        """With the arguments of a job: on none of its sizes less than that."""
        try:
            rounds = filling.rounds
            amount = filling.arguments.bind(self.expression, iterations=rounds > 0)
            insist_on_least(amount, filling.sizes, least, rounds)
        except InputError as error:
            raise error.at(self.where) from None
        return amount

    def count(self, filling: Filling) -> int:
        """Iterations of a phase, which may use the job's arguments, not its size."""
        try:
            count = self.expression.number
            if count is None:
                count = filling.arguments.bind(self.expression, sizes=False)(1)
        except InputError as error:
            raise error.at(self.where) from None
        if not 0 <= count <= MOST_ITERATIONS:
            found = f"found {shown(self.said)}, that is {count:g}"
            raise InputError(self.where, found, f"0 to {MOST_ITERATIONS:,}")
        return int(count)


@dataclass(frozen=True, slots=True)
class KnownAmount:
    """An amount that is the same for all jobs."""

    value: Fixed

    def amount(self, filling: Filling) -> Amount:
        """That."""
        return self.value


@dataclass(frozen=True, slots=True)
class Rule:
    """An amount that follows from others by a rule."""

    name: str
    parts: "tuple[Form, ...]"
    figures: tuple[float, ...] = ()

    def amount(self, filling: Filling) -> Amount:
        """By the amounts of the parts."""
        return Derived(self.name, tuple([part.amount(filling) for part in self.parts]), self.figures)


Form = Formula | KnownAmount | Rule


@dataclass(frozen=True, slots=True)
class TaskForm:
    """One task."""

    kind: TaskKind
    form: Form
    root_only: bool = False
    before: Form | None = None
    #: of reading and writing: by every second node, or by the others
    every: int = 1
    others: bool = False

    def tasks(self, filling: Filling) -> tuple[Task, ...]:
        """With its amount."""
        before = None if self.before is None else self.before.amount(filling)
        amount = self.form.amount(filling)
        return (Task(self.kind, amount, self.root_only, before, self.every, self.others),)


@dataclass(frozen=True, slots=True)
class Repeated:
    """Steps, so many times."""

    steps: "tuple[TaskForm | Repeated, ...]"
    times: Formula

    def tasks(self, filling: Filling) -> tuple[Task, ...]:
        """One after the other where that is short, else each of them longer."""
        tasks = _all(self.steps, filling)
        return again(tasks, self.times.amount(filling), filling.notes)


#: a sequence repeated more often than this makes one long task of each of its tasks
_MOST_TASKS = 1000


def again(tasks: tuple[Task, ...], times: Amount, notes: Notes) -> tuple[Task, ...]:
    """Iterations of one task are one longer task; of several they are, too, if there are many."""
    if times == Fixed(1):
        return tasks
    if isinstance(times, Fixed) and len(tasks) > 1 and times.value * len(tasks) <= _MOST_TASKS:
        return tasks * int(times.value)
    if len(tasks) > 1:
        notes.add("a sequence repeated often, or as often as the size says, does each of its tasks in one go")
    return tuple(_repeated(task, times) for task in tasks)


def _repeated(task: Task, times: Amount) -> Task:
    before = None if task.before is None else Derived("repeated", (task.before, times))
    return replace(task, amount=Derived("repeated", (task.amount, times)), before=before)


def _all(steps: tuple[TaskForm | Repeated, ...], filling: Filling) -> tuple[Task, ...]:
    return tuple([task for step in steps for task in step.tasks(filling)])


@dataclass(frozen=True, slots=True)
class PhaseForm:
    """A phase, or what is done once."""

    steps: tuple[TaskForm | Repeated, ...]
    times: Formula
    scheduling_point: bool = True
    request: Formula | None = None

    def phase(self, filling: Filling) -> Phase:
        """As a job has it; one that asks for fewer nodes than it may have, or for more, asks for those."""
        count = self.times.count(filling)
        within = Filling(filling.arguments, filling.sizes, filling.notes, max(1, count))
        request: Amount | None = None
        if self.request is not None:
            figures = (filling.sizes[0], filling.sizes[-1])
            request = Derived("clipped", (self.request.amount(within, -inf),), figures)
        return Phase(_all(self.steps, within), count, self.scheduling_point, request)

    def once(self, filling: Filling) -> tuple[Task, ...]:
        """All its tasks, as often as it says."""
        count = self.times.count(filling)
        return again(_all(self.steps, filling), Fixed(count), filling.notes)


@dataclass(frozen=True, slots=True)
class ApplicationForm:
    """A whole model. ``names`` are all that its formulas use."""

    phases: tuple[PhaseForm, ...]
    on_start: tuple[PhaseForm, ...]
    on_resize: tuple[PhaseForm, ...]
    on_expansion: tuple[PhaseForm, ...]
    names: frozenset[str]

    def application(self, filling: Filling) -> Application:
        """What a job with these arguments does."""
        once = [
            tuple([task for phase in one for task in phase.once(filling)])
            for one in (self.on_start, self.on_resize, self.on_expansion)
        ]
        phases = [phase.phase(filling) for phase in self.phases]
        phases = [phase for phase in phases if phase.iterations]
        if phases and phases[0].request is not None:  # a job that has just started asks for nothing
            phases[0] = replace(phases[0], asks_at_once=False)
        return Application(tuple(phases), *once)
