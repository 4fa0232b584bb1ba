"""The page on which things can be changed: it opens with its address only, and refuses what others refuse."""

from importlib.util import find_spec
from types import SimpleNamespace

import pytest
from distributed.utils_test import gen_cluster
from small_cluster import plugin_of

import dask_hpc

if not find_spec("bokeh"):
    pytest.skip("Bokeh is not installed", allow_module_level=True)

from bokeh.document import Document

from dask_hpc.view.dashboard.control import Form, control_page

shown = gen_cluster(
    client=True,
    nthreads=[("", 1)] * 2,
    scheduler_kwargs={"dashboard": True, "dashboard_address": "127.0.0.1:0"},
)
dark = gen_cluster(client=True, nthreads=[("", 1)])


def opened(plugin, token, given):
    """The document of a browser that came with these arguments."""
    document = Document()
    request = SimpleNamespace(arguments=given)
    document._session_context = lambda: SimpleNamespace(request=request)
    control_page(plugin, token, plugin.scheduler, {}, document)
    return " ".join(model.text for model in document.models if type(model).__name__ == "Div")


@shown
async def test_only_who_has_the_address_gets_in(c, s, *workers):
    async with await dask_hpc.manage(c, "fcfs") as m:
        address = await m.control_page()
        token = address.rpartition("=")[2]
        assert address.startswith("http://127.0.0.1:") and "/hpc-control?token=" in address
        plugin = plugin_of(s)
        assert len(token) >= 20 and token == plugin._dashboard.token
        assert "policy <b>fcfs</b>" in opened(plugin, token, {"token": [token.encode()]})
        for wrong in ({}, {"token": [b""]}, {"token": [token[:-1].encode()]}, {"token": [b"x" * 22]}):
            assert "manager.control_page()" in opened(plugin, token, wrong)
    assert not any("hpc-control" in page for page in s.http_application.applications[0].applications)


@dark
async def test_without_a_dashboard_there_is_no_page(c, s, a):
    async with await dask_hpc.manage(c) as m:
        assert await m.control_page() is None


@shown
async def test_changes_and_refusals(c, s, *workers):
    async with await dask_hpc.manage(c, "power-corridor") as m:
        form = Form(plugin_of(s))
        form.upper.value = "900 W"
        form.do(changes=form.bounds)
        assert "upper: 900 W" in (await m.set())["policy"]
        assert "at most 900 W" in form.state.text and "in force" in form.message.text
        form.upper.value = "<b>much</b>"
        form.do(changes=form.bounds)
        assert "power.upper" in form.message.text and "<b>much" not in form.message.text
        assert "upper: 900 W" in (await m.set())["policy"]
        form.do(action="undo")
        assert "upper: none" in (await m.set())["policy"] or "900" not in (await m.set())["policy"]
        form.do(action="pause")
        assert form.pause.label == "Resume" and "paused" in form.state.text
        form.do(policy="fcfs")
        assert "no power strategy" in form.state.text and (await m.set())["name"] == "fcfs"
