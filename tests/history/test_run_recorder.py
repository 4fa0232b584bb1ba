"""What is noted of live jobs when they end, and what the next of their name are told."""

import asyncio
import fcntl
from math import inf

import dask
import numpy as np
import pytest
from distributed import Client, Event
from distributed.utils_test import async_poll_for, gen_cluster
from small_cluster import blocked, live, until

import dask_hpc
from dask_hpc.cluster.request import ANNOTATION, make_request
from dask_hpc.history.runs import PastRun, RunHistory
from dask_hpc.history.scheduler import RunRecorder
from dask_hpc.model.job import Job

cluster2 = gen_cluster(client=True, nthreads=[("", 2)] * 2)


@pytest.fixture
def path(tmp_path):
    """Of the history."""
    return tmp_path / "runs.json"


def context_of(s):
    return s.plugins["dask-hpc"].context


async def ended(s, name):
    await until(s, name, "done")


def known(path):
    return RunHistory(path).read()


def fails():
    raise ValueError("as it should")


def note(path, name, *runs):
    history = RunHistory(path)
    history.add({name: list(runs)})
    history.write()


def on_cluster(path, test):
    """Run it on a new cluster with that history; None: none is kept."""

    @cluster2
    async def run(c, s, a, b):
        with dask.config.set({"hpc.history": path and str(path)}):
            await test(c, s)

    run()


def test_done_killed_and_failed(path):
    async def test(c, s):
        async with await dask_hpc.manage(c):
            with dask_hpc.job("done", nodes=2, user="alice"):
                await c.submit(sum, [1, 2])
            with dask_hpc.job("failed"):
                future = c.submit(fails)
            with pytest.raises(ValueError, match="should"):
                await future
            with dask_hpc.job("cancelled") as cancelled:
                kept = [c.submit(blocked, "never", pure=False)]
            await until(s, "cancelled", "running")
            await cancelled.cancel()
            with dask_hpc.job("waits", nodes=100) as waits:
                kept.append(c.submit(sum, [3, 4]))
            await until(s, "waits", "waiting")
            await waits.cancel()
            for name in ("done", "failed", "cancelled"):
                await ended(s, name)
            await Event("never").set()
            job = live(s, "done")
            assert len(kept) == 2 and not context_of(s).errors
        found = known(path)
        assert {name: [run.ended for run in runs] for name, runs in found.items()} == {
            "alice/done": ["done"],
            "failed": ["killed"],
            "cancelled": ["killed"],
        }
        (run,) = found["alice/done"]
        assert run.nodes == 2 and run.seconds == job.ended - job.started and run.peak_bytes > 1e6

    on_cluster(path, test)


def test_nodes_are_the_mean_over_its_time(path):
    async def test(c, s):
        async with await dask_hpc.manage(c, policy="fpsma-prma"):
            now = [0.0]
            context = context_of(s)
            context.clock = lambda: now[0]
            with dask_hpc.job("first"):
                first = c.submit(blocked, "first", pure=False)
            with dask_hpc.job("grows", min_nodes=1, max_nodes=2, walltime="1 h") as grows:
                futures = c.map(blocked, ["go"] * 4, range(4), pure=False)
            await async_poll_for(lambda: len(context.indices.running) == 2, 10)
            now[0] = 30.0
            await Event("first").set()
            await first
            await async_poll_for(lambda: len(context.jobs[grows.id].nodes) == 2, 10)
            now[0] = 40.0
            await Event("go").set()
            await c.gather(futures)
            await ended(s, "grows")
        (run,) = known(path)["grows"]
        assert run.seconds == 40.0 and run.nodes == (30 * 1 + 10 * 2) / 40

    on_cluster(path, test)


