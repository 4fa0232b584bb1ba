"""I/O lanes: each file system is read by as many tasks at once as it serves best, and the others compute."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import Annotated, ClassVar

from dask_hpc.model.parameter import Parameter
from dask_hpc.strategies.io.io_aware import IoBalance
from dask_hpc.strategies.io.lane_view import IoView, Kind, LaneLimit, LaneView, Mix, Next
from dask_hpc.strategies.strategy import IoStrategy

_LEAST_READS = 6  # that are measured before anything is concluded
_LEAST_TIME = 0.1  # seconds
_CALM = 4  # times as many and as long, while nothing is tried: that costs nothing
_DRIFT = 0.25  # throughput that differs by more than this share is that of another file system, so to say
_COLLAPSE = 3.0  # more readers are taken to slow the file system down so much, at worst
_REST = 20  # windows without a try, after a search; twice as many after the next
_LONGEST_REST = 640


@dataclass(frozen=True, slots=True)
class MeasuredLane:
    """One window: reads per second with so many in flight. ``done`` and ``waiting`` are those of all time,
    and now."""

    level: int
    reads: int
    rate: float
    done: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Search:
    """What is known of one file system."""

    #: the best known number of readers
    best: int
    #: the number in force: the best, or one that is tried
    level: int
    #: throughput by number of readers, of this search
    rates: dict[int, float] = field(default_factory=dict)
    #: how much further away the next try is, where nothing further away was tried; 0: half, or twice, as many
    stride: int = 0
    #: the best throughput of earlier searches, in terms of what it is now
    peak: float = 0.0
    #: reads that tries have cost
    lost: float = 0.0
    #: windows until the next look, and how many there were then
    rest: int = 0
    rests: int = _REST

    @property
    def is_trying(self) -> bool:
        """Whether the number in force is only tried."""
        return self.level != self.best

    def needed(self, rate: float) -> float:
        """Reads that must have ended before the number in force is judged, if so many end in a second."""
        return _reads_of_a_try(self.level, rate) * (1 if self.is_trying else _CALM)


def step(search: Search, found: MeasuredLane, least: int, most: int, keep: float, cost: float) -> Search:
    """What is known after another window, and the number of readers from now on, between ``least`` and
    ``most``. ``keep``: a difference in throughput that does not matter, as a share. ``cost``: the share of
    all reads that tries may cost."""
    search = _judged(search, found, keep) if search.is_trying else _looked_again(search, found)
    if search.rest:
        return search
    target = _next(search, least, most)
    if target is None:
        rests = min(2 * search.rests, _LONGEST_REST)
        return replace(search, level=search.best, rest=search.rests, rests=rests)
    budget = cost * (found.done + found.waiting) - search.lost
    while target != search.best and _at_worst(search.best, target, found.rate) > budget:
        target += 1 if target < search.best else -1
    return replace(search, level=target)


def _judged(search: Search, found: MeasuredLane, keep: float) -> Search:
    """Whether what was tried is better."""
    before = search.rates[search.best]
    rates = {**search.rates, search.level: found.rate}
    if search.level < search.best:
        is_better = found.rate >= (1 - keep) * max(search.peak, *search.rates.values())
    else:
        is_better = found.rate > (1 + keep) * before
    loss = found.reads * max(0.0, before / found.rate - 1) if found.rate else float(found.reads)
    best = search.level if is_better else search.best
    stride = 2 * search.stride if is_better else search.stride
    return replace(search, best=best, rates=rates, lost=search.lost + loss, stride=stride)


def _looked_again(search: Search, found: MeasuredLane) -> Search:
    """The best number of readers is in force and was measured again: while it rests, before a try that was
    too dear until now, or for the first time."""
    known = search.rates.get(search.best)
    if known is None:
        return replace(search, rates={search.best: found.rate})
    rates = {search.best: found.rate}
    if not (1 - _DRIFT) * known <= found.rate <= (1 + _DRIFT) * known:
        return replace(search, rates=rates, stride=0, peak=0.0, rest=0, rests=_REST)
    if search.rest == 1:
        peak = max(search.peak, *search.rates.values()) / known * found.rate
        return replace(search, rates=rates, stride=max(1, search.best // 8), peak=peak, rest=0)
    if search.rest:
        return replace(search, rest=search.rest - 1)
    return replace(search, rates={**search.rates, search.best: found.rate})


def _next(search: Search, least: int, most: int) -> int | None:
    """The number of readers to be tried next. None if there is nothing left to try. On either side where
    none was tried yet, fewer first; then in the middle of the wider gap that is left."""
    best, stride = search.best, search.stride
    lower = max((level for level in search.rates if level < best), default=None)
    if lower is None and best > least:
        return max(least, best - stride if stride else best // 2)
    higher = min((level for level in search.rates if level > best), default=None)
    if higher is None and best < most:
        return min(most, best + stride if stride else 2 * best)
    below = best - (best if lower is None else lower)
    above = (best if higher is None else higher) - best
    if max(below, above) < 2:
        return None
    return best - below // 2 if below >= above else best + above // 2


def _at_worst(best: int, target: int, rate: float) -> float:
    """Reads that a try may cost: as if fewer readers meant less in proportion, or more made it collapse."""
    slower = best / target if target < best else _COLLAPSE
    return _reads_of_a_try(target, rate / slower) * (slower - 1) + max(0, best - target) / 2


def _reads_of_a_try(level: int, rate: float) -> float:
    return max(level, _LEAST_READS, _LEAST_TIME * rate)


_REMEMBERED = 200  # file systems, the last ones seen
_EXACT = 0.1  # standard error of the mean time of a read, from which on it is known well enough, as a share
_PATIENCE = 4  # times as many reads as needed at least: then it is judged in any case


@dataclass(frozen=True, slots=True)
class Tuned:
    """What is remembered of one file system: the search, and what of its sums was looked at already."""

    search: Search
    top: int
    tasks: int = 0
    company: float = 0.0
    seconds: float = 0.0
    squares: float = 0.0
    #: reads that ended, now and before the file system was forgotten by the body
    done: int = 0
    before: int = 0


@dataclass(frozen=True, slots=True)
class IoLanes(IoStrategy):
    """Each file system is read by as many tasks at once as it serves best, and the others compute.

    Tuned by measured throughput (``Search``); what reads is paired with what computes.

    Throughput is reads in flight over seconds for one (Little's law), so it needs no clock but theirs.
    There is no limit at first: nothing is tried before the reads that are known make up for what a try
    may cost, so that few reads, or a file system that serves all, are not slowed down.

    Pairing is the rule of seed 002, 4.2.4: of a read and another task that are both ready, that one
    goes next with which what runs comes closest to the I/O intensity of all there is to do. Ours: jobs are
    tasks, nodes are threads, and what waits counts by its time, so that both kinds end together; the read
    then goes to the node whose own I/O intensity is least.
    """

    name: ClassVar[str] = "io-lanes"
    essential = ("limit", "tune", "pair")

    limit: Annotated[
        int, Parameter("reads at once, of each file system, to begin with; 0: as many as workers take", low=0)
    ] = 0
    tune: Annotated[bool, Parameter("find the limit of each file system by measured throughput")] = True
    least: Annotated[int, Parameter("never less than so many reads at once", low=1)] = 1
    most: Annotated[int, Parameter("never more than so many reads at once; 0: no such bound", low=0)] = 0
    keep: Annotated[
        float, Parameter("share of the throughput that may be lost for fewer reads at once", low=0, high=0.5)
    ] = 0.05
    cost: Annotated[float, Parameter("share of all reads that trying limits may cost", low=0, high=0.5)] = (
        0.02
    )
    pair: Annotated[bool, Parameter("let what reads and what computes go side by side")] = True
    together: Annotated[bool, Parameter("let reads that neighbour each other go to one worker")] = True

    def decide(
        self, view: IoView, memory: Mapping[str, Tuned] | None
    ) -> tuple[Sequence[LaneLimit], Mapping[str, Tuned]]:
        """Another limit for each file system that shows itself better served by it."""
        known = dict(memory or {})
        changes = []
        top = max(self.least, min(view.threads, self.most or view.threads), 1)
        for lane in view.lanes:
            if lane.is_fixed:
                continue
            first = min(self.limit or top, top)
            before = known.pop(lane.name, None) or Tuned(Search(first, first), top)
            known[lane.name] = after = self._tuned(before, lane, top)
            limit = self._limit(after)
            if limit != lane.limit:
                reason, others = _reason(before.search, after.search), _others(after.search)
                changes.append(LaneLimit(lane.name, limit, reason, others))
        for name in list(known)[:-_REMEMBERED]:
            del known[name]
        return changes, known

    def next_of(self, mix: Mix) -> Next:
        """The read or the other, and the node for the read."""
        reads, computes = mix.reads, mix.computes
        mean = (_time(reads) + _time(computes)) / max(1, reads.waiting + computes.waiting)
        weights = [_time(kind) / mean if mean else kind.waiting for kind in (reads, computes)]
        waiting = reads.intensity * weights[0] + computes.intensity * weights[1]
        all_ = IoBalance(mix.load, mix.tasks, waiting, sum(weights))
        goal = all_.workload(None)
        read, other = (all_.off(goal, kind.intensity, 1) for kind in (reads, computes))
        is_read = mix.read_is_first if read == other else read < other
        if not is_read:
            return Next(False, "", f"I/O intensity {all_.system():.2f} is not below {goal:.2f}")

        node = min(mix.nodes, key=lambda one: (IoBalance(one.load, one.tasks, 0.0, 0).system(), one.tasks))
        return Next(True, node.name, f"brings I/O intensity {all_.system():.2f} closer to {goal:.2f}")

    def _tuned(self, tuned: Tuned, lane: LaneView, top: int) -> Tuned:
        if tuned.top != top:  # the cluster is of another size
            was_free = tuned.search.best >= tuned.top
            best = top if was_free else min(tuned.search.best, top)
            tuned = replace(tuned, search=Search(best, best), top=top)
        before = tuned.before + (tuned.done if lane.done < tuned.done else 0)
        tuned = replace(tuned, done=lane.done, before=before)
        if not self.tune:
            return tuned
        if lane.limit != self._limit(tuned) or lane.tasks < tuned.tasks:  # not under the limit it had then
            return _anew(tuned)
        search = tuned.search
        if found := _window(tuned, lane, before + lane.done):
            search = step(search, found, self.least, top, self.keep, self.cost)
            tuned = replace(
                tuned, tasks=lane.tasks, company=lane.company, seconds=lane.seconds, squares=lane.squares
            )
        elif search.is_trying and not lane.waiting:
            search = replace(search, level=search.best)  # nothing came of the try: there is no more to read
        if search.level != tuned.search.level:
            tuned = _anew(tuned)
        return replace(tuned, search=search)

    def _limit(self, tuned: Tuned) -> int | None:
        """As many as there are threads is no limit."""
        return None if tuned.search.level >= tuned.top and not self.most else tuned.search.level


def _anew(tuned: Tuned) -> Tuned:
    """The limit is another: sums begin again."""
    return replace(tuned, tasks=0, company=0.0, seconds=0.0, squares=0.0)


def _window(tuned: Tuned, lane: LaneView, done: int) -> MeasuredLane | None:
    """What was measured since the last look, once it is enough: more, the more the reads differ."""
    reads, seconds = lane.tasks - tuned.tasks, lane.seconds - tuned.seconds
    if not reads or seconds <= 0:
        return None
    mean, rate = seconds / reads, (lane.company - tuned.company) / seconds
    enough = tuned.search.needed(rate)
    variance = max(0.0, (lane.squares - tuned.squares) / reads - mean * mean)
    is_exact = sqrt(variance / reads) <= _EXACT * mean
    if reads < enough * (1 if is_exact else _PATIENCE):
        return None
    return MeasuredLane(tuned.search.level, reads, rate, done, lane.waiting)


def _time(kind: Kind) -> float:
    return kind.waiting * kind.seconds


def _others(after: Search) -> tuple[str, ...]:
    """What else is known to be possible, the best first."""
    rates = [(rate, level) for level, rate in after.rates.items() if level != after.level]
    return tuple(f"{level} at once: {rate:.3g}/s" for rate, level in sorted(rates, reverse=True))


def _reason(before: Search, after: Search) -> str:
    rates = ", ".join(f"{after.rates[level]:.3g}/s with {level}" for level in sorted(after.rates))
    if after.is_trying:
        return f"tries whether {after.level} serve as well: {rates}" if rates else "tries fewer"
    if before.is_trying and after.best == before.best:
        return f"{after.best} at once are served better than {before.level}: {rates}"
    return f"{after.best} at once are served best: {rates}" if rates else f"{after.best} to begin with"
