"""Reading our own workload form.

nodes: 4                     # optional: the machine in short, or platform: {nodes: 4, speed: ...}
jobs:
  - {id: a, submit: 0s, nodes: 2, runtime: 10 min, walltime: 15 min}
  - {id: b, nodes: 2, kind: malleable, min_nodes: 1, max_nodes: 4, runtime: 1 h,
     speedup: {power_law: 0.9}, data: 4 GiB}
  - {id: c, nodes: 1, kind: evolving, max_nodes: 4, runtime: 1 h, requests: {50 %: 4}}
  - {id: d, nodes: 2, runtime: 1 d, checkpoint: {bytes: 4 GB, every: auto, levels: [partner, store]}}

Phases are in ``yaml_application``, the machine is in ``yaml_platform``.
"""

import dataclasses
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Any

from dask_hpc.model.errors import InputError, shown, within
from dask_hpc.model.io import IoDemand
from dask_hpc.model.job import Job
from dask_hpc.model.power import PowerRange
from dask_hpc.model.safe_yaml import check_keys, nearest, read_yaml
from dask_hpc.model.speedup import Amdahl, Interpolated, Linear, PowerLaw, Speedup, Tabulated, from_runtimes
from dask_hpc.model.units import UNITS, parse_duration, parse_quantity
from dask_hpc.planning.in_situ.plan import read_analysis, read_simulation
from dask_hpc.simulator.amount import Expression, Fixed
from dask_hpc.simulator.application import io_demand, quiet_runtime
from dask_hpc.simulator.in_situ import Drift, Pipeline
from dask_hpc.simulator.platform import Platform
from dask_hpc.simulator.readers.values import (
    Readers,
    as_it_is,
    number,
    read_file,
    read_values,
    share,
    text,
    whole,
)
from dask_hpc.simulator.readers.yaml_application import APPLICATION_KEYS, check_request, read_application
from dask_hpc.simulator.readers.yaml_platform import OPERATIONS, read_platform
from dask_hpc.simulator.workload import Arrival, Workload, read_checkpoint

_MOST_ANALYSES = 1000


def _bytes(value: Any) -> float:
    return parse_quantity(value, "B")


_DRIFT: Readers = {"part": as_it_is, "start": as_it_is, "times": number, "over": as_it_is}
_PIPELINE: Readers = {
    "iterations": as_it_is,
    "cores": as_it_is,
    "memory": _bytes,
    "bandwidth": lambda value: parse_quantity(value, "B/s"),
    "jitter": number,
    "seed": as_it_is,
    "change_cost": parse_duration,
}


def read_pipeline(found: Any) -> Pipeline:
    """From a mapping; complaints name the key."""
    needed = ("iterations", "cores", "simulation", "analyses")
    values = read_values(found, _PIPELINE, needed=needed, also=("simulation", "analyses", "drift"))
    analyses, drifts = found["analyses"], found.get("drift", [])
    if not isinstance(analyses, list) or len(analyses) > _MOST_ANALYSES:
        raise InputError("analyses", f"found {shown(analyses)}", "a list of {name: NAME, time: T}")
    if not isinstance(drifts, list):
        raise InputError("drift", f"found {shown(drifts)}", "a list of {part: NAME, start: I, times: K}")
    return Pipeline(
        simulation=read_simulation(found["simulation"]),
        analyses=tuple(read_analysis(one, number) for number, one in enumerate(analyses, 1)),
        drifts=tuple(
            Drift(**read_values(one, _DRIFT, f"drift[{at}]", needed=("part", "start", "times")))
            for at, one in enumerate(drifts)
        ),
        **values,
    )


_SPEEDUPS = ("linear", "amdahl", "power_law", "tabulated", "interpolated", "runtimes")
_MOST_POINTS = 100_000


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
    with within(str(name)):
        if name == "amdahl":
            return Amdahl(number(parameter))
        if name == "power_law":
            return PowerLaw(number(parameter))
        if not isinstance(parameter, dict) or not 0 < len(parameter) <= _MOST_POINTS:
            raise InputError("", f"found {shown(parameter)}", "a mapping of nodes to numbers")
        if not all(type(size) is int for size in parameter):
            raise InputError("", f"found {shown(parameter)}", "whole numbers of nodes")
        if name == "runtimes":
            return from_runtimes({size: parse_duration(parameter[size]) for size in sorted(parameter)})
        points = tuple((size, number(parameter[size])) for size in sorted(parameter))
        return Tabulated(points) if name == "tabulated" else Interpolated(points)