def test_the_next_of_its_name_is_told(path):
    note(path, "cfd", PastRun(nodes=1, seconds=100.0, io_seconds=25.0, when=1.0))
    note(path, "bob/cfd", PastRun(nodes=1, seconds=7.0, when=1.0))

    async def test(c, s):
        async with await dask_hpc.manage(c, policy="fcfs") as manager:
            with dask_hpc.job("early", nodes=1):  # perhaps before the file was read
                await c.submit(sum, [5])
            history = context_of(s).find(RunRecorder).history
            await async_poll_for(lambda: history.runs, 10)
            with dask_hpc.job("cfd", nodes=2), dask_hpc.job("cfd", nodes=2, user="bob"):
                await c.submit(sum, [1])
            with dask_hpc.job("cfd", nodes=2):
                await c.submit(sum, [2])
            model = live(s, "cfd").model
            assert model.recorded == 50.0 and model.io_intensity.intensity(2) == 0.25
            row = (await manager.status())["jobs"][-1]
            assert (row["name"], row["recorded"], row["io_share"]) == ("cfd", 50.0, 0.25)
            bob = next(job for job in context_of(s).jobs.values() if job.model.user == "bob")
            assert bob.model.recorded == 3.5 and bob.model.io_intensity is None
            assert live(s, "early").model.recorded is None

    on_cluster(path, test)


def test_jobs_that_were_there_before_the_file_was_read_are_told(path):
    note(path, "cfd", PastRun(nodes=1, seconds=100.0, when=1.0))

    async def test(c, s):
        async with await dask_hpc.manage(c, policy="fcfs"):
            context, recorder = context_of(s), context_of(s).find(RunRecorder)
            recorder.history = RunHistory(None)  # as before the file is read
            futures = []
            for _ in range(2):  # one runs, one waits
                with dask_hpc.job("cfd", nodes=2):
                    futures.append(c.submit(blocked, "go", pure=False))
            await async_poll_for(lambda: context.indices.running and len(context.indices.waiting), 10)
            recorder.history = RunHistory(path)
            found = context.scheduler.loop.asyncio_loop.create_future()
            found.set_result(recorder.history.read())
            await recorder._learn(found)
            (running,), (waiting,) = context.indices.running.values(), context.indices.waiting
            assert running.job.recorded == waiting.recorded == 50.0
            assert [job.model for job in context.jobs.values()] == [running.job, waiting]
            await Event("go").set()
            await c.gather(futures)

    on_cluster(path, test)


def test_what_was_read_and_written_is_noted(path):
    async def test(c, s):
        async with await dask_hpc.manage(c, policy="fcfs"):
            for name, prefix in (("reads", "read_csv"), ("writes", "store-map"), ("computes", "inc")):
                with dask_hpc.job(name):
                    keys = [f"{prefix}-{name}-{number:032x}" for number in range(12)]
                    keys = [(key, 0) for key in keys] if prefix == "store-map" else keys
                    await c.gather([c.submit(pow, number, 2, key=key) for number, key in enumerate(keys)])
                await ended(s, name)
        shares = {name: runs[0].io_seconds / runs[0].seconds for name, runs in known(path).items()}
        assert shares["computes"] == 0 and shares["reads"] > 0.9 and shares["writes"] > 0.9

    on_cluster(path, test)


def test_a_damaged_file_is_told_once_and_replaced(path):
    path.write_text("{")

    async def test(c, s):
        async with await dask_hpc.manage(c) as manager:
            told = [row for row in await manager.story() if row["decision"] == "warning"]
            await async_poll_for(lambda: context_of(s).story.counts["warning"] == 1, 10)
            with dask_hpc.job("a"):
                await c.submit(sum, [1])
            await ended(s, "a")
            told = [row["reason"] for row in await manager.story() if row["decision"] == "warning"]
            assert len(told) == 1 and "damaged" in told[0] and not context_of(s).errors
        assert list(known(path)) == ["a"]

    on_cluster(path, test)


def test_a_disk_that_cannot_be_written_is_told(path):
    async def test(c, s):
        async with await dask_hpc.manage(c):
            path.mkdir()
            with dask_hpc.job("a"):
                await c.submit(sum, [1])
            await ended(s, "a")
            context = context_of(s)
        assert context.story.counts["warning"] == 1 and not context.errors and path.is_dir()

    on_cluster(path, test)


def test_a_dry_run_says_nothing_about_jobs(path):
    async def test(c, s):
        async with await dask_hpc.manage(c, dry_run=True):
            with dask_hpc.job("a"):
                await c.submit(sum, [1])
            await ended(s, "a")
        assert not path.exists()

    on_cluster(path, test)


