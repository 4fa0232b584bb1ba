"""Programs whose workers are killed at random, kept in each of several ways, plain Dask among them.

``python killed_workers.py --mtbf 20 --seed 1 --repeats 3 --way none partner auto --out FILE`` runs the same
program in each way, as often as it says, and ends in a table: seconds, and the ratio to the best fixed way
with its 95 % interval. ``--mtbf none`` kills nobody. Runs that are in the file already are not made again.

A run: four local workers of one thread under nannies, which start another process when one is killed, and 60
steps of four tasks that sleep for a second each; every step needs the one before. From the first step on one
worker that is chosen at random gets SIGKILL after times that are exponential with a mean of ``mtbf`` seconds;
a repeat has the same times in all ways. ``disk`` is with partner, as copies on disk are those of partners.
``partner-2s`` and ``partner+store-2s`` say how often to commit; the others leave that to ``every="auto"``,
which believes its configuration, a failure in months, until many were seen.
Without failures all ways of a repeat run on one cluster, one after the other in a random order: that a
cluster is slower than another is no way's fault.
"""

import argparse
import json
import logging
import math
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import fmean, stdev

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster, wait
from scipy.stats import t as student

import dask_hpc

WORKERS, STEPS, SECONDS = 4, 60, 1.0
BLOCK = 2**17  # numbers in a block
PATIENCE = 900.0  # seconds for one run
WAYS: dict[str, dict[str, object] | None] = {
    "none": None,
    "partner": {"levels": ["partner"]},
    # as somebody would say who knows that workers die every minute, or oftener
    "partner-2s": {"levels": ["partner"], "every": "2 s"},
    "partner+store-2s": {"levels": ["partner", "store"], "every": "2 s"},
    "disk": {"levels": ["partner", "disk"]},
    "store": {"levels": ["store"]},
    "partner+store": {"levels": ["partner", "store"]},
    "auto": {"levels": "auto"},
}
CONFIG = {
    "distributed.scheduler.allowed-failures": 1000,
    "distributed.worker.multiprocessing-method": "forkserver",
    "distributed.comm.timeouts.connect": "5s",
    "distributed.deploy.lost-worker-timeout": "1 h",  # nannies bring them back
    "hpc.checkpoint.levels": ["partner", "disk", "store"],
}


def step(block: np.ndarray) -> np.ndarray:
    time.sleep(SECONDS)
    return block + 1


class Killer(threading.Thread):
    """Kills a worker now and then, until it is stopped."""

    def __init__(self, cluster: LocalCluster, mtbf: float, seed: str) -> None:
        super().__init__(daemon=True)
        self.killed = 0
        self._nannies, self._mtbf, self._random = [*cluster.workers.values()], mtbf, random.Random(seed)
        self._is_over = threading.Event()

    def run(self) -> None:
        while not self._is_over.wait(self._random.expovariate(1 / self._mtbf)):
            pid = self._nannies[self._random.randrange(len(self._nannies))].pid
            if pid is not None:  # else it has not come back yet
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    self.killed += 1

    def stop(self) -> None:
        self._is_over.set()
        self.join()


def program(client: Client, way: str, name: str, steps: int) -> tuple[float, str]:
    """Seconds that it took, and what it was told of its commits."""
    u = da.zeros(WORKERS * BLOCK, chunks=BLOCK).persist()
    wait(u)
    why, began = "", time.perf_counter()
    kept = WAYS[way]
    if kept is None:
        for _ in range(steps):
            u = u.map_blocks(step, dtype=float, meta=np.empty(0)).persist()
            wait(u)
    else:
        with dask_hpc.Checkpoint(name, **kept) as ck:
            u = ck.add("u", u)
            for _ in ck.loop(range(steps)):
                u = u.map_blocks(step, dtype=float, meta=np.empty(0)).persist()
                wait(u)
                ck.update(u=u)
            stats = ck.stats()
            why = f"{stats.commits} commits; {stats.why}"
    took = time.perf_counter() - began
    assert (u.max().compute(), u.min().compute()) == (steps, steps)
    return took, why


