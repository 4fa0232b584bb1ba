"""An in situ pipeline in our own workload form.

pipeline:
  iterations: 200
  cores: 8                       # of each node
  memory: 16 GiB                 # of each node; default: as much as it takes
  bandwidth: 1 GB/s              # of each staging node; default: the platform's link
  simulation: {time: 40 s, memory: 24 GiB, serial: 0.01}
  analyses:                      # as in a file for ``dask-hpc plan partition``
  - {name: spectrum, time: 2 s, memory: 4 GiB, moved: 512 MiB}
  - {name: front, time: 6 s, memory: 8 GiB, serial: 0.1}
  drift:                         # from iteration 60 on ten times slower, and a slow drift
  - {part: spectrum, start: 60, times: 10}
  - {part: simulation, start: 100, times: 1.5, over: 80}
  jitter: 0.1
  seed: 1
  change_cost: 2 s

Times are those on a single core, of one iteration. ``drift`` and ``jitter`` are not declared: the pipeline
finds out.
"""

from collections.abc import Callable, Mapping
from typing import Any

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.safe_yaml import check_keys
from dask_hpc.model.units import parse_duration, parse_quantity
from dask_hpc.planning.plan_partition import read_analysis, read_simulation
from dask_hpc.simulator.in_situ.pipeline import Drift, Pipeline

_MOST_ANALYSES = 1000


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError("", f"found {shown(value)}", "a number")
    return value


def _as_it_is(value: Any) -> Any:
    return value


_Readers = Mapping[str, Callable[[Any], Any]]
_DRIFT: _Readers = {"part": _as_it_is, "start": _as_it_is, "times": _number, "over": _as_it_is}
_PIPELINE: _Readers = {
    "iterations": _as_it_is,
    "cores": _as_it_is,
    "memory": lambda value: parse_quantity(value, "B"),
    "bandwidth": lambda value: parse_quantity(value, "B/s"),
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
    analyses, drifts = found["analyses"], found.get("drift", [])
    if not isinstance(analyses, list) or len(analyses) > _MOST_ANALYSES:
        raise InputError("analyses", f"found {shown(analyses)}", "a list of {name: NAME, time: T}")
    if not isinstance(drifts, list):
        raise InputError("drift", f"found {shown(drifts)}", "a list of {part: NAME, start: I, times: K}")
    plain = {key: value for key, value in found.items() if key in _PIPELINE}
    return Pipeline(
        simulation=read_simulation(found["simulation"]),
        analyses=tuple(read_analysis(one, number) for number, one in enumerate(analyses, 1)),
        drifts=tuple(_drift(one, f"drift[{at}]") for at, one in enumerate(drifts)),
        **_values(plain, _PIPELINE, ""),
    )


def _drift(found: Any, where: str) -> Drift:
    check_keys(found, tuple(_DRIFT), where)
    for key in ("part", "start", "times"):
        if key not in found:
            raise InputError(f"{where}.{key}", "is missing")
    return Drift(**_values(found, _DRIFT, where))


def _values(found: Mapping[str, Any], readers: _Readers, where: str) -> dict[str, Any]:
    values = {}
    for key, value in found.items():
        try:
            values[key] = readers[key](value)
        except InputError as error:
            raise error.at(f"{where}.{key}" if where else key) from None
    return values
