"""The control room in real front ends: it appears, can be used while a cell computes, and leaves no trace."""

import importlib.util
import os
import re
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from distributed import Client
from rig import browser, chromium, new_page, run_cell, save, served, write_notebook

import dask_hpc

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timed,  # a dragged edge holds within a second
    pytest.mark.skipif(chromium() is None, reason="needs Debian's chromium"),
    pytest.mark.skipif(importlib.util.find_spec("playwright") is None, reason="needs playwright"),
    pytest.mark.filterwarnings("ignore"),
]

START = """\
import dask
from distributed import Client, LocalCluster
import dask_hpc
from dask_hpc_widgets import ControlRoom
dask.config.set({"hpc.power-meter": {"simulated": {"idle": 70, "busy": 130}}, "hpc.power-history": None})
cluster = LocalCluster(
    n_workers=3, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address=":0", memory_limit=0
)
client = Client(cluster)
manager = dask_hpc.manage(client, policy="power-corridor")
manager.set(**{"power.upper": "600 W", "power.lower": "100 W"})
with open("address", "w") as file:
    file.write(client.scheduler.address)
room = ControlRoom(manager)
room"""
JOBS = """\
import time
with dask_hpc.job("long", nodes=2, min_nodes=1, max_nodes=3, walltime="2 min"):
    long = client.map(time.sleep, [0.5] * 60, pure=False)
with dask_hpc.job("next", nodes=3, walltime="1 min"):
    after = client.map(time.sleep, [0.2] * 3, pure=False)"""
BLOCK = """\
import os
while not os.path.exists("go on"):
    time.sleep(0.05)
os.remove("go on")"""
CLOSE = """\
room.close()
time.sleep(1)
print("watch is awake:", manager.watch.is_awake)"""


@pytest.fixture(scope="module")
def pictures():
    """Where screenshots go."""
    folder = Path(os.environ.get("DASK_HPC_PICTURES", "test-pictures"))
    folder.mkdir(exist_ok=True)
    return folder


@contextmanager
def outside(folder):
    """A manager of the notebook's cluster, from another process than its kernel."""
    limit = time.monotonic() + 60
    while not (folder / "address").exists():
        assert time.monotonic() < limit
        time.sleep(0.1)
    with Client((folder / "address").read_text()) as client:
        yield dask_hpc.manage(client)


def value_of(manager, key):
    """One line of the policy in force."""
    return re.search(rf"{key}: (.*)", manager.set()["policy"])[1]


