"""What a job does, phase by phase, when a single runtime does not say enough.

An application runs its ``on_start`` tasks once, then each phase in turn, as often as the phase's
``iterations`` say. Before each iteration but the very first there is a scheduling point (unless the phase
has none): there, and only there, the job can change size. After a resize it runs ``on_resize``, and if it
grew its new nodes run ``on_expansion``, as if they were all. Amounts are evaluated anew for each size, by
formulas and named arguments: small frozen objects that can be called, compared and pickled, so that workloads
can go to other processes.
An amount that depends on the iteration of its phase, too, says so: it ``varies``, and has a ``during``.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from itertools import repeat
from math import inf
from typing import Any, Literal, get_args

from dask_hpc.model.errors import InputError, shown, within
from dask_hpc.model.safe_yaml import nearest
from dask_hpc.model.speedup import IoDemand
from dask_hpc.simulator.expression import Expression
from dask_hpc.simulator.platform import Platform

TaskKind = Literal["compute", "communicate", "read", "write", "idle"]
TASK_KINDS: tuple[TaskKind, ...] = get_args(TaskKind)
#: how often a phase may be repeated
MOST_ITERATIONS = 10**7
#: and if amounts of it are others in each iteration, which are all looked at beforehand
MOST_VARYING = 10**5

#: nodes -> amount
Amount = Callable[[int], float]


def varies(amount: Amount) -> bool:
    """Whether it depends on the iteration of its phase."""
    return getattr(amount, "varies", False)


def during(amount: Amount, iteration: int) -> Amount:
    """What it is in that iteration, from 0 on."""
    found: Any = amount
    return found.during(iteration) if varies(amount) else amount


@dataclass(frozen=True, slots=True)
class Task:
    """One step of a phase; the next begins when it has ended on all nodes.

    ``amount(nodes)`` is what *each* node does: operations for compute, bytes for communicate (over its
    link), bytes for read and write (through the shared file system), seconds for idle.
    ``busy(nodes)`` is how many of the job's nodes take part in reading and writing: all of them, or those
    whose numbers are a multiple of ``every``, or are not (``others``), or the first alone (``root_only``).
    ``before`` are seconds that pass before it communicates, reads or writes anything: a latency.
    """

    kind: TaskKind
    amount: Amount
    root_only: bool = False
    before: Amount | None = None
    every: int = 1
    others: bool = False

    def busy(self, nodes: int) -> int:
        """How many read or write; where nobody does, one does nothing."""
        if self.root_only:
            return 1
        multiples = -(-nodes // self.every)
        return max(1, nodes - multiples) if self.others else multiples

    def during(self, iteration: int) -> "Task":
        """As it is in that iteration of its phase."""
        if not varies(self.amount):
            return self
        before = None if self.before is None else during(self.before, iteration)
        return replace(self, amount=during(self.amount, iteration), before=before)

    def wait(self, nodes: int, amount: float) -> float:
        """Seconds that pass before it does so much; a transfer of nothing does not begin."""
        if self.before is None or not (amount or self.kind == "communicate"):
            return 0.0
        return self.before(nodes)


@dataclass(frozen=True, slots=True)
class Phase:
    """Tasks in sequence, repeated. ``request`` is the size an evolving job asks for before each iteration;
    before the first one only if it ``asks_at_once``."""

    tasks: tuple[Task, ...]
    iterations: int = 1
    scheduling_point: bool = True
    request: Amount | None = None
    asks_at_once: bool = True

    def rounds(self, first: int = 0) -> Iterator[tuple[tuple[Task, ...], Amount | None]]:
        """The tasks, and the request, of each iteration from that one on."""
        request = self.request
        if not (first or self.asks_at_once or request is None) and self.iterations:
            yield tuple(task.during(0) for task in self.tasks), None
            first = 1
        if not any(varies(task.amount) for task in self.tasks) and not (request and varies(request)):
            yield from repeat((self.tasks, request), self.iterations - first)
            return
        for number in range(first, self.iterations):
            tasks = tuple(task.during(number) for task in self.tasks)
            yield tasks, None if request is None else during(request, number)


@dataclass(frozen=True, slots=True)
class Application:
    """The whole job."""

    phases: tuple[Phase, ...]
    on_start: tuple[Task, ...] = ()
    on_resize: tuple[Task, ...] = ()
    on_expansion: tuple[Task, ...] = ()

    @property
    def reads(self) -> bool:
        """Whether it ever reads."""
        tasks = (*self.on_start, *self.on_resize, *self.on_expansion)
        return any(
            task.kind == "read" for task in (*tasks, *(t for phase in self.phases for t in phase.tasks))
        )


def io_demand(application: Application, platform: Platform, nodes: int) -> IoDemand | None:
    """Totals over the whole run on ``nodes`` nodes; None if they are beyond all numbers.

    Everything but reading and writing counts as computing, by the time it takes.
    """
    return measured(application, platform, nodes)[1]


def sent_bytes(application: Application, nodes: int) -> float:
    """What each node sends to others of its job in the whole run."""
    tasks = ((task, times) for task, times in _all_tasks(application) if task.kind == "communicate")
    return sum(task.amount(nodes) * times for task, times in tasks)


def quiet_runtime(application: Application, platform: Platform, nodes: int) -> float:
    """Seconds on ``nodes`` nodes when nobody else uses the file system."""
    return measured(application, platform, nodes)[0]


def measured(application: Application, platform: Platform, nodes: int) -> tuple[float, IoDemand | None]:
    """``quiet_runtime`` and ``io_demand`` at once."""
    seconds = operations = data = 0.0
    for task, times in _all_tasks(application):
        amount = task.amount(nodes) * times
        wait = task.wait(nodes, amount) * times
        if task.kind in ("read", "write"):
            busy = task.busy(nodes)
            data += amount * busy
            seconds += wait + amount / platform.file_system_rate(busy, task.kind == "read")
        else:
            took = wait + amount / rate(task.kind, platform)
            seconds += took
            operations += took * platform.speed * nodes
    fine = operations < inf and data < inf
    return seconds, platform.io_demand(operations, data) if fine else None


def _all_tasks(application: Application) -> Iterator[tuple[Task, int]]:
    """Each with how often it is done; those that vary one by one."""
    for task in application.on_start:
        yield task, 1
    for phase in application.phases:
        for task in phase.tasks:
            if varies(task.amount):
                for number in range(phase.iterations):
                    yield task.during(number), 1
            else:
                yield task, phase.iterations


def rate(kind: TaskKind, platform: Platform) -> float:
    """What a node does of it in a second, but for reading and writing."""
    if kind == "compute":
        return platform.speed
    return platform.way if kind == "communicate" else 1.0


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same amount on any number of nodes."""

    value: float

    def __call__(self, nodes: int) -> float:
        return self.value


