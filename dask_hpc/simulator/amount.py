"""Amounts that depend on the number of nodes, and the named arguments they are written with.

Everything here is a small frozen object that can be called, compared and pickled, so that workloads can
be sent to other processes.
"""

import math
import operator
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any, NoReturn

from dask_hpc.model.errors import InputError, shown, within
from dask_hpc.model.safe_yaml import nearest
from dask_hpc.simulator.application import Amount

#: characters; what is longer is no formula
LONGEST = 2000
#: parentheses within parentheses, powers of powers
DEEPEST = 40

#: values by name -> result
_Run = Callable[[Mapping[str, float]], float]

#: name -> (function of floats, fewest arguments, most arguments)
FUNCTIONS: Mapping[str, tuple[Callable[..., float], int, float]] = {
    "abs": (abs, 1, 1),
    "ceil": (lambda x: float(math.ceil(x)), 1, 1),
    "exp": (math.exp, 1, 1),
    "floor": (lambda x: float(math.floor(x)), 1, 1),
    "log": (math.log, 1, 1),
    "log10": (math.log10, 1, 1),
    "log2": (math.log2, 1, 1),
    "max": (lambda *values: max(values), 1, math.inf),
    "min": (lambda *values: min(values), 1, math.inf),
    "sqrt": (math.sqrt, 1, 1),
}
_OPERATORS: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": operator.mod,
}
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
    _run: _Run = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        run, names = _Parser(self.text, dict(self.units)).whole()
        object.__setattr__(self, "_run", run)
        object.__setattr__(self, "names", names)

    @classmethod
    def parse(cls, text: object, units: Mapping[str, float] | None = None) -> "Expression":
        """From anything: an ``Expression``, or an ``InputError`` that says where and what is allowed."""
        if isinstance(text, bool) or not isinstance(text, str | int | float):
            raise InputError("", f"found {shown(text)}", "a number or a formula")
        if not isinstance(text, str):
            text = _plain(text)
        return cls(text, tuple((units or {}).items()))

    def __call__(self, /, **values: float) -> float:
        return self.at(values)

    def at(self, values: Mapping[str, float]) -> float:
        """The result for these values; an ``InputError`` if there is none that is finite."""
        try:
            result = self._run(values)
            if math.isfinite(result):
                return result
            problem = "the result is not a finite number"
        except KeyError as error:
            problem = f"{error.args[0]} has no value{nearest(error.args[0], values)}"
        except ZeroDivisionError:
            problem = "division by zero"
        except OverflowError:
            problem = "the result is too large"
        except (TypeError, ValueError):  # a root of something negative, the logarithm of nothing
            problem = "there is no such real number"
        used = ", ".join(f"{name}={shown(values[name])}" for name in sorted(self.names & values.keys()))
        raise InputError(
            f"expression {shown(self.text)}", f"{problem}{f' with {used}' if used else ''}"
        ) from None

    def __reduce__(self) -> tuple[type["Expression"], tuple[Any, ...]]:
        return Expression, (self.text, self.units)


def _plain(number: float) -> str:
    try:
        value = float(number)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise InputError("", f"found {shown(number)}", "a finite number or a formula")
    return repr(value)


