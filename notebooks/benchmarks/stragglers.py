"""What backup tasks gain where a worker is slow, what they cost where none is, and when a slow node is named.

``python stragglers.py`` prints a line for each experiment, ``--only steps`` for one of them, ``--runs 5``
with so many runs each. Ratios are those of pairs of runs beside each other on one cluster, plain Dask and
ours by turns; of them the median, the least and the greatest. Before each run garbage is collected: what
opening the management has made is not of the run.

A worker of one thread is made slow by a busy loop: a thread of its process that computes in Python. Whoever
wakes up there waits 5 ms for the interpreter's lock. So a task here is a row of short sleeps, and how short
says how many times as long it takes on the slow worker: ``pause``. All other workers hardly compute, and the
loop needs one processor. Among many threads the lock goes round for much longer, and by no rule: a worker
that has many is stopped and goes on again, by signals, so that it has its share of the time.
"""

import argparse
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from statistics import median
from time import monotonic, process_time, sleep
from typing import Any, NamedTuple

from distributed import Client, LocalCluster

import dask_hpc

WORKERS = 4
_SWITCH = 0.005  # seconds until Python lets another thread compute
_TURN = 0.1

Clock = Callable[[], float]


class Ratio(NamedTuple):
    """Of pairs of runs."""

    median: float
    least: float
    most: float

    def __str__(self) -> str:
        return f"{self.median:.3f} ({self.least:.3f} to {self.most:.3f})"


def pause(times: float) -> float:
    """Seconds of a sleep that take so many times as long beside a busy loop."""
    return _SWITCH / (times - 1)


def ticks(number: int, count: int, seconds: float) -> int:
    """One task: so many short sleeps."""
    for _ in range(count):
        sleep(seconds)
    return number


def compute(number: int, steps: int) -> int:
    """Another: it computes all the time."""
    for step in range(steps):
        number ^= step
    return number


def nothing(number: int) -> int:
    """A third."""
    return number


def spin(stop: threading.Event) -> None:
    """The busy loop."""
    while not stop.is_set():
        for _ in range(10_000):
            pass


def start_loop(dask_worker: Any) -> None:
    """On a worker."""
    stop = dask_worker.busy_loop = threading.Event()
    threading.Thread(target=spin, args=(stop,), daemon=True).start()


def stop_loop(dask_worker: Any) -> None:
    """On a worker."""
    dask_worker.busy_loop.set()


@contextmanager
def slow(client: Client, number: int) -> Iterator[str]:
    """Meanwhile the worker of that number has a busy loop. Gives its name, that of its node."""
    address = sorted(client.scheduler_info()["workers"])[number]
    client.run(start_loop, workers=[address])
    try:
        yield str(client.scheduler_info()["workers"][address]["name"])
    finally:
        client.run(stop_loop, workers=[address])


@contextmanager
def in_turns(client: Client, number: int, times: float = 5.0) -> Iterator[None]:
    """Meanwhile the worker of that number runs for one part of the time of so many."""
    address = sorted(client.scheduler_info()["workers"])[number]
    pid = client.run(os.getpid, workers=[address])[address]
    is_over = threading.Event()

    def run() -> None:
        while not is_over.wait(_TURN):
            os.kill(pid, signal.SIGSTOP)
            sleep(_TURN * (times - 1))
            os.kill(pid, signal.SIGCONT)

    turns = threading.Thread(target=run)
    turns.start()
    try:
        yield
    finally:
        is_over.set()
        turns.join()


@contextmanager
def busy_machine(loops: int) -> Iterator[None]:
    """Meanwhile so many processes compute."""
    with ExitStack() as stack:
        for _ in range(loops):
            loop = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(loop.wait)
            stack.callback(loop.kill)
        yield


@contextmanager
def cluster(threads: int) -> Iterator[Client]:
    """Workers that are processes of their own."""
    with (
        LocalCluster(
            n_workers=WORKERS, threads_per_worker=threads, dashboard_address=":0", silence_logs=50
        ) as made,
        Client(made) as client,
    ):
        client.wait_for_workers(WORKERS)
        yield client


def in_steps(
    client: Client, tasks: int, steps: int, work: Callable[..., Any], *args: Any, clock: Clock = monotonic
) -> float:
    """Seconds until all of so many tasks are done, in so many steps, each after all of the one before."""
    began = clock()
    each = tasks // steps
    for step in range(steps):
        numbers = range(step * each, (step + 1) * each)
        found = client.gather(client.map(work, numbers, **_named(work, args), pure=False))
        assert found == list(numbers) or work is compute
    return clock() - began


def _named(work: Callable[..., Any], args: tuple[Any, ...]) -> dict[str, Any]:
    names = work.__code__.co_varnames[1 : work.__code__.co_argcount]
    return dict(zip(names, args, strict=True))