@dataclass(frozen=True, slots=True)
class Split:
    """A total, shared evenly by the nodes."""

    total: float

    def __call__(self, nodes: int) -> float:
        return self.total / nodes


@dataclass(frozen=True, slots=True)
class BoundFormula:
    """A formula with the arguments it needs, all but the number of nodes and the iteration."""

    expression: Expression
    #: what the number of nodes is called, and the iteration, if it may be asked for
    size: str
    index: str | None = None
    constants: tuple[tuple[str, float], ...] = ()
    #: arguments that themselves depend on those two, each after those it needs
    varying: tuple[tuple[str, Expression], ...] = ()

    def at(self, nodes: int, iteration: int = 0) -> float:
        """Its result there."""
        values: dict[str, float] = dict(self.constants)
        values[self.size] = nodes
        if self.index is not None:
            values[self.index] = iteration
        for name, expression in self.varying:
            values[name] = expression.at(values)
        return self.expression.at(values)


@dataclass(frozen=True, slots=True)
class BySize:
    """A formula in the number of nodes, evaluated once per size."""

    formula: BoundFormula
    _known: dict[int, float] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __call__(self, nodes: int) -> float:
        if nodes not in self._known:
            self._known[nodes] = self.formula.at(nodes)
        return self._known[nodes]


@dataclass(frozen=True, slots=True)
class ByIteration:
    """A formula in the iteration of its phase, and perhaps in the number of nodes: what it is in this one."""

    formula: BoundFormula
    iteration: int = 0

    @property
    def varies(self) -> bool:
        return True

    def during(self, iteration: int) -> "ByIteration":
        """The same in another one."""
        return ByIteration(self.formula, iteration)

    def __call__(self, nodes: int) -> float:
        return self.formula.at(nodes, self.iteration)


#: named arguments of one job
_MOST = 1000


