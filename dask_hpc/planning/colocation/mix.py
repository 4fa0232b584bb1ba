"""How many tasks of each kind to run at once on a node, so that all of them have ended soonest.

Tasks of one kind may slow each other so much that fewer of them at once get more done, the more so beside
tasks of another kind that need what they leave free. Work is taken as a fluid: while a mix runs, each kind
gets done at the rate of so many of its tasks, each as slow as the others make it. What remains is a linear
program: for how long to run which mix. Its solution has at most as many phases as there are kinds, and no
other sequence of mixes is faster. (Ours: the seed 003 places tasks with deadlines, and never leaves out what
it could run.)
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from math import comb, inf, isfinite, isnan

import numpy as np

from dask_hpc.model.errors import InputError, insist, is_number, shown

#: how many times as long a task of a kind takes beside these others, by how many there are of each kind
MixSlowdown = Callable[[str, Mapping[str, int]], float]

_ALL = 700  # mixes: where there are no more, all are looked at
_PIVOTS = 100
_GAIN = 1e-9  # below which a mix is no better than another


@dataclass(frozen=True, slots=True)
class MixPhase:
    """So many tasks of each kind run at once for some time; what is not named does not run."""

    mix: Mapping[str, int]
    seconds: float


@dataclass(frozen=True, slots=True)
class MixPlan:
    """What to run at once, one phase after the other, and what that is worth."""

    phases: tuple[MixPhase, ...]
    #: as many as there are cores, of the first kind as long as there are some, then of the next one
    plain: tuple[MixPhase, ...]

    @property
    def mix(self) -> Mapping[str, int]:
        """What to run at once now."""
        return self.phases[0].mix if self.phases else {}

    @property
    def seconds(self) -> float:
        """Until all work has ended."""
        return sum(phase.seconds for phase in self.phases)

    @property
    def plain_seconds(self) -> float:
        """The same for plain packing."""
        return sum(phase.seconds for phase in self.plain)

    @property
    def gain(self) -> float:
        """The share of the time of plain packing that is saved."""
        return 1 - self.seconds / self.plain_seconds if self.plain_seconds else 0.0


def best_mix(
    counts: Mapping[str, float], seconds: Mapping[str, float], slowdown: MixSlowdown, cores: int
) -> MixPlan:
    """What to run at once on a node of so many ``cores`` until so many tasks of each kind (``counts``) have
    ended, each of which takes so many ``seconds`` alone.

    ``slowdown`` is asked how much longer a task of a kind takes beside others, who are given without itself;
    less than 1 is taken for 1. The order of kinds is that of plain packing, nothing else. Where there are too
    many mixes to look at all of them, those near good ones are looked at, and those of plain packing.
    """
    fine = isinstance(cores, int) and not isinstance(cores, bool) and cores >= 1
    insist(fine, "cores", cores, "a whole number, 1 or more")
    kinds = _kinds_left(counts, seconds)
    if not kinds:
        return MixPlan((), ())
    work = np.array([float(counts[kind]) for kind in kinds])
    mixes = _Mixes(kinds, [seconds[kind] for kind in kinds], work, slowdown, cores)
    plain = list(_plain(mixes, work))
    found = _shortest(mixes, work)
    # what has most kinds comes first: who comes later still finds somebody to run beside
    found.sort(key=lambda one: (-sum(map(bool, one[0])), -one[1]))
    return MixPlan(tuple(mixes.phase(*one) for one in found), tuple(mixes.phase(*one) for one in plain))


def _kinds_left(counts: Mapping[str, float], seconds: Mapping[str, float]) -> list[str]:
    """Kinds of which there is something to do."""
    for kind, count in counts.items():
        insist(is_number(count, 0, 1e15), f"counts: {kind}", count, "a number, 0 or more")
        if kind not in seconds:
            raise InputError("seconds", f"found none of {shown(kind)}", "seconds of each kind")
        takes = seconds[kind]
        insist(is_number(takes, 0, 1e15) and takes > 0, f"seconds: {kind}", takes, "more than 0 seconds")
    return [kind for kind, count in counts.items() if count > 0]


_Mix = tuple[int, ...]


class _Mixes:
    """What gets done per second by each mix, as far as anybody asked."""

    def __init__(
        self,
        kinds: Sequence[str],
        seconds: Sequence[float],
        work: np.ndarray,
        slowdown: MixSlowdown,
        cores: int,
    ) -> None:
        self.kinds = kinds
        self.cores = cores
        #: no more of a kind can run at once than there are
        self.most = [min(cores, int(np.ceil(count))) for count in work]
        self._seconds = seconds
        self._slowdown = slowdown
        self._rates: dict[_Mix, np.ndarray] = {}

    def rates(self, mix: _Mix) -> np.ndarray:
        """Tasks of each kind that end per second."""
        found = self._rates.get(mix)
        if found is None:
            found = self._rates[mix] = np.array(list(self._asked(mix)))
        return found

    def _asked(self, mix: _Mix) -> Iterator[float]:
        together = {kind: count for kind, count in zip(self.kinds, mix, strict=True) if count}
        for kind, count, seconds in zip(self.kinds, mix, self._seconds, strict=True):
            if not count:
                yield 0.0
                continue
            others = together | {kind: count - 1}
            if count == 1:
                del others[kind]
            slower = self._slowdown(kind, others)
            if isnan(slower):
                found = f"found nan of {shown(kind)} beside {shown(others)}"
                raise InputError("slowdown", found, "1 or more")
            yield count / (seconds * max(1.0, slower))

    def phase(self, mix: _Mix, seconds: float) -> MixPhase:
        return MixPhase({kind: count for kind, count in zip(self.kinds, mix, strict=True) if count}, seconds)

    def all_known(self) -> list[_Mix]:
        return list(self._rates)

    def look_at_all(self) -> bool:
        """Whether there are few enough of them."""
        if comb(self.cores + len(self.kinds), len(self.kinds)) > _ALL:
            return False
        for mix in self._all(0, self.cores):
            self.rates(mix)
        return True

    def _all(self, first: int, free: int) -> Iterator[_Mix]:
        if first == len(self.kinds):
            yield ()
            return
        for count in range(min(free, self.most[first]) + 1):
            for rest in self._all(first + 1, free - count):
                yield (count, *rest)

    def around(self, mix: _Mix, step: int) -> Iterator[_Mix]:
        """Mixes with about so many tasks more or less of a kind, or of one kind in place of another."""
        free = self.cores - sum(mix)
        for kind, count in enumerate(mix):
            if more := min(step, free, self.most[kind] - count):
                yield _changed(mix, kind, more)
            if less := min(step, count):
                yield _changed(mix, kind, -less)
        for one, other in permutations(range(len(mix)), 2):
            if moved := min(step, mix[one], self.most[other] - mix[other]):
                yield _changed(_changed(mix, one, -moved), other, moved)


def _changed(mix: _Mix, kind: int, by: int) -> _Mix:
    return (*mix[:kind], mix[kind] + by, *mix[kind + 1 :])


def _plain(mixes: _Mixes, work: np.ndarray) -> Iterator[tuple[_Mix, float]]:
    """As Dask packs: every core has something to do as long as there is something, in the order of kinds."""
    left = work.copy()
    while left.any():
        free, mix = mixes.cores, []
        for count in left:
            mix.append(min(free, int(np.ceil(count))))
            free -= mix[-1]
        rates = mixes.rates(tuple(mix))
        running = rates > 0
        if not running.any():
            raise InputError("slowdown", "found inf of everything", "finite ones")
        ends = left[running] / rates[running]
        until = float(ends.min())
        yield tuple(mix), until
        left -= rates * until
        left[np.flatnonzero(running)[ends <= until * (1 + _GAIN)]] = 0.0


def _shortest(mixes: _Mixes, work: np.ndarray) -> list[tuple[_Mix, float]]:
    """Mixes and how long to run each, so that all work is done in the least time: the simplex method, with
    mixes that are looked for as they are needed (column generation), and all that were ever looked at."""
    basis = [_alone(mixes, kind) for kind in range(len(work))]
    complete = mixes.look_at_all()
    for _ in range(_PIVOTS):
        matrix = np.array([mixes.rates(mix) for mix in basis]).T
        prices = np.linalg.solve(matrix.T, np.ones(len(work)))
        times = np.linalg.solve(matrix, work)
        enters = _worth_most(mixes, prices, basis, complete)
        if enters is None:
            break
        shrinks = np.linalg.solve(matrix, mixes.rates(enters))
        steps = np.where(shrinks > _GAIN, np.maximum(times, 0) / np.maximum(shrinks, _GAIN), inf)
        leaves = int(steps.argmin())
        if not isfinite(steps[leaves]):
            break
        basis[leaves] = enters
    return [(mix, float(time)) for mix, time in zip(basis, times, strict=True) if time > _GAIN * times.sum()]


def _alone(mixes: _Mixes, kind: int) -> _Mix:
    """As many of one kind, and nothing else, as gets most of it done."""
    ways = [tuple(count if one == kind else 0 for one in range(len(mixes.kinds)))
            for count in range(1, mixes.most[kind] + 1)]  # fmt: skip
    return max(ways, key=lambda mix: float(mixes.rates(mix)[kind]))


def _worth_most(mixes: _Mixes, prices: np.ndarray, basis: Sequence[_Mix], complete: bool) -> _Mix | None:
    """The mix whose work of a second would take longest by the mixes there are, if longer than a second."""
    known = mixes.all_known()
    worth = np.array([mixes.rates(mix) for mix in known]) @ prices
    best, value = known[int(worth.argmax())], float(worth.max())
    if not complete and value <= 1 + _GAIN:
        climbed = [_climb(mixes, mix, prices) for mix in (best, *basis)]
        best, value = max(climbed, key=lambda one: one[1])
    return best if value > 1 + _GAIN and best not in basis else None


def _climb(mixes: _Mixes, mix: _Mix, prices: np.ndarray) -> tuple[_Mix, float]:
    """From a mix to better ones nearby, by smaller and smaller steps."""
    value = float(mixes.rates(mix) @ prices)
    step = max(1, mixes.cores // 4)
    while step:
        best = max(mixes.around(mix, step), key=lambda one: float(mixes.rates(one) @ prices), default=mix)
        if (found := float(mixes.rates(best) @ prices)) > value + _GAIN:
            mix, value = best, found
        else:
            step //= 2
    return mix, value
