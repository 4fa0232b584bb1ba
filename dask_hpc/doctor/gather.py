"""Finds out about a site. Nothing here judges, nothing is changed, and what hangs is not waited for.

Commands that are missing, fail or take too long are answers as well. All are asked at once, each in a process
of its own: a file system that does not answer stops nobody but the process that looks at it.
"""

import getpass
import json
import os
import platform
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from time import monotonic, sleep, time
from typing import Any

import dask.config
import psutil
from dask.system import CPU_COUNT
from distributed.system import MEMORY_LIMIT
from distributed.utils import get_ip
from packaging.requirements import Requirement

from dask_hpc import config
from dask_hpc.doctor import probe
from dask_hpc.doctor.facts import (
    NOT_ASKED,
    CommandAnswer,
    DirectoryFacts,
    Interface,
    NodeFacts,
    PowerFacts,
    SiteFacts,
)
from dask_hpc.model.errors import InputError, one_line
from dask_hpc.planning.allocation import step_environment
from dask_hpc.power.worker.caps import PackageCaps
from dask_hpc.power.worker.node_meter import ThisNode

_MOUNT = re.compile(r"\S+ \S+ \S+ \S+ (\S+) .*? - (\S+) ")
#: what says that a batch system is there, and its version
_SYSTEMS = {
    "Slurm": ("sinfo", "--version"),
    "PBS": ("pbsnodes", "--version"),
    "LSF": ("bsub", "-V"),
    "SGE": ("qconf", "-help"),
    "HTCondor": ("condor_version",),
    "OAR": ("oarsub", "--version"),
}
_OPTIONAL = ("dask-jobqueue", "bokeh", "jupyter-server-proxy")
_TWO_LOOKS = 0.3  # seconds between looks at counters of energy
_NODES = 30.0  # seconds that all nodes of an allocation may take


def gather(patience: float = 5.0) -> SiteFacts:
    """The facts. ``patience`` is how many seconds each program may take."""
    pool = ThreadPoolExecutor(16, thread_name_prefix="doctor")
    try:
        return _gather(pool, patience)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _gather(pool: ThreadPoolExecutor, patience: float) -> SiteFacts:
    systems = {
        name: pool.submit(run, command, patience)
        for name, command in _SYSTEMS.items()
        if shutil.which(command[0])
    }
    slurm = _slurm_questions() if "Slurm" in systems else {}
    answers = {name: pool.submit(run, command, patience) for name, command in slurm.items()}
    where = _directories()
    tried = {name: pool.submit(_directory, name, path, patience) for name, path in where.items()}
    power = pool.submit(_power)
    address, problem = _address()
    job = os.environ.get("SLURM_JOB_ID", "")
    nodes, seen, nodes_problem = _nodes(where, address) if job else ((), {}, "")
    directories = (replace(one.result(), seen=seen.get(name, {})) for name, one in tried.items())
    requirements, packages = _packages()
    settings, config_problem = _settings()
    return SiteFacts(
        host=socket.gethostname(),
        python=platform.python_version(),
        pythons=_pythons(),
        packages=packages,
        requirements=requirements,
        systems={name: one.result() for name, one in systems.items()},
        slurm_config=answers["config"].result() if answers else NOT_ASKED,
        partitions=answers["partitions"].result() if answers else NOT_ASKED,
        own_limits=answers["limits"].result() if answers else NOT_ASKED,
        job=job,
        nodes=nodes,
        nodes_problem=nodes_problem,
        directories=tuple(directories),
        interfaces=_interfaces(),
        address=address,
        address_problem=problem,
        power=_in_time(power, patience),
        files=_limit(resource.RLIMIT_NOFILE),
        processes=_limit(resource.RLIMIT_NPROC),
        cores=(CPU_COUNT, os.cpu_count() or CPU_COUNT),
        memory=(float(MEMORY_LIMIT), float(psutil.virtual_memory().total)),
        jobqueue=_jobqueue(),
        config_directory=str(dask.config.PATH),
        config_problem=config_problem,
        **settings,
    )


