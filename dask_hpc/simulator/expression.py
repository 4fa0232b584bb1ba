"""Arithmetic as people write it into workload files: ``"flops / nodes^alpha"``.

A small recursive-descent parser; nothing is ever given to Python to run. Numbers, names, ``+ - * / % ^ **``,
a sign, parentheses and a few functions; ``^`` is power, as in ElastiSim. Precedence, associativity and
results are Python's for floats: ``-2^2`` is -4, ``2^3^2`` is 512, ``%`` has the sign of its divisor.
"""

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.safe_yaml import nearest

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
