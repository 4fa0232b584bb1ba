"""Runs a workload while its cluster changes all the time, and counts what was lost and what ran twice.

``python under_change.py WORKLOAD SEED --managed`` (or ``--plain``) is one run in this process, told in one
line of JSON. ``python under_change.py --all --seeds 10 --out FOLDER`` runs whatever is not in the folder yet,
each in a process of its own, and ends in a table of ours beside plain Dask.

A run: four local workers of one thread under nannies, four processes that do nothing but keep the processors
busy, and every 0.5 to 2 s one change (``changer.py``); the workload is done again until ``--least`` seconds
have passed. Nobody is ever killed by SIGKILL, and one worker at least always stays. What is counted, the same
for both, is:

- lost: results that were on no other worker when theirs left, computed and scattered;
- twice: tasks that began again though nothing had been wrong with them (``ledger.twice``);
- wrong: 1 if the result is not the one of an undisturbed plain cluster, or there was an error instead;
- hung: 1 if it was not there after ``--patience`` seconds.
"""

import argparse
import faulthandler
import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext, suppress
from itertools import product
from pathlib import Path

import dask
import pandas as pd
from changer import Changer, Conditions
from distributed import Client, LocalCluster
from distributed.utils import get_mp_context
from ledger import RULES, LedgerPlugin, Pauses, StartsPlugin, causes, read_starts, twice
from real_workloads import SIZES, WORKLOADS, is_same

import dask_hpc

WORKERS = 4
FORKED = {"distributed.worker.multiprocessing-method": "forkserver"}
#: seconds to start, to close and to tell, beyond the patience with the workload itself
AROUND = 60
COUNTS = ("lost", "twice", "wrong", "hung")
#: a loop that ends with the process that started it
BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(100_000))"