def test_a_user_cannot_say_what_is_recorded():
    with pytest.raises(TypeError):
        dask_hpc.job("a", recorded=5)
    with pytest.raises(dask_hpc.InputError, match="recorded"):
        Job(id="a", nodes=1, recorded=0.0)


def test_a_loop_that_commits_is_a_run_of_its_name_or_of_its_job(path):
    async def test(c, s):
        store = str(path.parent / "store")
        async with await dask_hpc.manage(c, policy="fcfs"):
            for last in (3, 6):  # the second goes on from the store
                async with dask_hpc.Checkpoint("loop", store, every=1, client=c) as ck:
                    state = await ck.add("state", np.zeros(1000))
                    async for number in ck.loop(range(last)):
                        ck.update(state=state + number)
            with pytest.raises(ValueError):
                async with dask_hpc.Checkpoint("fails", store, every=1, client=c) as ck:
                    await ck.add("state", 1)
                    async for _ in ck.loop(range(3)):
                        fails()
            with dask_hpc.job("job", nodes=2):
                await c.submit(sum, [1])
                async with dask_hpc.Checkpoint("job", store, every=1, client=c) as ck:
                    await ck.add("state", np.zeros(1000))
                    async for number in ck.loop(range(2)):
                        ck.update(state=np.ones(1000) * number)
            await ended(s, "job")
            assert not context_of(s).errors
        found = known(path)
        assert {name: [run.ended for run in runs] for name, runs in found.items()} == {
            "loop": ["done", "done"],
            "fails": ["killed"],
            "job": ["done"],
        }
        first, second = found["loop"]
        assert first.restore is None and second.restore[0] > 0 and second.restore[1] >= 8000
        assert first.nodes == 2 and first.commit[0] > 0 and first.commit[1] >= 8000
        assert 0 < first.saved_seconds <= first.seconds and found["fails"][0].saved_seconds is None
        (job,) = found["job"]
        assert job.commit[1] >= 8000 and job.peak_bytes > 1e6 and job.saved_seconds > 0

    on_cluster(path, test)


def test_what_comes_over_the_wire_is_looked_at(path):
    async def test(c, s):
        async with await dask_hpc.manage(c):
            recorder = context_of(s).find(RunRecorder)
            for bad in ({}, {"nodes": 1, "seconds": -1}, {"nodes": 1, "seconds": 1, "colour": 5}):
                recorder.loop_ends("a", bad)
        assert not path.exists()

    on_cluster(path, test)


def test_what_gave_its_nodes_up_or_went_on_is_not_noted_again(path):
    async def test(c, s):
        async with await dask_hpc.manage(c, policy="fcfs"):
            context = context_of(s)
            with dask_hpc.job("late") as late:
                await c.submit(sum, [1])
            await ended(s, "late")
            with dask.annotate(**{ANNOTATION: {"id": late.id, **late._request}}):
                await c.submit(sum, [2])  # as if it had been on its way
            await async_poll_for(lambda: context.story.counts["end"] == 2, 10)
            async with Client(s.address, asynchronous=True, set_as_default=False) as script:
                request = {"id": "script-1", **make_request("script", nodes=2)}
                await script.scheduler.hpc_script(client=script.id, request=request)
                await script.submit(sum, [3])
                with dask_hpc.job("other", nodes=2):
                    other = c.submit(sum, [4])  # the script has nothing to run
                await other
                await ended(s, "other")
                await script.submit(sum, [5])
            await async_poll_for(lambda: context.story.counts["end"] == 5, 10)
        assert {name: len(runs) for name, runs in known(path).items()} == {"late": 1, "other": 1}

    on_cluster(path, test)


