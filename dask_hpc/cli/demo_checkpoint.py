"""The demo of checkpoints: heat in a plate on a cluster that loses one worker after the other, then all of
them and its scheduler, and goes on, on another number of nodes.

Cores are played: a task computes, then waits for as long as a slow core would have taken.
"""

import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

import dask.array as da
import numpy as np
import xarray as xr
from distributed import Client, LocalCluster, WorkerPlugin

import dask_hpc
from dask_hpc.cli.demo_cluster import demo_cluster
from dask_hpc.cli.demo_seen import Seen
from dask_hpc.examples import heat
from dask_hpc.policy import Policy
from dask_hpc.view.checkpoint import Mark

#: nodes of the first cluster and of the one after it
NODES = 4, 6
BLOCKS = 12
#: iterations between two commits
EVERY = 4
#: seconds that a block takes on a played core
_PLAYED = 0.1
_SIZE = 192, 384  # rows and columns of the plate
#: of the iterations: when a worker is killed, and when everything is
_KILLS, _END = (0.15, 0.3, 0.45), 0.6
_ONE, _START = 0.45, 12.0  # seconds of an iteration, and in which clusters start and loops come to an end
_THIN = 4  # rows and columns of which one is shown
_NAME = "plate"


@dataclass(frozen=True)
class Moment:
    """How the plate was, and where the copies were."""

    title: str
    field: np.ndarray
    checkpoint: dict[str, Any]


