"""One job of our own workload form."""

import dataclasses
from collections.abc import Callable, Mapping
from math import inf
from typing import Any

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.io_demand import IoDemand
from dask_hpc.model.job import Job
from dask_hpc.model.power import PowerRange
from dask_hpc.model.safe_yaml import check_keys, nearest
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
from dask_hpc.simulator.amount import Fixed
from dask_hpc.simulator.application_demand import io_demand, quiet_runtime
from dask_hpc.simulator.commits.declared import read_checkpoint
from dask_hpc.simulator.expression import Expression
from dask_hpc.simulator.platform import Platform
from dask_hpc.simulator.workload import Arrival
from dask_hpc.simulator.yaml_application import APPLICATION_KEYS, OPERATIONS, check_request, read_application
from dask_hpc.simulator.yaml_pipeline import read_pipeline

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
