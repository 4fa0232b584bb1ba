"""What the facts about batch systems mean: pure functions from facts to findings."""

import re
from collections.abc import Iterator, Mapping

from dask_hpc.doctor.facts import Finding, SiteFacts
from dask_hpc.doctor.judge import (
    judge_clocks,
    judge_dashboard,
    judge_directories,
    judge_limits,
    judge_network,
    judge_power,
    judge_python,
)
from dask_hpc.model.errors import InputError
from dask_hpc.model.units import counted, parse_duration, show_duration
from dask_hpc.planning.allocation import why_no_growth

_LINE = re.compile(r"^(\w+)[ \t]*=[ \t]*(.*?)[ \t]*$", re.MULTILINE)
_SECONDS = re.compile(r"(\d+)\s*sec")
_MOST_PARTITIONS = 8  # that are told
#: the class of dask-jobqueue, and the key of its configuration
_CLUSTERS = {
    "Slurm": ("SLURMCluster", "slurm"),
    "PBS": ("PBSCluster", "pbs"),
    "LSF": ("LSFCluster", "lsf"),
    "SGE": ("SGECluster", "sge"),
    "HTCondor": ("HTCondorCluster", "htcondor"),
    "OAR": ("OARCluster", "oar"),
}


def judge(facts: SiteFacts) -> list[Finding]:
    """All findings, in the order in which people ask."""
    judges = (
        judge_python, judge_systems, judge_slurm, judge_jobqueue, judge_directories, judge_network,
        judge_clocks, judge_limits, judge_power, judge_dashboard,
    )  # fmt: skip
    return [finding for one in judges for finding in one(facts)]


def judge_systems(facts: SiteFacts) -> Iterator[Finding]:
    """Which batch systems are there."""
    area = "batch system"
    for name, answer in facts.systems.items():
        version = (answer.text.strip().splitlines() or [""])[0]
        if answer.problem:
            yield Finding(
                area, "unknown", f"{name}: {answer.problem}", "is it up, and may you use it from here?"
            )
        else:
            yield Finding(area, "ok", f"{name}: {version}" if version else name)
    if not facts.systems:
        advice = "run it where jobs are submitted, or inside of one; on this machine alone all works without"
        yield Finding(area, "lacking", "found none", advice)
    if facts.job:
        yield Finding(
            area, "ok", f"this runs inside of job {facts.job}", "dask_hpc.AllocationCluster() uses it"
        )


def read_config(text: str) -> dict[str, str]:
    """What ``scontrol show config`` prints, by key in small letters."""
    return {key.lower(): value for key, value in _LINE.findall(text)}


def judge_slurm(facts: SiteFacts) -> Iterator[Finding]:
    """What Slurm's configuration means for us."""
    if "Slurm" not in facts.answering:
        return
    if facts.slurm_config.problem:
        yield Finding(
            "slurm", "unknown", f"its configuration: {facts.slurm_config.problem}", "ask again later"
        )
    else:
        config = read_config(facts.slurm_config.text)
        yield from _ends(config, facts.farewell)
        yield from _expansion(facts.slurm_config.text)
        yield from _preemption(config)
        kind = config.get("accountingstoragetype", "")
        if kind.endswith(("none", "(null)")) or not kind:
            advice = "walltimes can be learnt from our own history only"
            yield Finding("slurm", "lacking", "no accounting: sacct knows no past jobs", advice)
        else:
            yield Finding(
                "slurm", "ok", f"accounting by {kind.rpartition('/')[2]}", "dask-hpc learn --sacct 90d"
            )
    yield from _partitions(facts)
    yield from _own_limits(facts)


def _ends(config: Mapping[str, str], farewell: float) -> Iterator[Finding]:
    kind = config.get("proctracktype", "").rpartition("/")[2]
    if kind == "cgroup":
        advice = "malleable() lets that be the worker; without it: SLURMCluster(python='exec python')"
        found = "cgroups: scancel and walltimes tell a batch job's first process alone"
        yield Finding("slurm", "ok", found, advice)
    elif kind == "pgid":
        found = "process groups: all processes of a job are told its end"
        yield Finding("slurm", "ok", found, "what leaves its process group outlives the job")
    elif kind:
        yield Finding("slurm", "ok", f"{kind}: all processes of a job are told its end", "")
    wait = _SECONDS.match(config.get("killwait", ""))
    if wait is None:
        yield Finding("slurm", "unknown", "KillWait: nobody says", "")
        return
    seconds = float(wait[1])
    found = f"KillWait: {show_duration(seconds)} between SIGTERM and SIGKILL"
    if seconds < farewell:
        advice = f"hpc.farewell is {show_duration(farewell)}: a worker hands over what it can in less"
        yield Finding("slurm", "lacking", found, advice)
    else:
        yield Finding("slurm", "ok", found)


