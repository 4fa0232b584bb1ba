"""An in situ pipeline in our own workload form.

pipeline:
  iterations: 200
  cores: 8                       # of each node
  memory: 16 GiB                 # of each node; default: as much as it takes
  bandwidth: 1 GB                # per second, of each staging node; default: the platform's link
  simulation: {time: 40 s, memory: 24 GiB, serial: 1 %}
  analyses:
    spectrum: {time: 2 s, memory: 4 GiB, moved: 512 MiB}
    front: {time: 6 s, memory: 8 GiB, serial: 0.1}
  drift:                         # from iteration 60 on ten times slower, and a slow drift
  - {part: spectrum, start: 60, times: 10}
  - {part: simulation, start: 100, times: 1.5, over: 80}
  jitter: 0.1
  seed: 1
  change_cost: 2 s

Times are those on a single core, of one iteration. ``memory`` of a part is its peak over all nodes, ``moved``
what goes to the staging nodes (default: as much as the peak), ``serial`` the share that no further core makes
shorter. ``drift`` and ``jitter`` are not declared: the pipeline finds out.
"""

from collections.abc import Callable, Mapping
from typing import Any

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.partition import Analysis, Simulation
from dask_hpc.model.safe_yaml import check_keys
from dask_hpc.model.units import parse_duration, parse_quantity
from dask_hpc.simulator.in_situ.pipeline import Drift, Pipeline

_MOST_ANALYSES = 1000


def _bytes(value: Any) -> float:
    return parse_quantity(value, "B")


def _share(value: Any) -> float:
    if isinstance(value, str) and value.isascii() and value.strip().endswith("%"):
        try:
            return float(value.strip()[:-1]) / 100
        except ValueError:
            pass
    return _number(value)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError("", f"found {shown(value)}", "a number")
    return value


def _as_it_is(value: Any) -> Any:
    return value


_Readers = Mapping[str, Callable[[Any], Any]]
_SIMULATION: _Readers = {"time": parse_duration, "memory": _bytes, "serial": _share}
_ANALYSIS: _Readers = {**_SIMULATION, "moved": _bytes}
_DRIFT: _Readers = {"part": _as_it_is, "start": _as_it_is, "times": _number, "over": _as_it_is}
_PIPELINE: _Readers = {
    "iterations": _as_it_is,
    "cores": _as_it_is,
    "memory": _bytes,
    "bandwidth": _bytes,
    "jitter": _number,
    "seed": _as_it_is,
    "change_cost": parse_duration,
}


def read_pipeline(found: Any) -> Pipeline:
    """From a mapping; complaints name the key."""
    check_keys(found, (*_PIPELINE, "simulation", "analyses", "drift"), "")
    for key in ("iterations", "cores", "simulation", "analyses"):
        if key not in found:
            raise InputError(key, "is missing")
    plain = {key: value for key, value in found.items() if key in _PIPELINE}
    return Pipeline(
        simulation=_part(Simulation, found["simulation"], _SIMULATION, "simulation"),
        analyses=_analyses(found["analyses"]),
        drifts=_drifts(found.get("drift", [])),
        **_values(plain, _PIPELINE, ""),
    )


def _analyses(found: Any) -> tuple[Analysis, ...]:
    if not isinstance(found, dict) or len(found) > _MOST_ANALYSES:
        raise InputError("analyses", f"found {shown(found)}", "a mapping of names to {time: ...}")
    read = []
    for name, costs in found.items():
        where = f"analyses.{name if isinstance(name, str) and name.isidentifier() else shown(name)}"
        read.append(_part(lambda name=name, **more: Analysis(name=name, **more), costs, _ANALYSIS, where))
    return tuple(read)


def _drifts(found: Any) -> tuple[Drift, ...]:
    if not isinstance(found, list):
        raise InputError("drift", f"found {shown(found)}", "a list of {part: NAME, start: I, times: K}")
    drifts = []
    for at, one in enumerate(found):
        where = f"drift[{at}]"
        check_keys(one, tuple(_DRIFT), where)
        for key in ("part", "start", "times"):
            if key not in one:
                raise InputError(f"{where}.{key}", "is missing")
        drifts.append(Drift(**_values(one, _DRIFT, where)))
    return tuple(drifts)


def _part(make: Callable[..., Any], found: Any, readers: _Readers, where: str) -> Any:
    check_keys(found, tuple(readers), where)
    if "time" not in found:
        raise InputError(f"{where}.time", "is missing")
    return make(**_values(found, readers, where))


def _values(found: Mapping[str, Any], readers: _Readers, where: str) -> dict[str, Any]:
    values = {}
    for key, value in found.items():
        try:
            values[key] = readers[key](value)
        except InputError as error:
            raise error.at(f"{where}.{key}" if where else key) from None
    return values
