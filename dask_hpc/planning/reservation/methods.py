"""Ways to choose a sequence of requests, by the names of seed 004, and the best of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite

import numpy as np

from dask_hpc.planning.reservation.discrete import Grid, end_of, equal_probability, equal_time, grid_at
from dask_hpc.planning.reservation.law import EmpiricalLaw, Law
from dask_hpc.planning.reservation.programs import Solution, all_checkpoint, no_checkpoint, optimal
from dask_hpc.planning.reservation.sequence import Milestone, Setting, expected_cost

#: times of a grid
NUMBER = 1000
_STRIDES = 1500  # requests of the greatest length that a grid is made for


@dataclass(frozen=True, slots=True)
class Question:
    """What a sequence is wanted for."""

    law: Law
    setting: Setting
    #: past runs that were done, oldest first
    runs: tuple[float, ...] = ()
    number: int = NUMBER

    def grids(self) -> Iterator[Grid]:
        """Times at which requests may end."""
        law, start = self.law, self.setting.saved
        end = end_of(law)
        stride, stops = self.setting.stride, np.array([])
        if 0 < stride < inf:
            end = end if isfinite(law.high) else min(end, start + _STRIDES * stride)
            first = start + self.setting.longest - self.setting.checkpoint - self.setting.first_restart
            stops = np.arange(first, end, stride)
        if isinstance(law, EmpiricalLaw):
            yield grid_at(law, start, law.values, stops)
            return
        yield equal_probability(law, start, self.number, end, stops)
        yield equal_time(law, start, self.number, end, stops)

    def judged(self, milestones: Sequence[Milestone]) -> Solution:
        """A sequence that goes on until every job has ended, and what it costs for this law."""
        if not milestones:
            return Solution((), inf)
        whole = (*milestones, *self._tail(milestones[-1].work))
        if isfinite(self.setting.longest) and not isfinite(self.law.high):
            whole = self._limited(milestones)
        return Solution(whole, expected_cost(whole, self.law, self.setting))

    def _tail(self, work: float) -> Iterator[Milestone]:
        """Of a law without an end: each request twice as long."""
        while not self._is_over(work):
            work *= 2
            yield Milestone(work)

    def _limited(self, milestones: Sequence[Milestone]) -> tuple[Milestone, ...]:
        """Of a law without an end, where requests are limited: as long as they may be, each with a commit."""
        if not self.setting.stride > 0:
            return tuple(milestones)
        *whole, (work, _) = milestones
        kept = max((one.work for one in whole if one.commit), default=self.setting.saved)
        whole = [*whole, Milestone(min(work, kept + self.setting.stride), True)]
        while not self._is_over(whole[-1].work) and len(whole) < _MOST_STRIDES:
            whole.append(Milestone(whole[-1].work + self.setting.stride, True))
        return tuple(whole)

    def _is_over(self, work: float) -> bool:
        return float(self.law.sf(work)) * work <= _NEGLIGIBLE * self.law.mean


_MOST_STRIDES = 20_000
_NEGLIGIBLE = 1e-10


#: a way to choose a sequence; no milestones: there is none of this kind
Method = Callable[[Question], Solution]


def _program(program: Callable[[Grid, Setting], Solution]) -> Method:
    """The best that a program finds over all grids."""

    def method(question: Question) -> Solution:
        found = [question.judged(program(grid, question.setting).milestones) for grid in question.grids()]
        return min(found, key=lambda one: one.expected)

    return method


METHODS: Mapping[str, Method] = {
    "discrete-ckpt": _program(optimal),
    "all-checkpoint": _program(all_checkpoint),
    "no-checkpoint": _program(no_checkpoint),
}


@dataclass(frozen=True, slots=True)
class Answer:
    """A sequence, its cost, and those of others."""

    milestones: tuple[Milestone, ...]
    expected: float
    others: Mapping[str, float]
    reason: str


def choose(question: Question, method: str = "best") -> Answer:
    """The sequence by a method."""
    name = "discrete-ckpt" if method == "best" else method
    found = METHODS[name](question)
    others = {other: METHODS[other](question).expected for other in METHODS if other != name}
    return Answer(found.milestones, found.expected, others, "")
