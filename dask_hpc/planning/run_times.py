"""How long to ask for a job of which past runs are known, and then how long, if it takes longer; and why."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from dask_hpc.model.units import counted, show_duration
from dask_hpc.planning.plan_reservation import plan_reservation
from dask_hpc.planning.reservation.cost import Cost
from dask_hpc.planning.reservation.fit import fit_law
from dask_hpc.planning.reservation.plan import ReservationPlan

_MOST = 8  # requests that are thought of: twice as long as the last from then on
_SHORT = 600.0  # seconds below which minutes say too little


@dataclass(frozen=True, slots=True)
class Walltimes:
    """Seconds to ask for, one after the other, and why."""

    seconds: tuple[float, ...]
    reason: str

    def after(self, seconds: float) -> float:
        """What to ask for when it has taken that long."""
        longer = [one for one in self.seconds if one > seconds]
        return longer[0] if longer else 2 * max(seconds, self.seconds[-1])


def walltimes_of(done: Sequence[float], cut: Sequence[float] = (), cost: str | Cost = "wait") -> Walltimes:
    """From seconds of runs that were done, and of those that were cut off. Nothing is kept of a run that is
    cut, so each request is for the whole job. Raises ``InputError`` if no run was done."""
    fitted = fit_law(done, cut)
    plan = plan_reservation(fitted, cost=cost, compare=False)
    seconds = tuple(one.length for one in plan.requests[:_MOST])
    runs = counted(len(done), "run") + (f" and {len(cut)} that were cut off" if cut else "")
    return Walltimes(seconds, why_this_long(plan, runs))


def why_this_long(plan: ReservationPlan, whom: str | None = None, number: int = 0) -> str:
    """What a request of a plan is enough for, and what comes next: "p90 of 41 runs: 3 h 10 min; then 5 h".
    ``whom`` is whose share that is, if not of the runs or the law that the plan is from."""
    if whom is None:
        whom = counted(len(plan.runs), "run") if plan.runs else f"the {plan.law.name} law"
    share = int(100 * plan.law.cdf(plan.requests[number].work_until) + 0.5)
    words = f"p{share} of {whom}" if share < 100 else f"more than all of {whom}"
    return f"{words}: {'; then '.join(show_hours(one.length) for one in plan.requests[number : number + 2])}"


def show_hours(seconds: float) -> str:
    """A time to ask for, for a person: "3 h 10 min", "45 min", "2 d 4 h"; whole minutes, rounded up."""
    if seconds < _SHORT:
        return show_duration(seconds)
    minutes = ceil(seconds / 60 - 1e-9)
    parts = ((minutes // 1440, "d"), (minutes // 60 % 24, "h"), (minutes % 60, "min"))
    words = [f"{number} {word}" for number, word in parts if number]
    return " ".join(words[:2])
