"""What the facts about a machine mean: pure functions from facts to findings. Of batch systems: ``batch``."""

import re
from collections.abc import Iterator

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from dask_hpc.doctor.facts import DirectoryFacts, Finding, SiteFacts, State
from dask_hpc.model.units import counted, show_bytes, show_duration

#: types of file systems that nodes share, and those that are a machine's own
_SHARED = re.compile(
    r"nfs|lustre|gpfs|beegfs|ceph|panfs|wekafs|pvfs|orangefs|afs|cifs|smb|ocfs|gfs2|fuse\.(sshfs|gluster)"
)
_OWN = re.compile(r"ext[234]|xfs|btrfs|zfs|tmpfs|ramfs|overlay|squashfs|f2fs|jfs|reiserfs")
_SKEW = 1.0  # seconds between clocks that walltimes and stories still bear
_FILES = 4096  # open files: a scheduler has a few for each worker and client
_PROCESSES = 1024
_FAST = re.compile(r"ib\d|ibp|ibs|hsn|opa")
_NONE = re.compile(r"lo$|docker|veth|virbr|br-|cni|flannel|tun|tap|ifb|dummy")


def judge_python(facts: SiteFacts) -> Iterator[Finding]:
    """Python and packages against what we claim."""
    words = f"Python {facts.python}"
    minor = ".".join(facts.python.split(".")[:2])
    if facts.pythons and minor not in facts.pythons:
        yield Finding("python", "unknown", words, f"tested are {', '.join(facts.pythons)}")
    else:
        yield Finding("python", "ok", words)
    wrong = []
    for name, needs in facts.requirements.items():
        version = facts.packages.get(name)
        if version is None or not _fits(version, needs):
            wrong.append(f"{name}{needs}")
            found = f"{name} {version}" if version else f"no {name}"
            yield Finding("packages", "lacking", found, f'pip install "{name}{needs}"')
    dask, distributed = facts.packages.get("dask"), facts.packages.get("distributed")
    if dask != distributed:
        found = f"dask {dask} with distributed {distributed}"
        yield Finding("packages", "lacking", found, "install the same version of both")
    elif not wrong:
        yield Finding("packages", "ok", f"dask and distributed {dask}, and all else that we need")
    for node in facts.nodes:
        if node.python and node.python.split(".")[:2] != facts.python.split(".")[:2]:
            advice = "the same environment everywhere: Dask sends objects that others cannot read"
            yield Finding("python", "lacking", f"{node.name} has Python {node.python}", advice)
    if facts.config_problem:
        yield Finding("configuration", "lacking", facts.config_problem, "mend it: nothing is managed with it")


