"""Declared parameters: the fields of a strategy, with unit, bounds and one line of help.

From this one declaration come the checks of policy files, ``--set``, the CLI's listing and the widgets'
sliders.
"""

import dataclasses
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from math import inf, isinf
from typing import Any, Literal, get_args, get_origin, get_type_hints

from dask_hpc.model.errors import InputError, insist, shown
from dask_hpc.model.power import Corridor
from dask_hpc.model.units import UNITS, parse_quantity, write_quantity

_LONGEST = 4096  # characters of a text


@dataclass(frozen=True, slots=True)
class Parameter:
    """Put into ``Annotated[type, Parameter(...)]`` on a strategy's field.

    ``unit`` is "s", "B" or "W" for quantities written with a unit, or any other word (or nothing)
    for plain numbers. Bounds are inclusive. ``none`` is what the word "none" stands for, if anything.
    A field of type ``Corridor | None`` is a schedule, one of type ``str`` any text in a line.
    """

    help: str
    unit: str = ""
    low: float = -inf
    high: float = inf
    none: float | str | None = None


@dataclass(frozen=True, slots=True)
class Declared:
    """One parameter as a strategy declares it."""

    name: str
    type: type
    choices: tuple[str, ...]
    default: Any
    parameter: Parameter

    @property
    def bounds(self) -> str:
        """What is allowed, for a person."""
        if self.choices:
            return ", ".join(self.choices)
        text = "text" if self.parameter.none is None else "none, or text"
        schedule = "none, or a list of {at: TIME, lower: POWER, upper: POWER}"
        if self.type in (words := {bool: "true, false", str: text, Corridor: schedule}):
            return words[self.type]
        low, high = self.parameter.low, self.parameter.high
        if high == inf:
            return "any number" if low == -inf else f"{self.write(low)} or more"
        return f"at most {self.write(high)}" if low == -inf else f"{self.write(low)} to {self.write(high)}"

    def read(self, value: object) -> Any:
        """The typed value of what a person wrote, or an ``InputError``."""
        if self.choices:
            insist(isinstance(value, str) and value in self.choices, "", value, self.bounds)
            return value
        if self.parameter.none is not None and isinstance(value, str) and value.lower() == "none":
            return self.parameter.none
        if self.type is Corridor:
            return _schedule(value)
        if self.type is str:
            fine = isinstance(value, str) and value.isprintable() and len(value) <= _LONGEST
            insist(fine, "", value, self.bounds)
            return value
        if self.type is bool:
            if isinstance(value, str) and value.lower() in ("true", "false", "yes", "no"):
                return value.lower() in ("true", "yes")
            insist(isinstance(value, bool), "", value, self.bounds)
            return value
        number = self._number(value)
        # not-a-number fails this, too
        insist(self.parameter.low <= number <= self.parameter.high, "", value, self.bounds)
        return number

    def _number(self, value: object) -> Any:
        if self.parameter.unit in UNITS:
            return parse_quantity(value, self.parameter.unit)
        if isinstance(value, str):
            with suppress(ValueError):
                value = self.type(value)
        whole = self.type is int
        fine = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        insist(fine, "", value, ("whole, " if whole else "") + self.bounds)
        with suppress(OverflowError):
            return self.type(value)
        raise InputError("", f"found {shown(value)}", self.bounds)

    def write(self, value: Any) -> Any:
        """The value as a policy file says it; ``read`` gives it back exactly."""
        if self.type is Corridor:
            return "none" if value is None else value.written()
        if self.type is str and value == self.parameter.none:
            return "none"
        if self.parameter.unit in UNITS:
            return write_quantity(float(value), self.parameter.unit)
        return value

    def show(self, value: Any) -> Any:
        """The value as a person says it."""
        return value.in_words() if isinstance(value, Corridor) else self.write(value)

    @property
    def kind(self) -> str:
        """What one would set it with: a choice, switch, schedule, text, whole number, number or quantity."""
        if self.choices:
            return "choice"
        kinds = {bool: "switch", Corridor: "schedule", str: "text", int: "whole number"}
        return kinds.get(self.type, "quantity" if self.parameter.unit in UNITS else "number")

    def described(self, value: Any) -> dict[str, Any]:
        """The declaration, and a value of it, as plain data."""
        low, high = (None if isinf(bound) else bound for bound in (self.parameter.low, self.parameter.high))
        return {
            "value": _finite(self.write(value)),
            "unit": self.parameter.unit,
            "low": low,
            "high": high,
            "choices": list(self.choices),
            "allowed": self.bounds,
            "default": _finite(self.write(self.default)),
            "help": self.parameter.help,
        }


def _finite(value: Any) -> Any:
    return str(value) if isinstance(value, float) and isinf(value) else value  # JSON knows no infinity


def _schedule(value: object) -> Corridor | None:
    if value is None or (isinstance(value, str) and value.strip().lower() == "none"):
        return None
    return Corridor.parse(value) if isinstance(value, str) else Corridor.read(value)


@cache
def declared(strategy: Any) -> tuple[Declared, ...]:
    """The parameters a strategy class declares, in order."""
    hints = get_type_hints(strategy, include_extras=True)
    found = []
    for field in dataclasses.fields(strategy):
        kind, *notes = get_args(hints[field.name])
        parameter = next(note for note in notes if isinstance(note, Parameter))
        choices = get_args(kind) if get_origin(kind) is Literal else ()
        kind = str if choices else Corridor if Corridor in get_args(kind) else kind
        default = None if field.default is dataclasses.MISSING else field.default
        found.append(Declared(field.name, kind, choices, default, parameter))
    return tuple(found)
