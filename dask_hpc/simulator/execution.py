"""How a running job proceeds: at a steady pace, at another one in each phase, or through the tasks of its
application.

The engine asks ``proceed`` what comes next and comes back when that is over.
"""

from collections.abc import Iterator
from math import floor, inf
from typing import NamedTuple

from dask_hpc.model.speedup import PhasedSpeedup
from dask_hpc.simulator.application import Application, Task, rate
from dask_hpc.simulator.platform import Platform
from dask_hpc.simulator.workload import Arrival


class Wait(NamedTuple):
    """Nothing happens for so many seconds."""

    seconds: float


class Transfer(NamedTuple):
    """So many nodes read or write so many bytes each."""

    nodes: int
    bytes_per_node: float
    is_read: bool = False


class Ask(NamedTuple):
    """An evolving job asks for so many nodes."""

    nodes: int


class Point(NamedTuple):
    """A scheduling point: the job can change its size here."""


class Turn(NamedTuple):
    """A phase is over: from here on it communicates more, or less, than before."""


Step = Wait | Transfer | Ask | Point | Turn


class Execution:
    """A job at work, whatever it does."""

    __slots__ = ("nodes",)

    #: how many times as long as on a network of its own it takes to communicate
    stretch = 1.0

    def slow_down(self, now: float, stretch: float) -> float | None:
        """From now on it takes so many times as long to communicate. Seconds until it is to be asked what
        comes next, if that has changed."""
        return None

    def begin(self, now: float, nodes: int) -> None:
        """Go on from ``now`` on so many nodes."""
        self.nodes = nodes

    def stand_still(self, now: float) -> None:
        """Stop working, to go on with ``begin``; those that have steps only stop between them."""

    def proceed(self, now: float) -> Step | None:
        """What comes next; None at the end."""
        raise NotImplementedError

    def done(self, now: float) -> float:
        """The share of the work that is done."""
        raise NotImplementedError

    def reached(self, now: float) -> float:
        """The share that would be kept if it were kept now, between two steps."""
        return self.done(now)

    def saved(self, now: float, interval: float) -> float:
        """The share that the last checkpoint holds, if there is one every ``interval``."""
        return self.done(now) if interval else 0.0

    def mtct(self) -> float | None:
        """Communication over compute time, if it is known."""
        return None

    def left(self, now: float) -> float:
        """Seconds until the end as it goes now; without end if nobody can say."""
        return inf


class Steady(Execution):
    """Work that proceeds at a pace that the speed-up model knows for each size.

    Of a job that says which share of its time goes into messages only that share takes longer on a network
    that others use; of one that does not say it all of its time, as in seed 003, section 7.3.1.
    """

    __slots__ = ("_arrival", "_asked", "_done", "_duration", "_longer", "_since", "stretch")

    def __init__(self, arrival: Arrival, done: float = 0.0) -> None:
        self._arrival = arrival
        self._done = done
        self._since = 0.0
        self.nodes = 0
        #: seconds of all its work on these nodes
        self._duration = inf
        self.stretch = self._longer = 1.0
        self._asked = sum(share <= done for share, _ in arrival.requests)

    def begin(self, now: float, nodes: int) -> None:
        self._since = now
        if nodes != self.nodes:
            self.nodes, self._duration = nodes, self._on(nodes)

    def stand_still(self, now: float) -> None:
        self._done = self.done(now)
        self._since = inf

    def slow_down(self, now: float, stretch: float) -> float | None:
        self._done = self.done(now)
        share = self._arrival.job.messages or 1.0
        self.stretch, self._longer = stretch, 1.0 + share * (stretch - 1.0)
        if self.nodes:
            self._duration = self._on(self.nodes)
        if self._since > now:  # it stands still, or has not begun
            return None
        self._since = now
        return 0.0

    def wait(self, now: float) -> float:
        """Seconds for which it need not be asked what comes next."""
        if self._asked < len(self._arrival.requests):
            return 0.0
        left = (1.0 - self.done(now)) * self._duration
        return left if left > 1e-9 * max(now, 1.0) else 0.0  # as in ``proceed``

    @property
    def stands_still(self) -> bool:
        """Whether it was stopped, and not begun again."""
        return self._since == inf

    def proceed(self, now: float) -> Step | None:
        self._done, self._since = self.done(now), now
        duration = self._duration
        nothing = 1e-9 * max(now, 1.0)  # a rounding error of the clock is not work left to do
        requests = self._arrival.requests
        if self._asked < len(requests):
            share, nodes = requests[self._asked]
            wait = (share - self._done) * duration
            if wait > nothing:
                return Wait(wait)
            self._asked += 1
            return Ask(nodes)
        left = (1.0 - self._done) * duration
        return Wait(left) if left > nothing else None

    def done(self, now: float) -> float:
        if now <= self._since or not self.nodes:
            return self._done
        duration = self._duration
        return min(1.0, self._done + (now - self._since) / duration) if duration else 1.0

    def saved(self, now: float, interval: float) -> float:
        runtime = self._arrival.runtime
        if not interval or not runtime:
            return 0.0
        return floor(self.done(now) * runtime / interval) * interval / runtime

    def mtct(self) -> float | None:
        return self._arrival.speedup.mtct(self.nodes)

    def left(self, now: float) -> float:
        return (1.0 - self.done(now)) * self._duration

    def _on(self, nodes: int) -> float:
        """Seconds of all its work on so many nodes."""
        arrival, speedup = self._arrival, self._arrival.speedup
        runtime = arrival.runtime * self._longer
        if nodes == arrival.job.nodes:
            return runtime
        return runtime * speedup.factor(arrival.job.nodes) / speedup.factor(nodes)