class Arguments:
    """Named numbers and expressions that may use each other, ``size``, the number of nodes, and ``index``,
    the iteration of the phase, unless an argument is called so."""

    def __init__(self, found: Mapping[str, float | Expression], size: str, index: str | None = None) -> None:
        self.size = size
        self.index = None if index in found else index
        if len(found) > _MOST:
            raise InputError("", f"{len(found):,} arguments", f"at most {_MOST:,}")
        if size in found:
            raise InputError(size, "is the number of nodes and cannot be defined", "another name")
        self._constants: dict[str, float] = {}
        self._varying: dict[str, Expression] = {}
        formulas: dict[str, Expression] = {}
        for name, value in found.items():
            if isinstance(value, Expression):
                formulas[name] = value
            else:
                self._constants[name] = value
        #: names that depend on the size or the iteration: all such names that they need
        self._needs: dict[str, frozenset[str]] = {}
        if formulas:
            self._settle(found, formulas)

    def _settle(self, found: Mapping[str, Any], formulas: Mapping[str, Expression]) -> None:
        given = {self.size} if self.index is None else {self.size, self.index}
        for name, expression in formulas.items():
            _check(expression, found.keys() | given, name)
        for name in _in_order(formulas):
            needs = self._needed_by(formulas[name])
            if needs:
                self._needs[name] = needs
                self._varying[name] = formulas[name]
            else:
                with within(name):
                    self._constants[name] = formulas[name].at(self._constants)

    def _needed_by(self, expression: Expression) -> frozenset[str]:
        """All names that it uses which are no constants, by way of other arguments too."""
        names = expression.names.difference(self._constants)
        return names.union(*(self._needs.get(name, ()) for name in names)) if names else names

    def bind(self, expression: Expression, *, sizes: bool = True, iterations: bool = False) -> Amount:
        """The expression with these arguments; without ``sizes`` it must not depend on the nodes, and only
        with ``iterations`` may it depend on the iteration."""
        needs = self._needed_by(expression)
        if not needs:
            return Fixed(expression.at(self._constants))
        by_size, by_index = self.size in needs, self.index is not None and self.index in needs
        if len(needs) > by_size + by_index or (by_size and not sizes) or (by_index and not iterations):
            self._check_bound(expression, sizes, iterations)
        varying: tuple[tuple[str, Expression], ...] = ()
        names = expression.names
        if len(needs) > by_size + by_index:
            varying = tuple((name, other) for name, other in self._varying.items() if name in needs)
            names = names.union(*(other.names for _, other in varying))
        constants = tuple([(name, value) for name, value in self._constants.items() if name in names])
        if by_index:
            return ByIteration(BoundFormula(expression, self.size, self.index, constants, varying))
        return BySize(BoundFormula(expression, self.size, None, constants, varying))

    def _check_bound(self, expression: Expression, sizes: bool, iterations: bool) -> None:
        """Complain about names that are unknown, or may not be used here."""
        given = [self.size] if sizes else []
        given += [self.index] if iterations and self.index is not None else []
        refused = {self.size, self.index}.difference(given)
        fine = [name for name, needs in self._needs.items() if needs.isdisjoint(refused)]
        _check(expression, {*self._constants, *fine, *given}, "")

    def amount(
        self, value: object, sizes: Iterable[int], units: Mapping[str, float] | None = None, least: float = 0
    ) -> Amount:
        """A number, a quantity or a formula, which is at least so much on all these sizes."""
        amount = self.bind(Expression.parse(value, units))
        insist_on_least(amount, sizes, least)
        return amount


def insist_on_least(amount: Amount, sizes: Iterable[int], least: float, iterations: int = 1) -> None:
    """Complain if it is less than that on one of these sizes, in any of so many iterations."""
    if isinstance(amount, Fixed) and amount.value >= least:
        return
    if not varies(amount):
        _insist(amount, sizes, least, "")
        return
    if iterations > MOST_VARYING:
        found = f"is another amount in each of {iterations:,} iterations of its phase"
        raise InputError("", found, f"at most {MOST_VARYING:,}")
    for number in range(iterations):
        _insist(during(amount, number), sizes, least, f" in iteration {number} of its phase")


def _insist(amount: Amount, sizes: Iterable[int], least: float, when: str) -> None:
    for size in sizes:
        found = amount(size)
        if found < least:
            raise InputError("", f"found {found:g} on {size} nodes{when}", f"{least:g} or more")


def _check(expression: Expression, known: Collection[str], where: str) -> None:
    for name in sorted(expression.names.difference(known)):
        found = f"unknown name {shown(name)} in {shown(expression.text)}{nearest(name, known)}"
        raise InputError(where, found, ", ".join(sorted(known)) or "numbers only")


def _in_order(found: Mapping[str, Expression]) -> Iterable[str]:
    """Each name after those it needs; a definition that needs itself is named."""
    needs = {name: sorted(expression.names & found.keys()) for name, expression in found.items()}
    try:
        return tuple(TopologicalSorter(needs).static_order())
    except CycleError as error:
        names = error.args[1][::-1]
        raise InputError(names[0], f"is defined by itself: {' -> '.join(names)}", "no circles") from None