class _Parser:
    """One left-to-right pass: each method reads one level of precedence and answers how to compute it.

    Chains of one level become one loop, not a tower of calls, so evaluation is as deep as the formula
    is nested and no deeper.
    """

    def __init__(self, text: str, units: Mapping[str, float]) -> None:
        self._text = text
        self._units = units
        self._names: set[str] = set()
        self._depth = 0
        if len(text) > LONGEST:
            raise InputError("expression", f"{len(text):,} characters", f"at most {LONGEST:,}")
        self._end = 0
        self._next()

    def whole(self) -> tuple[_Run, frozenset[str]]:
        run = self._sum()
        if self._kind != "end":
            self._complain("an operator")
        return run, frozenset(self._names)

    def _next(self) -> None:
        match = _TOKEN.match(self._text, self._end)
        if match is None or match.lastgroup is None:
            rest = self._text[self._end :].lstrip()
            at = len(self._text) - len(rest)
            raise InputError(
                f"expression {shown(self._text)}, character {at + 1}", f"found {shown(rest[:1])}", _ALLOWED
            )
        self._kind = match.lastgroup
        self._token = match[self._kind]
        self._start, self._end = match.start(self._kind), match.end()

    def _complain(self, allowed: str) -> NoReturn:
        found = f"found {shown(self._token)}" if self._kind != "end" else "it ends here"
        raise InputError(f"expression {shown(self._text)}, character {self._start + 1}", found, allowed)

    def _take(self, sign: str) -> None:
        if self._kind != "sign" or self._token != sign:
            self._complain(shown(sign))
        self._next()

    def _chain(self, signs: tuple[str, ...], operand: Callable[[], _Run]) -> _Run:
        first = operand()
        rest: list[tuple[Callable[[float, float], float], _Run]] = []
        while self._kind == "sign" and self._token in signs:
            apply = _OPERATORS[self._token]
            self._next()
            rest.append((apply, operand()))
        if not rest:
            return first
        if len(rest) == 1:
            apply, second = rest[0]
            return lambda values: apply(first(values), second(values))
        links = tuple(rest)

        def run(values: Mapping[str, float]) -> float:
            result = first(values)
            for apply, other in links:
                result = apply(result, other(values))
            return result

        return run

    def _sum(self) -> _Run:
        self._depth += 1
        if self._depth > DEEPEST:
            self._complain(f"at most {DEEPEST} levels of nesting")
        run = self._chain(("+", "-"), lambda: self._chain(("*", "/", "%"), self._signed))
        self._depth -= 1
        return run

    def _signed(self) -> _Run:
        negative = False
        while self._kind == "sign" and self._token in ("-", "+"):
            negative ^= self._token == "-"
            self._next()
        run = self._power()
        return (lambda values: -run(values)) if negative else run

    def _power(self) -> _Run:
        base = self._atom()
        if self._kind != "sign" or self._token not in ("^", "**"):
            return base
        self._next()
        self._depth += 1
        if self._depth > DEEPEST:
            self._complain(f"at most {DEEPEST} levels of nesting")
        exponent = self._signed()
        self._depth -= 1
        return lambda values: _real(base(values) ** exponent(values))

    def _atom(self) -> _Run:
        if self._kind == "number":
            return self._number()
        if self._kind == "name":
            name = self._token
            self._next()
            if self._kind == "sign" and self._token == "(":
                return self._call(name)
            self._names.add(name)
            return lambda values: float(values[name])
        if self._kind == "sign" and self._token == "(":
            self._next()
            run = self._sum()
            self._take(")")
            return run
        self._complain("a number, a name or a parenthesis")

    def _number(self) -> _Run:
        number = float(self._token)
        if number == math.inf:
            self._complain("a finite number")
        self._next()
        if self._kind == "name" and self._units:
            if self._token.lower() not in self._units:
                self._complain(f"an operator, or a unit: {', '.join(self._units)}")
            number *= self._units[self._token.lower()]
            self._next()
        return lambda values: number

    def _call(self, name: str) -> _Run:
        if name not in FUNCTIONS:
            where = f"expression {shown(self._text)}, character {self._start - len(name) + 1}"
            raise InputError(
                where,
                f"unknown function {shown(name)}{nearest(name, FUNCTIONS)}",
                ", ".join(FUNCTIONS),
            )
        function, fewest, most = FUNCTIONS[name]
        self._next()
        arguments = [self._sum()]
        while self._kind == "sign" and self._token == "," and len(arguments) < most:
            self._next()
            arguments.append(self._sum())
        self._take(")")
        if len(arguments) < fewest:
            self._complain(f"{fewest} arguments of {name}")
        if len(arguments) == 1:
            only = arguments[0]
            return lambda values: function(only(values))
        several = tuple(arguments)
        return lambda values: function(*[argument(values) for argument in several])


def _real(number: Any) -> float:
    if isinstance(number, complex):  # a root of something negative
        raise ValueError
    return float(number)


#: named arguments of one job
_MOST = 1000


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
        known = self._known.get(nodes)
        if known is not None:
            return known
        values: dict[str, float] = {**dict(self.constants), self.size: nodes}
        for name, expression in self.varying:
            values[name] = expression.at(values)
        result = self._known[nodes] = self.expression.at(values)
        return result


class Arguments:
    """Named numbers and expressions that may use each other and ``size``, the number of nodes."""

    __slots__ = ("_constants", "_needs", "_varying", "size")

    def __init__(self, found: Mapping[str, Expression], size: str) -> None:
        self.size = size
        if len(found) > _MOST:
            raise InputError("", f"{len(found):,} arguments", f"at most {_MOST:,}")
        if size in found:
            raise InputError(size, "is the number of nodes and cannot be defined", "another name")
        for name, expression in found.items():
            self._check(expression, {*found, size}, name)
        self._constants: dict[str, float] = {}
        self._varying: dict[str, Expression] = {}
        self._needs: dict[str, frozenset[str]] = {}
        for name in _in_order(found):
            expression = found[name]
            needs = frozenset().union(expression.names, *(self._needs.get(n, ()) for n in expression.names))
            self._needs[name] = needs
            if size in needs:
                self._varying[name] = expression
            else:
                self._constants[name] = _about(name, expression, self._constants)

    def bind(self, expression: Expression, *, sizes: bool = True) -> Amount:
        """The expression with these arguments; without ``sizes`` it must not depend on the nodes."""
        known = {*self._needs, self.size} if sizes else set(self._constants)
        self._check(expression, known, "")
        needs = frozenset().union(expression.names, *(self._needs.get(n, ()) for n in expression.names))
        if self.size not in needs:
            return Fixed(expression.at(self._constants))
        constants = tuple((name, value) for name, value in self._constants.items() if name in needs)
        varying = tuple((name, other) for name, other in self._varying.items() if name in needs)
        return BySize(expression, self.size, constants, varying)

    def _check(self, expression: Expression, known: Collection[str], where: str) -> None:
        for name in sorted(expression.names):
            if name not in known:
                raise InputError(
                    where,
                    f"unknown name {shown(name)} in {shown(expression.text)}{nearest(name, known)}",
                    ", ".join(sorted(known)) or "numbers only",
                )


def _about(name: str, expression: Expression, values: Mapping[str, float]) -> float:
    with within(name):
        return expression.at(values)


def _in_order(found: Mapping[str, Expression]) -> Iterable[str]:
    """Each name after those it needs; a definition that needs itself is named."""
    needs = {name: sorted(expression.names & found.keys()) for name, expression in found.items()}
    try:
        return tuple(TopologicalSorter(needs).static_order())
    except CycleError as error:
        names = error.args[1][::-1]
        raise InputError(names[0], f"is defined by itself: {' -> '.join(names)}", "no circles") from None
