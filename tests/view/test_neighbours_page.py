"""What is known of kinds of tasks is on the dashboard, and only while a policy watches them."""

import json

import pytest
from distributed import Event
from distributed.utils_test import async_poll_for, gen_cluster, slowinc
from served_page import get, until_fed
from small_cluster import plugin_of

import dask_hpc
from dask_hpc.together.scheduler.service import KindLanes

shown = gen_cluster(
    client=True,
    nthreads=[("", 2)] * 2,
    scheduler_kwargs={"dashboard": True, "dashboard_address": "127.0.0.1:0"},
    worker_kwargs={"memory_limit": "1 GB"},
    # the process of the tests may be larger than such a worker is allowed to be
    config={"hpc.history": None, "distributed.worker.memory.pause": False},
)


def holds(size, go):
    block = b"x" * size
    Event(go).wait(60)
    return len(block)


def tasks_of(whole):
    found = (whole.get("together") or {}).get("neighbours") or {"kinds": ()}
    return sum(one["tasks"] for one in found["kinds"])


def kinds_of(status):
    return {one["kind"] for one in status["kinds"]}


@shown
async def test_the_page_follows_what_is_known_of_kinds(c, s, *workers):
    pytest.importorskip("bokeh")
    async with await dask_hpc.manage(c, "together") as m:
        assert "neighbours_view" in await get(s, "/individual-hpc-neighbours")
        await c.gather(c.map(slowinc, range(40), delay=0.01, key=[f"step-{i}" for i in range(40)]))
        whole = await until_fed(s, lambda whole: tasks_of(whole))
        found = whole["together"]
        assert found["memory"] is None and found["kept"] == []
        (row,) = found["neighbours"]["kinds"]
        assert row["kind"] == "step" and row["tasks"] <= 40 and row["by"] in ("bytes", "counters")
        assert 0.01 <= row["seconds"] < 1 and row["how"] in ("alone", "fastest", "no memory-bound neighbours")
        seen = found["neighbours"]["slowdowns"]["step"]["step"]
        assert seen.keys() == {"ratio", "stderr", "tasks"} and seen["ratio"] >= 1 and seen["tasks"] > 0
        assert "" not in found["neighbours"]["why_not"]
        await m.set("easy-backfill")
        await until_fed(s, lambda whole: whole["together"] is None)
        assert (await m.status())["together"] is None


@shown
async def test_the_page_has_what_waits_for_memory(c, s, *workers):
    pytest.importorskip("bokeh")
    async with await dask_hpc.manage(c, "memory-lanes"):
        tasks = c.map(holds, [1000] * 7, go="go", key=[f"big-{i}" for i in range(7)])
        whole = await until_fed(s, lambda whole: whole["together"]["kept"])
        (row,) = whole["together"]["kept"]
        assert row["kind"] == "big" and row["waiting"] + row["in_flight"] == 7 and row["waiting"] > 0
        assert whole["together"]["neighbours"] is None
        worker = whole["together"]["memory"]["worker"]
        assert (worker["limit"], worker["threads"]) == (10**9, 2) and worker["base"] >= 0
        await Event("go").set()
        assert await c.gather(tasks) == [1000] * 7


@shown
async def test_what_people_see_of_kinds_is_reckoned_once_for_each_word(c, s, *workers):
    async with await dask_hpc.manage(c, "together"):
        await c.gather(c.map(slowinc, range(20), delay=0.01, key=[f"first-{i}" for i in range(20)]))
        known = plugin_of(s).context.get(KindLanes).neighbours
        await async_poll_for(lambda: kinds_of(known.status()) == {"first"}, 10)
        assert known.status()["kinds"] is known.status()["kinds"]
        await c.gather(c.map(slowinc, range(20), delay=0.01, key=[f"second-{i}" for i in range(20)]))
        await async_poll_for(lambda: kinds_of(known.status()) == {"first", "second"}, 10)
        json.dumps(known.status(), allow_nan=False)
