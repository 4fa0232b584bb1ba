"""Reading our own workload form.

nodes: 4                     # optional: the machine in short, or platform: {nodes: 4, speed: ...}
jobs:
  - {id: a, submit: 0s, nodes: 2, runtime: 10 min, walltime: 15 min}
  - {id: b, nodes: 2, kind: malleable, min_nodes: 1, max_nodes: 4, runtime: 1 h,
     speedup: {power_law: 0.9}, data: 4 GiB}
  - {id: c, nodes: 1, kind: evolving, max_nodes: 4, runtime: 1 h, requests: {50 %: 4}}
  - {id: d, nodes: 2, runtime: 1 d, checkpoint: {bytes: 4 GB, every: auto, levels: [partner, store]}}

What a job may say is in ``yaml_job``, phases are in ``yaml_application``, in situ pipelines in
``yaml_pipeline``, checkpoints in ``commits.declared``, the machine is in ``yaml_platform``.
"""

import dataclasses
from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path
from typing import Any

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.io import IoDemand
from dask_hpc.model.job import Job
from dask_hpc.model.power import PowerRange
from dask_hpc.model.safe_yaml import check_keys, nearest, read_yaml
from dask_hpc.model.speedup import (
    Amdahl,
    Interpolated,
    Linear,
    PowerLaw,
    Speedup,
    Tabulated,
    from_runtimes,
)
from dask_hpc.model.units import UNITS, parse_duration, parse_quantity
from dask_hpc.planning.in_situ.plan import read_analysis, read_simulation
from dask_hpc.simulator.amount import Expression, Fixed
from dask_hpc.simulator.application import io_demand, quiet_runtime
from dask_hpc.simulator.in_situ.run import Drift, Pipeline
from dask_hpc.simulator.platform import Platform
from dask_hpc.simulator.readers.yaml_platform import (
    APPLICATION_KEYS,
    OPERATIONS,
    check_request,
    read_application,
    read_platform,
)
from dask_hpc.simulator.workload import Arrival, Workload, read_checkpoint

_MOST_ANALYSES = 1000


