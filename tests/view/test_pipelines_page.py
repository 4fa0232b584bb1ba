"""What pipelines tell their cluster is on its dashboard, escaped, and among its metrics."""

from importlib.util import find_spec

import pytest
from distributed.utils_test import gen_cluster
from served_page import fed, until_fed
from tornado.httpclient import AsyncHTTPClient

import dask_hpc
from dask_hpc.cluster.request import ask
from dask_hpc.planning.in_situ.partition import Partition, Phases, tell_iteration, tell_partition
from dask_hpc.view.in_situ import pipelines_html

FIRST = Partition("async", 3, 1, ("front", "spectrum"), (), Phases(0.5, 0.4, 0))
SECOND = Partition("async", 2, 1, ("front",), ("spectrum",), Phases(0.8, 0.1, 0.7))
shown = gen_cluster(
    client=True,
    nthreads=[("", 1)] * 2,
    scheduler_kwargs={"dashboard": True, "dashboard_address": "127.0.0.1:0"},
)


def heat(**changed):
    changes = [
        {"iteration": at, "time": 3.0 * at, "reason": why, "partition": tell_partition(partition)}
        for at, why, partition in ((0, "as declared", FIRST), (8, "spectrum takes 4 s, not <0.4 s>", SECOND))
    ]
    return {
        "name": "heat",
        "state": "running",
        "job": None,
        "iteration": 12,
        "iterations": 20,
        "nodes": ["a", "b", "c", "d"],
        "cores": 4,
        "analyses": ["front", "spectrum"],
        "when_slow": "skip",
        "partition": tell_partition(SECOND),
        "history": [
            tell_iteration(at, 1.0, Phases(0.5, 0.4, 0.3), FIRST if at < 8 else SECOND) for at in range(12)
        ],
        "changes": changes,
        "changed": 2,
        "skipped": {"spectrum": {"count": 2, "newest": [6, 7], "how": "skip"}},
    } | changed


def test_a_panel_says_who_runs_where_what_was_skipped_and_why_it_was_divided_anew():
    html = pipelines_html([heat()])
    assert "heat <span>running, 12 of 20 iterations done" in html
    assert 'class="partition"' in html and 'class="phases"' in html
    assert html.index("spectrum takes 4 s, not &lt;0.4 s&gt;</td>") < html.index(
        "as declared</td>"
    )  # newest first
    assert "<0.4 s>" not in html
    assert '<span title="newest: 6, 7">2 iterations (skip)</span>' in html


def test_those_that_run_come_first_and_one_that_has_just_begun_is_shown():
    new = heat(name="<new>", partition=None, history=[], changes=[], skipped={}, iteration=0, iterations=None)
    html = pipelines_html([heat(state="done", name="old"), new])
    assert html.index("&lt;new&gt;") < html.index("old") and "<new>" not in html
    assert "running, 0 iterations done" in html


def test_no_pipeline_yet():
    assert pipelines_html([]) == ""


@shown
async def test_the_feed_of_the_page_has_its_picture(c, s, *workers):
    pytest.importorskip("bokeh")
    async with await dask_hpc.manage(c):
        first = await fed(s)
        assert first["whole"]["drawn_pipelines"] == ""
        await ask(c, "hpc_pipeline", id="1", client_id=c.id, status=heat())
        await until_fed(s, lambda whole: "12 of 20 iterations" in whole["drawn_pipelines"])
        page = await AsyncHTTPClient().fetch(f"http://127.0.0.1:{s.http_server.port}/metrics")
        if find_spec("prometheus_client"):
            assert 'dask_hpc_pipeline_iterations_total{pipeline="heat"' in page.body.decode()
