"""S4: ten results on one worker, and SIGTERM, as at a walltime, a pre-emption or ``scancel``."""

import signal
import time
from pathlib import Path

import pytest
from distributed import Client, wait
from worker_process import empty_cluster, terminate, worker_process

import dask_hpc


def effect(i, log):
    with open(log, "a") as file:
        file.write(f"{i}\n")
    return i


def recomputed(loop, log, *options, ours, everybody=False, by=signal.SIGTERM):
    """How many of ten results the worker held when it got the signal, and how many were computed again."""
    with (
        empty_cluster(loop=loop) as cluster,
        Client(cluster) as c,
        worker_process(cluster, "a", *options) as a,
        worker_process(cluster, "b", "--no-nanny", fork=True),
    ):
        manager = dask_hpc.manage(c) if ours else None
        c.wait_for_workers(2)
        futures = [
            c.submit(effect, i, log, workers=["a"], allow_other_workers=True, pure=False) for i in range(10)
        ]
        wait(futures)
        # b may have stolen some before they ran
        held = c.run_on_scheduler(
            lambda dask_scheduler: len(dask_scheduler.workers[dask_scheduler.aliases["a"]].has_what)
        )
        terminate(a, everybody, by)
        assert a.wait(15) is not None
        while len(c.nthreads()) > 1:
            time.sleep(0.01)  # the scheduler has not noticed yet
        wait(futures)
        assert c.gather(futures) == list(range(10))
        if manager:
            assert [r for r in manager.story() if r["decision"] == "error"] == []
            manager.close()
    return held, len(Path(log).read_text().splitlines()) - 10


def check(loop, tmp_path, report, options, everybody, by=signal.SIGTERM):
    held, lost = recomputed(loop, tmp_path / "plain", *options, ours=False, everybody=everybody, by=by)
    _, ours = recomputed(loop, tmp_path / "ours", *options, ours=True, everybody=everybody, by=by)
    to = "all processes" if everybody else "the command"
    report.add("S4", f"results lost, {by.name} to {to}, {options[0]}", plain=lost, ours=ours, bound="0")
    assert lost == held > 0
    assert ours == 0


def test_results_survive_sigterm_without_a_nanny(loop, tmp_path, report):
    check(loop, tmp_path, report, ("--no-nanny",), False)


@pytest.mark.slow
@pytest.mark.parametrize("options, everybody", [(("--nanny",), False), (("--nanny",), True)])
def test_results_survive_sigterm_under_a_nanny(loop, tmp_path, report, options, everybody):
    check(loop, tmp_path, report, options, everybody)


@pytest.mark.slow
@pytest.mark.parametrize(
    "by, options, everybody",
    [
        (signal.SIGUSR1, ("--no-nanny",), False),
        (signal.SIGUSR2, ("--nanny",), False),
        (signal.SIGXCPU, ("--nanny",), True),
    ],
)
def test_results_survive_a_notice_of_preemption(loop, tmp_path, report, by, options, everybody):
    check(loop, tmp_path, report, options, everybody, by)
