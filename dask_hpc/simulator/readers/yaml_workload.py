"""Reading our own workload form: the machine, the jobs, and what they do phase by phase or as a pipeline.

nodes: 4                     # optional: the machine in short; or in full:
platform:
  nodes: 500
  speed: 100 Gflop/s           # per node
  link: 100 Gbit/s             # per node
  file_system: 48 GB/s         # for all together; at most a stream for each node, such as:
  stream: 4 GB/s               # as latency limits it
  writing: 30 GB/s             # if it has a bandwidth of its own
  decide: event                # on each one, not once for all that happens at an instant
  crowding: {knee: 40, decline: 1, reads: 8}    # under more than 40 nodes it gets slower
  resize: {fixed: 2 s, per_process: 0.1 s, bandwidth: 10 GB/s}    # or published, or by direction and size:
  #  {expand: {2: 0.11 s, 16: 1.29 s}, shrink: {2: 0.05 s, 16: 2.25 s}}
  agents: {agent: 1 GB/s, operation: 20 us, change: 2.5 s}    # of checkpoints, if the policy has some
  failures: {mtbf: 1 week, repair: 1 h, checkpoint: 30 min, seed: 3}
  idle_power: 71 W
  active_power: 250 W
  site: {supply: 96 %, switches: 60 kW, pue: 1.1}    # what is lost, and drawn beside the nodes
  topology: {preset: xc30, cabinets: 6}    # what joins nodes, or {tree: PARTS, bandwidths: {rack: 40 GB/s}}
  copies: 200 GB               # that a node keeps which is there for copies alone
  power: {ramp: 10 s, noise: 3 %, seed: 1, corridor: {lower: 30 kW, upper: 90 kW},    # {}: only record
    forecast: online, horizon: 5 min}    # or none, or oracle: who foretells power
jobs:
  - {id: a, submit: 0s, nodes: 2, runtime: 10 min, walltime: 15 min}
  - {id: b, nodes: 2, kind: malleable, min_nodes: 1, max_nodes: 4, runtime: 1 h,
     speedup: {power_law: 0.9}, data: 4 GiB}    # what its user declares, and is true unless
  - {id: f, nodes: 8, kind: malleable, min_nodes: 1, runtime: 1 h,    # this says what is: no policy is told
     scaling: [{share: 75 %, power_law: 0.95}, {share: 25 %, power_law: 0.6}]}    # or one law, as above
  - {id: t, nodes: 8, runtime: 1 h, traffic: 2 GB/s, messages: 40 %}    # of each node, and the share for it
  - {id: r, nodes: 2, runtime: 10 min, recorded: 9 min}          # what runs before took, if a policy may know
  - {id: v, nodes: 2, runtime: 3 h, walltime: 2 h, overstays: true,    # not killed; memory is per node
     value: 3, soft_deadline: 4 h, deadline: 6 h, memory: 32 GB, messages: 20 %}
  - {id: c, nodes: 1, kind: evolving, max_nodes: 4, runtime: 1 h, requests: {50 %: 4}}
  - {id: d, nodes: 2, runtime: 1 d, checkpoint: {bytes: 4 GB, every: auto, levels: [partner, store]}}
  - {id: g, nodes: 2, runtime: 1 d, power: [150 W, 350 W], swing: {season: 10 min, noise: 5 %, seed: 3}}
  - {id: e, nodes: 4, kind: evolving, max_nodes: 8, arguments: {size: 40 GB},
     on_start: [{read: size / nodes}], phases: [
      {iterations: 100, compute: 20 Tflop / nodes, write: size / nodes},   # one task of each kind, in order
      {request: 8, tasks: [{compute: 1 Tflop}, {write: 1 GB, root_only: true}, {compute: 1 Tflop}]}]}

Instead of nodes and their powers, ``machine: frontier`` (or another of ``machines``) takes those of a real
one; where nodes differ, ``power: {types: [{count: 8, idle: 71 W, active: 250 W}, ...]}``. Where nodes come
from a batch system and go again, ``units: {nodes: 4, wait: 10 min, walltime: 1 d, minimum: 0, maximum: 100,
interval: 30 s}``. Amounts in phases are numbers, quantities or formulas in the job's arguments.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from dask_hpc.model.errors import InputError, insist, is_number, shown, within
from dask_hpc.model.job import Job
from dask_hpc.model.power import Corridor, PowerRange
from dask_hpc.model.safe_yaml import check_keys, nearest, read_yaml
from dask_hpc.model.speedup import Amdahl, Interpolated, Linear, PhasedSpeedup, PowerLaw, Speedup, Tabulated
from dask_hpc.model.units import UNITS, parse_duration, parse_quantity
from dask_hpc.planning.in_situ.plan import read_analysis, read_simulation
from dask_hpc.planning.topology_file import topology_from
from dask_hpc.simulator.application import (
    MOST_ITERATIONS,
    TASK_KINDS,
    Amount,
    Application,
    Arguments,
    Fixed,
    Phase,
    Task,
    io_demand,
    quiet_runtime,
    sent_bytes,
)
from dask_hpc.simulator.expression import Expression
from dask_hpc.simulator.in_situ import Drift, Pipeline
from dask_hpc.simulator.platform import (
    RESIZE_COSTS,
    Costs,
    Crowding,
    Failures,
    Metering,
    NodeType,
    Platform,
    PowerSite,
    ResizeCost,
    Units,
    platform_of,
)
from dask_hpc.simulator.swing import Swing
from dask_hpc.simulator.values import (
    Readers,
    as_it_is,
    flag,
    list_of,
    number,
    read_file,
    read_values,
    share,
    text,
    whole,
)
from dask_hpc.simulator.workload import Arrival, DeclaredCheckpoint, Workload

_OPERATIONS: Mapping[str, float] = {
    prefix + word: scale
    for word in ("flop", "op")
    for prefix, scale in (("", 1.0), ("k", 1e3), ("m", 1e6), ("g", 1e9), ("t", 1e12), ("p", 1e15))
}
_RATE = re.compile(r"(.*?[0-9.])\s*([A-Za-z]+)\s*(?:/\s*s|ps)", re.ASCII)


def _rate(value: Any, unit: str) -> float:
    """Bytes (``unit`` "B") or operations ("op") per second: ``"12.5 GB/s"``, ``"100 Gbit/s"``, a number."""
    if not isinstance(value, str) or value.strip().lower() in ("inf", "infinity", "unlimited"):
        return parse_quantity(value, "B")
    match = _RATE.fullmatch(value.strip())
    if match:
        word = match[2].lower()
        with suppress(InputError, ValueError):
            if unit == "op" and word in _OPERATIONS:
                return float(match[1]) * _OPERATIONS[word]
            if unit == "B" and word.endswith("bit"):
                return parse_quantity(f"{match[1]} {word[:-3]}B", "B") / 8.0
            if unit == "B":
                return parse_quantity(f"{match[1]} {word}", "B")
    example = '"100 Gflop/s"' if unit == "op" else '"12.5 GB/s" or "100 Gbit/s"'
    raise InputError("", f"found {shown(value)}", f"a number per second such as {example}")


_size, _count = whole(1), whole(0, 2**63 - 1)
_bytes, _watts = partial(parse_quantity, unit="B"), partial(parse_quantity, unit="W")
_bytes_per_second, _operations_per_second = partial(_rate, unit="B"), partial(_rate, unit="op")


def _failure(found: Any) -> tuple[float, int]:
    """``[1 h, 3]``: when which node (counted from 0) fails."""
    insist(isinstance(found, list) and len(found) == 2, "", found, "[time, node]")
    time, node = parse_duration(found[0]), _count(found[1])
    insist(0 <= time < inf, "", found[0], "0 s or more")
    return time, node


def _node_type(found: Any) -> NodeType:
    return NodeType(**read_values(found, _TYPE, needed=_TYPE))


_TYPE: Readers = {"count": _count, "idle": _watts, "active": _watts}
_SITE: Readers = {"supply": share, "switches": _watts, "pue": number}
_PLATFORM: Readers = {
    "nodes": _count,
    "speed": _operations_per_second,
    "link": _bytes_per_second,
    "file_system": _bytes_per_second,
    "stream": _bytes_per_second,
    "writing": _bytes_per_second,
    "decide": as_it_is,
    "idle_power": _watts,
    "active_power": _watts,
    "tick": parse_duration,
    "only_ticks": flag,
    "groups": list_of(_size, "a list of sizes, such as [64, 16]"),
    "launch": parse_duration,
    "cleanup": parse_duration,
    "copies": _bytes,
    "topology": lambda found: topology_from(found).topology,
}


def _two_points(found: Any) -> tuple[tuple[int, float], ...]:
    return tuple(_points(found, parse_duration).items())


_RESIZE: Readers = {
    "fixed": parse_duration,
    "per_process": parse_duration,
    "bandwidth": _bytes_per_second,
    "expand": _two_points,
    "shrink": _two_points,
}


def _resize(found: Any) -> ResizeCost:
    """What a resize costs: a name, or a mapping."""
    if isinstance(found, str):
        if found not in RESIZE_COSTS:
            words = f"found {shown(found)}{nearest(found, RESIZE_COSTS)}"
            raise InputError("resize", words, f"{', '.join(RESIZE_COSTS)}, or a mapping")
        return RESIZE_COSTS[found]
    values = read_values(found, _RESIZE, "resize")
    with within("resize"):
        return ResizeCost(**values)


_AGENTS: Readers = {
    "agent": _bytes_per_second,
    "copy": _bytes_per_second,
    "message": parse_duration,
    "operation": parse_duration,
    "registering": number,
    "change": parse_duration,
    "launch": parse_duration,
    "per_agent": parse_duration,
    "connect": parse_duration,
}
_CROWDING: Readers = {"knee": _count, "decline": number, "reads": _count}
_UNITS_OF_NODES: Readers = {
    "nodes": _count,
    "wait": parse_duration,
    "walltime": parse_duration,
    "minimum": _count,
    "maximum": _count,
    "interval": parse_duration,
}
_FAILURES: Readers = {
    "mtbf": parse_duration,
    "shape": number,
    "repair": parse_duration,
    "checkpoint": parse_duration,
    "trace": list_of(_failure, "a list of [time, node]", most=1_000_000),
    "seed": _count,
    "survive": flag,
}
_POWER: Readers = {
    "ramp": parse_duration,
    "noise": share,
    "seed": _count,
    "types": list_of(_node_type, "1 to 1,000 types of {count, idle, active}", 1, 1000),
    "corridor": Corridor.read,
    "forecast": as_it_is,
    "horizon": parse_duration,
    "models": list_of(text, "a list of names"),
}
_SWING: Readers = {
    "season": parse_duration,
    "reach": share,
    "offset": share,
    "noise": share,
    "step": parse_duration,
    "seed": _count,
    "phases": flag,
}


def _swing(found: Any) -> Swing:
    return Swing(**read_values(found, _SWING))


def read_site(found: Any, where: str = "site") -> PowerSite:
    """From a mapping of ``supply``, ``switches`` and ``pue``."""
    with within(where):
        return PowerSite(**read_values(found, _SITE))


def read_platform(found: Any) -> Platform:
    """From a mapping; complaints name the key."""
    also = ("resize", "agents", "failures", "power", "machine", "crowding", "units", "site")
    values = read_values(found, _PLATFORM, also=also)
    if found.get("machine") is not None:
        known = platform_of(found["machine"])
        powers = {"idle_power": known.idle_power, "active_power": known.active_power}
        values = {"nodes": known.nodes, **powers, **values}
    if "topology" in values:
        values.setdefault("nodes", len(values["topology"].nodes))
    if "nodes" not in values:
        raise InputError("nodes", "is missing")
    if found.get("resize") is not None:
        values["resize"] = _resize(found["resize"])
    if found.get("agents") is not None:
        costs = read_values(found["agents"], _AGENTS, "agents")
        with within("agents"):
            values["agents"] = Costs(**{"registering": 1.0, **costs})
    if found.get("site") is not None:
        values["site"] = read_site(found["site"])
    if found.get("crowding") is not None:
        crowding = read_values(found["crowding"], _CROWDING, "crowding", needed=("knee",))
        with within("crowding"):
            values["crowding"] = Crowding(**crowding)
    if found.get("units") is not None:
        units = read_values(found["units"], _UNITS_OF_NODES, "units")
        with within("units"):
            values["units"] = Units(**units)
    if found.get("failures") is not None:
        values["failures"] = Failures(**read_values(found["failures"], _FAILURES, "failures"))
    if found.get("power") is not None:
        values["metering"] = Metering(**read_values(found["power"], _POWER, "power"))
    platform = Platform(**values)
    for time, node in platform.failures.trace if platform.failures else ():
        if node >= platform.nodes:
            allowed = f"0 to {platform.nodes - 1}"
            raise InputError("failures.trace", f"node {node} fails at {time:g} s", allowed)
    return platform


_UNITS: Mapping[str, Mapping[str, float]] = {
    "compute": _OPERATIONS,
    "communicate": UNITS["B"],
    "read": UNITS["B"],
    "write": UNITS["B"],
    "idle": UNITS["s"],
}
_ANY_UNIT: Mapping[str, float] = {**UNITS["s"], **UNITS["B"], **_OPERATIONS}
_ONCE = ("on_start", "on_resize", "on_expansion")
#: keys of a job that together make an application
_APPLICATION = ("arguments", "phases", *_ONCE)
_PHASE = ("iterations", "scheduling_point", "request", "tasks", *TASK_KINDS)


def _arguments(found: Any) -> Arguments:
    """Named numbers and formulas; units of any kind may be used in them."""
    insist(isinstance(found, dict), "arguments", found, "a mapping of names to numbers or formulas")
    expressions = {}
    for name, value in found.items():
        if not isinstance(name, str) or not name.isidentifier() or not name.isascii():
            raise InputError("arguments", f"found the name {shown(name)}", "letters, digits and _")
        with within(f"arguments.{name}"):
            expressions[name] = Expression.parse(value, _ANY_UNIT)
    with within("arguments"):
        return Arguments(expressions, "nodes")


def _check_request(request: Amount, sizes: tuple[int, ...], machine: int | None) -> None:
    """A job that asks on its start size for more than the machine has asks in vain. When it has grown, its
    wish is cut to its range."""
    for size in sizes:
        wanted = request(size)
        most = machine if machine and size == sizes[0] else 2**31
        if not 1 <= wanted <= most:
            allowed = f"1 to {machine}, the nodes of the machine" if machine else "1 or more"
            raise InputError("", f"found {wanted:g} nodes (asked for on {size})", allowed)


@dataclasses.dataclass(frozen=True, slots=True)
class _Phases:
    """What the phases of one job are read with. Amounts are tried on ``sizes``, the start size first."""

    arguments: Arguments
    sizes: tuple[int, ...]
    machine: int | None

    def application(self, found: Mapping[str, Any]) -> Application:
        """From a job's keys."""
        phases = found.get("phases")
        if not isinstance(phases, list) or not phases:
            raise InputError("phases", f"found {shown(phases)}", "a list of phases")
        once = {key: self._tasks(found[key], key) for key in _ONCE if key in found}
        return Application(tuple(self._phase(one, f"phases[{at}]") for at, one in enumerate(phases)), **once)

    def _phase(self, found: Any, where: str) -> Phase:
        check_keys(found, _PHASE, where)
        short = [key for key in found if key in TASK_KINDS]
        if ("tasks" in found) == bool(short):
            raise InputError(where, "found " + ", ".join(found), f"tasks, or else {', '.join(TASK_KINDS)}")
        if short:
            tasks = tuple(self._task({key: found[key]}, where) for key in short)
        else:
            tasks = self._tasks(found["tasks"], f"{where}.tasks")
        with within(f"{where}.iterations"):
            iterations = found.get("iterations", 1)
            count = self.arguments.bind(Expression.parse(iterations), sizes=False)(1)
            if not (1 <= count <= MOST_ITERATIONS and count == int(count)):
                allowed = f"a whole number, 1 to {MOST_ITERATIONS:,}"
                raise InputError("", f"found {shown(iterations)}", allowed)
        with within(f"{where}.scheduling_point"):
            point = flag(found.get("scheduling_point", True))
        request = None
        if "request" in found:
            with within(f"{where}.request"):
                request = self.arguments.amount(found["request"], self.sizes)
                _check_request(request, self.sizes, self.machine)
        return Phase(tasks, int(count), point, request)

    def _tasks(self, found: Any, where: str) -> tuple[Task, ...]:
        insist(isinstance(found, list) and len(found) > 0, where, found, "a list of tasks")
        return tuple(self._task(one, f"{where}[{at}]") for at, one in enumerate(found))

    def _task(self, found: Any, where: str) -> Task:
        check_keys(found, (*TASK_KINDS, "root_only"), where)
        kinds = [kind for kind in TASK_KINDS if kind in found]
        if len(kinds) != 1:
            raise InputError(where, f"found {shown(list(found))}", f"one of {', '.join(TASK_KINDS)}")
        with within(f"{where}.root_only"):
            root = flag(found.get("root_only", False))
        with within(f"{where}.{kinds[0]}"):
            amount = self.arguments.amount(found[kinds[0]], self.sizes, _UNITS[kinds[0]])
        return Task(kinds[0], amount, root)


