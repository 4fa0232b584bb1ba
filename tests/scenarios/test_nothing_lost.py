"""S4 with ``kill -9``: workers are killed at random beside protected work, one at a time, again and again.

Nothing is lost, computed or scattered; no byte is wrong; what had copies never runs again, and what an
iterating program computes again after each kill is never more than what it did since its last commit.
``DASK_HPC_KILLS`` says how often, ``DASK_HPC_SEED`` in which order.
"""

import os
import random
import sys
import time
from pathlib import Path

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster, wait
from distributed.client import _wait
from distributed.utils_test import inc
from protected_work import described, gathered, is_whole, kill, until, within

import dask_hpc

KILLS = int(os.environ.get("DASK_HPC_KILLS", "30"))
SEED = int(os.environ.get("DASK_HPC_SEED", "20261121"))
WORKERS = 4
PARTS = 6
#: a dead worker is given up soon, and a new one may take its time on a busy machine
SETTINGS = {
    "distributed.comm.timeouts.connect": "3s",
    "distributed.deploy.lost-worker-timeout": "10 minutes",
}


def first(i, log):
    written(log, f"first {i}")
    return np.random.default_rng(i).random(2000)


def step(number, i, mine, other, log):
    written(log, f"step {number} {i}")
    time.sleep(0.02)
    return mine + np.roll(other, 1) * 0.5


def written(log, what):
    fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{what}\n".encode())
    os.close(fd)


def ran(log, what):
    return sum(line.startswith(what) for line in Path(log).read_text().splitlines())


def computed(steps):
    """What the program must give, without a cluster."""
    u = [np.random.default_rng(i).random(2000) for i in range(PARTS)]
    for _ in range(steps):
        u = [u[i] + np.roll(u[i - 1], 1) * 0.5 for i in range(PARTS)]
    return u


def copied_step(dask_scheduler):
    """The newest step of which all is copied; the keys say which it is."""
    base = dask_scheduler.plugins["dask-hpc-checkpoint"].protected["u"].base
    return 0 if base is None else int(next(iter(base.keys)).split("-")[1])


def addresses(dask_scheduler):
    return list(dask_scheduler.workers)


class Program:
    """Iterates beside its deaths: a few steps ahead of what is computed."""

    def __init__(self, client, log, base):
        self.client, self.log, self.steps = client, log, 0
        self.u, self.before = base, []

    def go_on(self):
        self.before, self.steps = self.u, self.steps + 1
        self.u = [
            self.client.submit(step, self.steps, i, mine, self.u[i - 1], self.log, key=f"u-{self.steps}-{i}")
            for i, mine in enumerate(self.u)
        ]
        dask_hpc.protect(self.u, "u", every="1s", client=self.client)


@pytest.mark.slow
@pytest.mark.timeout(120 + 30 * KILLS)
def test_workers_are_killed_and_nothing_is_lost(tmp_path, report):
    log, choose = str(tmp_path / "log"), random.Random(SEED)
    with (
        dask.config.set(SETTINGS),
        LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        values = [np.random.default_rng(100 + i).random(3000) for i in range(PARTS)]
        data = client.scatter(values, hash=False)
        base = [client.submit(first, i, log, key=f"base-{i}") for i in range(PARTS)]
        dask_hpc.protect(data, "data", client=client)
        dask_hpc.protect(base, "base", client=client)
        program, began = Program(client, log, base), time.monotonic()
        before, allowed, worst = 0, 0, 0.0
        for number in range(KILLS):
            until(client, is_whole, workers=WORKERS, names=("data", "base"))
            for _ in range(choose.randrange(1, 8)):
                program.go_on()
                within(client, "a step", _wait(program.before))
            again = ran(log, "step") - program.steps * PARTS
            assert again - before <= allowed, f"{again - before} again, not {allowed}\n{described(client)}"
            worst, before = max(worst, (again - before) / (allowed or 1)), again
            # Two steps are under way, each with a task or two that will have to start again.
            allowed = (program.steps - client.run_on_scheduler(copied_step) + 2) * PARTS
            kill(client, choose.choice(sorted(client.run_on_scheduler(addresses))))
            program.go_on()
            for found, value in zip(gathered(client, data), values, strict=True):
                assert found.tobytes() == value.tobytes()
            for i, found in enumerate(gathered(client, base)):
                assert found.tobytes() == np.random.default_rng(i).random(2000).tobytes()
            print(f"{number + 1} killed in {time.monotonic() - began:.0f} s", file=sys.stderr)
            assert ran(log, "first") == PARTS, described(client)
        for found, value in zip(gathered(client, program.u), computed(program.steps), strict=True):
            assert found.tobytes() == value.tobytes()
        again = ran(log, "step") - program.steps * PARTS
        assert 0 <= again - before <= allowed, described(client)
        status = client.run_on_scheduler(
            lambda dask_scheduler: dask_scheduler.plugins["dask-hpc-checkpoint"].status()
        )
        assert status["errors"] == 0
    report.add(
        "S4", f"{KILLS} workers killed, seed {SEED}: {PARTS} scattered and {PARTS} computed results, lost",
        plain=plain(tmp_path), ours="0", bound="0",
    )  # fmt: skip
    report.add(
        "S4", f"tasks of {program.steps} steps run again, of {program.steps * PARTS}", plain="-",
        ours=f"{again}; after one kill at most {worst:.0%} of what was done since", bound="<= 100 %",
    )  # fmt: skip
    assert ran(log, "first") == PARTS, "what has copies never runs again"


def plain(tmp_path):
    """Without us: one worker is killed."""
    log = str(tmp_path / "plain")
    with (
        dask.config.set(SETTINGS),
        LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        data = client.scatter([np.arange(10) + i for i in range(4 * PARTS)], hash=False)
        base = [client.submit(first, i, log, key=f"base-{i}") for i in range(PARTS)]
        wait(base)
        kill(client, min(client.run_on_scheduler(addresses)))
        client.submit(inc, 1).result(60)
        deadline = time.monotonic() + 60
        while all(future.status == "finished" for future in data) and time.monotonic() < deadline:
            time.sleep(0.05)
        wait(base)
        lost = sum(future.status != "finished" for future in data)
        again = ran(log, "first") - PARTS
    assert lost > 0, "plain Dask loses scattered data"
    return f"{lost} of {4 * PARTS} scattered after one kill; {again} of {PARTS} computed again"
