"""``dask-hpc lab`` as a new user meets it: the page opens on the notebook, whose cells all run, and the
control room is beside it after two Shift+Enter."""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest
from rig import FLAGS, chromium, free_port, new_page, wait_for_answer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timed,
    pytest.mark.skipif(chromium() is None, reason="needs Debian's chromium"),
    pytest.mark.skipif(importlib.util.find_spec("playwright") is None, reason="needs playwright"),
    pytest.mark.filterwarnings("ignore"),
]


def test_all_cells_of_the_notebook_run(tmp_path):
    from playwright.sync_api import sync_playwright

    port, place = free_port(), tmp_path / "work"
    place.mkdir()
    mine = {name: os.environ[name] for name in os.environ if not name.startswith("JUPYTER")}
    mine |= {"HOME": str(tmp_path), "IPYTHONDIR": str(tmp_path / "ipython"), "JUPYTER_TOKEN": "secret"}
    command = [sys.executable, "-m", "dask_hpc", "lab", "--no-browser", f"--port={port}"]
    began = time.monotonic()
    with (tmp_path / "lab.log").open("wb") as log:
        server = subprocess.Popen(command, cwd=place, env=mine, stdout=log, stderr=log)
    try:
        wait_for_answer(f"http://127.0.0.1:{port}/api", server, log.name)
        with sync_playwright() as playwright:
            chrome = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
            page = new_page(chrome)
            page.goto(f"http://127.0.0.1:{port}/?token=secret")
            page.wait_for_selector(".jp-Notebook .jp-Cell")
            page.get_by_text("| Idle").wait_for()  # what is run before the kernel is there is lost
            # as the notebook says: Shift+Enter in each cell
            page.locator(".jp-Notebook .jp-Cell").first.click()
            page.keyboard.press("Shift+Enter")
            page.keyboard.press("Shift+Enter")
            beside = page.locator(".jp-LinkedOutputView")
            beside.locator(".dh-allotments canvas").wait_for()
            print(f"the control room is there after {time.monotonic() - began:.1f} s")
            beside.locator(".dh-figure", has_text=re.compile(r"[1-9]\d*\s*running")).wait_for()
            print(f"jobs run in it after {time.monotonic() - began:.1f} s")
            notebook = page.locator(".jp-NotebookPanel").bounding_box()
            stands = beside.bounding_box()
            assert stands["x"] >= notebook["x"] + notebook["width"] and stands["width"] > 500
            room = beside.locator(".dask-hpc-room").bounding_box()
            assert all(abs(room[side] - stands[side]) < 2 for side in ("y", "width", "height")), room
            for _ in notebook_cells(place)[2:]:
                page.keyboard.press("Shift+Enter")
            cells = until_all_ran(page, place, 200)
            # the notebook is scrolled to its end, and the room is where it was
            page.locator(".jp-Notebook .jp-Cell").last.scroll_into_view_if_needed()
            assert page.locator(".jp-Notebook .jp-Cell").nth(1).bounding_box()["y"] < 0
            assert beside.bounding_box() == stands
            is_seen = "one => one.getBoundingClientRect().top >= 0 && one.checkVisibility()"
            assert beside.locator(".dh-allotments canvas").first.evaluate(is_seen)
            outputs = [out for cell in cells for out in cell["outputs"]]
            assert [out for out in outputs if out["output_type"] == "error"] == []
            assert page.complaints == []
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == 0
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()


def notebook_cells(place):
    """As they are saved."""
    return json.loads((place / "1-first-steps.ipynb").read_text())["cells"]


def until_all_ran(page, place, seconds):
    """The cells of code, once each has run; Lab adds an empty one below the last."""
    limit = time.monotonic() + seconds
    while True:
        page.keyboard.press("Control+s")
        page.wait_for_timeout(500)
        assert time.monotonic() < limit
        with suppress(json.JSONDecodeError):  # it is being written
            cells = [cell for cell in notebook_cells(place) if cell["cell_type"] == "code" and cell["source"]]
            if all(cell["execution_count"] for cell in cells):
                return cells
