"""What somebody gets who looks several times a second, and what he can do about jobs."""

import asyncio

import pytest
from distributed import Event
from distributed.utils_test import async_poll_for, inc
from small_cluster import blocked, cluster2, cluster4, live, plugin_of, power_of, until

import dask_hpc
from dask_hpc import InputError, simulate


async def read_all(m, **given):
    """Rows of the story as several looks give them, and the last answer."""
    rows, found = [], await m.feed(**given)
    while found["story"]["rows"]:
        rows += found["story"]["rows"]
        found = await m.feed(story=found["story"]["first"] + len(found["story"]["rows"]), **given)
    return rows, found


@cluster4
async def test_whoever_looks_often_reads_everything_once(c, s, *workers):
    async with await dask_hpc.manage(c, "fcfs") as m:
        before, found = await read_all(m)
        assert (found["policy"], found["state"], found["undo"], found["jobs"]) == ("fcfs", "on", 0, None)
        with dask_hpc.job("a", nodes=3):
            future = c.submit(blocked, "go")
            job = await until(s, "a", "running")
        read = found["story"]["first"]
        found = await m.feed(story=read, jobs=-1)
        rows = found["story"]["rows"]
        assert [row[1:3] for row in rows] == [["submit", job.id], ["start", job.id]]
        assert rows[1][3] == list(job.nodes) and rows[1][4] == job.reason
        assert [one["id"] for one in found["jobs"]] == [job.id]
        await Event("go").set()
        await future
        await until(s, "a", "done")
        after = await m.feed(story=read + 2, jobs=found["time"])
        assert [one["state"] for one in after["jobs"]] == ["done"]
        assert (await m.feed(jobs=after["time"] + 1))["jobs"] == []  # it ended before that look
        assert (await read_all(m))[0] == before + rows + after["story"]["rows"]


@cluster2
async def test_a_change_shows_as_another_version(c, s, *workers):
    async with await dask_hpc.manage(c, "fcfs") as m:
        first = (await m.feed())["version"]
        await m.set("sjf")
        await m.set()
        assert (await m.feed())["version"] == first + 1
        await m.undo()
        found = await m.feed()
        assert (found["version"], found["policy"], found["undo"]) == (first + 2, "fcfs", 0)


@cluster2
async def test_power_and_parts(c, s, *workers):
    async with await dask_hpc.manage(c, "power-corridor") as m:
        await m.set(**{"power.upper": "1 kW"})
        await async_poll_for(lambda: power_of(s).trace.count >= 2, 10)
        found = await m.feed(parts=["power", "nodes", "holds", "checkpoint", "pipelines"])
        times = [sample[0] for sample in found["power"]["samples"]]
        assert times == sorted(times) and len(times) >= 2 and found["power"]["first"] == 0
        assert found["power"]["samples"][-1][2:4] == [0.0, 1000.0]
        assert found["power_now"]["upper"] == 1000.0
        assert sorted(found["nodes"]) == sorted(plugin_of(s).control.indices.nodes)
        assert found["holds"] == []
        assert (await m.feed(parts=["quantum"]))["quantum"] is None  # of a service that is not here
        assert (await m.feed(power=10**9))["power"]["samples"] == []


@pytest.mark.parametrize(
    "wrong", [{"story": -1}, {"story": "x"}, {"power": 1.5}, {"jobs": "all"}, {"parts": [1]}]
)
def test_a_bad_look(wrong):
    @cluster2
    async def test(c, s, *workers):
        async with await dask_hpc.manage(c) as m:
            with pytest.raises(InputError, match=next(iter(wrong))):
                await m.feed(**wrong)
            assert plugin_of(s).errors == 0

    test()


@cluster2
async def test_why_a_row_is_in_the_story(c, s, *workers):
    async with await dask_hpc.manage(c, "fcfs") as m:
        with dask_hpc.job("a", nodes=1):
            await c.submit(inc, 1)
        await until(s, "a", "done")
        rows, _ = await read_all(m)
        number = next(i for i, row in enumerate(rows) if row[1] == "start")
        why = await m.why(number)
        assert (
            why["decision"] == "start" and why["rule"] == "queue: fcfs" and why["reason"] == rows[number][4]
        )
        assert await m.why(10_000) is None


