"""How much memory a job needs when, and reservations that ask for no more than that (seed 004, chapter 12;
digest 4).

A job is a chain of tasks, each with a law of its duration and a peak of memory that does not depend on the
input. Which task runs after so much work follows from normal approximations of when each ends, and from that
how large a checkpoint is there, how long it takes, and how much memory a reservation has to ask for.

What is asked for, and what a commit is planned with, are upper bounds: too little memory kills the job, and a
commit that takes longer than planned is lost, so that medians make such plans worse than plain ones (digest
4.5). Deviations: a window of work needs the memory of all tasks that are likely to run at some time *in* it,
as a short task is likely at no single time; what is likely is so given that the job has not ended; and a
margin is added to every peak.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_hpc.model.errors import InputError, insist, shown, within
from dask_hpc.model.units import parse_quantity
from dask_hpc.planning.reservation.cost import Cost
from dask_hpc.planning.reservation.discrete import end_of, equal_time
from dask_hpc.planning.reservation.law import ContinuousLaw, Law, read_law
from dask_hpc.planning.reservation.methods import NUMBER
from dask_hpc.planning.reservation.programs import all_checkpoint
from dask_hpc.planning.reservation.sequence import Setting, Step

Array = NDArray[np.float64]

#: a task that runs with a smaller probability than this is not reckoned with
LIKELY = 0.1
#: of memory, on top of every peak
MARGIN = 0.1
#: how much more time a cut before a hungry task may take, as a share
WORTH = 0.02
#: below this all ways into the tail cost the same, numerically
_NOBODY = 1e-15
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class ChainTask:
    """One task of a chain: how long it takes, and the bytes that it needs at most."""

    law: Law
    peak: float

    def __post_init__(self) -> None:
        insist(self.peak > 0 and self.peak < inf, "peak", self.peak, "bytes, more than 0")
        insist(0 <= self.law.mean < inf and self.law.std < inf, "law", self.law.name, "a finite mean and std")


@dataclass(frozen=True, slots=True)
class StoreSpeed:
    """A commit, or a restore, of V bytes takes ``latency + V / bandwidth`` seconds."""

    latency: float
    #: bytes per second
    bandwidth: float = inf

    def __post_init__(self) -> None:
        insist(0 <= self.latency < inf, "latency", self.latency, "seconds, 0 or more")
        insist(self.bandwidth > 0, "bandwidth", self.bandwidth, "bytes per second, more than 0")

    def seconds(self, nbytes: Any) -> Any:
        """For so many bytes, or for each of many."""
        return self.latency + nbytes / self.bandwidth

    @classmethod
    def fit(cls, measured: Iterable[tuple[float, float]]) -> "StoreSpeed":
        """By least squares from bytes and seconds of each commit; neither part is ever negative. Commits of
        one size say nothing of what others would take, but that larger ones take in proportion."""
        pairs = np.array([tuple(one) for one in measured], float).reshape(-1, 2)
        insist(
            len(pairs) > 0 and bool((pairs >= 0).all()), "commits", pairs.tolist(), "bytes and seconds, some"
        )
        sizes, seconds = pairs.T
        spread = ((sizes - sizes.mean()) ** 2).sum()
        if not sizes.any():
            slope, latency = 0.0, float(seconds.mean())
        elif spread == 0:
            slope, latency = float(seconds.mean() / sizes.mean()), 0.0
        else:
            slope = float(((sizes - sizes.mean()) * (seconds - seconds.mean())).sum() / spread)
            latency = float(seconds.mean() - slope * sizes.mean())
        if slope < 0:  # the constrained least squares lie on the border
            slope, latency = 0.0, float(seconds.mean())
        elif latency < 0:
            slope, latency = float((sizes * seconds).sum() / (sizes**2).sum()), 0.0
        return cls(max(0.0, float(latency)), 1 / slope if slope > 0 else inf)


class Chain:
    """A job as tasks that run one after the other: ``Chain((law, peak), ...)``, in seconds and bytes."""

    def __init__(self, *tasks: Any, likely: float = LIKELY, margin: float = MARGIN) -> None:
        insist(len(tasks) > 0, "memory", tasks, "one task or more, each a law and a peak")
        insist(0 <= likely < 1, "likely", likely, "a probability, 0 or more and less than 1")
        insist(0 <= margin < inf, "margin", margin, "a share, 0 or more")
        self.tasks = tuple(_task(place, one) for place, one in enumerate(tasks, start=1))
        self.likely, self.margin = likely, margin
        self.peaks = np.array([task.peak for task in self.tasks])
        self._means = np.cumsum([task.law.mean for task in self.tasks])
        self._stds = np.sqrt(np.cumsum([task.law.std**2 for task in self.tasks]))

    @property
    def mean(self) -> float:
        """Seconds of all tasks together."""
        return float(self._means[-1])

    @property
    def std(self) -> float:
        """Of the seconds of all tasks, as if none had to do with another."""
        return float(self._stds[-1])

    @property
    def mean_peak(self) -> float:
        """The peaks, weighted by how long each task takes (the published mean memory, divided by the time:
        erratum 38)."""
        seconds = np.array([task.law.mean for task in self.tasks])
        return float(self.peaks @ seconds / seconds.sum())

    @property
    def most(self) -> float:
        """The largest of all peaks."""
        return float(self.peaks.max())

    def flat(self) -> "Chain":
        """As if it needed its most throughout."""
        law = ContinuousLaw("normal", (), max(self.std, _ROUNDING), self.mean)
        return Chain(ChainTask(law, self.most), likely=self.likely, margin=self.margin)

    def ended(self, task: int, at: Any) -> Any:
        """The probability that so many tasks have ended after so much work, ``y_i(t)``; of none it is 1."""
        return 1.0 - self._left(at)[task]

    def _left(self, at: Any) -> Array:
        """One minus that for every number of tasks, without the rounding error of a difference. No task ends
        before the one before it, though normal laws that are wide say so."""
        from scipy.special import ndtr

        at = np.asarray(at, float)
        with np.errstate(divide="ignore", invalid="ignore"):
            places = (np.subtract.outer(self._means, at).T / self._stds).T
        left = np.where(np.isnan(places), 1.0, ndtr(places))
        return np.maximum.accumulate(np.concatenate([np.zeros((1, *at.shape)), left]), axis=0)

    def running(self, at: Any) -> Array:
        """The probability of each task that it runs after so much work, and last that all have ended."""
        left = self._left(at)
        return np.concatenate([np.diff(left, axis=0), [1.0 - left[-1]]])

    def need(self, since: float, until: float) -> float:
        """Bytes to ask for to get from one amount of work to another: the largest peak of the tasks that are
        likely to run in between if the job has not ended before, and the margin."""
        return float(round((1 + self.margin) * self.peaks[self._likely_between(since, until)].max()))

    def state(self, at: float) -> float:
        """Bytes of a checkpoint after so much work, at most."""
        return self.need(at, at)

    def _likely_between(self, since: float, until: float) -> NDArray[np.bool_]:
        """Task i runs between two times if those before it end before the second, and itself after the
        first."""
        going, alive = self._left(since)[1:], float(self._left(since)[-1])
        if alive < _NOBODY:
            return np.arange(len(self.tasks)) == len(self.tasks) - 1
        share = (going - self._left(until)[:-1]) / alive
        return (share > self.likely) | (share == share.max())

    def cuts(self) -> list[float]:
        """Where a reservation may end before the first task that needs more than all before it: the last time
        at which that task is not likely to have begun."""
        from scipy.special import ndtri

        latest = ndtri(self.likely * (1 - _ROUNDING) * float(self._left(0.0)[-1]))
        rows = ((task, self._means[task - 1], self._stds[task - 1]) for task in range(1, len(self.tasks)))
        return [
            float(mean + latest * std)
            for task, mean, std in rows
            if self.peaks[task] > self.peaks[:task].max() and (std == 0 or mean + latest * std > 0)
        ]

    def early(self, at: float) -> float:
        """Seconds that a reservation which ends there, before a hungry task, waits on average, as the tasks
        before it have ended."""
        task = int(np.argmax(self.peaks > self.peaks[self._likely_between(0.0, at)].max()))
        mean, std = self._means[task - 1], self._stds[task - 1]
        if task == 0 or std == 0:
            return 0.0
        from scipy.special import ndtr

        z = (at - mean) / std
        return float(std * (z * ndtr(z) + np.exp(-z * z / 2) / sqrt(2 * np.pi)))


def _task(place: int, given: Any) -> ChainTask:
    if isinstance(given, ChainTask):
        return given
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 2:
        raise InputError(f"memory: task {place}", f"found {shown(given)}", "a law and a peak")
    with within(f"memory: task {place}"):
        return ChainTask(read_law(given[0]), parse_quantity(given[1], "B", "peak"))


def read_chain(given: Any) -> Chain:
    """A chain, or what people write for one: ``[("normal mean=4min std=97s", "3.5 GB"), ...]``."""
    if isinstance(given, Chain):
        return given
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise InputError("memory", f"found {shown(given)}", "a chain: laws and peaks of its tasks, in order")
    return Chain(*given)


@dataclass(frozen=True, slots=True)
class MemorySequence:
    """Reservations of which all but the last end with a commit, each with the memory that it asks for."""

    #: work that is done at the end of each
    until: tuple[float, ...]
    steps: tuple[Step, ...]
    memory: tuple[float, ...]
    #: the probability that each is needed
    needed: tuple[float, ...]
    #: seconds of work that are missing when it begins, on average, as the one before it waited for its end
    missing: tuple[float, ...]

    @property
    def _lengths(self) -> list[float]:
        return [step.length + late for step, late in zip(self.steps, self.missing, strict=True)]

    @property
    def reserved(self) -> float:
        """Seconds that are asked for on average."""
        return sum(length * share for length, share in zip(self._lengths, self.needed, strict=True))

    @property
    def byte_seconds(self) -> float:
        """Memory times time that is asked for on average."""
        rows = zip(self._lengths, self.memory, self.needed, strict=True)
        return sum(length * memory * share for length, memory, share in rows)

    def price(self, cost: Cost, mean: float) -> float:
        """The mean cost for jobs that take so long on average."""
        total, wasted = cost.beta * mean, 0.0
        rows = zip(self.steps, self._lengths, self.missing, self.needed, strict=True)
        for step, length, late, share in rows:
            total += (cost.request(length) + cost.beta * (step.restart + wasted + late)) * share
            wasted = step.commit
        return total


@dataclass(frozen=True, slots=True)
class MemoryQuestion:
    """What reservations are wanted for, if checkpoints are as large as the state is. The ``law`` is that of
    the whole job, from its past runs; it need not be that of the chain."""

    law: Law
    chain: Chain
    commit: StoreSpeed
    restart: StoreSpeed
    cost: Cost
    number: int = NUMBER

    def always_commit(self, cut: float | None = None) -> MemorySequence:
        """The best reservations that all end with a commit (MEM-ALL-CKPT). With a ``cut`` the first one ends
        there, and if the tasks before that have ended earlier, waits (MEM-ALL-CKPTV2).

        The printed recurrence pays for the state at the *begin* of a reservation, and for a restart from
        nothing; here the commit at its end counts (erratum 39).
        """
        start = cut or 0.0
        law = self.law.given(start) if cut else self.law
        grid = equal_time(law, start, self.number, end_of(law))
        states = np.array([self.chain.state(at) for at in grid.times])
        commits, restarts = self.commit.seconds(states), self.restart.seconds(states)
        setting = Setting(self.cost, float(commits.max()), float(restarts.max()), start)
        found = all_checkpoint(grid, setting, commits, restarts)
        # where each reservation begins and ends on the grid
        ends = np.searchsorted(grid.times, [one.work for one in found.milestones])
        begins = np.array([0, *ends[:-1]])
        until, commits[-1] = grid.times[ends].tolist(), 0.0
        rows = zip(restarts[begins], grid.times[ends] - grid.times[begins], commits[ends], strict=True)
        steps = [Step(*map(float, row)) for row in rows]
        since, missing = grid.times[begins].tolist(), [0.0] * len(ends)
        if cut:
            steps.insert(0, Step(0.0, cut, float(commits[0])))
            since, until, missing = [0.0, *since], [cut, *until], [0.0, self.chain.early(cut), *missing[1:]]
        else:
            steps[0] = steps[0]._replace(restart=0.0)
        return MemorySequence(
            until=tuple(until),
            steps=tuple(steps),
            memory=tuple(map(self.chain.need, since, until)),
            needed=tuple(float(self.law.sf(at)) if at else 1.0 for at in since),
            missing=tuple(missing),
        )

    def best(self) -> MemorySequence:
        """These, with a cut before one of the tasks that need more than all before it, if that saves memory
        times time and takes hardly longer."""
        plain = self.always_commit()
        cuts = (self.always_commit(cut) for cut in self.chain.cuts() if self.law.sf(cut) > _NOBODY)
        fit = (one for one in cuts if one.reserved <= (1 + WORTH) * plain.reserved)
        return min((plain, *fit), key=lambda one: one.byte_seconds)
