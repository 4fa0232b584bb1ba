"""How long to ask a batch system for, in human units (``dask-hpc plan reservation``)."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

from dask_hpc.model.errors import insist
from dask_hpc.planning.reservation.cost import Cost, read_cost
from dask_hpc.planning.reservation.fit import FittedLaw, fit_law, read_runs
from dask_hpc.planning.reservation.law import Law, read_law, read_time
from dask_hpc.planning.reservation.methods import NUMBER, Question
from dask_hpc.planning.reservation.plan import ReservationPlan, chosen
from dask_hpc.planning.reservation.sequence import Setting


def plan_reservation(
    law: str | Law | FittedLaw | Sequence[Any],
    checkpoint: float | str | None = None,
    restart: float | str | None = None,
    cost: str | Cost | Sequence[Any] = "wait",
    method: str = "best",
    max_walltime: float | str | None = None,
    memory: float | None = None,
    *,
    number: int = NUMBER,
) -> ReservationPlan:
    """Which requests to make for a job, one after the other, until it has ended, and which of them end with a
    commit."""
    if isinstance(law, str | Law):
        fitted = FittedLaw(read_law(law), "")
    else:
        fitted = law if isinstance(law, FittedLaw) else fit_law(*read_runs(law))
    setting = Setting(
        read_cost(cost),
        inf if checkpoint is None else _seconds("checkpoint", checkpoint),
        inf if checkpoint is None else _seconds("restart", checkpoint if restart is None else restart),
        longest=inf if max_walltime is None else _seconds("max_walltime", max_walltime),
    )
    question = Question(fitted.law, setting, fitted.done, number)
    return replace(chosen(question, method, fitted.reason, memory), warnings=fitted.warnings)


def _seconds(where: str, value: float | str) -> float:
    seconds = read_time(value, where)
    insist(seconds >= 0, where, value, "0 or more")
    return seconds
