"""Fixtures of distributed's own tests, its leak checks, the scenarios' report, ``--runslow``, and a note of
what ran (``never_ran.py`` reads it)."""

import gc
import os
import signal
import sys
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from math import isinf
from pathlib import Path
from statistics import median
from threading import Event, Thread
from time import thread_time

os.environ.setdefault("DASK_HPC__HISTORY", "None")  # tests remember nothing of jobs, but where they say so
# Of what goes well Dask writes hundreds of lines a second. Programs that tests start write them.
os.environ["DASK_LOGGING__DISTRIBUTED"] = "warning"

import dask
import pytest
from distributed.utils_test import cleanup, loop, loop_in_thread  # noqa: F401
from hypothesis import given, settings
from hypothesis import strategies as st

del os.environ["DASK_LOGGING__DISTRIBUTED"]

# Older releases of distributed keep the first one out of their wheel.
pytest_plugins = [name for name in ["distributed.pytest_resourceleaks", "scenario_report"] if find_spec(name)]

# The same examples each time, so that a failure is one for everybody; --hypothesis-profile=default looks
# for others. What takes how long is for tests that are marked so.
settings.register_profile("same", derandomize=True, deadline=None, max_examples=50)
settings.register_profile("few", settings.get_profile("same"), max_examples=20)
settings.load_profile("same")


def pytest_addoption(parser):
    parser.addoption("--runslow", action="store_true", help="also run the tests marked slow or timed")


class Ran:
    """Adds to a file which tests ran, and which were left out, why. Beside others that do the same: each line
    is one write."""

    def __init__(self, path):
        self._path = path

    def _note(self, what, report, why=""):
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(f"{what}\t{report.nodeid}\t{' '.join(why.split())}\n")

    def pytest_runtest_logreport(self, report):
        if report.skipped and not hasattr(report, "wasxfail"):
            self._note("skipped", report, report.longrepr[2])
        elif report.when == "call":
            self._note("ran", report)

    def pytest_collectreport(self, report):
        if report.skipped:  # a whole module
            self._note("skipped", report, report.longrepr[2])


def pytest_configure(config):
    if getattr(config.option, "dist", "no") == "load":
        config.option.dist = "loadfile"  # what the tests of a file share is made once
    if getattr(config.option, "numprocesses", None):
        # matrices of processes beside each other that are given threads for all processors each burn several
        # times the time of one thread
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    path = os.environ.get("DASK_HPC_RAN")
    if path and not hasattr(config, "workerinput"):  # of tests that run at once, the one that waits tells
        config.pluginmanager.register(Ran(path))


_NOTEBOOK = "tests/test_notebooks.py::test_a_notebook_runs_within_its_time["
#: what takes longest begins first where tests run beside each other: nobody waits for one file at the end, or
#: for one test where they are handed out one by one
_LONGEST = (
    "tests/test_installed.py",
    *(f"{_NOTEBOOK}{name}]" for name in (
        "4-in-situ", "control-room", "2-malleable-jobs", "5-checkpoint-and-restart", "workloads", "live",
    )),
    "tests/cli/test_demo_in_situ.py", "tests/browser/test_lab_command.py",
    "tests/cli/test_demo_checkpoint.py", "tests/cli/test_demo.py", "tests/browser/test_control_room.py",
    *(f"{_NOTEBOOK}{name}]" for name in (
        "6-on-slurm", "3-power-corridor", "overhead", "neighbours", "bridge", "placement", "memory_files",
        "checkpoint", "calm_neighbours", "forecast", "8-scratch-files", "simulator", "redistribute",
        "elastic",
    )),
    "tests/checkpoint/test_resume.py", "tests/cli/test_run.py",
    "tests/scenarios/test_s01", "tests/planning/test_backtest.py",
    "tests/reproduce/test_colocation_studies.py", "tests/workloads/test_under_change.py",
    "tests/slurm/test_walltime_resume.py", "tests/slurm/test_s06", "tests/slurm/test_slurm_notebook.py",
    "tests/slurm/test_s08", "tests/slurm/test_run_on_slurm.py",
    "tests/test_packaging.py", "tests/virtual", "tests/scenarios/test_nothing_lost",
    "tests/browser", "tests/cli", "tests/checkpoint", "tests/scenarios", "tests/slurm/test_s01",
    "tests/reproduce", "tests/planning",
)  # fmt: skip


