"""The same work on busy simulated queues, asked for by ``ask="fit"`` and by fixed requests of 8 hours.

``python asked_simulated.py --first 800 --seeds 56`` takes about three seconds a seed. As in
``asked_on_slurm.py``: eight nodes, 12 node-hours of work, other people's load of 0.95 for a day before.
Told are ratios of means over the seeds, with bootstrapped 95 % intervals, and how many predicted starts, of
those that are not at once, lie in their interval. ``--in-line 0.25`` lets more units wait in line.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np

from dask_hpc.planning.asks import watch
from dask_hpc.simulator.ask_study import AskedWork, ask_for
from dask_hpc.simulator.background import background_load

HOUR, NODES, LOAD = 3600.0, 8, 0.95
LOOK = 180.0  # seconds; so late a start may be seen


def run(in_line, seed):
    """Both ways on one queue."""
    watch._IN_LINE = in_line
    begin = 24 * HOUR
    others = list(background_load(NODES, begin + 60 * HOUR, load=LOAD, longest=24 * HOUR, seed=seed))
    work = AskedWork(12 * HOUR, NODES)
    return [ask_for(work, how, NODES, others, begin=begin) for how in ("fit", "fixed")]


def main():
    """All seeds, and the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, default=800)
    parser.add_argument("--seeds", type=int, default=56)
    parser.add_argument("--in-line", type=float, default=watch._IN_LINE)
    given = parser.parse_args()
    with ProcessPoolExecutor(2) as pool:
        pairs = list(pool.map(partial(run, given.in_line), range(given.first, given.first + given.seeds)))
    some = np.random.default_rng(0).integers(0, len(pairs), (10_000, len(pairs)))
    for what in ("wait", "first", "done", "node_seconds"):
        fit, fixed = np.array([[getattr(one, what) for one in pair] for pair in pairs]).T
        low, high = np.quantile(fit[some].mean(1) / fixed[some].mean(1), [0.025, 0.975])
        print(f"{what:12} fit / fixed {fit.mean() / fixed.mean():.2f} [{low:.2f}, {high:.2f}]")
    checked = [one for fit, _ in pairs for one in fit.checked if one[0].high > HOUR / 2]
    inside = sum(wait.low - LOOK <= waited <= wait.high + LOOK for wait, waited in checked)
    print(f"predictions in their interval: {inside} of {len(checked)}")


if __name__ == "__main__":
    main()
