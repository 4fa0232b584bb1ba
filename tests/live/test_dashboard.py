"""The pages are there while a cluster is managed, tell what happens, and are gone afterwards."""

import json
import re
from importlib.util import find_spec
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

from dask_hpc.live.dashboard_html import decisions_table, jobs_table, show_clock

PAGES = ["/hpc", "/individual-hpc-allotments", "/individual-hpc-decisions", "/individual-hpc-jobs"]
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
            while ("seen", "0", True) not in blocks(seen):
                assert monotonic() < deadline
                with pull_session(session_id=session.id, url=url) as again:  # the same page, as it is now
                    seen = again.document
            assert "■ end" in texts(seen)


def test_tables():
    assert show_clock(7.55) == "0:07.5" and show_clock(3661) == "1:01:01" and show_clock(-1) == "0:00.0"
    assert "Nothing has been decided" in decisions_table([], str)
    assert "No job yet" in jobs_table({"jobs": []}, 0.0, str)
