"""The pages are there while a cluster is managed, tell what happens, and are gone afterwards."""

import json
import re
from importlib.util import find_spec
from math import inf
from unittest.mock import ANY

import pytest
from distributed import Event, wait
from distributed.utils_test import captured_logger, div, gen_cluster, inc, varying
from served_page import fed, get, until_fed
from small_cluster import blocked, plugin_of, until
from tornado.httpclient import HTTPClientError

import dask_hpc

if not find_spec("bokeh"):
    pytest.skip("Bokeh is not installed", allow_module_level=True)

from dask_hpc.model.job import is_over
from dask_hpc.model.plan import Plan, Start
from dask_hpc.model.power import PowerRange, PowerView
from dask_hpc.model.story import Explanation, Happening
from dask_hpc.power.service import PowerService

PAGES = [
    "/hpc",
    "/individual-hpc-allotments",
    "/individual-hpc-checkpoints",
    "/individual-hpc-decisions",
    "/individual-hpc-jobs",
    "/individual-hpc-pipelines",
    "/individual-hpc-file-systems",
    "/individual-hpc-neighbours",
    "/individual-hpc-power",
    "/individual-hpc-scratch-files",
]
shown = gen_cluster(
    client=True,
    nthreads=[("", 1)] * 3,
    scheduler_kwargs={"dashboard": True, "dashboard_address": "127.0.0.1:0"},
)
prefixed = gen_cluster(
    client=True,
    nthreads=[("", 1)],
    scheduler_kwargs={"dashboard": True, "dashboard_address": "127.0.0.1:0", "http_prefix": "/some/where"},
)
dark = gen_cluster(client=True, nthreads=[("", 1)])


async def is_there(s, path):
    try:
        await get(s, path)
    except HTTPClientError as error:
        assert error.code == 404
        return False
    return True


@shown
async def test_pages_come_and_go(c, s, *workers):
    assert not await is_there(s, "/hpc")
    plots = await get(s, "/individual-plots.json")
    menu = 'href="hpc"'
    assert menu not in await get(s, "/exceptions")
    for _ in range(2):  # a second start works
        m = await dask_hpc.manage(c)
        for path in PAGES:
            assert await is_there(s, path)
        listed = json.loads(await get(s, "/individual-plots.json"))
        assert {uri for uri in listed.values() if "hpc" in uri} == set(PAGES[1:])
        assert "Individual Hpc Allotments" in listed
        assert menu in await get(s, "/exceptions") and "HPC Decisions" in await get(s, "/exceptions")
        await m.close()
        for path in PAGES:
            assert not await is_there(s, path)
        assert await get(s, "/individual-plots.json") == plots
        assert menu not in await get(s, "/exceptions") and "HPC Decisions" not in await get(s, "/exceptions")


@shown
async def test_a_page_needs_no_other_but_its_feed(c, s, *workers):
    async with await dask_hpc.manage(c):
        for path in PAGES:
            page = await get(s, path)
            assert (
                not re.search(r"src=|url\((?!#)|@import|https?://(?!www\.w3\.org/)", page)
                and '"feed":"hpc-feed"' in page
            )
            for link in re.findall(r'href="([^"]*)"', page):
                assert await is_there(s, f"/{link}")


@prefixed
async def test_behind_a_prefix(c, s, a):
    async with await dask_hpc.manage(c):
        assert await is_there(s, "/some/where/hpc")
    assert not await is_there(s, "/some/where/hpc")


@shown
async def test_what_a_page_is_told(c, s, *workers):
    m = await dask_hpc.manage(c)
    first = await fed(s)
    assert first["whole"]["jobs"] == [] and first["whole"]["head"]["allotted"] == 0
    with dask_hpc.job("big", nodes=2):
        f = c.submit(blocked, "go")
    await until(s, "big", "running")
    with dask_hpc.job("</script><b>late", nodes=2):
        g = c.submit(inc, 1)
    await until(s, "</script><b>late", "waiting")
    whole = await until_fed(s, lambda whole: len(whole["jobs"]) == 2)
    big, late = whole["jobs"]
    assert (big["state"], late["state"]) == ("running", "waiting")
    assert late["waiting_because"] == "needs 2 nodes, 1 idle"
    assert whole["changes"] == [[whole["changes"][0][0], big["id"], [[0, 1]], ANY]]
    assert "first in the queue, 3 nodes idle" in whole["changes"][0][3]
    assert whole["head"]["allotted"] == 2 and whole["signs"]["start"] == "▶"
    # who comes back is told what is new, in order
    news = (await fed(s, first["count"]))["news"]
    assert [one["head"]["count"] for one in news] == list(
        range(first["count"] + 1, whole["head"]["count"] + 1)
    )
    number = next(row[0] for row in whole["story"] if row[2] == "start")
    assert json.loads(await get(s, f"/hpc-feed?why={number}"))["rule"].startswith("queue: ")
    assert json.loads(await get(s, "/hpc-feed?why=99999")) is None
    await Event("go").set()
    assert await g == 2
    await f
    whole = await until_fed(s, lambda whole: all(job["state"] == "done" for job in whole["jobs"]))
    assert whole["figures"]["completed"] == 2 and whole["figures"]["mean_wait"] > 0
    assert [job["response"] > job["waited"] >= 0 for job in whole["jobs"]] == [True, True]
    await m.close()
    assert not await is_there(s, "/hpc-feed")


