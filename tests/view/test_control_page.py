"""The page on which things can be changed: it opens with its address only, and refuses what others refuse."""

import json
from importlib.util import find_spec

import pytest
from distributed.utils_test import gen_cluster
from served_page import get
from small_cluster import plugin_of
from tornado.httpclient import HTTPClientError

import dask_hpc
from dask_hpc.view.service import DashboardService

if not find_spec("bokeh"):
    pytest.skip("Bokeh is not installed", allow_module_level=True)

shown = gen_cluster(
    client=True,
    nthreads=[("", 1)] * 2,
    scheduler_kwargs={"dashboard": True, "dashboard_address": "127.0.0.1:0"},
)
dark = gen_cluster(client=True, nthreads=[("", 1)])


@shown
async def test_only_who_has_the_address_gets_in(c, s, *workers):
    async with await dask_hpc.manage(c, "fcfs") as m:
        address = await m.control_page()
        token = address.rpartition("=")[2]
        assert address.startswith("http://127.0.0.1:") and "/hpc-control?token=" in address
        assert len(token) >= 20 and token == plugin_of(s).context.find(DashboardService).token
        assert '"control_page"' in await get(s, f"/hpc-control?token={token}")
        for wrong in ("", "?token=", f"?token={token[:-1]}", f"?token={'x' * 22}"):
            page = await get(s, f"/hpc-control{wrong}")
            assert "manager.control_page()" in page and token not in page and "daskHpc" not in page
            sent = json.dumps({"token": wrong.rpartition("=")[2], "asked": {"action": "pause"}})
            with pytest.raises(HTTPClientError, match="403"):
                await get(s, "/hpc-control", method="POST", body=sent)
        for body in ("", "[]", "{}", '"x"'):
            with pytest.raises(HTTPClientError, match="400"):
                await get(s, "/hpc-control", method="POST", body=body)
        assert (await m.status())["state"] == "on"
    with pytest.raises(HTTPClientError, match="404"):
        await get(s, f"/hpc-control?token={token}")


@dark
async def test_without_a_dashboard_there_is_no_page(c, s, a):
    async with await dask_hpc.manage(c) as m:
        assert await m.control_page() is None


@shown
async def test_changes_and_refusals(c, s, *workers):
    async with await dask_hpc.manage(c, "power-corridor") as m:
        token = plugin_of(s).context.find(DashboardService).token

        async def ask(**asked):
            sent = json.dumps({"token": token, "asked": asked})
            return json.loads(await get(s, "/hpc-control", method="POST", body=sent))

        before = (await m.set())["policy"]
        assert "in force" in (await ask(changes={"power.upper": "900 W"}))["done"]
        assert "upper: 900 W" in (await m.set())["policy"]
        assert "power.upper" in (await ask(changes={"power.upper": "much"}))["problem"]
        assert "asked" in (await ask(other=1))["problem"]
        assert "upper: 900 W" in (await m.set())["policy"]
        await ask(action="undo")
        assert (await m.set())["policy"] == before
        assert "paused" in (await ask(action="pause"))["done"]
        await ask(policy="fcfs")
        assert (await m.set())["name"] == "fcfs"
