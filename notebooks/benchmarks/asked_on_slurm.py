"""The same Dask work on a busy real Slurm of eight nodes, asked for by ``ask="fit"`` and by fixed requests.

``python asked_on_slurm.py fit SEED`` (or ``fixed``) is one run, told in one line of JSON; ``--all --seeds 10
--jobs 4 --out FOLDER`` runs whatever is not in the folder yet, each in a process of its own and four side by
side, and ends in a table; ``--table --out FOLDER`` is the table alone. Slurm is started for each run
(``tests/slurm/small_slurm.py``), so it takes root and Debian's packages. A run takes 8 to 20 minutes, mostly
asleep, and about 1 GB and a tenth of a core: all 20 take about an hour, four side by side.

Time is scaled: a minute stands for an hour, as Slurm's walltimes have minutes. The others' jobs are a
synthetic trace (``simulator.background``). A day of it is simulated first; what runs and waits then is what
Slurm gets to begin with, with what is left of it, and the rest comes when it is due. The work is a number of
equal tasks whose duration is known, so many that they keep a node busy for as long as ``--hours`` says.
Fixed: as many requests of 8 "hours" as it takes. Both are ``dask_hpc.malleable`` and adapt; the work is the
same, and what is paid for (from the start of each unit to its end) is told. Of that on this scale every unit
loses some "minutes": a worker takes as long to start as ever.

``wait`` is how long units wait in the queue, from the submission of each, the mean over what is paid for;
``first`` is when the first one starts, ``idle`` how long nobody works before all is done.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from math import ceil
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[2] / "tests" / "slurm")]

SCALE = 60.0  # an hour is a minute
HOUR = 3600.0
NODES, THREADS, TASK = 8, 2, 2.0
USUAL = 8 * HOUR


def others(seed, load, horizon):
    """What Slurm gets of other people's: (seconds from now, nodes, minutes of walltime, seconds of sleep)."""
    from dask_hpc.simulator.background import background_load
    from dask_hpc.simulator.batch_queue import SimulatedBatchQueue

    begin = 24 * HOUR
    trace = list(background_load(NODES, begin + horizon, load=load, longest=24 * HOUR, seed=seed))
    queue = SimulatedBatchQueue(NODES, trace)
    queue.advance(begin)
    view, by_id = queue.view(), {arrival.job.id: arrival for arrival in trace}

    def scaled(job, ran=0.0):
        arrival = by_id[job]
        limit, runs = arrival.job.walltime - ran, arrival.runtime - ran
        return arrival.job.nodes, max(1, ceil(limit / SCALE / 60)), max(1.0, runs / SCALE)

    found = [(0.0, *scaled(one.id, begin - one.started)) for one in view.running]
    found += [(0.0, *scaled(one.id)) for one in view.pending]
    later = [one.job for one in trace if one.job.submitted > begin]
    return found + [((job.submitted - begin) / SCALE, *scaled(job.id)) for job in later]


def submit(slurm, nodes, minutes, seconds):
    """One job of others."""
    what = ("-N", nodes, "--exclusive", "-t", minutes, "-o", "/dev/null", "--wrap", f"sleep {seconds:.1f}")
    slurm.run("sbatch", "-J", "others", *what)


def keep_busy(slurm, jobs, began, is_over):
    """Others submit when they are due."""
    for after, *job in jobs:
        if is_over.wait(max(0.0, began + after - time.monotonic())):
            return
        submit(slurm, *job)


def run(how, seed, hours, load, patience):
    """One run: what came of it, in "hours"."""
    import dask
    from dask_on_slurm import dask_cluster
    from distributed import Client
    from distributed.utils_test import slowinc
    from small_slurm import SmallSlurm

    import dask_hpc

    with (
        tempfile.TemporaryDirectory(prefix="slurm-") as directory,
        SmallSlurm(Path(directory), NODES) as slurm,
    ):
        os.environ |= {name: slurm.environment[name] for name in ("PATH", "SLURM_CONF")}
        # known as from earlier runs
        dask.config.set({"distributed.scheduler.default-task-durations": {"slowinc": f"{TASK}s"}})
        jobs = others(seed, load, patience * SCALE)
        now = [job for job in jobs if job[0] == 0.0]
        for _, *job in now:
            submit(slurm, *job)
        is_over, began = threading.Event(), time.monotonic()
        busy = threading.Thread(target=keep_busy, args=(slurm, jobs[len(now) :], began, is_over))
        busy.start()
        time.sleep(5)
        settings = {"job_name": "me", "walltime": f"00:{round(USUAL / SCALE / 60):02d}:00"}
        try:
            with (
                dask_cluster(slurm, cores=THREADS, **settings) as cluster,
                Client(cluster) as client,
                dask_hpc.malleable(cluster) as manager,
            ):
                limits = {"maximum_jobs": NODES, "interval": "500ms", "poll": 5.0}
                limits |= {"handover": "4s", "expected_wait": "5s"}
                if how == "fit":
                    limits["ask"] = {"least": "2 min", "overhead": "8s", "gain": "20s", "latency": "2s"}
                else:
                    limits["maximum_jobs"] = ceil(hours * HOUR / (USUAL - 8 * SCALE))
                began = time.monotonic()
                count = round(hours * HOUR / SCALE * THREADS / TASK)
                futures = client.map(slowinc, range(count), delay=TASK, pure=False)
                cluster.adapt(**limits)
                seen, asks = watch(slurm, manager, client, futures, began, patience)
                done = time.monotonic() - began
                left = len(futures)
                why = [row["reason"] for row in manager.story() if row["decision"] == "ask"]
        finally:
            is_over.set()
            busy.join()
        return told(how, seed, seen, asks, done, left, why)