def _expansion(text: str) -> Iterator[Finding]:
    if why := why_no_growth(text):
        found = f"jobs cannot grow in place: {why}"
        yield Finding("slurm", "lacking", found, "AllocationCluster.expand submits satellites instead")
    else:
        yield Finding("slurm", "ok", "jobs may grow in place", "AllocationCluster.expand does it")


def _preemption(config: Mapping[str, str]) -> Iterator[Finding]:
    kind, mode = config.get("preempttype", ""), config.get("preemptmode", "OFF")
    if kind.endswith("none") or not kind or mode == "OFF":
        yield Finding("slurm", "ok", "no job is preempted")
        return
    words = "preempt_send_user_signal" in config.get("slurmctldparameters", "")
    found = f"jobs may be preempted ({mode.lower()})"
    if "CANCEL" in mode or "REQUEUE" in mode:
        advice = "" if words else "they hear of it only at the end of their GraceTime"
        yield Finding("slurm", "ok", found, advice)
    else:
        yield Finding("slurm", "lacking", found, "a suspended worker is away: Dask takes it for dead")


def _partitions(facts: SiteFacts) -> Iterator[Finding]:
    answer = facts.partitions
    rows = [row for line in answer.text.splitlines() if len(row := line.strip().split("|")) == 4]
    if answer.problem or not rows:
        yield Finding("slurm", "unknown", f"partitions: {answer.problem or 'none are told'}", "sinfo")
        return
    up = [row for row in rows if row[3].startswith("up")]
    told = [f"{name} up to {_limit(most)}, {nodes} nodes" for name, most, nodes, _ in up[:_MOST_PARTITIONS]]
    more = f"; {len(up) - _MOST_PARTITIONS} more" if len(up) > _MOST_PARTITIONS else ""
    if up:
        yield Finding("slurm", "ok", f"partitions: {'; '.join(told)}{more}")
    else:
        yield Finding("slurm", "lacking", f"{counted(len(rows), 'partition')}, none of which is up", "sinfo")


def _limit(text: str) -> str:
    try:
        return show_duration(parse_duration(text))
    except InputError:
        return "any time" if text.lower() in ("infinite", "unlimited") else text


def _own_limits(facts: SiteFacts) -> Iterator[Finding]:
    answer = facts.own_limits
    if answer.problem:
        found = f"your own limits: {answer.problem}"
        yield Finding("slurm", "unknown", found, "sacctmgr show assoc; sacctmgr show qos")
        return
    rows = [row for line in answer.text.splitlines() if len(row := line.strip().split("|")) == 6]
    for account, partition, qos, jobs, submit, wall in rows[:_MOST_PARTITIONS]:
        limits = [
            f"{word} {value}"
            for word, value in (("jobs", jobs), ("submitted", submit), ("walltime", wall))
            if value
        ]
        where = account + (f" in {partition}" if partition else "") + (f" ({qos})" if qos else "")
        advice = f"keep maximum_jobs below {submit or jobs}" if submit or jobs else ""
        found = f"your account {where}: {', '.join(limits) or 'no limits of its own'}"
        yield Finding("slurm", "ok", found, advice)
    if not rows:
        yield Finding("slurm", "unknown", "your own limits: none are told", "sacctmgr show assoc")


def judge_jobqueue(facts: SiteFacts) -> Iterator[Finding]:
    """Whether a cluster object of dask-jobqueue knows what to ask for."""
    area = "dask-jobqueue"
    systems = [name for name in facts.answering if name in _CLUSTERS]
    if not systems:
        return
    if facts.packages.get("dask-jobqueue") is None:
        yield Finding(area, "lacking", "not installed", 'pip install "dask-hpc[slurm]"')
        return
    for name in systems:
        cluster, key = _CLUSTERS[name]
        given = facts.jobqueue.get(key, {})
        missing = [word for word in ("cores", "memory") if not given.get(word)]
        path = f"{facts.config_directory or '~/.config/dask'}/jobqueue.yaml"
        if missing:
            found = f"no {' and no '.join(missing)} under jobqueue.{key}"
            yield Finding(area, "lacking", found, f"write them into {path}, or give them to {cluster}(...)")
        else:
            words = [
                f"{word} {given[word]}"
                for word in ("cores", "memory", "walltime", "queue")
                if given.get(word)
            ]
            yield Finding(area, "ok", f"{cluster}: {', '.join(words)}")
        if not missing and not given.get("interface") and len(facts.interfaces) > 2:
            yield Finding(area, "unknown", f"no interface under jobqueue.{key}", "see network, below")
