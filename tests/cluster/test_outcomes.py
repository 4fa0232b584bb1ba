"""How jobs end, and what is told of it: done is said of success alone."""

import getpass

import dask
import pytest
from distributed import Client, Event, wait
from distributed.utils_test import async_poll_for, inc
from small_cluster import blocked, cluster2, cluster4, live, plugin_of, power_of, until

import dask_hpc
from dask_hpc.cluster.request import make_request
from dask_hpc.view.course import Course


def fails(text="boom", *needs):
    raise ValueError(text)


def fails_once(name):
    """Until somebody sets the event of that name."""
    if not Event(name).is_set():
        raise OSError(2, "not there yet\nnor soon")
    return name


async def jobs_of(m):
    return {job["name"]: job for job in (await m.status())["jobs"]}


async def told(m, course):
    """What is new to a reader, and what a page draws."""
    return course.add(await m.feed(**course.wants(jobs=True, parts=("power",))))


@cluster2
async def test_a_job_whose_tasks_raise_has_failed_everywhere(c, s, *workers):
    async with await dask_hpc.manage(c, "fcfs") as m:
        course = Course()
        with dask_hpc.job("heat") as job:
            bad = c.map(fails, [f"no {n}" for n in range(4)], pure=False)
            await wait([*bad, c.submit(fails, "needs", bad[0]), c.submit(inc, 1)])
        await until(s, "heat", "done")
        found = (await jobs_of(m))["heat"]
        assert (found["state"], found["failed"], found["cancelled"]) == ("failed", 5, False)
        assert found["error"].startswith("ValueError: no ") and found["user"] == getpass.getuser()
        assert found["reason"] == f"5 tasks of it failed: {found['error']}"
        assert await job.status() == found
        rows = [row for row in await m.story() if row["job"] == job.id]
        assert [row["decision"] for row in rows] == ["submit", "start", "fail"]
        assert rows[-1]["reason"] == found["reason"] and rows[-1]["nodes"]
        new = await told(m, course)
        assert not course.holders and new["alerts"] == course.whole()["alerts"]
        ((number, _, kind, words, about),) = new["alerts"]
        assert (number, kind, about) == (0, "job-failed", job.id) and found["reason"] in words
        assert new["turned"][0]["state"] == "failed" and new["turned"][0]["error"] == found["error"]
        figures = (await m.status())["figures"]
        assert (figures["failed"], figures["completed"], figures["cancelled"]) == (1, 0, 0)


@cluster2
async def test_tasks_that_are_tried_again_and_succeed_are_no_failure(c, s, *workers):
    async with await dask_hpc.manage(c, "fcfs") as m:
        course = Course()
        with dask_hpc.job("within"):
            future = c.submit(fails_once, "first")
            await wait(future)
            assert live(s, "within").failures == 1
            await Event("first").set()
            await c.retry([future])
            assert await future == "first"
        await until(s, "within", "done")
        assert (await jobs_of(m))["within"]["state"] == "done"
        with dask_hpc.job("after"):
            future = c.submit(fails_once, "second")
            await wait(future)
        await until(s, "after", "done")
        found = (await jobs_of(m))["after"]
        assert found["state"] == "failed" and found["error"] == "FileNotFoundError: 2, not there yet"
        await told(m, course)
        assert course.jobs[found["id"]]["state"] == "failed"
        await c.retry([future])  # once more in vain
        await wait(future)
        assert (await jobs_of(m))["after"]["state"] == "failed"
        await Event("second").set()
        await c.retry([future])
        assert await future == "second"
        await async_poll_for(lambda: live(s, "after").told_state == "done", 10)
        new = await told(m, course)
        assert course.jobs[found["id"]]["state"] == "done" and not course.jobs[found["id"]]["error"]
        assert [row[2] for row in new["story"]] == ["end"] and "alerts" not in new
        figures = (await m.status())["figures"]
        assert (figures["failed"], figures["completed"]) == (0, 2)


