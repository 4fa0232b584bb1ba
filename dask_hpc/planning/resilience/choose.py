"""Which protection costs least: all protocols at their optima, side by side (003, 4.9)."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from math import exp, log, sqrt
from typing import Any, Literal

from dask_hpc.model.units import show_duration, show_large
from dask_hpc.planning.resilience.hardware import PLACES, Case
from dask_hpc.planning.resilience.prospect import Objective, Prospect, Spending, price
from dask_hpc.planning.resilience.recovery import recovery
from dask_hpc.planning.resilience.redundancy import redundancy
from dask_hpc.planning.resilience.rollback import multilevel, restart

#: what goes on at this share of its speed or less does not come to an end that anybody waits for
HOPELESS = 0.01
#: to which sizes are rounded where many cases are alike
_ALIKE = 1.05
_PARTS = [field.name for field in fields(Spending)]

#: what may grow or shrink, the rest of a case being equal
Axis = Literal["nodes", "mtbf", "memory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResiliencePlan:
    """Ways to survive, and the best of them."""

    case: Case
    objective: Objective
    #: by protocol, in the order in which they are explained
    ways: dict[str, Prospect]
    #: of redundancy that were asked for, and whether all replicas write to the store
    degrees: tuple[float, ...] = ()
    all_write: bool = False

    @property
    def ranking(self) -> list[Prospect]:
        """The best first; of what costs the same, what is explained first."""
        return sorted(self.ways.values(), key=lambda way: way.cost(self.objective))

    @property
    def best(self) -> Prospect:
        return self.ranking[0]

    @property
    def reason(self) -> str:
        """What is best, and what decides that."""
        best, *others = self.ranking
        often = show_duration(1 / self.case.failures)
        if best.efficiency <= HOPELESS:
            return f"hopeless: {self._limit()}"
        words = f"{best.protocol}: a failure every {often}, {best.efficiency:.1%} of the time is work"
        if not others or others[0].efficiency <= HOPELESS:
            return words
        next_best = others[0]
        more = next_best.cost(self.objective) / best.cost(self.objective) - 1
        words += f"; {next_best.protocol} would take {more:.1%} more {self._what}"
        saved = {name: self._part(next_best, name) - self._part(best, name) for name in _PARTS}
        most = max(saved, key=saved.__getitem__)
        if more < 0.0005 or saved[most] <= 0:
            return words
        here, there = (self._shown(self._part(way, most)) for way in (best, next_best))
        return f"{words}, most of it for {most.replace('_', ' ')} ({there}, not {here})"

    @property
    def _what(self) -> str:
        return "energy" if self.objective == "energy" else "time"

    def _part(self, way: Prospect, name: str) -> float:
        """Of what is compared, what goes into a part."""
        alone = Spending(**{name: getattr(way.parts, name)})
        return float(price("energy" if self._what == "energy" else "time", self.case, way.nodes, alone, 0.0))

    def _shown(self, amount: float) -> str:
        return show_large(amount, "J") if self._what == "energy" else show_duration(amount)

    @property
    def notes(self) -> list[str]:
        """What else a person should know."""
        found = [f"{way.protocol}: {way.trouble}" for way in self.ways.values() if way.trouble]
        if self.case.costs.restart[-1] * self.case.failures > 1 and self.best.efficiency > HOPELESS:
            found.append(f"restart: hopeless: {self._limit()}")
        return found

    def _limit(self) -> str:
        """Up to how many nodes a restart from the store is shorter than the time between failures."""
        seconds, between = self.case.costs.restart[-1], 1 / self.case.failures
        words = f"a restart from the store takes {show_duration(seconds)}"
        if seconds <= between:
            return f"a failure comes every {show_duration(between)}, and {words}"
        # more nodes fail more often, and if they share the store they take longer, too
        share = between / seconds if self.case.given else sqrt(between / seconds)
        most = int(self.case.calculation.nodes * share)
        limit = f"up to {most} nodes it would be shorter" if most else "it is longer on any number of nodes"
        return f"{words}, longer than the {show_duration(between)} between failures; {limit}"

    def sweep(self, axis: Axis, values: Sequence[float]) -> list[tuple[float, dict[str, float]]]:
        """The efficiency of each protocol for other numbers of nodes (that the machine has), other times
        between failures of a node, or other sizes of what a node has to keep."""
        found = []
        for value in values:
            case = self.case
            if axis == "mtbf":
                case = replace(case, hardware=replace(case.hardware, mtbf=value))
            else:
                other: dict[str, Any] = {axis: round(value) if axis == "nodes" else value}
                case = replace(case, calculation=replace(case.calculation, **other))
            ways = choose(case, self.objective, self.degrees, all_write=self.all_write).ways
            found.append((value, {name: way.efficiency for name, way in ways.items()}))
        return found

    def as_plain(self) -> dict[str, Any]:
        """For programs: seconds and joules."""
        return {
            "objective": self.objective,
            "best": self.best.protocol,
            "reason": self.reason,
            "notes": self.notes,
            "failures_every": 1 / self.case.failures,
            "commit": dict(zip(PLACES, self.case.costs.commit, strict=True)),
            "ways": {
                name: {
                    "efficiency": way.efficiency,
                    "time": way.time,
                    "deviation": way.deviation,
                    "energy": way.energy,
                    "nodes": way.nodes,
                    "every": way.every,
                    "pattern": None
                    if way.pattern is None
                    else {"work": way.pattern.work, "counts": list(way.pattern.counts)},
                    "parts": way.parts.as_plain(),
                    "trouble": way.trouble,
                }
                for name, way in self.ways.items()
            },
        }

    def __str__(self) -> str:
        lines = [
            f"{way.protocol}: {way.trouble}"
            if way.trouble
            else f"{way.protocol}: {way.efficiency:.1%}, {show_duration(way.time)}, "
            f"{show_large(way.energy, 'J')}"
            for way in self.ranking
        ]
        return "\n".join([self.reason, *lines, *self.notes])


def choose(
    case: Case, objective: Objective = "time", degrees: Sequence[float] = (), *, all_write: bool = False
) -> ResiliencePlan:
    """All protocols at their optima; redundancy of these degrees only, as it takes nodes from others."""
    ways = [restart(case, objective), multilevel(case, objective), recovery(case, objective)]
    ways += [redundancy(case, degree, objective, all_write=all_write) for degree in degrees]
    return ResiliencePlan(
        case=case,
        objective=objective,
        ways={way.protocol: way for way in ways},
        degrees=tuple(degrees),
        all_write=all_write,
    )


def choose_alike(case: Case, objective: Objective = "time") -> Prospect:
    """The best for a case whose nodes, memory and work are rounded by up to 2.5 %: where there are many."""
    asked = case.calculation
    nodes = min(max(1, round(_rounded(asked.nodes))), case.hardware.nodes)
    alike = replace(asked, nodes=nodes, work=_rounded(asked.work), memory=_rounded(asked.memory))
    return _best(replace(case, calculation=alike), objective)


@lru_cache(4096)
def _best(case: Case, objective: Objective) -> Prospect:
    return choose(case, objective).best


def _rounded(value: float) -> float:
    return exp(round(log(value) / log(_ALIKE)) * log(_ALIKE))