@contextmanager
def small_cluster() -> Iterator[tuple[LocalCluster, Client]]:
    with (
        tempfile.TemporaryDirectory(prefix="killed-", ignore_cleanup_errors=True) as scratch,
        dask.config.set(CONFIG | {"hpc.checkpoint.store": f"{scratch}/store"}),
        LocalCluster(
            n_workers=WORKERS,
            threads_per_worker=1,
            dashboard_address=":0",
            local_directory=scratch,
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(WORKERS)
        yield cluster, client


def measured(
    cluster: LocalCluster, client: Client, way: str, mtbf: float | None, seed: str, steps: int
) -> dict[str, object]:
    killer = None if mtbf is None else Killer(cluster, mtbf, seed)
    if killer is not None:
        killer.start()
    found: list[tuple[float, str]] = []
    name = f"{way} {seed}".replace(" ", "-").replace("+", "-")
    work = threading.Thread(target=lambda: found.append(program(client, way, name, steps)), daemon=True)
    work.start()
    work.join(PATIENCE)
    if killer is not None:
        killer.stop()
    if not found and not work.is_alive():
        raise RuntimeError(f"{way}: it failed, as is told above")
    took, why = found[0] if found else (math.inf, "it did not end")
    return {"way": way, "seconds": took, "killed": 0 if killer is None else killer.killed, "why": why}


def repeat(ways: list[str], mtbf: float | None, seed: str, steps: int) -> Iterator[dict[str, object]]:
    """One run in each way."""
    if mtbf is None:
        with small_cluster() as (cluster, client):
            program(client, "none", "", 3)  # what is imported and connected first is in nobody's time
            for way in random.Random(seed).sample(ways, len(ways)):
                yield measured(cluster, client, way, mtbf, seed, steps)
        return
    for way in ways:
        with small_cluster() as (cluster, client):
            yield measured(cluster, client, way, mtbf, seed, steps)


def interval(values: list[float]) -> str:
    """Their mean with its 95 % interval."""
    if len(values) < 2:
        return f"{fmean(values):.3f}"
    half = student.ppf(0.975, len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return f"{fmean(values):.3f} +- {half:.3f}"


def table(rows: list[dict[str, object]], ways: list[str]) -> str:
    """Ratios are those of mean seconds; the interval is that of a repeat's seconds over the mean of the
    best fixed way, or without failures over plain Dask in the same repeat."""
    by_way = {way: {row["repeat"]: row["seconds"] for row in rows if row["way"] == way} for way in ways}
    means = {way: fmean(found.values()) for way, found in by_way.items() if found}
    fixed = {way: mean for way, mean in means.items() if way != "auto"}
    lines = [f"{'way':14} {'runs':>4} {'seconds':>9} {'of the best fixed':>20} {'of plain Dask':>20}"]
    best = min(fixed, key=fixed.get) if fixed else ""
    for way, mean in means.items():
        ratios = []
        for other in (best, "none"):
            there = by_way.get(other, {})
            pairs = [seconds / there[one] for one, seconds in by_way[way].items() if one in there]
            exact = f"{mean / means[other]:.3f}" if other in means else "-"
            ratios.append(f"{exact} ({interval(pairs)})" if pairs else exact)
        lines.append(f"{way:14} {len(by_way[way]):4} {mean:9.1f} {ratios[0]:>20} {ratios[1]:>20}")
    return "\n".join([*lines, f"best fixed way: {best}; in brackets the mean of the pairs of a repeat"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mtbf", default="none", help="seconds between deaths, or none")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--way", nargs="+", choices=list(WAYS), default=["none", "partner", "auto"])
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    try:
        mtbf = None if asked.mtbf == "none" else float(asked.mtbf)
    except ValueError:
        mtbf = math.nan
    if mtbf is not None and not mtbf >= 1:
        parser.error(f"--mtbf: found {asked.mtbf!r}; allowed: none, or seconds, 1 or more")
    if asked.repeats < 1 or asked.steps < 2:
        parser.error("--repeats, --steps: allowed are 1 or more, and 2 or more")
    key = {"mtbf": mtbf, "seed": asked.seed, "steps": asked.steps}
    known = asked.out.read_text().splitlines() if asked.out and asked.out.exists() else []
    rows = [row for row in map(json.loads, known) if all(row[one] == key[one] for one in key)]
    for number in range(asked.repeats):
        done = {row["way"] for row in rows if row["repeat"] == number}
        left = [way for way in dict.fromkeys(asked.way) if way not in done]
        for found in repeat(left, mtbf, f"{asked.seed} {number}", asked.steps) if left else ():
            row = {**key, "repeat": number, **found}
            rows.append(row)
            print(f"{number} {row['way']}: {row['seconds']:.1f} s, {row['killed']} killed; {row['why']}")
            sys.stdout.flush()
            if asked.out:
                with asked.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    print(table(rows, list(dict.fromkeys(asked.way))))


if __name__ == "__main__":
    main()
