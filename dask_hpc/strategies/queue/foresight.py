"""What a job is expected to take, for queues that go by when it would end."""

from dataclasses import dataclass
from functools import lru_cache
from math import inf, isfinite
from typing import Annotated, Literal

from dask_hpc.model.job import Job
from dask_hpc.model.parameter import Parameter
from dask_hpc.planning.resilience.choose import choose_alike
from dask_hpc.planning.resilience.hardware import YEAR, Calculation, Case, Hardware
from dask_hpc.strategies.strategy import QueueStrategy


@dataclass(frozen=True, slots=True)
class Foresight(QueueStrategy):
    """Seed 003, 4.9: managers that know what failures will cost a job, and those that do not.

    ``expected`` is where the time comes from. With "walltime" it is what the job asks for, as if no node ever
    failed; with "history" what such jobs have taken before, failures included, which in a simulation may be
    the truth. With "resilient" it is the walltime made longer by what failures and the best protection
    against them cost a job of this size (see ``planning.resilience``), of which the rest is about the
    machine. A job says itself how many bytes it keeps and how much of it is messages, if it can.
    """

    expected: Annotated[
        Literal["walltime", "history", "resilient"],
        Parameter("where the time of a job is from; resilient: its walltime under failures"),
    ] = "walltime"
    mtbf: Annotated[float, Parameter("mean time between failures of a node", unit="s", low=60)] = 2.5 * YEAR
    memory: Annotated[
        float, Parameter("what a node of a job keeps that does not say it", unit="B", low=1, high=1e18)
    ] = 32e9
    store: Annotated[
        float, Parameter("of one of the twelve ports of the file system", unit="B/s", low=1, high=1e18)
    ] = 600e9

    def seconds(self, job: Job) -> float | None:
        """What it takes on its start nodes; inf: it would never end; None: nobody knows."""
        time = job.recorded_on(job.nodes) if self.expected == "history" else job.walltime
        if self.expected == "resilient" and isfinite(time):
            memory = self.memory if job.memory is None else job.memory
            return _foretold(self.mtbf, self.store, job.nodes, time, memory, job.messages)
        return time if time < inf else None


@lru_cache(65536)
def _foretold(mtbf: float, store: float, nodes: int, work: float, memory: float, messages: float) -> float:
    """Mean seconds under the best protection, of which replicas are none: there is no room for them."""
    machine = Hardware(nodes=max(Hardware().nodes, nodes), mtbf=mtbf, store=store)
    about = Calculation(nodes=nodes, work=work, memory=memory, messages=messages)
    efficiency = choose_alike(Case(about, machine)).efficiency
    return work / efficiency if efficiency > 0 else inf