def pairs(
    runs: int,
    threads: int,
    slower: Callable[[Client, int], Any] | None,
    policy: str,
    clock: Clock,
    *how: Any,
) -> Ratio:
    """Plain Dask's seconds by those under a policy, by turns on one cluster, the first of whose workers is
    made slow in this way."""
    found = []
    with cluster(threads) as client, slower(client, 0) if slower else nullcontext():
        in_steps(client, *how)  # nobody has imported anything yet
        for run in range(runs):
            seconds = {}
            for one in ("plain", "ours") if run % 2 else ("ours", "plain"):
                with dask_hpc.manage(client, policy) if one == "ours" else nullcontext():
                    gc.collect()  # which takes some 0.1 s whenever Python comes to it
                    seconds[one] = in_steps(client, *how, clock=clock)
                sleep(0.5)  # what computes in vain ends
            found.append(seconds["plain"] / seconds["ours"])
            tell(f"pair {run + 1} of {runs}: {found[-1]:.3f}")
    return Ratio(median(found), min(found), max(found))


def named(times: float, tasks: int, runs: int, loops: int) -> tuple[int, int]:
    """In how many runs the slow node was named after so many tasks, and in how many another one was. Where
    ``times`` is 1 none is slow: all compute, beside so many busy loops."""
    right = wrong = 0
    with cluster(1) as client, busy_machine(loops):
        for run in range(runs):
            made = slow(client, run % WORKERS) if times > 1 else nullcontext("")
            with made as node, dask_hpc.manage(client, "backup-tasks") as manager:
                if times > 1:
                    in_steps(client, tasks, 1, ticks, 40, pause(times))
                else:
                    in_steps(client, tasks, 1, compute, 1_000_000)
                sleep(1.5)  # heartbeats come twice a second, and later on a busy machine
                story = manager.story()
            names = {name for row in story if row["decision"] == "slow-node" for name in row["nodes"]}
            right += node in names
            wrong += bool(names - {node})
            said = ", ".join(sorted(names)) or "nobody"
            tell(f"run {run + 1} of {runs}: {said} named; slow: {node or 'nobody'}")
    return right, wrong


def tell(text: str) -> None:
    """How far it is."""
    print(f"  {text}", file=sys.stderr, flush=True)


def experiments(runs: int) -> dict[str, tuple[str, Callable[[], str]]]:
    """What is measured, in words, and how."""

    def ratio(*how: Any) -> Callable[[], str]:
        return lambda: str(pairs(runs, *how))

    def count(times: float, tasks: int, loops: int) -> Callable[[], str]:
        def run() -> str:
            right, wrong = named(times, tasks, 4 * runs, loops)
            return f"{right} of {4 * runs} named, {wrong} wrong"

        return run

    five = pause(5)
    ours = "backup-tasks"
    return {
        "rounds": (
            "400 tasks of 2 s at once, 4 x 50 threads, one worker 5 times slower: plain / ours (wanted: 1.5)",
            ratio(50, in_turns, ours, monotonic, 400, 1, ticks, 40, 0.05),
        ),
        "steps": (
            "400 tasks of 0.1 s in 50 steps, 4 x 1 thread, one worker 5 times slower: plain / ours (wanted: "
            "1.5)",
            ratio(1, slow, ours, monotonic, 400, 50, ticks, 80, five),
        ),
        "queue": (
            "400 tasks of 0.1 s at once, 4 x 1 thread, one worker 5 times slower: plain / ours (125 tasks "
            "after each other, and a tail of 5: there is little to gain)",
            ratio(1, slow, ours, monotonic, 400, 1, ticks, 80, five),
        ),
        "equal": (
            "400 tasks of 0.05 s in 10 steps, 4 x 1 thread, none slow: plain / ours (wanted: 0.99)",
            ratio(1, None, ours, monotonic, 400, 10, ticks, 10, 0.005),
        ),
        "empty": (
            "4,000 empty tasks, processor time of scheduler and client: plain / ours",
            ratio(1, None, ours, monotonic, 4000, 1, nothing),
        ),
        "managed": (
            "the same without a tail strategy: plain / managed",
            ratio(1, None, "easy-backfill", process_time, 4000, 1, nothing),
        ),
        "named": ("a node 3 times slower, 60 tasks (wanted: all)", count(3, 60, 0)),
        "busy": ("equal nodes beside two busy loops, 200 tasks (wanted: 0 wrong)", count(1, 200, 2)),
    }


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", action="append", choices=list(experiments(1)), default=None)
    given = parser.parse_args()
    for name, (words, run) in experiments(given.runs).items():
        if given.only is None or name in given.only:
            print(f"{name}: {words}: {run()}", flush=True)


if __name__ == "__main__":
    main()