class Uneven(Steady):
    """Work that is steady within each phase of its speed-up, and followed from one to the next exactly."""

    __slots__ = ("_alone", "_ends", "_phase")

    def __init__(self, arrival: Arrival, speedup: PhasedSpeedup, done: float = 0.0) -> None:
        super().__init__(arrival, done)
        #: seconds of all its work on one node
        self._alone = arrival.runtime * speedup.factor(arrival.job.nodes)
        #: where each phase ends, and its law; the one at hand
        self._ends = speedup.ends
        self._phase = sum(end <= done for end, _ in self._ends[:-1])

    def proceed(self, now: float) -> Step | None:
        self._done, self._since = self.done(now), now
        nothing = 1e-9 * max(now, 1.0)
        end, law = self._ends[self._phase]
        requests = self._arrival.requests
        share, nodes = requests[self._asked] if self._asked < len(requests) else (inf, 0)
        wait = (min(share, end) - self._done) * self._alone * self._longer / law.factor(self.nodes)
        if wait > nothing:
            return Wait(wait)
        if share <= end:
            self._asked += 1
            return Ask(nodes)
        if end == 1.0:
            return None
        self._done = max(self._done, end)
        self._phase += 1
        return Turn()

    def wait(self, now: float) -> float:
        return 0.0

    def done(self, now: float) -> float:
        if now <= self._since or not self.nodes:
            return self._done
        left, done = now - self._since, self._done
        for end, law in self._ends:
            whole = self._alone * self._longer / law.factor(self.nodes)
            if left < (end - done) * whole:
                return done + left / whole
            if end > done:
                left -= (end - done) * whole
                done = end
        return 1.0

    def mtct(self) -> float | None:
        return self._ends[self._phase][1].mtct(self.nodes)


def steady(arrival: Arrival, done: float = 0.0) -> Steady:
    """What a job without an application does from this share of its work on."""
    speedup = arrival.speedup
    return Uneven(arrival, speedup, done) if isinstance(speedup, PhasedSpeedup) else Steady(arrival, done)


class Phased(Execution):
    """An application's tasks, one after the other, evaluated for the size at hand."""

    def __init__(self, application: Application, platform: Platform, done: float = 0.0) -> None:
        self._application = application
        self._platform = platform
        self.nodes = 0
        #: after a resize, before the next iteration: tasks, and on how many nodes
        self._extra: list[tuple[Task, int]] = []
        #: seconds of computing so far, and of everything else
        self._computed = self._other = 0.0
        self._iterations = sum(phase.iterations for phase in application.phases)
        #: iterations ended so far
        self._rounds = round(done * self._iterations)
        #: when it began, and with how many
        self._begun = (0.0, self._rounds)
        #: whether the task at hand is its iteration's last
        self._is_last = False
        self.stretch = 1.0
        #: until when it communicates; it does not, if that is over
        self._communicates_until = -inf
        self._now = 0.0
        self._steps = self._run()

    def begin(self, now: float, nodes: int) -> None:
        if self.nodes:
            self._extra = [(task, nodes) for task in self._application.on_resize]
            if nodes > self.nodes:
                self._extra += [(task, nodes - self.nodes) for task in self._application.on_expansion]
        else:
            self._begun = (now, self._rounds)
        self.nodes = nodes

    def stand_still(self, now: float) -> None:
        self._communicates_until = -inf

    def slow_down(self, now: float, stretch: float) -> float | None:
        before, self.stretch = self.stretch, stretch
        left = self._communicates_until - now
        if left <= 0:
            return None
        longer = left * stretch / before
        self._other += longer - left
        self._communicates_until = now + longer
        return longer

    def proceed(self, now: float) -> Step | None:
        self._now, self._communicates_until = now, -inf
        return next(self._steps, None)

    def done(self, now: float) -> float:
        return self._rounds / self._iterations if self._iterations else 1.0

    def reached(self, now: float) -> float:
        return (self._rounds + self._is_last) / self._iterations if self._iterations else 1.0

    def mtct(self) -> float | None:
        return self._other / self._computed if self._computed else None

    def left(self, now: float) -> float:
        """As the program itself knows it: so many iterations as long as those so far."""
        since, first = self._begun
        pace = (now - since) / (self._rounds - first) if self._rounds > first else inf
        return (self._iterations - self._rounds) * pace if self._iterations > self._rounds else 0.0

    def _run(self) -> Iterator[Step]:
        for task in self._application.on_start:
            yield from self._step(task, self.nodes)
        skipped, first = self._rounds, True
        for phase in self._application.phases:
            if skipped >= phase.iterations:
                skipped -= phase.iterations
                continue
            for tasks, request in phase.rounds(skipped):
                if request is not None:
                    yield Ask(int(request(self.nodes)))
                if phase.scheduling_point and not first:
                    yield Point()
                first = False
                while self._extra:
                    yield from self._step(*self._extra.pop(0))
                for place, task in enumerate(tasks, 1):
                    self._is_last = place == len(tasks)
                    yield from self._step(task, self.nodes)
                self._is_last = False
                self._rounds += 1
            skipped = 0

    def _step(self, task: Task, nodes: int) -> Iterator[Step]:
        amount = max(0.0, task.amount(nodes))
        platform = self._platform
        wait = task.wait(nodes, amount)
        if task.kind in ("read", "write"):
            if wait:
                yield Wait(wait)
            yield Transfer(task.busy(nodes), amount, task.kind == "read")
            return
        seconds = wait + amount / rate(task.kind, platform)
        if task.kind == "communicate":
            seconds *= self.stretch
            self._communicates_until = self._now + seconds
        if task.kind == "compute":
            self._computed += seconds
        else:
            self._other += seconds
        yield Wait(seconds)
