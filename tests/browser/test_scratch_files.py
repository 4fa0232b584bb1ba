"""Scratch files in a real browser: on the dashboard's page, and in a tab of the room, while there are any."""

import importlib.util
import json
import os
from pathlib import Path

import pytest
from distributed import Client, LocalCluster
from rig import DARK, ROOM, browser, chromium, new_page, served_kit

import dask_hpc
from dask_hpc.view import kit

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(chromium() is None, reason="needs Debian's chromium"),
    pytest.mark.skipif(importlib.util.find_spec("playwright") is None, reason="needs playwright"),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture
def pictures():
    """Where screenshots go."""
    folder = Path(os.environ.get("DASK_HPC_PICTURES", "test-pictures"))
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def managed():
    """A cluster of three nodes, under control."""
    with (
        LocalCluster(
            n_workers=3, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
        dask_hpc.manage(client, "easy-backfill") as manager,
    ):
        yield manager


def filled(manager):
    files = dask_hpc.MemoryFiles("scratch", block="4 kiB", recommended="1 TB/s", client=manager.client)
    for number in range(4):
        files.fs.pipe(files.url(f"run/{number}"), b"x" * 9000)
    files.fs.info(files.url("run/0"))  # how fast that was goes along
    return files


@pytest.mark.skipif(importlib.util.find_spec("bokeh") is None, reason="needs bokeh")
def test_the_page_has_them_while_there_are_any(managed, pictures):
    with browser(pictures, "scratch-files") as chrome:
        page = new_page(chrome, 1024, 900)
        page.goto(managed.client.dashboard_link.replace("/status", "/hpc"))
        panel = page.locator(".dh-scratch")
        page.locator(".dh-story .dh-line").first.wait_for()
        assert panel.is_hidden()
        with filled(managed):
            panel.get_by_text("36 kB in 4 files").wait_for()
            panel.get_by_text("1 TB/s recommended").wait_for()
            ends = panel.locator(".dh-bar").evaluate_all(
                "all => all.map(one => one.getBoundingClientRect().right)"
            )
            assert len(ends) == 4 and max(ends) - min(ends) < 1  # of the same scale
            assert page.locator(".dh-checkpoints").is_hidden()  # nothing is protected
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                page.screenshot(path=pictures / f"hpc-files-{scheme}.png", full_page=True)
        panel.wait_for(state="hidden")
        assert page.complaints == []


@pytest.mark.skipif(importlib.util.find_spec("anywidget") is None, reason="needs anywidget")
def test_the_control_room_has_a_tab_while_there_are_any(managed, pictures):
    from dask_hpc_widgets import ControlRoom

    room = ControlRoom(managed)
    state = {key: one for key, one in room.get_state().items() if not key.startswith("_") and key != "layout"}
    with filled(managed):
        row = managed.client.sync(managed.client.scheduler.hpc_files_status, name="scratch")
    whole = {**managed.watch.course.whole(), "files": None}
    given = json.dumps({"state": state, "whole": whole}, default=list).replace("<", "\\u003c")
    with browser(pictures, "files-tab") as chrome:
        page = new_page(chrome, 1100, 800)
        style = kit.style().replace("<", "\\3c ")
        served_kit(page, ROOM.format(style=style, given=given), room._esm)
        tab = page.get_by_role("tab", name="Files")
        last = page.get_by_role("tab", name="Checkpoints")
        last.wait_for()
        assert tab.is_hidden()
        page.get_by_role("tab", name="Jobs").press("ArrowLeft")
        assert last.get_attribute("aria-selected") == "true"  # what is not seen is passed over
        page.evaluate("row => tell({ files: [row] })", json.loads(json.dumps(row, default=list)))
        last.press("ArrowRight")
        assert tab.get_attribute("aria-selected") == "true"
        page.locator(".dh-scratch").get_by_text("36 kB in 4 files").wait_for()
        page.screenshot(path=pictures / "files-tab-light.png")
        if DARK.exists():
            page.add_style_tag(path=DARK)
            page.screenshot(path=pictures / "files-tab-dark.png")
        page.evaluate("() => tell({ files: null })")
        assert tab.is_hidden() and page.locator(".dh-scratch").is_hidden()
        assert page.get_by_role("tab", name="Jobs").get_attribute("aria-selected") == "true"
        assert page.complaints == []
    room.close()
