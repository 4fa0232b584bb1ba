"""Sizes, run times and arrivals of batch jobs as they were in the logs of real machines.

U. Lublin and D. G. Feitelson, "The workload on parallel supercomputers: modeling the characteristics of rigid
jobs", J. Parallel Distrib. Comput. 63 (2003) 1105-1122: what was fitted there to three machines' logs, of all
jobs together, interactive ones included. Where we deviate:

* its machine has 128 nodes. On another one the largest sizes follow the machine, as there, and the chance of
  a short run time falls with the *share* of the machine that a job asks for, not with the number of nodes:
  with thousands of them there would be no short jobs at all among the larger ones;
* its gaps are those between jobs; ours are those between sessions, in which jobs follow each other in ways of
  their own, so that jobs come in clusters (``sessions``). A gap has an end at some mean gaps;
* it has a day but no week.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc

Numbers = NDArray[np.float64]
Sizes = NDArray[np.int64]

#: share of jobs with one node, and of those with a power of two of them
SERIAL, POWERS_OF_TWO = 0.244, 0.576
#: binary logarithm of a parallel size: uniform between the least and a middle so far below the machine's,
#: which most are, or between the middle and the machine's
LEAST, MIDDLE_BELOW, MOST_ARE_BELOW = 0.8, 2.5, 0.86
#: natural logarithm of a run time: one of two gamma distributions, (shape, scale); none is longer than that
SHORT, LONG, LONGEST_LOG = (4.2, 0.94), (312.0, 0.03), 12.0
#: the chance of the short one: so much, less so much for each of 128 nodes
SHORT_CHANCE, SHORT_LESS, THEIR_NODES = 0.78, 0.0054, 128
#: natural logarithm of a gap: gamma distribution; the shape is that of rush hours, corrected to all hours
GAP = (10.2303 * 1.0225, 0.4871)
#: ours, of mean gaps: a silence that is longer would be as long as all of a short workload
LONGEST_GAP = 60.0
#: arrivals over a day: gamma distribution over half hours, which begins at the eleventh of them
DAY, DAY_BEGINS, HALF_HOURS = (8.1737, 3.9631), 11, 48
#: ours: of what comes on a working day
WEEKEND = 0.5
_SLOT = 1800.0
DAY_LENGTH, WEEK_LENGTH = HALF_HOURS * _SLOT, 7 * HALF_HOURS * _SLOT
#: seconds of the longest run time, 45 hours
LONGEST = float(np.exp(LONGEST_LOG))


def draw_sizes(count: int, nodes: int, rng: np.random.Generator) -> Sizes:
    """How many nodes jobs ask for."""
    kind, stage, place = rng.random(count), rng.random(count), rng.random(count)
    most = np.log2(nodes)
    middle = max(most - MIDDLE_BELOW, LEAST)
    low = np.where(stage < MOST_ARE_BELOW, min(LEAST, most), middle)
    high = np.where(stage < MOST_ARE_BELOW, middle, max(most, middle))
    logs = low + (high - low) * place
    logs = np.where(kind < SERIAL + POWERS_OF_TWO, np.floor(logs + 0.5), logs)
    sizes = np.where(kind < SERIAL, 1.0, np.floor(2.0**logs + 0.5))
    return np.clip(sizes, 1, nodes).astype(np.int64)


def draw_runtimes(sizes: Sizes, nodes: int, rng: np.random.Generator) -> Numbers:
    """Seconds on these sizes; large jobs are long more often."""
    chance = SHORT_CHANCE - SHORT_LESS * THEIR_NODES * sizes / nodes
    is_short = rng.random(len(sizes)) < chance
    found = np.full(len(sizes), np.inf)
    while (beyond := found > LONGEST_LOG).any():  # drawn again, as there
        many = int(beyond.sum())
        short, long = rng.gamma(*SHORT, many), rng.gamma(*LONG, many)
        found[beyond] = np.where(is_short[beyond], short, long)
    return np.asarray(np.exp(found))


def draw_gaps(count: int, rng: np.random.Generator) -> Numbers:
    """From one arrival to the next, in mean gaps or so."""
    gaps = np.exp(rng.gamma(*GAP, count))
    return np.minimum(gaps / gaps.mean(), LONGEST_GAP) if count else gaps


def day_weights() -> Numbers:
    """How many come in each half hour of a day, from midnight on; 1 on average."""
    at = np.arange(DAY_BEGINS, DAY_BEGINS + HALF_HOURS)
    shape, scale = DAY
    weights = np.zeros(HALF_HOURS)
    weights[(at - 1) % HALF_HOURS] = gammainc(shape, (at + 0.5) / scale) - gammainc(shape, (at - 0.5) / scale)
    return weights / weights.mean()


def week_weights() -> Numbers:
    """How many come in each half hour of a week, which begins on Monday; 1 on average."""
    week = np.concatenate([day_weights() * (1.0 if day < 5 else WEEKEND) for day in range(7)])
    return np.asarray(week / week.mean())


class Calendar:
    """Two clocks: the one on the wall, and the people's, which runs fast by day and slow by night and on
    weekends, so that by it the same number arrive at all times. Both begin at midnight, on Monday."""

    def __init__(self) -> None:
        weights = week_weights()
        self._wall = np.arange(len(weights) + 1) * _SLOT
        self._people = np.concatenate([[0.0], np.cumsum(weights) * _SLOT])

    def people(self, wall: Numbers) -> Numbers:
        """What the people's clock says."""
        weeks, rest = np.divmod(wall, WEEK_LENGTH)
        return np.asarray(weeks * WEEK_LENGTH + np.interp(rest, self._wall, self._people))

    def wall(self, people: Numbers) -> Numbers:
        """What the clock on the wall says."""
        weeks, rest = np.divmod(people, WEEK_LENGTH)
        return np.asarray(weeks * WEEK_LENGTH + np.interp(rest, self._people, self._wall))
