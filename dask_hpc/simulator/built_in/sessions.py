"""Who sends jobs: users with habits, who send one job again and again, together or one after the other.

D. G. Feitelson, "Packing schemes for gang scheduling", JSSPP 1996: the same job is run n times with a
probability of n ** -2.5. What a user does again after days is the locality of D. G. Feitelson, "Locality of
sampling and diversity in parallel system workloads", ICS 2007. J. Zilber, O. Amit and D. Talby, "What is
worth learning from parallel workloads?", ICS 2005: after twenty minutes without a job a user is elsewhere.
The other figures are ours, made to look like the logs of the Parallel Workloads Archive.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dask_hpc.simulator.built_in.batch_model import Numbers

Indices = NDArray[np.int64]

#: the same job n times: n ** -REPEATS, at most so often
REPEATS, MOST_REPEATS = 2.5, 500
#: ours: users for the root of the number of jobs, and how the shares of the first, second, ... fall
USERS, SHARES_FALL = 1.5, 1.0
#: ours: how often a session is about something that its user has done before
HABIT = 0.5
#: ours: jobs of a session that a script sends together with the one before, one every so many seconds
TOGETHER, SCRIPT = 0.6, 5.0
#: ours: a user waits for the last job, for so long at most, then thinks: lognormal, median and sigma
PATIENCE, THINK, THINK_SIGMA, SESSION_ENDS = 7200.0, 180.0, 1.0, 1200.0


@dataclass(frozen=True, slots=True)
class Sessions:
    """Jobs by number, sessions by number, in order of their begin."""

    #: which session each job is in, and which of its jobs is the first of its session
    of_job: Indices
    first: Indices
    #: what each session is about: what is sent again is the same application
    application: Indices
    #: who sends each session's jobs
    user: Indices

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.user)


def draw_sessions(jobs: int, rng: np.random.Generator) -> Sessions:
    """So many jobs, all in sessions; the last session may be cut short."""
    numbers = np.arange(1, MOST_REPEATS + 1)
    chances = numbers**-REPEATS
    lengths = rng.choice(numbers, size=jobs, p=chances / chances.sum())
    count = int(np.searchsorted(np.cumsum(lengths), jobs)) + 1
    of_job = np.repeat(np.arange(count), lengths[:count])[:jobs]
    first = np.concatenate([[0], np.cumsum(lengths[: count - 1])])
    users = max(1, round(USERS * jobs**0.5))
    shares = np.arange(1.0, users + 1) ** -SHARES_FALL
    user = rng.choice(users, size=count, p=shares / shares.sum())
    is_habit, which = rng.random(count) < HABIT, rng.random(count)
    application = np.arange(count)
    past: list[list[int]] = [[] for _ in range(users)]
    for session, who in enumerate(user.tolist()):
        before = past[who]
        if before and is_habit[session]:
            application[session] = application[before[int(which[session] * len(before))]]
        before.append(session)
    return Sessions(of_job, first, application, user)


def draw_offsets(sessions: Sessions, runtimes: Numbers, rng: np.random.Generator) -> Numbers:
    """Seconds from the begin of its session to each job. A user who waits for a job is not told how long it
    waited in a queue that nobody knows yet."""
    jobs = len(runtimes)
    together, script = rng.random(jobs) < TOGETHER, rng.exponential(SCRIPT, jobs)
    thought = np.minimum(THINK * np.exp(THINK_SIGMA * rng.standard_normal(jobs)), SESSION_ENDS)
    before = np.concatenate([[0.0], runtimes[:-1]])
    gaps = np.where(together, script, np.minimum(before, PATIENCE) + thought)
    gaps[sessions.first] = 0.0
    sums = np.cumsum(gaps)
    return np.asarray(sums - sums[sessions.first][sessions.of_job])