def until(condition, seconds):
    """Seconds until it is so."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, "it never happened"
        time.sleep(0.02)
    return time.monotonic() - began


def drag(page, selector, by):
    box = page.locator(selector).bounding_box()
    x, y = box["x"] + box["width"] - 15, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x, y + by / 2, steps=4)
    page.mouse.move(x, y + by, steps=4)
    page.mouse.up()


def go_on(folder, page):
    """End the cell that computes, once that page, which was just opened, waits for the kernel.

    ipywidgets 8.1 gives up on a widget if its model arrives in the very moment, two seconds after the page
    shows the notebook, in which it looks for it a last time. Ours arrive after that.
    """
    page.locator(".jp-OutputArea", has_text="Loading widget").first.wait_for()
    page.wait_for_timeout(4000)
    (folder / "go on").touch()


def open_room(chrome, url, notebook=True):
    page = new_page(chrome)
    page.goto(url)
    if notebook:
        page.wait_for_selector(".jp-Notebook .jp-Cell")
        run_cell(page, 0)
    page.wait_for_selector(".dh-allotments canvas")
    page.wait_for_selector(".dh-headline .dh-card")
    return page


def test_in_lab(tmp_path, pictures):
    write_notebook(tmp_path / "room.ipynb", [START, JOBS, BLOCK, CLOSE])
    with served("lab", tmp_path, "room.ipynb") as url, browser(pictures, "lab") as chrome:
        page = open_room(chrome, url)
        with outside(tmp_path) as manager:
            run_cell(page, 1)
            until(lambda: "next" in page.locator(".dh-queue").inner_text(), 10)
            page.screenshot(path=pictures / "lab.png")

            # a cell computes: an edge is dragged meanwhile
            run_cell(page, 2)
            page.locator(".dh-edge-upper").scroll_into_view_if_needed()
            before = value_of(manager, "upper")
            drag(page, ".dh-edge-upper", 40)
            took = until(lambda: value_of(manager, "upper") != before, 5)
            print(f"a dragged edge holds on the scheduler after {took:.2f} s")
            assert took < 1
            assert page.locator(".jp-Notebook .jp-InputPrompt", has_text="[*]").count() == 1, (
                "the cell is over"
            )
            page.screenshot(path=pictures / "lab-blocked.png")

            # a value that is refused says why
            page.get_by_role("tab", name="Policy").click()
            page.locator('details[data-concern="queue"] summary').click()
            depth = page.locator('[id$="power.margin"]').first
            page.locator('details[data-concern="power"]').evaluate("one => one.open = true")
            depth.fill("-3 W")
            depth.press("Enter")
            page.wait_for_selector(".dh-refused")
            assert "allowed" in page.locator(".dh-refused").inner_text()

            # a prediction, and one policy applied, while the cell still computes
            page.get_by_role("tab", name="What if").click()
            for name in ("fcfs", "elastic"):
                page.get_by_label("add a policy to try").select_option(name)
                page.get_by_label(f"do not try {name}").wait_for()
            draws = page.get_by_label("draws", exact=True)
            draws.fill("4")
            draws.press("Tab")
            page.get_by_role("button", name="Predict").click()
            page.wait_for_selector('.dh-predictions th[data-policy="fcfs"]')
            numbers = page.locator('.dh-predictions td[data-policy="fcfs"]').all_inner_texts()
            assert any(re.search(r"\d", one) for one in numbers)
            page.screenshot(path=pictures / "lab-what-if.png")
            page.locator('.dh-predictions th[data-policy="fcfs"]').get_by_role("button").click()
            until(lambda: manager.set()["name"] == "fcfs", 5)
            page.locator(".dh-headline").get_by_role("button", name="Undo").click()
            until(lambda: manager.set()["name"] == "power-corridor", 5)

            # a second viewer sees the same; so does this one when it comes back
            until(lambda: "power-corridor" in page.locator(".dh-headline").inner_text(), 5)
            save(page)
            other = new_page(chrome)
            other.goto(url)
            go_on(tmp_path, other)
            other.wait_for_selector(".dh-headline .dh-card")
            manager.set(**{"power.upper": "444 W"})
            for one in (page, other):
                until(
                    lambda one=one: "444 W" in one.locator(".dh-edge-upper").get_attribute("aria-valuetext"),
                    5,
                )
            run_cell(page, 2)
            page.locator(".jp-InputPrompt", has_text="[*]").wait_for()
            save(page)
            page.reload()
            go_on(tmp_path, page)
            page.wait_for_selector(".dh-headline .dh-card")
            until(lambda: "444 W" in page.locator(".dh-edge-upper").get_attribute("aria-valuetext"), 10)
            assert page.get_by_role("tab", name="What if").get_attribute("aria-selected") == "true"

            # closing leaves no follower behind
            run_cell(page, 3)
            page.wait_for_selector("text=watch is awake: False", timeout=60_000)
            assert page.complaints == [] and other.complaints == []


@pytest.mark.parametrize("kind", ["notebook", "voila"])
def test_smoke(kind, tmp_path, pictures):
    if importlib.util.find_spec(kind) is None:
        pytest.skip(f"needs {kind}")
    write_notebook(tmp_path / "room.ipynb", [START] if kind == "voila" else [START, JOBS])
    with served(kind, tmp_path, "room.ipynb") as url, browser(pictures, kind) as chrome:
        page = open_room(chrome, url, notebook=kind != "voila")
        with outside(tmp_path) as manager:
            page.locator(".dh-edge-upper").scroll_into_view_if_needed()
            before = value_of(manager, "upper")
            drag(page, ".dh-edge-upper", 40)
            assert until(lambda: value_of(manager, "upper") != before, 5) < 1
            page.locator(".dh-headline").get_by_role("button", name="Undo").click()
            until(lambda: value_of(manager, "upper") == before, 5)
            page.screenshot(path=pictures / f"{kind}.png")
            assert page.complaints == []
