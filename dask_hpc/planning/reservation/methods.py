"""Ways to choose a sequence of requests, by the names of seed 004, and the best of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, inf, isfinite, nan
from typing import NamedTuple

import numpy as np

from dask_hpc.model.errors import InputError, insist, is_number, shown
from dask_hpc.model.safe_yaml import nearest
from dask_hpc.model.units import show_duration
from dask_hpc.planning.reservation.brute_force import CANDIDATES, brute_force
from dask_hpc.planning.reservation.closed_forms import by_formula
from dask_hpc.planning.reservation.discrete import (
    BEYOND,
    Grid,
    end_of,
    equal_hazard,
    equal_probability,
    equal_time,
    grid_at,
)
from dask_hpc.planning.reservation.law import EmpiricalLaw, Law
from dask_hpc.planning.reservation.programs import Solution, all_checkpoint, no_checkpoint, optimal
from dask_hpc.planning.reservation.rules import RULES, by_rule, periodic, periodic_costs
from dask_hpc.planning.reservation.sequence import Milestone, Setting, expected_cost

#: times of a grid
NUMBER = 1000
#: requests that are planned where they are limited; more of them are planned when it comes to that
_STRIDES = 1500
_NOBODY, _ROUNDING = 1e-12, 1e-3


@dataclass(frozen=True, slots=True)
class Question:
    """What a sequence is wanted for."""

    law: Law
    setting: Setting
    #: past runs that were done, oldest first
    runs: tuple[float, ...] = ()
    number: int = NUMBER

    def within_reach(self) -> "Question":
        """Without the jobs that would take more requests than anybody plans, where these are limited."""
        law, stride = self.law, self.setting.stride
        if not 0 < stride < inf:
            return self
        end = min(self.setting.saved + _STRIDES * stride, float(law.isf(_NOBODY)))
        if law.high - end < _ROUNDING * stride:
            return self
        if law.sf(end) >= 1:
            found = f"{show_duration(self.setting.longest)}, so that {_STRIDES} requests are too few"
            raise InputError("max_walltime", f"found {found}", "more")
        return replace(self, law=law.until(end))

    def grids(self) -> tuple[Grid, ...]:
        """Times at which requests may end."""
        return _grids(self)

    def finer_grid(self, milestones: Sequence[Milestone]) -> Grid:
        """Times around the milestones of a sequence, up to half of the way to those beside each."""
        law, start = self.law, self.setting.saved
        end = end_of(law)
        works = np.unique([min(one.work, end) for one in milestones])
        ways = np.diff(works, prepend=max(start, law.low), append=works[-1] + 1e-9 * end)
        shares = np.linspace(0.0, 0.5, max(1, self.number // (2 * len(works))) + 1)[:, None]
        times = np.concatenate([(works - ways[:-1] * shares).ravel(), (works + ways[1:] * shares).ravel()])
        return grid_at(law, start, np.append(times[times < end], end))

    def judged(self, milestones: Sequence[Milestone]) -> Solution:
        """A sequence that goes on until every job has ended, and what it costs for this law."""
        if not milestones:
            return Solution((), inf)
        whole = (*milestones, *self._tail(milestones[-1].work))
        return Solution(whole, expected_cost(whole, self.law, self.setting))

    def by(self, program: Callable[[Grid, Setting], Solution], grid: Grid) -> Solution:
        """What a program finds on a grid, and what it costs for this law."""
        return self.judged(program(grid, self.setting).milestones)

    def _tail(self, work: float) -> Iterator[Milestone]:
        """Of a law without an end: each request twice as long."""
        negligible = _NEGLIGIBLE * self.law.mean
        while float(self.law.sf(work)) * work > negligible:
            work *= 2
            yield Milestone(work)


_NEGLIGIBLE = 1e-10


@lru_cache(8)
def _grids(question: Question) -> tuple[Grid, ...]:
    law, start, stride = question.law, question.setting.saved, question.setting.stride
    end, stops = end_of(law), np.array([])
    if 0 < stride < inf:
        first = (
            start + question.setting.longest - question.setting.checkpoint - question.setting.first_restart
        )
        stops = np.arange(first, end, stride)
    if isinstance(law, EmpiricalLaw):
        return (grid_at(law, start, law.values, stops),)
    ways = (equal_probability, equal_hazard, equal_time)
    return tuple(way(law, start, question.number, end, stops) for way in ways)


#: a way to choose a sequence, given a number of its own (None: as usual); no milestones: there is none
Method = Callable[[Question, float | None], Solution]


def _program(program: Callable[[Grid, Setting], Solution]) -> Method:
    """The best that a program finds over all grids; the number is that of their times."""

    def method(question: Question, number: float | None) -> Solution:
        if number is not None:
            question = replace(question, number=_whole(number))
        return _least(question.by(program, one) for one in question.grids())

    return method


def _exact(question: Question, number: float | None) -> Solution:
    """The best sequence on the grid on which the quick programs do best: the other grids, on which the exact
    one takes its time, are hardly ever better."""
    if number is not None:
        question = replace(question, number=_whole(number))
    quick = {
        one: _least(question.by(program, grid) for program in (all_checkpoint, no_checkpoint))
        for one, grid in enumerate(question.grids())
    }
    place = min(quick, key=lambda one: quick[one].expected)
    return question.by(optimal, question.grids()[place])


def _least(found: Iterable[Solution]) -> Solution:
    return min(found, key=lambda one: one.expected, default=Solution((), inf))


def _whole(number: float, most: float = 5000) -> int:
    insist(
        number == int(number) and 1 <= number <= most, "method", number, f"a whole number from 1 to {most:g}"
    )
    return int(number)


def steps_for(question: Question, accuracy: float) -> int:
    """How many times a grid needs so that the best sequence on it costs at most ``1 + accuracy`` times the
    optimum (Theorem 5). The formula gives tens of thousands where no time but the law's mean bounds a request
    from below; 0: it has no answer."""
    law, setting = question.law, question.setting
    begin, width = law.low - setting.saved, end_of(law) - law.low
    mean, cost = law.mean - setting.saved, setting.cost
    shortest = min(max(begin, accuracy * mean / 3), setting.restart, setting.checkpoint)
    by_time = 1 / shortest if shortest > 0 else inf
    least = min(by_time, (cost.alpha + cost.beta) / cost.gamma if cost.gamma else inf)
    return ceil(3 * width * least / accuracy) if isfinite(least) else 0


_MOST_STEPS = 2000
_ACCURACY = 0.1


def _dyn_prog_count(question: Question, accuracy: float | None) -> Solution:
    """Equal steps in time, as many as an accuracy asks for, but not more than can be waited for."""
    wanted = _ACCURACY if accuracy is None else accuracy
    insist(1e-3 <= wanted <= 3, "method", wanted, "dyn-prog-count with an accuracy from 0.001 to 3")
    number = min(steps_for(question, wanted) or question.number, _MOST_STEPS)
    return question.by(optimal, replace(question, number=number).grids()[-1])


def _periodic(commits: bool) -> Method:
    def method(question: Question, chunks: float | None) -> Solution:
        law, setting = question.law, question.setting
        if commits and not setting.can_commit:
            return Solution((), inf)
        end = end_of(law)
        if law.low >= end:
            return question.judged((Milestone(end),))
        number = _best_chunks(question, end, commits) if chunks is None else _whole(chunks)
        return question.judged(periodic(law, end, number, commits=commits))

    return method


_MOST_CHUNKS, _SOME = 1000, 350


def _best_chunks(question: Question, end: float, commits: bool) -> int:
    """Of one number in fifty, and then of all near the best of these."""
    found, some = 1, sorted({int(_MOST_CHUNKS ** (n / _SOME)) for n in range(_SOME + 1)})
    for _ in range(2):
        best = int(np.argmin(periodic_costs(question.law, question.setting, end, some, commits=commits)))
        near = range(some[max(best - 1, 0)], some[min(best + 1, len(some) - 1)] + 1)
        found, some = some[best], list(near)
    return found


def _brute_force(question: Question, candidates: float | None) -> Solution:
    if isinstance(question.law, EmpiricalLaw) or not isfinite(question.law.mean):
        return Solution((), inf)  # it needs a density, and a bound
    number = CANDIDATES if candidates is None else _whole(candidates, 1e6)
    return question.judged(brute_force(question.law, question.setting, number))


def _rule(name: str) -> Method:
    def method(question: Question, number: float | None) -> Solution:
        return question.judged(by_rule(name, question.law, question.runs, question.setting))

    return method


METHODS: Mapping[str, Method] = {
    "discrete-ckpt": _exact,
    "dyn-prog-count": _dyn_prog_count,
    "all-checkpoint": _program(all_checkpoint),
    "no-checkpoint": _program(no_checkpoint),
    "all-checkpoint-periodic": _periodic(True),
    "no-checkpoint-periodic": _periodic(False),
    "brute-force": _brute_force,
    **{name: _rule(name) for name in RULES},
}
BEST = "best"
EXACT = "discrete-ckpt"
#: compared with every plan; what takes longer than a moment is not
_COMPARED = tuple(name for name in METHODS if name != "dyn-prog-count")


class Answer(NamedTuple):
    """A sequence, what it costs, and by which method it is the best; what other methods cost, if asked."""

    milestones: tuple[Milestone, ...]
    expected: float
    by: str
    others: Mapping[str, float]


def choose(question: Question, method: str = BEST, *, compare: bool = True) -> Answer:
    """The sequence by a method: a name, perhaps with a number of its own ("dyn-prog-count 0.5"). The best is
    the exact program's on all grids, or what is better still."""
    name, number = read_method(method)
    if not isfinite(question.law.mean):
        raise InputError("law", f"{question.law.name} with a mean of inf", "one with a mean")
    if question.law.low < 0:
        raise InputError("law", f"{question.law.name} with times below 0", "truncnormal, or min=0 as well")
    own = EXACT if name == BEST else name
    found = {own: METHODS[own](question, number)}
    if name == BEST:
        found[own] = _finer(question, found[own])
        formulas = (question.judged(one) for one in by_formula(question.law, question.setting))
        found[_FORMULA] = _least(formulas)
    if compare:
        found |= {other: METHODS[other](question, None) for other in _COMPARED if other != own}
    by = min(found, key=lambda one: (found[one].expected, one != own)) if name == BEST else own
    chosen = found[by]
    if found[own].expected <= chosen.expected * (1 + _SAME):
        by, chosen = own, found[own]
    if not chosen.milestones or not isfinite(chosen.expected):
        raise _cannot(question, method)
    others = {one: answer.expected for one, answer in found.items() if one != by and answer.milestones}
    return Answer(chosen.milestones, chosen.expected, by, others)


