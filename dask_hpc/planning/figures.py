"""What is said of a run in figures: definitions that the live cluster and the simulator share.

Definitions of single jobs take numbers, or arrays with a number for each job. ``RunFigures`` is for a body
that goes on for ever: every event costs it the same, however many jobs there were.
"""

from dataclasses import dataclass, field
from math import inf
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

#: seconds; jobs shorter than this do not dominate the slowdown
SLOWDOWN_THRESHOLD = 10.0

#: seconds of one job, or of each of many
Seconds = TypeVar("Seconds", float, NDArray[np.float64])


def waiting(submitted: Seconds, started: Seconds) -> Seconds:
    """First start minus submission."""
    return started - submitted


def response(submitted: Seconds, ended: Seconds) -> Seconds:
    """End minus submission (flow)."""
    return ended - submitted


def bounded_slowdown(response: Seconds, runtime: Seconds) -> Seconds:
    """Response over runtime, short runtimes counted as ``SLOWDOWN_THRESHOLD``, at least 1."""
    found: Any = np.maximum(response / np.maximum(runtime, SLOWDOWN_THRESHOLD), 1.0)
    return found


def utilisation(used: float, available: float) -> float:
    """Node-seconds in use over node-seconds there were; 0 if there were none."""
    return used / available if available else 0.0


@dataclass(slots=True)
class Amounts:
    """Values that came one after the other: how many, the last, their mean, the largest."""

    count: int = 0
    total: float = 0.0
    last: float | None = None
    largest: float | None = None

    def add(self, value: float) -> None:
        """One more."""
        self.count += 1
        self.total += value
        self._has(value)

    def correct(self, before: float, value: float) -> None:
        """One that is known is not ``before`` but this; it counts as the last."""
        self.total += value - before
        self._has(value)

    def take_back(self, value: float) -> None:
        """One that is known does not count. It may stay the largest: who takes back adds a larger one."""
        self.count -= 1
        self.total -= value

    @property
    def mean(self) -> float | None:
        """None of nothing."""
        return self.total / self.count if self.count else None

    def _has(self, value: float) -> None:
        self.last = value
        self.largest = value if self.largest is None else max(self.largest, value)


@dataclass(slots=True)
class ResizePhases:
    """One change of the size of a job, and what its phases take.

    ``decision``: from the event that a decision follows until its plan is carried out: new work of the job
    goes to the nodes it is to have, and to no others. ``window``: its program adapts itself, if it listens.
    ``drain``: until nothing of it runs on nodes that it gives up. ``move``: its results go where they are to
    be; a job that has grown works meanwhile, and the quiet moment that data waits for before it spreads is in
    no phase.
    """

    before: int
    after: int
    decision: float = 0.0
    window: float = 0.0
    drain: float = 0.0
    move: float = 0.0
    #: when the phase under way began, and whether none is any more
    mark: float = 0.0
    is_over: bool = False

    def ends(self, phase: str, now: float) -> None:
        """The phase under way is over."""
        setattr(self, phase, getattr(self, phase) + now - self.mark)
        self.mark = now

    @property
    def direction(self) -> str:
        """``grow`` or ``shrink``."""
        return "grow" if self.after > self.before else "shrink"

    @property
    def total(self) -> float:
        """All its phases."""
        return self.decision + self.window + self.drain + self.move

    def seconds(self) -> dict[str, float]:
        """Of every phase, and of all."""
        return {phase: float(getattr(self, phase)) for phase in PHASES}


PHASES = ("decision", "window", "drain", "move", "total")


@dataclass(slots=True)
class JobFigures:
    """What is remembered of one job."""

    submitted: float
    #: the nodes it asked for
    asks: int
    started: float | None = None
    ended: float | None = None
    has_failed: bool = False
    #: it holds now
    nodes: int = 0
    #: what it used until it last had other nodes, and when that was
    used: float = 0.0
    at: float = 0.0
    #: its last change of size, perhaps under way
    adaptation: ResizePhases | None = None

    def node_seconds(self, now: float) -> float:
        """What it has used so far."""
        return self.used + self.nodes * max(0.0, now - self.at)

    @property
    def waited(self) -> float | None:
        """None of one that has not started."""
        return None if self.started is None else waiting(self.submitted, self.started)

    @property
    def response(self) -> float | None:
        """None of one that has not ended, or never ran."""
        return None if self.ended is None else response(self.submitted, self.ended)

    @property
    def bounded_slowdown(self) -> float | None:
        """None of one that has not ended, or never ran."""
        if self.started is None or self.ended is None:
            return None
        return float(bounded_slowdown(response(self.submitted, self.ended), self.ended - self.started))