class CheckpointDemo(Seen):
    """One run. ``play`` does everything; the rest is there to be shown."""

    def __init__(self, policy: Policy, seconds: float) -> None:
        super().__init__()
        self.policy = policy
        self.iterations = max(16, round((seconds - _START) / _ONE))
        self._kills = {max(EVERY + 1, ceil(share * self.iterations)) for share in _KILLS}
        self._end = ceil(_END * self.iterations)
        #: seconds, and iterations that were done then
        self.course: list[tuple[float, int]] = []
        self.marks: list[Mark] = []
        self.moments: list[Moment] = []
        #: as much of the plate as a person wants to see
        self.field: np.ndarray | None = None
        #: iterations that were done when all was killed, and that the second cluster found
        self.ended_at = self.resumed_at = 0
        #: of the checkpoint, in words, as each cluster left it
        self.stats: list[str] = []
        self.recovered = 0
        #: whether the plate in the end was as it was to be
        self.is_same = False
        self.failure = ""
        self._earlier: list[tuple[str, ...]] = []
        self._begun = monotonic()

    @property
    def bounds(self) -> tuple[float, float]:
        """Temperatures that are shown: from cold to the hottest so far, or a little warm."""
        return 0.0, max(0.2, 0.0 if self.field is None else float(self.field.max()))

    @property
    def checkpoint(self) -> dict[str, Any] | None:
        """The status of the service, once there is any."""
        return self.status.get("checkpoint")

    @property
    def done(self) -> int:
        """Iterations so far."""
        return self.course[-1][1] if self.course else 0

    def lines(self) -> list[tuple[str, ...]]:
        """Of both clusters."""
        return self._earlier + super().lines()

    def play(self, update: Callable[[], None]) -> None:
        """Run the same program twice: the first time until all is killed."""
        for name in ("asyncio", "tornado.application"):  # what Dask says of connections to those that died
            logging.getLogger(name).setLevel(logging.CRITICAL)
        with TemporaryDirectory(prefix="dask-hpc-demo-") as store:
            self._run(NODES[0], store, update, self._end)
            self._earlier, self.story = self.lines(), []
            last = self._run(NODES[1], store, update)
        self._check(last)

    def _run(self, nodes: int, store: str, update: Callable[[], None], end: int | None = None) -> Any:
        """The program, and who looks on. The plate in the end, or None if all was killed before."""
        with self._cluster(nodes) as (cluster, client, manager):
            state = heat.plate(*_SIZE, BLOCKS).persist()
            ck = dask_hpc.Checkpoint(_NAME, store=store, every=EVERY, client=client)
            fixed = [ck.add(name, state[name].data) for name in ("heating", "conductivity")]
            u = ck.add("u", state["temperature"].data)
            del state
            if end is None:
                self.resumed_at = ck.step
            for number in ck.loop(range(self.iterations)):
                u = advanced(u, *fixed).persist()
                ck.update(u=u)
                self._look(manager, u, number + 1)
                update()
                if end is not None and number + 1 in self._kills:
                    self._kill_one(cluster)
                if number + 1 == end:
                    self._kill_all(cluster, ck)
                    return None
            last = u.compute()
            self._leave(ck)
            ck.close()
            return last

    @contextmanager
    def _cluster(self, nodes: int) -> Iterator[tuple[LocalCluster, Client, Any]]:
        with demo_cluster(nodes) as (cluster, client), dask_hpc.manage(client, self.policy) as manager:
            client.register_plugin(_Played())
            self.zero = manager.status()["time"] - self._seconds()
            yield cluster, client, manager

    def _seconds(self) -> float:
        return monotonic() - self._begun

    def _look(self, manager: Any, u: Any, done: int) -> None:
        self.field = u[::_THIN, ::_THIN].compute()
        self.look(manager)
        self.course.append((self._seconds(), done))
        if self.resumed_at:
            is_shown = done in (self.resumed_at + EVERY + 1, self.iterations)
        else:
            is_shown = done == self._end or done in self._kills
        if is_shown and self.checkpoint is not None:
            self.moments.append(Moment(f"iteration {done}", self.field, self.checkpoint))

    def _kill_one(self, cluster: LocalCluster) -> None:
        """Another one each time. Its nanny starts it again, with nothing in its memory."""
        names = list(cluster.workers)
        name = names[len(self.marks) % len(names)]
        self.marks.append(Mark(self._seconds(), f"node {name} dies"))
        os.kill(cluster.workers[name].pid, signal.SIGKILL)

    def _kill_all(self, cluster: LocalCluster, ck: Any) -> None:
        self._leave(ck)
        self.ended_at = self.done
        self.marks.append(Mark(self._seconds(), "everything dies", ends=True))
        for nanny in cluster.workers.values():
            if nanny.pid:
                os.kill(nanny.pid, signal.SIGKILL)

    def _leave(self, ck: Any) -> None:
        self.stats.append(repr(ck.stats()))
        if self.checkpoint is not None:
            self.recovered += self.checkpoint["counts"]["recovered"]

    def _check(self, last: np.ndarray) -> None:
        """Everything again, in a plain loop."""
        state = heat.plate(*_SIZE, BLOCKS).compute()
        for _ in range(self.iterations):
            state = heat.advance(state)
        self.is_same = np.array_equal(last, state["temperature"].values)
        if not self.is_same:
            self.failure = "The plate in the end is not what a plain loop makes."
        elif not self.resumed_at:
            self.failure = "The second cluster found nothing to go on from."


class _Played(WorkerPlugin):
    """A worker that comes plays slow cores."""

    def setup(self, worker: Any) -> None:
        """As it starts."""
        heat.play({"advance": _PLAYED})


def advanced(u: Any, heating: Any, conductivity: Any) -> Any:
    """The plate one iteration later."""
    return da.map_overlap(
        _advance, u, heating, conductivity, depth={0: heat.STEPS, 1: 0}, boundary="none", dtype=float,
        meta=np.empty((0, 0)),
    )  # fmt: skip


def _advance(u: np.ndarray, heating: np.ndarray, conductivity: np.ndarray) -> np.ndarray:
    block = {"temperature": u, "heating": heating, "conductivity": conductivity}
    given = xr.Dataset({name: (("y", "x"), found) for name, found in block.items()})
    found: np.ndarray = heat.advance(given)["temperature"].values
    return found