#: two costs that differ by less, as a share, differ by rounding
_SAME = 1e-9
_FORMULA = "closed form"
_TIMES_FINER, _GAIN = 3, 1e-5


def _finer(question: Question, found: Solution) -> Solution:
    """The exact program again, near what it found: long tails leave few times of a grid for the beginning."""
    if isinstance(question.law, EmpiricalLaw) or not isfinite(found.expected):
        return found
    for _ in range(_TIMES_FINER):
        left = np.asarray(question.law.sf(np.array([one.work for one in found.milestones])))
        milestones = found.milestones[: 1 + int(np.count_nonzero(left > BEYOND))]
        if len(milestones) > question.number:
            break
        grid = question.finer_grid(milestones)
        better = question.by(optimal, grid)
        gain = 1 - better.expected / found.expected
        found = _least([better, found])
        if gain < _GAIN:
            break
    return found


def read_method(text: str) -> tuple[str, float | None]:
    """The name, and the number that it was given."""
    name, _, rest = text.strip().partition(" ") if isinstance(text, str) else ("", "", "")
    known = (BEST, *METHODS)
    if name not in known:
        raise InputError("method", f"found {shown(text)}{nearest(name, known)}", ", ".join(known))
    if not rest:
        return name, None
    if name in RULES or name == BEST or not is_number(number := _float(rest), 1e-9, 1e9):
        raise InputError("method", f"found {shown(text)}", f"{name} alone" if name in RULES else "a number")
    return name, number


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return nan


def _cannot(question: Question, method: str) -> InputError:
    """Why there is no sequence."""
    law, setting = question.law, question.setting
    if isfinite(setting.longest):
        longest = f"found {show_duration(setting.longest)}"
        if not setting.can_commit:
            allowed = f"a checkpoint, or {show_duration(law.high)}: as long as a job may take"
        elif setting.stride <= 0:
            kept = show_duration(setting.checkpoint + setting.restart)
            allowed = f"more than the {kept} of a restart and a commit"
        else:
            allowed = f"more, or another method than {method}"
        return InputError("max_walltime", longest, allowed)
    return InputError("method", f"found {shown(method)}", "one that law, runs and checkpoints allow")
