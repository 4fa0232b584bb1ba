"""Reading what was written for ElastiSim: configuration, jobs, application models, SimGrid platform.

The formats are those of ElastiSim's public documentation and code (seed 002 names them and prints none of
their fields; its digest, 2.9 and 2.10). Jobs are numbered from 0, as in ElastiSim's own results.

ElastiSim's jobs have no preferred size. Theirs is ``attributes.nodes`` (or ``preferred_nodes``) if they
have that, and else the least they can do with, or the most with ``start="most"``. ``attributes.priority``,
``user``, ``power``, ``value``, ``deadline`` and ``soft_deadline`` (counted from the submission) are ours,
too. An ``adaptive`` job is what we call evolving: it asks, and may be resized unasked. Of ElastiSim's
``evolving`` jobs only the asking is ours; a policy that resizes jobs will resize them, too, and the notes say
so. Arguments that no formula uses may be anything, such as a name.
"""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, cast

from dask_hpc.model.errors import InputError, insist, one_line, shown, within
from dask_hpc.model.job import Job, Kind
from dask_hpc.model.power import PowerRange
from dask_hpc.model.safe_yaml import nearest
from dask_hpc.model.speedup import IoDemand
from dask_hpc.simulator.application import Application, Arguments, measured
from dask_hpc.simulator.expression import Expression
from dask_hpc.simulator.readers.elastisim_application import ModelReader
from dask_hpc.simulator.readers.elastisim_form import ApplicationForm, Filling
from dask_hpc.simulator.readers.elastisim_platform import ElastisimPlatform, load_platform
from dask_hpc.simulator.values import (
    Notes,
    Readers,
    as_it_is,
    flag,
    list_of,
    number,
    read_json,
    read_values,
    uncollected,
    whole,
)
from dask_hpc.simulator.workload import Arrival, Workload


def _amount(value: Any) -> float:
    """Of seconds."""
    insist(0 <= number(value) <= 1e300, "", value, "a number, 0 or more")
    return float(value)


def _name(value: Any) -> str:
    insist(isinstance(value, str), "", value, "a name")
    return str(value)


def _mapping(value: Any) -> dict[str, Any]:
    insist(isinstance(value, dict), "", value, "a mapping")
    return dict(value)


def _priority(value: Any) -> float:
    """Attributes are passed on as text by ElastiSim, so numbers may be written as text."""
    if isinstance(value, str):
        with suppress(ValueError):
            value = float(value)
    return number(value)


_links = list_of(_name, "a list of links' names")
_CONFIGURATION: Readers = {
    "jobs_file": as_it_is,
    "platform_file": as_it_is,
    **dict.fromkeys(("scheduling_interval", "min_scheduling_interval", "job_kill_grace_period"), _amount),
    "sensing_interval": _amount,
    "pfs_read_links": _links,
    "pfs_write_links": _links,
    "schedule_on_job_submit": flag,
    "schedule_on_job_finalize": flag,
    "schedule_on_scheduling_point": flag,
    "schedule_on_reconfiguration": flag,
    "allow_oversubscription": flag,
    "clip_evolving_requests": flag,
    "forward_io_information": flag,
    "show_progress_bar": flag,
    "sensing": flag,
    "log_task_times": flag,
    **dict.fromkeys(("zmq_url", "job_statistics", "node_utilization", "cpu_utilization", "gpu_utilization",
                     "network_activity", "pfs_utilization", "task_times"), as_it_is),
}  # fmt: skip
_ANY: Readers = {
    "type": as_it_is,
    "submit_time": _amount,
    "application_model": as_it_is,
    "walltime": _amount,
    "arguments": _mapping,
    "attributes": _mapping,
}
_RIGID: Readers = {**_ANY, "num_nodes": whole(1), "num_gpus_per_node": whole(0)}
_RANGE: Readers = {
    **_ANY,
    "num_nodes_min": whole(1),
    "num_nodes_max": whole(1),
    "num_gpus_per_node_min": whole(0),
    "num_gpus_per_node_max": whole(0),
}
_ATTRIBUTES: Readers = {
    "priority": _priority,
    "power": PowerRange.read,
    "value": _amount,
    "deadline": _amount,
    "soft_deadline": _amount,
}
_USED = frozenset((*_ATTRIBUTES, "nodes", "preferred_nodes", "user"))
_KINDS = ("rigid", "moldable", "malleable", "evolving", "adaptive")
#: of arguments, given by the job's size
_GIVEN = ("num_gpus_per_node", "num_gpus")
_KNOWN = frozenset((*_GIVEN, "num_nodes", "num_nodes_min", "num_nodes_max", "phase_iteration"))
_NODES, _ITERATION = "num_nodes", "phase_iteration"
_ALL_GPUS = Expression.parse("num_nodes * num_gpus_per_node")
STARTS = ("fewest", "most")
#: numbers and text; of True it is complained, which is not 1
_PLAIN = frozenset((int, float, str))
_LARGE = 1e300


