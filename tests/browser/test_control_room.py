"""The control room in real front ends (S25): it can be used while the kernel computes, in Voila by the page
that it points to; it looks the same to two viewers and after a reload, and leaves no trace."""

import importlib.util
import os
import re
import time
from pathlib import Path

import pytest
from distributed import Event
from rig import (
    browser,
    chromium,
    new_page,
    outside,
    run_cell,
    save,
    served,
    until,
    value_of,
    write_notebook,
)  # fmt: skip

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timed,  # a bound that is moved holds within a second
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
COMPUTE = """\
from distributed import Event
def wait():
    Event("go on").wait()"""
BLOCK = f"""\
{COMPUTE}
dask.delayed(wait)().compute()"""
BUTTON = f"""\
import ipywidgets
{COMPUTE}
button = ipywidgets.Button(description="Compute")
button.on_click(lambda _: dask.delayed(wait)().compute())
button"""
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


def at_rest(locator):
    """Where it is when it has been there for a second: a page scrolls to a cell that runs."""
    locator.scroll_into_view_if_needed()
    box, since = None, time.monotonic()
    while time.monotonic() - since < 1:
        if (now := locator.bounding_box()) != box:
            box, since = now, time.monotonic()
        locator.page.wait_for_timeout(30)
    return box


def drag(page, selector, by):
    edge = page.locator(selector)
    box = at_rest(edge)
    edge.hover(position={"x": box["width"] - 15, "y": box["height"] / 2})
    box = edge.bounding_box()
    x, y = box["x"] + box["width"] - 15, box["y"] + box["height"] / 2
    page.mouse.down()
    page.mouse.move(x, y + by / 2, steps=4)
    page.mouse.move(x, y + by, steps=4)
    page.mouse.up()


def lower_the_bound(page, manager):
    """Drag the corridor's upper edge down; seconds until what that says is in force."""
    before = value_of(manager, "upper")
    drag(page, ".dh-edge-upper", 40)
    took = until(lambda: value_of(manager, "upper") != before, 5)
    assert 100 < float(value_of(manager, "upper").removesuffix(" W")) < float(before.removesuffix(" W"))
    assert value_of(manager, "lower") == "100 W"
    return took


def is_refused(page):
    """A margin that cannot be is refused by the policy panel, which says what can."""
    page.get_by_role("tab", name="Policy").click()
    details = page.locator('details[data-concern="power"]')
    margin = page.locator('[id$="power.margin"]').first

    def is_open():  # it may be behind "more"
        details.evaluate("one => [one, ...one.querySelectorAll('details')].forEach(each => each.open = true)")
        return margin.is_visible()

    until(is_open, 20)
    margin.fill("-3 W")
    margin.press("Enter")
    page.wait_for_selector(".dh-refused")
    return "allowed" in page.locator(".dh-refused").inner_text()


def shows(page, manager):
    """Whether the page has the upper bound that is in force."""
    return page.locator(".dh-edge-upper").get_attribute("aria-valuetext") == value_of(manager, "upper")


def computes(page):
    """Whether a cell of the notebook does."""
    return page.locator(".jp-Notebook .jp-InputPrompt", has_text="[*]").count() == 1


def two_viewers_agree(chrome, url, page, manager):
    """While a cell computes another page opens the notebook, and this one opens it again. The other page."""
    save(page)
    other = new_page(chrome)
    other.goto(url)
    page.reload()
    for one in (other, page):
        # ipywidgets 8.1 gives up on a widget if its model arrives in the very moment, two seconds after the
        # page shows the notebook, in which it looks for it a last time. Ours arrive after that: a kernel says
        # what widgets it has when its cell is over.
        one.locator(".jp-OutputArea", has_text="Loading widget").first.wait_for()
    page.wait_for_timeout(4000)
    Event("go on", client=manager.client).set()
    for one in (other, page):
        one.wait_for_selector(".dh-headline b")
        until(lambda one=one: shows(one, manager), 10)
    manager.set(**{"power.upper": "444 W"})
    for one in (other, page):
        until(lambda one=one: shows(one, manager), 5)
    return other


def open_room(chrome, url, notebook=True):
    page = new_page(chrome)
    page.goto(url)
    if notebook:
        page.wait_for_selector(".jp-Notebook .jp-Cell")
        run_cell(page, 0)
    page.wait_for_selector(".dh-allotments canvas")
    page.wait_for_selector(".dh-headline b")
    return page


def said(report, where, took):
    report.add("S25", f"{where}: a bound holds after, s", plain="-", ours=f"{took:.2f}", bound="< 1")


