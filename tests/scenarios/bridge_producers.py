"""Producer processes for the scenarios of bridges. Each does what it is told, and says what it saw."""

import multiprocessing
import os
import signal
from time import monotonic, sleep

import numpy as np

import dask_hpc

SPAWN = multiprocessing.get_context("spawn")


def block(rank, step, size):
    return np.random.default_rng((rank, step)).random(size)


def whole(ranks, step, size):
    return np.concatenate([block(rank, step, size) for rank in range(ranks)])


def produce(address, rank, ranks, sizes, steps, pause, gates, options, start, said):
    """Put one block of each step, into a stream for each size of blocks; a step takes ``pause`` seconds, and
    those in ``gates`` wait for an event. Says of each block the seconds that ``put`` took, in how many it
    waited, and whether the block was taken."""
    for size in sizes:
        with dask_hpc.Bridge(
            address, f"heat{size}", shape=ranks * size, chunks=size, rank=rank, size=ranks, **options
        ) as bridge:
            said.put(("there", rank))
            start.wait()
            rows = []
            for step in steps:
                sleep(pause)
                if step in gates:
                    gates[step].wait()
                since = monotonic()
                taken = bridge.put("t", block(rank, step, size), rank, step)
                rows.append((step, monotonic() - since, bridge.stalled(step), taken))
                said.put(("put", rank, step, tuple(bridge._workers)))
            said.put(("done", rank, rows, bridge.skipped, dict(bridge.messages)))


class Producers:
    """So many processes; whatever happens, none is left."""

    def __init__(self, address, ranks, sizes, steps, pause=0.0, gates=None, **options):
        self.start, self.said = SPAWN.Event(), SPAWN.Queue()
        self.args = (address, ranks, sizes, pause, options)
        self.processes = [self._process(rank, steps, (gates or {}).get(rank, {})) for rank in range(ranks)]

    def _process(self, rank, steps, gates):
        address, ranks, sizes, pause, options = self.args
        told = (address, rank, ranks, sizes, steps, pause, gates, options, self.start, self.said)
        process = SPAWN.Process(target=produce, args=told, daemon=True)
        process.start()
        return process

    def kill(self, rank):
        """Without a word."""
        os.kill(self.processes[rank].pid, signal.SIGKILL)
        self.processes[rank].join()

    def again(self, rank, steps):
        """A new process of that rank."""
        self.processes[rank] = self._process(rank, steps, {})

    def hear(self, kind, count):
        """Wait for so many messages of a kind; those of others are dropped."""
        found = []
        while len(found) < count:
            message = self.said.get(timeout=60)
            if message[0] == kind:
                found.append(message[1:])
        return found

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for process in self.processes:
            process.join(0 if error[0] else 30)
            if process.is_alive():
                process.kill()
                process.join()
        self.said.close()
