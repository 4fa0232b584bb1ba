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

from pathlib import Path
from typing import Any

from dask_hpc.model.errors import InputError, shown
from dask_hpc.model.safe_yaml import check_keys, read_yaml
from dask_hpc.simulator.platform import Platform
from dask_hpc.simulator.workload import Workload
from dask_hpc.simulator.yaml_job import read_job
from dask_hpc.simulator.yaml_platform import read_platform

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
