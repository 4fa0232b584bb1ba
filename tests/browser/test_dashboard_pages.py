"""The dashboard's pages in a real browser: what happens is drawn; control opens with its address only."""

import importlib.util
import os
import re
import time
from pathlib import Path

import pytest
from distributed import Client, LocalCluster
from rig import browser, chromium, new_page

import dask_hpc

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(chromium() is None, reason="needs Debian's chromium"),
    pytest.mark.skipif(importlib.util.find_spec("playwright") is None, reason="needs playwright"),
    pytest.mark.skipif(importlib.util.find_spec("bokeh") is None, reason="needs bokeh"),
    pytest.mark.filterwarnings("ignore"),
]


def test_bounds_from_the_page():
    pictures = Path(os.environ.get("DASK_HPC_PICTURES", "test-pictures"))
    pictures.mkdir(exist_ok=True)
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
        dask_hpc.manage(client, "power-corridor") as manager,
        browser(pictures, "control-page") as chrome,
    ):
        address, before = manager.control_page(), manager.set()["policy"]
        stranger = new_page(chrome)
        stranger.goto(address.partition("?")[0])
        stranger.get_by_text("manager.control_page()").wait_for()
        assert stranger.get_by_role("button").count() == 0
        stranger.close()

        page = new_page(chrome, 900, 500)
        page.goto(address)
        upper = page.get_by_label("power not above")
        upper.fill("much")
        upper.press("Tab")
        page.get_by_role("button", name="Apply bounds").click()
        page.get_by_text("power.upper: found 'much'").wait_for()
        assert manager.set()["policy"] == before
        upper.fill("950 W")
        upper.press("Tab")
        page.get_by_role("button", name="Apply bounds").click()
        page.get_by_text("at most 950 W").wait_for()
        assert "upper: 950 W" in manager.set()["policy"]
        page.screenshot(path=pictures / "control-page.png")
        page.get_by_role("button", name="Undo").click()
        page.get_by_text("at most 950 W").wait_for(state="detached")
        assert manager.set()["policy"] == before
        assert page.complaints == []


def test_what_happens_is_on_the_page():
    pictures = Path(os.environ.get("DASK_HPC_PICTURES", "test-pictures"))
    pictures.mkdir(exist_ok=True)
    evil = "<img src=x onerror=alert(1)>"
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
        dask_hpc.manage(client, "easy-backfill") as manager,
        browser(pictures, "hpc-page") as chrome,
    ):
        with dask_hpc.job(evil, nodes=1):
            busy = client.map(time.sleep, [0.1] * 100, pure=False)
        page = new_page(chrome, 1024, 900)
        page.goto(cluster.dashboard_link.replace("/status", "/hpc"))
        page.locator(".dh-jobs [role=row]", has_text=evil).wait_for()
        page.locator(".dh-headline", has_text=re.compile(r"1 of 2\s*nodes allotted")).wait_for()
        row = page.locator(".dh-story button", has_text="start").first
        row.click()
        page.get_by_text("queue: easy-backfill").wait_for()
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.screenshot(path=pictures / f"hpc-{scheme}.png", full_page=True)
        assert page.locator("img").count() == 0
        assert page.locator(".dh-lanes").is_hidden()  # nothing is in a lane
        client.cancel(busy)
        assert page.complaints == []
        manager.close()
        page.get_by_text("closed: this cluster is not managed any more").first.wait_for()
