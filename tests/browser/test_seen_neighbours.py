"""Kinds of tasks in a real browser: on the dashboard's page, in a tab of the room, while they are watched."""

import importlib.util
import json
import os
from pathlib import Path

import dask
import pytest
from distributed import Client, LocalCluster
from distributed.utils_test import slowinc
from rig import DARK, ROOM, browser, chromium, new_page, served_kit, until

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
    """A cluster that has run tasks of two kinds and has watched them."""
    with (
        dask.config.set({"hpc.history": None}),
        LocalCluster(
            n_workers=2, threads_per_worker=2, memory_limit="1 GB",
            dashboard_address=":0",
        ) as cluster,
        Client(cluster) as client,
        dask_hpc.manage(client, "together") as manager,
    ):  # fmt: skip
        manager.set(**{"memory.strategy": "memory-lanes"})
        long = "a-kind-of-tasks-whose-name-does-not-fit-anywhere"
        some = [client.map(slowinc, range(30), delay=0.02, key=[f"{kind}-{i}" for i in range(30)])
                for kind in ("first", long)]  # fmt: skip
        client.gather(some)
        until(lambda: all(len(found(manager)[of]["kinds"]) == 2 for of in ("neighbours", "memory")), 20)
        yield manager


def found(manager):
    return manager.status()["together"]


@pytest.mark.skipif(importlib.util.find_spec("bokeh") is None, reason="needs bokeh")
def test_the_page_has_them_while_they_are_watched(managed, pictures):
    with browser(pictures, "neighbours") as chrome:
        page = new_page(chrome, 1024, 900)
        page.goto(managed.client.dashboard_link.replace("/status", "/hpc"))
        panel = page.locator(".dh-neighbours")
        panel.get_by_role("columnheader", name="first").wait_for()
        rows = panel.locator("tbody tr")
        assert rows.count() == 2 and panel.locator("tbody td:is(.dh-heat, .dh-cool)").count() == 4
        ends = "all => all.map(one => one.getBoundingClientRect().right)"
        bars = panel.locator(".dh-bar").evaluate_all(ends)
        assert len(bars) == 2 and max(bars) - min(bars) < 1  # of the same scale
        for width in (1024, 420):
            page.set_viewport_size({"width": width, "height": 900})
            edge = panel.evaluate("one => one.getBoundingClientRect().right")
            inside = panel.locator(".dh-needs *, .dh-card, .dh-slowdowns").evaluate_all(ends)
            assert max(inside) <= edge <= width
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                panel.screenshot(path=pictures / f"neighbours-{width}-{scheme}.png")
        managed.set("easy-backfill")
        panel.wait_for(state="hidden")
        assert page.complaints == []


@pytest.mark.skipif(importlib.util.find_spec("anywidget") is None, reason="needs anywidget")
def test_the_control_room_has_a_tab_while_they_are_watched(managed, pictures):
    from dask_hpc_widgets import ControlRoom

    room = ControlRoom(managed)
    until(lambda: room.seen().get("together"), 20)
    state = {key: one for key, one in room.get_state().items() if not key.startswith("_") and key != "layout"}
    given = json.dumps({"state": state, "whole": room.seen()}, default=list).replace("<", "\\u003c")
    with browser(pictures, "neighbours-tab") as chrome:
        page = new_page(chrome, 1100, 800)
        style = kit.style().replace("<", "\\3c ")
        served_kit(page, ROOM.format(style=style, given=given), room._esm)
        tab = page.get_by_role("tab", name="Neighbours")
        tab.click()
        page.locator(".dh-neighbours").get_by_role("columnheader", name="first").wait_for()
        page.screenshot(path=pictures / "neighbours-tab-light.png")
        if DARK.exists():
            page.add_style_tag(path=DARK)
            page.screenshot(path=pictures / "neighbours-tab-dark.png")
        page.evaluate("() => tell({ together: null })")
        assert tab.is_hidden() and page.locator(".dh-neighbours").is_hidden()
        assert page.get_by_role("tab", name="Jobs").get_attribute("aria-selected") == "true"
        assert page.complaints == []
    room.close()
