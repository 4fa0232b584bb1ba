"""The demo's cluster and jobs: predicted first, then run while nodes are held, leave and come."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any

from distributed import Client, Future, LocalCluster

import dask_hpc
from dask_hpc.cli.demo_cluster import demo_cluster
from dask_hpc.cli.demo_seen import Seen
from dask_hpc.cli.demo_work import TASK, Piece, Tally
from dask_hpc.model.job import Job
from dask_hpc.model.units import count_nodes
from dask_hpc.policy import Policy
from dask_hpc.simulator import Arrival, Result, Workload, simulate

NODES = 4
UNITS = 140.0  # how many units of time the whole run takes, about


PIECES = (
    Piece("climate", 0, 4, 1, 4, work=300, walltime=130),
    Piece("genomics", 10, 1, 1, 2, work=60, walltime=90),
    Piece("urgent", 40, 2, 2, 2, work=50, walltime=40, priority=10),
    Piece("plots", 60, 1, 1, 1, work=25, walltime=40),
    Piece("training", 75, 2, 1, 4, work=80, walltime=60, priority=5),
)


@dataclass
class Event:
    """A job is submitted, or, if there is something to say, something is done to the cluster."""

    at: float
    what: str
    do: Callable[[], Any]


class Demo(Seen):
    """One run. ``play`` does everything; the rest is there to be shown."""

    def __init__(self, policy: Policy, seconds: float) -> None:
        super().__init__()
        self.policy = policy
        self.unit = seconds / UNITS
        self.predicted = self._predict()
        self.tally = Tally(submitted=sum(piece.tasks(self.unit) for piece in PIECES))
        #: what was done to the cluster, and when: for the reader
        self.events: list[tuple[float, str]] = []
        self.failure = ""

    def play(self, update: Callable[[], None]) -> None:
        """Start the cluster, submit the jobs and disturb them as their times come, wait for all of them."""
        with self._cluster() as (cluster, client, manager), TemporaryDirectory() as folder:
            diary = Path(folder, "diary.txt")
            began = monotonic()
            self.zero = manager.status()["time"]
            todo = self._script(client, cluster, manager, diary)
            futures: list[Future] = []
            limit = 2 * UNITS * self.unit + 30
            while todo or not all(future.done() for future in futures):
                if todo and monotonic() - began >= todo[0].at * self.unit:
                    event = todo.pop(0)
                    done = event.do()
                    if event.what:
                        self.events.append((monotonic() - began, event.what))
                    else:
                        futures += done
                elif monotonic() - began > limit:
                    self.failure = f"The jobs did not end within {limit:.0f} s."
                    break
                self.tally.done = sum(future.done() for future in futures)
                self.look(manager)
                update()
                sleep(0.1)
            self._check(futures, diary)
            self._wait_for_the_last(manager)
            update()

    def _predict(self) -> Result:
        arrivals = [
            Arrival(
                Job(
                    id=piece.name,
                    kind=piece.kind,  # type: ignore[arg-type]
                    nodes=piece.nodes,
                    min_nodes=piece.min_nodes,
                    max_nodes=piece.max_nodes,
                    walltime=piece.walltime * self.unit,
                    submitted=piece.submitted * self.unit,
                    priority=piece.priority,
                ),
                piece.tasks(self.unit) / piece.nodes * TASK,
            )
            for piece in PIECES
        ]
        return simulate(Workload("demo", arrivals), NODES, self.policy, allotments=True)

    @contextmanager
    def _cluster(self) -> Iterator[tuple[LocalCluster, Client, Any]]:
        with (
            demo_cluster(NODES) as (cluster, client),
            dask_hpc.malleable(cluster, policy=self.policy) as manager,
        ):
            yield cluster, client, manager

    def _script(self, client: Client, cluster: Any, manager: Any, diary: Path) -> list[Event]:
        """Everything that happens from outside, in order of time."""
        events = [
            Event(piece.submitted, "", partial(piece.submit, client, self.unit, diary)) for piece in PIECES
        ]
        held: list[str] = []

        def hold() -> None:
            held.extend(self._may_be_held())
            manager.hold(held)

        for at, what, do in (
            (22, "a node is held: it starts nothing more", hold),
            (32, "the hold ends", partial(manager.release, held)),
            (92, f"the cluster shrinks to {count_nodes(NODES - 1)}", partial(cluster.scale, NODES - 1)),
            (106, f"the cluster grows to {count_nodes(NODES)}", partial(cluster.scale, NODES)),
        ):
            events.append(Event(at, what, do))
        return sorted(events, key=lambda event: event.at)

    def _may_be_held(self) -> list[str]:
        """The workers of a node whose job has others to go on with."""
        sizes = [job["nodes"] for job in self.status["jobs"] if job["state"] == "running"]
        largest = max(sizes, key=len, default=self.nodes)
        return [worker for worker, node in self.places.items() if node == largest[-1]]

    def _wait_for_the_last(self, manager: Any) -> None:
        """Results arrive a moment before the story says that their job has ended."""
        limit = monotonic() + 5
        while monotonic() < limit:
            self.look(manager)
            if sum(job["state"] == "done" for job in self.status["jobs"]) == len(PIECES):
                return
            sleep(0.05)
        self.failure = self.failure or "Not every job was started and ended by the policy; see the story."

    def _check(self, futures: list[Future], diary: Path) -> None:
        if not self.failure:
            numbers = [number for piece in PIECES for number in range(piece.tasks(self.unit))]
            self.failure = self.tally.check(futures, numbers, diary)
