"""What a job does, phase by phase, when a single runtime does not say enough.

An application runs its ``on_start`` tasks once, then each phase in turn, as often as the phase's
``iterations`` say. Before each iteration but the very first there is a scheduling point (unless the phase
has none): there, and only there, the job can change size. After a resize it runs ``on_resize``, and if it
grew ``on_expansion`` as well. Amounts are evaluated anew for each size, by formulas and named arguments:
small frozen objects that can be called, compared and pickled, so that workloads can go to other processes.
"""

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from math import inf
from types import CodeType
from typing import Any, Literal, get_args

from dask_hpc.model.errors import InputError, shown, within
from dask_hpc.model.safe_yaml import nearest
from dask_hpc.model.speedup import IoDemand
from dask_hpc.simulator.platform import Platform

TaskKind = Literal["compute", "communicate", "read", "write", "idle"]
TASK_KINDS: tuple[TaskKind, ...] = get_args(TaskKind)
#: how often a phase may be repeated
MOST_ITERATIONS = 10**7

#: nodes -> amount
Amount = Callable[[int], float]


@dataclass(frozen=True, slots=True)
class Task:
    """One step of a phase; the next begins when it has ended on all nodes.

    ``amount(nodes)`` is what *each* node does: operations for compute, bytes for communicate (over its
    link), bytes for read and write (through the shared file system), seconds for idle.
    ``nodes(nodes)`` is how many of the job's nodes take part in reading and writing (all, or one).
    """

    kind: TaskKind
    amount: Amount
    root_only: bool = False


@dataclass(frozen=True, slots=True)
class Phase:
    """Tasks in sequence, repeated. ``request`` is the size an evolving job asks for before it."""

    tasks: tuple[Task, ...]
    iterations: int = 1
    scheduling_point: bool = True
    request: Callable[[int], float] | None = None


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
    operations = data = 0.0
    for task, times in _all_tasks(application):
        amount = task.amount(nodes) * times
        if task.kind in ("read", "write"):
            data += amount * (1 if task.root_only else nodes)
        else:
            operations += amount / rate(task.kind, platform) * platform.speed * nodes
    if not (operations < inf and data < inf):
        return None
    return platform.io_demand(operations, data)


def sent_bytes(application: Application, nodes: int) -> float:
    """What each node sends to others of its job in the whole run."""
    tasks = ((task, times) for task, times in _all_tasks(application) if task.kind == "communicate")
    return sum(task.amount(nodes) * times for task, times in tasks)


def quiet_runtime(application: Application, platform: Platform, nodes: int) -> float:
    """Seconds on ``nodes`` nodes when nobody else uses the file system."""
    seconds = 0.0
    for task, times in _all_tasks(application):
        amount = task.amount(nodes) * times
        if task.kind in ("read", "write"):
            busy = 1 if task.root_only else nodes
            seconds += amount / platform.file_system_rate(busy)
        else:
            seconds += amount / rate(task.kind, platform)
    return seconds


def _all_tasks(application: Application) -> list[tuple[Task, int]]:
    tasks = [(task, 1) for task in application.on_start]
    return tasks + [(task, phase.iterations) for phase in application.phases for task in phase.tasks]


def rate(kind: TaskKind, platform: Platform) -> float:
    """What a node does of it in a second, but for reading and writing."""
    return {"compute": platform.speed, "communicate": platform.way, "idle": 1.0}[kind]


#: characters; what is longer is no formula
LONGEST = 2000
#: parentheses within parentheses, powers of powers
DEEPEST = 40

#: of one real number each, but for the least and the most of several
FUNCTIONS: Mapping[str, Callable[..., float]] = {
    "abs": math.fabs,
    "ceil": lambda x: float(math.ceil(x)),
    "exp": math.exp,
    "floor": lambda x: float(math.floor(x)),
    "log": math.log,
    "log10": math.log10,
    "log2": math.log2,
    "max": lambda *values: max(values),
    "min": lambda *values: min(values),
    "sqrt": math.sqrt,
}
_OF_SEVERAL = ("max", "min")
_OPERATORS = {**{sign: sign for sign in ("+", "-", "*", "/", "%", "**")}, "^": "**"}
_KNOWN = {"__builtins__": {}, **FUNCTIONS}
_ALLOWED = "numbers, names, + - * / % ^, parentheses, " + ", ".join(FUNCTIONS)
_TOKEN = re.compile(
    r"[ \t\r\n]*(?:(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<sign>\*\*|[-+*/%^(),])|(?P<end>$))"
)


