"""What users say their jobs will take: round, few different values, and mostly far too much.

D. Tsafrir, Y. Etsion and D. G. Feitelson, "Modeling user runtime estimates", JSSPP 2005, and the program that
they published with it: twenty popular values are those of 89 % of the jobs, the longest that the site allows
always among them; how popular they are falls exponentially; the other 11 % spread over many values. Estimates
are given to jobs at random, but none less than the job takes. Where we deviate:

* which values are popular, and in which order, the source recommends to take from a log of one's own: see
  ``POPULAR``, where the longest is the first;
* the unpopular ones are multiples of five minutes, and equally unpopular (there a power law of the rank);
* an estimate is given to an application, not to a job: who sends a job again says the same of it;
* of A. W. Mu'alem and D. G. Feitelson, "Utilization, predictability, workloads, and user runtime estimates in
  scheduling the IBM SP2 with backfilling", IEEE TPDS 12 (2001), we take that many jobs end at their limit;
  how many is ours. What they take is then what is said: nobody is killed, none takes longer than is said.
"""

import numpy as np

from dask_hpc.simulator.built_in.batch_model import Numbers
from dask_hpc.simulator.built_in.sessions import Sessions

_HOUR = 3600.0
#: hours, the most popular first; that is also the longest that is allowed
POPULAR = (48, 1, 24, 12, 2, 0.5, 6, 1 / 6, 4, 1 / 12, 3, 8, 18, 0.25, 36, 10, 1 / 3, 5, 1.5, 2 / 3)
MOST = POPULAR[0] * _HOUR
#: per cent of the jobs that say one of them; a, b, c of a * exp(b * rank) + c from the second on
POPULAR_SHARE, BY_RANK = 89.0, (14.0491, -0.177531, 0.462513)
#: how many values there are, a * jobs ** b; how they spread up to the longest, 1 + a * values ** b
VALUES, SPREAD, STEP = (0.653566, 0.547761), (12.1039, -0.6026), 300.0
#: ours: of the applications, and those whose runs may be changed by so much for it
AT_LIMIT, NEARLY = 0.25, 0.5


def popularity() -> Numbers:
    """The shares of the popular values in all jobs."""
    rank = np.arange(1, len(POPULAR) + 1)
    shares = BY_RANK[0] * np.exp(BY_RANK[1] * rank) + BY_RANK[2]
    shares[0] = POPULAR_SHARE - shares[1:].sum()
    return np.asarray(shares / 100.0)


def draw_values(count: int, jobs: int, rng: np.random.Generator) -> Numbers:
    """So many estimates, in seconds, of nobody yet."""
    shares = popularity()
    which = rng.choice(len(POPULAR) + 1, size=count, p=[*shares, 1.0 - shares.sum()])
    values = max(2.0, VALUES[0] * jobs ** VALUES[1])
    spread = 1.0 + SPREAD[0] * values ** SPREAD[1]
    rank = rng.random(count)
    tail = MOST * (spread - 1.0) * rank / (spread - rank)
    tail = np.clip(np.ceil(tail / STEP) * STEP, STEP, MOST)
    return np.where(which < len(POPULAR), np.array([*POPULAR, 0.0])[which] * _HOUR, tail)


def assign(values: Numbers, times: Numbers, rng: np.random.Generator) -> Numbers:
    """One value for each time, none below it: from the longest on, one at random of those that are left and
    long enough; the longest one if none is."""
    pool: list[float] = []
    left = sorted(values.tolist())
    found = np.full(len(times), MOST)
    for at, luck in zip(
        np.argsort(-times, kind="stable").tolist(), rng.random(len(times)).tolist(), strict=True
    ):
        while left and left[-1] >= times[at]:
            pool.append(left.pop())
        if pool:
            place = int(luck * len(pool))
            found[at], pool[place] = pool[place], pool[-1]
            pool.pop()
    return found


def draw_estimates(
    sessions: Sessions, runtimes: Numbers, rng: np.random.Generator
) -> tuple[Numbers, Numbers]:
    """What is said of each job, in seconds, and what it takes: at most that."""
    names, number = np.unique(sessions.application[sessions.of_job], return_inverse=True)
    longest = np.zeros(len(names))
    np.maximum.at(longest, number, runtimes)
    said = assign(draw_values(len(names), len(runtimes), rng), longest, rng)
    # who is stopped at the limit had said too little: the popular value next to what its jobs take
    at_limit = rng.random(len(names)) < AT_LIMIT
    popular = np.sort(POPULAR) * _HOUR
    nearest = popular[np.searchsorted(popular, longest)]
    at_limit &= longest >= NEARLY * nearest
    estimates = np.where(at_limit, nearest, said)[number]
    stopped = at_limit[number] & (runtimes >= NEARLY * estimates)
    return estimates, np.where(stopped, estimates, runtimes)
