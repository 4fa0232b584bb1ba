"""What a simulated machine does about power: whether it is followed at all, and which corridor holds when.

It is followed if the policy has a power strategy or the platform a ``metering``. The corridor is the
strategy's, or the platform's if the strategy has no bounds of its own. A file that it follows is read once,
its times are on the simulation's clock; a signal is asked at every tick for that clock's seconds.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

from dask_hpc.model.corridor import Corridor
from dask_hpc.model.corridor_signal import PREFIX, CorridorSignal
from dask_hpc.model.errors import InputError, one_line
from dask_hpc.model.indices import Indices
from dask_hpc.model.job import Job
from dask_hpc.model.node import Node
from dask_hpc.policy import Policy
from dask_hpc.simulator.metered import Metered
from dask_hpc.simulator.metering import Metering
from dask_hpc.simulator.platform import Platform
from dask_hpc.simulator.power_record import PowerRecord
from dask_hpc.simulator.record import Record
from dask_hpc.simulator.workload import Workload

_LIMIT = 1_000_000  # bytes
_TICK = 60.0  # seconds, where the platform says nothing


class SitePower:
    """The metering, the corridor and the record of one run."""

    def __init__(
        self, platform: Platform, strategy: Any, record: Record | None, known: Corridor | None
    ) -> None:
        self.metering = platform.metering or Metering()
        self._signal = _signal(strategy) if known is None else None
        if self._signal is not None:
            self.corridor: Corridor | None = self._signal.at(0.0)
        else:
            self.corridor = _corridor(strategy, self.metering.corridor or known, known)
        self.indices: Metered
        self.record: PowerRecord | None = None
        if record is not None:
            self.record = record.drawn = PowerRecord(self.metering.ramp, platform.tick)

    def meter(self, nodes: Iterable[Node], rank: Callable[[Job], Any]) -> Metered:
        """The indices of an idle machine."""
        self.indices = Metered(nodes, rank, self.metering, self.record)
        return self.indices

    def meter_on(self, indices: Indices) -> Metered:
        """The indices of a machine that is at work."""
        self.indices = Metered.over(indices, self.metering, self.record)
        return self.indices

    def end(self, now: float) -> None:
        """The run is over."""
        if self.record is not None:
            self.record.end = now

    @classmethod
    def of(
        cls, platform: Platform, policy: Policy, record: Record | None, known: Corridor | None
    ) -> "SitePower | None":
        """None if nobody asks for power. ``known`` is what a followed source says, if that is known."""
        if policy.power is None and platform.metering is None:
            return None
        return cls(platform, policy.power, record, known)

    def listen(self, now: float) -> bool:
        """Ask the signal, if there is one; whether it says something new."""
        if self._signal is None:
            return False
        before, self.corridor = self.corridor, self._signal.at(now)
        return before != self.corridor

    def note(self, now: float) -> None:
        """Write down the corridor that holds from now on."""
        if self.record is not None and self.corridor is not None:
            self.record.bound(now, self.corridor)

    def next_change(self, now: float) -> float:
        """When the corridor changes next."""
        if self.corridor is None:
            return inf
        steps = self.corridor.steps
        # The first step also holds before its time, so nothing changes at it.
        index = max(1, bisect_right(steps, (now, inf, inf)))
        return steps[index][0] if index < len(steps) else inf


def check_powers(workload: object, platform: Platform, policy: Policy) -> None:
    """Complain about a corridor on a machine of which nobody says what it draws. Jobs that stream are not
    looked at."""
    strategy = policy.power
    if strategy is None or platform.has_powers or not isinstance(workload, Workload):
        return
    is_asked = strategy.follow or _is_bounded(strategy.corridor)
    if is_asked and all(arrival.job.power is None for arrival in workload):
        raise InputError(
            "power",
            f"{policy.name} has a corridor, but nothing says what the machine draws",
            "--machine NAME, idle_power and active_power of the platform, or power of jobs",
        )


def with_tick(platform: Platform, policy: Policy) -> Platform:
    """A signal is asked at ticks, so there must be some."""
    if platform.tick or not getattr(policy.power, "follow", "").startswith(PREFIX):
        return platform
    return replace(platform, tick=_TICK)


def _signal(strategy: Any) -> CorridorSignal | None:
    if strategy is None or not strategy.follow.startswith(PREFIX):
        return None
    return CorridorSignal.find(strategy.follow.removeprefix(PREFIX))


def _corridor(strategy: Any, otherwise: Corridor | None, known: Corridor | None) -> Corridor | None:
    if strategy is None:
        return otherwise
    if strategy.follow:
        return known or read_corridor(strategy.follow)
    corridor: Corridor = strategy.corridor
    return corridor if otherwise is None or _is_bounded(corridor) else otherwise


def _is_bounded(corridor: Corridor) -> bool:
    return any(lower > 0 or upper < inf for _, lower, upper in corridor.steps)


def read_corridor(path: str) -> Corridor:
    """From a file, as ``Corridor.parse`` says."""
    try:
        with Path(path).open("rb") as file:
            return Corridor.parse(file.read(_LIMIT + 1))
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError("", f"cannot be read: {reason}", file=one_line(path)) from None
    except InputError as error:
        raise error.in_file(one_line(path)) from None
