"""Take pictures of the control room as people meet it, and of the dashboard's page beside it.

``python notebooks/pictures/scenes.py FOLDER [scene ...] [--size 1400x900] [--theme light]`` in a clone with
the extra ``develop`` and Debian's package chromium. A real JupyterLab in a headless Chromium shows each scene
in a notebook of its own, in two sizes and two themes: half a minute a scene.
"""

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import dedent
from typing import Any

HERE = Path(__file__).parent
BROWSER, BENCHMARKS = HERE.parents[1] / "tests" / "browser", HERE.parent / "benchmarks"
sys.path.insert(0, str(BROWSER))

from rig import browser, new_page, run_cell, served, write_notebook  # noqa: E402

SIZES = {"1400x900": (1400, 900), "1024x768": (1024, 768)}
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}

CLUSTER = """\
import time
import dask
import dask_hpc
from dask_hpc_widgets import ControlRoom
from distributed import Client, LocalCluster

meter = {"simulated": {"idle": 70, "busy": 130, "noise": 0.03}}
dask.config.set({"hpc.power-meter": meter, "hpc.power-history": None})
cluster = LocalCluster(
    n_workers=NODES, threads_per_worker=1, processes=False, dashboard_address=":0", memory_limit=0
)
client = Client(cluster)
manager = dask_hpc.manage(client, policy="POLICY")

def submit(name, tasks, takes=0.4, **sizes):
    with dask_hpc.job(name, **sizes):
        return client.map(time.sleep, [takes] * tasks, pure=False)

def told(address):
    with open("address", "w") as file:
        file.write(address)

told(cluster.dashboard_link.replace("/status", "/hpc"))"""
ROOM = "room = ControlRoom(manager)\nroom"

ALONE = """\
# a scheduler and nodes in processes of their own
import atexit
import os
import signal
import subprocess
import sys
import time
import dask
import dask_hpc
from dask_hpc_widgets import ControlRoom
from distributed import Client

dask.config.set({"hpc.node": "worker"})

def started(*command):
    found = subprocess.Popen([sys.executable, "-m", *command, "--scheduler-file=scheduler.json"])
    atexit.register(found.kill)
    return found

scheduler = started("distributed.cli.dask_scheduler", "--port=0", "--dashboard-address=:0")
node = "--nthreads=1 --no-dashboard --no-nanny".split()
nodes = [started("distributed.cli.dask_worker", f"--name=node{i}", *node) for i in range(4)]
client = Client(scheduler_file="scheduler.json", timeout=60)
client.wait_for_workers(4)
manager = dask_hpc.manage(client, policy="elastic")
with open("address", "w") as file:
    file.write(client.dashboard_link.replace("/status", "/hpc"))
with dask_hpc.job("training", nodes=2, min_nodes=1, max_nodes=3, walltime="3 min"):
    training = client.map(time.sleep, [0.4] * 300, pure=False)
with dask_hpc.job("plots", nodes=2, walltime="1 min"):
    plots = client.map(time.sleep, [0.4] * 100, pure=False)
time.sleep(8)"""

THREE = """\
futures = submit("training", 300, nodes=2, min_nodes=1, max_nodes=3, walltime="3 min")
futures += submit("genomics", 170, nodes=2, min_nodes=1, max_nodes=2, walltime="2 min")
time.sleep(6)
futures += submit("climate", 400, nodes=6, min_nodes=4, max_nodes=6, walltime="3 min")
time.sleep(14)"""
BOUNDS = """\
manager.set(**{"power.lower": "400 W", "power.upper": "1.2 kW"})
"""
TIGHT = """\
manager.set(**{"power.upper": "900 W"})
futures = submit("training", 300, nodes=2, min_nodes=2, max_nodes=4, walltime="3 min")
futures += submit("genomics", 170, nodes=2, walltime="2 min")
time.sleep(10)
manager.set(**{"power.upper": "450 W"})
time.sleep(12)"""
RAISES = """\
def raises(number):
    raise ValueError(f"no such grid: {number}")

futures = submit("training", 200, nodes=2, min_nodes=1, max_nodes=3, walltime="3 min")
with dask_hpc.job("broken", nodes=1, walltime="1 min"):
    broken = client.map(raises, range(4), pure=False)
dropped = submit("dropped", 100, nodes=1, walltime="1 min")
time.sleep(6)
manager.cancel(next(job["id"] for job in manager.status()["jobs"] if job["name"] == "dropped"))
time.sleep(8)"""
QUEUE = """\
futures = []
for i in range(3):
    futures += submit(f"step {i}", 200, nodes=2, min_nodes=1, max_nodes=3, walltime="2 min")
    futures += submit(f"plot {i}", 60, nodes=3, walltime="1 min")
time.sleep(6)"""