def _number_of_yaml_pipeline(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError("", f"found {shown(value)}", "a number")
    return value


def _as_it_is_of_yaml_pipeline(value: Any) -> Any:
    return value


_Readers = Mapping[str, Callable[[Any], Any]]
_DRIFT: _Readers = {
    "part": _as_it_is_of_yaml_pipeline,
    "start": _as_it_is_of_yaml_pipeline,
    "times": _number_of_yaml_pipeline,
    "over": _as_it_is_of_yaml_pipeline,
}
_PIPELINE: _Readers = {
    "iterations": _as_it_is_of_yaml_pipeline,
    "cores": _as_it_is_of_yaml_pipeline,
    "memory": lambda value: parse_quantity(value, "B"),
    "bandwidth": lambda value: parse_quantity(value, "B/s"),
    "jitter": _number_of_yaml_pipeline,
    "seed": _as_it_is_of_yaml_pipeline,
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


_SPEEDUPS = ("linear", "amdahl", "power_law", "tabulated", "interpolated", "runtimes")
_MOST_POINTS = 100_000


def _text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise InputError("", f"found {shown(value)}", "a name")
    return str(value)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError("", f"found {shown(value)}", "a number")
    try:
        return float(value)
    except OverflowError:
        raise InputError("", f"found {shown(value)}", "a finite number") from None


def _as_it_is(value: Any) -> Any:
    return value


def read_speedup(value: Any) -> Speedup:
    """``linear``, or a mapping of one model's name to its parameter."""
    if value == "linear":
        return Linear()
    if not isinstance(value, dict) or len(value) != 1:
        raise InputError(
            "", f"found {shown(value)}", f"one of {', '.join(_SPEEDUPS)}, such as power_law: 0.8"
        )
    ((name, parameter),) = value.items()
    if name not in _SPEEDUPS[1:]:
        raise InputError(shown(name), f"unknown speed-up{nearest(name, _SPEEDUPS)}", ", ".join(_SPEEDUPS))
    try:
        if name == "amdahl":
            return Amdahl(_number(parameter))
        if name == "power_law":
            return PowerLaw(_number(parameter))
        if not isinstance(parameter, dict) or not 0 < len(parameter) <= _MOST_POINTS:
            raise InputError("", f"found {shown(parameter)}", "a mapping of nodes to numbers")
        if not all(type(size) is int for size in parameter):
            raise InputError("", f"found {shown(parameter)}", "whole numbers of nodes")
        if name == "runtimes":
            return from_runtimes({size: parse_duration(parameter[size]) for size in sorted(parameter)})
        points = tuple((size, _number(parameter[size])) for size in sorted(parameter))
        return Tabulated(points) if name == "tabulated" else Interpolated(points)
    except InputError as error:
        raise error.at(str(name)) from None


def _requests(value: Any) -> tuple[tuple[float, int], ...]:
    """``{30 %: 8, 0.8: 2}``: at which share of its work it asks for how many nodes."""
    if not isinstance(value, dict) or len(value) > _MOST_POINTS:
        raise InputError("", f"found {shown(value)}", "a mapping of shares of the work to nodes")
    requests = []
    for key, nodes in value.items():
        share = key
        if isinstance(key, str) and key.isascii() and key.strip().endswith("%"):
            try:
                share = float(key.strip()[:-1]) / 100.0
            except ValueError:
                share = None
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise InputError(shown(key), "is no share of the work", "0 to 1, or 0 % to 100 %")
        if type(nodes) is not int or not 1 <= nodes < 2**31:
            raise InputError(shown(key), f"found {shown(nodes)}", "a whole number of nodes >= 1")
        requests.append((float(share), nodes))
    return tuple(sorted(requests))


_READERS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "id": ("id", _text),
    "kind": ("kind", _as_it_is),
    "submit": ("submitted", parse_duration),
    "nodes": ("nodes", _as_it_is),
    "min_nodes": ("min_nodes", _as_it_is),
    "max_nodes": ("max_nodes", _as_it_is),
    "constraint": ("constraint", _as_it_is),
    "walltime": ("walltime", parse_duration),
    "priority": ("priority", _number),
    "power": ("power", PowerRange.read),
    "value": ("value", _number),
    "deadline": ("deadline", parse_duration),
    "user": ("user", _text),
    "speedup": ("speedup", read_speedup),
}
#: what only the simulator knows of a job
_TRUTHS: Mapping[str, Callable[[Any], Any]] = {
    "runtime": parse_duration,
    "data": lambda value: parse_quantity(value, "B"),
    "cancelled": parse_duration,
    "requests": _requests,
    "checkpoint": read_checkpoint,
}
_FIELDS = {field.name for field in dataclasses.fields(Job)}
assert {field for field, _ in _READERS.values()} <= _FIELDS
_KEYS = (*_READERS, *_TRUTHS, "io_intensity", "pipeline", *APPLICATION_KEYS)


def _value(found: Mapping[str, Any], key: str, read: Callable[[Any], Any]) -> Any:
    try:
        return read(found[key])
    except InputError as error:
        raise error.at(key) from None


def _io_intensity(value: Any, platform: Platform | None) -> IoDemand:
    """``{compute: 200 Tflop, data: 10 GiB}``: totals of the whole run."""
    check_keys(value, ("compute", "data"), "")
    totals = {}
    for key, units in (("compute", OPERATIONS), ("data", UNITS["B"])):
        try:
            totals[key] = Expression.parse(value.get(key, 0), units).at({})
        except InputError as error:
            raise error.at(key) from None
    machine = platform or Platform(1)
    rates = {"speed": machine.speed, "link": machine.link, "file_system": machine.file_system}
    return IoDemand(**totals, **rates)


def read_job(found: Any, index: int, machine: int | None, platform: Platform | None = None) -> Arrival:
    """From a mapping; complaints name the key. ``machine`` is its nodes, if that is known."""
    check_keys(found, _KEYS, "")
    values: dict[str, Any] = {"id": str(index + 1)}
    values |= {field: _value(found, key, read) for key, (field, read) in _READERS.items() if key in found}
    works = any(key in found for key in ("runtime", "phases", "pipeline"))
    for key, is_there in (("nodes", "nodes" in found), ("runtime", works)):
        if not is_there:
            raise InputError(key, "is missing")
    for key in ("min_nodes", "max_nodes"):  # a zero would quietly mean "as nodes"
        if key in found and (type(found[key]) is not int or found[key] < 1):
            raise InputError(key, f"found {shown(found[key])}", "a whole number >= 1")
    if not 0 <= values.get("submitted", 0.0) < inf:
        raise InputError("submit", f"found {shown(found['submit'])}", "0 s or more")
    if "io_intensity" in found:
        values["io_intensity"] = _value(found, "io_intensity", lambda value: _io_intensity(value, platform))
    job = Job(**values)
    truth = {key: _value(found, key, read) for key, read in _TRUTHS.items() if key in found}
    _check(job, truth, found, machine)
    if job.speedup is not None:
        truth["speedup"] = job.speedup
    if "pipeline" in found:
        pipeline = truth["application"] = _value(found, "pipeline", read_pipeline)
        truth.setdefault("runtime", pipeline.quiet_runtime(job.nodes, platform or Platform(job.nodes)))
    elif any(key in found for key in APPLICATION_KEYS):
        sizes = tuple(dict.fromkeys((job.nodes, job.min_nodes, job.max_nodes)))
        application = truth["application"] = read_application(found, sizes, machine)
        if platform is not None:
            truth.setdefault("runtime", min(quiet_runtime(application, platform, job.nodes), 1e300))
            if job.io_intensity is None:
                job = dataclasses.replace(job, io_intensity=io_demand(application, platform, job.nodes))
    return Arrival(job, **{"runtime": 0.0, **truth})


def _check(job: Job, truth: Mapping[str, Any], found: Mapping[str, Any], machine: int | None) -> None:
    if not 0 <= truth.get("data", 0.0) < inf:
        raise InputError("data", f"found {shown(found['data'])}", "0 B or more")
    if not truth.get("cancelled", inf) >= job.submitted:
        raise InputError("cancelled", f"found {shown(found['cancelled'])}", "not before it is submitted")
    if "pipeline" in found and (
        others := [key for key in ("runtime", "checkpoint", *APPLICATION_KEYS) if key in found]
    ):
        raise InputError(others[0], "the job has a pipeline", "either of them")
    asks = "requests" in found or any(
        isinstance(phase, dict) and "request" in phase
        for phase in (found["phases"] if isinstance(found.get("phases"), list) else ())
    )
    if asks and job.kind != "evolving":
        raise InputError("kind", f"a {job.kind} job asks for nodes", "evolving")
    if "phases" in found and "requests" in found:
        raise InputError("requests", "the job has phases", "request in a phase")
    for share, nodes in truth.get("requests", ()):
        check_request(Fixed(nodes), (job.nodes,), machine, f"requests: {share:g}")


_LIMIT = 20_000_000  # bytes


def read_yaml_workload(path: Path) -> Workload:
    """A whole file. Complaints name the file, the job and the key."""
    try:
        with path.open("rb") as file:
            return _workload(read_yaml(file.read(_LIMIT + 1), _LIMIT), path.name)
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}") from None
    except InputError as error:
        raise error.at(str(path)) from None


