"""A run of a pipeline as a job: which nodes it may use, from its first task to its last.

Unlike in ``with dask_hpc.job(...)``, only what the pipeline itself submits belongs to it: what its user does
between two iterations does not.
"""

from collections import Counter, deque
from collections.abc import Sequence
from secrets import token_hex
from time import monotonic, time
from typing import Any

import dask
from distributed import Client

from dask_hpc.cluster.client.job import tell_closed
from dask_hpc.cluster.request import ANNOTATION, ask, is_managed, login, make_request
from dask_hpc.in_situ.scheduler import MOST
from dask_hpc.model.errors import InputError
from dask_hpc.model.job import is_over
from dask_hpc.model.units import count_nodes
from dask_hpc.planning.in_situ.back_pressure import Skipped
from dask_hpc.planning.in_situ.partition import (
    ChangeStatus,
    IterationStatus,
    Partition,
    Phases,
    PipelineStatus,
    tell_iteration,
    tell_partition,
)


def read_request(name: str, nodes: Any, **rest: Any) -> dict[str, Any] | None:
    """What a pipeline asks for, as ``dask_hpc.job`` reads it; None if it is to be no job."""
    if nodes is None:
        if said := [key for key, value in rest.items() if value is not None]:
            raise InputError("nodes", "found none", f"a whole number, with {' and '.join(said)}")
        return None
    return make_request(name, nodes=nodes, login=login(), **rest)


class PipelineJob:
    """One job of a managed cluster. It is there from when its nodes are first asked for, until ``close``."""

    def __init__(self, client: Client, request: dict[str, Any], is_dry: bool) -> None:
        self._client = client
        self._request = request
        #: jobs are only thought about: none of them has to wait, or to do with few nodes
        self._is_dry = is_dry
        #: whether it was seen to run, and not to wait again
        self._has_begun = False
        self.id = f"{request['name']}-{token_hex(4)}"

    @staticmethod
    async def on(client: Client, request: dict[str, Any]) -> "PipelineJob | None":
        """A new job; None on a cluster that is not managed, where jobs are plain Dask."""
        if not await is_managed(client):
            return None
        in_force = await ask(client, "hpc_set")
        return PipelineJob(client, request, in_force["state"] == "dry run")

    def __str__(self) -> str:
        return f"job {self.id}, which asks for {count_nodes(self._request['nodes'])}"

    @property
    def annotations(self) -> dict[str, Any]:
        """What its tasks are submitted with."""
        return {ANNOTATION: {"id": self.id, **self._request}}

    async def nodes(self) -> frozenset[str] | None:
        """The nodes that it has and is not giving up, once it has any. None if it may use all: nobody manages
        the cluster any more. A job that was cancelled is an error."""
        while not self._is_dry:
            if not self._has_begun:
                await self._start()
            try:
                found = await ask(self._client, "hpc_job", id=self.id)
            except RuntimeError:
                return None
            except InputError as error:
                if error.where != "job":
                    raise
                self._has_begun = False  # management began anew
                continue
            if is_over(found["state"]):
                if found["cancelled"]:
                    raise RuntimeError(f"job {self.id} was cancelled")
                return None
            if found["state"] == "running":
                return frozenset(found["nodes"]) - frozenset(found["gives_up"])
            self._has_begun = False  # it has lost all nodes, and waits again
        return None

    async def close(self) -> None:
        """It is over when its tasks are."""
        await tell_closed(self._client, self.id)

    async def _start(self) -> None:
        """Wait for the first moment at which a task of it can run."""
        with dask.annotate(**self.annotations):
            future = self._client.submit(_begins, key=f"in-situ-begins-{token_hex(4)}", pure=False)
        await future
        self._has_begun = True


def _begins() -> None:
    """Nothing: a task that runs when its job does."""


_TOLD = 1000  # lines of the story that a pipeline keeps
_NEWEST = 50  # iterations, changes and skipped iterations that are told
_WORDS = 500  # characters of a reason
_PACE = 0.2  # seconds between two messages, if there is no news


