"""The demo's cluster and jobs: six jobs, four nodes, predicted first and then run for real."""

import logging
from collections.abc import Callable
from time import monotonic, sleep
from typing import Any

from distributed import Client, Future, LocalCluster, as_completed

import dask_hpc
from dask_hpc.model.job import Job
from dask_hpc.policy import Policy
from dask_hpc.report.gantt import Held
from dask_hpc.simulator import Arrival, Result, Workload, simulate

NODES = 4
# name, submitted, nodes, runtime, walltime; times in units, of which the whole run takes about UNITS
JOBS = (
    ("climate", 0, 3, 60, 66),
    ("genomics", 4, 2, 40, 50),
    ("mechanics", 6, 2, 40, 50),
    ("statistics", 8, 1, 50, 54),
    ("plots", 10, 1, 80, 90),
    ("training", 12, 4, 20, 24),
)
UNITS = 180.0
_TASK = 0.25  # seconds


def work(job: str, number: int) -> tuple[str, int]:
    """One task: a quarter of a second on one core."""
    sleep(_TASK)
    return job, number


class Demo:
    """One run. ``play`` does everything; the rest is there to be shown."""

    def __init__(self, policy: Policy, seconds: float) -> None:
        self.policy = policy
        self.unit = seconds / UNITS
        self.predicted = self._predict()
        self.status: dict[str, Any] = {}
        self.story: list[dict[str, Any]] = []
        #: the cluster's clock when the first job was submitted
        self.zero = 0.0
        self.done = 0
        self.failure = ""

    def play(self, update: Callable[[], None]) -> None:
        """Start the cluster, submit the jobs as their times come, wait for all of them."""
        with (
            LocalCluster(
                n_workers=NODES,
                threads_per_worker=1,
                dashboard_address=":0",
                memory_limit=0,
                silence_logs=logging.CRITICAL,
            ) as cluster,
            Client(cluster) as client,
            dask_hpc.manage(client, policy=self.policy) as manager,
        ):
            began = monotonic()
            self.zero = manager.status()["time"]
            waiting = list(JOBS)
            futures: list[Future] = []
            limit = 2 * UNITS * self.unit + 20
            while waiting or not all(future.done() for future in futures):
                if waiting and monotonic() - began >= waiting[0][1] * self.unit:
                    futures += self._submit(client, *waiting.pop(0))
                elif monotonic() - began > limit:
                    self.failure = f"The jobs did not end within {limit:.0f} s."
                    break
                self.done = sum(future.done() for future in futures)
                self._look(manager)
                update()
                sleep(0.1)
            self._check(futures)
            self.done = sum(future.done() for future in futures)
            self._wait_for_the_last(manager)
            update()

    @property
    def now(self) -> float:
        """Seconds since the first job was submitted."""
        return float(self.status.get("time", self.zero)) - self.zero

    @property
    def held(self) -> list[Held]:
        """Who held which nodes when."""
        return [
            Held(job["name"], nodes, job["started"] - self.zero, end - self.zero, self.named(job["reason"]))
            for job in self.status["jobs"]
            if job["started"] is not None
            for end in [job["ended"] or self.status["time"]]
            for nodes in [self._nodes_of(job["id"])]
        ]

    @property
    def total(self) -> int:
        """How many tasks the jobs have together."""
        return sum(self._tasks_of(nodes, runtime) for _, _, nodes, runtime, _ in JOBS)

    def named(self, text: str) -> str:
        """Text with the names of jobs for their ids: no name is there twice in this run."""
        for job in self.status["jobs"]:
            text = text.replace(job["id"], job["name"])
        return text

    def _nodes_of(self, job_id: str) -> list[str]:
        starts = [row for row in self.story if row["job"] == job_id and row["decision"] == "start"]
        return list(starts[-1]["nodes"]) if starts else []

    def _predict(self) -> Result:
        arrivals = [
            Arrival(
                Job(id=name, nodes=n, walltime=wall * self.unit, submitted=at * self.unit),
                self._tasks_of(n, runtime) / n * _TASK,
            )
            for name, at, n, runtime, wall in JOBS
        ]
        return simulate(Workload("demo", arrivals), NODES, self.policy, allotments=True)

    def _tasks_of(self, nodes: int, runtime: float) -> int:
        return nodes * max(1, round(runtime * self.unit / _TASK))

    def _submit(
        self, client: Client, name: str, at: float, nodes: int, runtime: float, wall: float
    ) -> list[Future]:
        with dask_hpc.job(name, nodes=nodes, walltime=wall * self.unit):
            count = self._tasks_of(nodes, runtime)
            futures: list[Future] = client.map(work, [name] * count, range(count), pure=False)
        return futures

    def _look(self, manager: Any) -> None:
        self.status = manager.status()
        self.story = manager.story()

    def _wait_for_the_last(self, manager: Any) -> None:
        """Results arrive a moment before the story says that their job has ended."""
        limit = monotonic() + 5
        while monotonic() < limit:
            self._look(manager)
            if sum(job["state"] == "done" for job in self.status["jobs"]) == len(JOBS):
                return
            sleep(0.05)
        self.failure = self.failure or "Not every job was started and ended by the policy; see the story."

    def _check(self, futures: list[Future]) -> None:
        """Every task's result is there and right."""
        if self.failure:
            return
        found = [future.result() for future in as_completed(futures)]
        wanted = {(name, i) for name, _, n, runtime, _ in JOBS for i in range(self._tasks_of(n, runtime))}
        if len(found) != len(wanted) or set(found) != wanted:
            self.failure = f"Wrong results: {len(set(found))} of {len(wanted)} are right."
