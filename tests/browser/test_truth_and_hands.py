"""The control room tells the truth, and takes hands: one JupyterLab, one cluster of processes, for all of it.

While other things are looked at the policy panel grows 40 seconds old; then somebody else changes the policy.
"""

import importlib.util
import os
import re
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import dask
import pytest
from distributed import Client
from reach import needs_axe, unreached, violations
from rig import (
    browser,
    chromium,
    cluster_apart,
    id_of,
    new_page,
    run_cell,
    served,
    until,
    value_of,
    write_notebook,
)

import dask_hpc

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timed,  # silence is told within three seconds
    pytest.mark.skipif(chromium() is None, reason="needs Debian's chromium"),
    pytest.mark.skipif(importlib.util.find_spec("playwright") is None, reason="needs playwright"),
    pytest.mark.skipif(importlib.util.find_spec("jupyterlab") is None, reason="needs jupyterlab"),
    pytest.mark.skipif(importlib.util.find_spec("bokeh") is None, reason="needs bokeh"),
    pytest.mark.filterwarnings("ignore"),
]
OLD = 40  # seconds: a view that nobody hears of any more is told nothing after 30
RECONNECT = 8  # seconds, for which the kernel's client tries to

START = """\
import time
import dask_hpc
from dask_hpc_widgets import ControlRoom
from distributed import Client
client = Client(open("address").read())
room = ControlRoom(client)
room"""
JOBS = """\
def raises(number):
    time.sleep(0.5)
    raise ValueError(f"no such grid: {number}")
with dask_hpc.job("broken", nodes=1, walltime="1 min"):
    broken = client.map(raises, range(4), pure=False)
with dask_hpc.job("dropped", nodes=1, walltime="1 min"):
    dropped = client.map(time.sleep, [1] * 100, pure=False)"""
CALM = """\
from IPython.display import display
from dask_hpc_widgets import (
    CorridorExplorer, PartitionExplorer, PolicyPanel, ReservationExplorer, ResilienceExplorer,
)
panel = PolicyPanel(policy="elastic")
display(panel, CorridorExplorer(), ResilienceExplorer(), PartitionExplorer(), ReservationExplorer())"""
CLOSE = "client.close()"
CELLS = [START, JOBS, CALM, CLOSE]
KEYS = ("x", "a", "b", "ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Delete", "d", "d")

NOTEBOOK = """() => window.jupyterapp.shell.currentWidget.content.model.sharedModel.cells
  .map(one => one.getSource())"""
#: all that takes the focus in a part of the page, one of each kind; last what puts other things there
FOCUSED = """root => {
  const all = [...root.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")];
  const kinds = new Map(all.filter(one => one.checkVisibility() && !one.matches(":disabled"))
    .map(one => [[one.tagName, one.type, one.role, one.className, one.parentNode.className].join(), one]));
  const moves = (one) => (one.role === "tab" ? 2 : one.matches("select") ? 1 : 0);
  return [...kinds.values()].sort((one, other) => moves(one) - moves(other));
}"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A room on three nodes that has nothing to undo."""
    folder = tmp_path_factory.mktemp("lab")
    config = {
        "hpc.node": "worker",
        "hpc.power-meter": {"simulated": {"idle": 70, "busy": 130}},
        "hpc.power-history": None,
    }
    pictures = Path(os.environ.get("DASK_HPC_PICTURES", "test-pictures"))
    pictures.mkdir(exist_ok=True)
    write_notebook(folder / "room.ipynb", CELLS)
    settings = folder / ".settings" / "@jupyterlab" / "notebook-extension"
    settings.mkdir(parents=True)
    # what is scrolled away stays in the page
    settings.joinpath("tracker.jupyterlab-settings").write_text('{"windowingMode": "defer"}')
    with dask.config.set(config), pytest.MonkeyPatch.context() as kernel:
        kernel.setenv("DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT", f"{RECONNECT} s")
        with (
            cluster_apart(folder, 3) as scheduler,
            Client(scheduler.address) as client,
            dask_hpc.manage(client, "power-corridor") as manager,
            served("lab", folder, "room.ipynb") as url,
            browser(pictures, "truth") as chrome,
        ):
            page = new_page(chrome, 1400, 900)
            page.set_default_timeout(20_000)
            page.goto(url)
            page.wait_for_selector(".jp-Notebook .jp-Cell")
            page.evaluate("jupyterapp.shell.collapseLeft()")
            found = SimpleNamespace(
                page=page, manager=manager, scheduler=scheduler, chrome=chrome, folder=folder, began=None,
                pictures=pictures,
            )  # fmt: skip
            run_cell(page, 0)
            page.locator(".dask-hpc-room .dh-headline b").first.wait_for()
            page.locator(".dask-hpc-room .dh-headline", has_text="of 3").wait_for()
            yield found
            scheduler.go_on()


