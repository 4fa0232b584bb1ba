"""The simulated body: ``simulate`` plays a workload on a machine under a policy."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import inf
from pathlib import Path

from dask_hpc.model.errors import InputError
from dask_hpc.policy import Policy
from dask_hpc.simulator.engine import Machine
from dask_hpc.simulator.failures import Failures
from dask_hpc.simulator.platform import Platform
from dask_hpc.simulator.record import Record
from dask_hpc.simulator.result import Result
from dask_hpc.simulator.synthetic import synthetic_day
from dask_hpc.simulator.workload import Arrival, Workload, load_workload

__all__ = [
    "Arrival",
    "Failures",
    "Machine",
    "Platform",
    "Record",
    "Result",
    "Workload",
    "load_workload",
    "simulate",
    "synthetic_day",
]


def simulate(
    workload: str | Path | Workload | Iterable[Arrival],
    nodes: int | None = None,
    policy: str | Path | Policy = "easy-backfill",
    *,
    platform: Platform | None = None,
    until: float = inf,
    allotments: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Result:
    """Play a workload (a file, a ``Workload`` or any arrivals in order) and answer what came of it.

    ``nodes`` and ``platform`` default to what the workload says of its machine. ``until`` ends the
    simulation early. ``allotments`` records which nodes each job held, for pictures. ``progress`` is
    called now and then with the number of jobs submitted.
    """
    if isinstance(workload, str | Path):
        workload = load_workload(workload)
    name = workload.name if isinstance(workload, Workload) else "workload"
    machine = Machine(
        _platform(workload, nodes, platform, name), Policy.load(policy), Record(allotments=allotments)
    )
    machine.run(workload, progress, until)
    assert machine.record is not None
    return Result(name, machine.platform, machine.policy, machine.story, machine.record)


def _platform(workload: object, nodes: int | None, platform: Platform | None, name: str) -> Platform:
    if platform is None and isinstance(workload, Workload):
        platform = getattr(workload, "platform", None)
        if nodes is None and platform is None:
            nodes = workload.nodes
    if nodes is not None:
        return replace(platform, nodes=nodes) if platform else Platform(nodes)
    if platform is None:
        raise InputError("nodes", f"{name} does not say how many nodes its machine has", "nodes=N")
    return platform