THOUSAND = f"""\
import sys
from copy import deepcopy
sys.path.insert(0, {str(BENCHMARKS)!r})
import thousand_nodes
from dask_hpc.view.service import PAGE, Watched, _FeedHandler, _PageHandler
from dask_hpc_widgets import ControlRoom
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application

manager = thousand_nodes.cluster(900)

class Calls:
    # what the page's feed asks a scheduler for
    def feed(self, **asked):
        manager.made_up.catch_up()
        return manager.made_up.feed(**asked)

    def set(self):
        policy = manager.made_up.context.policy
        return dict(name=policy.name, policy=policy.to_yaml(), settings={{}}, state="on", undo=0, version=0)

def serve():
    page = dict(title="Dask: HPC", views=PAGE, links=lambda: ["status", "hpc"])
    feed = dict(watched=Watched(Calls()))
    feed["watched"]._course = deepcopy(manager.watch.course)  # it has looked all the time
    sockets = bind_sockets(0, "127.0.0.1")
    pages = [("/hpc", _PageHandler, page), ("/hpc-feed", _FeedHandler, feed)]
    HTTPServer(Application(pages)).add_sockets(sockets)
    with open("address", "w") as file:
        file.write("http://127.0.0.1:%d/hpc" % sockets[0].getsockname()[1])

manager.client.loop.add_callback(serve)"""


@dataclass(frozen=True)
class Scene:
    """The cells that make it (the second shows the room), a tab that is opened, and what is done then."""

    cells: tuple[str, ...]
    tab: str = "Jobs"
    after: Any = None


def _cluster(nodes: int, policy: str) -> str:
    return CLUSTER.replace("NODES", str(nodes)).replace("POLICY", policy)


def _predict(page: Any) -> None:
    """Five policies, that in force among them."""
    room = page.locator(".dh-what-if")
    room.get_by_role("button", name="Predict").click()
    page.wait_for_function("document.querySelectorAll('.dh-predictions th[data-policy]').length >= 5")


def _stop(page: Any) -> None:
    """The scheduler does nothing any more, for five seconds already."""
    run_cell(page, 2)
    page.wait_for_timeout(5_000)


SCENES = {
    "empty": Scene((_cluster(4, "easy-backfill"), ROOM)),
    "three-jobs": Scene((_cluster(8, "power-corridor"), ROOM, BOUNDS + THREE)),
    "not-kept": Scene((_cluster(8, "power-corridor"), ROOM, TIGHT)),
    "thousand-nodes": Scene((THOUSAND, ROOM)),
    "stale": Scene((ALONE, ROOM, "os.kill(scheduler.pid, signal.SIGSTOP)"), after=_stop),
    "what-if": Scene(
        (
            _cluster(6, "fcfs"),
            f"{ROOM.splitlines()[0]}\n"
            'room.what_if.tried = ["easy-backfill", "elastic", "power-corridor", "malleable-easy"]\nroom',
            QUEUE,
        ),
        "What if",
        _predict,
    ),
    "failed": Scene((_cluster(4, "elastic"), ROOM, RAISES)),
}