@pytest.fixture(autouse=True)
def looks_like(lab, request):
    """What it looked like at the end of each test."""
    yield
    lab.page.screenshot(path=lab.pictures / f"{request.node.name}.png")


@pytest.fixture
def room(lab):
    return lab.page.locator(".dask-hpc-room").first


def tab(room, name):
    room.get_by_role("tab", name=name, exact=True).click()


def policy_of(room):
    """The panel in the room."""
    tab(room, "Policy")
    return room.locator(".dh-policy")


def field(panel, path):
    """A parameter's control, wherever it is folded away."""
    panel.evaluate("one => { for (const fold of one.querySelectorAll('details')) fold.open = true; }")
    return panel.locator(f'input[id$="{path}"]').first


def deeds_are(room, isOff):
    found = room.locator("fieldset.dh-deeds").evaluate_all("all => all.map(one => one.matches(':disabled'))")
    return bool(found) and all(one is isOff for one in found)


def says_no_contact(room, seconds, words=""):
    """Within that time; what it says."""
    banner = room.locator(".dh-contact")
    took = until(lambda: banner.is_visible() and words in banner.inner_text(), seconds)
    assert re.search(r"[Nn]o contact for \d+ s", banner.inner_text())
    assert "dh-stale" in room.get_attribute("class")
    assert deeds_are(room, True)
    assert room.get_by_role("button", name="Pause").is_disabled()
    assert banner.get_attribute("role") == "status"
    return took, banner.inner_text()


def comes_back(room, seconds=8):
    banner = room.locator(".dh-contact")
    until(lambda: not banner.is_visible(), seconds)
    assert "dh-stale" not in room.get_attribute("class")
    until(lambda: deeds_are(room, False), 2)


def test_there_is_nothing_to_undo_at_first(lab, room):
    assert room.locator(".dh-headline").get_by_role("button", name="Undo").is_disabled()
    panel = policy_of(room)
    assert panel.get_by_role("button", name="Undo").is_disabled()
    lab.manager.set(**{"power.upper": "1 kW"})
    lab.began = time.monotonic()
    until(lambda: field(panel, "power.upper").input_value() == "1 kW", 5)
    until(lambda: room.locator(".dh-headline").get_by_role("button", name="Undo").is_enabled(), 5)


def test_a_job_whose_tasks_raise_has_failed_everywhere(lab, room):
    page, manager = lab.page, lab.manager
    run_cell(page, 1)

    def states():
        return {job["name"]: job["state"] for job in manager.status()["jobs"]}

    until(lambda: states() == {"broken": "failed", "dropped": "running"}, 15)
    manager.cancel(id_of(manager, "dropped"))
    until(lambda: states() == {"broken": "failed", "dropped": "cancelled"}, 15)
    found = {job["name"]: job for job in manager.status()["jobs"]}
    assert found["broken"]["failed"] == 4 and "no such grid: " in found["broken"]["error"]

    tab(room, "Jobs")
    rows = room.locator(".dh-jobs")
    until(lambda: are_told(rows), 5)
    assert rows.locator("[title*='no such grid']").count() or "no such grid" in rows.inner_text()
    assert "4 tasks failed" in rows.inner_text()
    tab(room, "Story")
    story = room.locator(".dh-story")
    until(lambda: re.search(r"fail.*\s+broken", story.inner_text()), 5)
    assert "4 tasks of it failed: ValueError: no such grid" in story.inner_text()
    assert re.search(r"cancel\s+dropped", story.inner_text())
    tab(room, "Jobs")
    for name, state in {"broken": "failed", "dropped": "cancelled"}.items():
        assert state in tip_of(page, room, name)

    other = new_page(lab.chrome, 1400, 900)
    other.goto(manager.client.dashboard_link.replace("/status", "/hpc"))
    other.locator(".dh-jobs", has_text="broken").wait_for()
    until(lambda: are_told(other.locator(".dh-jobs")), 5)
    with page.expect_download() as saved:
        room.get_by_role("button", name="Report").click()
    path = lab.folder / "report.html"
    saved.value.save_as(path)
    other.goto(path.as_uri())
    other.locator(".dh-jobs", has_text="broken").wait_for()
    until(lambda: are_told(other.locator(".dh-jobs")), 5)
    assert other.complaints == []
    other.close()


