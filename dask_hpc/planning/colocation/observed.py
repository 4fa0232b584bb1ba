"""Who slows whom on a node, and by how much, from what workers tell of their tasks (seed 003, chapter 2).

The seed runs each application alone and beside copies of others. Here nobody runs anything for the sake of
measuring: of each task that has ended it is known what ran beside it, so much of each kind on the average of
its time. Alone is who had nobody, or nobody memory bound, beside it; until there are ten of them, the fastest
twentieth of all stands for them. What was not seen together is foreseen linearly in the number of neighbours.

1. A task is learned from when all workers of its node have told of everything up to its end.
2. Where a worker tells of some of its tasks, each of these counts for several.
3. Old tasks are forgotten: of one mix by the newer ones of it, and slowly, by all tasks of the kind, what has
   not been seen for long.
4. Processors of different models know nothing of each other.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf, isfinite, isinf, sqrt
from typing import Any, NamedTuple

import numpy as np

from dask_hpc.model.errors import InputError, shown

_ALONE = 0.1  # neighbours on the average; who has fewer has none
_BESIDE = 0.5  # as many of a kind, and it was there
_QUIET = 10  # tasks that were alone, and the mean of them is what a task takes alone
_FASTEST = 0.05  # until then
_CELL = 5  # tasks of a mix before its mean is believed
_MEMORY = 200.0  # tasks of one mix that are remembered
_LONG_AGO = 5000.0  # tasks of the kind in which a mix that is not seen fades to a half
_MIXES = 128  # of one kind
_EXACT = 8  # neighbours below which one more is another mix; below twice as many two more are, and so on
_FEATURES = 12  # kinds beside one kind for the linear part
_COVERED = 0.5  # of a task's time that must be known
_RECORDS = 3000  # of one node that are kept because something that overlaps them has not ended
_PENDING = 3000
_RECENT = 256  # durations of a kind
_SCORED = 1000  # predictions
_REGULAR = 0.4  # of the mean: a standard deviation of no more
_MEMORY_BOUND = 1e-4  # misses per instruction (classes I and II)
_SMALL = 1e-12

#: a mix: of each kind that is there, about how many
Mix = tuple[tuple[str, int], ...]


class Slowdown(NamedTuple):
    """How many times as long as alone, the standard error of that, and from how many tasks it is known."""

    ratio: float
    stderr: float
    tasks: float


class SeenKind(NamedTuple):
    """What is known of the tasks of a kind. Times in seconds."""

    tasks: int
    #: what a task takes alone, and the standard error of that
    baseline: float
    stderr: float
    #: "alone", "no memory-bound neighbours", or "fastest"
    how: str
    #: of all of them, whatever ran beside them
    mean: float
    variance: float
    #: misses per instruction, or bytes read and written per second; None if nothing was counted
    intensity: float | None
    #: "counters" or "bytes"
    by: str


class TaskSeen(NamedTuple):
    """A task that has ended, and of how many it is the one that was told."""

    kind: str
    start: float
    stop: float
    weight: float
    data: float | None
    counts: tuple[float, ...] | None


@dataclass(slots=True)
class _Mean:
    """Mean and variance; what is old counts less and less."""

    weight: float = 0.0
    mean: float = 0.0
    squares: float = 0.0
    at: int = 0

    def add(self, value: float, at: int) -> None:
        keep = self.faded(at)
        if self.weight * keep > _MEMORY - 1:
            keep = (_MEMORY - 1) / self.weight
        self.weight = self.weight * keep + 1
        self.squares *= keep
        off = value - self.mean
        self.mean += off / self.weight
        self.squares += off * (value - self.mean)
        self.at = at

    def faded(self, at: int) -> float:
        return float(0.5 ** ((at - self.at) / _LONG_AGO))

    def tasks(self, at: int) -> float:
        return self.weight * self.faded(at)

    @property
    def variance(self) -> float:
        return self.squares / (self.weight - 1) if self.weight > 1 else 0.0

    def stderr(self, at: int) -> float:
        """Of the mean; of one value nothing is known."""
        tasks = self.tasks(at)
        return sqrt(self.variance / tasks) if self.weight >= 2 and tasks > _SMALL else inf


class _Lines:
    """How long a task takes, linear in how many of each kind are beside it."""

    def __init__(self) -> None:
        self._kinds: dict[str, int] = {}
        self._products = np.zeros((1, 1))
        self._sums = np.zeros(1)
        self._squares = 0.0
        self._news = 0
        self._solved: tuple[np.ndarray, np.ndarray, float] | None = None

    def add(self, company: Mapping[str, float], seconds: float) -> None:
        for kind in company:
            if kind not in self._kinds and len(self._kinds) < _FEATURES:
                self._kinds[kind] = len(self._kinds) + 1
                self._products = np.pad(self._products, (0, 1))
                self._sums = np.pad(self._sums, (0, 1))
        row = self._row(company)
        keep = 1 - 1 / (2 * _MEMORY)
        self._products = self._products * keep + np.outer(row, row)
        self._sums = self._sums * keep + row * seconds
        self._squares = self._squares * keep + seconds * seconds
        self._news += 1
        if self._news >= 0.1 * self._products[0, 0]:
            self._solved = None

    def _row(self, company: Mapping[str, float]) -> np.ndarray:
        row = np.zeros(len(self._sums))
        row[0] = 1.0
        for kind, count in company.items():
            if (place := self._kinds.get(kind)) is not None:
                row[place] = count
        return row

    def more(self, company: Mapping[str, float]) -> tuple[float, float]:
        """Seconds that these neighbours add, and the standard error of that."""
        if self._solved is None:
            self._solved, self._news = self._solve(), 0
        slopes, inverse, variance = self._solved
        row = self._row(company)[: len(slopes)]
        row[0] = 0.0
        return float(row @ slopes), sqrt(max(0.0, variance * float(row @ inverse @ row)))

    def _solve(self) -> tuple[np.ndarray, np.ndarray, float]:
        tasks = self._products[0, 0]
        slight = 1e-6 * (1 + np.diag(self._products))
        slight[0] = 0.0
        inverse = np.linalg.pinv(self._products + np.diag(slight))
        found = inverse @ self._sums
        left = self._squares - found @ self._sums
        free = max(1.0, tasks - len(found))
        return np.maximum(found, 0.0), inverse, max(0.0, left / free)  # nobody is faster for company


@dataclass(slots=True)
class _Tasks:
    """Of one kind on one model of processor."""

    count: int = 0
    all: _Mean = field(default_factory=_Mean)
    alone: _Mean = field(default_factory=_Mean)
    undisturbed: _Mean = field(default_factory=_Mean)  # nobody memory bound beside them
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    mixes: OrderedDict[Mix, _Mean] = field(default_factory=OrderedDict)
    beside: dict[str, _Mean] = field(default_factory=dict)
    lines: _Lines = field(default_factory=_Lines)
    misses: float = 0.0
    instructions: float = 0.0
    data: float = 0.0
    busy: float = 0.0
    #: the baseline, and of how many tasks: asked for more often than it changes
    base: tuple[int, tuple[float, float, str]] | None = None

    def learn(self, seconds: float, company: Mapping[str, float], is_bound: Callable[[str], bool]) -> None:
        self.count += 1
        self.all.add(seconds, self.count)
        self.recent.append(seconds)
        if sum(company.values()) < _ALONE:
            self.alone.add(seconds, self.count)
        if sum(count for kind, count in company.items() if is_bound(kind)) < _ALONE:
            self.undisturbed.add(seconds, self.count)
        mix = _mix_of(company)
        self.mixes.setdefault(mix, _Mean()).add(seconds, self.count)
        self.mixes.move_to_end(mix)
        if len(self.mixes) > _MIXES:
            self.mixes.popitem(last=False)
        for kind, count in company.items():
            if count >= _BESIDE:
                self.beside.setdefault(kind, _Mean()).add(count, self.count)
        self.lines.add(company, seconds)

    def use(self, seconds: float, data: float | None, cache: tuple[float, float] | None) -> None:
        keep = 1 - 1 / _MEMORY
        if cache is not None:
            self.misses = self.misses * keep + cache[0]
            self.instructions = self.instructions * keep + cache[1]
        if data is not None:
            self.data = self.data * keep + data
            self.busy = self.busy * keep + seconds

    @property
    def intensity(self) -> tuple[float | None, str]:
        if self.instructions > 0:
            return self.misses / self.instructions, "counters"
        return (self.data / self.busy if self.busy > 0 else None), "bytes"

    def baseline(self) -> tuple[float, float, str]:
        """Seconds alone, the standard error, and how that is known."""
        if self.base is None or self.base[0] != self.count:
            self.base = self.count, self._find_baseline()
        return self.base[1]

    def _find_baseline(self) -> tuple[float, float, str]:
        for mean, how in (self.alone, "alone"), (self.undisturbed, "no memory-bound neighbours"):
            if round(mean.weight) >= _QUIET:
                return mean.mean, mean.stderr(self.count), how
        fastest = sorted(self.recent)[int(_FASTEST * len(self.recent))]
        return fastest, max(sqrt(self.all.variance), _SMALL) if self.count > 1 else inf, "fastest"

    def _sure_baseline(self) -> tuple[float, float]:
        """The same, and how unsure it is as what all slowdowns are measured by: the fastest are what they
        are, whatever they would take alone."""
        base, unsure, how = self.baseline()
        return base, 0.0 if how == "fastest" else unsure

    def slowdown(self, others: Mapping[str, float]) -> Slowdown:
        base, unsure = self._sure_baseline()
        mix = _mix_of(others)
        if not mix:
            return Slowdown(1.0, unsure / base, self.alone.tasks(self.count))
        seen = self.mixes.get(mix)
        if seen is not None and seen.tasks(self.count) >= _CELL:
            return self.in_mix(seen)
        more, error = self.lines.more(others)
        tasks = min((self.tasks_beside(kind) for kind, _ in mix), default=0.0)
        ratio = 1 + more / base
        if not tasks or isinf(unsure):
            return Slowdown(ratio, inf, tasks)
        return Slowdown(ratio, sqrt(error**2 + (more * unsure / base) ** 2) / base, tasks)

    def in_mix(self, seen: _Mean) -> Slowdown:
        """What was seen in one company, in terms of alone."""
        base, unsure = self._sure_baseline()
        ratio = seen.mean / base
        off = sqrt((seen.stderr(self.count) / seen.mean) ** 2 + (unsure / base) ** 2)
        return Slowdown(ratio, ratio * off, seen.tasks(self.count))

    def tasks_beside(self, kind: str) -> float:
        found = self.beside.get(kind)
        return found.tasks(self.count) if found is not None else 0.0


def _mix_of(company: Mapping[str, float]) -> Mix:
    found = ((kind, about(count)) for kind, count in company.items())
    return tuple(sorted((kind, count) for kind, count in found if count))


def about(count: float) -> int:
    """So many neighbours in whole numbers, the coarser the more there are: no mix is met twice otherwise."""
    step = 1
    while count >= _EXACT * step:
        step *= 2
    return int(count / step + 0.5) * step


@dataclass(slots=True)
class _Heard:
    """What a worker said last."""

    number: tuple[int, float]
    until: float
    running: list[tuple[str, float]]


@dataclass(slots=True)
class _NodeTasks:
    """Tasks of one node that are not learned from yet, and those that ran beside them."""

    origin: float
    cpu: str = ""
    workers: dict[str, _Heard] = field(default_factory=dict)
    pending: deque[TaskSeen] = field(default_factory=lambda: deque(maxlen=_PENDING))
    records: deque[TaskSeen] = field(default_factory=deque)
    since: float = -inf  # nothing is missing from then on

    def ready(self) -> list[TaskSeen]:
        """Those that all workers have told of everything beside them."""
        told = min((one.until for one in self.workers.values()), default=inf)
        found = [one for one in self.pending if one.stop <= told]
        if found:
            later = [one for one in self.pending if one.stop > told]
            self.pending.clear()
            self.pending.extend(later)
        return found

    def forget(self) -> None:
        """Records of what nothing runs beside any more."""
        told = min((one.until for one in self.workers.values()), default=-inf)
        starts = [one.start for one in self.pending]
        starts += [start for one in self.workers.values() for _, start in one.running]
        needed = min([told, *starts])
        self.records = deque(one for one in self.records if one.stop > needed)
        while len(self.records) > _RECORDS:
            self.since = max(self.since, self.records.popleft().stop)

    def company(self, tasks: list[TaskSeen]) -> list[dict[str, float] | None]:
        """How many of each kind ran beside each of these on the average; None if too little is known."""
        begins = np.array([max(one.start, self.since) - self.origin for one in tasks])
        ends = np.array([one.stop - self.origin for one in tasks])
        lengths = ends - begins
        whole = np.array([one.stop - one.start for one in tasks])
        known = lengths >= _COVERED * whole
        lengths = np.where(known, lengths, 1.0)
        spans: dict[str, list[tuple[float, float, float]]] = {}
        for one in self.records:
            span = one.start - self.origin, one.stop - self.origin, one.weight
            spans.setdefault(one.kind, []).append(span)
        for heard in self.workers.values():
            for kind, start in heard.running:
                spans.setdefault(kind, []).append((start - self.origin, inf, 1.0))
        found: list[dict[str, float] | None] = [{} if fine else None for fine in known]
        for kind, some in spans.items():
            starts, stops, weights = np.array(some).T
            over = _integral(starts, weights, ends) - _integral(starts, weights, begins)
            ended = np.isfinite(stops)
            stops, weights = stops[ended], weights[ended]
            over -= _integral(stops, weights, ends) - _integral(stops, weights, begins)
            for place, (one, seconds) in enumerate(zip(tasks, lengths, strict=True)):
                counts = found[place]
                if counts is not None:
                    count = over[place] / seconds - (one.weight if one.kind == kind else 0.0)
                    if count > 0.01:
                        counts[kind] = float(count)
        return found


def _integral(places: np.ndarray, weights: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Up to these times, of how much weight there is that began before."""
    order = np.argsort(places)
    places, weights = places[order], weights[order]
    number = np.searchsorted(places, at)
    total = np.concatenate(([0.0], np.cumsum(weights)))
    moment = np.concatenate(([0.0], np.cumsum(weights * places)))
    return np.asarray(total[number] * at - moment[number])


