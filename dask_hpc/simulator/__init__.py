"""The simulated body: ``simulate`` plays a workload on a machine under a policy."""

from collections.abc import Callable, Iterable
from pathlib import Path

from dask_hpc.model.errors import InputError, shown
from dask_hpc.policy import Policy
from dask_hpc.simulator.engine import Machine
from dask_hpc.simulator.record import Record
from dask_hpc.simulator.result import Result
from dask_hpc.simulator.synthetic import synthetic_day
from dask_hpc.simulator.workload import Arrival, Workload, load_workload

__all__ = ["Arrival", "Machine", "Record", "Result", "Workload", "load_workload", "simulate", "synthetic_day"]

_MOST_NODES = 10_000_000


def simulate(
    workload: str | Path | Workload | Iterable[Arrival],
    nodes: int | None = None,
    policy: str | Path | Policy = "easy-backfill",
    *,
    allotments: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Result:
    """Play a workload (a file, a ``Workload`` or any arrivals in order) and answer what came of it.

    ``nodes`` defaults to what the workload says of its machine. ``allotments`` records which nodes
    each job held, for pictures. ``progress`` is called now and then with the number of jobs submitted.
    """
    if isinstance(workload, str | Path):
        workload = load_workload(workload)
    name = workload.name if isinstance(workload, Workload) else "workload"
    if nodes is None:
        nodes = workload.nodes if isinstance(workload, Workload) else None
        if nodes is None:
            raise InputError("nodes", f"{name} does not say how many nodes its machine has", "nodes=N")
    if isinstance(nodes, bool) or not isinstance(nodes, int) or not 1 <= nodes <= _MOST_NODES:
        raise InputError("nodes", f"found {shown(nodes)}", f"1 to {_MOST_NODES:,}")
    policy = Policy.load(policy)
    record = Record(allotments=allotments)
    machine = Machine(nodes, policy, record)
    machine.run(workload, progress)
    return Result(name, nodes, policy, machine.story, record)