def _workload(found: Any, name: str) -> Workload:
    check_keys(found, ("nodes", "platform", "jobs"), "")
    nodes = _whole(found["nodes"]) if found.get("nodes") is not None else None
    platform = None
    if found.get("platform") is not None:
        platform = _platform(found["platform"], nodes)
        nodes = platform.nodes
    jobs = found.get("jobs")
    if not isinstance(jobs, list) or not jobs:
        raise InputError("jobs", f"found {shown(jobs)}", "a list of jobs")
    arrivals = []
    seen: set[str] = set()
    for index, one in enumerate(jobs):
        try:
            arrival = read_job(one, index, nodes, platform)
            if arrival.job.id in seen:
                raise InputError("id", f"{shown(arrival.job.id)} is there twice")
        except InputError as error:
            raise error.at(f"jobs[{index}]") from None
        seen.add(arrival.job.id)
        arrivals.append(arrival)
    return Workload(name, arrivals, nodes, platform=platform)


def _platform(found: Any, nodes: int | None) -> Platform:
    try:
        if isinstance(found, dict) and nodes is not None:
            if found.get("nodes", nodes) != nodes:
                raise InputError(
                    "nodes", f"found {shown(found['nodes'])} here and {nodes} outside", "one size"
                )
            found = {**found, "nodes": nodes}
        return read_platform(found)
    except InputError as error:
        raise error.at("platform") from None


def _whole(value: Any) -> int:
    if type(value) is not int or not 1 <= value < 2**31:
        raise InputError("nodes", f"found {shown(value)}", "a whole number >= 1")
    return value
