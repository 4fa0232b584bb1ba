"""Reading our own small workload form.

nodes: 4                     # optional: the machine
jobs:
  - {id: a, submit: 0s, nodes: 2, runtime: 10 min, walltime: 15 min}
"""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.job import Job
from dask_hpc.model.safe_yaml import check_keys, read_yaml
from dask_hpc.model.units import parse_duration, parse_quantity
from dask_hpc.simulator.workload import Arrival, Workload

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
    check_keys(found, ("nodes", "jobs"), "")
    nodes = _whole(found["nodes"]) if found.get("nodes") is not None else None
    jobs = found.get("jobs")
    if not isinstance(jobs, list) or not jobs:
        raise InputError("jobs", f"found {shown(jobs)}", "a list of jobs")
    arrivals = []
    seen: set[str] = set()
    for index, one in enumerate(jobs):
        try:
            arrival = _arrival(one, index)
            if arrival.job.id in seen:
                raise InputError("id", f"{shown(arrival.job.id)} is there twice")
        except InputError as error:
            raise error.at(f"jobs[{index}]") from None
        seen.add(arrival.job.id)
        arrivals.append(arrival)
    return Workload(name, arrivals, nodes)


def _whole(value: Any) -> int:
    if type(value) is not int or not 1 <= value < 2**31:
        raise InputError("nodes", f"found {shown(value)}", "a whole number >= 1")
    return value


def _text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise InputError("", f"found {shown(value)}", "a name")
    return str(value)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError("", f"found {shown(value)}", "a number")
    return float(value)


_READERS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "id": ("id", _text),
    "submit": ("submitted", parse_duration),
    "nodes": ("nodes", lambda value: value),
    "walltime": ("walltime", parse_duration),
    "priority": ("priority", _number),
    "power_per_node": ("power_per_node", lambda value: parse_quantity(value, "W")),
    "user": ("user", _text),
}
assert {field for field, _ in _READERS.values()} <= {field.name for field in dataclasses.fields(Job)}


def _arrival(found: Any, index: int) -> Arrival:
    check_keys(found, (*_READERS, "runtime"), "")
    values: dict[str, Any] = {"id": str(index + 1)}
    for key, (field, read) in _READERS.items():
        if key in found:
            try:
                values[field] = read(found[key])
            except InputError as error:
                raise error.at(key) from None
    for key in ("nodes", "runtime"):
        if key not in found:
            raise InputError(key, "is missing")
    try:
        runtime = parse_duration(found["runtime"])
    except InputError as error:
        raise error.at("runtime") from None
    if not 0 <= values.get("submitted", 0.0) < float("inf"):
        raise InputError("submit", f"found {shown(found['submit'])}", "0 s or more")
    return Arrival(Job(**values), runtime)