def load_elastisim(path: str | Path, *, start: str = "fewest") -> Workload:
    """A configuration file, or a jobs file alone (which then says nothing about the machine).

    Jobs that do not say which size they prefer ``start`` on the ``fewest`` or the ``most`` nodes they can
    use.
    """
    insist(start in STARTS, "start", start, ", ".join(STARTS))
    with uncollected():
        return _load(Path(path), start == "most")


def _load(path: Path, from_most: bool) -> Workload:
    machine, notes = None, Notes()
    found = read_json(path)
    if isinstance(found, dict) and "jobs" not in found and any(key in _CONFIGURATION for key in found):
        path, machine = _configuration(found, path, notes)
        found = read_json(path)
    reader = _Jobs(path, machine, from_most, notes)
    with within(one_line(str(path))):
        arrivals = reader.read(found)
    platform = None if machine is None else machine.platform
    return Workload(path.name, arrivals, notes=tuple(notes), platform=platform)


def _configuration(found: dict[str, Any], path: Path, notes: Notes) -> tuple[Path, ElastisimPlatform]:
    """The jobs file, and the machine."""
    with within(one_line(str(path))):
        values = read_values(found, _CONFIGURATION, needed=("jobs_file", "platform_file"))
        jobs, platform = (_beside(path, found[key], key, notes) for key in ("jobs_file", "platform_file"))
    if values.get("allow_oversubscription"):
        notes.add("nodes are never shared by jobs: allow_oversubscription is left out")
    if not values.get("clip_evolving_requests", True):
        notes.add("requests of evolving jobs are always cut to their range")
    for key in ("min_scheduling_interval", "job_kill_grace_period"):
        if values.get(key):
            notes.add(f"{key} is left out")
    machine = load_platform(
        platform, values.get("pfs_read_links", ()), values.get("pfs_write_links", ()), notes
    )
    tick = values.get("scheduling_interval", 0.0)
    on_events = values.get("schedule_on_job_submit") or values.get("schedule_on_job_finalize")
    ticking = replace(machine.platform, tick=tick, only_ticks=bool(tick) and not on_events)
    return jobs, replace(machine, platform=ticking)


def _beside(path: Path, name: Any, where: str, notes: Notes) -> Path:
    """The file that is called ``name`` in the file ``path``.

    ElastiSim takes names from the folder in which it is run, which is usually the file's own or one above.
    An absolute name that is nowhere may be that of a container: its longest end that is there is taken.
    """
    fits = isinstance(name, str) and bool(name) and "\0" not in name
    insist(fits, where, name, "the name of a file")
    folders = path.absolute().parents
    parts = PurePosixPath(name).parts
    ends = [name]
    if name.startswith("/"):
        ends += ["/".join(parts[first:]) for first in range(1, len(parts))]
    for end in ends:
        for folder in folders:
            try:
                if (folder / end).is_file():
                    if end != name:
                        front = name[: len(name) - len(end)] if name.endswith(end) else name
                        notes.add(one_line(f"there is no {front} here: its files are taken from {folder}"))
                    return folder / end
            except OSError:  # a name that is too long
                break
    raise InputError(where, f"there is no file {shown(name)} in {one_line(str(path.parent))} or above it")