@cluster2
async def test_awaited_works_on_the_loop_of_any_client(c, s, *workers):
    async with await dask_hpc.manage(c, "fcfs") as m:
        again = m.awaited
        assert (await again.set("sjf"))["name"] == "sjf"
        assert (await again.feed())["policy"] == "sjf"
        assert again.client is c


def test_awaited_of_a_client_that_is_not_asynchronous(loop):
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0", loop=loop
        ) as cluster,
        Client(cluster) as client,
        dask_hpc.manage(client, "fcfs") as m,
    ):
        ours = m.awaited
        looked = asyncio.run_coroutine_threadsafe(look(ours), client.loop.asyncio_loop)
        assert looked.result(10) == "fcfs"
        assert m.feed()["policy"] == "fcfs"


async def look(manager):
    return (await manager.feed())["policy"]


@cluster2
async def test_a_snapshot_goes_on_in_the_simulator(c, s, *workers):
    async with await dask_hpc.manage(c, "fcfs") as m:
        with dask_hpc.job("runs", nodes=1, walltime="100s"):
            runs = c.submit(blocked, "go")
            await until(s, "runs", "running")
        with dask_hpc.job("waits", nodes=2, walltime="50s"):
            waits = c.submit(inc, 1)
            await until(s, "waits", "waiting")
        snapshot = await m.snapshot()
        assert {job.rpartition("-")[0] for job in snapshot.running} == {"runs"}
        result = simulate(snapshot=snapshot, policy="fcfs")
        found = result.jobs.set_index(result.jobs["id"].str.rpartition("-")[0])
        assert found.loc["waits", "start"] == pytest.approx(found.loc["runs", "end"])
        study = simulate(snapshot=snapshot, policy=["fcfs", "easy-backfill"], seeds=3)
        assert len(study.runs) == 6
        await Event("go").set()
        await c.gather([runs, waits])


@cluster2
async def test_the_corridor_of_a_snapshot_is_that_of_the_policy_that_is_tried(c, s, *workers):
    async with await dask_hpc.manage(c, "power-corridor") as m:
        await m.set(**{"power.upper": "500 W"})
        await async_poll_for(lambda: power_of(s).corridor is not None, 10)
        assert (await m.snapshot()).corridor is None


# --- jobs


@cluster2
async def test_a_waiting_job_is_held_and_released(c, s, *workers):
    async with await dask_hpc.manage(c, "fcfs") as m:
        with dask_hpc.job("first", nodes=2):
            first = c.submit(blocked, "go")
            await until(s, "first", "running")
        with dask_hpc.job("held", nodes=1):
            held = c.submit(inc, 1)
            job = await until(s, "held", "waiting")
        with dask_hpc.job("next", nodes=1):
            after = c.submit(inc, 2)
            await until(s, "next", "waiting")
        status = await m.hold_job(job.id, "wait for the data")
        assert status["waiting_because"] == "held: wait for the data"
        await Event("go").set()
        assert await first and await after == 3
        assert live(s, "held").state == "waiting"
        await m.release_job(job.id)
        assert await held == 2
        told = [h.decision for h in plugin_of(s).story.happenings if h.job == job.id]
        assert told == ["submit", "hold", "release", "start", "end"]


@cluster2
async def test_a_running_job_cannot_be_kept_from_starting(c, s, *workers):
    async with await dask_hpc.manage(c, "fcfs") as m:
        with dask_hpc.job("a", nodes=2) as a:
            future = c.submit(blocked, "go")
            await until(s, "a", "running")
            with pytest.raises(InputError, match="a waiting job"):
                await m.hold_job(a.id)
            for wrong in ("no-such", 3):
                with pytest.raises(InputError, match="job"):
                    await m.hold_job(wrong)
            await Event("go").set()
            await future


@cluster4
async def test_a_job_is_resized_by_its_id_and_its_results_are_known(c, s, *workers):
    async with await dask_hpc.manage(c, "fcfs") as m:
        with dask_hpc.job("e", nodes=1, min_nodes=1, max_nodes=4, kind="evolving") as e:
            futures = c.map(blocked, ["go"] * 2, range(2), pure=False)
            job = await until(s, "e", "running")
            await m.resize(e.id, +2)
            await async_poll_for(lambda: len(job.nodes) == 3, 10)
            assert {future.key for future in await m.results(e.id)} == {future.key for future in futures}
            await Event("go").set()
            await c.gather(futures)