@shown
async def test_a_job_whose_tasks_raised_has_failed(c, s, *workers):
    async with await dask_hpc.manage(c) as m:
        async with dask_hpc.job("fails"):
            futures = c.map(div, [1] * 4, [0] * 4, pure=False)
            futures += c.map(inc, range(2), pure=False)
        await wait(futures)
        whole = await until_fed(s, lambda whole: whole["jobs"] and is_over(whole["jobs"][0]["state"]))
        (job,) = whole["jobs"]
        assert (job["state"], job["failed"], job["finished_tasks"]) == ("failed", 4, 2)
        assert job["error"] == "ZeroDivisionError: division by zero"
        (row,) = [row for row in whole["story"] if row[2] == "fail"]
        assert row[5] == job["reason"] == f"4 tasks of it failed: {job['error']}"
        del futures
        async with dask_hpc.job("tried again"):
            future = c.submit(varying([ZeroDivisionError(), 3]), retries=1)
            assert await future == 3
        found = [(job["state"], job["failed"]) for job in (await m.status())["jobs"]]
        assert found == [("failed", 4), ("done", 0)]


@shown
async def test_a_bad_question_is_refused(c, s, *workers):
    async with await dask_hpc.manage(c):
        with pytest.raises(HTTPClientError, match="400"):
            await get(s, "/hpc-feed?count=<b>")


@shown
async def test_power_is_told_as_it_was(c, s, *workers):
    async with await dask_hpc.manage(c) as m:
        plugin = plugin_of(s)

        def sample(time, watts, lower, upper, **more):
            view = plugin.control.indices.power = PowerView(watts, "measured", 5.0, **more)
            plugin.context.find(PowerService).trace.add(time, view, lower, upper)

        sample(1.0, 100.0, 50.0, 120.0)
        sample(2.0, 130.0, 50.0, 120.0)
        why = Explanation("power: power-corridor", {}, ())
        plugin.story.add(Plan(10**6, 2.1, (Start("<b>big</b>", 1, "more"),)), {"<b>big</b>": why})
        plugin.story.tell(Happening(10**6, 2.1, "start", "<b>big</b>", ("n",), "more"))
        plugin.story.tell(Happening(10**6, 2.6, "cap", reason="less", why=why))
        plugin.story.tell(Happening(10**6, 2.7, "cap", reason="asked for"))
        sample(4.0, 110.0, 50.0, inf, forecast=PowerRange(90.0, 140.0), doubt="frozen")
        whole = (await fed(s))["whole"]
        assert [one[:4] for one in whole["samples"]] == [
            [1.0, 100.0, 50.0, 120.0],
            [2.0, 130.0, 50.0, 120.0],
            [4.0, 110.0, 50.0, None],
        ]
        assert whole["samples"][-1][4:] == [90.0, 140.0, ANY, "frozen"]
        assert whole["marks"] == [[2.1, "more", "start <b>big</b>: more"], [2.6, "other", "cap: less"]]
        status = (await m.status())["power"]
        assert status["upper"] is None and status["doubt"] == "frozen" and not status["is_steered"]


@shown
async def test_a_page_that_fails_harms_nobody(c, s, *workers):
    async with await dask_hpc.manage(c) as m:
        plugin_of(s).calls.feed = None
        with captured_logger("dask_hpc.view.service") as log, pytest.raises(HTTPClientError, match="500"):
            await fed(s)
        assert "page fails" in log.getvalue()
        async with dask_hpc.job("a"):
            assert await c.submit(inc, 1) == 2
        assert (await m.status())["errors"] == 0


@dark
async def test_no_dashboard_no_page(c, s, a):
    async with await dask_hpc.manage(c) as m:
        assert not await is_there(s, "/hpc")
        assert (await m.status())["errors"] == 0