def run(
    command: Sequence[str], patience: float, environment: Mapping[str, str] | None = None
) -> CommandAnswer:
    """What a command prints, or why there is nothing."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=None if environment is None else dict(environment),
            start_new_session=True,
        )
    except OSError as error:
        return CommandAnswer(problem=f"{command[0]}: {error.strerror}")
    try:
        out, complaint = process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):  # one that waits for a dead file system cannot be killed
            process.communicate(timeout=0.5)
        return CommandAnswer(problem=f"{command[0]} did not answer in {patience:g} s")
    if process.returncode:
        last = one_line((complaint.strip().splitlines() or [""])[-1]).removeprefix(f"{command[0]}: ")
        return CommandAnswer(problem=f"{command[0]}: {last or f'exit code {process.returncode}'}")
    return CommandAnswer(out if out.strip() else complaint)


def _slurm_questions() -> dict[str, list[str]]:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    fields = "account,partition,qos,maxjobs,maxsubmitjobs,maxwall"
    return {
        "config": ["scontrol", "show", "config"],
        "partitions": ["sinfo", "-h", "-o", "%P|%l|%D|%a"],
        "limits": ["sacctmgr", "-nP", "show", "assoc", "where", f"user={user}", f"format={fields}"],
    }


# packages and configuration


def _packages() -> tuple[dict[str, str], dict[str, str | None]]:
    """What we need, and what is there."""
    try:
        needs = [Requirement(text) for text in metadata.requires("dask-hpc") or ()]
    except metadata.PackageNotFoundError:
        needs = []
    needs = [one for one in needs if one.marker is None or one.marker.evaluate({"extra": ""})]
    requirements = {one.name: str(one.specifier) for one in needs}
    names = {*requirements, *_OPTIONAL, "dask", "distributed"}
    return requirements, {name: _version(name) for name in sorted(names)}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _pythons() -> tuple[str, ...]:
    """Those that our own metadata names."""
    try:
        told = metadata.metadata("dask-hpc").get_all("Classifier") or ()
    except metadata.PackageNotFoundError:
        return ()
    return tuple(found[1] for one in told if (found := re.search(r"Python :: (\d+\.\d+)", str(one))))


def _settings() -> tuple[dict[str, Any], str]:
    try:
        return {"farewell": config.settings()["farewell"], "store": config.checkpoint()["store"]}, ""
    except InputError as error:
        return {}, str(error)


def _jobqueue() -> dict[str, dict[str, object]]:
    """Without importing dask-jobqueue, which handles Ctrl-C itself from then on."""
    given = dask.config.get("jobqueue", default={})
    if not isinstance(given, Mapping):
        return {}
    return {str(name): dict(one) for name, one in given.items() if isinstance(one, Mapping)}


# directories


def _directories() -> dict[str, str]:
    """Those that matter, each path once."""
    found = {}
    for name, look in (
        ("working directory", os.getcwd),
        ("home", Path.home),
        ("temporary", tempfile.gettempdir),
    ):
        with suppress(OSError, RuntimeError):  # it was removed; nobody knows this user
            found[name] = str(look())
    with suppress(InputError):
        store = config.checkpoint()["store"]
        if store and "://" not in store:
            found["hpc.checkpoint.store"] = store
    local = dask.config.get("temporary-directory", default=None)
    if local:
        found["Dask's temporary"] = str(local)
    names = {path: name for name, path in reversed(found.items())}  # the first name of each path
    return {name: path for name, path in found.items() if names[path] == name}


def _directory(name: str, path: str, patience: float) -> DirectoryFacts:
    kind = file_system(os.path.realpath(path), _mounts())
    answer = run([sys.executable, "-I", probe.__file__, "directory", path], patience)
    if answer.problem:
        return DirectoryFacts(
            name, path, kind, problem=answer.problem.replace(sys.executable, "its file system")
        )
    return DirectoryFacts(name, path, kind, **json.loads(answer.text))


def _mounts() -> str:
    try:
        return Path("/proc/self/mountinfo").read_text(errors="replace")
    except OSError:
        return ""


def file_system(path: str, mounts: str) -> str:
    """The type of the file system that a path is on, by ``/proc/self/mountinfo``."""
    best, kind = "", ""
    for point, found in _MOUNT.findall(mounts):
        point = re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), point)
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, found
    return kind


# the network, and other nodes


def _address() -> tuple[str, str]:
    """The address that Dask would take, and what is wrong with it."""
    try:
        address = get_ip()
        with _clock(address) as port:
            socket.create_connection((address, port), 2.0).close()
    except (OSError, RuntimeError, ValueError) as error:
        return "", getattr(error, "strerror", None) or str(error)
    return address, ""


@contextmanager
def _clock(address: str) -> Iterator[int]:
    """Tells everybody who connects what time it is here. Gives the port."""
    with socket.create_server((address, 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return  # it was closed
                with connection, suppress(OSError):
                    connection.settimeout(2.0)
                    if connection.recv(1):
                        connection.sendall(repr(time()).encode())

        threading.Thread(target=serve, name="doctor-clock", daemon=True).start()
        try:
            yield server.getsockname()[1]
        finally:
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)


def _nodes(
    directories: Mapping[str, str], address: str
) -> tuple[tuple[NodeFacts, ...], dict[str, dict[str, bool]], str]:
    """What the nodes of our own allocation say; which of them see files in which directories."""
    nodes = os.environ.get("SLURM_JOB_NUM_NODES", "1")
    job = os.environ["SLURM_JOB_ID"]
    with _marks(directories) as marks, _clock(address or "127.0.0.1") as port:
        step = [
            "srun",
            f"--jobid={job}",
            f"--nodes={nodes}",
            "--ntasks-per-node=1",
            "--overlap",
            "--mpi=none",
        ]
        look = [
            sys.executable,
            "-I",
            probe.__file__,
            "node",
            address or "127.0.0.1",
            str(port),
            *marks.values(),
        ]
        answer = run([*step, "--mem=0", *look], _NODES, step_environment(os.environ))
    found = []
    seen: dict[str, dict[str, bool]] = {name: {} for name in marks}
    for line in answer.text.splitlines():
        with suppress(ValueError, TypeError, KeyError):
            told = json.loads(line)
            for name, saw in zip(marks, told.pop("seen"), strict=True):
                seen[name][told["name"]] = saw
            found.append(NodeFacts(**told))
    return tuple(sorted(found, key=lambda node: node.name)), seen, answer.problem


@contextmanager
def _marks(directories: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """A file in each directory in which one can be made."""
    marks = {}
    try:
        for name, path in directories.items():
            with suppress(OSError):
                number, marks[name] = tempfile.mkstemp(prefix=".dask-hpc-doctor-", dir=path)
                os.close(number)
        yield marks
    finally:
        for path in marks.values():
            with suppress(OSError):
                os.unlink(path)


def _interfaces() -> tuple[Interface, ...]:
    stats = psutil.net_if_stats()
    return tuple(
        Interface(name, one.address, stats[name].isup if name in stats else False, stats[name].speed)
        for name, addresses in sorted(psutil.net_if_addrs().items())
        for one in addresses
        if one.family == socket.AF_INET and name in stats
    )


# this machine


def _power() -> PowerFacts:
    node = ThisNode()
    try:
        node.sample(monotonic())
        sleep(_TWO_LOOKS)
        _, found = node.sample(monotonic())
    finally:
        node.close()
    fixes = (row.fix for row in found.rows if row.problem and row.fix)
    return PowerFacts(found.source, found.used, found.problem, next(fixes, ""), PackageCaps().why_not())


def _in_time(power: "Future[PowerFacts]", patience: float) -> PowerFacts | None:
    with suppress(Exception):  # a sensor that hangs, or whatever a driver raises
        return power.result(patience)
    return None


def _limit(which: int) -> tuple[int, int]:
    soft, hard = (-1 if one == resource.RLIM_INFINITY else one for one in resource.getrlimit(which))
    return soft, hard
