"""Small programs to begin with, shown by ``dask-hpc demo``, the tutorial and benchmarks: each starts a small
cluster, gives it work, disturbs it, and checks every result."""

import logging
import signal
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import Any, ClassVar

import dask
from distributed import Client, LocalCluster

from dask_hpc import Policy

MADE_UP = "Cores are played: a task computes, then waits for as long as a slow core would have taken."


class Example:
    """A program whose ``play`` yields whenever there may be something new to see, and what that is.

    Times are seconds since ``zero``. The names of panels are those of whoever shows it.
    """

    #: of its report, and what is said before it starts
    title: str
    opening: str
    #: what is drawn while it goes on, one row below the other, when it is over, and in its report
    panels: ClassVar[Sequence[Sequence[str]]]
    at_end: ClassVar[Sequence[str]]
    sections: ClassVar[Sequence[str]]
    #: whether jobs and nodes matter in its story, and the decisions that do; none are all
    has_jobs = True
    decisions: ClassVar[Sequence[str]] = ()

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.status: dict[str, Any] = {}
        self.story: list[dict[str, Any]] = []
        #: every node there ever was, in order of appearance, and that of every worker there ever was
        self.nodes: list[str] = []
        self.places: dict[str, str] = {}
        #: the cluster's clock at the beginning
        self.zero = 0.0
        #: what went wrong, if anything did
        self.failure = ""

    def play(self) -> Generator[None, None, None]:
        """Do everything."""
        raise NotImplementedError

    def lead(self) -> str:
        """What stands below the title of its report."""
        raise NotImplementedError

    def progress(self) -> str:
        """How far it is."""
        return f"{self.now:.0f} s"

    def summary(self) -> list[str]:
        """What it came to, in words."""
        raise NotImplementedError

    def look(self, manager: Any) -> None:
        """Look at the cluster."""
        self.story = manager.story()
        self.status = manager.status()  # after the story: it knows all jobs that are told of
        for node in self.status["nodes"]:
            if node["name"] not in self.nodes:
                self.nodes.append(node["name"])
            self.places.update(dict.fromkeys(node["workers"], node["name"]))

    @property
    def now(self) -> float:
        """Of the newest look."""
        return float(self.status.get("time", self.zero)) - self.zero

    @property
    def names(self) -> dict[str, str]:
        """Of jobs, by id."""
        return {job["id"]: job["name"] for job in self.status.get("jobs", ())}

    def named(self, text: str) -> str:
        """Text with the names of jobs for their ids, and nodes for the addresses of workers."""
        for job, name in self.names.items():  # no name is there twice in an example
            text = text.replace(job, name)
        for address, node in self.places.items():
            text = text.replace(f"worker {address}", f"node {self.nodes.index(node)}")
        return text

    def count(self, decision: str) -> int:
        """How often that is in the story."""
        return sum(row["decision"] == decision for row in self.story)

    def lines(self) -> list[tuple[str, ...]]:
        """Time, what, job, nodes, why (time, what, why) of everything in the story since the beginning."""
        names = self.names
        return [
            (
                f"{row['time'] - self.zero:.1f} s",
                row["decision"],
                *((names.get(row["job"], "-"), str(len(row["nodes"]) or "-")) if self.has_jobs else ()),
                self.named(row["reason"]),
            )
            for row in self.story
            if row["time"] > self.zero
        ]


@contextmanager
def small_cluster(nodes: int, threads: int = 1) -> Iterator[tuple[LocalCluster, Client]]:
    """So many workers of so many threads. Ctrl-C on the terminal is for the example, not for its workers:
    they inherit that it is blocked. While they start it is only noted; then all is closed in good order. What
    is played here is not remembered of jobs of the same names."""
    noted: list[int] = []
    resource_tracker.ensure_running()  # it would unblock what is blocked, were it to start later
    handler = signal.signal(signal.SIGINT, lambda number, frame: noted.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        cluster = LocalCluster(
            n_workers=nodes,
            threads_per_worker=threads,
            dashboard_address=":0",
            memory_limit=0,
            silence_logs=logging.CRITICAL,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)
    with cluster, Client(cluster) as client, dask.config.set({"hpc.history": None}):
        if noted:
            raise KeyboardInterrupt
        yield cluster, client
