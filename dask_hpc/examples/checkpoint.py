"""Checkpoints: heat in a plate on a cluster that loses one worker after the other, then all of them and its
scheduler; the same program goes on, on another number of nodes. Cores are played."""

import logging
import os
import signal
from collections.abc import Generator
from math import ceil
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
import xarray as xr
from distributed import LocalCluster, WorkerPlugin

from dask_hpc import Checkpoint, Policy, manage
from dask_hpc.examples import MADE_UP, Example, heat, small_cluster

#: nodes of the first cluster and of the one after it
NODES = 4, 6
BLOCKS = 12
#: iterations between two commits
EVERY = 4
#: seconds that a block takes on a played core
_PLAYED = 0.1
#: of the iterations: when a worker is killed, and when everything is
_KILLS, _END = (0.15, 0.3, 0.45), 0.6
_ONE, _START = 0.45, 12.0  # seconds of an iteration, and in which clusters start and loops come to an end
_THIN = 4  # rows and columns of which one is shown
_NAME = "plate"


class Moment(NamedTuple):
    """How the plate was, and where the copies were."""

    title: str
    field: np.ndarray
    checkpoint: dict[str, Any]


class Death(NamedTuple):
    """When whose; that of everything ends the program's line: until it runs again there is none."""

    time: float
    label: str
    ends: bool = False


class LosesAll(Example):
    """The program runs twice: the first time until all is killed."""

    title = "dask-hpc demo: checkpoints"
    opening = (
        f"Heat in a plate on {NODES[0]} nodes, a commit every {EVERY} iterations; workers are killed one "
        f"after the other, then all of them; then {NODES[1]} nodes go on."
    )
    panels = (("field", "copies"), ("deaths",), ("latest",))
    at_end = ("summary", "stats")
    sections = ("summary", "course", "moments", "stats", "story")
    has_jobs = False
    decisions = (
        "commit", "recovery", "agents", "store", "drain", "node-left", "node-joined", "lost", "error",
    )  # fmt: skip

    def __init__(self, policy: Policy, seconds: float) -> None:
        super().__init__(policy)
        self.iterations = max(16, round((seconds - _START) / _ONE))
        self._kills = {max(EVERY + 1, ceil(share * self.iterations)) for share in _KILLS}
        self._end = ceil(_END * self.iterations)
        #: seconds, and iterations that were done then
        self.course: list[tuple[float, int]] = []
        self.deaths: list[Death] = []
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
        self._earlier: list[tuple[str, ...]] = []
        self._begun = monotonic()

    def lead(self) -> str:
        """With both clusters."""
        return (
            f"Heat in a plate on a live Dask cluster of {NODES[0]} nodes that loses everything, and on one "
            f"of {NODES[1]} nodes that goes on. {MADE_UP}"
        )

    def progress(self) -> str:
        """Seconds and iterations."""
        seconds, done = self.course[-1] if self.course else (0, 0)
        return f"{seconds:.0f} s, iteration {done} of {self.iterations}"

    def lines(self) -> list[tuple[str, ...]]:
        """Of both clusters."""
        return self._earlier + super().lines()

    def play(self) -> Generator[None, None, None]:
        """Run it twice, and compare the plate with that of a plain loop."""
        for name in ("asyncio", "tornado.application"):  # what Dask says of connections to those that died
            logging.getLogger(name).setLevel(logging.CRITICAL)
        with TemporaryDirectory(prefix="dask-hpc-demo-") as store:
            yield from self._run(NODES[0], store, self._end)
            self._earlier, self.story = self.lines(), []
            last = yield from self._run(NODES[1], store)
        self.is_same = np.array_equal(last, heat.after(self.iterations))
        if not self.is_same:
            self.failure = "The plate in the end is not what a plain loop makes."
        elif not self.resumed_at:
            self.failure = "The second cluster found nothing to go on from."

    def summary(self) -> list[str]:
        """What was lost, what came back, what was done twice, whether all was right."""
        killed = sum(not one.ends for one in self.deaths)
        again = self.ended_at - self.resumed_at
        died, them = ("worker", "it") if killed == 1 else ("workers", "them")
        return [
            f"{killed} {died} died; {self.recovered} results that were lost with {them} were loaded from "
            "copies on other nodes, and the program did not notice.",
            f"Everything died after iteration {self.ended_at}. The same program, on {NODES[1]} nodes instead "
            f"of {NODES[0]}, went on from iteration {self.resumed_at}: {again} of {self.iterations} "
            f"iterations {'was' if again == 1 else 'were'} done twice.",
            f"The plate in the end is {'' if self.is_same else 'NOT '}that of a plain loop to the last bit.",
        ]

    def _run(self, nodes: int, store: str, end: int | None = None) -> Generator[None, None, Any]:
        """The program, and who looks on. Gives the plate in the end; None if all was killed before."""
        with small_cluster(nodes) as (cluster, client), manage(client, self.policy) as manager:
            client.register_plugin(_Played())
            self.zero = manager.status()["time"] - self._seconds()
            state = heat.plate(heat.ROWS, heat.COLUMNS, BLOCKS).persist()
            ck = Checkpoint(_NAME, store=store, every=EVERY, client=client)
            fixed = [ck.add(name, state[name].data) for name in ("heating", "conductivity")]
            u = ck.add("u", state["temperature"].data)
            del state
            if end is None:
                self.resumed_at = ck.step
            for number in ck.loop(range(self.iterations)):
                u = advanced(u, *fixed).persist()
                ck.update(u=u)
                self._look(manager, u, number + 1)
                yield
                if end is not None and number + 1 in self._kills:
                    self._kill_one(cluster)
                if number + 1 == end:
                    self._leave(ck)
                    self._kill_all(cluster)
                    return None
            last = u.compute()
            self._leave(ck)
            ck.close()
            return last

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
        if is_shown and self.status["checkpoint"] is not None:
            self.moments.append(Moment(f"iteration {done}", self.field, self.status["checkpoint"]))

    def _kill_one(self, cluster: LocalCluster) -> None:
        """Another one each time. Its nanny starts it again, with nothing in its memory."""
        names = list(cluster.workers)
        name = names[len(self.deaths) % len(names)]
        self.deaths.append(Death(self._seconds(), f"node {name} dies"))
        os.kill(cluster.workers[name].pid, signal.SIGKILL)

    def _kill_all(self, cluster: LocalCluster) -> None:
        self.ended_at = self.course[-1][1]
        self.deaths.append(Death(self._seconds(), "everything dies", ends=True))
        for nanny in cluster.workers.values():
            if nanny.pid:
                os.kill(nanny.pid, signal.SIGKILL)

    def _leave(self, ck: Checkpoint) -> None:
        self.stats.append(repr(ck.stats()))
        if self.status["checkpoint"] is not None:
            self.recovered += self.status["checkpoint"]["counts"]["recovered"]


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
