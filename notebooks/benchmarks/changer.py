"""Changes a cluster again and again, by every way that people and machines have but SIGKILL.

For under_change.py. The same seed gives the same changes, with us and without, as far as the state of the
cluster allows: which workers there are when one is chosen depends on how fast they start.
"""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from distributed import Client, Status

import dask_hpc

POLICIES = ("elastic", "fpsma-pwma", "performance-aware", "elastic")
_SETTLE = 10.0  # seconds that calls which are still under way have at the end


@dataclass(frozen=True)
class Conditions:
    """What makes a run harder, the same for a seed each time."""

    slow_scheduler: bool
    slow_workers: bool
    short_of_memory: bool
    lifetimes: bool

    @classmethod
    def of(cls, seed, can_move=True):
        """``can_move``: nothing is tied to its worker, as an actor is."""
        return cls(seed % 2 == 1, seed % 4 >= 2, seed % 3 == 2, seed % 5 == 4 and can_move)

    def __str__(self):
        return ", ".join(name for name, is_so in vars(self).items() if is_so) or "none"

    def settings(self):
        """Of Dask: whose own monitor kills a worker that is short of memory does so by SIGKILL."""
        found = {
            "distributed.worker.memory.terminate": False,
            "distributed.scheduler.allowed-failures": 100,  # of workers, for which no task is to blame
        }
        if self.short_of_memory:  # results beyond 20 MB of a worker are on disk
            found |= {
                "distributed.worker.memory.target": 0.02,
                "distributed.worker.memory.spill": False,
                "distributed.worker.memory.pause": False,
            }
        return found

    def options(self):
        """Of the cluster."""
        found = {"memory_limit": "1 GiB" if self.short_of_memory else "4 GiB"}
        if self.lifetimes:  # as a batch system gives them, and a new worker each time
            found |= {"lifetime": "20 s", "lifetime_stagger": "10 s", "lifetime_restart": True}
        return found

    @property
    def least(self):
        """So many workers are there whatever else happens. Two of them may reach the end of their lifetime
        while a third one starts."""
        return 3 if self.lifetimes else 1