@dataclass(frozen=True, slots=True)
class Expression:
    """A formula that is known to be well formed. Call it with a value for each of its ``names``.

    ``units`` are words that may follow a number (``"10 GiB / nodes"``), in small letters, with what they
    stand for.
    """

    text: str
    units: tuple[tuple[str, float], ...] = ()
    names: frozenset[str] = field(init=False, compare=False)
    _code: CodeType = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        formula, names = _Translation(self.text, dict(self.units)).whole()
        object.__setattr__(self, "_code", compile(formula, "formula", "eval"))
        object.__setattr__(self, "names", names)

    @classmethod
    def parse(cls, text: object, units: Mapping[str, float] | None = None) -> "Expression":
        """From anything: an ``Expression``, or an ``InputError`` that says where and what is allowed."""
        if isinstance(text, bool) or not isinstance(text, str | int | float):
            raise InputError("", f"found {shown(text)}", "a number or a formula")
        if not isinstance(text, str):
            try:
                text = repr(float(text))
            except OverflowError:
                text = "inf"
            if text in ("inf", "-inf", "nan"):
                raise InputError("", f"found {text}", "a finite number or a formula")
        return cls(text, tuple((units or {}).items()))

    def __call__(self, /, **values: float) -> float:
        return self.at(values)

    def at(self, values: Mapping[str, float]) -> float:
        """The result for these values; an ``InputError`` if there is none that is finite."""
        try:
            # floats, of which no power is too large to compute
            known = {f"_{name}": float(values[name]) for name in sorted(self.names)}
            result: float = eval(self._code, _KNOWN, known)
            if math.isfinite(result):
                return result
            problem = "the result is not a finite number"
        except KeyError as error:
            problem = f"{error.args[0]} has no value{nearest(error.args[0], values)}"
        except ZeroDivisionError:
            problem = "division by zero"
        except OverflowError:
            problem = "the result is too large"
        except (TypeError, ValueError):  # a root of something negative, which is complex; log(0)
            problem = "there is no such real number"
        used = ", ".join(f"{name}={shown(values[name])}" for name in sorted(self.names & values.keys()))
        raise InputError(
            f"expression {shown(self.text)}", f"{problem}{f' with {used}' if used else ''}"
        ) from None

    def __reduce__(self) -> tuple[type["Expression"], tuple[Any, ...]]:
        return Expression, (self.text, self.units)