_DRIFT: Readers = {"part": as_it_is, "start": as_it_is, "times": number, "over": as_it_is}
_PIPELINE: Readers = {
    "iterations": as_it_is,
    "cores": as_it_is,
    "memory": _bytes,
    "bandwidth": partial(parse_quantity, unit="B/s"),
    "jitter": number,
    "seed": as_it_is,
    "change_cost": parse_duration,
}
_MOST_ANALYSES = 1000


def _pipeline(found: Any) -> Pipeline:
    needed = ("iterations", "cores", "simulation", "analyses")
    values = read_values(found, _PIPELINE, needed=needed, also=("simulation", "analyses", "drift"))
    analyses, drifts = found["analyses"], found.get("drift", [])
    fits = isinstance(analyses, list) and len(analyses) <= _MOST_ANALYSES
    insist(fits, "analyses", analyses, "a list of {name: NAME, time: T}")
    insist(isinstance(drifts, list), "drift", drifts, "a list of {part: NAME, start: I, times: K}")
    values["drifts"] = tuple(
        Drift(**read_values(one, _DRIFT, f"drift[{at}]", needed=("part", "start", "times")))
        for at, one in enumerate(drifts)
    )
    values["analyses"] = tuple(read_analysis(one, number) for number, one in enumerate(analyses, 1))
    return Pipeline(simulation=read_simulation(found["simulation"]), **values)


