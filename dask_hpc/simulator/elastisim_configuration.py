"""ElastiSim's configuration file: where the rest is, and when its scheduler was called."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dask_hpc.model.errors import InputError, one_line, shown
from dask_hpc.simulator.elastisim_platform import ElastisimPlatform, load_platform
from dask_hpc.simulator.safe_json import beside, flag, need, number

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
    notes: dict[str, None]


def read_configuration(found: Any, path: Path) -> Configuration:
    """Complaints name the file and the key."""
    notes: dict[str, None] = {}
    try:
        need(found, CONFIGURATION_KEYS, ("jobs_file", "platform_file"), "")
        flags = {key: flag(found.get(key), key, default) for key, default in _FLAGS.items()}
        seconds = {key: number(found.get(key) or 0, key, 0, 1e12) for key in _SECONDS}
        links = [_names(found.get(key), key) for key in ("pfs_read_links", "pfs_write_links")]
        jobs = beside(path, found["jobs_file"], "jobs_file")
        machine = beside(path, found["platform_file"], "platform_file")
    except InputError as error:
        raise error.at(one_line(str(path))) from None
    if flags["allow_oversubscription"]:
        notes["nodes are never shared by jobs: allow_oversubscription is left out"] = None
    if not flags["clip_evolving_requests"]:
        notes["requests of evolving jobs are always cut to their range"] = None
    for key in ("min_scheduling_interval", "job_kill_grace_period"):
        if seconds[key]:
            notes[f"{key} is left out"] = None
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