def pytest_collection(session):
    """Of processes that run tests beside each other each reads all files, and pytest makes their asserts say
    more: ten seconds for all. Each begins with other files, and finds what others have made of the rest."""
    worker = getattr(session.config, "workerinput", None)
    if worker is None or sys.dont_write_bytecode:
        return
    files = [
        file
        for path in dict.fromkeys(Path(name.partition("::")[0]).absolute() for name in session.config.args)
        for file in (sorted(path.rglob("test_*.py")) if path.is_dir() else [path])
    ]
    for file in files[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
        if str(file.parent) not in sys.path:
            sys.path.insert(0, str(file.parent))
        with suppress(Exception, pytest.skip.Exception):  # whoever collects it says why
            import_module(file.stem)


def _begins(item):
    return next((i for i, name in enumerate(_LONGEST) if item.nodeid.startswith(name)), len(_LONGEST))


def pytest_collection_modifyitems(config, items):
    if config.getoption("--runslow"):
        items.sort(key=_begins)
    reasons = {}
    if not config.getoption("--runslow"):
        reasons["slow"] = "slow: needs --runslow"
        reasons["timed"] = "timed, so alone: needs --runslow"
    if isinf(float(dask.config.get("distributed.scheduler.worker-saturation"))):
        reasons["queue"] = "Dask does not queue root tasks here"
    for item in items:
        for marker, reason in reasons.items():
            if marker in item.keywords:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish():
    """What was imported is no garbage. Dask looks for some after each test of a cluster, which would take a
    third of a second each time."""
    # At its first example Hypothesis warns when it finds nobody who holds its source of random numbers: older
    # ones look only where nothing is frozen.
    given(st.none())(lambda _: None)()
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def programs_hear_ctrl_c():
    """Also those that tests start where a shell has put the tests into the background, as CI does."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def forks_have_imported_us():
    """Where nannies fork their workers, as in CI: from a process that needs no more."""
    if dask.config.get("distributed.worker.multiprocessing-method") == "forkserver":
        import forks  # noqa: F401


@pytest.fixture
def forked_workers(monkeypatch):
    """Workers of programs that this test starts are forked from one process that has imported Dask (a setting
    of Dask's own): each is a process, as ever, but not each imports it again."""
    monkeypatch.setenv("DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD", "forkserver")


@pytest.fixture
def own_heap():
    """For a test that takes times: Python does not search what other tests left behind for garbage."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
    gc.collect()
    gc.freeze()


#: what the yardstick takes where nobody else works, on the machine that bounds in seconds are for
_REFERENCE = 1.05e-3


def _yardstick():
    """Seconds of some work that is always the same."""
    began = thread_time()
    table = {}
    for i in range(4_000):
        table[i % 512, "key"] = [i, float(i), str(i)]
    sorted(table.values(), key=lambda row: row[1])
    return thread_time() - began


def _loosened(yard):
    """By how much a slow machine loosens a bound: a machine slower than that tells nothing."""
    return min(max(yard / _REFERENCE, 1.0), 1.5)


@pytest.fixture
def seconds_of(own_heap):
    """The best of some calls, in time of the processor. Other programs halve the speed of a shared machine
    for minutes: if the best of a yardstick, by turns with the calls, takes longer than it should, they count
    as less, at most as two thirds."""

    def measure(function, times):
        yards, took = [_yardstick()], []
        for _ in range(times):
            began = thread_time()
            function()
            took.append(thread_time() - began)
            yards.append(_yardstick())
        return min(took) / _loosened(min(yards))

    return measure


@pytest.fixture
def slowness():
    """By how much work here took more time of the processor during the test than on a machine that nobody
    else uses (1.5 at most): for bounds on the time of other processes."""
    yards, is_over = [], Event()

    def look():
        while True:
            yards.append(min(_yardstick() for _ in range(5)))  # the first ones wake the processor
            if is_over.wait(1):
                return

    looking = Thread(target=look)
    looking.start()
    yield lambda: _loosened(median(yards))
    is_over.set()
    looking.join()
