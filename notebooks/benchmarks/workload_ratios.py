"""How long real workloads take with us, of what they take on plain Dask: pairs of runs, by turns.

``python workload_ratios.py --out FOLDER`` measures whatever pairs are not in the folder yet and prints a
table; ``--kind restricted --only thin-sum,join --pairs 3 --size tiny`` a part of them. The kinds:

- plain: four local workers of one thread, not managed;
- no-job: the same, managed, and no job is declared;
- all-nodes: in a job that has all four of them;
- restricted: in a job that has four of five; the fifth, which joins for that, does nothing.

All of them are the same cluster in the same processes, which is managed, or is not any more: of two clusters
that do the same, one is some percent slower for as long as it lives, and nobody could tell that from what we
cost. (Nothing of us is left in it when a manager is closed: scenario S29 tells.) A workload is done once by
each kind, then once more in the opposite order, so that a machine that becomes slower is slower for all; and
again, until plain Dask has taken some seconds. A pair is all the seconds of one kind beside those of plain
Dask. Each pair of a workload is measured on a cluster that was started anew, and another kind begins.
Processor time is that of scheduler, client and workers.
"""

import argparse
import gc
import json
import logging
import math
import os
import subprocess
import sys
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from statistics import median

import dask
import numpy as np
import psutil
from distributed import Client, LocalCluster
from distributed.utils import get_mp_context
from real_workloads import SIZES, WORKLOADS, forget_all, is_same

import dask_hpc

#: what is wanted of the suite as a whole, and of each single workload
WANTED = {"no-job": 1.02, "all-nodes": 1.03, "restricted": 1.05}
WANTED_OF_EACH = 1.10
NODES = 4
#: bytes that are used before each run. The host of a virtual machine takes back what was free for two
#: seconds, and giving it again costs several times what a page costs else: whoever comes after a pause, as
#: for a worker to join, would pay for that
TOUCHED = 3 * 2**29
#: a workload is not done more often than that by one kind in one direction
MOST_ROUNDS = 32