class _WorkOfJob(NamedTuple):
    """What jobs with the same model, arguments and sizes do, and what that takes on their start nodes."""

    application: Application
    io: IoDemand | None
    seconds: float


@dataclass
class _Jobs:
    """Reads one jobs file. What is the same for several jobs is read once: models, their forms for jobs that
    are alike, and what jobs with the same arguments do."""

    path: Path
    machine: ElastisimPlatform | None
    from_most: bool
    notes: Notes
    paths: dict[str, Path] = field(default_factory=dict)
    models: dict[Path, Any] = field(default_factory=dict)
    forms: dict[tuple[Any, ...], ApplicationForm] = field(default_factory=dict)
    applications: dict[tuple[Any, ...], _WorkOfJob] = field(default_factory=dict)
    unused: set[str] = field(default_factory=set)

    def read(self, found: Any) -> list[Arrival]:
        jobs = read_values(found, {"jobs": as_it_is}, needed=("jobs",))["jobs"]
        insist(isinstance(jobs, list) and len(jobs) > 0, "jobs", jobs, "a list of jobs")
        arrivals = []
        for index, one in enumerate(jobs):
            try:
                arrivals.append(self._arrival(one, index))
            except InputError as error:
                raise error.at(f"jobs[{index}]") from None
        if self.unused:
            self.notes.add(f"attributes of jobs not used: {shown(', '.join(sorted(self.unused)))}")
        return arrivals

    def _arrival(self, found: Any, index: int) -> Arrival:
        insist(isinstance(found, dict), "", found, "a job")
        kind = str(found.get("type"))
        if kind not in _KINDS:
            kind = kind.lower()
        if kind not in _KINDS:
            hint = nearest(kind, _KINDS) if "type" in found else ""
            raise InputError("type", f"found {shown(found.get('type'))}{hint}", ", ".join(_KINDS))
        rigid = kind == "rigid"
        sizes = ("num_nodes",) if rigid else ("num_nodes_min", "num_nodes_max")
        needed = ("submit_time", "application_model", *sizes)
        said = read_values(found, _RIGID if rigid else _RANGE, needed=needed)
        attributes = said.get("attributes", {})
        low, nodes, high = self._sizes(said, attributes, rigid)
        values = {}
        if not attributes.keys() <= {"user"}:
            self.unused.update(attributes.keys() - _USED)
            values = read_values(attributes, _ATTRIBUTES, "attributes", also=tuple(attributes))
        for key in ("deadline", "soft_deadline"):  # counted from the submission
            if key in values:
                values[key] += said["submit_time"]
        if isinstance(attributes.get("user"), str):
            values["user"] = attributes["user"]
        if kind == "evolving":
            self.notes.add("evolving jobs may also be resized by the policy, not only at their own request")
        work = self._work(said, kind, (low, nodes, high))
        if self.machine is not None:
            values["io_intensity"], values["recorded"] = work.io, work.seconds or None
        job = Job(
            id=str(index),
            kind=cast(Kind, "evolving" if kind == "adaptive" else kind),
            nodes=nodes,
            min_nodes=0 if rigid else low,  # none: those of ``nodes``
            max_nodes=0 if rigid else high,
            walltime=said.get("walltime") or inf,
            submitted=said["submit_time"],
            **values,
        )
        return Arrival(job, work.seconds, application=work.application)

    def _sizes(self, said: dict[str, Any], attributes: dict[str, Any], rigid: bool) -> tuple[int, int, int]:
        """The least, that to start with, and the most."""
        if rigid:
            size = said["num_nodes"]
            return size, size, size
        low, high = said["num_nodes_min"], said["num_nodes_max"]
        if high < low:
            raise InputError("num_nodes_max", f"found {high}", f"num_nodes_min={low} or more")
        for key in ("nodes", "preferred_nodes"):
            if attributes.get(key) is not None:
                with within(f"attributes.{key}"):
                    return low, whole(low, high)(attributes[key]), high
        most = "most" if self.from_most else "fewest"
        self.notes.add(f"jobs of several sizes start on the {most} nodes they can use")
        return low, high if self.from_most else low, high

    def _work(self, said: dict[str, Any], kind: str, sizes: tuple[int, int, int]) -> _WorkOfJob:
        gpus = said.get("num_gpus_per_node", said.get("num_gpus_per_node_max", 0))
        if kind != "rigid" and said.get("num_gpus_per_node_min", 0) != gpus:
            with within("num_gpus_per_node_min"):
                whole(0, gpus)(said.get("num_gpus_per_node_min", 0))
            self.notes.add("jobs with a range of GPUs per node use the most of it")
        given = said.get("arguments", {})
        for name in _GIVEN:
            if name in given:
                raise InputError(f"arguments.{name}", "is given by the job's size", "another name")
        name = said["application_model"]
        path = self.paths.get(name) if isinstance(name, str) else None
        if path is None:
            path = self.paths[name] = _beside(self.path, name, "application_model", self.notes)
        alike = (name, sizes[0] if kind == "rigid" else None, gpus, kind in ("evolving", "adaptive"))
        form = self.forms.get(alike)
        if form is None:
            form = self.forms[alike] = self._form(path, *alike[1:])
        used = _used(given, form.names)
        is_plain = _PLAIN.issuperset(map(type, used.values()))
        key = (alike, sizes, tuple(used.items())) if is_plain else None
        if key is None or (work := self.applications.get(key)) is None:
            work = self._fill(form, path, used, sizes, gpus)
            if key is not None:
                self.applications[key] = work
        return work

    def _form(self, path: Path, nodes: int | None, gpus: int, evolving: bool) -> ApplicationForm:
        """The model, for jobs that are alike in this."""
        if path not in self.models:
            self.models[path] = read_json(path)
        with within(one_line(path.name)):
            return ModelReader(nodes, gpus, evolving, self.machine, self.notes).form(self.models[path])

    def _fill(
        self,
        form: ApplicationForm,
        path: Path,
        used: dict[str, Any],
        sizes: tuple[int, int, int],
        gpus: int,
    ) -> _WorkOfJob:
        names: dict[str, float | Expression] = {}
        for name, value in used.items():
            if type(value) in (float, int) and -_LARGE < value < _LARGE:
                names[name] = float(value)
                continue
            try:
                expression = Expression.parse(value)
            except InputError as error:
                raise error.at(f"arguments.{shown(name)}") from None
            names[name] = expression if expression.number is None else expression.number
        if form.names - names.keys() - {_NODES} or str in map(type, used.values()):
            names |= {"num_gpus_per_node": float(gpus), "num_gpus": _ALL_GPUS}
            for name, size in (("num_nodes_min", sizes[0]), ("num_nodes_max", sizes[-1])):
                names.setdefault(name, float(size))
        try:
            arguments = Arguments(names, _NODES, _ITERATION)
        except InputError as error:
            raise error.at("arguments") from None
        tried = sizes[:1] if sizes[0] == sizes[-1] else tuple(sorted(set(sizes)))
        filling = Filling(arguments, tried, self.notes)
        try:
            application = form.application(filling)
        except InputError as error:
            raise error.at(one_line(path.name)) from None
        if self.machine is None:
            return _WorkOfJob(application, None, 0.0)
        seconds, demand = measured(application, self.machine.platform, sizes[1])
        return _WorkOfJob(application, demand, min(seconds, 1e300))


def _used(given: dict[str, Any], names: frozenset[str]) -> dict[str, Any]:
    """The arguments that formulas with these names use, also by way of other arguments."""
    used = {name: value for name, value in given.items() if name in names or name == _NODES}
    if len(used) < len(names) and names.difference(given, _KNOWN):  # it will be said which there are
        used = {name: value for name, value in given.items() if name in used or type(value) in (int, float)}
    text = [value for value in used.values() if isinstance(value, str)]
    if not text:
        return used
    known = set(used)
    while text:
        with suppress(InputError):  # it is complained about later
            for name in Expression.parse(text.pop()).names.difference(known):
                known.add(name)
                if isinstance(given.get(name), str):
                    text.append(given[name])
    return {name: value for name, value in given.items() if name in known}
