"""I/O lanes: each file system is read by as many tasks at once as it serves best, and the others compute."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Annotated, ClassVar

from dask_hpc.model.io_view import IoView, Kind, LaneView, Mix
from dask_hpc.model.parameter import Parameter
from dask_hpc.model.plan import LaneLimit, Next
from dask_hpc.strategies.io_balance import Balance
from dask_hpc.strategies.knee import Measured, Search, begun, needed, step

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
class IoLanes:
    """Tune by measured throughput (``knee.py``), and pair what reads with what computes.

    Throughput is reads in flight over seconds for one (Little's law), so it needs no clock but theirs.
    There is no limit at first: nothing is tried before the reads that are known make up for what a try
    may cost, so that few reads, or a file system that serves all, are not slowed down.

    Pairing is the rule of seed 002, 4.2.4: of a read and another task that are both ready, that one
    goes next with which what runs comes closest to the I/O intensity of all there is to do. Ours: jobs are
    tasks, nodes are threads, and what waits counts by its time, so that both kinds end together; the read
    then goes to the node whose own I/O intensity is least.
    """

    concern: ClassVar[str] = "io"
    name: ClassVar[str] = "io-lanes"

    limit: Annotated[
        int, Parameter("reads at once, of each file system, to begin with; 0: as many as workers take", low=0)
    ] = 0
    tune: Annotated[bool, Parameter("find the limit of each file system by measured throughput")] = True
    least: Annotated[int, Parameter("never less than so many reads at once", low=1)] = 1
    most: Annotated[int, Parameter("never more than so many reads at once; 0: no such bound", low=0)] = 0
    keep: Annotated[
        float, Parameter("share of the throughput that may be lost for fewer reads at once", low=0, high=0.5)
    ] = 0.01
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
            before = known.pop(lane.name, None) or Tuned(begun(min(self.limit or top, top)), top)
            known[lane.name] = after = self._tuned(before, lane, top)
            limit = self._limit(after)
            if limit != lane.limit:
                changes.append(LaneLimit(lane.name, limit, _reason(before.search, after.search)))
        for name in list(known)[:-_REMEMBERED]:
            del known[name]
        return changes, known

    def next_of(self, mix: Mix) -> Next:
        """The read or the other, and the node for the read."""
        reads, computes = mix.reads, mix.computes
        mean = (_time(reads) + _time(computes)) / max(1, reads.waiting + computes.waiting)
        weights = [_time(kind) / mean if mean else kind.waiting for kind in (reads, computes)]
        waiting = reads.intensity * weights[0] + computes.intensity * weights[1]
        all_ = Balance(mix.load, mix.tasks, waiting, sum(weights))
        goal = all_.workload(None)
        read, other = (all_.off(goal, kind.intensity, 1) for kind in (reads, computes))
        is_read = mix.read_is_first if read == other else read < other
        if not is_read:
            return Next(False, "", f"I/O intensity {all_.system():.2f} is not below {goal:.2f}")

        node = min(mix.nodes, key=lambda one: (Balance(one.load, one.tasks, 0.0, 0).system(), one.tasks))
        return Next(True, node.name, f"brings I/O intensity {all_.system():.2f} closer to {goal:.2f}")

    def _tuned(self, tuned: Tuned, lane: LaneView, top: int) -> Tuned:
        if tuned.top != top:  # the cluster is of another size
            was_free = tuned.search.best >= tuned.top
            tuned = replace(tuned, search=begun(top if was_free else min(tuned.search.best, top)), top=top)
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
            search = search.back()
        if search.level != tuned.search.level:
            tuned = _anew(tuned)
        return replace(tuned, search=search)

    def _limit(self, tuned: Tuned) -> int | None:
        """As many as there are threads is no limit."""
        return None if tuned.search.level >= tuned.top and not self.most else tuned.search.level


def _anew(tuned: Tuned) -> Tuned:
    """The limit is another: sums begin again."""
    return replace(tuned, tasks=0, company=0.0, seconds=0.0, squares=0.0)


def _window(tuned: Tuned, lane: LaneView, done: int) -> Measured | None:
    """What was measured since the last look, once it is enough: more, the more the reads differ."""
    reads, seconds = lane.tasks - tuned.tasks, lane.seconds - tuned.seconds
    if not reads or seconds <= 0:
        return None
    mean, rate = seconds / reads, (lane.company - tuned.company) / seconds
    enough = needed(tuned.search, rate)
    variance = max(0.0, (lane.squares - tuned.squares) / reads - mean * mean)
    is_exact = sqrt(variance / reads) <= _EXACT * mean
    if reads < enough * (1 if is_exact else _PATIENCE):
        return None
    return Measured(tuned.search.level, reads, rate, done, lane.waiting)


def _time(kind: Kind) -> float:
    return kind.waiting * kind.seconds


def _reason(before: Search, after: Search) -> str:
    rates = ", ".join(f"{after.rates[level]:.3g}/s with {level}" for level in sorted(after.rates))
    if after.is_trying:
        return f"tries whether {after.level} serve as well: {rates}" if rates else "tries fewer"
    if before.is_trying and after.best == before.best:
        return f"{after.best} at once are served better than {before.level}: {rates}"
    return f"{after.best} at once are served best: {rates}" if rates else f"{after.best} to begin with"
