"""Sequences of least expected cost for a law that is a list of times (seed 004, 3.3, 3.5 and 3.8)."""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from math import inf
from typing import NamedTuple

import numpy as np

from dask_hpc.planning.reservation.discrete import Grid
from dask_hpc.planning.reservation.sequence import Milestone, Setting


class _Envelope:
    """The least of many lines. They come with falling slopes, and are asked for at rising places."""

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        self._lines: deque[tuple[float, float, int]] = deque()

    def add(self, slope: float, height: float, number: int) -> None:
        lines = self._lines
        while len(lines) > 1:
            (m1, b1, _), (m2, b2, _) = lines[-2], lines[-1]
            # the last one is least nowhere: this one and the one before it meet below it
            if (height - b1) * (m1 - m2) > (b2 - b1) * (m1 - slope):
                break
            lines.pop()
        lines.append((slope, height, number))

    def least(self, x: float) -> tuple[float, int]:
        """The least value there, and whose it is."""
        lines = self._lines
        if not lines:
            return inf, -1
        slope, height, number = lines[0]
        value = slope * x + height
        while len(lines) > 1:
            slope, height, other = lines[1]
            further = slope * x + height
            if further > value:
                break
            value, number = further, other
            lines.popleft()
        return value, number


class Solution(NamedTuple):
    """A sequence, and its expected cost for the list of times; inf and no sequence if there is none."""

    milestones: tuple[Milestone, ...]
    expected: float


_NONE = Solution((), inf)


def optimal(grid: Grid, setting: Setting) -> Solution:
    """The best sequence of all, commits where they pay (DISCRETE-CKPT, Theorem 6).

    The document's program takes n^3 steps. Here each takes its least over lines in an envelope: what follows
    a commit does not depend on the commit before it, and what follows none is a line for each next milestone,
    so that n^2 steps do. Both are exact.
    """
    if not setting.can_commit:
        return no_checkpoint(grid, setting)
    program = _Costs(grid, setting)
    for last in range(program.count - 1, -1, -1):
        program.after_commit[last] = program.row(last)
    if program.after_commit[0] == inf:
        return _NONE
    milestones, last, tried = [], 0, 0
    choices: dict[int, tuple[int, bool]] = {}
    while tried < program.count:
        if not choices:
            program.row(last, choices)
        tried, commits = choices[tried]
        milestones.append(Milestone(float(grid.times[tried]), commits))
        if commits:
            last, choices = tried, {}
    return Solution(tuple(milestones), program.after_commit[0])


class _Costs:
    """Expected costs from here on, times the probability to come here: by the last commit and the last
    milestone that was tried. 0 is where the job stands, and counts as a commit that costs ``first`` to go on
    from."""

    def __init__(self, grid: Grid, setting: Setting) -> None:
        self.setting = setting
        self.times: list[float] = (grid.times - setting.saved).tolist()
        self.longer: list[float] = grid.longer.tolist()
        self.count = len(self.times) - 1
        self.mean = float(grid.weights @ (grid.times[1:] - setting.saved))
        #: given that the last milestone was committed
        self.after_commit = [inf] * (self.count + 1)
        # what the best commit leads to, by the last milestone that was tried; where requests are limited
        # this depends on the last commit too
        self._is_limited = setting.longest < inf
        self._commits = _Envelope()
        self._best_commits: list[tuple[float, int]] = [(inf, -1)] * (self.count + 1)

    def row(self, last: int, choices: dict[int, tuple[int, bool]] | None = None) -> float:
        """The cost with this last commit and none tried after it. All later rows are known. Fills in the
        ``choices``, by the last milestone that was tried: the next one, and whether it is committed."""
        setting, times, longer = self.setting, self.times, self.longer
        alpha, beta, checkpoint = setting.cost.alpha, setting.cost.beta, setting.checkpoint
        restart = setting.restart if last else setting.first_restart
        start = times[last]
        base = alpha * (restart - start) + beta * restart + setting.cost.gamma
        reach = start + setting.most - restart
        if not self._is_limited and choices is None:
            self._learn(last)
        goes_on, commits = _Envelope(), _Envelope()
        # the first milestone that cannot be reached from here
        end = bisect_right(times, reach)
        cost = beta * self.mean if end > self.count else inf
        for tried in range(min(end, self.count) - 1, last - 1, -1):
            here = longer[tried]
            if cost < inf:
                work, tail = times[tried + 1], longer[tried + 1]
                goes_on.add(alpha * work, cost + beta * (work - start) * tail, tried + 1)
            without, next_without = goes_on.least(here)
            if self._is_limited:
                if times[tried + 1] <= reach - checkpoint:
                    self._add_commit(commits, tried + 1)
                with_one, next_with = commits.least(here)
            else:
                with_one, next_with = self._best_commits[tried]
            with_one += alpha * checkpoint * here
            if choices is not None:
                choices[tried] = (next_with, True) if with_one < without else (next_without, False)
            cost = base * here + (with_one if with_one < without else without)
        return cost

    def _learn(self, last: int) -> None:
        """Of a commit at the milestone after ``last``, whose row is known now."""
        self._add_commit(self._commits, last + 1)
        self._best_commits[last] = self._commits.least(self.longer[last])

    def _add_commit(self, lines: _Envelope, number: int) -> None:
        cost = self.after_commit[number]
        if number < self.count and cost < inf:  # at the end a commit serves nobody
            height = cost + self.setting.cost.beta * self.setting.checkpoint * self.longer[number]
            lines.add(self.setting.cost.alpha * self.times[number], height, number)


