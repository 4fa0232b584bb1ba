"""Formulas as people write them in workloads, and as ElastiSim has them.

Arithmetic is Python's, with ``^`` for powers. A comparison is 1 or 0, and what is not 0 is true. ElastiSim's
formulas are those of ExprTk, of which this is the part that amounts are made of: numbers, names, arithmetic,
comparisons, ``and``, ``or`` and ``not``, a choice as ``a ? b : c`` or ``if(a, b, c)``, and some functions.
``&&``, ``||`` and ``!`` are ours, for those who know them from elsewhere.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf
from types import CodeType
from typing import Any

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.safe_yaml import nearest

#: characters; what is longer is no formula
LONGEST = 2000
#: parentheses within parentheses, powers of powers, choices within choices
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
#: what looks like a function and is not one: how many formulas are inside
_FORMS = {"if": 3, "not": 1}
_CALLED = ", ".join((*FUNCTIONS, *_FORMS))
_OPERATORS = {**{sign: sign for sign in ("+", "-", "*", "/", "%", "**")}, "^": "**"}
_EITHER, _BOTH = ("||", "or"), ("&&", "and")
_COMPARISONS = {"<": "<", "<=": "<=", ">": ">", ">=": ">=", "==": "==", "!=": "!=", "<>": "!="}


def _real(value: float) -> float:
    """A power can be complex: then this is a ``TypeError``, also where Python would compare it."""
    return float(value)


#: names that formulas have begin with ``_`` in Python, these do not
_KNOWN = {"__builtins__": {}, **FUNCTIONS, "real": _real}
_ALLOWED = f"numbers, names, + - * / % ^, comparisons, and, or, ?:, parentheses, {_CALLED}"
_TOKEN = re.compile(
    r"[ \t\r\n]*(?:(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<sign>\*\*|&&|\|\||[=!<>]=|<>|[-+*/%^(),?:<>!])|(?P<end>$))"
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
    #: the result, of one that was read from a number
    number: float | None = field(init=False, compare=False, repr=False)
    _code: CodeType | None = field(init=False, compare=False, repr=False)
    #: whether it is a name and nothing else
    _is_name: bool = field(init=False, compare=False, repr=False)
    #: each name, and what it is called in the code
    _locals: tuple[tuple[str, str], ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        formula, names = _Translation(self.text, dict(self.units)).whole()
        self._known(names, compile(formula, "formula", "eval"), None)

    def _known(self, names: frozenset[str], code: CodeType | None, value: float | None) -> None:
        for name, found in (("names", names), ("_code", code), ("number", value)):
            object.__setattr__(self, name, found)
        object.__setattr__(self, "_is_name", names == {self.text})
        object.__setattr__(self, "_locals", tuple((name, f"_{name}") for name in sorted(names)))

    @classmethod
    def parse(cls, text: object, units: Mapping[str, float] | None = None) -> "Expression":
        """From anything: an ``Expression``, or an ``InputError`` that says where and what is allowed.

        Whoever reads many jobs asks for the same formulas again and again: each is translated once.
        """
        if isinstance(text, str):
            return _parsed(text, tuple((units or {}).items()))
        if isinstance(text, bool) or not isinstance(text, int | float):
            raise InputError("", f"found {shown(text)}", "a number or a formula")
        try:
            value = float(text)
        except OverflowError:
            value = inf
        if not math.isfinite(value):
            raise InputError("", f"found {value}", "a finite number or a formula")
        number = object.__new__(cls)
        object.__setattr__(number, "text", repr(value))
        object.__setattr__(number, "units", tuple((units or {}).items()))
        number._known(frozenset(), None, value)
        return number

    def __call__(self, /, **values: float) -> float:
        return self.at(values)

    def at(self, values: Mapping[str, float]) -> float:
        """The result for these values; an ``InputError`` if there is none that is finite."""
        if self.number is not None:
            return self.number
        assert self._code is not None
        try:
            # floats, of which no power is too large to compute
            if self._is_name:
                result = float(values[self.text])
            else:
                known = {local: float(values[name]) for name, local in self._locals}
                result = eval(self._code, _KNOWN, known)
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


@lru_cache(maxsize=4096)
def _parsed(text: str, units: tuple[tuple[str, float], ...]) -> Expression:
    return Expression(text, units)


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

    def _expect(self, sign: str) -> None:
        if self._token != sign:
            raise self._complaint(f"'{sign}'")
        self._next()

    def _complaint(self, allowed: str) -> InputError:
        found = "it ends here" if self._kind == "end" else f"found {shown(self._token)}"
        return InputError(f"expression {shown(self._text)}, character {self._start + 1}", found, allowed)

    def _formula(self) -> str:
        """A choice, or what one can be made of."""
        self._depth += 1
        formula = self._logic()
        if self._token == "?":
            self._check_depth()
            self._next()
            yes = self._formula()
            self._expect(":")
            formula = _choice(formula, yes, self._formula())
        self._depth -= 1
        return formula

    def _logic(self) -> str:
        """One or the other, each of which may be several at once: the first that decides is the last."""
        ways = [self._together()]
        while self._token in _EITHER:
            self._next()
            ways.append(self._together())
        return ways[0] if len(ways) == 1 else _truth(" or ".join(f"real({way})!=0.0" for way in ways))

    def _together(self) -> str:
        parts = [self._comparison()]
        while self._token in _BOTH:
            self._next()
            parts.append(self._comparison())
        return parts[0] if len(parts) == 1 else _truth(" and ".join(f"real({part})!=0.0" for part in parts))

    def _comparison(self) -> str:
        """From the left: ``3 > 2 > 1`` is whether 1 is more than 1."""
        left, chain = self._sum(), 0
        while self._token in _COMPARISONS:
            chain += 1
            self._check_depth(chain)
            sign = _COMPARISONS[self._next()]
            left = _truth(f"real({left}){sign}real({self._sum()})")
        return left

    def _sum(self) -> str:
        """Values with operators between them."""
        words, powers = [self._value()], 0
        while self._token in _OPERATORS:
            powers = powers + 1 if _OPERATORS[self._token] == "**" else 0
            self._check_depth(powers)
            words += [_OPERATORS[self._next()], self._value()]
        return "".join(words)

    def _check_depth(self, more: int = 0) -> None:
        if self._depth + more > DEEPEST:
            raise self._complaint(f"at most {DEEPEST} levels of nesting")

    def _value(self) -> str:
        sign = ""
        while self._token in ("+", "-"):
            if self._next() == "-":
                sign = "" if sign else "-"
        if self._token == "!":
            self._depth += 1
            self._check_depth()
            self._next()
            value = _truth(f"real({self._value()})==0.0")
            self._depth -= 1
            return sign + value
        if self._kind == "number":
            return sign + self._number()
        function = ""
        if self._kind == "name":
            name, start = self._next(), self._start
            if self._token != "(":
                self._names.add(name)
                return f"{sign}_{name}"
            function = name
            if name not in FUNCTIONS and name not in _FORMS:
                where = f"expression {shown(self._text)}, character {start - len(name) + 1}"
                found = f"unknown function {shown(name)}{nearest(name, (*FUNCTIONS, *_FORMS))}"
                raise InputError(where, found, _CALLED)
        if self._token != "(":
            raise self._complaint("a number, a name or a parenthesis")
        self._check_depth(1)
        self._next()
        return sign + self._called(function, self._inside(function))

    def _inside(self, function: str) -> list[str]:
        """Of the parentheses that are open: as many formulas as the function takes."""
        inside = [self._formula()]
        while len(inside) < _FORMS.get(function, 1) or (function in _OF_SEVERAL and self._token == ","):
            self._expect(",")
            inside.append(self._formula())
        self._expect(")")
        return inside

    def _called(self, function: str, inside: list[str]) -> str:
        if function == "if":
            return _choice(*inside)
        if function == "not":
            return _truth(f"real({inside[0]})==0.0")
        return f"{function}({','.join(inside)})"

    def _number(self) -> str:
        number = float(self._token)
        if number == inf:
            raise self._complaint("a finite number")
        self._next()
        if self._kind == "name" and self._units and self._token not in (*_EITHER, *_BOTH):
            if self._token.lower() not in self._units:
                raise self._complaint(f"an operator, or a unit: {', '.join(self._units)}")
            number *= self._units[self._next().lower()]
        return repr(number)


def _truth(condition: str) -> str:
    return f"(1.0 if {condition} else 0.0)"


def _choice(condition: str, yes: str, no: str) -> str:
    """Only the one that is chosen is computed."""
    return f"({yes} if real({condition})!=0.0 else {no})"