def are_told(table):
    """How the two jobs ended, in a table of jobs: their names, perhaps who they are of, their states."""
    table.scroll_into_view_if_needed()  # rows that are far from what is seen have no text yet
    found = table.inner_text()
    return all(
        re.search(rf"{name}\s+(\S+\s+)?{state}", found)
        for name, state in {"broken": "failed", "dropped": "cancelled"}.items()
    )


def tip_of(page, room, name):
    """What is said of a job where it is in the map: the pointer looks for it."""
    canvas = room.locator(".dh-allotments canvas").first
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    tip = room.locator(".dh-allotments .dh-tip")
    for row in range(3):
        for x in range(100, int(box["width"]), 15):
            page.mouse.move(box["x"] + x, box["y"] + (row + 0.5) * box["height"] * 0.85 / 3)
            if name in (text := tip.inner_text() if tip.is_visible() else ""):
                return text
    raise AssertionError(f"{name} is nowhere in the map")


def test_a_brush_is_seen_and_one_comes_back_to_the_present(lab, room):
    page = lab.page
    canvas = room.locator(".dh-allotments canvas").first
    back = room.get_by_role("button", name="Follow the present")
    assert back.is_disabled() or not back.is_visible()
    box = canvas.bounding_box()
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 130, y)
    page.mouse.down()
    page.mouse.move(box["x"] + 330, y, steps=5)
    rubber = room.locator(".dh-allotments .dh-rubber")
    assert rubber.is_visible() and rubber.bounding_box()["width"] == pytest.approx(200, abs=3)
    page.mouse.up()
    assert not rubber.is_visible()
    until(lambda: back.is_visible() and back.is_enabled(), 2)
    back.click()
    until(lambda: back.is_disabled() or not back.is_visible(), 2)


def test_a_question_mark_shows_the_hints(lab, room):
    hints = room.locator(".dh-toolbar").get_by_text("zoom", exact=True)
    assert not hints.is_visible()
    room.locator(".dh-toolbar summary", has_text="?").click()
    assert hints.is_visible()
    assert re.search(r"wheel[\s\S]*Escape", room.locator(".dh-toolbar").inner_text())
    lab.page.keyboard.press("Escape")
    assert not hints.is_visible()


def test_a_panel_without_a_cluster_edits_policies(lab):
    page = lab.page
    run_cell(page, 2)
    panel = page.locator(".jp-Cell").nth(2).locator(".dh-policy")
    panel.wait_for()
    said = panel.locator("[role=status]")
    idle = field(panel, "size.idle_grace")
    idle.fill("-3 s")
    idle.press("Enter")
    until(lambda: "allowed" in panel.locator(".dh-refused").first.inner_text(), 5)
    idle.fill("45 s")
    idle.press("Enter")
    panel.locator("table", has_text="45 s").wait_for()
    file = panel.get_by_label("file to save to")
    file.fill("mine.yaml")
    panel.get_by_role("button", name="Save", exact=True).click()
    until(lambda: "saved as mine.yaml" in said.inner_text(), 5)
    assert "idle_grace: 45 s" in (lab.folder / "mine.yaml").read_text()
    choice = panel.get_by_label("policy to start from")
    choice.select_option("fcfs")
    until(lambda: "fcfs" in said.inner_text(), 5)
    choice.focus()
    until(lambda: choice.locator("option[value='mine.yaml']").count(), 5)
    choice.select_option("mine.yaml")
    until(lambda: field(panel, "size.idle_grace").input_value() == "45 s", 5)
    assert panel.get_by_role("button", name="Apply").count() == 0


