"""What the checkpoint service tells is on its cluster's dashboard, escaped, and among its metrics."""

from importlib.util import find_spec

import numpy as np
import pytest
from distributed.utils_test import gen_cluster
from tornado.httpclient import AsyncHTTPClient

import dask_hpc

if not find_spec("bokeh"):
    pytest.skip("Bokeh is not installed", allow_module_level=True)

from bokeh.document import Document

from dask_hpc.view.dashboard.checkpoints import checkpoints_html

shown = gen_cluster(
    client=True,
    nthreads=[("", 1)] * 2,
    scheduler_kwargs={"dashboard": True, "dashboard_address": "127.0.0.1:0"},
)
COUNTS = {
    "commits": 3, "copies": 9, "moved": 5_000_000, "unchanged": 0, "failed": 0, "recoveries": 1,
    "recovered": 4, "unrecovered": 0, "damaged": 1,
}  # fmt: skip
LAST = {"ago": 3.2, "seconds": 0.5, "moved": 2_000_000, "unchanged": 1_000_000}


def status(**changed):
    protected = {"keys": 4, "copied": 3, "nbytes": 3_000_000, "last_commit": LAST}
    return {
        "protected": [protected | {"name": "<u>", "next_due": 7.4, "why": "often <enough>"}],
        "nodes": [
            {"name": "a<b", "own": 4_000_000, "kept": {}},
            {"name": "c", "own": 0, "kept": {"a<b": 3_000_000, "": 1_000_000}},
        ],
        "exposed": 0,
        "levels": {
            "partner": {"copies": 4, "nbytes": 4_000_000},
            "disk": {"copies": 1, "nbytes": 1_000_000},
        },
        "agents": [{"address": "tcp://c", "node": "c", "budget": 1e9, "used": 4e6, "copies": 4}],
        "store": {"waiting": 0, "written": 0, "problem": ""},
        "versions": [{"name": "run<17", "version": 3, "nbytes": 1e6, "levels": ["partner", "store"]}],
        "last_commit": LAST,
        "counts": COUNTS,
        "errors": 0,
    } | changed


def test_the_panel_says_what_is_protected_where_copies_are_and_when_the_next_is_due():
    html = checkpoints_html(status())
    assert "<u>" not in html and "run<17" not in html and "a<b" not in html
    assert "<b>3 of 4</b>" in html and 'class="bad">3 of 4' in html
    assert "last commit: 0.5 s, 2 MB moved, 1 MB unchanged" in html
    assert "<b>7 s</b><span>until the next commit</span>" in html and "in 7 s" in html
    assert "3 commits, 5 MB moved, 1 recovery of 4 results, 1 copy unreadable" in html
    assert "run&lt;17" in html and "partner, store" in html
    assert "c holds 0 B, keeps copies of 3 MB of a&lt;b, 1 MB of no node" in html
    assert "often &lt;enough&gt;" in html
    assert "4 copies on other nodes" in html and "1 copy of them on disk" in html
    assert "own node only" not in html and "no store" not in html
    assert "2 MB</b><span>on their way to the store" in checkpoints_html(
        status(store={"waiting": 2_000_000, "written": 0, "problem": ""})
    )


def test_what_is_not_safe_is_red():
    store = {"waiting": 5, "written": 0, "problem": "<full>"}
    html = checkpoints_html(status(exposed=2, counts=COUNTS | {"unrecovered": 1}, store=store))
    assert (
        "&lt;full&gt;" in html
        and html.count('class="card bad"') == 3
        and "copies on their own node only" in html
    )


def test_nothing_is_protected_yet():
    assert "Nothing is protected yet" in checkpoints_html(None)
    bare = status(protected=[], nodes=[], levels={}, agents=[], versions=[], last_commit=None)
    assert "Nothing is protected now" in checkpoints_html(bare)


def opened(s, path):
    application = next(a for a in s.http_application.applications if path in getattr(a, "applications", {}))
    document = Document()
    application.applications[path].application.initialize_document(document)
    return document


def panel(document):
    divs = (one for one in document.models if type(one).__name__ == "Div")
    return next(one for one in divs if "protected" in one.text.lower())


@shown
async def test_the_page_and_the_metrics_follow_what_happens(c, s, *workers):
    async with await dask_hpc.manage(c):
        alone = opened(s, "/individual-hpc-checkpoints")
        assert "Nothing is protected yet" in panel(alone).text and panel(alone).visible
        beside = opened(s, "/hpc")
        assert not panel(beside).visible
        y = await c.scatter(np.arange(1000), hash=False)
        await dask_hpc.protect(y, name="y", client=c)
        await dask_hpc.protected("y", wait=True, client=c)
        await dask_hpc.protected("y", wait=True, client=c)
        for document in (alone, beside):
            for callback in document.session_callbacks:
                callback.callback()
            assert "<b>1 of 1</b>" in panel(document).text and panel(document).visible
        if find_spec("prometheus_client"):
            url = f"http://127.0.0.1:{s.http_server.port}/metrics"
            page = (await AsyncHTTPClient().fetch(url)).body.decode()
            said = {line.partition("{")[0]: line for line in page.splitlines() if "checkpoint" in line}
            assert said["dask_hpc_checkpoint_bytes"].endswith(" 8000.0")
            assert said["dask_hpc_checkpoint_commits_total"].endswith(" 1.0")
            assert said["dask_hpc_checkpoint_exposed"].endswith(" 0.0")
            assert said["dask_hpc_checkpoint_store_waiting_bytes"].endswith(" 0.0")