def take(page: Any, name: str, scene: Scene, folder: Path, sizes: Any, themes: Any, home: str) -> None:
    """One scene in all sizes and themes, in the room and on the dashboard's page."""
    if page.url == "about:blank":
        page.goto(home)
    else:
        opened = "async path => { await jupyterapp.commands.execute('docmanager:open', { path }); }"
        page.evaluate(opened, f"{name}.ipynb")
    page.wait_for_selector(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell")
    page.evaluate("jupyterapp.shell.collapseLeft()")
    for number in range(len(scene.cells) - (scene.after is _stop)):
        run_cell(page, number)
        _idle(page, number)
    page.wait_for_selector(".dask-hpc-room .dh-headline", timeout=120_000)
    page.get_by_role("tab", name=scene.tab, exact=True).click()
    page.wait_for_timeout(1_000)
    if scene.after is not None:
        scene.after(page)
    for size in sizes:
        page.set_viewport_size(dict(zip(("width", "height"), SIZES[size], strict=True)))
        for theme in themes:
            page.evaluate(
                "async theme => { await jupyterapp.commands.execute('apputils:change-theme', { theme }); }",
                THEMES[theme],
            )
            page.locator(".dask-hpc-room").first.evaluate("one => one.scrollIntoView({ block: 'start' })")
            page.wait_for_timeout(1_500)
            page.screenshot(path=folder / f"{name}-{size}-{theme}.png")
    if scene.after is not _stop:
        _page(page, name, folder, sizes, themes)
    page.evaluate(
        "async () => { await jupyterapp.shell.currentWidget.sessionContext.shutdown();"
        " await jupyterapp.commands.execute('docmanager:save'); jupyterapp.shell.currentWidget.close(); }"
    )


def _page(page: Any, name: str, folder: Path, sizes: Any, themes: Any) -> None:
    """The same as the dashboard shows it."""
    other = new_page(page.context.browser)
    other.goto((Path(page.folder) / "address").read_text())
    other.locator(".dh-headline b").first.wait_for()
    for size in sizes:
        other.set_viewport_size(dict(zip(("width", "height"), SIZES[size], strict=True)))
        for theme in themes:
            other.emulate_media(color_scheme=theme)
            other.wait_for_timeout(1_200)
            other.screenshot(path=folder / f"{name}-{size}-{theme}-hpc.png")
    other.close()


def _idle(page: Any, number: int) -> None:
    """Until that cell is over, and went well."""
    cell = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell").nth(number)
    prompt = cell.locator(".jp-InputPrompt").first
    limit = time.monotonic() + 180
    while not prompt.inner_text().strip("[]: ").isdigit():
        assert time.monotonic() < limit, f"cell {number} is not over"
        page.wait_for_timeout(100)
    failed = cell.locator("[data-mime-type='application/vnd.jupyter.error']")
    assert not failed.count(), failed.inner_text()


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(description=dedent(__doc__ or ""))
    parser.add_argument("folder", type=Path)
    parser.add_argument("scenes", nargs="*", metavar="scene", help=", ".join(SCENES))
    parser.add_argument("--size", choices=SIZES, action="append")
    parser.add_argument("--theme", choices=THEMES, action="append")
    given = parser.parse_args()
    if strangers := set(given.scenes) - SCENES.keys():
        parser.error(f"no such scene: {', '.join(strangers)}; there are {', '.join(SCENES)}")
    given.folder.mkdir(parents=True, exist_ok=True)
    chosen = given.scenes or list(SCENES)
    with TemporaryDirectory() as place:
        for name in chosen:
            write_notebook(Path(place, f"{name}.ipynb"), SCENES[name].cells)
        with served("lab", place, f"{chosen[0]}.ipynb") as home, browser(given.folder, "scenes") as chrome:
            page = new_page(chrome)
            page.folder = place
            for name in chosen:
                began = time.monotonic()
                take(page, name, SCENES[name], given.folder, given.size or SIZES, given.theme or THEMES, home)
                print(f"{name}: {time.monotonic() - began:.0f} s; complaints: {page.complaints}", flush=True)
                page.complaints.clear()


if __name__ == "__main__":
    main()