def test_keys_stay_in_explorers_and_move_their_sliders(lab):
    page = lab.page
    before = page.evaluate(NOTEBOOK)
    views = page.locator(".jp-OutputArea .dask-hpc:not(.dask-hpc-room, .dask-hpc-room *)")
    views.first.scroll_into_view_if_needed()
    for number in range(1, views.count()):
        view = views.nth(number)
        slider = view.locator("input[type=range]").first
        slider.focus()
        for key, other in (("ArrowRight", "ArrowLeft"), ("ArrowLeft", "ArrowRight")):
            was = float(slider.input_value())
            page.keyboard.press(key)
            if float(slider.input_value()) == was:  # at its end
                page.keyboard.press(other)
            assert float(slider.input_value()) != was
    keys_do_no_harm(page, views, before)


def keys_do_no_harm(page, views, before):
    """After a click on what takes no focus, and whatever has it."""
    for number in range(views.count()):
        view = views.nth(number)
        for kind in ("h3", ".dh-note", "td", "canvas", ".dh-figure"):
            place = view.locator(kind).locator("visible=true").first
            if not place.count():
                continue
            place.click(position={"x": 2, "y": 2}, force=True)
            for key in KEYS:
                page.keyboard.press(key)
            assert page.evaluate(NOTEBOOK) == before, f"keys after a click on {place}"
        for one in view.evaluate_handle(FOCUSED).get_properties().values():
            element = one.as_element()
            if not element.evaluate("one => one.isConnected && (one.focus({ preventScroll: true }), true)"):
                continue
            for key in KEYS:
                page.keyboard.press(key)
            assert page.evaluate(NOTEBOOK) == before, f"keys while {element} has the focus"


def test_keys_stay_in_the_room(lab, room):
    page = lab.page
    before = page.evaluate(NOTEBOOK)
    keys_do_no_harm(page, page.locator(".dask-hpc-room"), before)
    for name in room.get_by_role("tab").all_inner_texts():
        tab(room, name)
        keys_do_no_harm(page, room.get_by_role("tabpanel"), before)
    assert page.locator(".jp-Notebook .jp-Cell").count() == len(CELLS)
    reset = policy_of(room).get_by_role("button", name="Reset")
    until(reset.is_enabled, 5)  # something was typed there
    reset.click()
    lab.manager.set(**{"power.upper": "1 kW"})  # and bounds were moved


@needs_axe
def test_every_tab_is_reached_and_read_in_both_themes(lab, room):
    page, found = lab.page, set()
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        page.evaluate("theme => jupyterapp.commands.execute('apputils:change-theme', { theme })", theme)
        page.wait_for_function("theme => document.body.dataset.jpThemeName === theme", arg=theme)
        part = ".dask-hpc-room"
        for name in room.get_by_role("tab").all_inner_texts():
            tab(room, name)
            found |= {f"{theme}, {name}: {one}" for one in violations(page, part)}
            if "Light" in theme:
                found |= {f"{name}: Tab never comes to {one}" for one in unreached(page, part)}
            part = ".dask-hpc-room [role=tabpanel]:not([hidden])"  # what is around it stays the same
    assert not found, "\n".join(["", *sorted(found)])


def test_a_scheduler_that_is_stopped_is_told_of_until_it_goes_on(lab, room):
    room.scroll_into_view_if_needed()
    lab.scheduler.send(signal.SIGSTOP)
    took, _ = says_no_contact(room, 3)
    clock = room.locator(".dh-headline").inner_text()
    lab.page.wait_for_timeout(500)
    assert room.locator(".dh-headline").inner_text() == clock, "what is shown is what was"
    lab.scheduler.send(signal.SIGCONT)
    comes_back(room)
    until(lambda: room.locator(".dh-headline").inner_text() != clock, 3)
    assert took < 3


