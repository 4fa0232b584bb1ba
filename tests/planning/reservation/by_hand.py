"""The document's formulas, written down as they stand: what the programs are compared with."""

from itertools import product
from math import inf

import numpy as np

from dask_hpc.planning.reservation.cost import Cost
from dask_hpc.planning.reservation.discrete import Grid
from dask_hpc.planning.reservation.law import read_law
from dask_hpc.planning.reservation.sequence import Milestone, Setting

H = 3600.0
#: Table 11.1
LAWS = {
    "Exponential": "exponential mean=1h",
    "Weibull": "weibull shape=0.5 scale=1h",
    "Gamma": "gamma shape=2 scale=0.5h",
    "Lognormal": f"lognormal median={np.exp(3)!r}h sigma=0.5".replace("np.float64(", "").replace(")", ""),
    "Pareto": "pareto min=1.5h shape=3",
    "TruncatedNormal": f"truncnormal mean=8h std={2**0.5!r}h min=1h max=20h",
    "Uniform": "uniform min=1h max=20h",
    "Beta": "beta a=2 b=2 min=0h max=1h",
    "BoundedPareto": "boundedpareto min=1h max=20h shape=2.1",
}


def law(name):
    return read_law(LAWS[name])


def reserved(commit=inf, beta=0.0, gamma=0.0, **more):
    """A request costs its length; a commit and a restart take as long."""
    return Setting(Cost(1.0, beta, gamma), commit, commit, **more)


def cost_of(milestones, time, setting):
    """Formula 9.9: what a job of this time pays, request by request."""
    alpha, beta, gamma = setting.cost.alpha, setting.cost.beta, setting.cost.gamma
    kept, restart, paid = setting.saved, setting.restart if setting.saved > 0 else 0.0, 0.0
    for work, commit in milestones:
        length = restart + work - kept + (setting.checkpoint if commit else 0.0)
        if length > setting.longest * (1 + 1e-9):
            return inf
        if time <= work:
            return paid + alpha * length + beta * (restart + time - kept) + gamma
        paid += (alpha + beta) * length + gamma
        if commit:
            kept, restart = work, setting.restart
    return inf


def mean_cost(milestones, times, weights, setting):
    return sum(w * cost_of(milestones, t, setting) for t, w in zip(times, weights, strict=True) if w > 0)


def every_sequence(times, can_commit=True):
    """All sequences whose milestones are these times; the last commits never."""
    *before, last = times
    ways = [None, False, True] if can_commit else [None, False]
    for choice in product(ways, repeat=len(before)):
        chosen = [Milestone(t, c) for t, c in zip(before, choice, strict=True) if c is not None]
        yield (*chosen, Milestone(last, False))


def cubic(grid, setting):
    """The document's own program (Theorem 6): milestone and commit, for each last commit and last try."""
    times, tail = (grid.times - setting.saved).tolist(), grid.longer.tolist()
    alpha, beta, gamma = setting.cost.alpha, setting.cost.beta, setting.cost.gamma
    n, checkpoint = len(times) - 1, setting.checkpoint
    mean = sum((tail[k - 1] - tail[k]) * times[k] for k in range(1, n + 1))
    costs = {}
    for kept in range(n, -1, -1):
        again = setting.restart if kept or setting.saved > 0 else 0.0
        costs[kept, n] = beta * mean
        for tried in range(n - 1, kept - 1, -1):
            best = inf
            for j in range(tried + 1, n + 1):
                length = again + times[j] - times[kept]
                for commits in (False, True) if setting.can_commit and j < n else (False,):
                    takes = checkpoint if commits else 0.0
                    if length + takes > setting.longest:
                        continue
                    in_vain = takes if commits else times[j] - times[kept]
                    this = costs[j if commits else kept, j]
                    this += (alpha * (length + takes) + beta * again + gamma) * tail[tried]
                    best = min(best, this + beta * in_vain * tail[j])
            costs[kept, tried] = best
    return costs[0, 0]


def random_grid(rng, most=12):
    """Times and probabilities, of which some are nothing."""
    number = int(rng.integers(1, most + 1))
    times = np.cumsum(rng.random(number) + 1e-3) * 10 ** rng.uniform(-1, 4)
    weights = rng.random(number) ** rng.integers(1, 6) * (rng.random(number) > 0.15)
    weights[-1] += 1e-3
    return times, weights / weights.sum()


def random_setting(rng, mean, limited=False, saved=0.0):
    cost = Cost(*(10 ** rng.uniform(-2, 1), *(rng.random(2) * (rng.random(2) > 0.3) * (1.0, mean))))
    checkpoint, restart = rng.random(2) ** 2 * mean * (rng.random(2) > 0.15)
    return Setting(cost, float(checkpoint), float(restart), saved)


def grid_of(times, weights, start=0.0):
    return Grid.of(start, times, weights)
