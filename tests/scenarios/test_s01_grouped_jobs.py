"""S1: batch jobs of several workers each come and go with the work, and nothing is lost or runs twice.

More of it: DASK_HPC_REPETITIONS=20.
"""

import os
import time

import pytest
from batch_cluster import TidyJob, batch_cluster, names_of, ups_and_downs
from distributed import Client, wait

import dask_hpc

TASKS = 60
IDLE = 10.0
SUBMISSIONS = 2  # as many as there may be batch jobs: each asked for once
LAYOUTS = {"two processes": (4, 2), "automatic processes": (8, None), "one process": (2, 1)}


def noting(folder):
    """A task of 0.2 s that leaves a mark whenever it runs."""

    def work(x):
        from os import getpid
        from time import sleep, time_ns

        sleep(0.2)
        with open(f"{folder}/{x}-{getpid()}-{time_ns()}", "w"):
            return x

    return work


def adapted(cores, processes, folder, ours, **more):
    before = TidyJob.submissions
    with batch_cluster(cores, processes) as cluster, Client(cluster) as client:
        manager = dask_hpc.malleable(cluster) if ours else None
        cluster.adapt(minimum=0, maximum_jobs=2, interval="500ms", **more)
        futures = client.map(noting(folder), range(TASKS), pure=False)
        wait(futures)
        end = time.monotonic() + IDLE
        while time.monotonic() < end:
            time.sleep(0.1)
        ups, downs, lost = ups_and_downs(client)
        found = {
            "starts": ups,
            "removals": downs,
            "lost": lost,
            "executions": len(list(folder.iterdir())),
            "submissions": TidyJob.submissions - before,
            "plan": len(cluster.plan),
            "connected": len(names_of(client)),
            "exact": cluster.plan == names_of(client),
        }
        assert client.gather(futures) == list(range(TASKS))
        found["executions"] = len(list(folder.iterdir()))
        if manager is not None:
            manager.close()
        return found


def check(name, folder, times, report):
    def runs(ours, times):
        found = []
        for number in range(times):
            (folder / f"{ours}-{number}").mkdir()
            found.append(adapted(*LAYOUTS[name], folder / f"{ours}-{number}", ours))
        return found

    plain = runs(False, 1)[0] if name == "two processes" else None  # where it loses something
    ours = runs(True, times)

    def row(what, of, bound):
        worst, theirs = max(map(of, ours)), of(plain) if plain else "-"
        report.add("S1", f"{name}, worst of {times}: {what}", plain=theirs, ours=worst, bound=bound)

    row("results lost", lambda run: run["lost"], "0")
    row("executions", lambda run: run["executions"], str(TASKS))
    row("job submissions", lambda run: run["submissions"], str(SUBMISSIONS))
    row("plan - connected", lambda run: abs(run["plan"] - run["connected"]), "0")
    for run in ours:
        assert run["lost"] == 0
        assert run["executions"] == TASKS
        assert run["submissions"] <= SUBMISSIONS
        assert run["exact"]
    return plain


@pytest.mark.slow
@pytest.mark.timeout(1200)  # twenty times each take some ten minutes
@pytest.mark.parametrize("name", LAYOUTS)
def test_grouped_jobs_come_and_go_without_loss(name, tmp_path, report):
    times = int(os.environ.get("DASK_HPC_REPETITIONS", "1"))
    plain = check(name, tmp_path, times, report)
    assert plain is None or plain["lost"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["two processes", "one process"])
def test_jobs_that_leave_take_nothing_along(name, tmp_path, report):
    """With a grace shorter than the idle time the second job goes, with all its workers."""
    ours = adapted(*LAYOUTS[name], tmp_path, True, idle_grace="2s", cool_down="1s")
    processes = LAYOUTS[name][1]
    report.add("S1", f"{name}, short grace: removals", plain="-", ours=ours["removals"], bound=processes)
    report.add("S1", f"{name}, short grace: results lost", plain="-", ours=ours["lost"], bound=0)
    assert ours["removals"] == ours["connected"] == processes
    assert ours["lost"] == 0 and ours["executions"] == TASKS and ours["exact"]
    assert ours["submissions"] == SUBMISSIONS
