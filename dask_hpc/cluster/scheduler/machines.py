"""How the nodes of a managed cluster are, one by one: for who looks at them as a person does."""

from collections.abc import Iterable, Mapping
from typing import Any

from dask_hpc import dask as compat
from dask_hpc.cluster.scheduler.holds import Holds
from dask_hpc.cluster.scheduler.service import Context
from dask_hpc.model.units import show_duration

_BEATS, _LEAST = 4, 5.0  # heartbeats that a worker may miss, and seconds it is silent at least
_FULL = 0.8  # of its memory, from which on that is said


def machines(context: Context, marked: Mapping[tuple[str, str], Iterable[str]]) -> list[dict[str, Any]]:
    """A row for every node: who has it, whether it is there for jobs and why not, its workers, memory in
    bytes (no limit is None), watts if they are watched, and its health in a word or two."""
    holders, holds = context.holders(), context.get(Holds)
    states = {name: state for state, names in marked.items() for name in names}
    watts: dict[str, float] = {}
    for service in context.services:
        watts |= service.seen_watts()
    patience = max(_LEAST, _BEATS * compat.heartbeat_seconds(context.scheduler))
    found = []
    for name in context.nodes:
        workers = context.nodes.workers(name)
        each = {address: compat.health_of(context.scheduler, address) for address in workers}
        job = holders.get(name)
        is_busy = job is not None or any(compat.processing(context.scheduler, one) for one in workers)
        state, why = states.get(name, ("busy" if is_busy else "idle", ""))
        limit = sum(one.limit for one in each.values())
        words = [_health(one, address in holds.paused_themselves, patience) for address, one in each.items()]
        found.append(
            {
                "name": name,
                "state": state,
                "job": None if job is None else job.id,
                "why": why,
                "workers": workers,
                "threads": sum(one.threads for one in each.values()),
                "memory": sum(one.memory for one in each.values()),
                "memory_limit": limit or None,
                "watts": watts.get(name),
                "health": _together(words),
            }
        )
    return found


def _health(one: compat.WorkerHealth, has_paused: bool, patience: float) -> str:
    """Of one worker. One that a hold keeps from working is well."""
    if one.silent > patience:
        return f"silent {show_duration(round(one.silent))}"
    if has_paused:
        return "paused"
    if one.status not in ("running", "paused"):
        return one.status.replace("_", " ")
    if one.spilled:
        return "spilling"
    if one.limit and one.memory > _FULL * one.limit:
        return f"memory {one.memory / one.limit:.0%}"
    return "ok"


def _together(words: list[str]) -> str:
    bad = [word for word in words if word != "ok"]
    if not bad:
        return "ok"
    return bad[0] if len(words) == 1 else f"{bad[0]} ({len(bad)} of {len(words)} workers)"
