"""How long workers with many small results take to leave, and how long the scheduler is deaf meanwhile.

``python small_results.py 100000 --way retire --way sigterm`` prints what it measured, a line for each way.
"""

import argparse
import asyncio
import gc
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from math import inf
from time import monotonic, sleep, thread_time
from typing import NamedTuple

import dask
from distributed import Client, Future, LocalCluster, wait

import dask_hpc

#: how workers leave; the last is ``retire_workers`` of plain Dask
WAYS = ("retire", "scale", "sigterm", "dask")
_TICK = 0.005  # seconds; looks that are closer together take time from what is measured
_TOO_LONG = 300.0  # seconds


class Seconds(NamedTuple):
    """What was measured: until the workers are gone; the longest time in which the scheduler's event loop
    answered nobody, and what of one such time it computed, which is less on a busy machine; and how many
    results are nowhere now."""

    total: float
    pause: float
    step: float
    lost: int


class Ticker:
    """Ticks on an event loop; its longest gap is the longest pause."""

    def __init__(self) -> None:
        self.pause = self.step = 0.0

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            began, computed = monotonic(), thread_time()
            await asyncio.sleep(_TICK)
            self.pause = max(self.pause, monotonic() - began - _TICK)
            self.step = max(self.step, thread_time() - computed)


@contextmanager
def ticking(cluster: LocalCluster) -> Iterator[Ticker]:
    """A ticker on the loop of the cluster's scheduler."""
    ticker, running = Ticker(), []

    async def start() -> None:
        running.append(asyncio.ensure_future(ticker.run()))

    async def stop() -> None:
        running[0].cancel()

    cluster.sync(start)
    try:
        yield ticker
    finally:
        cluster.sync(stop)


def touch(nbytes: int) -> None:
    """Use so much memory for a moment: the host of a virtual machine takes back what is free for a while."""
    bytearray(b"1") * nbytes


def make(number: int, nbytes: int) -> bytes:
    """One result."""
    return number.to_bytes(8, "big") * (nbytes // 8)


def scatter(client: Client, count: int, nbytes: int) -> list[Future]:
    """So many results that nobody has to compute: they are there a hundred times as soon."""
    found = {}
    for first in range(0, count, 5000):
        some = range(first, min(first + 5000, count))
        found |= client.scatter({f"small-{number}": make(number, nbytes) for number in some}, direct=False)
    return list(found.values())


def leave(
    count: int,
    nbytes: int = 100,
    way: str = "retire",
    *,
    workers: int = 4,
    leaving: int = 1,
    spread: bool = False,
    scattered: bool = False,
    inside: Callable[[LocalCluster], AbstractContextManager[None]] = nullcontext,
) -> Seconds:
    """So many workers leave of all, and they alone have ``count`` small results of so many bytes; ``spread``:
    all workers have some; ``scattered``: nobody computes them. The others have a large one each, so they are
    not the ones that ``scale`` picks. ``inside`` is entered while they leave, to look closer.

    Scheduler and client share one process and one event loop, the workers have a process each.
    """
    with (
        # No queue: a worker that has all its tasks at once is done with them sooner.
        dask.config.set({"distributed.scheduler.worker-saturation": inf}),
        LocalCluster(
            n_workers=workers if spread else leaving,
            threads_per_worker=1,
            dashboard_address=":0",
            silence_logs=50,
        ) as cluster,
        Client(cluster) as client,
    ):
        going = list(client.run(os.getpid))[:leaving]
        if scattered:
            made = scatter(client, count, nbytes)
        else:
            made = client.map(make, range(count), nbytes=nbytes, pure=False, batch_size=5000)
            wait(made)
        cluster.scale(workers)
        client.wait_for_workers(workers)
        manager = None if way == "dask" else dask_hpc.malleable(cluster)
        pids = client.run(os.getpid)
        kept = [
            client.submit(bytes, 10 * count * nbytes, pure=False, workers=[address])
            for address in pids.keys() - going
        ]
        wait(kept)
        scheduler = cluster.scheduler
        sleep(2)
        gc.collect()  # what it finds now is not ours
        touch(1_000_000_000)
        with inside(cluster), ticking(cluster) as ticker:
            since = monotonic()
            if way == "scale":
                cluster.scale(workers - leaving)
            elif way == "sigterm":
                for address in going:
                    os.kill(pids[address], signal.SIGTERM)
            else:
                client.retire_workers(going)
            while monotonic() < since + _TOO_LONG and (
                len(scheduler.workers) > workers - leaving
                if way == "scale"
                else not scheduler.workers.keys().isdisjoint(going)
            ):
                sleep(_TICK)
            total = monotonic() - since
            sleep(0.1)
        lost = sum(not scheduler.tasks[future.key].who_has for future in made)
        if manager is not None:
            manager.close()
    return Seconds(total, ticker.pause, ticker.step, lost)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", type=int, help="results of the workers that leave")
    parser.add_argument("--bytes", type=int, default=100, help="of each")
    parser.add_argument("--way", action="append", choices=WAYS, help="how they leave; may be given again")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--leaving", type=int, default=1)
    parser.add_argument("--spread", action="store_true", help="all workers have some of the results")
    parser.add_argument("--scattered", action="store_true", help="nobody computes them: sooner made")
    asked = parser.parse_args()
    for way in asked.way or WAYS:
        found = leave(
            asked.count, asked.bytes, way, workers=asked.workers, leaving=asked.leaving, spread=asked.spread,
            scattered=asked.scattered,
        )  # fmt: skip
        print(
            f"{way:8} {asked.count:,} results of {asked.bytes} B: gone after {found.total:.2f} s, longest "
            f"pause {1000 * found.pause:.0f} ms, step {1000 * found.step:.0f} ms, {found.lost} lost",
            flush=True,
        )


if __name__ == "__main__":
    main()