_MOST_POINTS = 100_000


def _points(value: Any, read: Callable[[Any], float]) -> dict[int, float]:
    """``{1: 100 s, 4: 30 s}``: of sizes, in their order."""
    fits = isinstance(value, dict) and 0 < len(value) <= _MOST_POINTS
    insist(fits, "", value, "a mapping of nodes to numbers")
    insist(all(type(size) is int for size in value), "", value, "whole numbers of nodes")
    return {size: read(value[size]) for size in sorted(value)}


def from_runtimes(runtimes: Mapping[int, float]) -> Interpolated:
    """An interpolated model from seconds measured at some sizes (which must include 1)."""
    if 1 not in runtimes:
        raise InputError("runtimes", f"found sizes {shown(sorted(runtimes))}", "a table with size 1")
    for size, seconds in runtimes.items():
        fine = is_number(seconds, 0, inf) and 0 < seconds < inf
        insist(fine, f"runtime on {shown(size)} nodes", seconds, "more than 0 s")
    return Interpolated(tuple((n, runtimes[1] / runtimes[n]) for n in sorted(runtimes)))


_SPEEDUPS: Readers = {
    "linear": lambda value: Linear(),
    "amdahl": lambda value: Amdahl(number(value)),
    "power_law": lambda value: PowerLaw(number(value)),
    "tabulated": lambda value: Tabulated(tuple(_points(value, number).items())),
    "interpolated": lambda value: Interpolated(tuple(_points(value, number).items())),
    "runtimes": lambda value: from_runtimes(_points(value, parse_duration)),
}


