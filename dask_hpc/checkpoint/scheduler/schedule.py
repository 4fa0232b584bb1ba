"""What copies cost, how often workers die, how fast lost work is done again, and when the next copies are
due: measured, not decided."""

import asyncio
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from time import monotonic

from dask_hpc.checkpoint.version import DISK, PARTNER, STORE
from dask_hpc.planning.interval import TIME, Weights
from dask_hpc.strategies.checkpoint.rates import expected_rate, pair_rate
from dask_hpc.strategies.checkpoint.when import (
    DRIFT,
    SHORTEST,
    Every,
    LevelCost,
    When,
    failure_rate,
    has_drifted,
    until_end,
    when,
)
from dask_hpc.strategies.checkpoint.which import ENERGY, TIME_OBJECTIVE, LevelChoice, Stake, sets, which

#: seconds per byte and per commit, until one was measured: 10 GbE, an NVMe disk, a shared file system
_PER_BYTE: Mapping[str, float] = {PARTNER: 1e-9, DISK: 2e-9, STORE: 1e-8}
_PER_COMMIT: Mapping[str, float] = {PARTNER: 0.05, DISK: 0.05, STORE: 0.2}
#: weight of the newest measurement
_NEWEST = 0.3
#: seconds after a death until what was lost is somewhere twice again: a guess
_ANEW = 3.0


class FailureCounts:
    """How many of which kind were seen, in how many seconds of how many nodes. ``mtbf`` are seconds between
    failures of one node that need a level (for the store: of the whole cluster), until some were seen."""

    def __init__(self, mtbf: Mapping[str, float]) -> None:
        self._mtbf = mtbf
        self._seen = dict.fromkeys(mtbf, 0)
        self._node_seconds = self._seconds = 0.0
        self._nodes = 0
        self._since = monotonic()

    def nodes(self, number: int) -> None:
        now = monotonic()
        self._node_seconds += self._nodes * (now - self._since)
        self._seconds += now - self._since
        self._nodes, self._since = number, now

    def seen(self, level: str) -> None:
        self._seen[level] += 1

    def rate(self, level: str) -> float:
        """Per second and node."""
        self.nodes(self._nodes)
        if level == STORE:
            of_all = failure_rate(self._mtbf[level], self._seen[level], self._seconds)
            return of_all / max(1, self._nodes)
        return failure_rate(self._mtbf[level], self._seen[level], self._node_seconds)

    def expected(self, level: str) -> float:
        """The same, as a choice of levels needs it: deaths that were seen soon count for more than what was
        said. Of what takes copies or the whole cluster along, no cluster sees enough to learn from."""
        found = self.rate(level)
        if level != PARTNER:
            return found
        return expected_rate(self._mtbf[level], self._seen[level], self._node_seconds)

    def pairs(self) -> float:
        """Per second and node: it dies together with the one that has its copies."""
        return pair_rate(self.expected(PARTNER), _ANEW)


#: seconds of work that were done again in as many seconds, before any were
_SOME = 20.0


class Recoveries:
    """How fast work that was lost is done again, and how long it takes to load copies."""

    def __init__(self) -> None:
        self._missing: set[Hashable] = set()
        self._began = self._at_risk = 0.0
        self._work = self._took = _SOME
        #: seconds of a restore, a moving average; None until there was one
        self.restore: float | None = None

    def __contains__(self, key: object) -> bool:
        return key in self._missing

    @property
    def speed(self) -> float:
        """Seconds of work that are done again in one. Deviation from 003, 3.3.2.3: there sigma is the number
        of nodes that do it; this is what comes of it."""
        return self._work / self._took

    def lost(self, keys: Iterable[Hashable], at_risk: float) -> None:
        """A failure took these results, and with them so many seconds of work."""
        if not self._missing:
            self._began, self._at_risk = monotonic(), at_risk
        self._missing.update(keys)

    def back(self, key: Hashable) -> None:
        """One of them is there again, or nobody needs it."""
        self._missing.discard(key)
        if not self._missing:
            self._work += self._at_risk
            self._took += monotonic() - self._began

    def loaded(self, seconds: float) -> None:
        self.restore = seconds if self.restore is None else self.restore + _NEWEST * (seconds - self.restore)


