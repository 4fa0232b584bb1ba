"""When analyses do not keep up: who is waited for, and what is left out, put off or thinned out instead.

An analysis is late if its last run has not ended when the next is due. The simulation then waits for it, at
most ``stall`` seconds for each run; after that

- ``wait`` waits on, however long it takes;
- ``skip`` leaves out the iterations that come while the run lasts;
- ``subsample`` does every second iteration from then on; late again, every fourth, and so on, until it keeps
  up; another partition starts from every iteration again;
- ``spill`` lets what the analysis reads be written to a file on its node and be analysed from there when
  there is time. With ``limit`` iterations in files the simulation waits.

So besides the two iterations that a pipeline holds there is at most what one late run of each analysis reads.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Literal, NamedTuple, get_args

from dask_hpc.model.errors import insist, is_number
from dask_hpc.model.units import parse_quantity

WhenSlow = Literal["wait", "skip", "subsample", "spill"]
WHEN_SLOW: tuple[str, ...] = get_args(WhenSlow)
#: what is done about an analysis of one iteration
Deed = Literal["run", "skip", "spill"]


@dataclass(frozen=True, slots=True)
class Slow:
    """What is done when an analysis does not keep up, and after how many seconds."""

    what: WhenSlow = "wait"
    stall: float = 1.0
    #: iterations that may be in files at a time
    limit: int = 16

    def __post_init__(self) -> None:
        insist(self.what in WHEN_SLOW, "when_slow", self.what, ", ".join(WHEN_SLOW))
        insist(is_number(self.stall, 0, inf), "stall", self.stall, "0 s or more")
        fine = type(self.limit) is int and self.limit >= 1
        insist(fine, "spill_limit", self.limit, "a whole number from 1")


class SlowWish(NamedTuple):
    """What an owner said about slow analyses; None where he left it to others."""

    what: WhenSlow | None = None
    stall: float | None = None

    def over(self, other: "SlowWish") -> "SlowWish":
        """This, and the other's words for what was not said."""
        what = other.what if self.what is None else self.what
        return SlowWish(what, other.stall if self.stall is None else self.stall)

    def rule(self, limit: int = 16) -> Slow:
        """The rule, with defaults for what nobody has said."""
        return Slow(self.what or "wait", 1.0 if self.stall is None else self.stall, limit)


def read_wish(when_slow: Any, stall: Any) -> SlowWish:
    """What was said, checked. Raises ``InputError``."""
    insist(when_slow is None or when_slow in WHEN_SLOW, "when_slow", when_slow, ", ".join(WHEN_SLOW))
    if stall is not None:
        stall = inf if stall == "none" else parse_quantity(stall, "s", "stall")
    wish = SlowWish(when_slow, stall)
    wish.rule()
    return wish


class Skipped(NamedTuple):
    """An analysis that was not done for an iteration, and why."""

    iteration: int
    analysis: str
    reason: str


class BackPressure:
    """What is done about each analysis of each iteration. The runs under way are told to every call: by
    analysis, the iterations that have begun and not ended."""

    def __init__(self, rules: Mapping[str, Slow]) -> None:
        self._rules = dict(rules)
        #: each analysis is done for one iteration in so many
        self.every = dict.fromkeys(rules, 1)
        #: by analysis, the run that was waited for long enough
        self._late: dict[str, int] = {}

    def follow(self, rules: Mapping[str, Slow]) -> None:
        """Other rules for the same analyses."""
        self._rules = dict(rules)

    def restart(self) -> None:
        """Another partition is in force: every analysis is tried at every iteration again."""
        self.every = dict.fromkeys(self._rules, 1)
        self._late.clear()

    def what(self, name: str) -> WhenSlow:
        """What is done when this analysis does not keep up."""
        return self._rules[name].what

    def waits(self, iteration: int, running: Mapping[str, Collection[int]]) -> dict[str, float]:
        """The analyses that an iteration waits for before it begins, each at most so many seconds."""
        found = {}
        for name in self._due(iteration):
            if under_way := running.get(name):
                rule = self._rules[name]
                if rule.what == "wait" or (rule.what == "spill" and len(under_way) > rule.limit):
                    found[name] = inf
                elif min(under_way) != self._late.get(name):
                    found[name] = rule.stall
        return found

    def deeds(self, iteration: int, running: Mapping[str, Collection[int]]) -> dict[str, tuple[Deed, str]]:
        """What is done about every analysis of an iteration, once it has waited, and why."""
        found: dict[str, tuple[Deed, str]] = {}
        due = {*self._due(iteration)}
        for name, rule in self._rules.items():
            if name not in due:
                found[name] = ("skip", f"done for one iteration in {self.every[name]}")
            elif under_way := running.get(name):
                found[name] = self._late_deed(name, rule, min(under_way))
            else:
                self._late.pop(name, None)
                found[name] = ("run", "")
        return found

    def _due(self, iteration: int) -> Iterable[str]:
        return (name for name in self._rules if iteration % self.every[name] == 0)

    def _late_deed(self, name: str, rule: Slow, run: int) -> tuple[Deed, str]:
        is_new = self._late.get(name) != run
        self._late[name] = run
        if rule.what == "spill":
            return "spill", f"iteration {run} is still analysed"
        why = f"iteration {run} is still analysed"
        if rule.what == "subsample" and is_new:
            self.every[name] *= 2
            why += f": from now on one iteration in {self.every[name]}"
        return "skip", why