class Changer:
    """A thread that does one change every 0.5 to 2 s until it is told to end.

    Whoever is told to go is chosen among workers that nobody has told so yet, only if enough others stay, and
    not if it has an actor, which cannot be moved; and none is while the cluster is about to get smaller
    anyway, or adapts itself.
    """

    def __init__(self, seed, cluster, client, manager, context, conditions, pauses):
        self._dice = Random(seed)
        self._cluster, self._client, self._manager = cluster, client, manager
        self._context, self._conditions, self._pauses = context, conditions, pauses
        self._scheduler = cluster.scheduler
        self._wanted, self._last_pause = len(cluster.workers), time.monotonic()
        self._adaptive, self._adapts_until = None, 0.0
        self._going = set()
        self._is_over = threading.Event()
        self._calls = ThreadPoolExecutor(8)
        self._thread = threading.Thread(target=self._run, daemon=True)
        #: (seconds since the epoch, what was done)
        self.done = []
        #: what could not be done, and why
        self.trouble = []

    def start(self):
        self._thread.start()

    def end(self):
        """No more changes from now on."""
        self._is_over.set()
        self._thread.join(_SETTLE)
        self._calls.shutdown(wait=False, cancel_futures=True)

    def _run(self):
        self._is_over.wait(self._dice.uniform(0.2, 1.0))
        while not self._is_over.is_set():
            draw, pause = self._dice.random(), self._dice.uniform(0.5, 2.0)
            number = self._dice.randrange(1 << 30)  # all a change needs to choose by: one draw for each
            try:
                self._disturb()
                self._change(draw, Random(number))
            except Exception as error:
                self.trouble.append(f"{type(error).__name__}: {error}"[:300])
            self._is_over.wait(pause)

    def _note(self, what):
        self.done.append((time.time(), what))

    # what happens beside changes

    def _disturb(self):
        if time.monotonic() - self._last_pause < 3:
            return
        self._last_pause = time.monotonic()
        if self._conditions.slow_scheduler:
            self._pauses.sleep(1.0)
        if self._conditions.slow_workers:
            address = self._dice.choice(sorted(self._scheduler.workers) or [None])
            if address is not None:
                self._call_worker(address, stop, 1.0)

    def _call(self, function, *args, **kwargs):
        """Without waiting for it: the next change comes when it is due."""

        def called():
            try:
                function(*args, **kwargs)
            except dask_hpc.InputError:
                pass  # it may be as large or as small as it may be
            except Exception as error:
                if not self._is_over.is_set():
                    said = f"{function.__name__}: {type(error).__name__}: {error}"
                    self.trouble.append(said[:300])

        self._calls.submit(called)

    def _call_worker(self, address, function, *args):
        """On its event loop; the answer may never come."""
        self._call(self._client.run, function, *args, workers=[address], wait=False, on_error="ignore")

    # changes

    def _change(self, draw, dice):
        if self._adapts_until:
            if time.monotonic() > self._adapts_until:
                self._adapts_until = 0.0
                self._cluster.loop.add_callback(self._adaptive.stop)
                return self._scale(dice)
            return self._other(dice)
        if draw < 0.30:
            return self._scale(dice)
        if draw < 0.40:
            return self._adapt(dice)
        if draw < 0.50:
            return self._other(dice)
        ways = (self._terminate, self._terminate, self._retire, self._close_gracefully, self._restart)
        way = dice.choice(ways)
        address = self._victim(dice)
        if address is None:
            return self._scale(dice)
        self._going.add(address)
        way(address, dice)
        return None

    def _victim(self, dice):
        """Somebody to be told to go, or nobody."""
        least = self._conditions.least
        wanted = {str(name) for name in list(self._cluster.worker_spec)}
        running = [one for one in list(self._scheduler.workers.values()) if one.status == Status.running]
        staying = [one for one in running if str(one.name) in wanted and one.address not in self._going]
        if len(running) > self._wanted or len(wanted) > self._wanted or len(staying) <= least:
            return None
        found = sorted(one.address for one in staying if not one.actors)
        return dice.choice(found) if found else None

    def _scale(self, dice):
        """To 1 to 4 workers, or no fewer than have to be there; those that are going do not count as such."""
        going = len(self._going & set(self._scheduler.workers))
        least = self._conditions.least
        self._wanted = max(dice.randint(least, 4), min(4, least + going))
        self._cluster.scale(self._wanted)
        self._note(f"scale to {self._wanted}")

    def _adapt(self, dice):
        if self._going & set(self._scheduler.workers):
            return self._scale(dice)
        self._adapts_until = time.monotonic() + dice.uniform(1.0, 4.0)
        least = self._conditions.least
        self._adaptive = self._cluster.adapt(minimum=least, maximum=4, interval="500ms")
        self._note(f"adapt between {least} and 4")
        return None

    def _terminate(self, address, dice):
        pid = self._scheduler.workers[address].pid
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        self._note(f"SIGTERM to {address}")

    def _retire(self, address, dice):
        self._note(f"retire {address}")
        self._call(self._client.retire_workers, [address])

    def _close_gracefully(self, address, dice):
        """What a worker does when its lifetime is over."""
        self._note(f"lifetime of {address} is over")
        self._call_worker(address, close_gracefully)

    def _restart(self, address, dice):
        self._note(f"restart {address}")
        self._call(self._client.restart_workers, [address], timeout=60, raise_for_error=False)

    def _other(self, dice):
        """A change of who gets what; with plain Dask there is only the other client."""
        kind = dice.choice(("client", "client", "policy", "request"))
        if kind == "client" or self._manager is None:
            self._note("another client comes")
            self._call(self._another_client, dice.randrange(1 << 30))
        elif kind == "policy":
            policy = dice.choice(POLICIES)
            self._note(f"policy {policy}")
            self._call(self._manager.set, policy=policy)
        else:
            change = dice.choice((1, -1))
            self._note(f"request {change:+}")
            self._call(self._context.request, change)

    def _another_client(self, seed):
        """Comes with a small job, has its answer and leaves."""
        with Client(self._scheduler.address, set_as_default=False) as other:
            with dask_hpc.job("another", nodes=1, min_nodes=1, max_nodes=2, client=other):
                futures = other.map(wait_and_add, range(20), seed=seed, key=f"another-{seed}")
            if sum(other.gather(futures)) != sum(range(20)) + 20 * seed:
                self.trouble.append("the other client's result is wrong")


def wait_and_add(number, seed):
    time.sleep(0.02)
    return number + seed


async def stop(seconds):
    """The event loop, not only this coroutine."""
    time.sleep(seconds)


async def close_gracefully(dask_worker):
    dask_worker.loop.add_callback(dask_worker.close_gracefully, restart=True)