@dataclass(slots=True)
class RunFigures:
    """Of a body that is told of every event. Times never go back. Jobs that ran and ended count, as in the
    simulator's metrics; utilisation is of the time from the first submission to now."""

    #: nodes that are there now, and those of them that jobs hold
    there: int = 0
    held: int = 0
    since: float | None = None
    last_end: float = -inf
    #: node-seconds since the first submission
    available: float = 0.0
    used: float = 0.0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    wait: Amounts = field(default_factory=Amounts)
    response: Amounts = field(default_factory=Amounts)
    slowdown: Amounts = field(default_factory=Amounts)
    #: response of each node that was asked for
    _weighted: float = 0.0
    _asked: int = 0
    _at: float = 0.0

    def look(self, now: float) -> None:
        """Nodes were there, and held, until now."""
        if self.since is not None and now > self._at:
            self.available += self.there * (now - self._at)
            self.used += self.held * (now - self._at)
            self._at = now

    def submitted(self, now: float) -> None:
        """A job comes."""
        if self.since is None:
            self.since = self._at = now

    def nodes(self, there: int, now: float) -> None:
        """So many nodes are there from now on."""
        self.look(now)
        self.there = there

    def holds(self, job: JobFigures, nodes: int, now: float) -> None:
        """A job holds so many nodes from now on. With the first it starts."""
        self.look(now)
        self.held += nodes - job.nodes
        job.used, job.at, job.nodes = job.node_seconds(now), now, nodes
        if nodes and job.started is None:
            job.started = now

    def ends(self, job: JobFigures, now: float, is_cancelled: bool = False, has_failed: bool = False) -> None:
        """A job is over and holds nothing."""
        self.holds(job, 0, now)
        if is_cancelled:
            self.cancelled += 1
        if job.started is None:
            return
        job.ended = self.last_end = now
        if not is_cancelled:
            self._count(job, has_failed, 1)
        for amounts, value in self._values(job):
            amounts.add(value)
        self._weigh(job, 1)

    def ended_otherwise(self, job: JobFigures, has_failed: bool) -> None:
        """It is known to have failed now, or not to have."""
        if job.ended is not None and has_failed != job.has_failed:
            self._count(job, job.has_failed, -1)
            self._count(job, has_failed, 1)

    def goes_on(self, job: JobFigures) -> None:
        """A job that had ended by itself has not: it will have when it ends again."""
        if job.ended is None:
            return
        self._count(job, job.has_failed, -1)
        for amounts, value in self._values(job):
            amounts.take_back(value)
        self._weigh(job, -1)
        job.ended = None

    def as_dict(self, now: float) -> dict[str, float | None]:
        """By the names of the simulator's metrics; None where no job has ended yet."""
        self.look(now)
        ended = self.wait.count
        return {
            "since": self.since,
            "utilisation": utilisation(self.used, self.available),
            "node_seconds_used": self.used,
            "node_seconds": self.available,
            "makespan": self.last_end - self.since if ended and self.since is not None else None,
            "mean_wait": self.wait.mean,
            "max_wait": self.wait.largest if ended else None,
            "mean_response": self.response.mean,
            "max_response": self.response.largest if ended else None,
            "weighted_response": self._weighted / self._asked if self._asked else None,
            "mean_bounded_slowdown": self.slowdown.mean,
            "completed": self.completed,
            "failed": self.failed,
            "cancelled": self.cancelled,
        }

    def _values(self, job: JobFigures) -> list[tuple[Amounts, float]]:
        waited, responded, slowdown = job.waited, job.response, job.bounded_slowdown
        assert waited is not None and responded is not None and slowdown is not None
        return [(self.wait, waited), (self.response, responded), (self.slowdown, slowdown)]

    def _count(self, job: JobFigures, has_failed: bool, by: int) -> None:
        job.has_failed = has_failed
        self.failed += by if has_failed else 0
        self.completed += 0 if has_failed else by

    def _weigh(self, job: JobFigures, sign: int) -> None:
        self._weighted += sign * job.asks * (job.response or 0.0)
        self._asked += sign * job.asks