@cluster2
async def test_a_cancelled_job_is_no_success_either(c, s, *workers):
    async with await dask_hpc.manage(c, "fcfs") as m:
        with dask_hpc.job("gone", nodes=2) as job:
            c.submit(blocked, "never")
            await until(s, "gone", "running")
        await job.cancel()
        found = (await jobs_of(m))["gone"]
        assert found["state"] == "cancelled" and found["failed"] == 0 and "cancelled" in found["reason"]
        assert (await m.status())["figures"]["cancelled"] == 1
        await Event("never").set()


@cluster4
async def test_the_reason_is_that_of_the_last_decision(c, s, *workers):
    async with await dask_hpc.manage(c, "fpsma-pwma") as m:
        with dask_hpc.job("m", nodes=2, min_nodes=1, max_nodes=4):
            futures = [c.submit(blocked, "go", n, pure=False) for n in range(8)]
            await async_poll_for(lambda: len(live(s, "m").nodes) == 4 if s.tasks else False, 10)
            grown = (await jobs_of(m))["m"]["reason"]
            assert grown == [row["reason"] for row in await m.story() if row["decision"] == "grow"][-1]
            with dask_hpc.job("r", nodes=3):
                one = c.submit(blocked, "go", "r")
            await async_poll_for(lambda: live(s, "m").reason != grown, 10)
            decided = [row for row in await m.story() if row["decision"] in ("hand-over", "shrink")]
            assert (await jobs_of(m))["m"]["reason"] == decided[-1]["reason"]
            await Event("go").set()
            await wait([*futures, one])
        await until(s, "m", "done")
        assert "context is closed" in (await jobs_of(m))["m"]["reason"]


@cluster4
async def test_what_a_job_uses_while_it_runs(c, s, *workers):
    meter = {"simulated": {"idle": 60, "busy": 140, "lag": 0, "noise": 0}}
    with dask.config.set({"hpc.power-meter": meter, "hpc.power-interval": 0.05}):
        manager = await dask_hpc.manage(c, "fcfs")
    async with manager as m:
        with dask_hpc.job("dark", nodes=2):
            await c.submit(inc, 1)
        await until(s, "dark", "done")
        assert (await jobs_of(m))["dark"]["energy"] is None  # nobody watched
        await m.set("power-corridor")
        with dask_hpc.job("x", nodes=2, user="ada"):
            futures = [c.submit(blocked, "go", n, pure=False) for n in range(4)]
            job = await until(s, "x", "running")
            count = power_of(s).trace.count
            await async_poll_for(lambda: power_of(s).trace.count > count + 5, 10)
            found = (await jobs_of(m))["x"]
            took = plugin_of(s).context.clock() - job.started
            assert found["node_seconds"] == pytest.approx(2 * took, rel=0.2) and found["user"] == "ada"
            # two nodes of at least 60 W and at most 200 W, and the last look is a moment ago
            assert 0.5 * 60 < found["energy"] / found["node_seconds"] <= 200
            await Event("go").set()
            await wait(futures)
        job = await until(s, "x", "done")
        over = (await jobs_of(m))["x"]
        assert over["node_seconds"] == pytest.approx(2 * (job.ended - job.started))
        assert over["energy"] >= found["energy"]
        assert (await jobs_of(m))["x"] == over


@cluster4
async def test_a_script_whose_tasks_raise_has_failed_when_it_is_over(c, s, *workers):
    request = {"id": "script-1", **make_request("script", nodes=4)}
    async with await dask_hpc.manage(c, "fcfs") as m:
        async with Client(s.address, asynchronous=True, set_as_default=False) as other:
            await other.scheduler.hpc_script(client=other.id, request=request)
            await wait(other.submit(fails, "caught"))
            async with dask_hpc.job("own", nodes=2, client=c):
                assert await c.submit(inc, 1) == 2
            await until(s, "script", "done")  # it gave way
            assert (await jobs_of(m))["script"]["state"] == "done"
        await async_poll_for(lambda: live(s, "script").told_state == "failed", 10)
        rows = [row["decision"] for row in await m.story() if row["job"] == "script-1"]
        assert rows == ["submit", "start", "end", "fail"]
