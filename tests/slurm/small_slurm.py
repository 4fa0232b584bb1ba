"""A real Slurm on this machine: one slurmctld, and four slurmd (or as many as one asks for) that it takes for
the nodes n1 to n4.

Made from Debian's packages, in a directory of its own: its own munged with its own key, free ports, no
systemd. Several can run at once, also beside a Slurm or a munged of the machine.

How Slurm 22.05.8 ends the batch job of a Dask worker (measured with dask-jobqueue 0.9.0, distributed
2026.8.0 and a worker plugin whose teardown never ends; ``test_signals.py`` holds what can be held here):

- ``scancel JOB`` and the walltime's end are the same: SIGTERM at once, SIGKILL after ``KillWait`` (30 s
  unless the site says otherwise). Who gets the SIGTERM is up to the site's ``ProctrackType``:
- with cgroups, as on nearly every real site, only the *first process of the job*, which is the shell that
  runs the job script. The shell of dask-jobqueue's script dies of it, with that the job is over, and Slurm
  kills worker and nanny in the same moment: no farewell is possible. A ``trap`` in the shell does not help:
  the shell lives, but Python is not told, and all are killed after ``KillWait``.
- With ``exec python -m distributed.cli.dask_worker`` in the script (``SLURMCluster(python="exec python")``)
  that first process is the nanny. It closes its worker, plugins' ``teardown`` included, and kills it after
  8 s (ours makes it wait longer). Without a nanny the worker closes, and has all of ``KillWait``.
  ``client/batch_jobs`` writes it.
- with process groups or linuxproc *every* process of the job gets SIGTERM in the same moment. A worker
  under a nanny has no handler for it and dies at once, whatever its nanny wants. With a handler it lives,
  and its nanny closes it as above.
- ``scancel --batch --signal=TERM JOB`` reaches only the first process, with every ``ProctrackType``, and
  nobody is killed: this is how a test here gets what cgroups do. So does ``#SBATCH --signal=B:TERM@90``, 90 s
  before the walltime; without ``B:`` it is sent to job steps only, which dask-jobqueue's jobs do not have.
- A job that is preempted (by partition ``urgent`` here) is told nothing when its ``GraceTime`` begins, as it
  has no steps. Its end moves, which ``squeue -o %e`` shows (not ``%L``, nor ``SLURM_JOB_END_TIME``):
  so it can be told from the end of a walltime. Some seconds after its grace time it is put back into the
  queue, with SIGTERM and ``KillWait`` as above.
- A job that is put back is COMPLETING for a second or so, then PENDING for BeginTime, and is to start in two
  minutes (``cred_expire``), as ``StartTime`` says; ``scontrol update StartTime=now`` lets it start at once.
  ``RestartCnt`` counts it. ``scontrol requeuehold`` gives the reason "job requeued in held state".
- A node that fails or is set down: Slurm puts its batch jobs back into the queue (``JobRequeue=1``, the
  default), with the same id and the same worker name.

This Slurm uses linuxproc, as cgroups cannot be had everywhere. What linuxproc loses sight of is killed by an
epilog, so that, as with cgroups, the end of the job's first process is the end of all.
"""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

PACKAGES = "munge slurmctld slurmd slurm-client"
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "sinfo", "srun")
NODES = ("n1", "n2", "n3", "n4")
_PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))


def require_slurm() -> None:
    """Skip the test where no Slurm can be started; but where everything must be there (CI) it fails."""
    reason = why_not()
    if reason and os.environ.get("CI"):
        pytest.fail(f"CI is set, but Slurm cannot be started: {reason}")
    if reason:
        pytest.skip(reason)


def why_not() -> str | None:
    """Why no Slurm can be started here; None if it can."""
    missing = [program for program in PROGRAMS if shutil.which(program, path=_PATH) is None]
    if missing:
        return f"no {', '.join(missing)} here (Debian: apt-get install {PACKAGES})"
    if os.geteuid() != 0:
        return "slurmd must be started by root"
    return None


