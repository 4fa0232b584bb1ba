"""What a task of a pipeline measures about itself, on the worker.

Records travel with the task's own result, to whoever takes that: no message of their own, nothing kept on
the worker. An iteration's records arrive at the client together with its results.
"""

from collections.abc import Callable
from dataclasses import dataclass
from time import thread_time, time
from typing import Any, Literal

from dask.sizeof import sizeof
from distributed import get_worker

#: step: blocks to blocks; carry: blocks as they are; parcel: what leaves a worker is cut out; analysis;
#: combine: of results by block
Part = Literal["step", "carry", "parcel", "analysis", "combine"]


@dataclass(frozen=True, slots=True)
class Record:
    """One piece of work: who did it, when by that host's clock, and how much went in and came out."""

    part: Part
    #: of the analysis; empty for a step. A parcel has the name of the analysis it is for, if it is for one
    name: str
    iteration: int
    worker: str
    #: "simulation", "in situ" or "in transit": the cores that did it
    side: str
    blocks: tuple[int, ...]
    start: float
    stop: float
    #: seconds of processor time of this thread
    cpu: float
    bytes_in: int
    bytes_out: int

    @property
    def wall(self) -> float:
        """Seconds that it took."""
        return self.stop - self.start


def measured(part: Part, order: Any, given: Any, work: Callable[[], Any]) -> tuple[Any, Record]:
    """What ``work`` answers, and the record of it; ``given`` is what it looks at."""
    start, cpu = time(), thread_time()
    found = work()
    cpu, stop = thread_time() - cpu, time()
    record = Record(
        part=part,
        name=order.analysis,
        iteration=order.iteration,
        worker=get_worker().address,
        side=order.side,
        blocks=order.blocks,
        start=start,
        stop=stop,
        cpu=cpu,
        bytes_in=sizeof(given),
        bytes_out=sizeof(found),
    )
    return found, record
