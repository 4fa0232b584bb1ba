"""The pages are there while a cluster is managed, tell what happens, and are gone afterwards."""

import json
import re
from importlib.util import find_spec
from math import inf, isnan
from time import monotonic

import pytest
from distributed import Client, Event, LocalCluster
from distributed.utils_test import gen_cluster, inc
from small_cluster import blocked, plugin_of, until
from tornado.httpclient import AsyncHTTPClient, HTTPClientError

import dask_hpc

if not find_spec("bokeh"):
    pytest.skip("Bokeh is not installed", allow_module_level=True)

from bokeh.document import Document

from dask_hpc.model.plan import Plan, Start
from dask_hpc.model.power import PowerRange, PowerView
from dask_hpc.model.story import Explanation, Happening
from dask_hpc.view.dashboard.html import cards, decisions_table, jobs_table, show_clock

PAGES = [
    "/hpc",
    "/individual-hpc-allotments",
    "/individual-hpc-checkpoints",
    "/individual-hpc-decisions",
    "/individual-hpc-jobs",
    "/individual-hpc-pipelines",
    "/individual-hpc-file-systems",
    "/individual-hpc-power",
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


async def get(s, path):
    url = f"http://127.0.0.1:{s.http_server.port}{path}"
    return (await AsyncHTTPClient().fetch(url)).body.decode()


async def is_there(s, path):
    try:
        await get(s, path)
    except HTTPClientError as error:
        assert error.code == 404
        return False
    return True


def opened(s, path):
    """The document that a browser would get."""
    application = next(a for a in s.http_application.applications if path in getattr(a, "applications", {}))
    document = Document()
    application.applications[path].application.initialize_document(document)
    return document


def look(document):
    for callback in document.session_callbacks:
        callback.callback()


def texts(document):
    return " ".join(model.text for model in document.models if type(model).__name__ == "Div")


def blocks(document):
    """(job, its nodes, whether time goes forward) of everything that is drawn."""
    found = set()
    for model in document.models:
        if type(model).__name__ == "ColumnDataSource" and "job" in model.data:
            columns = (model.data[name] for name in ("job", "names", "left", "right"))
            found |= {
                (job.rpartition("-")[0], names, left <= right)
                for job, names, left, right in zip(*columns, strict=True)
            }
    return found


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
async def test_all_comes_from_the_scheduler(c, s, *workers):
    async with await dask_hpc.manage(c):
        for path in PAGES:
            page = await get(s, path)
            sources = re.findall(r'<script[^>]* src="([^"]+)"', page)
            assert sources
            for source in sources:
                assert not source.startswith(("http", "//")), source
                assert await is_there(s, "/" + source.lstrip("/"))


@prefixed
async def test_behind_a_prefix(c, s, a):
    async with await dask_hpc.manage(c):
        assert await is_there(s, "/some/where/hpc")
    assert not await is_there(s, "/some/where/hpc")


@shown
async def test_what_a_page_tells(c, s, *workers):
    m = await dask_hpc.manage(c)
    document = opened(s, "/hpc")
    assert "No job yet" in texts(document) and "0 of 3" in texts(document)
    with dask_hpc.job("big", nodes=2):
        f = c.submit(blocked, "go")
    await until(s, "big", "running")
    with dask_hpc.job("<b>late</b>", nodes=2):
        g = c.submit(inc, 1)
    await until(s, "<b>late</b>", "waiting")
    look(document)
    told = texts(document)
    assert "2 of 3" in told and "needs 2 nodes, 1 idle" in told
    assert "&lt;b&gt;late&lt;/b&gt;" in told and "<b>late" not in told
    assert "first in the queue, 3 nodes idle" in told and "▶ start" in told
    assert blocks(document) == {("big", "0, 1", True)}
    await Event("go").set()
    assert await g == 2
    await f
    await until(s, "<b>late</b>", "done")
    look(document)
    assert {job for job, _, _ in blocks(document)} == {"big", "<b>late</b>"}
    for path in PAGES[1:]:
        assert opened(s, path).roots
    await m.close()
    look(document)
    assert "closed" in texts(document)
    assert not document.session_callbacks  # the page rests


@shown
async def test_power_is_drawn_as_it_was(c, s, *workers):
    async with await dask_hpc.manage(c) as m:
        document = opened(s, "/hpc")
        (plot,) = (one for one in document.models if getattr(getattr(one, "title", 0), "text", 0) == "Power")
        assert not plot.visible
        plugin = plugin_of(s)

        def sample(time, watts, lower, upper, **more):
            view = plugin.control.indices.power = PowerView(watts, "measured", 5.0, **more)
            plugin.power_trace.add(time, view, lower, upper)

        sample(1.0, 100.0, 50.0, 120.0)
        sample(2.0, 130.0, 50.0, 120.0)
        why = Explanation("power: power-corridor", {}, ())
        plugin.story.add(Plan(10**6, 2.1, (Start("<b>big</b>", 1, "more"),)), {"<b>big</b>": why})
        plugin.story.tell(Happening(10**6, 2.1, "start", "<b>big</b>", ("n",), "more"))
        plugin.story.tell(Happening(10**6, 2.6, "cap", reason="less", why=why))
        plugin.story.tell(Happening(10**6, 2.7, "cap", reason="asked for"))
        look(document)
        sample(3.0, 110.0, 50.0, 120.0)
        sample(4.0, 110.0, 50.0, inf, forecast=PowerRange(90.0, 140.0), doubt="frozen")
        look(document)
        assert plot.visible
        drawn = [model.data for model in document.models if type(model).__name__ == "ColumnDataSource"]
        (trace,) = (data for data in drawn if "red" in data)
        (band,) = (data for data in drawn if len(data) == 4 and len(data.get("right", "")) == 2)
        (ahead,) = (data for data in drawn if "least" in data)
        (marks,) = (data for data in drawn if "sign" in data)
        assert list(trace["watts"]) == [100, 130, 110, 110]
        assert [not isnan(value) for value in trace["red"]] == [False, True, True, False]
        assert list(trace["edge"]) == [100, 120, 110, 110]
        assert "at least 50 W" in trace["said"][-1] and "frozen" in trace["said"][-1]
        assert list(zip(band["left"], band["right"], band["bottom"], strict=True)) == [(1, 4, 50), (4, 4, 50)]
        assert band["top"][0] == 120 and band["top"][1] > plot.y_range.end > 140
        assert ahead["least"] == [110, 90] and ahead["most"] == [110, 140]
        assert (marks["time"], marks["watts"], marks["sign"]) == (
            [2.1, 2.6],
            [130, 130],
            ["triangle", "square"],
        )
        assert "&lt;b&gt;big" in marks["said"][0]
        status = (await m.status())["power"]
        assert status["upper"] is None and status["doubt"] == "frozen" and not status["is_steered"]
        assert "power corridor" not in texts(document)  # a figure only where somebody steers


@shown
async def test_a_page_that_fails_harms_nobody(c, s, *workers):
    async with await dask_hpc.manage(c) as m:
        document = opened(s, "/hpc")
        plugin_of(s).calls.status = None
        look(document)
        assert not document.session_callbacks
        async with dask_hpc.job("a"):
            assert await c.submit(inc, 1) == 2
        assert (await m.status())["errors"] == 0


@dark
async def test_no_dashboard_no_page(c, s, a):
    async with await dask_hpc.manage(c) as m:
        assert not await is_there(s, "/hpc")
        assert (await m.status())["errors"] == 0


def test_a_real_session_sees_what_happens():
    """Over the websocket, as a browser does."""
    from bokeh.client import pull_session

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        dask_hpc.manage(client),
    ):
        url = cluster.dashboard_link.replace("/status", "/hpc")
        with pull_session(url=url) as session:
            assert "No job yet" in texts(session.document)
            with dask_hpc.job("seen"):
                assert client.submit(inc, 1).result() == 2
            deadline, seen = monotonic() + 20, session.document
            while ("seen", "0", True) not in blocks(seen) or "■ end" not in texts(seen):
                assert monotonic() < deadline
                with pull_session(session_id=session.id, url=url) as again:  # the same page, as it is now
                    seen = again.document


