"""What is remembered of a cluster's units from one look to the next: who idles since when, who is dead."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf

from dask_hpc.model.cluster_view import ClusterView, Unit
from dask_hpc.model.units import show_duration

_LATE = 5.0  # seconds beyond a few intervals, after which we were away rather than slow
_WAITS = 5  # so many queue waits are remembered
_PROVEN = 30.0  # seconds connected, after which a unit counts as healthy


@dataclass(frozen=True, slots=True)
class Seen:
    """A unit that has been connected. Times are those of the first look that found it so."""

    since: float
    idle_since: float | None = None
    #: no worker of it is connected any more; or some are missing
    absent_since: float | None = None
    short_since: float | None = None
    #: when its walltime ends
    ends: float = inf


@dataclass(frozen=True, slots=True)
class UnitMemory:
    """All a size strategy remembers."""

    looked: float
    steps: int = 0
    #: when tasks were last seen to move
    active_at: float = -inf
    units: Mapping[str, Seen] = field(default_factory=dict)
    #: since when more units are there than are needed
    surplus_since: float | None = None
    grew_at: float = -inf
    shrank_at: float = -inf
    #: how long the newest units took to come
    waits: tuple[float, ...] = ()
    #: deaths in a row, and the last of them
    failures: int = 0
    failed_at: float = -inf


def observe(view: ClusterView, memory: UnitMemory | None) -> tuple[UnitMemory, bool]:
    """The memory after this look, and whether nobody has looked for so long that it may mislead.

    Who was frozen for a while has not read yet what happened meanwhile: one look goes by before anything
    is decided.
    """
    now = view.now
    if memory is None:
        memory = UnitMemory(looked=now, steps=view.steps)
    was_away = now - memory.looked > 3 * view.interval + _LATE
    has_moved = view.steps != memory.steps
    units: dict[str, Seen] = {}
    waits = memory.waits
    failures = memory.failures
    for unit in view.units:
        seen = memory.units.get(unit.name)
        if seen is None:
            if not unit.connected:
                continue
            seen = Seen(now)
            waits = (*waits, unit.age)[-_WAITS:]
        is_idle = unit.connected and not unit.is_busy
        idle_since = seen.idle_since if is_idle else None
        if is_idle and (idle_since is None or (was_away and has_moved)):
            idle_since = now
        units[unit.name] = Seen(
            since=seen.since,
            idle_since=idle_since,
            absent_since=None if unit.connected else _first(seen.absent_since, now),
            short_since=None if unit.connected >= unit.members else _first(seen.short_since, now),
            ends=now + unit.left if unit.left < inf else seen.ends,
        )
        if unit.connected and seen.since > memory.failed_at and now - seen.since >= _PROVEN:
            failures = 0
    memory = replace(
        memory,
        looked=now,
        steps=view.steps,
        active_at=now if has_moved else memory.active_at,
        units=units,
        waits=waits,
        failures=failures,
    )
    return memory, was_away


def cause_of_death(
    unit: Unit, seen: Seen | None, now: float, rejoin: float, connect_timeout: float
) -> str | None:
    """Why a unit will never (again) do anything, or None.

    Not knowing is no reason: a unit whose system could not be asked is waited for.
    """
    if unit.connected or unit.is_leaving:
        return None
    if unit.state == "gone":
        return unit.why or "it ended before it was told to"
    if seen is not None and seen.absent_since is not None:
        away = now - seen.absent_since
        return f"its workers have been gone for {show_duration(away)}" if away >= rejoin else None
    if seen is None and unit.running_for is not None and unit.running_for >= connect_timeout:
        return f"it started {show_duration(unit.running_for)} ago and no worker of it has connected"
    return None


def _first(since: float | None, now: float) -> float:
    return now if since is None else since