class Turns:
    """A cluster, plain or managed by turns."""

    def __init__(self, cluster, client, size):
        self._cluster, self._client, self._size = cluster, client, size
        self._manager = None
        self._processes = {}

    def run(self, name, kind):
        """Do a workload as that kind: its seconds, those of the processors, its result. A worker that joins
        for it has done it once before: what it needs is imported, and its memory is the process's own."""
        if self._become(kind):
            self._run(name, kind)
        return self._run(name, kind)

    def _run(self, name, kind):
        gc.collect()  # what earlier runs left is not collected at the expense of this one
        self._client.run(gc.collect)
        if self._size != "tiny":  # that is no figure for anybody
            touch(min(TOUCHED, psutil.virtual_memory().available // 4))
        job = nullcontext() if kind in ("plain", "no-job") else dask_hpc.job(name, nodes=NODES)
        before, began = self._used(), time.perf_counter()
        with job:
            found = WORKLOADS[name].run(self._client, self._size)
        took, cpu = time.perf_counter() - began, self._used() - before
        forget_all(self._client)
        return took, cpu, found

    def _become(self, kind):
        """Whether a worker has joined for that."""
        if kind == "plain" and self._manager is not None:
            self._scale(NODES)
            self._manager.close()
            self._manager = None
        elif kind != "plain" and self._manager is None:
            self._manager = dask_hpc.malleable(self._cluster, policy="elastic")
        before = len(self._processes)
        self._scale(NODES + 1 if kind == "restricted" else NODES)
        return len(self._processes) > before

    def _scale(self, wanted):
        workers = self._cluster.scheduler.workers
        if len(workers) == wanted:
            return
        self._cluster.scale(wanted)
        while len(workers) != wanted:
            time.sleep(0.01)
        pids = {worker.pid for worker in workers.values()}
        psutil.wait_procs([one for pid, one in self._processes.items() if pid not in pids])
        self._processes = {pid: self._processes.get(pid) or psutil.Process(pid) for pid in pids}

    def _used(self):
        of_workers = sum(sum(one.cpu_times()[:2]) for one in self._processes.values())
        return time.process_time() + of_workers


def touch(nbytes):
    """Use so much memory for a moment."""
    np.ones(nbytes // 8)


def measure_pair(path, pair, todo, size, least):
    """One pair of each workload and kind that is ``todo``, each a line of the file at ``path`` at once."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # as nannies set it, where Python starts anew
    dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
    get_mp_context().set_forkserver_preload(["distributed.nanny", "dask_hpc.services", "real_workloads"])
    with (
        LocalCluster(
            n_workers=0, threads_per_worker=1, dashboard_address=":0", silence_logs=logging.CRITICAL
        ) as cluster,
        Client(cluster) as client,
    ):
        turns = Turns(cluster, client, size)
        for kind in ("plain", *WANTED):
            turns.run(next(iter(todo)), kind)
        for name, kinds in todo.items():
            for row in _compared(turns, name, kinds, pair, least):
                with path.open("a") as file:
                    file.write(json.dumps(row | {"size": size}) + "\n")
                seconds = f"{row['ours']:6.2f} s of {row['plain']:6.2f} s"
                print(f"{name:20} {row['kind']:11} {seconds}: {_ratio(row):.3f}", flush=True)


def _compared(turns, name, kinds, pair, least):
    """A row for each kind; all results have to be the same."""
    order = ["plain", *(kind for kind in WANTED if kind in kinds)]
    order = order[pair % len(order) :] + order[: pair % len(order)]
    turns.run(name, "plain")  # what it needs is imported
    alone, _, wanted = turns.run(name, "plain")
    rounds = max(1, min(MOST_ROUNDS, math.ceil(least / 2 / max(alone, 1e-9))))
    took, cpu = Counter(), Counter()
    for kind in (order + order[::-1]) * rounds:
        seconds, used, found = turns.run(name, kind)
        assert is_same(found, wanted), f"{name}, {kind}: not what plain Dask gives"
        took[kind] += seconds
        cpu[kind] += used
    for kind in kinds:
        yield {
            "workload": name, "kind": kind, "pair": pair, "times": 2 * rounds,
            "ours": round(took[kind], 4), "plain": round(took["plain"], 4),
            "ours_cpu": round(cpu[kind], 3), "plain_cpu": round(cpu["plain"], 3),
        }  # fmt: skip


def measure(
    folder, kinds=tuple(WANTED), names=tuple(WORKLOADS), size="small", pairs=5, least=4.0, quiet=False
):
    """All pairs, as rows: those that the folder has, and those that are measured now and added to it.
    ``least``: seconds that one side of a pair takes at least."""
    path = Path(folder) / "ratios.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    for pair in range(pairs):
        done = {
            (row["kind"], row["workload"]) for row in _rows(path, kinds, names, size) if row["pair"] == pair
        }
        todo = {name: [kind for kind in kinds if (kind, name) not in done] for name in names}
        todo = {name: missing for name, missing in todo.items() if missing}
        if todo:
            command = [sys.executable, __file__, "--out", str(folder), "--size", size, "--least", str(least)]
            asked = ["--pair", json.dumps([pair, todo])]
            said = subprocess.DEVNULL if quiet else None
            done = subprocess.run([*command, *asked], stdout=said, stderr=subprocess.PIPE, text=True)
            if done.returncode:
                raise RuntimeError(f"pair {pair} was not measured: {done.stderr[-2000:]}")
    return _rows(path, kinds, names, size)


def _rows(path, kinds, names, size):
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [row for row in rows if row["size"] == size and row["kind"] in kinds and row["workload"] in names]


def _ratio(row, what=""):
    return row[f"ours{what}"] / max(row[f"plain{what}"], 1e-9)


def ratios(rows, kind, what=""):
    """For each workload the median over its pairs; of wall time, or with ``_cpu`` of processor time."""
    found = {}
    for row in rows:
        if row["kind"] == kind:
            found.setdefault(row["workload"], []).append(_ratio(row, what))
    return {name: median(values) for name, values in found.items()}


def mean(values):
    """The geometric mean, of ratios."""
    return math.exp(sum(math.log(value) for value in values) / len(values))


def table(rows):
    """A line for each workload: seconds of plain Dask, and our ratios by kind, of wall and processor time."""
    kinds = [kind for kind in WANTED if any(row["kind"] == kind for row in rows)]
    wall = {kind: ratios(rows, kind) for kind in kinds}
    cpu = {kind: ratios(rows, kind, "_cpu") for kind in kinds}
    lines = [f"{'':20} {'plain':>8}" + "".join(f" {kind:>11} {'(cpu)':>7}" for kind in kinds)]
    for name in dict.fromkeys(row["workload"] for row in rows):
        seconds = median(row["plain"] for row in rows if row["workload"] == name)
        cells = "".join(f" {wall[k].get(name, 0):11.3f} {cpu[k].get(name, 0):7.3f}" for k in kinds)
        lines.append(f"{name:20} {seconds:6.2f} s{cells}")
    means = "".join(f" {mean(wall[k].values()):11.3f} {mean(cpu[k].values()):7.3f}" for k in kinds)
    return "\n".join([*lines, f"{'geometric mean':20} {'':8}{means}"])


def main():
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    asked.add_argument("--out", default="ratios", metavar="FOLDER", help="where measured pairs are kept")
    asked.add_argument("--kind", choices=list(WANTED), action="append", help="one or more; else all")
    asked.add_argument("--only", default="", metavar="A,B", help="of these workloads only")
    asked.add_argument("--size", choices=SIZES, default="small")
    asked.add_argument("--pairs", type=int, default=5)
    asked.add_argument("--least", type=float, default=4.0, metavar="SECONDS", help="of each side of a pair")
    asked.add_argument("--pair", help=argparse.SUPPRESS)  # the process of one pair
    given = asked.parse_args()
    if given.pair:
        measure_pair(Path(given.out) / "ratios.jsonl", *json.loads(given.pair), given.size, given.least)
        return
    names = given.only.split(",") if given.only else list(WORKLOADS)
    kinds = given.kind or list(WANTED)
    print(table(measure(given.out, kinds, names, given.size, given.pairs, given.least)))


if __name__ == "__main__":
    main()
