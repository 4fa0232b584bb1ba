"""The worker's half: it works without dask_hpc, hears SIGTERM in time, and knows when it ends."""

import asyncio
import os
import signal
import time

import pytest
from distributed import Client, Worker, wait
from distributed.utils_test import async_poll_for, gen_cluster, inc
from small_cluster import plugin_of
from worker_process import empty_cluster, family, terminate, worker_process

import dask_hpc
from dask_hpc.cluster.worker import farewell as worker_plugin


def poll(until, seconds=10):
    deadline = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


def decisions_of(manager, kind):
    return [row["reason"] for row in manager.story() if row["decision"] == kind]


@pytest.mark.slow
def test_a_nanny_goes_on_when_only_its_worker_was_told_to_go(loop):
    """As in plain Dask, a worker process that somebody terminates is started again."""
    with (
        empty_cluster(loop=loop) as cluster,
        Client(cluster) as c,
        dask_hpc.manage(c) as m,
        worker_process(cluster, "a", "--nanny") as a,
        worker_process(cluster, "b", "--no-nanny", fork=True),
    ):
        c.wait_for_workers(2)
        child = c.submit(os.getpid, workers=["a"], pure=False).result()
        futures = c.map(inc, range(10), workers=["a"], pure=False)
        wait(futures)
        next(one for one in family(a) if one.pid == child).send_signal(signal.SIGTERM)
        poll(lambda: decisions_of(m, "farewell"))
        assert " results handed over (100 %" in decisions_of(m, "farewell")[0]
        assert c.gather(futures) == list(range(1, 11))
        c.wait_for_workers(2)
        assert c.submit(os.getpid, workers=["a"], pure=False).result() != child


@pytest.mark.slow
def test_without_our_plugin_sigterm_is_as_it_was(loop):
    """Removed with the management: the old handler is back."""
    with (
        empty_cluster(loop=loop) as cluster,
        Client(cluster) as c,
        worker_process(cluster, "a", "--no-nanny") as a,
    ):
        handler = lambda: repr(signal.getsignal(signal.SIGTERM))  # noqa: E731
        c.wait_for_workers(1)
        before = c.run(handler)
        with dask_hpc.manage(c):
            poll(lambda: "FarewellPlugin" in str(c.run(handler)))
        assert c.run(handler) == before
        terminate(a)
        assert a.wait(10) == 0


@gen_cluster(client=True, nthreads=[])
async def test_a_lifetime_is_known(c, s):
    async with (
        await dask_hpc.manage(c),
        Worker(s.address, nthreads=1, lifetime="1h") as a,
        Worker(s.address, nthreads=1) as b,
    ):
        ends = plugin_of(s).walltime.ends_at
        await async_poll_for(lambda: a.address in ends, 10)
        left = ends[a.address] - asyncio.get_running_loop().time()
        assert 3590 < left <= 3600
        assert b.address not in ends


@pytest.mark.parametrize(
    "answer, known",
    [
        ("JobId=7 EndTime={end} Deadline=N/A", True),
        ("JobId=7 EndTime=Unknown", False),
        ("slurm_load_jobs error: Invalid job id specified", False),
    ],
)
def test_slurm_is_asked(tmp_path, monkeypatch, answer, known):
    end = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + 600))
    command = tmp_path / "scontrol"
    command.write_text(f"#!/bin/sh\n[ \"$*\" = 'show job -o 7' ] && echo '{answer.format(end=end)}'\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.delenv("SLURM_JOB_END_TIME", raising=False)
    found = worker_plugin.end_of_slurm_job()
    assert (found is not None) == known
    assert not known or 590 < found - time.time() <= 600


@gen_cluster(client=True, nthreads=[])
async def test_slurm_that_kills_sooner_is_respected_and_that_is_said_before(c, s, tmp_path, monkeypatch):
    command = tmp_path / "scontrol"
    command.write_text(
        "#!/bin/sh\n[ \"$*\" = 'show config' ] && printf 'KillOnBadExit = 0\\nKillWait  = 5 sec\\n'\n"
    )
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    async with await dask_hpc.manage(c), Worker(s.address, nthreads=1) as a:
        story = plugin_of(s).story
        await async_poll_for(lambda: any("KillWait" in h.reason for h in story.happenings), 10)
        assert a.plugins[worker_plugin.NAME]._seconds == 5.0
        assert [h.reason for h in story.happenings if h.decision == "warning"] == [
            f"worker {a.address}: Slurm kills it 5 s after SIGTERM (KillWait), and hpc.farewell is 25 s: "
            "it hands over what it can by then"
        ]


def test_slurm_says_it_in_the_environment(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 60))
    assert 58 < worker_plugin.end_of_slurm_job() - time.time() <= 60


def test_no_slurm(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_END_TIME", raising=False)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert worker_plugin.end_of_slurm_job() is worker_plugin.grace_of_slurm_job() is None
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("PATH", "/nowhere")
    assert worker_plugin.end_of_slurm_job() is worker_plugin.grace_of_slurm_job() is None
