"""The power corridor: a lower and an upper bound in watts, constant or scheduled over time."""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import inf, isfinite
from typing import Any

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.safe_yaml import check_keys, read_yaml
from dask_hpc.model.units import parse_duration, parse_quantity, write_quantity

_LIMIT = 1_000_000  # bytes of a corridor as text; a year of hours is 500,000
_WRITTEN = "{lower: 1.7 kW, upper: 2.5 kW}, or a list of {at: TIME, lower: ..., upper: ...}"


@dataclass(frozen=True, slots=True)
class Corridor:
    """Steps of ``(from time, lower, upper)``; the first also holds before its time."""

    steps: tuple[tuple[float, float, float], ...]

    def __post_init__(self) -> None:
        if not self.steps:
            raise InputError("corridor", "found no step", "at least one (time, lower, upper)")
        try:
            steps = tuple((float(time), float(lower), float(upper)) for time, lower, upper in self.steps)
        except (ArithmeticError, TypeError, ValueError):
            found = f"found {shown(self.steps)}"
            raise InputError("corridor", found, "a list of (time, lower, upper)") from None
        object.__setattr__(self, "steps", steps)
        for time, lower, upper in steps:
            if not isfinite(time):
                raise InputError("corridor", f"found the time {shown(time)}", "finite times")
            if not 0 <= lower <= upper:
                raise InputError(
                    f"corridor at {time:g} s",
                    f"found {shown((lower, upper))}",
                    "0 <= lower <= upper",
                )
        if any(a[0] >= b[0] for a, b in pairwise(steps)):
            raise InputError("corridor", f"found {shown(steps)}", "rising times")

    @classmethod
    def constant(cls, lower: float = 0.0, upper: float = inf) -> "Corridor":
        """The same bounds at all times."""
        return cls(((0.0, lower, upper),))

    @classmethod
    def parse(cls, text: str | bytes, seconds: Callable[[Any], float] = parse_duration) -> "Corridor":
        """From YAML or JSON, as ``read`` says."""
        tab, space = (b"\t", b" ") if isinstance(text, bytes) else ("\t", " ")
        # YAML refuses the tabs that JSON may be indented with.
        return cls.read(read_yaml(text.replace(tab, space), _LIMIT), seconds)  # type: ignore[arg-type]

    @classmethod
    def read(cls, found: Any, seconds: Callable[[Any], float] = parse_duration) -> "Corridor":
        """From ``{lower, upper}``, or a list of ``{at, lower, upper}`` in order of time, all as people write
        them. A bound that is not said, or ``none``, does not bind. ``seconds`` reads the times."""
        if isinstance(found, dict):
            check_keys(found, ("lower", "upper"), "corridor")
            if found:
                return cls(((0.0, *_bounds(found, "corridor")),))
        if not isinstance(found, list | tuple) or not found:
            raise InputError("corridor", f"found {shown(found)}", _WRITTEN)
        steps = []
        for number, step in enumerate(found, 1):
            where = f"corridor: step {number}"
            check_keys(step, ("at", "lower", "upper"), where)
            if "at" not in step or len(step) < 2:
                raise InputError(where, f"found {shown(step)}", "{at: TIME, lower: ..., upper: ...}")
            try:
                time = seconds(step["at"])
            except InputError as error:
                raise error.at(f"{where}: at") from None
            steps.append((time, *_bounds(step, where)))
        return cls(tuple(steps))

    def written(self) -> Any:
        """Plain data that ``read`` reads back to an equal corridor."""
        steps = [
            {
                "at": write_quantity(time, "s"),
                "lower": write_quantity(lower, "W"),
                "upper": write_quantity(upper, "W"),
            }
            for time, lower, upper in self.steps
        ]
        if len(steps) == 1 and self.steps[0][0] == 0:
            del steps[0]["at"]
            return steps[0]
        return steps

    def coming(self, after: float, until: float) -> tuple[tuple[float, float, float], ...]:
        """The steps that begin after one time, and at another or before."""
        first, last = (bisect_right(self.steps, (time, inf, inf)) for time in (after, until))
        return self.steps[max(first, 1) : last]

    def at(self, time: float) -> tuple[float, float]:
        """Lower and upper bound at ``time``."""
        index = bisect_right(self.steps, (time, inf, inf)) - 1
        _, lower, upper = self.steps[max(index, 0)]
        return lower, upper


def _bounds(found: dict[str, Any], where: str) -> tuple[float, float]:
    bounds = []
    for key, otherwise in (("lower", 0.0), ("upper", inf)):
        value = found.get(key)
        is_said = value is not None and not (isinstance(value, str) and value.strip().lower() == "none")
        try:
            bounds.append(parse_quantity(value, "W") if is_said else otherwise)
        except InputError as error:
            raise error.at(f"{where}: {key}") from None
    return bounds[0], bounds[1]
