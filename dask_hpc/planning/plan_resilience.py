"""Which protection against failures costs least, in human units (``dask-hpc plan resilience``)."""

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import Any, get_args

from dask_hpc.model.errors import InputError, insist, is_number, shown, within
from dask_hpc.model.safe_yaml import check_keys
from dask_hpc.model.units import parse_quantity
from dask_hpc.planning.resilience.choose import ResiliencePlan, choose
from dask_hpc.planning.resilience.hardware import (
    PLACES,
    Calculation,
    Case,
    CommitCosts,
    Hardware,
    Powers,
)
from dask_hpc.planning.resilience.prospect import Objective

_SEED = Hardware()


def plan_resilience(
    nodes: int,
    run: float | str,
    memory: float | str,
    mtbf: float | str = _SEED.mtbf,
    *,
    severity: Sequence[float] | str = _SEED.severity,
    messages: float = 0.0,
    objective: Objective = "time",
    redundancy: Iterable[float] = (),
    machine: int | None = None,
    store: float | str = _SEED.store,
    ports: int = _SEED.ports,
    memory_speed: float | str = _SEED.memory_speed,
    commit: Sequence[float | str] | None = None,
    restart: Sequence[float | str] | None = None,
    helpers: int = _SEED.helpers,
    speedup: float = _SEED.speedup,
    power: Mapping[str, float | str] | None = None,
    all_write: bool = False,
) -> ResiliencePlan:
    """Compare protections against failures for a calculation, each at its own optimum.

    It does ``run`` seconds of work on so many ``nodes``, each of which has to keep ``memory`` bytes and fails
    every ``mtbf`` on average; ``severity`` are the shares of failures after which a node's own memory, a
    partner's, and only the store serves. ``messages`` is the share of its time that goes into them.

    What commits take follows from ``memory_speed`` (into a node's memory) and from ``store``, the speed of
    each of its ``ports``; or it is said by ``commit`` and ``restart`` (as long, unless said otherwise), each
    three times: of a node's own memory, a partner's, and the store. Parallel recovery has ``helpers``, with
    which work that was lost is done again so many times (``speedup``) sooner. ``redundancy`` are degrees
    from 1 to 2 to be compared as well; it takes so many times the nodes, of which the ``machine`` must have
    enough (it has unless that is said), and ``all_write`` to the store if that is so.

    The ``objective`` is least mean ``"time"``, least ``"energy"`` with the ``power`` of a node that is
    ``computing``, ``committing`` (or restarting) and ``idle``, or ``"steady"``: least mean and deviation.
    """
    objectives = get_args(Objective)
    insist(objective in objectives, "objective", objective, ", ".join(objectives))
    degrees = _degrees(redundancy)
    if machine is not None:
        fine = isinstance(machine, int) and not isinstance(machine, bool) and machine >= 1
        insist(fine, "machine", machine, "a number of nodes, 1 or more")
    # of a wrong number the calculation complains below
    enough = ceil(nodes * max(degrees, default=1.0)) if is_number(nodes, 1, 1e15) else 1
    hardware = Hardware(
        nodes=enough if machine is None else machine,
        mtbf=parse_quantity(mtbf, "s", "mtbf"),
        severity=_severity(severity),
        memory_speed=parse_quantity(memory_speed, "B/s", "memory_speed"),
        store=parse_quantity(store, "B/s", "store"),
        ports=ports,
        helpers=helpers,
        speedup=speedup,
        powers=_powers(power),
    )
    calculation = Calculation(
        nodes=nodes,
        work=parse_quantity(run, "s", "run"),
        memory=parse_quantity(memory, "B", "memory"),
        messages=messages,
    )
    given = None
    if commit is not None:
        times = _times("commit", commit)
        given = CommitCosts(times, times if restart is None else _times("restart", restart))
    elif restart is not None:
        raise InputError("restart", f"found {shown(restart)} without commit", "both, or commit alone")
    return choose(Case(calculation, hardware, given), objective, degrees, all_write=all_write)


def _degrees(found: Any) -> tuple[float, ...]:
    if isinstance(found, int | float | str):
        found = (found,)
    insist(isinstance(found, Iterable), "redundancy", found, "degrees from 1 to 2")
    degrees = []
    for one in found:
        insist(is_number(one, 1, 2), "redundancy", one, "a degree from 1 to 2")
        degrees.append(float(one))
    return tuple(dict.fromkeys(degrees))


def _severity(found: Any) -> tuple[float, float, float]:
    allowed = f"three shares, for {', '.join(PLACES)}"
    if isinstance(found, str):
        try:
            found = [float(word) for word in found.split(",")]
        except ValueError:
            raise InputError("severity", f"found {shown(found)}", allowed) from None
    fine = isinstance(found, Sequence) and len(found) == len(PLACES)
    insist(fine, "severity", found, allowed)
    own, partner, store = found
    return own, partner, store


def _times(where: str, found: Any) -> tuple[float, float, float]:
    if isinstance(found, str):
        found = found.split(",")
    fine = isinstance(found, Sequence) and len(found) == len(PLACES)
    insist(fine, where, found, f"three times, for {', '.join(PLACES)}")
    own, partner, store = (
        parse_quantity(one, "s", f"{where}: {place}") for place, one in zip(PLACES, found, strict=True)
    )
    return own, partner, store


def _powers(found: Any) -> Powers:
    if found is None:
        return Powers()
    with within("power"):
        check_keys(found, ("computing", "committing", "idle"), "")
    return Powers(**{name: parse_quantity(value, "W", f"power: {name}") for name, value in found.items()})
