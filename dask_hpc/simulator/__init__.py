"""The simulated body: ``simulate`` plays a workload on a machine under a policy, ``play_run`` one calculation
under failures with a protocol against them."""

import gc
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any, overload

from dask_hpc.model.errors import InputError
from dask_hpc.model.snapshot import Snapshot
from dask_hpc.policy import Policy
from dask_hpc.simulator.built_in.ours import synthetic_day
from dask_hpc.simulator.machine import Machine, left_out, machine_from
from dask_hpc.simulator.overlay import Overlay, offered_load
from dask_hpc.simulator.platform import Failures, Metering, NodeType, Platform
from dask_hpc.simulator.power import PowerTrace, check_powers
from dask_hpc.simulator.readers import load_workload
from dask_hpc.simulator.record import Record
from dask_hpc.simulator.resilience import PlayedRuns, play_run
from dask_hpc.simulator.result import Result
from dask_hpc.simulator.study import Study, futures, reporting_seeds, study, tuning_seeds
from dask_hpc.simulator.workload import Arrival, DeclaredCheckpoint, Workload, platform_for

__all__ = [
    "Arrival",
    "DeclaredCheckpoint",
    "Failures",
    "Machine",
    "Metering",
    "NodeType",
    "Overlay",
    "Platform",
    "PlayedRuns",
    "PowerTrace",
    "Record",
    "Result",
    "Study",
    "Workload",
    "load_workload",
    "offered_load",
    "play_run",
    "reporting_seeds",
    "simulate",
    "study",
    "synthetic_day",
    "tuning_seeds",
]


@overload
def simulate(
    workload: str | Path | Workload | Iterable[Arrival] = (),
    nodes: int | None = None,
    policy: str | Path | Policy = "easy-backfill",
    *,
    snapshot: Snapshot | None = None,
    horizon: float = inf,
    platform: Platform | None = None,
    allotments: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Result: ...


@overload
def simulate(
    workload: str | Path | Workload,
    nodes: int | None = None,
    policy: Sequence[str | Path | Policy] | str | Path | Policy = "easy-backfill",
    *,
    platform: Platform | None = None,
    seeds: int | Sequence[int] = 1,
    sweep: Mapping[str, Sequence[Any]] | None = None,
    malleable: float | None = None,
    overlay: Overlay | None = None,
    client: Any = None,
    store: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Study: ...


def simulate(
    workload: Any = (),
    nodes: int | None = None,
    policy: Any = "easy-backfill",
    *,
    snapshot: Snapshot | None = None,
    horizon: float = inf,
    platform: Platform | None = None,
    allotments: bool = False,
    progress: Any = None,
    seeds: int | Sequence[int] | None = None,
    sweep: Mapping[str, Sequence[Any]] | None = None,
    malleable: float | None = None,
    overlay: Overlay | None = None,
    client: Any = None,
    store: str | Path | None = None,
) -> Result | Study:
    """Play a workload (a file, a ``Workload`` or any arrivals in order) and answer what came of it.

    ``nodes`` and ``platform`` default to what the workload says of its machine. With a ``snapshot`` the
    machine starts in that state: what would this policy do from here on? ``horizon`` ends the
    simulation after so many seconds. ``allotments`` records which nodes each job held, for pictures.
    ``progress`` is called now and then with the number of jobs submitted.

    Any of a list of policies, ``seeds``, ``sweep``, ``malleable``, ``overlay``, ``client`` or ``store`` makes
    it a study of many simulations, on the client's cluster if there is one: see ``study``. From a snapshot,
    what it cannot say (how long jobs take) is drawn for each of 20 seeds, the same for all policies: what is
    predicted then comes with an interval.
    """
    several = isinstance(policy, Sequence) and not isinstance(policy, str)
    asked = {"seeds": seeds, "sweep": sweep, "malleable": malleable, "client": client, "store": store}
    asked["overlay"] = overlay
    asked = {name: value for name, value in asked.items() if value is not None}
    if several or asked:
        policies, common = policy if several else [policy], {"platform": platform, "progress": progress}
        if snapshot is None:
            return study(workload, policies, nodes=nodes, **common, **{"seeds": 1, **asked})
        for name in ("malleable", "overlay", "store"):
            if name in asked:
                raise InputError("simulate", f"found {name} with a snapshot", "one of both")
        return futures(snapshot, policies, horizon=horizon, **common, **asked)
    if isinstance(workload, str | Path):
        workload = load_workload(workload)
    policy = Policy.load(policy)
    record = Record(allotments=allotments)
    notes: list[str] = []
    if snapshot is not None:
        name = "what if"
        machine = machine_from(snapshot, policy, platform, record)
        until = snapshot.now + horizon
    else:
        name = workload.name if isinstance(workload, Workload) else "workload"
        platform = platform_for(workload, nodes, platform)
        if isinstance(workload, Workload):  # jobs that stream are not looked at
            check_powers(workload, platform, policy)
            notes = left_out(policy, platform, workload)
        machine = Machine(platform, policy, record)
        until = horizon
    # What exists already is not garbage of ours: not looking through it again and again saves a tenth.
    gc.freeze()
    try:
        machine.run(workload, progress, until)
    finally:
        gc.unfreeze()
    return Result(name, machine.platform, policy, machine.story, record, tuple(notes))