def _speedup(value: Any) -> Speedup:
    """``linear``, or a mapping of one model's name to its parameter, or a list of such, each with a share."""
    if isinstance(value, list):
        return PhasedSpeedup(_laws(value))
    if value == "linear":
        return Linear()
    fits = isinstance(value, dict) and len(value) == 1
    insist(fits, "", value, f"one of {', '.join(_SPEEDUPS)}, such as power_law: 0.8")
    ((name, parameter),) = value.items()
    if name == "linear" or name not in _SPEEDUPS:
        raise InputError(shown(name), f"unknown speed-up{nearest(name, _SPEEDUPS)}", ", ".join(_SPEEDUPS))
    with within(name):
        speedup: Speedup = _SPEEDUPS[name](parameter)
    return speedup


def _law(found: Any) -> tuple[float, Speedup]:
    """``{share: 25 %, power_law: 0.6}``"""
    fits = isinstance(found, dict) and "share" in found
    insist(fits, "", found, "a share and a speed-up, such as {share: 25 %, power_law: 0.6}")
    with within("share"):
        part = share(found["share"])
    laws = {key: value for key, value in found.items() if key != "share"}
    return part, _speedup("linear" if laws.keys() == {"linear"} else laws)


_laws = list_of(_law, "1 to 10,000 laws, each with its share", 1, 10_000)


