"""One calculation under failures, played event by event, with each of four protocols (003, chapters 3 and 4).

What the exact forms of ``planning.resilience`` say on average is drawn here, trial by trial: when failures
come, how bad they are, what each of them undoes. The two share what a commit costs, and no formula.

    runs = play_run(recovery(Case(Calculation(nodes=6000, work=86400.0, memory=32e9))), trials=1000)
    runs.mean, runs.half_width, runs.efficiencies.std(), runs.parts.failed_commits.mean()

All trials are played at once, to the next failure of each and then to the one after it: in between nothing is
random, so that where a run stands follows from the time that it has had.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from math import ceil, fsum, inf, sqrt
from typing import Any

import numpy as np

from dask_hpc.model.errors import insist, is_number
from dask_hpc.planning.interval import Level, Pattern, failure_rate
from dask_hpc.planning.resilience.prospect import Prospect, Spending

#: a run that has taken so many times its work is given up: nobody waits for it
HOPELESS = 1000.0
_MOST_INTERVALS = 10_000_000
_ROUNDING = 1e-9  # of a number of intervals, as a share


@dataclass(frozen=True, slots=True)
class PlayedRuns:
    """What became of each trial."""

    #: seconds of work that each of them had to do, without failures and without protection
    work: float
    #: seconds of each trial; what failed of a recovery is part of it
    parts: Spending
    #: whether it came to its end; the others were given up
    ended: np.ndarray

    @property
    def times(self) -> np.ndarray:
        """Seconds from begin to end; inf for those that were given up."""
        return np.where(self.ended, self.parts.time, inf)

    @property
    def efficiencies(self) -> np.ndarray:
        """Work over time of each. Their mean is a little more than the work over the mean time."""
        return self.work / self.times

    @property
    def mean(self) -> float:
        """Seconds; inf if one was given up."""
        return float(self.times.mean())

    @property
    def half_width(self) -> float:
        """Half of the 95 % interval of the mean, as the central limit theorem has it."""
        if len(self.times) < 2 or not self.ended.all():
            return inf
        return 1.96 * float(self.times.std(ddof=1)) / sqrt(len(self.times))


def play_run(
    prospect: Prospect,
    *,
    trials: int = 200,
    seed: int = 0,
    slowdown: float = 1.0,
    all_write: bool = False,
    give_up: float = HOPELESS,
) -> PlayedRuns:
    """A protocol as it was planned, with its intervals. ``slowdown`` is of recovery, see there; ``all_write``
    of redundancy, whose replicas take part in commits then."""
    how: dict[str, Any] = {"trials": trials, "seed": seed, "give_up": give_up}
    case, nodes = prospect.case, prospect.case.calculation.nodes
    work, run = case.calculation.work, prospect.parts.computing
    if not prospect.time < inf:
        return PlayedRuns(work, Spending(np.full(trials, inf)), np.zeros(trials, bool))
    memory, partner, store = case.levels
    pattern = prospect.pattern or Pattern(run)
    match prospect.protocol.split()[0]:
        case "recovery":
            partner = replace(partner, failures=memory.failures + partner.failures)
            speedup, commits = case.hardware.speedup, prospect.pattern.counts[0] if prospect.pattern else 0
            return play_recovery(
                partner,
                store,
                pattern.work,
                commits,
                run,
                work=work,
                speedup=speedup,
                slowdown=slowdown,
                **how,
            )
        case "redundancy":
            degree, mtbf = prospect.nodes / nodes, case.hardware.mtbf
            more = degree if all_write else 1.0
            store = replace(store, commit=more * store.commit, restart=more * store.restart)
            return play_redundancy(
                store, pattern.work, run, nodes=nodes, degree=degree, mtbf=mtbf, work=work, **how
            )
        case "restart":
            return play_commits([replace(store, failures=failure_rate(case.levels))], pattern, run, **how)
        case _:
            counts = pattern.counts or (0,) * (len(case.levels) - 1)
            return play_commits(case.levels, replace(pattern, counts=counts), run, **how)


def sample_times(prospect: Prospect, count: int = 40, seed: int = 0, **how: Any) -> np.ndarray:
    """Seconds of so many runs of a calculation, for a machine that takes one of them for each."""
    return play_run(prospect, trials=count, seed=seed, **how).times


def play_commits(
    levels: Sequence[Level],
    pattern: Pattern,
    run: float,
    *,
    trials: int = 200,
    seed: int = 0,
    give_up: float = HOPELESS,
) -> PlayedRuns:
    """Commits to one level or several; after a failure all go back to the last one that serves.

    A failure during a commit loses that commit; one during a restart starts that again, or the one of a
    higher level if it is worse (003, 6.4.7). What is above a commit's level is not lost by a restart from it,
    and what is below holds the same afterwards, so that where a run stands says all that it has.
    """
    course = _SafeRun(pattern, run, [level.commit for level in levels])
    play = _Play(course, [level.failures for level in levels], trials, seed, run, give_up)
    restarts = np.array([level.restart for level in levels])
    back = np.array([course.last_commit(level) for level in range(len(levels))])
    while len(live := play.live):
        failed, done = play.to_failure(live)
        level = play.restart(failed, play.severity(failed), restarts)
        play.place[failed] = course.starts[back[level, done]]
    return play.runs


def play_recovery(
    memory: Level,
    store: Level,
    interval: float,
    commits: int,
    run: float,
    *,
    work: float | None = None,
    speedup: float,
    slowdown: float = 1.0,
    trials: int = 200,
    seed: int = 0,
    give_up: float = HOPELESS,
) -> PlayedRuns:
    """Messages are logged and commits go to memory: what a failed node has lost its helpers do again
    ``speedup`` times sooner, and all go on from where they were (003, 4.4.4; digest, 2.7.2).

    After ``commits`` to memory one goes to the store, to which all go back after a failure that memory does
    not survive. A failure during a recovery starts that again. ``run`` is the work with the logging of
    messages, ``work`` without. From a recovery until the next commit work takes ``slowdown`` times as long,
    as helpers have more to do (003, 3.4.5; chapter 4 does not say so, and the exact form leaves it out).
    """
    insist(is_number(speedup, 1, 1e9), "speedup", speedup, "1 or more")
    insist(is_number(slowdown, 1, 1e9), "slowdown", slowdown, "1 or more")
    course = _SafeRun(Pattern(interval, (commits,)), run, [memory.commit, store.commit])
    rates, work = [memory.failures, store.failures], run if work is None else work
    play = _Play(course, rates, trials, seed, work, give_up)
    stores = np.array([store.restart, store.restart])
    back = course.last_commit(1)
    while len(live := play.live):
        failed, done = play.to_failure(live)
        # during a commit all since the last one is to be recovered, and then the commit begins anew
        place = np.minimum(play.place[failed], course.starts[done] + course.work[done])
        play.place[failed], play.slow[failed] = place, slowdown
        worse = play.severity(failed) == 1
        again = failed[~worse]
        worse[~worse] = play.recover(again, (place - course.starts[done])[~worse] / speedup, memory.restart)
        lost = failed[worse]
        play.restart(lost, np.ones(len(lost), int), stores)
        play.place[lost], play.slow[lost] = course.starts[back[done[worse]]], 1.0
    return play.runs


def play_redundancy(
    store: Level,
    interval: float,
    run: float,
    *,
    nodes: float,
    degree: float,
    mtbf: float,
    work: float | None = None,
    trials: int = 200,
    seed: int = 0,
    give_up: float = HOPELESS,
) -> PlayedRuns:
    """A share of ``degree`` - 1 of all ``nodes`` has a replica: all go back to the last commit when nothing
    is left of one node, and who died is back after a commit or a restart (003, 4.4.5; digest, 2.4.4).

    Each replica lives ``mtbf`` seconds on average. Which one fails is drawn among those that are alive: one
    that is alone, one whose other half is gone, or one that can be spared. ``run`` is the work with the
    messages of all replicas, ``work`` without.
    """
    insist(is_number(degree, 1, 2), "redundancy", degree, "1 to 2")
    insist(is_number(mtbf, 0, 1e18) and mtbf > 0, "mtbf", mtbf, "a time, more than 0")
    course = _SafeRun(Pattern(interval), run, [store.commit])
    play = _Play(course, [store.failures], trials, seed, run if work is None else work, give_up)
    begun, gone = play.place.copy(), np.zeros(trials)

    def next_failure(who: np.ndarray) -> np.ndarray:
        return play.random.standard_exponential(len(who)) * mtbf / (degree * nodes - gone[who])

    def is_fatal(who: np.ndarray) -> np.ndarray:
        """Whether a failure that comes now ends one process; if not, one replica more is gone."""
        alive, last = degree * nodes - gone[who], (2 - degree) * nodes + gone[who]
        fatal: np.ndarray = play.random.random(len(who)) * alive < last
        gone[who] += ~fatal
        return fatal

    while len(live := play.live):
        after = next_failure(live)
        # with all replicas there a failure is as likely in any interval to come; else only until the commit
        until = np.where(gone[live] > 0, course.ends[course.done(play.place[live])], course.ends[-1])
        through = play.place[live] + after >= until
        play.place[live] = np.where(through, until, play.place[live] + after)
        gone[live[through]] = 0
        failed = live[~through]
        failed = failed[is_fatal(failed)]
        over = np.concatenate([failed, live[play.place[live] >= course.ends[-1]]])
        play.book(over, begun[over], play.place[over] - begun[over])
        play.place[failed] = begun[failed] = course.starts[course.done(play.place[failed])]
        gone[failed] = 0
        spent = np.zeros(trials)
        while len(failed):
            after = next_failure(failed)
            good = spent[failed] + after >= store.restart
            play.spend(failed[good], "restarts", store.restart)
            gone[failed[good]] = 0
            spent[failed] += after
            failed = failed[~good]
            fatal = failed[is_fatal(failed)]
            play.spend(fatal, "failed_restarts", spent[fatal])
            gone[fatal] = spent[fatal] = 0
            failed = play.hopeful(failed)
    return play.runs


class _SafeRun:
    """What a run is if nothing fails: intervals of work, each with a commit but for the last one. A place is
    how many seconds of it are done; arrays have one more entry, for a run that is through."""

    def __init__(self, pattern: Pattern, run: float, commits: Sequence[float]) -> None:
        insist(is_number(run, 0, 1e18) and run > 0, "run", run, "seconds, more than 0")
        count = max(1, ceil(run / pattern.work * (1 - _ROUNDING)))
        insist(count <= _MOST_INTERVALS, "intervals", count, f"up to {_MOST_INTERVALS}")
        number = np.arange(count + 1)
        #: to which level the commit before each interval went; the begin is as good as the highest
        self.levels = np.zeros(count + 1, int)
        for every in np.cumprod([one + 1 for one in pattern.counts]):
            self.levels += number % every == 0
        self.work = np.append(np.full(count, pattern.work), 0.0)
        self.work[count - 1] = run - (count - 1) * pattern.work
        commit = np.append(np.array(commits)[self.levels[1:]], 0.0)
        commit[count - 1] = 0.0
        #: seconds of work and of commits before each interval
        self._worked = np.append(0.0, np.cumsum(self.work))[:-1]
        self._committed = np.append(0.0, np.cumsum(commit))[:-1]
        self.starts = self._worked + self._committed
        self.ends = self.starts[1:]

    def done(self, place: np.ndarray) -> np.ndarray:
        """How many intervals are done there, with their commits."""
        return np.searchsorted(self.ends, place, side="right")

    def worked(self, place: np.ndarray) -> np.ndarray:
        done = self.done(place)
        return self._worked[done] + np.minimum(place - self.starts[done], self.work[done])

    def committed(self, place: np.ndarray) -> np.ndarray:
        """Seconds of whole commits."""
        return self._committed[self.done(place)]

    def last_commit(self, level: int) -> np.ndarray:
        """By intervals that are done: how many were at the last commit that serves after such a failure."""
        return np.maximum.accumulate(np.where(self.levels >= level, np.arange(len(self.levels)), 0))


class _Play:
    """Where each trial stands, what its time went into, and what chance does to it."""

    def __init__(
        self, course: _SafeRun, rates: Sequence[float], trials: int, seed: int, work: float, give_up: float
    ) -> None:
        fine = isinstance(trials, int) and not isinstance(trials, bool) and trials >= 1
        insist(fine, "trials", trials, "a whole number, 1 or more")
        self._course = course
        self._rate = fsum(rates)
        self._severity = np.cumsum(rates) / (self._rate or 1.0)
        self._work, self._most = work, give_up * work
        self.random = np.random.default_rng(seed)
        self.place = np.zeros(trials)
        #: how many times as long work takes until the next commit
        self.slow = np.ones(trials)  # set anew by each failure, so that the commit need not reset it
        self._parts = {field.name: np.zeros(trials) for field in fields(Spending)}
        self._spent = np.zeros(trials)

    @property
    def live(self) -> np.ndarray:
        """Those that are neither through nor given up."""
        return self.hopeful(np.flatnonzero(self.place < self._course.ends[-1]))

    @property
    def runs(self) -> PlayedRuns:
        computed = self._parts["computing"]
        once = np.minimum(computed, self._course.worked(self._course.ends[-1]))
        parts = Spending(**self._parts | {"computing": once, "recomputation": computed - once})
        return PlayedRuns(self._work, parts, self.place >= self._course.ends[-1])

    def hopeful(self, who: np.ndarray) -> np.ndarray:
        return who[self._spent[who] <= self._most]

    def spend(self, who: np.ndarray, part: str, seconds: np.ndarray | float) -> None:
        self._parts[part][who] += seconds
        self._spent[who] += seconds

    def book(self, who: np.ndarray, begin: np.ndarray, seconds: np.ndarray) -> None:
        """They came from there to where they are now, where the interval breaks off unless it is over."""
        end, course = self.place[who], self._course
        commits = course.committed(end) - course.committed(begin)
        failed = np.maximum(end - begin - commits - (course.worked(end) - course.worked(begin)), 0.0)
        self.spend(who, "commits", commits)
        self.spend(who, "failed_commits", failed)
        self.spend(who, "computing", seconds - commits - failed)

    def to_failure(self, who: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Go on until a failure, or to the end. Whom one hits, and how many intervals they have done."""
        course, begin, slow = self._course, self.place[who], self.slow[who]
        after = self._failures(len(who))
        here = course.done(begin)
        left = np.maximum(course.starts[here] + course.work[here] - begin, 0.0)
        late = left * (slow - 1)
        end = begin + np.where(after < left * slow, after / slow, after - late)
        through = end >= course.ends[-1]
        self.place[who] = np.where(through, course.ends[-1], end)
        self.book(who, begin, np.where(through, course.ends[-1] - begin + late, after))
        hit = who[~through]
        return hit, course.done(self.place[hit])

    def severity(self, who: np.ndarray) -> np.ndarray:
        """The level that is needed after a failure, drawn for each."""
        drawn = np.searchsorted(self._severity, self.random.random(len(who)), side="right")
        return np.minimum(drawn, len(self._severity) - 1)

    def restart(self, who: np.ndarray, level: np.ndarray, restarts: np.ndarray) -> np.ndarray:
        """From these levels, or from those of what fails on the way; from which it was in the end."""
        ends, trying = level.copy(), np.arange(len(who))
        while len(trying):
            needed, after = restarts[ends[trying]], self._failures(len(trying))
            good = after >= needed
            self.spend(who[trying[good]], "restarts", needed[good])
            trying, after = trying[~good], after[~good]
            self.spend(who[trying], "failed_restarts", after)
            ends[trying] = np.maximum(ends[trying], self.severity(trying))
            trying = trying[self._spent[who[trying]] <= self._most]
        return ends

    def recover(self, who: np.ndarray, lost: np.ndarray, restart: float) -> np.ndarray:
        """A restart and the work that was lost, until nothing fails; or which something worse befell."""
        worse, trying = np.zeros(len(who), bool), np.arange(len(who))
        while len(trying):
            after, these = self._failures(len(trying)), who[trying]
            self.spend(these, "restarts", restart * (after >= restart))
            self.spend(these, "failed_restarts", np.where(after >= restart, 0.0, after))
            self.spend(these, "recovery", np.clip(after - restart, 0.0, lost[trying]))
            trying = trying[after < restart + lost[trying]]
            worse[trying] = self.severity(trying) == 1
            trying = trying[~worse[trying] & (self._spent[who[trying]] <= self._most)]
        return worse

    def _failures(self, count: int) -> np.ndarray:
        if not self._rate:
            return np.full(count, inf)
        return self.random.standard_exponential(count) / self._rate
