"""S10: more is wanted than the queue of Slurm lets through, and then less."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest
from dask_on_slurm import dask_cluster
from distributed import Client, Event

import dask_hpc

pytestmark = [pytest.mark.slow, pytest.mark.slurm]

RUNNING = 3  # jobs for which there is room: each of the two clusters has a node of three cores
PENDING = 2  # jobs that may wait in the queue
MOST = 8  # jobs that the work at hand could use
LOOKS = 20


def blocked(number, event):
    Event(event).wait(120)
    return number


def queued(slurm, name):
    """Jobs that were submitted while the queue was full, and what became of them when the work was done."""
    ours = name.startswith("ours")
    node = "n2" if ours else "n1"
    with (
        dask_cluster(slurm, cores=1, job_name=name, job_extra_directives=[f"-w {node}"]) as cluster,
        Client(cluster, set_as_default=False) as client,
        dask_hpc.malleable(cluster) if ours else nullcontext() as manager,
    ):
        more = {"max_pending": PENDING, "poll": 0.5, "idle_grace": "1s", "cool_down": "1s"} if ours else {}
        adaptive = cluster.adapt(
            minimum_jobs=RUNNING, maximum_jobs=MOST, interval="200ms", target_duration="1s", **more
        )
        futures = client.map(blocked, range(100), event=name, pure=False)
        slurm.wait_until(lambda: len(client.nthreads()) == RUNNING, "workers of all jobs that run")

        def jobs(state):
            return set(slurm.jobs(name=name, states=state))

        waiting = PENDING if ours else MOST - RUNNING
        slurm.wait_until(lambda: len(jobs("PENDING")) >= waiting, "jobs in the queue")
        for _ in range(LOOKS):
            cluster.sync(adaptive.adapt)
        running, pending, submitted = jobs("RUNNING"), jobs("PENDING"), jobs("all")
        Event(name, client=client).set()
        client.gather(futures)
        slurm.wait_until(lambda: not jobs("PENDING"), "an empty queue")
        for _ in range(LOOKS):
            cluster.sync(adaptive.adapt)
        told = [(row["decision"], row["reason"]) for row in manager.story()] if ours else []
        print(*told, sep="\n")
        return running, pending, submitted, jobs("RUNNING"), jobs("all"), told


def test_a_full_queue_is_not_filled_further_and_what_waits_goes_first(slurm, report):
    with ThreadPoolExecutor(2) as pool:
        plain, ours = pool.map(lambda name: queued(slurm, name), ["plain-queue", "ours-queue"])
    running, pending, submitted, left, ever, told = ours
    report.add("S10", "jobs pending in a full queue", plain=len(plain[1]), ours=len(pending), bound=PENDING)
    assert len(plain[1]) == MOST - RUNNING  # as many as it may have: nothing caps them
    assert len(running) == RUNNING and len(pending) == PENDING
    assert submitted == running | pending == ever
    assert left == running, "one that runs has gone though others waited"
    kinds = [kind for kind, _ in told]
    assert kinds.count("cancel-unit") == PENDING
    assert not {"unit-leaves", "unit-dead", "error"}.intersection(kinds)