def test_in_lab(tmp_path, pictures, report):
    write_notebook(tmp_path / "room.ipynb", [START, JOBS, BLOCK, CLOSE])
    with served("lab", tmp_path, "room.ipynb") as url, browser(pictures, "lab") as chrome:
        page = open_room(chrome, url)
        with outside(tmp_path) as manager:
            run_cell(page, 1)
            until(lambda: "next" in page.locator(".dask-hpc-room .dh-jobs").inner_text(), 10)
            page.screenshot(path=pictures / "lab.png")

            # a cell computes: an edge is dragged meanwhile
            run_cell(page, 2)
            took = lower_the_bound(page, manager)
            assert took < 1
            said(report, "JupyterLab, a cell computes", took)
            page.screenshot(path=pictures / "lab-blocked.png")
            assert is_refused(page)

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
            page.get_by_role("button", name="apply fcfs").click()
            until(lambda: manager.set()["name"] == "fcfs", 5)
            page.locator(".dh-headline").get_by_role("button", name="Undo").click()
            until(lambda: manager.set()["name"] == "power-corridor", 5)
            until(lambda: "power-corridor" in page.locator(".dh-headline").inner_text(), 5)
            page.locator(".dh-unheard").wait_for(state="hidden")
            assert computes(page)

            other = two_viewers_agree(chrome, url, page, manager)
            assert page.get_by_role("tab", name="What if").get_attribute("aria-selected") == "true"

            # closing leaves no follower behind
            run_cell(page, 3)
            page.wait_for_selector("text=watch is awake: False", timeout=60_000)
            assert page.complaints == [] and other.complaints == []


@pytest.mark.skipif(importlib.util.find_spec("notebook") is None, reason="needs notebook")
def test_in_notebook(tmp_path, pictures, report):
    write_notebook(tmp_path / "room.ipynb", [START, BLOCK])
    with served("notebook", tmp_path, "room.ipynb") as url, browser(pictures, "notebook") as chrome:
        page = open_room(chrome, url)
        with outside(tmp_path) as manager:
            run_cell(page, 1)
            before = value_of(manager, "upper")
            took = lower_the_bound(page, manager)
            assert took < 1
            said(report, "Notebook, a cell computes", took)
            page.screenshot(path=pictures / "notebook.png")
            page.locator(".dh-headline").get_by_role("button", name="Undo").click()
            until(lambda: value_of(manager, "upper") == before, 5)
            assert lower_the_bound(page, manager) < 1
            assert is_refused(page)
            page.locator(".dh-unheard").wait_for(state="hidden")
            assert computes(page)
            other = two_viewers_agree(chrome, url, page, manager)
            assert page.complaints == [] and other.complaints == []


@pytest.mark.skipif(importlib.util.find_spec("voila") is None, reason="needs voila")
def test_in_voila(tmp_path, pictures, report):
    """Voila has no cells and no subshells: while a button computes, no widget is heard."""
    write_notebook(tmp_path / "room.ipynb", [START, BUTTON])
    with served("voila", tmp_path, "room.ipynb") as url, browser(pictures, "voila") as chrome:
        page = open_room(chrome, url, notebook=False)
        with outside(tmp_path) as manager:
            assert lower_the_bound(page, manager) < 1
            bound = value_of(manager, "upper")
            page.get_by_role("button", name="Compute").click()
            until(lambda: any(manager.client.processing().values()), 5)

            # the widget waits, says so, and where things can be done at once
            page.get_by_role("tab", name="Policy").click()
            page.get_by_label("policy to start from").select_option("fcfs")
            page.locator(".dh-unheard").wait_for()
            page.screenshot(path=pictures / "voila.png")
            assert page.get_by_text("fcfs is not in force yet").count() == 0
            address = page.get_by_role("link", name="the control page").get_attribute("href")
            assert address == manager.control_page()
            control, other = new_page(chrome, 900, 500), new_page(chrome, 900, 500)
            for one in (control, other):
                one.goto(address)
                one.get_by_text(f"100 W to {bound}").wait_for()
            apply = control.get_by_role("button", name="Apply bounds")
            upper = control.get_by_label("power not above")
            upper.fill("480 W")
            apply.click()
            took = until(lambda: value_of(manager, "upper") == "480 W", 5)
            assert took < 1
            said(report, "Voila, a button computes, the control page", took)
            control.reload()
            for one in (control, other):
                one.get_by_text("100 W to 480 W").wait_for()
            apply.click()  # nothing is filled in
            control.get_by_text("power-corridor is in force").wait_for()
            upper.fill("50 W")
            apply.click()
            control.get_by_text("power.lower").wait_for()
            control.screenshot(path=pictures / "voila-control-page.png")
            assert (value_of(manager, "lower"), value_of(manager, "upper")) == ("100 W", "480 W")
            control.get_by_role("button", name="Undo").click()
            until(lambda: value_of(manager, "upper") == bound, 5)

            # it listens again
            assert any(manager.client.processing().values()) and page.locator(".dh-unheard").is_visible()
            manager.set(**{"power.upper": "444 W"})
            Event("go on", client=manager.client).set()
            page.get_by_text("fcfs is not in force yet").wait_for()
            page.locator(".dh-unheard").wait_for(state="hidden")
            until(lambda: shows(page, manager), 5)
            assert page.complaints == control.complaints == other.complaints == []
