"""How long to ask a batch system for, in human units (``dask-hpc plan reservation``)."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from dask_hpc.model.errors import insist
from dask_hpc.model.units import parse_quantity
from dask_hpc.planning.reservation.cost import Cost, read_cost
from dask_hpc.planning.reservation.fit import FittedLaw, fit_law, read_runs
from dask_hpc.planning.reservation.law import Law, read_law, read_time
from dask_hpc.planning.reservation.memory_chain import Chain, read_chain
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
    memory: float | str | Chain | Sequence[Any] | None = None,
    *,
    number: int = NUMBER,
    compare: bool = True,
) -> ReservationPlan:
    """Which requests to make for a job, one after the other, until it has ended, and which of them end with a
    commit.

    ``law`` is how long such jobs take, in words ("lognormal mean=21h std=20h max=80h"), or past runs: numbers
    of seconds or times, ">2h" for one that was cut off then. ``checkpoint`` is what a commit takes, without
    which nothing can be kept, ``restart`` what going on from it takes (as long, unless said otherwise).
    ``cost`` is "wait" (in a queue, where one waits longer for longer requests), "cloud", "core-hours*64" or
    (alpha, beta, gamma): a request for W that is used for U costs ``alpha W + beta U + gamma``. No request is
    longer than ``max_walltime``. A ``method`` other than the best is for comparison.

    ``memory`` is what every request asks for, or the job as a chain of tasks, each with a law and a peak:
    then each asks for what is likely needed in it. ``compare=False`` leaves out what other ways cost.
    """
    if isinstance(law, str | Law):
        fitted = FittedLaw(read_law(law), "")
    elif isinstance(law, FittedLaw):
        fitted = law
    else:
        insist(isinstance(law, Iterable), "law", law, "words, a law, or past runs")
        fitted = fit_law(*read_runs(law))
    setting = Setting(
        read_cost(cost),
        inf if checkpoint is None else _seconds("checkpoint", checkpoint),
        inf if checkpoint is None else _seconds("restart", checkpoint if restart is None else restart),
        longest=inf if max_walltime is None else _seconds("max_walltime", max_walltime),
    )
    chain = None if memory is None or isinstance(memory, str | int | float) else read_chain(memory)
    throughout = None if memory is None or chain else _bytes(memory)
    question = Question(fitted.law, setting, fitted.done, number)
    plan = chosen(question, method, fitted.reason, throughout, compare=compare)
    plan = replace(plan, warnings=fitted.warnings)
    return plan.asking(chain.need) if chain else plan


def _bytes(value: Any) -> float:
    nbytes = parse_quantity(value, "B", "memory")
    insist(0 < nbytes < inf, "memory", value, "bytes, more than 0")
    return nbytes


def _seconds(where: str, value: float | str) -> float:
    seconds = read_time(value, where)
    insist(seconds >= 0, where, value, "0 or more")
    return seconds