def test_what_a_job_is_measured_to_do_takes_the_place_of_what_is_remembered(path):
    note(path, "cfd", PastRun(nodes=1, seconds=100.0, io_seconds=90.0, when=1.0))

    async def test(c, s):
        async with await dask_hpc.manage(c, policy="fcfs"):
            history = context_of(s).find(RunRecorder).history
            await async_poll_for(lambda: history.runs, 10)
            with dask_hpc.job("cfd", nodes=2):
                waits = c.submit(blocked, "go", pure=False)
                assert (await until(s, "cfd", "running")).model.io_intensity.intensity(1) == 0.9
                await c.gather(c.map(pow, range(12), [2] * 12))
                await async_poll_for(lambda: live(s, "cfd").model.io_intensity.intensity(1) == 0, 10)
            assert next(iter(context_of(s).indices.running.values())).job is live(s, "cfd").model
            await Event("go").set()
            await waits

    on_cluster(path, test)


def test_what_ends_while_the_file_is_written_is_written_too(path):
    async def test(c, s):
        with open(path.with_suffix(".lock"), "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # somebody else is at it
            manager = await dask_hpc.manage(c)
            recorder = context_of(s).find(RunRecorder)
            for name in "ab":
                with dask_hpc.job(name):
                    await c.submit(sum, [1])
                await ended(s, name)
                await async_poll_for(lambda: recorder._writing is not None, 10)
            closing = asyncio.ensure_future(manager.close())
            await async_poll_for(lambda: not recorder.context.is_on, 10)
        await closing
        assert set(known(path)) == {"a", "b"}

    on_cluster(path, test)


async def told_walltime(s, name):
    """Why a job has the walltime it has, once that is told."""
    context = context_of(s)

    def found():
        return [job for job in context.jobs.values() if job.name == name and job.walltime_why]

    await async_poll_for(found, 5)
    (job,) = found()
    rows = [
        row.reason for row in context.story.since(0)[1] if row.decision == "walltime" and row.job == job.id
    ]
    assert rows == [job.walltime_why]
    return job


def test_a_walltime_follows_from_past_runs(path):
    note(path, "cfd", *(PastRun(nodes=2, seconds=3000.0 + 100 * n, when=float(n)) for n in range(20)))

    async def test(c, s):
        async with await dask_hpc.manage(c):
            with dask_hpc.job("cfd", nodes=1, walltime="auto") as one:
                future = c.submit(blocked, "go", pure=False)
                job = await told_walltime(s, "cfd")
                status = await one.status()
            assert job.walltime_why.startswith("p") and " of 20 runs: " in job.walltime_why
            assert 6000 < job.model.walltime == status["walltime"] < 12000  # on one node twice as long
            assert status["walltime_why"] == job.walltime_why
            await until(s, "cfd", "running")
            running = context_of(s).indices.running[job.id]
            assert running.expected_end == pytest.approx(running.started + job.model.walltime)
            await Event("go").set()
            await future

    on_cluster(path, test)


def test_a_job_that_takes_longer_gets_the_next_walltime(path):
    note(path, "cfd", *(PastRun(nodes=1, seconds=0.05 * 1.3**n, when=float(n)) for n in range(12)))

    async def test(c, s):
        async with await dask_hpc.manage(c):
            with dask_hpc.job("cfd", walltime="auto"):
                future = c.submit(blocked, "go", pure=False)
                job = await told_walltime(s, "cfd")
            first, longer = job.model.walltime, job.walltimes
            assert longer and list(longer) == sorted({first, *longer})[1:]
            await until(s, "cfd", "running")
            context = context_of(s)

            def has_overstayed():
                context.wake()
                return "overstay" in [row.decision for row in context.story.since(0)[1]]

            await async_poll_for(has_overstayed, 10)
            assert (
                job.model.walltime in longer
                and job.walltimes == longer[longer.index(job.model.walltime) + 1 :]
            )
            running = context.indices.running[job.id]
            assert running.expected_end == pytest.approx(running.started + job.model.walltime)
            await Event("go").set()
            await future

    on_cluster(path, test)


def test_nothing_is_known_and_nothing_is_kept(path):
    async def test(c, s):
        async with await dask_hpc.manage(c):
            with dask_hpc.job("new", walltime="auto"):
                await c.submit(sum, [1])
            job = await told_walltime(s, "new")
            assert "no run of new that was done is known" in job.walltime_why and job.model.walltime == inf

    on_cluster(path, test)
    on_cluster(None, test)
