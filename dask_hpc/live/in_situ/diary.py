"""What a pipeline decided and found: kept for its owner, and told to a managed cluster."""

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from time import monotonic, time
from typing import Any

from distributed import Client

from dask_hpc.live.in_situ.pipelines import MOST
from dask_hpc.live.remote import ask
from dask_hpc.model.partition import Partition, Phases
from dask_hpc.model.pipeline_status import (
    ChangeStatus,
    IterationStatus,
    PipelineStatus,
    tell_iteration,
    tell_partition,
)
from dask_hpc.planning.back_pressure import Skipped

_TOLD = 1000  # lines of the story that a pipeline keeps
_NEWEST = 50  # iterations, changes and skipped iterations that are told
_WORDS = 500  # characters of a reason
_PACE = 0.2  # seconds between two messages, if there is no news


class Diary:
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

    def skip(self, found: Iterable[Skipped], how: str) -> None:
        """Analyses were left out. Told in the story when an analysis begins to be left out."""
        for one in found:
            newest = self._newest.setdefault(one.analysis, deque(maxlen=_NEWEST))
            if not newest or newest[-1] != one.iteration - 1:
                self.tell(
                    "skipped", f"{one.analysis} is not done for iteration {one.iteration}: {one.reason}"
                )
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
