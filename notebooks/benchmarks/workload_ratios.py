"""How long real workloads take with us, of what they take on plain Dask: pairs of runs, by turns.

``python workload_ratios.py --out FOLDER`` measures whatever pairs are not in the folder yet and prints a
table; ``--kind restricted --only thin-sum,join --pairs 3 --size tiny`` a part of them. Each cluster has a
process of its own, with its scheduler and a client, and local workers of one thread; the one whose turn it is
not does nothing. The kinds:

- no-job: a managed cluster of 4 workers on which no job is declared;
- all-nodes: in a job that has all 4 workers of a managed cluster;
- restricted: in a job that has 4 workers of 5; the fifth does nothing.

Each is compared with a plain cluster of 4 workers. In a pair each does the workload twice, in the order
A B B A; what takes less than a second is done several times in a row. The seconds are those of all of it.
Each pair of a workload is measured on clusters that were started anew, in the other order each time:
processes that do the same are some percent faster or slower for as long as they live. Processor time is that
of scheduler, client and workers.
"""

import argparse
import json
import logging
import math
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, nullcontext
from pathlib import Path
from statistics import median

import dask
import psutil
from distributed import Client, LocalCluster
from distributed.utils import get_mp_context
from real_workloads import SIZES, WORKLOADS, forget_all, is_same

import dask_hpc

#: what is wanted of the suite as a whole, and of each single workload
WANTED = {"no-job": 1.02, "all-nodes": 1.03, "restricted": 1.05}
WANTED_OF_EACH = 1.10
#: workers, and whether they are managed
PLAIN = (4, False)
CLUSTERS = {"no-job": (4, True), "all-nodes": (4, True), "restricted": (5, True)}
JOB_NODES = 4
#: a workload is not done more often than that in a row
MOST_TIMES = 8


def serve(workers, managed):
    """A cluster that runs what standard input asks for: a line of JSON each, answered by another one."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed is no answer
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # as nannies set it, where Python starts anew
    dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
    get_mp_context().set_forkserver_preload(["distributed.nanny", "dask_hpc.services", "real_workloads"])
    with (
        LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address=":0", silence_logs=logging.CRITICAL
        ) as cluster,
        Client(cluster) as client,
        dask_hpc.malleable(cluster, policy="elastic") if managed else nullcontext(),
    ):
        print("ready", file=answers, flush=True)
        for line in sys.stdin:
            asked = json.loads(line)
            print(json.dumps(_timed(cluster, client, **asked)), file=answers, flush=True)


def _timed(cluster, client, name, size, in_job, times, out):
    """So many runs: their seconds, and those of the processors."""
    processes = [psutil.Process(worker.pid) for worker in cluster.scheduler.workers.values()]

    def used():
        return time.process_time() + sum(sum(one.cpu_times()[:2]) for one in processes)

    before, began = used(), time.perf_counter()
    with dask_hpc.job(name, nodes=JOB_NODES) if in_job else nullcontext():
        for _ in range(times):
            found = WORKLOADS[name].run(client, size)
    took, cpu = time.perf_counter() - began, used() - before
    Path(out).write_bytes(pickle.dumps(found))
    del found
    forget_all(client)
    return {"seconds": took, "cpu": cpu}


class Server:
    """The process of one cluster."""

    def __init__(self, workers, managed):
        command = [sys.executable, __file__, "--serve", str(workers), *(["--managed"] if managed else [])]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._process.stdin.close()
        self._process.wait()

    def wait_until_ready(self):
        assert self._process.stdout.readline() == "ready\n", "the cluster did not start"

    def run(self, name, size, in_job, times, out):
        """Do a workload so many times; gives how long that took."""
        asked = {"name": name, "size": size, "in_job": in_job, "times": times, "out": str(out)}
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())


def measure(folder, kinds=tuple(WANTED), names=tuple(WORKLOADS), size="small", pairs=5, least=2.0, say=print):
    """All pairs, as rows: those that the folder has, and those that are measured now and added to it.
    ``least``: seconds that one side of a pair takes at least."""
    path = Path(folder) / "ratios.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    rows = [row for row in rows if row["size"] == size and row["kind"] in kinds and row["workload"] in names]
    done = {(row["kind"], row["workload"], row["pair"]) for row in rows}
    for pair in range(pairs):
        todo = [(name, kind) for name in names for kind in kinds if (kind, name, pair) not in done]
        if not todo:
            continue
        with ExitStack() as stack, tempfile.TemporaryDirectory() as scratch:
            wanted = sorted({PLAIN, *(CLUSTERS[kind] for _, kind in todo)}, reverse=pair % 2 == 1)
            servers = {one: stack.enter_context(Server(*one)) for one in wanted}
            for server in servers.values():
                server.wait_until_ready()
            warm = set()
            for name, kind in todo:
                known = next((row["times"] for row in rows if row["workload"] == name), None)
                row = _pair(servers, name, kind, pair, size, least, known, Path(scratch), warm)
                rows.append(row)
                with path.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                if say is not None:
                    seconds = f"{row['ours']:6.2f} s of {row['plain']:6.2f} s"
                    say(f"{name:20} {kind:11} {seconds}: {_ratio(row):.3f}")
    return rows


def _pair(servers, name, kind, pair, size, least, times, scratch, warm):
    """The same runs on each, whose results have to be the same: one, the other twice, the one again, so that
    a machine that becomes slower meanwhile is slower for both. The first run here of a workload is not timed:
    it imports what it needs, and shows how often it has to be done (``times``, if that is not known)."""
    took, cpu, found, ours = Counter(), Counter(), {}, CLUSTERS[kind]

    def run(which, times, out):
        in_job = which != PLAIN and kind != "no-job"
        return servers[which].run(name, size, in_job, times, scratch / out)

    for which in (PLAIN, ours):
        if (which, name) not in warm:
            warm.add((which, name))
            alone = run(which, 1, "warm")["seconds"]
            if which == PLAIN and times is None:
                times = max(1, min(MOST_TIMES, math.ceil(least / 2 / alone)))
    one, other = (PLAIN, ours) if pair % 2 == 0 else (ours, PLAIN)
    for which in (one, other, other, one):
        said = run(which, times, "found")
        took[which] += said["seconds"]
        cpu[which] += said["cpu"]
        found[which] = pickle.loads((scratch / "found").read_bytes())
    assert is_same(found[ours], found[PLAIN]), f"{name}, {kind}: not what plain Dask gives"
    return {
        "workload": name, "kind": kind, "size": size, "pair": pair, "times": times,
        "ours": round(took[ours], 4), "plain": round(took[PLAIN], 4),
        "ours_cpu": round(cpu[ours], 3), "plain_cpu": round(cpu[PLAIN], 3),
    }  # fmt: skip


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
    asked.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    asked.add_argument("--managed", action="store_true", help=argparse.SUPPRESS)
    given = asked.parse_args()
    if given.serve:
        serve(given.serve, given.managed)
        return
    names = given.only.split(",") if given.only else list(WORKLOADS)
    print(table(measure(given.out, given.kind or list(WANTED), names, given.size, given.pairs)))


if __name__ == "__main__":
    main()
