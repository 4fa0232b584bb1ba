"""Processes of tests that are cheap to start: forked from a server that has imported what they need.

They are processes like any other: a signal kills one of them and nobody else, and what it had not written is
lost. Only what each would do first, importing Dask and us for two seconds, is done once for all of them.
"""

import faulthandler
import os
import runpy
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from importlib import import_module
from multiprocessing import forkserver

import dask
from distributed.utils import get_mp_context

_FORKED = {"distributed.worker.multiprocessing-method": "forkserver"}

with dask.config.set(_FORKED):
    #: starts such processes; Dask's nannies use the same one, and would have the server import less
    FORKS = get_mp_context()

FORKS.set_forkserver_preload(
    [
        # not distributed.utils_test, which starts a thread: it would be missing in all of them
        "pytest", "dask.array", "xarray", "zarr", "distributed", "distributed.nanny",
        "distributed.cli.dask_scheduler", "distributed.cli.dask_worker",
        "dask_hpc", "dask_hpc.services", "dask_hpc.checkpoint.client.restore",
        "dask_hpc.checkpoint.scheduler.service", "dask_hpc.checkpoint.worker.agent",
        "dask_hpc.checkpoint.worker.loaders",
    ]
)  # fmt: skip


_BEGAN = dict(os.environ)
_ensure_running = forkserver._forkserver.ensure_running


def _start_as_we_began():
    """What the first test that needs the server set in its environment is not for all that come later."""
    if forkserver._forkserver._forkserver_pid is not None:
        return _ensure_running()
    now = dict(os.environ)
    try:
        _set_environment(_BEGAN)
        return _ensure_running()
    finally:
        _set_environment(now)


def _set_environment(variables):
    os.environ.clear()
    os.environ.update(variables)


forkserver._forkserver.ensure_running = _start_as_we_began

_connect = forkserver._forkserver.connect_to_new_process


def _connect_or_start_again(fds):
    """Once in some hundred runs of all tests the server hears nobody any more: then there is a new one."""
    try:
        return _connect(fds)
    except ConnectionRefusedError as error:
        pid = forkserver._forkserver._forkserver_pid
        print(f"server {pid} of forks: {error}; another one is started", file=sys.stderr)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # so that it is known to be dead
        return _connect(fds)


forkserver.connect_to_new_process = _connect_or_start_again


@contextmanager
def forked_nannies():
    """Nannies that start meanwhile fork their workers, instead of running Python anew for each."""
    with dask.config.set(_FORKED):
        yield


class Fork:
    """What ``python COMMAND`` would be: a script, or ``-m`` and a command of Dask. Used like a ``Popen``."""

    def __init__(self, command, *, env, output=os.devnull, cwd=None) -> None:
        self.args = [str(one) for one in command]
        self._process = FORKS.Process(target=_run, args=(self.args, dict(env), str(output), cwd))
        self._process.start()
        self.pid = self._process.pid

    @property
    def returncode(self):
        """How it ended, minus the signal that killed it; ``None`` as long as it runs."""
        return self._process.exitcode

    def poll(self):
        """The same."""
        return self._process.exitcode

    def wait(self, timeout=None):
        """Until it ends."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self._process.exitcode

    def send_signal(self, number):
        """Unless it has ended."""
        if self._process.exitcode is None:
            os.kill(self.pid, number)

    def kill(self):
        """Without a word."""
        self._process.kill()


def _run(command, env, output, cwd):
    with open(output, "ab") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    faulthandler.enable(2)
    _set_environment(env)
    dask.config.refresh()  # it was read with what the server's environment said
    if cwd is not None:
        os.chdir(cwd)
    what, *arguments = command
    if what == "-m":
        module, *arguments = arguments
        sys.argv = [module, *arguments]
        import_module(module).main(arguments)
    else:
        sys.argv = command
        runpy.run_path(what, run_name="__main__")
