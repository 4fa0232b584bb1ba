"""A cluster that is watched: followers are told what is new, and nothing is left when they go."""

import asyncio

from distributed import Event
from distributed.utils_test import async_poll_for
from small_cluster import blocked, cluster2, plugin_of, until

import dask_hpc


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