def watch(slurm, manager, client, futures, began, patience):
    """Look until the work is done: when each unit was asked for, started, and was last seen, as Slurm says;
    and what was predicted of it first. All in seconds from now on."""
    seen, asks = {}, {}
    epoch = time.time() - (time.monotonic() - began)
    while time.monotonic() - began < patience and futures:
        # what is done is let go of: no result is lost with a unit
        futures[:] = [future for future in futures if not future.done()]
        for line in slurm.run("squeue", "-h", "-n", "me", "-t", "all", "-o", "%i %T %V %S").splitlines():
            job, state, asked, started = line.split()
            asked, now = moment(asked) - epoch, time.time() - epoch
            if state == "RUNNING":
                seen[job] = (asked, moment(started) - epoch, now)
            elif state == "PENDING":
                seen[job] = (asked, None, now)
        rows = manager.asks()
        now = time.time() - epoch
        for row in rows:
            if row["job"] and row["starts_in"] is not None:
                asks.setdefault(row["job"], (now, row["low"], row["starts_in"], row["high"]))
        time.sleep(1)
    return seen, asks


def moment(text):
    """Seconds of the epoch."""
    return datetime.fromisoformat(text).timestamp()


def told(how, seed, seen, asks, done, left, why):
    """A run in a row; "hours" of the scaled time."""
    units = [(asked, started, last) for asked, started, last in seen.values() if started is not None]
    paid = sum(last - started for _, started, last in units)
    wait = sum((started - asked) * (last - started) for asked, started, last in units) / max(paid, 1e-9)
    checked = []
    for job, (when, low, median, high) in asks.items():
        if seen.get(job, (0, None))[1] is not None:
            checked.append((low, median, high, seen[job][1] - when))
    return {
        "how": how,
        "seed": seed,
        "wait": wait / 60,
        "first": min((started for _, started, _ in units), default=done) / 60,
        "idle": idle(units, done) / 60,
        "done": done / 60,
        "left": left,
        "node_hours": paid / 60,
        "units": len(units),
        "withdrawn": len(seen) - len(units),
        "checked": checked,
        "spans": units,
        "why": why[:5],
    }


def idle(units, done):
    """How long there is no unit before the work is done."""
    reached = nobody = 0.0
    for started, last in sorted((started, last) for _, started, last in units):
        nobody += max(0.0, started - reached)
        reached = max(reached, last)
    return nobody + max(0.0, done - reached)


def all_of(arguments):
    """Every run that is not there yet, some of them side by side, then the table."""
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    missing = [(how, seed) for seed in seeds for how in ("fixed", "fit")]
    missing = [(how, seed) for how, seed in missing if not (out / f"{how}-{seed}.json").exists()]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(partial(one_of, arguments, out), missing))
    table(out)


def one_of(arguments, out, which):
    """One run, in a process of its own."""
    how, seed = which
    command = [sys.executable, str(HERE), how, str(seed)]
    for name in ("hours", "load", "patience"):
        command += [f"--{name}", str(getattr(arguments, name))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        (out / f"{how}-{seed}.json").write_text(done.stdout.strip().splitlines()[-1])
    else:
        print(done.stderr[-2000:], file=sys.stderr)


def table(out):
    """Means and 95 % intervals over the seeds that both have."""
    import numpy as np

    rows = [json.loads(path.read_text()) for path in sorted(out.glob("*.json"))]
    by = {(row["how"], row["seed"]): row for row in rows}
    seeds = sorted({seed for _, seed in by if ("fit", seed) in by and ("fixed", seed) in by})
    for key in ("wait", "first", "idle", "done", "node_hours", "units", "withdrawn", "left"):
        fixed, fit = (np.array([by[how, seed][key] for seed in seeds], float) for how in ("fixed", "fit"))
        words = []
        for one in (fixed, fit):
            half = 1.96 * one.std(ddof=1) / len(one) ** 0.5 if len(one) > 1 else np.nan
            words.append(f"{one.mean():.2f} +- {half:.2f}")
        ratio = fit.mean() / fixed.mean() if fixed.mean() else np.nan
        print(f"{key:10} fixed {words[0]:16} fit {words[1]:16} ratio {ratio:.2f}")
    checked = [one for row in rows for one in row["checked"]]
    open_ones = [one for one in checked if one[2] > 30]
    for name, some in (("all", checked), ("that do not start at once", open_ones)):
        inside = [low - 3 <= waited <= high + 3 for low, _, high, waited in some]  # Slurm looks every 2 s
        print(
            f"predictions {name}: {len(some)}, in their interval {np.mean(inside) if inside else np.nan:.2f}"
        )


def main():
    """One run, or all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("how", nargs="?", choices=["fit", "fixed"])
    parser.add_argument("seed", nargs="?", type=int)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--out", default="asked")
    parser.add_argument("--jobs", type=int, default=4, help="runs side by side")
    parser.add_argument("--hours", type=float, default=12.0)
    parser.add_argument("--load", type=float, default=0.95)
    parser.add_argument("--patience", type=float, default=3600.0, help="seconds")
    arguments = parser.parse_args()
    if arguments.table:
        table(Path(arguments.out))
    elif arguments.all:
        all_of(arguments)
    else:
        found = run(arguments.how, arguments.seed, arguments.hours, arguments.load, arguments.patience)
        print(json.dumps(found))


if __name__ == "__main__":
    main()