class SmallSlurm:
    """Nodes of three cores each. A context manager: whatever happens inside, no process stays behind."""

    def __init__(self, directory: Path, nodes: int = len(NODES)) -> None:
        self.nodes = tuple(f"n{number + 1}" for number in range(nodes))
        self.directory = directory
        self.conf = directory / "slurm.conf"
        self.environment = {**os.environ, "PATH": _PATH, "SLURM_CONF": str(self.conf)}
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "SmallSlurm":
        try:
            self._write_files()
            self._start_daemons()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop()

    # what a test asks and does

    def run(self, *command: object, timeout: float = 60) -> str:
        """What a command of Slurm prints. Raises with its complaint if it fails."""
        done = subprocess.run(
            [str(word) for word in command],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.returncode}")
        return done.stdout

    def jobs(self, **wanted: str) -> dict[str, str]:
        """State of each batch job that is not over, by id; ``name=`` or ``nodelist=`` choose among them."""
        options = [f"--{option}={value}" for option, value in wanted.items()]
        lines = self.run("squeue", "-h", "-o", "%i %T", *options).splitlines()
        return dict(line.split() for line in lines)

    def ask(self, job: str, field: str) -> str:
        """One field of ``scontrol show job``; also of a job that was over a few minutes ago."""
        fields = self.run("scontrol", "show", "job", job).split()
        return next(word.partition("=")[2] for word in fields if word.startswith(f"{field}="))

    def end_soon(self, job: str) -> None:
        """Its walltime ends now. Slurm looks every 30 s, and then does as ``scancel`` does."""
        self.run("scontrol", "update", f"JobId={job}", "EndTime=now+1")

    def node_states(self) -> dict[str, str]:
        """What ``sinfo`` says of each node."""
        return dict(line.split() for line in self.run("sinfo", "-h", "-N", "-o", "%N %T").splitlines())

    def set_down(self, node: str) -> None:
        """An operator declares a node dead: its jobs end, or are queued again if they may."""
        self.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")

    def set_up(self, node: str) -> None:
        """The node is back in service."""
        if not self.node_states()[node].startswith(("idle", "alloc", "mix", "comp", "plan")):
            self.run("scontrol", "update", f"NodeName={node}", "State=RESUME")

    def crash(self, node: str) -> None:
        """The node loses power: its slurmd and all processes of its jobs are killed."""
        daemon = self._daemons.pop(node)
        daemon.kill()
        daemon.wait()
        self._kill(f"SLURMD_NODENAME={node}")

    def restart_controller(self) -> None:
        """The control daemon goes away, and comes back with what it has saved. Jobs run on meanwhile."""
        daemon = self._daemons.pop("slurmctld")
        daemon.terminate()
        daemon.wait()
        self._start_daemon("slurmctld", "slurmctld", "-D", "-f", str(self.conf))
        _wait(self._answers, "slurmctld")

    def _answers(self) -> bool:
        with suppress(RuntimeError):
            return bool(self.node_states())
        return False

    def boot(self, node: str) -> None:
        """Its slurmd starts again."""
        self._start_daemon(node, "slurmd", "-D", "-N", node, "-f", str(self.conf))

    def wait_until(self, holds, what: str, timeout: float = 60):
        """Poll; what ``holds`` returned. Slurm has no events to wait for."""
        deadline = time.monotonic() + timeout
        while not (found := holds()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: not within {timeout} s; queue {self.jobs()}")
            time.sleep(0.1)
        return found

    def wait_until_empty(self, timeout: float = 60) -> None:
        """Until no batch job is left."""
        self.wait_until(lambda: not self.jobs(), "an empty queue", timeout)

    def clear(self) -> None:
        """As after the start: no jobs, all nodes idle."""
        for node in self.nodes:
            if node not in self._daemons:
                self.boot(node)
        self._cancel_all()
        self.wait_until_empty()
        for node in self.nodes:
            self.set_up(node)
        self._wait_until_idle()

    def _cancel_all(self) -> None:
        """The test is over: no farewells."""
        for job in self.jobs():
            with suppress(RuntimeError):  # over meanwhile
                self.run("scancel", job)
            self._kill(f"SLURM_JOB_ID={job}")

    # daemons

    def _write_files(self) -> None:
        key = self.directory / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        host = socket.gethostname().partition(".")[0]
        ports = _free_ports(1 + len(self.nodes))
        nodes = "".join(
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=3 RealMemory=2000\n"
            for node, port in zip(self.nodes, ports[1:], strict=True)
        )
        self.conf.write_text(
            _CONF.format(host=host, port=ports[0], directory=self.directory, nodes=nodes), encoding="utf-8"
        )
        epilog = self.directory / "epilog"
        epilog.write_text(_EPILOG, encoding="utf-8")
        epilog.chmod(0o700)
        (self.directory / "state").mkdir()

    def _start_daemons(self) -> None:
        self._start_daemon(
            "munged",
            "munged",
            "--foreground",
            "--force",
            *(
                f"--{file}={self.directory / name}"
                for file, name in (
                    ("key-file", "munge.key"),
                    ("socket", "munge.socket"),
                    ("pid-file", "munged.pid"),
                    ("log-file", "munged.log"),
                    ("seed-file", "munged.seed"),
                )
            ),
        )
        _wait((self.directory / "munge.socket").exists, "munged")
        self._start_daemon("slurmctld", "slurmctld", "-D", "-f", str(self.conf))
        for node in self.nodes:
            self.boot(node)
        self._wait_until_idle()

    def _start_daemon(self, name: str, *command: str) -> None:
        # However the test process ends: the kernel tells the daemon.
        command = ("setpriv", "--pdeathsig", "TERM", *command)
        with open(self.directory / f"{name}.out", "ab") as out:
            self._daemons[name] = subprocess.Popen(
                command,
                # the second one marks what a slurmd starts, as Slurm itself marks what a job starts
                env={**self.environment, "SLURMD_NODENAME": name},
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )

    def _wait_until_idle(self) -> None:
        def all_idle() -> bool:
            for name, daemon in self._daemons.items():
                if daemon.poll() is not None:
                    said = (self.directory / f"{name}.out").read_text(errors="replace")
                    raise RuntimeError(f"{name} ended with {daemon.returncode}: {said[-2000:]}")
            with suppress(RuntimeError):  # slurmctld does not listen yet
                return self.node_states() == dict.fromkeys(self.nodes, "idle")
            return False

        _wait(all_idle, f"{len(self.nodes)} idle nodes")

    def _stop(self) -> None:
        with suppress(Exception):
            self._cancel_all()
            self.wait_until_empty(20)
        for name in reversed(self._daemons):
            self._daemons[name].terminate()
        for daemon in self._daemons.values():
            with suppress(subprocess.TimeoutExpired):
                daemon.wait(10)
            daemon.kill()
            daemon.wait()
        self._daemons.clear()
        self._kill(f"SLURM_CONF={self.conf}")

    def processes(self, mark: str) -> list[int]:
        """All processes of our daemons and of their jobs that have this word in their environment."""
        found = []
        for directory in Path("/proc").iterdir():
            if directory.name.isdecimal() and int(directory.name) != os.getpid():
                with suppress(OSError):
                    words = (directory / "environ").read_bytes().split(b"\0")
                    if f"SLURM_CONF={self.conf}".encode() in words and mark.encode() in words:
                        found.append(int(directory.name))
        return found

    def _kill(self, mark: str) -> None:
        while found := self.processes(mark):
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _wait(holds, what: str, timeout: float = 60) -> None:
    deadline = time.monotonic() + timeout
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not there after {timeout} s")
        time.sleep(0.05)


def _free_ports(count: int) -> list[int]:
    """Below the range from which the kernel gives ports to whoever asks for any."""
    found: list[int] = []
    while len(found) < count:
        port = 10_000 + secrets.randbelow(22_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
    return found


_CONF = """\
ClusterName=small
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket
CredType=cred/munge
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool-%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd-%n.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
Epilog={directory}/epilog
TaskPlugin=task/none
MpiDefault=none
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=1
KillWait=30
SlurmdTimeout=60
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
{nodes}PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=10
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=2 PreemptMode=OFF
"""

_EPILOG = """\
#!/bin/sh
# Kills what is left of a job on this node (but not this script, which is marked like it).
for file in $(grep -lsxz "SLURM_JOB_ID=$SLURM_JOB_ID" /proc/[0-9]*/environ); do
    grep -qsxz "SLURM_CONF=$SLURM_CONF" "$file" || continue
    grep -qsxz "SLURMD_NODENAME=$SLURMD_NODENAME" "$file" || continue
    pid=${file#/proc/}
    pid=${pid%/environ}
    [ "$pid" = $$ ] || kill -KILL "$pid"
done
exit 0
"""
