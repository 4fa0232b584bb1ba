"""A queue in random order: what others are measured against."""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Annotated, Any, ClassVar

from dask_hpc.model.job import Job
from dask_hpc.model.parameter import Parameter
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.strategies.queue.fcfs import whoever_fits
from dask_hpc.strategies.strategy import QueueStrategy, Starts


@dataclass(frozen=True, slots=True)
class RandomOrder(QueueStrategy):
    """Any job that fits starts, picked at random; seed 003, section 4.7.3.

    At every decision one is drawn after the other, and who does not fit is set aside until the next. A draw
    follows from ``seed``, the time and the job's place in the queue alone, so that the same is decided when
    it is asked again, whatever jobs are called.
    """

    name: ClassVar[str] = "random"

    seed: Annotated[int, Parameter("another order for each", low=0, high=2**32)] = 0

    def decide(self, snapshot: Snapshot, memory: Any) -> tuple[Starts, Any]:
        """Start whoever fits."""

        places = {job.id: place for place, job in enumerate(snapshot.waiting)}

        def draw(job: Job) -> bytes:
            asked = f"{self.seed} {snapshot.now!r} {places[job.id]}"
            return blake2b(asked.encode(), digest_size=8).digest()

        return whoever_fits(snapshot, lambda job: "drawn, and fits", draw), None