def _fits(version: str, needs: str) -> bool:
    try:
        return SpecifierSet(needs).contains(Version(version), prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return True


def judge_directories(facts: SiteFacts) -> Iterator[Finding]:
    """Which directories nodes share, and whether files there can be relied on."""
    for one in facts.directories:
        yield _directory(one, facts.is_alone)
    if facts.store is None:
        advice = "set hpc.checkpoint.store to a directory that all nodes share, for checkpoints that last"
        yield Finding("directories", "lacking", "no store for checkpoints is configured", advice)


def _directory(one: DirectoryFacts, is_alone: bool) -> Finding:
    area, where = "directories", f"{one.name} {one.path}"
    where += f" ({one.kind})" if one.kind else ""
    if one.problem:
        return Finding(area, "lacking", f"{where}: {one.problem}", "choose another one")
    blind = sorted(node for node, saw in one.seen.items() if not saw)
    if blind:
        advice = "keep checkpoints, histories and the Python environment elsewhere"
        return Finding(area, "lacking", f"{where}: not seen by {', '.join(blind)}", advice)
    if one.rename:
        advice = "no store and no history there: what is written would not be whole or nothing"
        return Finding(area, "lacking", f"{where}: files cannot take another's place: {one.rename}", advice)
    if one.lock:
        advice = "ask for a mount with locks (Lustre: -o flock), or keep histories elsewhere"
        return Finding(area, "lacking", f"{where}: no locks: {one.lock}", advice)
    works = "locks and atomic renames work"
    if one.seen:
        return Finding(area, "ok", f"{where}: all {counted(len(one.seen), 'node')} see it; {works}")
    if _SHARED.match(one.kind):
        return Finding(area, "ok", f"{where}: of a kind that nodes share; {works}")
    if is_alone or _OWN.match(one.kind):
        is_fine = is_alone or one.name == "temporary"
        advice = "" if is_fine else "if jobs run on other nodes: a shared directory instead"
        state: State = "ok" if is_fine else "unknown"
        return Finding(area, state, f"{where}: this machine's own; {works}", advice)
    advice = "run dask-hpc doctor inside of a job on two nodes: it looks from both"
    return Finding(area, "unknown", f"{where}: {works}; whether nodes share it is not known", advice)


def judge_clocks(facts: SiteFacts) -> Iterator[Finding]:
    """How far clocks of nodes differ."""
    known = [node for node in facts.nodes if node.ahead is not None]
    if facts.is_alone:
        return
    if not known:
        advice = "run it inside of a job of several nodes"
        why = facts.nodes_problem or "clocks of other nodes were not looked at"
        yield Finding("clocks", "unknown", why, advice)
        return
    worst = max(known, key=lambda node: abs(node.ahead or 0.0))
    skew = abs(worst.ahead or 0.0)
    which = "ahead" if (worst.ahead or 0.0) > 0 else "behind"
    found = f"{worst.name} is {show_duration(skew)} {which} (+- {show_duration(worst.within)})"
    if skew - worst.within > _SKEW:
        advice = "have the administrators look at NTP: walltimes and stories are off by that"
        yield Finding("clocks", "lacking", found, advice)
    else:
        words = f"{counted(len(known), 'node')} agree within {show_duration(max(skew, worst.within))}"
        yield Finding("clocks", "ok", words)


def judge_network(facts: SiteFacts) -> Iterator[Finding]:
    """Whether workers can connect, and through which interface."""
    area = "network"
    if facts.address_problem:
        found = f"{facts.address or 'our own address'} cannot be reached from here: {facts.address_problem}"
        yield Finding(area, "lacking", found, "pass interface=..., see below")
    deaf = {node.name: node.problem for node in facts.nodes if node.problem}
    if deaf:
        told = "; ".join(f"{name}: {why}" for name, why in deaf.items())
        advice = "pass interface=... of a network that compute nodes share; ask which ports are open"
        yield Finding(area, "lacking", f"nodes cannot connect to {facts.address}: {told}", advice)
    elif facts.nodes:
        found = f"{counted(len(facts.nodes), 'node')} can connect to {facts.address}"
        yield Finding(area, "ok", found)
    elif facts.is_alone and facts.address:
        yield Finding(area, "ok", f"{facts.address} is ours, and answers here")
    elif not facts.address_problem:
        found = f"{facts.address} is ours, and answers here; of other nodes nothing is known"
        yield Finding(area, "unknown", found, "run it inside of a job of several nodes")
    useful = [one for one in facts.interfaces if one.is_up and not _NONE.match(one.name)]
    useful.sort(key=lambda one: (not _FAST.match(one.name), -one.speed, one.name))
    if not useful:
        found = "only this machine can connect: no network interface is up"
        yield Finding(area, "lacking", found, "nothing to do for a cluster on this machine")
        return
    told = ", ".join(
        f"{one.name} {one.address}" + (f" {one.speed / 1000:g} Gbit/s" if one.speed else "") for one in useful
    )
    best = useful[0]
    if len(useful) == 1 or best.address == facts.address:
        yield Finding(area, "ok", f"interfaces: {told}", "" if len(useful) == 1 else "Dask takes the first")
    else:
        yield Finding(
            area, "ok", f"interfaces: {told}", f'pass interface="{best.name}": it seems the fastest'
        )


def judge_power(facts: SiteFacts) -> Iterator[Finding]:
    """What is known of power."""
    power = facts.power
    if power is None:
        yield Finding("power", "unknown", "sensors did not answer in time", "dask-hpc power")
        return
    if power.source == "modelled":  # and then there is nothing to be capped either
        found = f"power can only be modelled: {power.problem}"
        yield Finding("power", "lacking", found, power.fix or "calibrate hpc.power-model; dask-hpc power")
        return
    yield Finding("power", "ok", f"power is {power.source} by {', '.join(power.used)}", "dask-hpc power")
    if power.cap:
        yield Finding("power", "lacking", f"packages cannot be capped: {power.cap}", "levers are nodes alone")


def judge_limits(facts: SiteFacts) -> Iterator[Finding]:
    """What a process may use of this machine (affinity, cgroups), and its limits."""
    (cores, all_cores), (memory, whole) = facts.cores, facts.memory
    words = f"{cores} of {all_cores} cores, {show_bytes(memory)} of {show_bytes(whole)} of memory"
    less = cores < all_cores or memory < 0.99 * whole
    yield Finding("limits", "ok", words, "Dask's workers here keep within that" if less else "")
    for area, found, least, option in (
        ("open files", facts.files, _FILES, "-n"),
        ("processes", facts.processes, _PROCESSES, "-u"),
    ):
        if found is None:
            yield Finding("limits", "unknown", f"{area}: nobody says", "")
            continue
        soft, hard = found
        words = f"{area}: {'any number' if soft < 0 else f'{soft:,}'}"
        if 0 <= soft < least:
            can = hard < 0 or hard >= least
            advice = f"ulimit {option} {least if hard < 0 else max(hard, 1)} in job-script-prologue"
            yield Finding("limits", "lacking", words, advice if can else "ask the administrators for more")
        else:
            yield Finding("limits", "ok", words)


def judge_dashboard(facts: SiteFacts) -> Iterator[Finding]:
    """Whether the dashboard can be seen."""
    area = "dashboard"
    if facts.packages.get("bokeh") is None:
        yield Finding(area, "lacking", "Dask's dashboard is not there", 'pip install "dask-hpc[dashboard]"')
        return
    if facts.packages.get("jupyter-server-proxy"):
        link = "set distributed.dashboard.link to {JUPYTERHUB_SERVICE_PREFIX}/proxy/{port}/status"
        yield Finding(area, "ok", "bokeh, and jupyter-server-proxy for those who come by JupyterHub", link)
    else:
        advice = f"ssh -L 8787:{facts.host or 'NODE'}:8787, or pip install jupyter-server-proxy"
        yield Finding(area, "ok", "bokeh; no jupyter-server-proxy", advice)
