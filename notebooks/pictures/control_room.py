"""Take the README's pictures of the control room, from a real JupyterLab in a headless Chromium.

Run it in a clone with the extra ``test`` and Debian's package chromium:
``python notebooks/pictures/control_room.py``. It takes a minute and a half.
"""

import sys
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "tests" / "browser"))

from rig import FLAGS, chromium, new_page, run_cell, served, write_notebook  # noqa: E402

MOST = 120_000  # bytes
WIDTH, HEIGHT = 1440, 1700

START = """\
import time
import dask
import dask_hpc
from dask_hpc_widgets import ControlRoom
from distributed import Client, LocalCluster

meter = {"simulated": {"idle": 70, "busy": 130, "noise": 0.03}}
dask.config.set({"hpc.power-meter": meter, "hpc.power-history": None})
cluster = LocalCluster(
    n_workers=8, threads_per_worker=1, processes=False, dashboard_address=":0", memory_limit=0
)
client = Client(cluster)
manager = dask_hpc.manage(client, policy="power-corridor")
manager.set(**{"power.lower": "700 W", "power.upper": "1.8 kW"})
ControlRoom(manager, height="820px")"""

JOBS = """\
def submit(name, tasks, **sizes):
    with dask_hpc.job(name, **sizes):
        return client.map(time.sleep, [0.4] * tasks, pure=False)

futures = submit("training", 300, nodes=2, min_nodes=1, max_nodes=3, walltime="3 min")
futures += submit("genomics", 170, nodes=2, min_nodes=1, max_nodes=2, walltime="2 min")
time.sleep(4)
futures += submit("climate", 500, nodes=3, min_nodes=1, max_nodes=6, walltime="3 min")
time.sleep(9)
manager.set(**{"power.upper": "1.2 kW"})
futures += submit("plots", 20, nodes=1, walltime="30 s")
time.sleep(8)
manager.set(**{"power.upper": "1.6 kW"})
time.sleep(7)
futures += submit("assembly", 60, nodes=4, walltime="1 min")
time.sleep(5)
print("now")"""

WHAT_IF = """\
from dask_hpc_widgets import WhatIf
WhatIf(manager, tried=["fcfs", "easy-backfill", "elastic"], with_edited=False)"""


def main() -> None:
    """Write control-room.png and what-if.png beside this file."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_notebook(folder / "room.ipynb", [START, JOBS, WHAT_IF])
        with served("lab", folder, "room.ipynb") as url, sync_playwright() as playwright:
            chrome = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
            page = new_page(chrome, width=WIDTH, height=HEIGHT)
            page.goto(url)
            page.wait_for_selector(".jp-Notebook .jp-Cell")
            page.get_by_text("| Idle").wait_for()  # what is run before the kernel is there is lost
            page.keyboard.press("Control+b")  # the file browser goes
            run_cell(page, 0)
            page.wait_for_selector(".dh-allotments canvas")
            run_cell(page, 1)
            page.locator(".jp-OutputArea-output pre", has_text="now").wait_for(state="attached")
            room = page.locator(".dask-hpc-room").first
            page.wait_for_selector(".dh-jobs .dh-item")
            take(room, "control-room.png")
            news = page.get_by_role("button", name="No", exact=True)  # JupyterLab offers its own, in a corner
            if news.count():
                news.click()
            run_cell(page, 2)
            what_if = page.locator(".dh-what-if").last
            what_if.get_by_role("button", name="Predict").click()
            what_if.locator(".dh-predictions th[data-policy=elastic]").wait_for()
            take(what_if, "what-if.png")


def take(shown: Any, name: str) -> None:
    """A picture of this part of the page, with as many colours as fit in the size."""
    shown.scroll_into_view_if_needed()
    picture = Image.open(BytesIO(shown.screenshot())).convert("RGB")
    for colours in (256, 128, 64, 32):
        picture.quantize(colours, dither=Image.Dither.NONE).save(HERE / name, optimize=True)
        if (HERE / name).stat().st_size < MOST:
            return
    raise SystemExit(f"{name} is {(HERE / name).stat().st_size} bytes; at most {MOST} are wanted")


if __name__ == "__main__":
    main()