def _requests(value: Any) -> tuple[tuple[float, int], ...]:
    """``{30 %: 8, 0.8: 2}``: at which share of its work it asks for how many nodes."""
    fits = isinstance(value, dict) and len(value) <= _MOST_POINTS
    insist(fits, "", value, "a mapping of shares of the work to nodes")
    requests = []
    for key, nodes in value.items():
        with within(shown(key)):
            done = share(key)
            if not 0 <= done <= 1:
                raise InputError("", "is no share of the work", "0 to 1, or 0 % to 100 %")
            requests.append((done, _size(nodes)))
    return tuple(sorted(requests))


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
    "soft_deadline": parse_duration,
    "user": text,
    "recorded": parse_duration,
    "memory": _bytes,
    "messages": share,
    "traffic": _bytes_per_second,
    "speedup": _speedup,
}
#: what only the simulator knows of a job
_TRUTHS: Readers = {
    "runtime": parse_duration,
    "data": _bytes,
    "cancelled": parse_duration,
    "scaling": _speedup,
    "requests": _requests,
    "checkpoint": DeclaredCheckpoint.read,
    "swing": _swing,
    "overstays": flag,
}
_PARTS = ("io_intensity", "pipeline", *_APPLICATION)


#: totals of the whole run
_TOTALS: Readers = {
    "compute": lambda value: Expression.parse(value, _OPERATIONS).at({}),
    "data": lambda value: Expression.parse(value, UNITS["B"]).at({}),
}


