"""Reading what was written for ElastiSim: configuration, jobs, application models, SimGrid platform.

The formats are those of ElastiSim's public documentation and code (seed 002 names them and prints none of
their fields; its digest, 2.9 and 2.10). Jobs are numbered from 0, as in ElastiSim's own results.

ElastiSim's jobs have no preferred size. Theirs is ``attributes.nodes`` (or ``preferred_nodes``) if they
have that, and else the least they can do with, or the most with ``start="max"``. ``attributes.priority``,
``user`` and ``power`` are ours, too. An ``adaptive`` job is what we call evolving: it asks, and may
be resized unasked. Of ElastiSim's ``evolving`` jobs only the asking is ours; a policy that resizes jobs
will resize them, too, and the notes say so.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from dask_hpc.model.errors import InputError, one_line, shown, within
from dask_hpc.model.job import Job, Kind
from dask_hpc.model.power import PowerRange
from dask_hpc.model.safe_yaml import nearest
from dask_hpc.simulator.amount import Arguments, Expression
from dask_hpc.simulator.application import Application, io_demand, quiet_runtime
from dask_hpc.simulator.readers.elastisim_application import ElastisimJob, read_model
from dask_hpc.simulator.readers.elastisim_platform import ElastisimPlatform, load_platform
from dask_hpc.simulator.readers.values import (
    Notes,
    Readers,
    beside,
    json_flag,
    json_number,
    need,
    read_json,
    read_values,
)
from dask_hpc.simulator.workload import Arrival, Workload

_FLAGS = {
    "schedule_on_job_submit": False,
    "schedule_on_job_finalize": False,
    "schedule_on_scheduling_point": False,
    "schedule_on_reconfiguration": False,
    "allow_oversubscription": False,
    "clip_evolving_requests": True,
    "forward_io_information": False,
    "show_progress_bar": True,
    "sensing": False,
    "log_task_times": False,
}
_SECONDS = ("scheduling_interval", "min_scheduling_interval", "job_kill_grace_period", "sensing_interval")
_OUTPUTS = ("job_statistics", "node_utilization", "cpu_utilization", "network_activity", "pfs_utilization",
            "gpu_utilization", "task_times")  # fmt: skip
CONFIGURATION_KEYS = ("jobs_file", "platform_file", "zmq_url", *_FLAGS, *_SECONDS, "pfs_read_links",
                      "pfs_write_links", *_OUTPUTS)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Configuration:
    """The jobs file, and the machine if there is one."""

    jobs: Path
    machine: ElastisimPlatform | None
    notes: Notes


def read_configuration(found: Any, path: Path) -> Configuration:
    """Complaints name the file and the key."""
    notes = Notes()
    with within(one_line(str(path))):
        need(found, CONFIGURATION_KEYS, ("jobs_file", "platform_file"), "")
        flags = {key: json_flag(found.get(key), key, default) for key, default in _FLAGS.items()}
        seconds = {key: json_number(found.get(key) or 0, key, 0, 1e12) for key in _SECONDS}
        links = [_names(found.get(key), key) for key in ("pfs_read_links", "pfs_write_links")]
        jobs = beside(path, found["jobs_file"], "jobs_file")
        machine = beside(path, found["platform_file"], "platform_file")
    if flags["allow_oversubscription"]:
        notes.add("nodes are never shared by jobs: allow_oversubscription is left out")
    if not flags["clip_evolving_requests"]:
        notes.add("requests of evolving jobs are always cut to their range")
    for key in ("min_scheduling_interval", "job_kill_grace_period"):
        if seconds[key]:
            notes.add(f"{key} is left out")
    described = load_platform(machine, *links)
    notes.update(dict.fromkeys(described.notes))
    interval = seconds["scheduling_interval"]
    on_events = flags["schedule_on_job_submit"] or flags["schedule_on_job_finalize"]
    platform = replace(described.platform, tick=interval, only_ticks=bool(interval) and not on_events)
    return Configuration(jobs, replace(described, platform=platform), notes)


def _names(value: Any, where: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise InputError(where, f"found {shown(value)}", "a list of links' names")
    return tuple(value)


_KINDS: dict[str, Kind] = {
    "rigid": "rigid",
    "moldable": "moldable",
    "malleable": "malleable",
    "evolving": "evolving",
    "adaptive": "evolving",
}
_ANY = ("type", "submit_time", "application_model", "walltime", "arguments", "attributes")
_RIGID = ("num_nodes", "num_gpus_per_node")
_RANGE = ("num_nodes_min", "num_nodes_max", "num_gpus_per_node_min", "num_gpus_per_node_max")
_USED = ("nodes", "preferred_nodes", "priority", "user", "power")
_GIVEN = ("num_gpus_per_node", "num_gpus")


def _priority(value: Any) -> float:
    """Attributes are passed on as text by ElastiSim, so numbers may be written as text."""
    if isinstance(value, str):
        with suppress(ValueError):
            value = float(value)
    return json_number(value, "", -1e300)


_ATTRIBUTES: Readers = {"priority": _priority, "power": PowerRange.read}


def load_elastisim(path: str | Path, *, start: str = "min") -> Workload:
    """A configuration file, or a jobs file alone (which then says nothing about the machine).

    ``start`` ("min" or "max") is the start size of jobs that do not say which they prefer.
    """
    if start not in ("min", "max"):
        raise InputError("start", f"found {shown(start)}", "min, max")
    path = Path(path)
    found = read_json(path)
    if isinstance(found, dict) and "jobs" not in found and any(key in CONFIGURATION_KEYS for key in found):
        configuration = read_configuration(found, path)
        path = configuration.jobs
        found = read_json(path)
    else:
        configuration = Configuration(path, None, Notes())
    reader = _Jobs(path, configuration.machine, start == "max", configuration.notes)
    arrivals = reader.read(found)
    platform = configuration.machine.platform if configuration.machine else None
    return Workload(path.name, arrivals, notes=tuple(reader.notes), platform=platform)


class _Jobs:
    """Reads one jobs file; application models are read once."""

    def __init__(self, path: Path, machine: ElastisimPlatform | None, from_most: bool, notes: Notes) -> None:
        self.notes = notes
        self._path = path
        self._machine = machine
        self._from_most = from_most
        self._models: dict[Path, Any] = {}
        self._unused = Notes()

    def read(self, found: Any) -> list[Arrival]:
        name = one_line(str(self._path))
        arrivals = []
        with within(name):
            need(found, ("jobs",), ("jobs",), "")
            if not isinstance(found["jobs"], list) or not found["jobs"]:
                raise InputError("jobs", f"found {shown(found['jobs'])}", "a list of jobs")
            for index, one in enumerate(found["jobs"]):
                with within(f"jobs[{index}]"):
                    arrivals.append(self._arrival(one, index))
        if self._unused:
            self.notes.add(f"attributes of jobs not used: {shown(', '.join(sorted(self._unused)))}")
        return arrivals

    def _arrival(self, found: Any, index: int) -> Arrival:
        if not isinstance(found, dict):
            raise InputError("", f"found {shown(found)}", "a job")
        kind = str(found.get("type")).lower()
        if kind not in _KINDS:
            hint = nearest(kind, _KINDS) if "type" in found else ""
            raise InputError("type", f"found {shown(found.get('type'))}{hint}", ", ".join(_KINDS))
        rigid = kind == "rigid"
        needed = ("num_nodes",) if rigid else ("num_nodes_min", "num_nodes_max")
        need(
            found, (*_ANY, *(_RIGID if rigid else _RANGE)), ("submit_time", "application_model", *needed), ""
        )
        attributes = found.get("attributes") or {}
        if not isinstance(attributes, dict):
            raise InputError("attributes", f"found {shown(attributes)}", "a mapping")
        self._unused.update(dict.fromkeys(key for key in attributes if key not in _USED))
        low, high, nodes = self._sizes(found, attributes, rigid)
        values = read_values(attributes, _ATTRIBUTES, "attributes", also=tuple(attributes))
        if isinstance(attributes.get("user"), str):
            values["user"] = attributes["user"]
        limit = json_number(found.get("walltime") or 0, "walltime")
        if kind == "evolving":
            self.notes.add("evolving jobs may also be resized by the policy, not only at their own request")
        application = self._application(found, kind, (low, nodes, high))
        runtime = 0.0
        if self._machine is not None:
            platform = self._machine.platform
            values["io_intensity"] = io_demand(application, platform, nodes)
            runtime = min(quiet_runtime(application, platform, nodes), 1e300)
        job = Job(
            id=str(index),
            kind=_KINDS[kind],
            nodes=nodes,
            min_nodes=low,
            max_nodes=high,
            walltime=limit or inf,
            submitted=json_number(found["submit_time"], "submit_time"),
            **values,
        )
        return Arrival(job, runtime, application=application)

    def _sizes(self, found: Any, attributes: Any, rigid: bool) -> tuple[int, int, int]:
        if rigid:
            size = _whole(found["num_nodes"], "num_nodes", 1)
            return size, size, size
        low = _whole(found["num_nodes_min"], "num_nodes_min", 1)
        high = _whole(found["num_nodes_max"], "num_nodes_max", 1)
        if high < low:
            raise InputError("num_nodes_max", f"found {high}", f"num_nodes_min={low} or more")
        for key in ("nodes", "preferred_nodes"):
            if attributes.get(key) is not None:
                return low, high, _whole(attributes[key], f"attributes.{key}", low, high)
        most = self._from_most
        self.notes.add(
            f"jobs of several sizes start on the {'most' if most else 'fewest'} nodes they can use"
        )
        return low, high, high if most else low

    def _application(self, found: Any, kind: str, sizes: tuple[int, ...]) -> Application:
        rigid = kind == "rigid"
        gpu_key = "num_gpus_per_node" if rigid else "num_gpus_per_node_max"
        gpus = _whole(found.get(gpu_key) or 0, gpu_key, 0)
        if not rigid:
            least = found.get("num_gpus_per_node_min") or 0
            if _whole(least, "num_gpus_per_node_min", 0, gpus) != gpus:
                self.notes.add("jobs with a range of GPUs per node use the most of it")
        arguments = found.get("arguments") or {}
        if not isinstance(arguments, dict):
            raise InputError("arguments", f"found {shown(arguments)}", "a mapping")
        expressions = {}
        for name, value in arguments.items():
            if name in _GIVEN:
                raise InputError(f"arguments.{name}", "is given by the job's size", "another name")
            with within(f"arguments.{shown(name)}"):
                expressions[name] = Expression.parse(value)
        expressions["num_gpus_per_node"] = Expression.parse(gpus)
        expressions["num_gpus"] = Expression.parse("num_nodes * num_gpus_per_node")
        with within("arguments"):
            bound = Arguments(expressions, "num_nodes")
        path = beside(self._path, found["application_model"], "application_model")
        model = self._models.get(path)
        if model is None:
            model = self._models[path] = read_json(path)
        context = ElastisimJob(
            arguments=bound,
            sizes=tuple(sorted(set(sizes))),
            nodes=sizes[0] if rigid else None,
            gpus=gpus,
            evolving=kind in ("evolving", "adaptive"),
            machine=self._machine,
            notes=self.notes,
        )
        with within(one_line(path.name)):
            return read_model(model, context)


def _whole(value: Any, where: str, low: int, high: int = 2**31 - 1) -> int:
    if type(value) is not int or not low <= value <= high:
        allowed = (
            f"a whole number, {low} or more" if high == 2**31 - 1 else f"a whole number, {low} to {high}"
        )
        raise InputError(where, f"found {shown(value)}", allowed)
    return value