class PipelineDiary:
    """Of one pipeline, bounded."""

    def __init__(self, name: str, id: str, analyses: Sequence[str], when_slow: str) -> None:
        self._name = name
        self._id = id
        self._analyses = list(analyses)
        self._when_slow = when_slow
        self.state = "running"
        self.job: str | None = None
        self.iteration = 0
        self.iterations: int | None = None
        #: partitions, each with the iteration it came into force with
        self._partitions: deque[tuple[int, Partition]] = deque(maxlen=_NEWEST)
        self.nodes: list[str] = []
        self.cores = 0
        #: what was decided and what happened, oldest first
        self.story: deque[dict[str, Any]] = deque(maxlen=_TOLD)
        #: what was left out, the newest
        self.skipped: deque[Skipped] = deque(maxlen=10_000)
        self._history: deque[IterationStatus] = deque(maxlen=_NEWEST)
        self._changes: deque[ChangeStatus] = deque(maxlen=_NEWEST)
        self._changed = 0
        self._counts: Counter[str] = Counter()
        self._newest: dict[str, deque[int]] = {}
        self._how: dict[str, str] = {}
        self._news: deque[tuple[str, str]] = deque(maxlen=MOST)
        self._told = float("-inf")

    @property
    def partition(self) -> Partition | None:
        """The newest."""
        return self._partitions[-1][1] if self._partitions else None

    def tell(self, decision: str, reason: str) -> None:
        """Something was decided, or happened."""
        words = " ".join(reason.split())[:_WORDS]
        row = {"time": time(), "iteration": self.iteration, "decision": decision, "reason": words}
        self.story.append(row)
        self._news.append((decision, words))

    def change(self, iteration: int, partition: Partition, reason: str) -> None:
        """From this iteration on, this partition."""
        self._changed += self.partition is not None
        self._partitions.append((iteration, partition))
        words = " ".join(reason.split())[:_WORDS]
        told = tell_partition(partition)
        self._changes.append({"iteration": iteration, "time": time(), "reason": words, "partition": told})
        self.tell("placement", f"from iteration {iteration} on: {reason}")

    def expect(self, partition: Partition) -> None:
        """Other figures for the newest partition."""
        since, _ = self._partitions.pop()
        self._partitions.append((since, partition))

    def add(self, iteration: int, seconds: float, measured: Phases) -> None:
        """An iteration is done. The newest partition may be for iterations to come."""
        self.iteration = iteration
        partition = next((one for since, one in reversed(self._partitions) if since <= iteration), None)
        self._history.append(tell_iteration(iteration, seconds, measured, partition))

    def skip(self, one: Skipped, how: str) -> None:
        """An analysis was left out. Told in the story when it begins to be left out."""
        newest = self._newest.setdefault(one.analysis, deque(maxlen=_NEWEST))
        if not newest or newest[-1] != one.iteration - 1:
            self.tell("skipped", f"{one.analysis} is not done for iteration {one.iteration}: {one.reason}")
        newest.append(one.iteration)
        self._counts[one.analysis] += 1
        self._how[one.analysis] = how
        self.skipped.append(one)

    def status(self) -> PipelineStatus:
        """As plain data."""
        return {
            "name": self._name,
            "state": self.state,
            "job": self.job,
            "iteration": self.iteration,
            "iterations": self.iterations,
            "nodes": self.nodes[:MOST],
            "cores": self.cores,
            "analyses": self._analyses,
            "when_slow": self._when_slow,
            "partition": None if self.partition is None else tell_partition(self.partition),
            "history": list(self._history),
            "changes": list(self._changes),
            "changed": self._changed,
            "skipped": {
                name: {"count": count, "newest": list(self._newest[name]), "how": self._how[name]}
                for name, count in self._counts.items()
            },
        }

    async def send(self, client: Client, at_once: bool = False) -> dict[str, Any] | None:
        """Tell a managed cluster, if there is news or it was not told lately. Gives what it answers; None if
        nothing was told. Raises RuntimeError if the cluster is not managed."""
        now = monotonic()
        if not (at_once or self._news or now - self._told >= _PACE):
            return None
        news = list(self._news)
        self._news.clear()
        self._told = now
        answer: dict[str, Any] = await ask(
            client, "hpc_pipeline", id=self._id, client_id=client.id, status=self.status(), news=news
        )
        return answer
