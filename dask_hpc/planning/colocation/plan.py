"""Which kinds may share a node, how many of each at once, and what that is worth: the answer of a plan."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import inf
from typing import Any

from dask_hpc.model.units import counted, show_duration
from dask_hpc.planning.colocation.known import KnownInterference
from dask_hpc.planning.colocation.mix import MixPhase, MixPlan, best_mix

_ALIKE = 0.01  # a share of the time that makes no difference
_WORK = 1000.0  # tasks that stand for many


@dataclass(frozen=True, slots=True)
class KindPair:
    """Two kinds with as much work each, on one node."""

    one: str
    other: str
    #: what runs at once at first, where they share it
    mix: Mapping[str, int]
    #: of the time that they take one after the other, each as many at once as is best: the share that is
    #: saved
    saves: float

    @property
    def is_worth_it(self) -> bool:
        """Whether to let them share a node."""
        return self.saves > _ALIKE


@dataclass(frozen=True, slots=True)
class KindDeadline:
    """When the last task of a kind ends, and whether that is in time."""

    kind: str
    deadline: float
    ends: float
    #: with plain packing
    plain_ends: float

    @property
    def is_kept(self) -> bool:
        return self.ends <= self.deadline

    @property
    def is_kept_plainly(self) -> bool:
        return self.plain_ends <= self.deadline


@dataclass(frozen=True)
class ColocationPlan:
    """What tasks do to each other, and what to do about it. Times are of ``nodes`` that share the work
    evenly."""

    known: KnownInterference
    cores: int
    nodes: int
    #: tasks of each kind; empty: nobody said
    counts: Mapping[str, int]
    deadlines: Mapping[str, float]

    @cached_property
    def slowdowns(self) -> dict[str, dict[str, float]]:
        """Of a task of a kind on a node whose other cores all run tasks of another."""
        return self._beside(self.cores - 1)

    @cached_property
    def pairs(self) -> dict[str, dict[str, float]]:
        """Of a task of a kind beside one of another."""
        return self._beside(min(1, self.cores - 1))

    def _beside(self, count: int) -> dict[str, dict[str, float]]:
        kinds = self.known.kinds
        return {one: {other: self.known.slowdown(one, {other: count}) for other in kinds} for one in kinds}

    @cached_property
    def alone(self) -> dict[str, MixPlan]:
        """Each kind with nobody else on the node: how many at once, of many."""
        return {kind: self._mix({kind: _WORK}) for kind in self.known.kinds}

    @cached_property
    def sharing(self) -> tuple[KindPair, ...]:
        """Of each two kinds, the ones that gain most first."""
        found = []
        for one, other in combinations(self.known.kinds, 2):
            seconds = {kind: self.known.kinds[kind].seconds for kind in (one, other)}
            counts = {kind: _WORK * max(seconds.values()) / seconds[kind] for kind in seconds}
            plan = self._mix(counts)
            apart = sum(self._mix({kind: count}).seconds for kind, count in counts.items())
            found.append(KindPair(one, other, plan.mix, 1 - plan.seconds / apart))
        return tuple(sorted(found, key=lambda pair: -pair.saves))

    @cached_property
    def mix(self) -> MixPlan | None:
        """How to run all tasks; None if nobody said how many there are. With deadlines, what is due first is
        done first: of all orders of these phases the one that is least late."""
        if not any(self.counts.values()):
            return None
        plan = self._mix({kind: count / self.nodes for kind, count in self.counts.items()})
        if not self.deadlines:
            return plan
        phases = sorted(plan.phases, key=self._due)
        return MixPlan(tuple(phases), plan.plain)

    def _due(self, phase: MixPhase) -> float:
        return min((self.deadlines.get(kind, inf) for kind in phase.mix), default=inf)

    def _mix(self, counts: Mapping[str, float]) -> MixPlan:
        seconds = {name: kind.seconds for name, kind in self.known.kinds.items()}
        return best_mix(counts, seconds, self.known.slowdown, self.cores)

    @property
    def kept(self) -> tuple[KindDeadline, ...]:
        """What becomes of deadlines."""
        plan = self.mix
        if plan is None:
            return ()
        ends, plain = _ends(plan.phases), _ends(plan.plain)
        return tuple(
            KindDeadline(kind, deadline, ends[kind], plain[kind])
            for kind, deadline in self.deadlines.items()
            if self.counts.get(kind)
        )

    @property
    def reason(self) -> str:
        """For a person: what it comes to, and what it rests on."""
        return f"{self.worth}; it rests on {self.known.basis}"

    @property
    def worth(self) -> str:
        """What it comes to, for a person."""
        if self.cores == 1:
            return "on one core nothing runs beside anything"
        plan = self.mix
        if plan is None:
            gain = [pair for pair in self.sharing if pair.is_worth_it]
            if len(self.known.kinds) == 1:
                (kind,) = self.known.kinds
                at_once = self.alone[kind].mix[kind]
                return f"{counted(at_once, 'task')} of {kind} at once get most done"
            if not gain:
                return "no two kinds gain by sharing a node"
            best = gain[0]
            return f"{best.one} and {best.other} gain most by sharing a node: {best.saves:.0%} of the time"
        if plan.gain <= _ALIKE:
            return f"plain packing is as good as any: {show_duration(plan.plain_seconds)}"
        return (
            f"{show_duration(plan.seconds)} in place of {show_duration(plan.plain_seconds)} "
            f"with plain packing, {plan.gain:.0%} less"
        )

    def as_plain(self) -> dict[str, Any]:
        """For JSON; seconds."""
        plan = self.mix
        return {
            "cores": self.cores,
            "nodes": self.nodes,
            "kinds": {
                name: {
                    "seconds": kind.seconds,
                    "mem_class": kind.mem_class,
                    "at_once": self.alone[name].mix.get(name),
                    "saves": self.alone[name].gain,
                }
                for name, kind in self.known.kinds.items()
            },
            "pairs": self.pairs,
            "slowdowns": self.slowdowns,
            "sharing": [
                {"kinds": [pair.one, pair.other], "mix": dict(pair.mix), "saves": pair.saves,
                 "share": pair.is_worth_it}
                for pair in self.sharing
            ],
            "mix": plan and {
                "phases": _plain(plan.phases),
                "plain": _plain(plan.plain),
                "seconds": plan.seconds,
                "plain_seconds": plan.plain_seconds,
                "gain": plan.gain,
            },
            "deadlines": [
                {"kind": one.kind, "deadline": one.deadline, "ends": one.ends, "plain_ends": one.plain_ends,
                 "kept": one.is_kept}
                for one in self.kept
            ],
            "errors": dict(self.known.errors),
            "way": self.known.chosen,
            "reason": self.reason,
        }  # fmt: skip


def _plain(phases: Sequence[MixPhase]) -> list[dict[str, Any]]:
    return [{"mix": dict(phase.mix), "seconds": phase.seconds} for phase in phases]


def _ends(phases: Sequence[MixPhase]) -> dict[str, float]:
    """When the last task of each kind has ended."""
    found: dict[str, float] = {}
    now = 0.0
    for phase in phases:
        now += phase.seconds
        found |= dict.fromkeys(phase.mix, now)
    return found
