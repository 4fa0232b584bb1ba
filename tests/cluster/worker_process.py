"""Workers as they run on a real machine: processes of their own, started by ``dask worker``."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import psutil
from distributed import LocalCluster
from forks import Fork


@contextmanager
def empty_cluster(**options):
    """A scheduler that processes can connect to, in this process."""
    with LocalCluster(
        n_workers=0, processes=False, dashboard_address=":0", protocol="tcp", host="127.0.0.1", **options
    ) as cluster:
        yield cluster


@contextmanager
def worker_process(cluster, name, *options, preload="", env=None, fork=False):
    """One ``dask worker`` of one thread; whatever happens, no process is left. Forked it is cheap, and the
    same but for what Python does at its exit."""
    command = [
        "-m", "distributed.cli.dask_worker", cluster.scheduler_address,
        "--name", name, "--nthreads", "1", "--no-dashboard", *options,
    ]  # fmt: skip
    if preload:
        command += ["--preload", preload]
    usual = {
        "PYTHONPATH": os.pathsep.join(sys.path),  # it has to find the functions of the tests
        "DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD": "spawn",  # what is signalled are its processes
    }
    env = os.environ | usual | (env or {})
    if fork:
        process = Fork(command, env=env)
    else:
        null = subprocess.DEVNULL
        process = subprocess.Popen([sys.executable, *command], env=env, stdout=null, stderr=null)
    try:
        yield process
    finally:
        for one in family(process):
            one.kill()
        process.wait(10)


def family(process):
    """The process and its children, if it still runs."""
    try:
        found = psutil.Process(process.pid)
        return [found, *found.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def terminate(process, everybody=False, by=signal.SIGTERM):
    """A signal, to the command alone or as a batch system does, to all its processes."""
    for one in family(process) if everybody else family(process)[:1]:
        one.send_signal(by)