def _job(found: Any, index: int, machine: int | None, platform: Platform | None) -> Arrival:
    """From a mapping; complaints name the key. ``machine`` is its nodes, if that is known."""
    values = read_values(found, {**_JOB, **_TRUTHS}, needed=["nodes"], also=_PARTS)
    truth = {key: values.pop(key) for key in _TRUTHS if key in values}
    if not any(found.get(key) is not None for key in ("runtime", "phases", "pipeline")):
        raise InputError("runtime", "is missing")
    values.setdefault("id", str(index + 1))
    values["submitted"] = values.pop("submit", 0.0)
    insist(0 <= values["submitted"] < inf, "submit", found.get("submit"), "0 s or more")
    for key in ("deadline", "soft_deadline"):  # counted from the submission
        if key in values:
            values[key] += values["submitted"]
    if "io_intensity" in found:
        with within("io_intensity"):
            totals = {"compute": 0.0, "data": 0.0, **read_values(found["io_intensity"], _TOTALS)}
            values["io_intensity"] = (platform or Platform(1)).io_demand(**totals)
    job = Job(**values)
    _check(job, truth, found, machine)
    scaling = truth.pop("scaling", job.speedup)
    if scaling is not None:
        truth["speedup"] = scaling
    if "pipeline" in found:
        with within("pipeline"):
            pipeline = truth["application"] = _pipeline(found["pipeline"])
        truth.setdefault("runtime", pipeline.quiet_runtime(job.nodes, platform or Platform(job.nodes)))
    elif any(key in found for key in _APPLICATION):
        sizes = tuple(dict.fromkeys((job.nodes, job.min_nodes, job.max_nodes)))
        phases = _Phases(_arguments(found.get("arguments", {})), sizes, machine)
        application = truth["application"] = phases.application(found)
        if platform is not None:
            quiet = min(quiet_runtime(application, platform, job.nodes), 1e300)
            truth.setdefault("runtime", quiet)
            if job.recorded is None and quiet:
                job = dataclasses.replace(job, recorded=quiet)
            if job.io_intensity is None:
                job = dataclasses.replace(job, io_intensity=io_demand(application, platform, job.nodes))
            if job.traffic is None and platform.topology is not None and quiet:
                sent = sent_bytes(application, job.nodes)
                job = dataclasses.replace(job, traffic=sent / quiet if sent < inf else None)
    return Arrival(job, **{"runtime": 0.0, **truth})


