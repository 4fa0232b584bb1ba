"""Schedulers, workers and programs as processes that a test may kill."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
from forks import Fork

from dask_hpc.checkpoint.store.files import Files
from dask_hpc.checkpoint.store.versions import Versions

SHAPE, N = (40, 30), 24

PROGRAM = """
import sys
import dask.array as da
import numpy as np
from distributed import Client, wait
import dask_hpc

address, store, log, result, n, workers = sys.argv[1:]
if __name__ == "__main__":
    with Client(address, timeout=20) as client, dask_hpc.Checkpoint("run", store or None, every=3) as ck:
        client.wait_for_workers(int(workers))  # so that each has a part
        u = ck.add("u", da.zeros((40, 30), chunks=(11, 30)).persist())
        rng = np.random.default_rng(3)
        rng.bit_generator.state = ck.add("rng", rng.bit_generator.state)
        for i in ck.loop(range(int(n))):
            u = (u * 1.25 + rng.random((1, 30))).persist()
            wait(u)
            ck.update(u=u, rng=rng.bit_generator.state)
            with open(log, "a") as file:
                file.write(f"{i}\\n")
        np.save(result, u.compute())
"""


def expected(n=N):
    """The state after all iterations, computed without Dask."""
    u, rng = np.zeros(SHAPE), np.random.default_rng(3)
    for _ in range(n):
        u = u * 1.25 + rng.random((1, 30))
    return u


class Run:
    """One directory, in which the same program is run until it ends."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.script = directory / "program.py"
        self.script.write_text(PROGRAM)
        self.store = directory / "store"
        self.result = directory / "result.npy"
        self._processes: list[Fork] = []
        self._logs = 0

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for process in self._processes:
            with suppress(ProcessLookupError):
                process.kill()
        for process in self._processes:
            process.wait()

    def start(self, *command, **environment):
        """A process of its own."""
        fast = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "4s"}
        process = Fork(
            command,
            env={**os.environ, **fast, **environment},
            output=self.directory / f"out-{len(self._processes)}",
            cwd=self.directory,
        )
        self._processes.append(process)
        return process

    def cluster(self, workers, **environment):
        """A scheduler and so many workers. ``environment`` is the scheduler's."""
        file = self.directory / f"scheduler-{len(self._processes)}.json"
        quiet = ["--no-dashboard", "--port", "0", "--host", "127.0.0.1", "--scheduler-file", file]
        scheduler = self.start("-m", "distributed.cli.dask_scheduler", *quiet, **environment)
        until(file.exists, "a scheduler")
        return file, scheduler, [self.worker(file) for _ in range(workers)]

    def worker(self, file, **environment):
        """One more."""
        options = ["--no-nanny", "--no-dashboard", "--nthreads", "1", "--memory-limit", "500MB"]
        at = ["--scheduler-file", file, "--local-directory", self.directory / "scratch"]
        return self.start("-m", "distributed.cli.dask_worker", *at, *options, **environment)

    def program(self, file, store=True, workers=1):
        """Run it. Gives the process, and the file in which it says which iterations it did."""
        import json

        self._logs += 1
        log = self.directory / f"iterations-{self._logs}"
        log.touch()
        address = json.loads(Path(file).read_text())["address"]
        where = self.store if store else ""
        return self.start(self.script, address, where, log, self.result, N, workers), log

    def stored(self):
        """Up to which iteration the state is in the store."""
        manifest, _ = Versions(Files(str(self.store)), "run").latest()
        return manifest.step if manifest else 0

    def output(self):
        """What all of them said."""
        return "".join(path.read_text()[-1500:] for path in sorted(self.directory.glob("out-*")))


def kill(*processes):
    """Without a word."""
    for process in processes:
        process.send_signal(signal.SIGKILL)
    for process in processes:
        process.wait()


def done(log):
    """The iterations that a program did."""
    return [int(line) for line in log.read_text().split()]


def until(holds, what, timeout=60):
    """Poll: there are no events between processes."""
    deadline = time.monotonic() + timeout
    while not (found := holds()):
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.05)
    return found
