"""What an application needs in all: operations and bytes, and how long that takes on a quiet machine."""

from math import inf

from dask_hpc.model.io_demand import IoDemand
from dask_hpc.simulator.application import Application, Task
from dask_hpc.simulator.platform import Platform


def io_demand(application: Application, platform: Platform, nodes: int) -> IoDemand | None:
    """Totals over the whole run on ``nodes`` nodes; None if they are beyond all numbers.

    Everything but reading and writing counts as computing, by the time it takes.
    """
    operations = data = 0.0
    for task, times in _all_tasks(application):
        amount = task.amount(nodes) * times
        if task.kind in ("read", "write"):
            data += amount * (1 if task.root_only else nodes)
        else:
            operations += amount / _rate(task, platform) * platform.speed * nodes
    if not (operations < inf and data < inf):
        return None
    return IoDemand(
        compute=operations,
        data=data,
        speed=platform.speed,
        link=platform.link,
        file_system=platform.file_system,
    )


def quiet_runtime(application: Application, platform: Platform, nodes: int) -> float:
    """Seconds on ``nodes`` nodes when nobody else uses the file system."""
    seconds = 0.0
    for task, times in _all_tasks(application):
        amount = task.amount(nodes) * times
        if task.kind in ("read", "write"):
            busy = 1 if task.root_only else nodes
            seconds += amount / min(platform.link, platform.file_system / busy)
        else:
            seconds += amount / _rate(task, platform)
    return seconds


def _all_tasks(application: Application) -> list[tuple[Task, int]]:
    tasks = [(task, 1) for task in application.on_start]
    return tasks + [(task, phase.iterations) for phase in application.phases for task in phase.tasks]


def _rate(task: Task, platform: Platform) -> float:
    return {"compute": platform.speed, "communicate": platform.link, "idle": 1.0}[task.kind]
