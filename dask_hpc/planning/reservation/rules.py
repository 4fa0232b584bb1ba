"""Rules that people use, or could, without optimising anything: what a plan is compared with (seed 004, 3.6
and 3.10). A rule says until where each request goes; a law with an end cuts it there."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from math import ceil, log

import numpy as np

from dask_hpc.planning.reservation.law import Law
from dask_hpc.planning.reservation.sequence import Milestone, Setting

_GROWTH = 1.5  # of the next request, where a run has taken longer than the one before it
_LAST = 5  # runs that one remembers
#: requests of a rule for a law without an end; a tail follows them
_MOST, _AT_ONCE = 1000, 50
_NEGLIGIBLE = 1e-12
_NOTHING = 1e-16

#: where requests end, given the law (of what the job takes in all) and past runs
Rule = Callable[[Law, Sequence[float]], Iterator[float]]


def _mean_by_mean(law: Law, runs: Sequence[float]) -> Iterator[float]:
    work = law.mean
    while True:
        yield work
        work = float(law.conditional_mean(work))


def _mean_stdev(law: Law, runs: Sequence[float]) -> Iterator[float]:
    mean, std = law.mean, law.std
    return (mean + n * std for n in count())


def _mean_doubling(law: Law, runs: Sequence[float]) -> Iterator[float]:
    mean = law.mean
    return (mean * 2**n for n in count())


def _tails(law: Law, share: float) -> Iterator[float]:
    """Until a share of the jobs is left, then that share of them, and so on."""
    number = ceil(log(_NOTHING) / log(share))
    yield from np.asarray(law.isf(share ** np.arange(1.0, number + 1))).tolist()


def _median_by_median(law: Law, runs: Sequence[float]) -> Iterator[float]:
    return _tails(law, 0.5)


def _p99(law: Law, runs: Sequence[float]) -> Iterator[float]:
    return _tails(law, 0.01)


def _growing(first: float) -> Iterator[float]:
    return (first * _GROWTH**n for n in count())


def _hpc(law: Law, runs: Sequence[float]) -> Iterator[float]:
    return _growing(float(np.mean(runs[-_LAST:])) if runs else law.mean)


def _neuro(law: Law, runs: Sequence[float]) -> Iterator[float]:
    return _growing(max(runs))


def _neuro_avg(law: Law, runs: Sequence[float]) -> Iterator[float]:
    return _growing(float(np.mean(runs)))


RULES: Mapping[str, Rule] = {
    "mean-by-mean": _mean_by_mean,
    "mean-stdev": _mean_stdev,
    "mean-doubling": _mean_doubling,
    "median-by-median": _median_by_median,
    "hpc": _hpc,
    "p99": _p99,
    "neuro": _neuro,
    "neuro-avg": _neuro_avg,
}
#: these need past runs, and commit if that is possible
FROM_RUNS = ("neuro", "neuro-avg")


def by_rule(name: str, law: Law, runs: Sequence[float], setting: Setting) -> tuple[Milestone, ...]:
    """The requests of a rule; none if it needs past runs and there are none."""
    if name in FROM_RUNS and not runs:
        return ()
    commits = name in FROM_RUNS and setting.can_commit
    low, high = law.low, law.high
    found: list[Milestone] = []
    for work in _needed(RULES[name](law, runs), law):
        reached = min(work, high)
        if found and reached <= found[-1].work:
            break  # a mean that cannot rise any more
        # a request that the job has outrun already is not made
        if reached > low or low == high:
            found.append(Milestone(reached, commits and reached < high))
    if found and high < np.inf and found[-1].work < high:
        found.append(Milestone(high))
    return tuple(found)


def _needed(works: Iterator[float], law: Law) -> Iterator[float]:
    """Until nearly every job has ended; looked at many at a time, which is quicker."""
    mean, high = law.mean, law.high
    for _ in range(_MOST // _AT_ONCE):
        some = list(islice(works, _AT_ONCE))
        left = np.asarray(law.sf(np.array(some))) if some else ()
        for work, share in zip(some, left, strict=True):
            yield work
            if work >= high or share * work <= _NEGLIGIBLE * mean:
                return


def periodic(law: Law, end: float, chunks: int, *, commits: bool) -> tuple[Milestone, ...]:
    """Equal chunks from the law's begin to ``end`` (Algorithms 5 and 6), with a commit after each but the
    last, or with none."""
    step = (end - law.low) / chunks
    works = [law.low + n * step for n in range(1, chunks)]
    return (*(Milestone(work, commits) for work in works), Milestone(end))


def periodic_costs(
    law: Law, setting: Setting, end: float, chunks: Iterable[int], *, commits: bool
) -> np.ndarray:
    """The mean cost of so many equal chunks each, for the law cut at ``end``; all at once."""
    cost, many = setting.cost, np.asarray(list(chunks))
    # chunk after chunk of plan after plan: where each begins and how likely it is begun
    number = np.concatenate([np.arange(one) for one in many])
    of = np.repeat(many, many)
    step = (end - law.low) / of
    begin = law.low + number * step
    rest = float(law.sf(end))
    made = (np.asarray(law.sf(begin)) - rest) / (1 - rest)
    begin = np.where(number == 0, setting.saved, begin)
    until = law.low + (number + 1) * step
    first = number == 0
    if commits:
        restart = np.where(first, setting.first_restart, setting.restart)
        length = restart + (until - begin) + np.where(number + 1 < of, setting.checkpoint, 0.0)
        in_vain = np.where(first, 0.0, setting.checkpoint)
    else:
        restart = np.full(len(of), setting.first_restart)
        length = restart + until - setting.saved
        in_vain = begin - setting.saved
    each = (cost.request(length) + cost.beta * (restart + in_vain)) * made
    each = np.where(length > setting.most, np.inf, each)
    starts = np.concatenate([[0], np.cumsum(many)[:-1]])
    used = cost.beta * (float(law.until(end).mean) - setting.saved)
    return np.add.reduceat(each, starts) + used