#: what a request of so many seconds costs
RequestCost = Callable[[np.ndarray], np.ndarray]


def no_checkpoint(grid: Grid, setting: Setting, request: RequestCost | None = None) -> Solution:
    """The best sequence without commits (Theorem 13, without its divisions by tiny probabilities).
    ``request`` is another cost of a request than the linear one (Theorem 14): this is the best sequence for
    any."""
    restart, beta = setting.first_restart, setting.cost.beta
    work, longer = grid.times - setting.saved, grid.longer
    lengths = restart + work
    prices = np.asarray((request or setting.cost.request)(lengths), float) + beta * restart
    prices = np.where(lengths > setting.most, inf, prices)
    count = len(work) - 1
    costs = np.full(count + 1, inf)
    costs[-1] = beta * float(grid.weights @ work[1:])
    choices = np.zeros(count + 1, int)
    in_vain = beta * work * longer
    for tried in range(count - 1, -1, -1):
        after = slice(tried + 1, None)
        found = prices[after] * longer[tried] + in_vain[after] + costs[after]
        best = int(np.argmin(found))
        choices[tried], costs[tried] = tried + 1 + best, found[best]
    return _followed(grid, choices, costs[0], commits=False)


def all_checkpoint(
    grid: Grid, setting: Setting, commits: np.ndarray | None = None, restarts: np.ndarray | None = None
) -> Solution:
    """The best sequence in which every request but the last commits (Theorem 7). ``commits`` and ``restarts``
    are what these take at each time of the grid, if that is not always the same."""
    cost, work, longer = setting.cost, grid.times - setting.saved, grid.longer
    count = len(work) - 1
    takes = np.full(count + 1, setting.checkpoint) if commits is None else np.array(commits, float)
    if not (setting.can_commit or count == 1):
        return _NONE
    takes[-1] = 0.0
    again = np.full(count + 1, setting.restart) if restarts is None else np.array(restarts, float)
    costs = np.full(count + 1, inf)
    costs[-1] = cost.beta * float(grid.weights @ work[1:])
    choices = np.zeros(count + 1, int)
    for tried in range(count - 1, -1, -1):
        restart = again[tried] if tried or setting.saved > 0 else 0.0
        after = slice(tried + 1, None)
        lengths = restart + work[after] - work[tried] + takes[after]
        each = (cost.request(lengths) + cost.beta * restart) * longer[tried]
        found = costs[after] + cost.beta * takes[after] * longer[after] + each
        found = np.where(lengths > setting.most, inf, found)
        best = int(np.argmin(found))
        choices[tried], costs[tried] = tried + 1 + best, found[best]
    return _followed(grid, choices, costs[0], commits=True)


def _followed(grid: Grid, choices: np.ndarray, cost: float, *, commits: bool) -> Solution:
    if cost == inf:
        return _NONE
    place, end, milestones = 0, len(grid.times) - 1, []
    while place < end:
        place = int(choices[place])
        milestones.append(Milestone(float(grid.times[place]), commits and place < end))
    return Solution(tuple(milestones), float(cost))