#: so many times as long as weighing took, but no more than these seconds, nothing is weighed unless somebody
#: died: it takes the scheduler's time, and on a busy machine a choice must not get old all the same
_RESTS, _LONGEST_REST = 200, 10.0


@dataclass(frozen=True, slots=True)
class Aim:
    """Least time or energy is to be lost, with levels that are chosen for it or with those that were said."""

    objective: str = TIME_OBJECTIVE
    chooses: bool = True


@dataclass
class SeriesFacts:
    """What is known of what a name keeps, beside the schedule: whether it grows all the time; if not, seconds
    of work in it by level, and the levels that have it; and what a second of each kind draws."""

    grows: bool = True
    work: Mapping[str, float] = field(default_factory=dict)
    there: frozenset[str] = frozenset()
    weights: Weights = TIME
    speed: float = 1.0
    restore: float | None = None
    note: str = ""


class Schedule:
    """Of one name. ``every`` is a rule, or seconds by level. With an aim it is chosen which of the levels are
    in use: partners, or none, or the store alone if they may be skipped."""

    def __init__(
        self,
        levels: Sequence[str],
        every: Every,
        nbytes: float,
        failures: FailureCounts,
        aim: Aim | None = None,
        may_skip_partners: bool = False,
    ) -> None:
        self.levels = tuple(levels)
        self.every = every
        self.failures = failures
        self.aim = aim
        self.facts = SeriesFacts()
        self.planned: When | None = None
        #: seconds until the end of what is kept, as far as somebody knows it
        self.left = inf
        #: seconds of a commit to each level, a moving average
        self.costs = {level: _PER_COMMIT[level] + nbytes * _PER_BYTE[level] for level in levels}
        #: what the plan was made from, and how it would be if there were no end
        self._basis: tuple[tuple[LevelCost, ...], int] | None = None
        self._endless: When | None = None
        self._last: dict[str, float] = {}
        self._begun = monotonic()
        #: when what each level has was made
        self._kept: dict[str, float] = {}
        self._stake: Stake | None = None
        self._rests_until = 0.0
        #: sets of levels to choose from
        self.possible = tuple(one for one in sets(levels) if may_skip_partners or not one or PARTNER in one)
        #: when the next commit to each level is due, by the process's clock
        self.due = dict.fromkeys(levels, inf if aim is not None else monotonic())

    def measured(self, level: str, seconds: float) -> None:
        self.costs[level] += _NEWEST * (seconds - self.costs[level])

    async def plan(self, nodes: int) -> When | None:
        """A new plan if what the last one was made from has changed, or the end comes near."""
        if self.aim is not None:
            return await self._choose(nodes, self.aim)
        rate = self.failures.rate
        costs = tuple(LevelCost(level, self.costs[level], rate(level)) for level in self.levels)
        if self._basis is None or has_drifted(*self._basis, costs, nodes):
            self._basis = (costs, nodes)
            self._endless = await asyncio.to_thread(when, self.every, costs, nodes)
        if self._endless is None:  # another one is about to know
            return None
        found = until_end(self._endless, *self._basis, self.left)
        if self.planned is not None and found.every == self.planned.every:
            return None
        self.planned = found
        for level, every in found.every.items():
            if level in self._last:
                self.due[level] = self._last[level] + every
            else:  # what is there is copied at once, unless that does not pay any more
                is_too_late = every > self._endless.every[level]
                self.due[level] = inf if is_too_late else self._begun
        return found

    async def _choose(self, nodes: int, aim: Aim) -> LevelChoice | None:
        """A new choice, if it is news."""
        facts, before = self.facts, self.planned
        costs = tuple(
            LevelCost(level, self.costs[level], self._expected(level), facts.restore) for level in self.levels
        )
        left = self.left if self.left < inf else monotonic() - self._begun
        stake = Stake(
            costs,
            nodes,
            self.at_risk() if facts.grows else facts.work,
            min(max(left, SHORTEST), 1e8),
            facts.speed,
            facts.grows,
            facts.there,
            facts.weights if aim.objective == ENERGY else TIME,
            self.possible if aim.chooses else (self.levels,),
        )
        known = self._stake
        if known is not None:
            has_died = any(one.failures > was.failures for one, was in zip(costs, known.costs, strict=True))
            may_wait = monotonic() < self._rests_until and not has_died and nodes == known.nodes
            if may_wait or not stake.has_drifted(known):
                return None
        self._stake, begun = stake, monotonic()
        found = await asyncio.to_thread(which, stake, self.chosen)
        self._rests_until = monotonic() + min(_RESTS * (monotonic() - begun), _LONGEST_REST)
        if facts.note and aim.objective == ENERGY:
            found = replace(found, reason=f"{found.reason}; {facts.note}")
        self.planned = found
        for level, every in found.every.items():
            self.due[level] = self._last.get(level, self._begun) + every
        return found if before is None or _is_news(before.every, found.every) else None

    def _expected(self, level: str) -> float:
        """Failures per second and node that need the level. What two had who died at once is loaded from the
        store."""
        return self.failures.expected(level) + (self.failures.pairs() if level == STORE else 0.0)

    @property
    def has(self) -> frozenset[str]:
        """The levels that something was committed to."""
        return frozenset(self._kept)

    @property
    def chosen(self) -> tuple[str, ...]:
        """The levels that are in use now."""
        if self.aim is None:
            return self.levels
        return self.planned.levels if isinstance(self.planned, LevelChoice) else ()

    def kept(self, level: str, at: float) -> None:
        """What there was then is on that level."""
        self._kept[level] = max(at, self._kept.get(level, 0.0))

    def at_risk(self) -> dict[str, float]:
        """Seconds of work that a failure which needs a level would cost now."""
        now, found = monotonic(), {}
        for place, level in enumerate(self.levels):
            found[level] = now - max(self._kept.get(one, self._begun) for one in self.levels[place:])
        return found

    def redone(self) -> float:
        """Seconds of work that have to be done again, if only a process was lost."""
        return self.at_risk().get(PARTNER, 0.0)

    def done(self, levels: Iterable[str] | None = None) -> None:
        """A commit is over, to all levels or to these."""
        now = monotonic()
        for level in self.levels if levels is None else levels:
            self._last[level] = now
            self.due[level] = now + (self.planned.every[level] if self.planned is not None else 0.0)

    def is_due(self, level: str) -> bool:
        """Whether a commit that is made now is to go there: the next one may be as far from when that is due
        as this one."""
        shortest = min(self.planned.every.values()) if self.planned is not None else 0.0
        return self.due[level] - monotonic() < (shortest / 2 if shortest < inf else inf)

    def due_in(self) -> dict[str, float | None]:
        """Seconds from now by level; None: never."""
        now = monotonic()
        return {level: max(0.0, at - now) if at < inf else None for level, at in self.due.items()}

    def copies_due(self) -> float:
        """By the process's clock; of any level but the store."""
        return min(due for level, due in self.due.items() if level != STORE)

    def store_due(self, is_whole: bool) -> float:
        """By the process's clock. What is there as a whole is written at once the first time."""
        if STORE in self._last or is_whole or self.aim is not None:
            return self.due[STORE]
        return self._begun + (self.planned.every[STORE] if self.planned is not None else inf)

    def next_due_in(self) -> float | None:
        """Seconds from now to any level; None: never."""
        return min((at for at in self.due_in().values() if at is not None), default=None)


def _is_news(before: Mapping[str, float], every: Mapping[str, float]) -> bool:
    """Whether people would call that another plan."""
    pairs = [(before[one], every[one]) for one in every]
    return any((a < inf) != (b < inf) or (a < inf and abs(b - a) > DRIFT * max(a, b)) for a, b in pairs)
