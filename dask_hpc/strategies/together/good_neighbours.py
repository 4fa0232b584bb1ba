"""Good neighbours: kinds of tasks that slow each other do not fill a node while others wait that do not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

from dask_hpc.model.parameter import Parameter
from dask_hpc.planning.colocation.mix import MixPhase, MixPlan, best_mix
from dask_hpc.planning.colocation.slowdowns import Slowdowns
from dask_hpc.strategies.strategy import TogetherStrategy
from dask_hpc.strategies.together.neighbours_view import KindLimit, KindWork, NeighboursView

_KINDS = 4  # those of which most is left are looked at
_STREAMS, _COMPUTES = ("I", "II"), ("IV", "V")  # classes of memory use that make a try worth while, or not
_REMEMBERED = 200  # pairs that were tried
_PATIENCE = 8  # times as many tasks as are to be seen: then a try has come to nothing


class KindTrial(NamedTuple):
    """How many tasks of the kind were left when it began, and whether nothing has come of it."""

    begun: int
    is_over: bool = False


#: what is tried, or was: a kind beside another; beside itself: fewer of it alone
Trials = Mapping[tuple[str, str], KindTrial]


@dataclass(frozen=True, slots=True)
class GoodNeighbours(TogetherStrategy):
    """As many tasks of a kind at once on a node as gets all the work done soonest.

    Work 003, chapter 2, predicts how much slower tasks get beside others, to place those with deadlines. Ours
    has no deadlines of single tasks to keep, so it looks at the time of all that is left: the best mixes of
    kinds (``planning.colocation.mix``), by how they were seen to slow each other on this cluster.

    Nothing is limited before it is known that a kind gets slower by ``slower``, of ``known`` tasks beside
    each kind, and that the best mixes save ``gain`` of the time. What a node would do with another mix is
    found out by trying it: beside others that are ready it costs nothing, as no thread is idle; fewer tasks
    of a kind alone are tried only where that is a small share (``cost``) of what is left. Where a person says
    that a kind uses memory little (``dask.annotate(mem_class="V")``) nothing is tried, where much ("I") at
    once. No job misses its deadline for the sake of others.
    """

    name: ClassVar[str] = "good-neighbours"
    essential = ("slower", "gain", "known")

    slower: Annotated[
        float, Parameter("a kind is slowed by another if it takes longer by this share", low=0.01, high=10)
    ] = 0.1
    gain: Annotated[
        float, Parameter("share of the time of all work that a limit must save", low=0, high=0.9)
    ] = 0.05
    known: Annotated[int, Parameter("tasks that must be seen beside each kind", low=5, high=10_000)] = 30
    shortest: Annotated[float, Parameter("kinds whose tasks take less are left alone", "s", low=0)] = 0.02
    cost: Annotated[
        float, Parameter("share of all tasks that trying fewer at once may cost", low=0, high=0.5)
    ] = 0.005

    def decide(self, view: NeighboursView, memory: Trials | None) -> tuple[Mapping[str, KindLimit], Trials]:
        """All limits from now on, by kind."""
        trials = memory or {}
        kinds = self._most_of_it(view)
        if view.threads < 2 or not kinds:
            return {}, trials
        names = {kind.name for kind in kinds}
        slowdowns = Slowdowns((one for one in view.seen if one.kind in names), self.known)
        limits = self._best(view, kinds, slowdowns)
        if limits:
            return limits, trials
        return self._trial(view, kinds, slowdowns, trials)

    def _most_of_it(self, view: NeighboursView) -> list[KindWork]:
        """The kinds that most is left of, in the order of Dask. What nobody knows is taken for as others."""
        known = [kind.seconds for kind in view.kinds if kind.seconds is not None]
        usual = sum(known) / len(known) if known else 0.0
        work = {
            kind.name: kind.left * (usual if kind.seconds is None else kind.seconds)
            for kind in view.kinds
            if kind.left and (kind.seconds is None or kind.seconds >= self.shortest)
        }
        most = sorted(work, key=work.__getitem__, reverse=True)[:_KINDS]
        return [kind for kind in view.kinds if kind.name in most]

    def _best(
        self, view: NeighboursView, kinds: list[KindWork], slowdowns: Slowdowns
    ) -> dict[str, KindLimit]:
        """What follows from what is known."""
        seconds = {kind.name: kind.seconds for kind in kinds if kind.seconds is not None}
        names = list(seconds)
        pairs = [(one, other) for one in names for other in names]
        harm = {pair: found for pair in pairs if (found := slowdowns.harm(*pair)) > self.slower}
        if not harm:
            return {}
        counts = {kind.name: kind.left / view.nodes for kind in kinds if kind.name in seconds}
        plan = best_mix(counts, seconds, slowdowns, view.threads)
        is_on = any(not limit.is_trial for limit in view.limits.values())
        if plan.gain < self.gain / (2 if is_on else 1):
            return {}
        if any(_end(plan.plain, kind) <= kind.due < _end(plan.phases, kind) for kind in kinds):
            return {}  # a deadline would not be kept for the sake of others
        worst = max(harm, key=harm.__getitem__)
        reason = (
            f"{worst[0]} takes {slowdowns(worst[0], {worst[1]: 1}):.2f} times as long beside {worst[1]}; "
            f"saves {plan.gain:.0%} of the time"
        )
        mix = _kept(plan, view.limits)
        # all kinds of the mix: what has no limit would take the places of those that have, a task ahead
        limits = {}
        for name in dict.fromkeys([*mix, *(name for pair in harm for name in pair)]):
            alone = self._alone(name, slowdowns, view.threads)
            limits[name] = KindLimit(name, mix.get(name, 0), alone, reason)
        return limits

    def _alone(self, name: str, slowdowns: Slowdowns, threads: int) -> int | None:
        """How many at once get most done where there is nothing else; None for as many as there are."""
        rates = {count: slowdowns.rate(name, count) for count in range(1, threads + 1)}
        best = max(rates, key=rates.__getitem__)
        return best if rates[best] > (1 + self.gain) * rates[threads] else None

    def _trial(
        self, view: NeighboursView, kinds: list[KindWork], slowdowns: Slowdowns, trials: Trials
    ) -> tuple[Mapping[str, KindLimit], Trials]:
        """What is tried, if anything is: a kind that fills nodes, beside another that waits; else fewer of
        it."""
        half = view.threads // 2
        needed = self.known * view.nodes
        for kind in kinds:
            if kind.said_class in _COMPUTES:
                continue
            if kind.said_class not in _STREAMS and not slowdowns.is_known(kind.name, kind.name):
                continue  # it has not filled nodes for long
            # only the first that would get the places: others wait behind it
            other = next((one for one in kinds if one is not kind and one.waiting), None)
            if other is not None and min(kind.waiting, other.waiting) >= needed:
                pair = kind.name, other.name
                is_known = all(map(slowdowns.is_known, pair, reversed(pair)))
                if not is_known and (after := self._tried(pair, kind.left, needed, trials)) is not None:
                    reason = f"tries how {kind.name} and {other.name} get on with each other"
                    return {kind.name: KindLimit(kind.name, half, None, reason, True)}, after
            if len(kinds) > 1 or kind.left * self.cost < needed or slowdowns.is_seen(kind.name, half):
                continue
            if (after := self._tried((kind.name, kind.name), kind.left, needed, trials)) is not None:
                reason = f"tries whether fewer of {kind.name} at once get as much done"
                return {kind.name: KindLimit(kind.name, half, half, reason, True)}, after
        return {}, trials

    def _tried(self, pair: tuple[str, str], left: int, needed: int, trials: Trials) -> Trials | None:
        """What is to be remembered if this is tried now; None if it came to nothing."""
        found = trials.get(pair, KindTrial(left))
        if found.is_over:
            return None
        begun = max(left, found.begun) if found.begun - left <= _PATIENCE * needed else found.begun
        others = {one: trial for one, trial in trials.items() if one != pair}
        over = begun - left > _PATIENCE * needed
        return {**dict(list(others.items())[-_REMEMBERED:]), pair: KindTrial(begun, over)}


def _end(phases: Sequence[MixPhase], kind: KindWork) -> float:
    """Seconds until the last of a kind has ended."""
    end = passed = 0.0
    for phase in phases:
        passed += phase.seconds
        if phase.mix.get(kind.name):
            end = passed
    return end


def _kept(plan: MixPlan, limits: Mapping[str, KindLimit]) -> Mapping[str, int]:
    """What to run at once now: the mix in force, as long as it is a part of the plan, or the first."""
    for phase in plan.phases:
        if limits and all(limit.beside == phase.mix.get(name, 0) for name, limit in limits.items()):
            return phase.mix
    return plan.mix
