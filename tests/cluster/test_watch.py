"""A cluster that is watched: followers are told what is new, and nothing is left when they go."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager

import pytest
from distributed import Client, Event, LocalCluster, wait
from distributed.utils_test import async_poll_for, gen_test
from small_cluster import blocked, cluster2, plugin_of, until

import dask_hpc
from dask_hpc.cluster.client import watch as watch_module


@cluster2
async def test_followers_see_what_happens_until_they_go(c, s, *workers):
    async with await dask_hpc.manage(c, "fcfs") as m:
        seen, late = [], []
        end = m.watch.follow(seen.append, parts=("holds",))
        with dask_hpc.job("a", nodes=2):
            future = c.submit(blocked, "go")
            job = await until(s, "a", "running")
        await async_poll_for(lambda: any(new.get("changes") for new in seen), 10)
        await async_poll_for(lambda: any("holds" in new for new in seen), 10)
        await async_poll_for(lambda: any(new.get("jobs") for new in seen), 10)
        assert set(m.watch.course.holders.values()) == {job.id}
        end_late = m.watch.follow(late.append)
        await async_poll_for(lambda: late, 10)
        assert late[0]["changes"] == m.watch.course.whole()["changes"]
        assert m.watch is m.awaited.watch
        end()
        count = len(seen)
        await Event("go").set()
        await future
        await async_poll_for(lambda: any(row[2] == "end" for new in late for row in new.get("story", ())), 10)
        assert len(seen) <= count + 1
        end_late()
        await async_poll_for(lambda: not m.watch.is_awake, 10)


@cluster2
async def test_followers_are_told_what_is_in_force_when_that_changes(c, s, *workers):
    async with await dask_hpc.manage(c, "fcfs") as m:
        seen = []
        end = m.watch.follow(seen.append)
        await async_poll_for(lambda: len(seen) > 2, 10)
        await m.set(**{"settings.fair-shares": True})
        await m.pause()
        await async_poll_for(lambda: seen[-1]["head"]["state"] == "paused", 10)
        told = [new["in_force"] for new in seen if "in_force" in new]
        assert told[0]["name"] == "fcfs" and told[0]["undo"] == 0
        assert told[-1]["settings"]["fair-shares"] is True and told[-1]["state"] == "paused"
        assert len(told) <= 3
        end()


@cluster2
async def test_a_follower_that_fails_is_told_no_more(c, s, *workers):
    async with await dask_hpc.manage(c, "fcfs") as m:
        told, seen = [], []

        def fails(new):
            told.append(new)
            raise KeyError("ours")

        m.watch.follow(fails)
        end = m.watch.follow(seen.append)
        await async_poll_for(lambda: len(seen) >= 3, 10)
        assert len(told) == 1
        end()


@cluster2
async def test_a_cluster_that_is_managed_no_more_and_again(c, s, *workers):
    m = await dask_hpc.manage(c, "fcfs")
    seen = []
    end = m.watch.follow(seen.append)
    await async_poll_for(lambda: seen, 10)
    await m.close()
    await async_poll_for(lambda: any("not managed" in new.get("problem", "") for new in seen), 10)
    async with await dask_hpc.manage(c, "sjf"):
        await async_poll_for(lambda: seen[-1].get("head", {}).get("policy") == "sjf", 10)
    end()
    await async_poll_for(lambda: not c.__dict__["dask_hpc_watch"].is_awake, 10)


@cluster2
async def test_looking_costs_little_when_nothing_happens(c, s, *workers):
    async with await dask_hpc.manage(c, "fcfs") as m:
        seen = []
        end = m.watch.follow(seen.append)
        m.watch.somebody_looks()
        await async_poll_for(lambda: len(seen) >= 10, 10)
        assert all(set(new) <= {"head", "jobs", "nodes", "in_force"} for new in seen[1:])
        assert plugin_of(s).errors == 0
        end()
        await asyncio.sleep(0)


@contextmanager
def scheduler_process(port):
    """A scheduler that can be stopped and killed."""
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", str(port), "--no-dashboard"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([*command, "--host", "127.0.0.1"], **quiet) as process:
        try:
            yield process
        finally:
            process.kill()


def problems(seen):
    """What followers hear of them: words, whether it will return, whether there is news as well."""
    return [(new["problem"], new.get("will_return"), "head" in new) for new in seen if "problem" in new]


SILENT = [("the scheduler does not answer", True, False), ("", None, True)]
LOST = [("the connection to the scheduler is lost: the client tries to reconnect", True, False)]


def test_a_scheduler_that_answers_slowly_is_asked_less_often_and_is_not_taken_for_silent():
    assert [watch_module.rest_after(took) for took in (0.0, 0.01, 0.1)] == pytest.approx([0.0, 0.04, 0.4])
    assert [watch_module.rest_after(took) for took in (0.25, 0.5, 1.0, 3.0)] == pytest.approx(
        [1.0, 1.0, 0.5, 0.3]
    )


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@gen_test(timeout=60)
async def test_a_scheduler_that_stands_still_and_dies():
    seen, port = [], free_port()
    with scheduler_process(port) as process:
        async with Client(f"tcp://127.0.0.1:{port}", asynchronous=True, timeout=30) as c:
            m = await dask_hpc.manage(c, "fcfs")
            m.watch.follow(seen.append)
            await async_poll_for(lambda: m.watch.course.head, 10)
            os.kill(process.pid, signal.SIGSTOP)
            await async_poll_for(lambda: problems(seen), 3)
            os.kill(process.pid, signal.SIGCONT)
            await async_poll_for(lambda: len(problems(seen)) > 1, 1)
            assert problems(seen) == SILENT
            process.kill()
            await async_poll_for(lambda: len(problems(seen)) > 2, 3)
            assert problems(seen)[2:] == LOST


@pytest.mark.slow
@gen_test(timeout=150)
async def test_a_scheduler_that_comes_back():
    seen, port = [], free_port()
    with scheduler_process(port) as process:
        async with Client(f"tcp://127.0.0.1:{port}", asynchronous=True, timeout=60) as c:
            m = await dask_hpc.manage(c, "fcfs")
            m.watch.follow(seen.append)
            await async_poll_for(lambda: m.watch.course.head, 10)
            process.kill()
            process.wait()
            await async_poll_for(lambda: problems(seen), 3)
            with scheduler_process(port):
                await async_poll_for(lambda: c.status == "running", 60)  # Dask tries again ever less often
                await async_poll_for(lambda: len(problems(seen)) > 1, 1)
                # it is there again, and nobody manages it
                ended = ("this cluster is not managed any more", False, False)
                assert problems(seen) == [*LOST, ended]
                await dask_hpc.manage(c, "sjf")
                await async_poll_for(lambda: m.watch.course.head["policy"] == "sjf", 2)
                await async_poll_for(lambda: problems(seen)[-1] == ("", None, True), 5)
                slow = ("the scheduler does not answer", True, False)  # on a busy machine, until then
                assert set(problems(seen)[2:-1]) <= {slow}
                assert len(m.watch.course.story) < 5


def test_who_follows_a_client_hears_of_its_end():
    told, late = [], []
    with LocalCluster(1, processes=False, dashboard_address=":0", threads_per_worker=1) as cluster:
        client = Client(cluster, set_as_default=False)
        m = dask_hpc.manage(client, "fcfs")
        heads = Event("news", client)

        def follower(new):
            told.append(new)
            if "head" in new:
                client.loop.add_callback(heads.set)

        m.watch.follow(follower)
        assert heads.wait(10)
        client.close()
        assert told[-1] == {"problem": "the client was closed", "will_return": False}
        count = len(told)
        m.watch.follow(late.append)()
        assert [new["problem"] for new in late] == ["the client was closed"] and late[0]["head"]
        assert len(told) == count and not m.watch.is_awake


@cluster2
async def test_alerts_come_to_who_asked_for_them(c, s, *workers):
    watch_module._NOW, before = 0.0, watch_module._NOW
    try:
        await alerts_of_jobs(c, s)
    finally:
        watch_module._NOW = before


async def alerts_of_jobs(c, s):
    async with await dask_hpc.manage(c, "fcfs") as m:
        with dask_hpc.job("before"):
            await wait(c.submit(int, "x"))
        await until(s, "before", "done")
        alerts = []

        def act(alert):
            alerts.append(alert)
            raise KeyError("its own")

        end = m.on_alert(act)
        with dask_hpc.job("now") as job:
            await wait([c.submit(int, text) for text in ("y", "z")])
        await async_poll_for(lambda: alerts, 10)
        (alert,) = alerts
        assert (alert.kind, alert.job) == ("job-failed", job.id) and "2 tasks" in alert.words
        assert "ValueError: invalid literal" in alert.words and "\n" not in alert.words
        end()