class LogLines(logging.Handler):
    """Keeps what was logged as a warning or worse."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines = []

    def emit(self, record):
        said = f"{record.created:.3f} {record.name} {record.levelname} {record.getMessage()}"
        self.lines.append(said[:2000])

    def count(self, words):
        return sum(words in line for line in self.lines)


@contextmanager
def busy(count):
    """So many processes that keep the processors busy meanwhile."""
    loops = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for one in loops:
            one.kill()
            one.wait()


def reference(name, size, folder):
    """What an undisturbed plain cluster gives; computed once for a folder."""
    path = Path(folder) / "references" / f"{name}-{size}.pickle"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=":0") as cluster,
            Client(cluster) as client,
        ):
            found = WORKLOADS[name].run(client, size)
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_bytes(pickle.dumps(found))
        draft.rename(path)
    return pickle.loads(path.read_bytes())


class Run:
    """One workload on one cluster that changes, and what came of it."""

    def __init__(self, name, seed, managed, size="small", loops=4, patience=120.0, least=0.0):
        self.name, self.seed, self.managed, self.size = name, seed, managed, size
        self.loops, self.patience, self.least = loops, patience, least
        self.conditions = Conditions.of(seed, WORKLOADS[name].can_move)
        #: what each time it was done gave, and what went wrong
        self.found, self.trouble = [], ""
        #: what explains a run in which something is not 0
        self.evidence = {}

    def __call__(self, wanted, tell):
        """Do it, and tell the row for the table, before the cluster is closed: that may not end either."""
        log = LogLines()
        for logger in map(logging.getLogger, ("distributed", "dask_hpc")):
            logger.addHandler(log)
        with (
            tempfile.TemporaryDirectory() as folder,
            dask.config.set(self.conditions.settings()),
            LocalCluster(
                n_workers=WORKERS, threads_per_worker=1, dashboard_address=":0", silence_logs=False,
                **self.conditions.options(),
            ) as cluster,
            Client(cluster) as client,
        ):  # fmt: skip
            row = self._watched(cluster, client, folder, log)
            if not row["hung"]:
                is_right = all(is_same(found, wanted) for found in self.found)
                row["wrong"] = int(bool(self.trouble) or not is_right)
            self.evidence |= {"log": log.lines, "error": self.trouble, "found": repr(self.found)[:1000]}
            tell(row, self.evidence)
            if row["hung"]:
                os._exit(3)  # nobody knows what would have to be waited for

    def _watched(self, cluster, client, folder, log):
        client.register_plugin(StartsPlugin(folder))
        client.register_plugin(LedgerPlugin())
        ledger = cluster.scheduler.plugins[RULES]
        manager = dask_hpc.malleable(cluster, policy="elastic") if self.managed else None
        context = (
            dask_hpc.job(self.name, nodes=2, min_nodes=1, max_nodes=WORKERS) if manager else nullcontext()
        )
        pauses = Pauses(cluster.scheduler.loop.asyncio_loop)
        changer = Changer(self.seed, cluster, client, manager, context, self.conditions, pauses)
        work = threading.Thread(target=self._work, args=(client, context), daemon=True)
        with busy(self.loops):
            began, cpu = time.monotonic(), time.process_time()
            work.start()
            changer.start()
            work.join(self.patience)
            took, cpu = time.monotonic() - began, time.process_time() - cpu
            left, anew = list(ledger.left), list(ledger.anew)
            is_hung = work.is_alive()
            changer.end()
        pauses.end()
        starts = read_starts(folder)
        again = twice(starts, anew)
        plugin = cluster.scheduler.plugins.get("dask-hpc")
        since = time.time() - plugin.context.clock() if plugin else 0.0
        self.evidence |= {
            "began": time.time() - took,
            "story began": since,
            "left": left,
            "changes": changer.done,
            "again": dict(sorted(again.items())[:2000]),
            "story": self._story(manager) if manager else [],
        }
        if is_hung:
            self.evidence["tasks"] = states(cluster.scheduler)
            faulthandler.dump_traceback(sys.stderr)
        return {
            "workload": self.name, "seed": self.seed, "managed": self.managed, "size": self.size,
            "busy": self.loops, "conditions": str(self.conditions),
            "lost": sum(len(one["computed"]) + len(one["scattered"]) for one in left),
            "twice": sum(map(len, again.values())),
            "wrong": 0, "hung": int(is_hung),
            "times": len(self.found), "seconds": round(took, 2), "scheduler_cpu": round(cpu, 2),
            "tasks": sum(what == "start" for _, what, _, _ in starts), "twice_by": causes(again, left),
            "changes": len(changer.done), "workers_left": len(left),
            "killed_by_nanny": log.count("still alive after"), "computed_again": log.count("computed again"),
            "pause": round(pauses.wall, 3), "pause_cpu": round(pauses.processor, 3),
            "our_errors": getattr(plugin, "errors", 0), "trouble": changer.trouble[:5],
        }  # fmt: skip

    def _work(self, client, context):
        until = time.monotonic() + self.least
        try:
            with context:
                while not self.found or time.monotonic() < until:
                    self.found.append(WORKLOADS[self.name].run(client, self.size))
        except BaseException:
            self.trouble = traceback.format_exc()

    @staticmethod
    def _story(manager):
        with suppress(Exception):
            return manager.story()
        return ["the manager did not answer"]


def states(scheduler):
    """Of a hung run: how many tasks are in which state where, and some of them."""
    found = {}
    for task in list(scheduler.tasks.values()):
        where = task.processing_on.address if task.processing_on else ""
        found.setdefault(f"{task.state} {where}", []).append(
            {
                "key": repr(task.key), "restrictions": sorted(task.worker_restrictions or ()),
                "waits for": [repr(one.key) for one in task.waiting_on or ()][:3],
            }
        )  # fmt: skip
    workers = {
        one.address: [one.status.name, len(one.processing), len(one.has_what)]
        for one in list(scheduler.workers.values())
    }
    return {
        "workers": workers,
        "count": {state: len(tasks) for state, tasks in found.items()},
        "some": {state: tasks[:20] for state, tasks in found.items()},
    }


def run_here(given):
    """One run in this process."""
    out = Path(given.out or Path(tempfile.gettempdir()) / "under-change")
    out.mkdir(parents=True, exist_ok=True)
    if not given.spawn:
        dask.config.set(FORKED)
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # as nannies set it, where Python starts anew
        get_mp_context().set_forkserver_preload(["distributed.nanny", "dask_hpc.services", "real_workloads"])

    def tell(row, evidence):
        if any(row[count] for count in COUNTS) or row["our_errors"]:
            path = out / f"{file_name(given.workload, given.seed, given.managed)}.evidence.json"
            path.write_text(json.dumps(evidence, indent=1, default=str))
            row["evidence"] = path.name
        print(json.dumps(row), flush=True)

    wanted = reference(given.workload, given.size, out)
    run = Run(
        given.workload, given.seed, given.managed, given.size, given.busy, given.patience, given.least
    )  # fmt: skip
    run(wanted, tell)


def file_name(name, seed, managed):
    return f"{name}-{seed}-{'managed' if managed else 'plain'}"


def run_apart(name, seed, managed, folder, *, size="small", busy=4, patience=120.0, least=5.0, spawn=False):
    """One run in a process of its own, which is ended should it not end by itself. Gives its row."""
    command = [
        sys.executable, __file__, name, str(seed), "--managed" if managed else "--plain", "--size", size,
        "--busy", str(busy), "--patience", str(patience), "--least", str(least), "--out", str(folder),
        *(["--spawn"] if spawn else []),
    ]  # fmt: skip
    log = Path(folder) / f"{file_name(name, seed, managed)}.log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        )
        try:
            said, _ = process.communicate(timeout=patience + AROUND)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
    rows = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    if rows:
        return rows[-1]
    asked = {"workload": name, "seed": seed, "managed": managed, "size": size}
    return asked | {"lost": 0, "twice": 0, "wrong": 0, "hung": 1, "seconds": 0, "trouble": ["no answer"]}


def run_missing(folder, names, seeds, kinds=(True, False), say=print, at_once=1, **options):
    """All runs, as rows: those that the folder has, and those that are done now and added to it. The kinds
    are whether it is managed; ``at_once``: so many runs keep each other busy as well; for the options see
    ``run_apart``."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    results, size = folder / "runs.jsonl", options.get("size", "small")
    rows = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    rows = [row for row in rows if row["size"] == size and row["workload"] in names and row["seed"] in seeds]
    done = {(row["workload"], row["seed"], row["managed"]) for row in rows}
    wanted = ((name, seed, managed) for seed, name, managed in product(seeds, names, kinds))
    pool = ThreadPoolExecutor(at_once)
    running = [pool.submit(run_apart, *one, folder, **options) for one in wanted if one not in done]
    try:
        for row in (one.result() for one in as_completed(running)):
            with results.open("a") as file:
                file.write(json.dumps(row) + "\n")
            rows.append(row)
            if say is not None:
                counts = " ".join(f"{count} {row[count]}" for count in COUNTS)
                name = file_name(row["workload"], row["seed"], row["managed"])
                say(f"{name}: {counts} in {row['seconds']} s")
    finally:
        pool.shutdown(cancel_futures=True)
    return rows


