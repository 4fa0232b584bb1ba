"""Batch jobs of a cluster object whose walltimes follow a plan, instead of one constant walltime."""

import sys
from collections.abc import Callable, Mapping
from getpass import getuser
from pathlib import Path
from time import monotonic
from typing import Any

from dask_hpc import config
from dask_hpc.history.runs import RunHistory, durations_of, path_of
from dask_hpc.model.errors import InputError, insist, shown
from dask_hpc.model.units import counted
from dask_hpc.planning.plan_reservation import plan_reservation
from dask_hpc.planning.reservation.fit import fit_law
from dask_hpc.planning.reservation.plan import ReservationPlan
from dask_hpc.planning.run_times import show_hours
from dask_hpc.reservations.chain import minutes

AUTO = "auto"
_HAND_OVER = 60.0  # seconds in which a unit hands its work over, and in which another comes to work
_HALF = 0.5  # of a request: who asks when less is left of it asks for the next


class UnitWalltimes:
    """How long the next unit is asked for.

    What a plan calls work is here the time since the first unit worked: units hand over without loss. A unit
    that is asked for when less than half of a request is left gets the length of the next request: it takes
    the place of one that ends, or would soon have to have a successor itself.
    """

    def __init__(self, plan: ReservationPlan, why: str, clock: Callable[[], float] | None = None) -> None:
        self.plan = plan
        self._why = why
        self._clock = monotonic if clock is None else clock
        self._began: float | None = None
        self._told = ""
        #: what is to be told: kind and words
        self.news: list[tuple[str, str]] = []

    def works(self) -> None:
        """Somebody of the cluster works."""
        if self._began is None:
            self._began = self._clock()

    def seconds(self) -> float:
        """For a unit that is asked for now."""
        elapsed = 0.0 if self._began is None else self._clock() - self._began
        requests = self.plan.requests
        for one in requests:
            if one.work_until - elapsed > _HALF * one.length or not elapsed:
                return one.length
        return max(requests[-1].length, elapsed)  # longer than all that was thought of

    def specified(self, spec: Mapping[Any, Mapping[str, Any]]) -> dict[Any, dict[str, Any]]:
        """Units as Dask specifies them, with that walltime."""
        length = 60 * minutes(self.seconds())
        words = f"new batch jobs ask for {show_hours(length)}: {self._why}"
        if words != self._told:
            self._told = words
            self.news.append(("walltime", words))
        walltime = f"{length // 3600:02}:{length % 3600 // 60:02}:00"
        return {
            name: {**one, "options": {**one.get("options", {}), "walltime": walltime}}
            for name, one in spec.items()
        }


def unit_walltimes(reservation: Any) -> UnitWalltimes:
    """From a plan; or by past runs: of the script that runs (``auto``), or of the job of a name. Raises
    ``InputError`` if nothing is known. Reads the history."""
    if isinstance(reservation, ReservationPlan):
        return UnitWalltimes(reservation, reservation.reason or "by the plan that was given")
    allowed = "auto, the name of a job, or what plan_reservation gives"
    fine = isinstance(reservation, str) and bool(reservation.strip())
    insist(fine, "reservation", reservation, allowed)
    name = Path(sys.argv[0]).name if reservation == AUTO else reservation
    history = RunHistory(path_of(config.settings()["history"]))
    history.learn(history.read())
    done, cut = durations_of(history.find(name, getuser()))
    if not done:
        raise InputError("reservation", f"nothing is known of runs of {shown(name)}", allowed)
    plan = plan_reservation(fit_law(done, cut), checkpoint=_HAND_OVER, restart=_HAND_OVER, compare=False)
    return UnitWalltimes(plan, f"{counted(len(done), 'run')} of {name}")