def _requests(value: Any) -> tuple[tuple[float, int], ...]:
    """``{30 %: 8, 0.8: 2}``: at which share of its work it asks for how many nodes."""
    if not isinstance(value, dict) or len(value) > _MOST_POINTS:
        raise InputError("", f"found {shown(value)}", "a mapping of shares of the work to nodes")
    requests = []
    for key, nodes in value.items():
        try:
            done = share(key)
        except InputError:
            done = -1.0
        if not 0 <= done <= 1:
            raise InputError(shown(key), "is no share of the work", "0 to 1, or 0 % to 100 %")
        with within(shown(key)):
            requests.append((done, _size(nodes)))
    return tuple(sorted(requests))


_size = whole(1)
#: what a ``Job`` is made of, by our key where that is another one
_JOB: Readers = {
    "id": text,
    "kind": as_it_is,
    "submit": parse_duration,
    "nodes": as_it_is,
    "min_nodes": _size,  # a zero would quietly mean "as nodes"
    "max_nodes": _size,
    "constraint": as_it_is,
    "walltime": parse_duration,
    "priority": number,
    "power": PowerRange.read,
    "value": number,
    "deadline": parse_duration,
    "user": text,
    "speedup": read_speedup,
}
#: what only the simulator knows of a job
_TRUTHS: Readers = {
    "runtime": parse_duration,
    "data": _bytes,
    "cancelled": parse_duration,
    "requests": _requests,
    "checkpoint": read_checkpoint,
}


def _io_intensity(value: Any, platform: Platform | None) -> IoDemand:
    """``{compute: 200 Tflop, data: 10 GiB}``: totals of the whole run."""
    check_keys(value, ("compute", "data"), "")
    totals = {}
    for key, units in (("compute", OPERATIONS), ("data", UNITS["B"])):
        with within(key):
            totals[key] = Expression.parse(value.get(key, 0), units).at({})
    machine = platform or Platform(1)
    rates = {"speed": machine.speed, "link": machine.link, "file_system": machine.file_system}
    return IoDemand(**totals, **rates)


def read_job(found: Any, index: int, machine: int | None, platform: Platform | None = None) -> Arrival:
    """From a mapping; complaints name the key. ``machine`` is its nodes, if that is known."""
    also = ("io_intensity", "pipeline", *APPLICATION_KEYS)
    values = {"id": str(index + 1), **read_values(found, _JOB, needed=["nodes"], also=(*_TRUTHS, *also))}
    truth = read_values(found, _TRUTHS, also=(*_JOB, *also))
    if not any(found.get(key) is not None for key in ("runtime", "phases", "pipeline")):
        raise InputError("runtime", "is missing")
    values["submitted"] = values.pop("submit", 0.0)
    if not 0 <= values["submitted"] < inf:
        raise InputError("submit", f"found {shown(found['submit'])}", "0 s or more")
    if "io_intensity" in found:
        with within("io_intensity"):
            values["io_intensity"] = _io_intensity(found["io_intensity"], platform)
    job = Job(**values)
    _check(job, truth, found, machine)
    if job.speedup is not None:
        truth["speedup"] = job.speedup
    if "pipeline" in found:
        with within("pipeline"):
            pipeline = truth["application"] = read_pipeline(found["pipeline"])
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
    for done, nodes in truth.get("requests", ()):
        check_request(Fixed(nodes), (job.nodes,), machine, f"requests: {done:g}")


_LIMIT = 20_000_000  # bytes


def read_yaml_workload(path: Path) -> Workload:
    """A whole file. Complaints name the file, the job and the key."""
    data = read_file(path, _LIMIT)
    with within(str(path)):
        return _workload(read_yaml(data, _LIMIT), path.name)


def _workload(found: Any, name: str) -> Workload:
    check_keys(found, ("nodes", "platform", "jobs"), "")
    nodes = platform = None
    if found.get("nodes") is not None:
        with within("nodes"):
            nodes = _size(found["nodes"])
    if found.get("platform") is not None:
        with within("platform"):
            platform = _platform(found["platform"], nodes)
        nodes = platform.nodes
    jobs = found.get("jobs")
    if not isinstance(jobs, list) or not jobs:
        raise InputError("jobs", f"found {shown(jobs)}", "a list of jobs")
    arrivals = []
    seen: set[str] = set()
    for index, one in enumerate(jobs):
        with within(f"jobs[{index}]"):
            arrival = read_job(one, index, nodes, platform)
            if arrival.job.id in seen:
                raise InputError("id", f"{shown(arrival.job.id)} is there twice")
        seen.add(arrival.job.id)
        arrivals.append(arrival)
    return Workload(name, arrivals, nodes, platform=platform)


def _platform(found: Any, nodes: int | None) -> Platform:
    if isinstance(found, dict) and nodes is not None:
        if found.get("nodes", nodes) != nodes:
            raise InputError("nodes", f"found {shown(found['nodes'])} here and {nodes} outside", "one size")
        found = {**found, "nodes": nodes}
    return read_platform(found)
