"""Batch jobs of a cluster object whose walltimes follow a plan, instead of one constant walltime."""

import atexit
import sys
from collections.abc import Callable, Mapping
from getpass import getuser
from pathlib import Path
from time import monotonic, time
from typing import Any

from dask_hpc import config
from dask_hpc.history.runs import PastRun, RunHistory, durations_of, key_of, path_of
from dask_hpc.model.errors import InputError, insist, shown
from dask_hpc.model.units import counted
from dask_hpc.planning.plan_reservation import plan_reservation
from dask_hpc.planning.reservation.fit import fit_law
from dask_hpc.planning.reservation.plan import ReservationPlan
from dask_hpc.planning.run_times import show_hours, why_this_long
from dask_hpc.reservations.chain import minutes

AUTO = "auto"
_HAND_OVER = 60.0  # seconds in which a unit hands its work over, and in which another comes to work
_HALF = 0.5  # of a request: who asks when less is left of it asks for the next


class ScriptRun:
    """A run of the script that this process is: from when its first unit was seen to work until one was seen
    for the last time. It is remembered when the process ends, unless by an error that nobody caught."""

    def __init__(self, name: str, history: RunHistory, clock: Callable[[], float] = monotonic) -> None:
        self.name = name
        self._history = history
        self._clock = clock
        self._began: float | None = None
        self._seen = 0.0
        self._nodes = 0
        self._node_seconds = 0.0

    def look(self, nodes: int) -> None:
        """So many nodes work for it."""
        now = self._clock()
        if self._began is None:
            self._began = now
        else:
            self._node_seconds += self._nodes * (now - self._seen)
        self._seen, self._nodes = now, nodes

    def remember(self) -> None:
        """The process ends."""
        seconds = 0.0 if self._began is None else self._seen - self._began
        if seconds <= 0 or getattr(sys, "last_value", None) is not None:
            return
        run = PastRun(nodes=round(self._node_seconds / seconds, 3), seconds=seconds, when=time())
        self._history.note(key_of(self.name, getuser()), run)
        try:
            self._history.write()
        except OSError as error:
            print(f"dask-hpc: this run is not remembered: {error}", file=sys.stderr)


class UnitWalltimes:
    """How long the next unit is asked for. Without a plan as long as the cluster object says.

    What a plan calls work is here the time since the first unit worked: units hand over without loss. A unit
    that is asked for when less than half of a request is left gets the length of the next request: it takes
    the place of one that ends, or would soon have to have a successor itself.
    """

    def __init__(
        self,
        plan: ReservationPlan | None,
        whom: str | None = None,
        clock: Callable[[], float] | None = None,
        run: ScriptRun | None = None,
    ) -> None:
        self.plan = plan
        #: what the plan is from, if not what it says itself
        self._whom = whom
        self._clock = monotonic if clock is None else clock
        self._run = run
        self._began: float | None = None
        self._told = ""
        #: what is to be told: kind and words
        self.news: list[tuple[str, str]] = []

    def works(self, nodes: int) -> None:
        """So many nodes of the cluster work."""
        if self._began is None:
            self._began = self._clock()
        if self._run is not None:
            self._run.look(nodes)

    def specified(self, spec: Mapping[Any, Mapping[str, Any]]) -> dict[Any, dict[str, Any]]:
        """Units as Dask specifies them, with the walltime for one that is asked for now."""
        if self.plan is None:
            self._tell(
                f"no run of {self._whom} that was done is known: batch jobs ask for what the cluster says"
            )
            return {name: {**one} for name, one in spec.items()}
        seconds, why = self._next(self.plan)
        self._tell(f"new batch jobs ask for {why}")
        length = 60 * minutes(seconds)
        walltime = f"{length // 3600:02}:{length % 3600 // 60:02}:00"
        return {
            name: {**one, "options": {**one.get("options", {}), "walltime": walltime}}
            for name, one in spec.items()
        }

    def _next(self, plan: ReservationPlan) -> tuple[float, str]:
        """Seconds for a unit that is asked for now, and why."""
        elapsed = 0.0 if self._began is None else self._clock() - self._began
        for number, one in enumerate(plan.requests):
            if one.work_until - elapsed > _HALF * one.length or not elapsed:
                return one.length, why_this_long(plan, self._whom, number)
        longest = max(plan.requests[-1].length, elapsed)
        return longest, f"{show_hours(longest)}: it takes longer than all that was thought of"

    def _tell(self, words: str) -> None:
        if words != self._told:
            self._told = words
            self.news.append(("walltime", words))


def unit_walltimes(reservation: Any) -> UnitWalltimes:
    """From a plan; or by past runs: of the script that runs (``auto``), or of the job of a name. Raises
    ``InputError`` if nothing is known of that. Reads the history."""
    if isinstance(reservation, ReservationPlan):
        return UnitWalltimes(reservation)
    allowed = "auto, the name of a job, or what plan_reservation gives"
    fine = isinstance(reservation, str) and bool(reservation.strip())
    insist(fine, "reservation", reservation, allowed)
    is_auto = reservation == AUTO
    name = _script() if is_auto else reservation
    history = RunHistory(path_of(config.settings()["history"]))
    history.learn(history.read())
    done, cut = durations_of(history.find(name, getuser()))
    if not done and not is_auto:
        raise InputError("reservation", f"nothing is known of runs of {shown(name)}", allowed)
    run = _run_of(name, history) if is_auto else None
    if not done:
        return UnitWalltimes(None, name, run=run)
    plan = plan_reservation(fit_law(done, cut), checkpoint=_HAND_OVER, restart=_HAND_OVER, compare=False)
    return UnitWalltimes(plan, f"{counted(len(done), 'run')} of {name}", run=run)


def _script() -> str:
    """The name of the script that runs: as ``dask-hpc run`` remembers it."""
    name = Path(sys.argv[0]).name if sys.argv else ""
    fine = name not in ("", "-c", "-m", "ipykernel_launcher.py")
    insist(fine, "reservation", AUTO, "the name of a job where no script runs, as in a notebook")
    return name


#: one, whatever the number of clusters
_RUNS: dict[str, ScriptRun] = {}


def _run_of(name: str, history: RunHistory) -> ScriptRun:
    if name not in _RUNS:
        _RUNS[name] = ScriptRun(name, history)
        atexit.register(_RUNS[name].remember)
    return _RUNS[name]
