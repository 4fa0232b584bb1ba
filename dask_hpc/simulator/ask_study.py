"""The same work on a busy simulated queue, asked for in two ways: fixed walltimes, or what fits.

The work is malleable: units share it, and go when it is done. Both ways may have as many units at once, and
may ask for as many node-seconds in all; what is withdrawn, or given back before it starts, is not counted.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Literal

from dask_hpc.planning.asks.calibration import PredictedWait
from dask_hpc.planning.asks.line import WaitingAsk
from dask_hpc.planning.asks.shapes import AskShape, WantedWork
from dask_hpc.planning.asks.watch import AskWatch
from dask_hpc.simulator.batch_queue import PARTITION, SimulatedBatchQueue
from dask_hpc.simulator.workload import Arrival

How = Literal["fit", "fixed"]


@dataclass(frozen=True, slots=True)
class AskedWork:
    """What is to be done: node-seconds, units at most, seconds of each unit in which nothing is done, and the
    walltime that people would ask for."""

    seconds: float
    most: int
    overhead: float = 300.0
    usual: float = 28_800.0
    #: between two looks at the queue
    poll: float = 120.0

    @property
    def fixed(self) -> int:
        """How many of the usual requests it takes."""
        return ceil(self.seconds / (self.usual - self.overhead))


@dataclass(slots=True)
class AskOutcome:
    """What came of it, in seconds since the work was there."""

    #: of each unit that started: when it was asked for, when it started, how long it was there
    units: list[tuple[float, float, float]] = field(default_factory=list)
    done: float = inf
    withdrawn: int = 0
    #: predictions for units, and how long they waited
    checked: list[tuple[PredictedWait, float]] = field(default_factory=list)

    @property
    def first(self) -> float:
        """Until somebody works."""
        return min((start for _, start, _ in self.units), default=inf)

    @property
    def wait(self) -> float:
        """In the queue, of each node-second that was had: the mean."""
        paid = sum(span for _, _, span in self.units)
        return sum((start - asked) * span for asked, start, span in self.units) / paid if paid else inf

    @property
    def node_seconds(self) -> float:
        """Paid for."""
        return sum(span for _, _, span in self.units)


def ask_for(
    work: AskedWork,
    how: How,
    nodes: int,
    background: Iterable[Arrival],
    *,
    begin: float,
    policy: str = "conservative-backfill",
    patience: float = 30 * 86_400.0,
) -> AskOutcome:
    """Submit this work to a queue of so many nodes that has been in use since time 0."""
    queue = SimulatedBatchQueue(nodes, background, policy)
    watch = AskWatch(AskShape(work.usual, PARTITION), latency=0.0)
    # who asks knows the queue: he has looked at it for a while
    for look in range(int(begin // (10 * work.poll))):
        queue.advance(look * 10 * work.poll)
        if how == "fit" and look * 10 * work.poll > begin / 2:
            watch.decide(queue.view(), (), 0, WantedWork(0.0, 1))
    queue.advance(begin)
    player = _Player(work, how, queue, watch)
    while player.left > 0 and queue.now < begin + patience:
        player.look()
        queue.advance(queue.now + work.poll)
        player.work()
    return player.outcome()


class _Player:
    """Whoever has the work done."""

    def __init__(self, work: AskedWork, how: How, queue: SimulatedBatchQueue, watch: AskWatch) -> None:
        self._work, self._how, self._queue, self._watch = work, how, queue, watch
        self.left = work.seconds
        self._begin = queue.now
        self._asks: dict[str, WaitingAsk] = {}
        self._expected: dict[str, PredictedWait] = {}
        self._ended: dict[str, float] = {}
        self._budget = work.fixed * work.usual
        self._outcome = AskOutcome()

    def look(self) -> None:
        """Ask for what is missing."""
        waiting = [ask for name, ask in self._asks.items() if name not in self._queue.started]
        running = [name for name in self._alive() if name in self._queue.started]
        lasting = [name for name in running if not self._is_ending(name)]
        if self._how == "fixed":
            if not self._asks:
                self._submit([self._watch.usual] * min(self._work.most, self._work.fixed), ())
            return
        there = sum(max(0.0, self._useful_end(name) - self._queue.now) for name in running)
        missing = max(self.left - there, 0.0)
        submit = self._work.most - len(lasting) - len(waiting) if missing else 0
        wanted = WantedWork(missing, self._work.most, self._work.overhead, 2 * self._work.overhead)
        if not submit and not waiting:
            return
        plan = self._watch.decide(self._queue.view(), waiting, submit, wanted)
        for name in plan.withdraw:
            self._queue.withdraw(name)
            self._budget += self._asks.pop(name).shape.walltime
            self._outcome.withdrawn += 1
        self._submit(plan.new, plan.expected_new)

    def _submit(self, shapes: Sequence[AskShape], expected: Sequence[PredictedWait]) -> None:
        for place, shape in enumerate(shapes):
            name = f"unit-{len(self._asks)}-{self._outcome.withdrawn}"
            self._queue.submit(name, shape.nodes, shape.walltime)
            is_filler = bool(expected) and expected[place].is_none
            self._asks[name] = WaitingAsk(name, shape, self._queue.now, name, is_filler)
            self._budget -= shape.walltime
            if expected:
                self._expected[name] = expected[place]
                self._watch.asked(name, self._queue.now, expected[place])

    def _alive(self) -> list[str]:
        return [name for name in self._asks if self._queue.ended.get(name, inf) > self._queue.now]

    def _is_ending(self, name: str) -> bool:
        """Whether it is time for a successor: as long before its end as units lately waited, as ``Demand``
        has it."""
        started = list(self._queue.started.items())[-5:]
        lead = max(start - self._asks[one].asked for one, start in started)
        life = self._asks[name].shape.walltime
        return self._useful_end(name) - self._queue.now <= min(lead, life / 2)

    def _useful_end(self, name: str) -> float:
        return self._queue.started[name] + self._asks[name].shape.walltime

    def work(self) -> None:
        """What the units did since the last look; they go when nothing is left."""
        now, before = self._queue.now, self._queue.now - self._work.poll
        done = 0.0
        for name, start in self._queue.started.items():
            begin, end = start + self._work.overhead, min(self._useful_end(name), now)
            done += max(0.0, end - max(begin, before))
        self.left -= done
        if self.left <= 0:
            self._outcome.done = now - self._begin
            for name in self._alive():
                self._queue.withdraw(name)

    def outcome(self) -> AskOutcome:
        """What came of it."""
        found, queue = self._outcome, self._queue
        for name, start in queue.started.items():
            asked = self._asks[name].asked
            found.units.append((asked - self._begin, start - self._begin, queue.ended[name] - start))
            if name in self._expected:
                found.checked.append((self._expected[name], start - asked))
        return found