class _Translation:
    """From a formula to Python, which has the same operators and precedence.

    What Python must not see is refused here: names get a ``_``, numbers become floats, a row of signs is one.
    """

    def __init__(self, text: str, units: Mapping[str, float]) -> None:
        if len(text) > LONGEST:
            raise InputError("expression", f"{len(text):,} characters", f"at most {LONGEST:,}")
        self._text, self._units = text, units
        self._names: set[str] = set()
        self._depth = self._end = 0
        self._token = ""
        self._next()

    def whole(self) -> tuple[str, frozenset[str]]:
        """The formula in Python, and the names in it."""
        formula = self._formula()
        if self._kind != "end":
            raise self._complaint("an operator")
        return formula, frozenset(self._names)

    def _next(self) -> str:
        """On to the next token; answers the last one."""
        last = self._token
        match = _TOKEN.match(self._text, self._end)
        if match is None:
            self._token = self._text[self._end :].lstrip()[:1]
            self._kind, self._start = "", self._text.index(self._token, self._end)
            raise self._complaint(_ALLOWED)
        self._kind = str(match.lastgroup)
        self._token, self._start, self._end = match[self._kind], match.start(self._kind), match.end()
        return last

    def _complaint(self, allowed: str) -> InputError:
        found = "it ends here" if self._kind == "end" else f"found {shown(self._token)}"
        return InputError(f"expression {shown(self._text)}, character {self._start + 1}", found, allowed)

    def _formula(self) -> str:
        """Values with operators between them."""
        self._depth += 1
        words, powers = [self._value()], 0
        while self._token in _OPERATORS:
            powers = powers + 1 if _OPERATORS[self._token] == "**" else 0
            self._check_depth(powers)
            words += [_OPERATORS[self._next()], self._value()]
        self._depth -= 1
        return "".join(words)

    def _check_depth(self, powers: int = 0) -> None:
        if self._depth + powers > DEEPEST:
            raise self._complaint(f"at most {DEEPEST} levels of nesting")

    def _value(self) -> str:
        sign = ""
        while self._token in ("+", "-"):
            if self._next() == "-":
                sign = "" if sign else "-"
        if self._kind == "number":
            return sign + self._number()
        function = ""
        if self._kind == "name":
            name, start = self._next(), self._start
            if self._token != "(":
                self._names.add(name)
                return f"{sign}_{name}"
            function = name
            if name not in FUNCTIONS:
                where = f"expression {shown(self._text)}, character {start - len(name) + 1}"
                found = f"unknown function {shown(name)}{nearest(name, FUNCTIONS)}"
                raise InputError(where, found, ", ".join(FUNCTIONS))
        if self._token != "(":
            raise self._complaint("a number, a name or a parenthesis")
        self._check_depth(1)
        self._next()
        inside = [self._formula()]
        while self._token == "," and function in _OF_SEVERAL:
            self._next()
            inside.append(self._formula())
        if self._token != ")":
            raise self._complaint("')'")
        self._next()
        return f"{sign}{function}({','.join(inside)})"

    def _number(self) -> str:
        number = float(self._token)
        if number == inf:
            raise self._complaint("a finite number")
        self._next()
        if self._kind == "name" and self._units:
            if self._token.lower() not in self._units:
                raise self._complaint(f"an operator, or a unit: {', '.join(self._units)}")
            number *= self._units[self._next().lower()]
        return repr(number)


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
class BySize:
    """An expression in the number of nodes, evaluated once per size."""

    expression: Expression
    size: str
    constants: tuple[tuple[str, float], ...] = ()
    #: arguments that themselves depend on the size, each after those it needs
    varying: tuple[tuple[str, Expression], ...] = ()
    _known: dict[int, float] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __call__(self, nodes: int) -> float:
        if nodes not in self._known:
            values: dict[str, float] = {**dict(self.constants), self.size: nodes}
            for name, expression in self.varying:
                values[name] = expression.at(values)
            self._known[nodes] = self.expression.at(values)
        return self._known[nodes]


#: named arguments of one job
_MOST = 1000


class Arguments:
    """Named numbers and expressions that may use each other and ``size``, the number of nodes."""

    def __init__(self, found: Mapping[str, Expression], size: str) -> None:
        self.size = size
        if len(found) > _MOST:
            raise InputError("", f"{len(found):,} arguments", f"at most {_MOST:,}")
        if size in found:
            raise InputError(size, "is the number of nodes and cannot be defined", "another name")
        for name, expression in found.items():
            _check(expression, {*found, size}, name)
        self._constants: dict[str, float] = {}
        self._varying: dict[str, Expression] = {}
        self._needs: dict[str, frozenset[str]] = {}
        for name in _in_order(found):
            self._needs[name] = self._needed_by(found[name])
            if size in self._needs[name]:
                self._varying[name] = found[name]
            else:
                with within(name):
                    self._constants[name] = found[name].at(self._constants)

    def _needed_by(self, expression: Expression) -> frozenset[str]:
        """All names that it uses, by way of other arguments too."""
        return expression.names.union(*(self._needs.get(name, ()) for name in expression.names))

    def bind(self, expression: Expression, *, sizes: bool = True) -> Amount:
        """The expression with these arguments; without ``sizes`` it must not depend on the nodes."""
        _check(expression, {*self._needs, self.size} if sizes else self._constants, "")
        needs = self._needed_by(expression)
        if self.size not in needs:
            return Fixed(expression.at(self._constants))
        constants = tuple((name, value) for name, value in self._constants.items() if name in needs)
        varying = tuple((name, other) for name, other in self._varying.items() if name in needs)
        return BySize(expression, self.size, constants, varying)

    def amount(
        self, value: object, sizes: Iterable[int], units: Mapping[str, float] | None = None, least: float = 0
    ) -> Amount:
        """A number, a quantity or a formula, which is at least so much on all these sizes."""
        amount = self.bind(Expression.parse(value, units))
        for size in sizes:
            if amount(size) < least:
                raise InputError("", f"found {amount(size):g} on {size} nodes", f"{least:g} or more")
        return amount


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