def _check(job: Job, truth: Mapping[str, Any], found: Mapping[str, Any], machine: int | None) -> None:
    insist(0 <= truth.get("data", 0.0) < inf, "data", found.get("data"), "0 B or more")
    is_later = truth.get("cancelled", inf) >= job.submitted
    insist(is_later, "cancelled", found.get("cancelled"), "not before it is submitted")
    others = [key for key in ("runtime", "checkpoint", "scaling", *_APPLICATION) if key in found]
    if "pipeline" in found and others:
        raise InputError(others[0], "the job has a pipeline", "either of them")
    if "scaling" in found and any(key in found for key in _APPLICATION):
        raise InputError("scaling", "the job has phases", "either of them")
    phases = found["phases"] if isinstance(found.get("phases"), list) else ()
    asks = "requests" in found or any(isinstance(phase, dict) and "request" in phase for phase in phases)
    if asks and job.kind != "evolving":
        raise InputError("kind", f"a {job.kind} job asks for nodes", "evolving")
    if "phases" in found and "requests" in found:
        raise InputError("requests", "the job has phases", "request in a phase")
    for done, nodes in truth.get("requests", ()):
        with within(f"requests: {done:g}"):
            _check_request(Fixed(nodes), (job.nodes,), machine)


_LIMIT = 20_000_000  # bytes


def read_yaml_workload(path: Path) -> Workload:
    """A whole file. Complaints name the file, the job and the key."""
    with within(str(path)):
        return _workload(read_yaml(read_file(path, _LIMIT), _LIMIT), path.name)


def _workload(found: Any, name: str) -> Workload:
    values = read_values(found, {"nodes": _size, "platform": as_it_is, "jobs": as_it_is})
    nodes, platform, jobs = values.get("nodes"), values.get("platform"), values.get("jobs", ())
    if platform is not None:
        with within("platform"):
            if isinstance(platform, dict) and nodes is not None:
                if platform.get("nodes", nodes) != nodes:
                    inside = f"found {shown(platform['nodes'])} here and {nodes} outside"
                    raise InputError("nodes", inside, "one size")
                platform = {**platform, "nodes": nodes}
            platform = read_platform(platform)
        nodes = platform.nodes
    insist(isinstance(jobs, list) and len(jobs) > 0, "jobs", found.get("jobs"), "a list of jobs")
    arrivals: dict[str, Arrival] = {}
    for index, one in enumerate(jobs):
        with within(f"jobs[{index}]"):
            arrival = _job(one, index, nodes, platform)
            if arrival.job.id in arrivals:
                raise InputError("id", f"{shown(arrival.job.id)} is there twice")
        arrivals[arrival.job.id] = arrival
    return Workload(name, tuple(arrivals.values()), nodes, platform=platform)