class Observations:
    """Hears what all workers of all nodes tell of their tasks, and learns who slows whom.

    ``most_kinds``: as many are remembered, the newest; ``most_learned``: tasks that are learned from when all
    workers have said one word, evenly chosen: it is the scheduler's time, some 50 us for each. Of one word it
    is no more than an eighth, and at least two.
    """

    def __init__(self, most_kinds: int = 200, most_learned: int = 192) -> None:
        self._most_kinds = most_kinds
        self._most_learned = most_learned
        self._workers = 0
        self._nodes: dict[str, _NodeTasks] = {}
        self._by_cpu: dict[str, OrderedDict[str, _Tasks]] = {}
        self._scored: deque[tuple[float, float]] = deque(maxlen=_SCORED)

    # what is heard

    def hear(self, node: str, worker: str, word: Mapping[str, Any]) -> int:
        """A worker's word (``together.worker.observer``). How many tasks were learned from; a word that was
        heard before is not heard again. Raises ``InputError`` for what is no such word."""
        try:
            heard = _Heard((word["number"], word["until"]), float(word["until"]), _running(word))
            since, cpu, seen = float(word["since"]), str(word["host"]["cpu"]), list(_ended(word))
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise InputError(f"what {worker} tells of its tasks", f"found {shown(error)}", "a word") from None
        there = self._nodes.setdefault(node, _NodeTasks(since))
        last = there.workers.get(worker)
        if last is not None and last.number == heard.number:
            return 0
        self._workers += last is None
        if last is None or since > last.until:
            there.since = max(there.since, since)  # what it ran before is not known
        there.cpu = cpu
        there.workers[worker] = heard
        there.pending.extend(seen)
        there.records.extend(seen)
        return self._learn(there, word.get("counters"))

    def forget_worker(self, node: str, worker: str) -> None:
        """It is gone; nobody waits for what it tells."""
        there = self._nodes.get(node)
        if there is not None:
            self._workers -= there.workers.pop(worker, None) is not None
            if not there.workers:
                del self._nodes[node]

    def _learn(self, there: _NodeTasks, names: Any) -> int:
        ready = there.ready()
        most = max(2, self._most_learned // max(8, self._workers))
        if len(ready) > most:
            ready = [ready[place * len(ready) // most] for place in range(most)]
        learned = 0
        for one, company in zip(ready, there.company(ready) if ready else (), strict=True):
            if company is not None:
                self._learn_one(there.cpu, one, company, names or ())
                learned += 1
        there.forget()
        return learned

    def _learn_one(self, cpu: str, one: TaskSeen, company: dict[str, float], names: Iterable[str]) -> None:
        kinds = self._by_cpu.setdefault(cpu, OrderedDict())
        found = kinds.setdefault(one.kind, _Tasks())
        kinds.move_to_end(one.kind)
        if len(kinds) > self._most_kinds:
            kinds.popitem(last=False)
        seconds = one.stop - one.start
        if found.count:
            self._scored.append((found.baseline()[0] * found.slowdown(company).ratio, seconds))
        found.learn(seconds, company, lambda kind: self._is_bound(kinds, kind))
        counts = dict(zip(names, one.counts, strict=False)) if one.counts else {}
        has_cache = counts.keys() >= {"misses", "instructions"}
        found.use(seconds, one.data, (counts["misses"], counts["instructions"]) if has_cache else None)

    @staticmethod
    def _is_bound(kinds: Mapping[str, _Tasks], kind: str) -> bool:
        """Whether it may be memory bound: unless counters say that it is not."""
        found = kinds.get(kind)
        intensity, by = found.intensity if found is not None else (None, "")
        return by != "counters" or intensity is None or intensity >= _MEMORY_BOUND

    # what is known

    @property
    def cpus(self) -> list[str]:
        """Models of processors, that of most tasks first."""
        return sorted(self._by_cpu, key=lambda cpu: -sum(one.count for one in self._by_cpu[cpu].values()))

    def kinds(self, cpu: str | None = None) -> dict[str, SeenKind]:
        """What is known of each kind, the newest last. ``cpu``: a model of processor; else that of most
        tasks."""
        return {
            kind: SeenKind(one.count, *one.baseline(), one.all.mean, one.all.variance, *one.intensity)
            for kind, one in self._on(cpu).items()
        }

    def slowdown(self, kind: str, others: Mapping[str, float], cpu: str | None = None) -> Slowdown:
        """Of a task of a kind beside so many of others, who are given without itself. From the mean of tasks
        that had just these beside them, if there are some; else linear. Of an unknown kind nothing: 1."""
        found = self._on(cpu).get(kind)
        return found.slowdown(others) if found is not None else Slowdown(1.0, inf, 0.0)

    def is_regular(self, kind: str) -> bool:
        """Whether its tasks take about as long as each other, whatever ran beside them."""
        found = self._on(None).get(kind)
        if found is None or found.count < 2:
            return False
        return found.all.variance <= (_REGULAR * found.all.mean) ** 2

    def mixes(self, kind: str, cpu: str | None = None) -> Iterator[tuple[dict[str, int], Slowdown]]:
        """Each company that tasks of a kind were seen in: how many of each kind, without the task itself."""
        found = self._on(cpu).get(kind)
        if found is not None:
            yield from ((dict(mix), found.in_mix(seen)) for mix, seen in found.mixes.items())

    def mpe(self) -> float | None:
        """Mean error of predictions relative to what was measured, in per cent (equation 2.4), of the newest
        tasks, each foreseen before it was learned from. None if there were none."""
        errors = [abs(foreseen - seconds) / seconds for foreseen, seconds in self._scored]
        return 100 * sum(errors) / len(errors) if errors else None

    def nrmse(self) -> float | None:
        """Root of the mean squared error over the range of what was measured (equation 2.5). None if all took
        the same."""
        measured = [seconds for _, seconds in self._scored]
        span = max(measured, default=0.0) - min(measured, default=0.0)
        squares = sum((foreseen - seconds) ** 2 for foreseen, seconds in self._scored)
        return sqrt(squares / len(measured)) / span if span > 0 else None

    def _on(self, cpu: str | None) -> Mapping[str, _Tasks]:
        if cpu is None and self._by_cpu:
            cpu = self.cpus[0]
        return self._by_cpu.get(cpu or "", {})


def _running(word: Mapping[str, Any]) -> list[tuple[str, float]]:
    return [(str(kind), float(start)) for kind, starts in word["running"].items() for start in starts]


def _ended(word: Mapping[str, Any]) -> Iterable[TaskSeen]:
    """Tasks that took no time, by a clock that was set perhaps, are left out."""
    ended = word.get("ended") or {}
    for kind, rows in word["tasks"].items():
        weight = max(1.0, ended.get(kind, len(rows)) / len(rows)) if rows else 1.0
        for start, stop, inputs, output, counts in rows:
            if isfinite(start) and isfinite(stop) and stop > start:
                data = None if inputs is None or output is None else float(inputs + output)
                yield TaskSeen(str(kind), float(start), float(stop), weight, data, counts)
