"""The knee of a throughput curve, found by trying: how many readers a file system serves best.

Throughput is taken to rise with the number of readers up to some number, the knee, and not to rise beyond:
it stays, or falls. The fewest readers with the best throughput are looked for, from the top downwards: half
as many, and half of the rest again, as long as nothing is lost; then between what is too few and what is too
many. Once that is found it stays, but for a look at its neighbours now and then, ever more rarely, and for
another search when throughput itself has changed.

Trying costs reads that could have been done meanwhile. What all tries may cost, at worst, is kept to a small
share of the reads that are done and those that wait: where half as many would be too dear a try, the fewest
are tried that are not.
"""

from dataclasses import dataclass, field, replace

_LEAST_READS = 6  # that are measured before anything is concluded
_LEAST_TIME = 0.1  # seconds
_CALM = 4  # times as many and as long, while nothing is tried: that costs nothing
_DRIFT = 0.25  # throughput that differs by more than this share is that of another file system, so to say
_COLLAPSE = 3.0  # more readers are taken to slow the file system down so much, at worst
_REST = 20  # windows without a try, after a search; twice as many after the next
_LONGEST_REST = 640


@dataclass(frozen=True, slots=True)
class Measured:
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

    def back(self) -> "Search":
        """Nothing came of the try: there is nothing more to read."""
        return replace(self, level=self.best)


def needed(search: Search, rate: float) -> float:
    """Reads that must have ended before the number in force is judged, if so many end in a second."""
    return _reads_of_a_try(search.level, rate) * (1 if search.is_trying else _CALM)


def begun(level: int) -> Search:
    """Nothing is known yet, and so many may read."""
    return Search(level, level)


def step(search: Search, found: Measured, least: int, most: int, keep: float, cost: float) -> Search:
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


def _judged(search: Search, found: Measured, keep: float) -> Search:
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


def _looked_again(search: Search, found: Measured) -> Search:
    """The best number of readers is in force and was measured again: while it rests, before a try that was
    too dear until now, or for the first time."""
    known = search.rates.get(search.best)
    if known is None:
        return replace(search, rates={search.best: found.rate})
    changed = not (1 - _DRIFT) * known <= found.rate <= (1 + _DRIFT) * known
    if changed or search.rest == 1:
        rests = _REST if changed else search.rests
        stride = 0 if changed else max(1, search.best // 8)
        peak = 0.0 if changed else max(search.peak, *search.rates.values()) / known * found.rate
        rates = {search.best: found.rate}
        return replace(search, rates=rates, stride=stride, peak=peak, rest=0, rests=rests)
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