def explain(path):
    """Tell in order what happened in a run that left evidence: changes, who left with what, story and log."""
    found = json.loads(Path(path).read_text())
    began = found["began"]
    rows = [(when, f"CHANGE {what}") for when, what in found["changes"]]
    for one in found["left"]:
        lost = f"lost {len(one['computed'])} computed, {len(one['scattered'])} scattered"
        said = f"LEFT   {one['worker']}: {lost}, {one['processing']} were to run there; {one['stimulus']}"
        rows.append((one["time"], said))
    for one in found["story"]:
        words = [one["decision"], one["job"], *one["nodes"], one["reason"]]
        rows.append((found["story began"] + one["time"], f"STORY  {' '.join(filter(None, words))}"))
    for line in found["log"]:
        when, _, said = line.partition(" ")
        rows.append((float(when), f"LOG    {said}"))
    for key, times in found["again"].items():
        for (_, before), (when, where) in times:
            rows.append((when, f"AGAIN  {key} on {where}, before on {before}"))
    for when, said in sorted(rows):
        print(f"{when - began:8.3f} {said[:240]}")
    if found["error"]:
        print(found["error"])


def table(rows):
    """A line for each workload: what ours and what plain Dask counted over all seeds, and the median time."""
    frame = pd.DataFrame(rows)
    how = dict.fromkeys(COUNTS, "sum") | {"seconds": "median", "seed": "count"}
    found = frame.groupby(["workload", "managed"]).agg(how).rename(columns={"seed": "runs"})
    wide = found.unstack().swaplevel(axis=1).rename(columns={True: "ours", False: "plain"}, level=0)
    wide = wide.sort_index(axis=1, level=0, sort_remaining=False)
    total = wide.drop(columns="seconds", level=1).sum()
    wide.loc["all"] = total
    return wide.to_string(na_rep="", float_format=lambda value: f"{value:g}")


def main():
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    asked.add_argument("workload", nargs="?", choices=list(WORKLOADS), metavar="WORKLOAD")
    asked.add_argument("seed", nargs="?", type=int, default=0)
    asked.add_argument("--managed", action="store_true", help="under dask-hpc, in a job")
    asked.add_argument("--plain", action="store_true", help="plain Dask (what is done without --managed)")
    asked.add_argument("--size", choices=SIZES, default="small")
    asked.add_argument("--busy", type=int, default=4, help="how many processes keep the processors busy")
    asked.add_argument("--patience", type=float, default=120.0, help="seconds until a run counts as hung")
    asked.add_argument("--least", type=float, default=5.0, help="seconds that it is done again for")
    asked.add_argument("--spawn", action="store_true", help="workers import all anew, as is Dask's default")
    asked.add_argument("--out", default="", metavar="FOLDER", help="where results and evidence go")
    asked.add_argument("--json", action="store_true", help="as it always is for one run: a line of JSON")
    asked.add_argument("--all", action="store_true", help="all workloads and seeds, one after the other")
    asked.add_argument("--only", default="", metavar="A,B", help="of these workloads only")
    asked.add_argument("--kind", choices=["both", "managed", "plain"], default="both")
    asked.add_argument("--seeds", type=int, default=10)
    asked.add_argument("--at-once", type=int, default=1, help="so many runs at the same time")
    asked.add_argument("--first", type=int, default=0, help="the first seed")
    asked.add_argument("--explain", metavar="FILE", help="tell what a file of evidence has, in order")
    given = asked.parse_args()
    if given.explain:
        explain(given.explain)
    elif given.all:
        names = given.only.split(",") if given.only else list(WORKLOADS)
        kinds = {"managed": [True], "plain": [False]}.get(given.kind, [True, False])
        seeds = range(given.first, given.first + given.seeds)
        options = {"size": given.size, "busy": given.busy, "patience": given.patience, "least": given.least}
        options |= {"spawn": given.spawn, "at_once": given.at_once}
        print(table(run_missing(given.out or "under-change", names, seeds, kinds, **options)))
    elif given.workload is None:
        asked.error("name a workload, or --all")
    else:
        run_here(given)


if __name__ == "__main__":
    main()