def test_tables():
    assert show_clock(7.55) == "0:07.5" and show_clock(3661) == "1:01:01" and show_clock(-1) == "0:00.0"
    assert "Nothing has been decided" in decisions_table([], str)
    assert "No job yet" in jobs_table({"jobs": []}, 0.0, str)


def test_figures_of_power():
    base = {"nodes": [], "jobs": [], "holds": [], "state": "on", "policy": "p", "resizes": 0, "errors": 0}
    base["results_lost"] = 0
    power = {"is_steered": True, "watts": 1830.0, "source": "measured", "uncertainty": 20.0, "lower": 1700.0}
    power |= {"upper": None, "is_outside": False, "verdict": None, "doubt": "", "violations": 2}
    power["seconds_outside"] = 12.0
    assert "power" not in cards(base | {"power": None}, True)
    assert "power" not in cards(base | {"power": power | {"is_steered": False}}, True)
    shown = cards(base | {"power": power}, True)
    assert "1.83 kW" in shown and "measured ± 20 W" in shown and "at least 1.7 kW" in shown
    assert "inside" in shown and "violations: 2" in shown and "bad" not in shown
    shown = cards(base | {"power": power | {"upper": 1800.0, "is_outside": True}}, True)
    assert "1.7 kW to 1.8 kW" in shown and "outside" in shown and shown.count(" bad") == 2
    verdict = {"is_kept": False, "reason": "no <work>"}
    shown = cards(base | {"power": power | {"verdict": verdict}}, True)
    assert "cannot be kept" in shown and "no &lt;work&gt;" in shown
    assert "careful" in cards(base | {"power": power | {"doubt": "frozen"}}, True)
