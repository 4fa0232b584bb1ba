"""The demo's cluster and jobs: predicted first, then run while nodes are held, leave and come."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any

import numpy as np
from distributed import Client, Future, LocalCluster

import dask_hpc
from dask_hpc.model.job import Job
from dask_hpc.model.units import count_nodes
from dask_hpc.policy import Policy
from dask_hpc.report.gantt import Held
from dask_hpc.simulator import Arrival, Result, Workload, simulate

NODES = 4
UNITS = 140.0  # how many units of time the whole run takes, about
_TASK = 0.25  # seconds
_RESULT = 12_500  # numbers, 100 kB: enough for a lost one to matter


@dataclass(frozen=True)
class Piece:
    """A job of the demo. Times are in units; work is in units of one node."""

    name: str
    submitted: float
    nodes: int
    min_nodes: int
    max_nodes: int
    work: float
    walltime: float
    priority: float = 0.0

    @property
    def kind(self) -> str:
        """Malleable if it has a choice."""
        return "malleable" if self.min_nodes < self.max_nodes else "rigid"


PIECES = (
    Piece("climate", 0, 4, 1, 4, work=300, walltime=130),
    Piece("genomics", 10, 1, 1, 2, work=60, walltime=90),
    Piece("urgent", 40, 2, 2, 2, work=50, walltime=40, priority=10),
    Piece("plots", 60, 1, 1, 1, work=25, walltime=40),
    Piece("training", 75, 2, 1, 4, work=80, walltime=60, priority=5),
)


def work(job: str, number: int, diary: str) -> Any:
    """One task: a quarter of a second on one core. Each time it runs, it writes a line."""
    with open(diary, "a") as file:
        file.write(f"{job} {number}\n")
    sleep(_TASK)
    return np.full(_RESULT, number, dtype="i8")


@dataclass
class Tally:
    """What became of the tasks."""

    submitted: int = 0
    done: int = 0
    #: how often tasks were executed: as often as there are tasks, if nothing was lost on the way
    executed: int = 0
    right: int = 0


@dataclass
class Event:
    """A job is submitted, or, if there is something to say, something is done to the cluster."""

    at: float
    what: str
    do: Callable[[], Any]


class Demo:
    """One run. ``play`` does everything; the rest is there to be shown."""

    def __init__(self, policy: Policy, seconds: float) -> None:
        self.policy = policy
        self.unit = seconds / UNITS
        self.predicted = self._predict()
        self.status: dict[str, Any] = {}
        self.story: list[dict[str, Any]] = []
        self.tally = Tally(submitted=sum(self.tasks_of(piece) for piece in PIECES))
        #: what was done to the cluster, and when: for the reader
        self.events: list[tuple[float, str]] = []
        #: every node there ever was, in order of appearance
        self.nodes: list[str] = []
        #: the node of every worker there ever was
        self.places: dict[str, str] = {}
        #: the cluster's clock when the first job was submitted
        self.zero = 0.0
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
                self._look(manager)
                update()
                sleep(0.1)
            self._check(futures, diary)
            self._wait_for_the_last(manager)
            update()

    @property
    def now(self) -> float:
        """Seconds since the first job was submitted."""
        return float(self.status.get("time", self.zero)) - self.zero

    @property
    def held(self) -> list[Held]:
        """Who held which nodes when."""
        return list(self._spans())

    def named(self, text: str) -> str:
        """Text with the names of jobs for their ids, and nodes for the addresses of workers."""
        for job in self.status.get("jobs", ()):  # no name is there twice in this run
            text = text.replace(job["id"], job["name"])
        for address, node in self.places.items():
            text = text.replace(f"worker {address}", f"node {self.nodes.index(node)}")
        return text

    def tasks_of(self, piece: Piece) -> int:
        """How many tasks a job has."""
        return max(1, round(piece.work * self.unit / _TASK))

    def count(self, *decisions: str) -> int:
        """How often that is in the story."""
        return sum(row["decision"] in decisions for row in self.story)

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
                self.tasks_of(piece) / piece.nodes * _TASK,
            )
            for piece in PIECES
        ]
        return simulate(Workload("demo", arrivals), NODES, self.policy, allotments=True)

    @contextmanager
    def _cluster(self) -> Iterator[tuple[LocalCluster, Client, Any]]:
        with (
            LocalCluster(
                n_workers=NODES,
                threads_per_worker=1,
                dashboard_address=":0",
                memory_limit=0,
                silence_logs=logging.CRITICAL,
            ) as cluster,
            Client(cluster) as client,
            dask_hpc.malleable(cluster, policy=self.policy) as manager,
        ):
            yield cluster, client, manager

    def _script(self, client: Client, cluster: Any, manager: Any, diary: Path) -> list[Event]:
        """Everything that happens from outside, in order of time."""
        events = [Event(piece.submitted, "", partial(self._submit, client, piece, diary)) for piece in PIECES]
        last = list(client.scheduler_info(n_workers=-1)["workers"])[-1:]
        for at, what, do, about in (
            (22, "a node is held: it starts nothing more", manager.hold, last),
            (32, "the hold ends", manager.release, last),
            (92, f"the cluster shrinks to {count_nodes(NODES - 1)}", cluster.scale, NODES - 1),
            (106, f"the cluster grows to {count_nodes(NODES)}", cluster.scale, NODES),
        ):
            events.append(Event(at, what, partial(do, about)))
        return sorted(events, key=lambda event: event.at)

    def _submit(self, client: Client, piece: Piece, diary: Path) -> list[Future]:
        with dask_hpc.job(
            piece.name,
            nodes=piece.nodes,
            min_nodes=piece.min_nodes,
            max_nodes=piece.max_nodes,
            walltime=piece.walltime * self.unit,
            priority=piece.priority,
        ):
            count = self.tasks_of(piece)
            numbers = range(count)
            futures: list[Future] = client.map(
                work, [piece.name] * count, numbers, [str(diary)] * count, pure=False
            )
        return futures

    def _spans(self) -> Iterator[Held]:
        """From the story: each change of a job's size ends one span and begins another."""
        names = {job["id"]: job["name"] for job in self.status["jobs"]}
        since: dict[str, dict[str, Any]] = {}
        for row in self.story:
            changed = row["decision"] in ("start", "grow", "shrink")
            if not changed and row["decision"] not in ("end", "requeue", "cancel"):
                continue
            if (before := since.pop(row["job"], None)) is not None:
                yield self._span(names[row["job"]], before, row["time"])
            if changed and row["job"] in names:
                since[row["job"]] = row
        for job, before in since.items():
            yield self._span(names[job], before, self.status["time"])

    def _span(self, name: str, row: dict[str, Any], end: float) -> Held:
        return Held(name, row["nodes"], row["time"] - self.zero, end - self.zero, self.named(row["reason"]))

    def _look(self, manager: Any) -> None:
        self.story = manager.story()
        self.status = manager.status()  # after the story: it knows all jobs that are told of
        for node in self.status["nodes"]:
            if node["name"] not in self.nodes:
                self.nodes.append(node["name"])
            self.places.update(dict.fromkeys(node["workers"], node["name"]))

    def _wait_for_the_last(self, manager: Any) -> None:
        """Results arrive a moment before the story says that their job has ended."""
        limit = monotonic() + 5
        while monotonic() < limit:
            self._look(manager)
            if sum(job["state"] == "done" for job in self.status["jobs"]) == len(PIECES):
                return
            sleep(0.05)
        self.failure = self.failure or "Not every job was started and ended by the policy; see the story."

    def _check(self, futures: list[Future], diary: Path) -> None:
        """Every result is there and right, and no task had to run twice."""
        if self.failure:
            return
        self.tally.done = sum(future.done() for future in futures)
        numbers = [number for piece in PIECES for number in range(self.tasks_of(piece))]
        found = [future.result() for future in futures]
        self.tally.right = sum(
            bool((array == number).all()) for array, number in zip(found, numbers, strict=True)
        )
        self.tally.executed = len(diary.read_text().splitlines())
        if self.tally.right != self.tally.submitted:
            self.failure = f"Wrong results: {self.tally.right} of {self.tally.submitted} are right."
        elif self.tally.executed != self.tally.submitted:
            self.failure = f"{self.tally.submitted} tasks were executed {self.tally.executed} times."