def test_apply_reverts_nothing_after_40_seconds(lab, room):
    page, manager = lab.page, lab.manager
    panel = policy_of(room)
    upper = field(panel, "power.upper")
    page.wait_for_timeout(max(0, 1000 * (lab.began + OLD - time.monotonic())))
    until(lambda: upper.input_value() == "1 kW", 3)
    manager.set(**{"power.upper": "2 kW"})
    until(lambda: upper.input_value() == "2 kW", 3)
    apply = panel.get_by_role("button", name="Apply", exact=True)
    assert apply.is_disabled()
    bias = field(panel, "queue.bias")
    bias.fill("0.5")
    bias.press("Enter")
    panel.locator("table", has_text="bias").wait_for()
    apply.click()
    until(lambda: value_of(manager, "bias") == "0.5", 5)
    assert value_of(manager, "upper") == "2 kW"
    until(lambda: panel.get_by_text("No difference to the policy in force").is_visible(), 5)


def test_apply_asks_where_somebody_else_has_changed_the_same(lab, room):
    manager = lab.manager
    panel = policy_of(room)
    upper = field(panel, "power.upper")
    upper.fill("1.5 kW")
    upper.press("Enter")
    panel.locator("table", has_text="1.5 kW").wait_for()
    manager.set(**{"power.upper": "1.8 kW"})
    panel.get_by_role("table", name="changed meanwhile").get_by_text("1.8 kW").wait_for()
    panel.get_by_role("button", name="Apply", exact=True).click()
    theirs = panel.get_by_role("button", name="Take theirs")
    theirs.wait_for()
    assert panel.get_by_role("button", name="Apply all the same").is_visible()
    assert "changed" in panel.inner_text()
    assert value_of(manager, "upper") == "1.8 kW"
    theirs.click()
    until(lambda: panel.get_by_text("No difference to the policy in force").is_visible(), 5)
    assert value_of(manager, "upper") == "1.8 kW"


def test_a_change_for_later_is_entered_as_people_say_it_and_removed(lab, room):
    manager = lab.manager
    power = room.locator(".dh-corridor")
    power.locator("summary", has_text="Change later").click()
    power.get_by_label("from when on").fill("in 10 min")
    power.get_by_label("upper bound from then on").fill("1.2 kW")
    power.get_by_role("button", name="Schedule").click()
    remove = power.get_by_role("button", name="Remove the change")
    remove.wait_for()
    assert "1.2 kW" in manager.set()["policy"]
    power.get_by_label("from when on").fill("soon")
    power.get_by_role("button", name="Schedule").click()
    until(lambda: "'soon'" in room.inner_text(), 5)
    assert remove.count() == 1
    remove.click()
    until(lambda: "1.2 kW" not in manager.set()["policy"], 5)
    until(lambda: remove.count() == 0, 5)


def test_a_client_that_is_closed_is_told_of(lab, room):
    run_cell(lab.page, 3)
    _, words = says_no_contact(room, 3, "closed")
    assert "closed" in words
    run_cell(lab.page, 0)  # a room of another client
    lab.page.locator(".dask-hpc-room .dh-headline", has_text="of 3").wait_for()
    comes_back(room)


def test_a_kernel_that_is_restarted_is_told_of(lab, room):
    lab.page.evaluate(
        "async () => { await jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart(); }"
    )
    says_no_contact(room, 5)  # until the restart is over the question is on its way
    run_cell(lab.page, 0)
    lab.page.locator(".dask-hpc-room .dh-headline", has_text="of 3").wait_for()
    comes_back(lab.page.locator(".dask-hpc-room").first)


def test_a_scheduler_that_is_killed_is_told_of(lab, room):
    lab.scheduler.send(signal.SIGKILL)
    says_no_contact(room, 3, "the connection to the scheduler is lost: the client tries to reconnect")
    says_no_contact(room, RECONNECT + 5, "the scheduler did not come back, and the client was closed")
    assert lab.page.complaints == []
