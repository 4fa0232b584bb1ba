"""A real JupyterLab, Notebook or Voila with a real kernel, seen by a real Chromium."""

import json
import mimetypes
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from dask_hpc.view import kit

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run", "--disable-quic",
]  # fmt: skip
BENCHMARKS = Path(__file__).parents[2] / "notebooks" / "benchmarks"
#: what front ends themselves look for in vain with any notebook, said in the console: by text or by address
NOISE = ("labextensions/@jupyter-notebook/lab-extension",)  # Notebook's, which Voila cannot load
SOUGHT = ("/favicon", "/@fortawesome/fontawesome-free")  # the latter Voila's, of its own pages

#: what JupyterLab has in its dark theme
DARK = Path(sys.prefix, "share/jupyter/lab/themes/@jupyterlab/theme-dark-extension/index.css")
#: a room as its front end has it; the models of other widgets never come
ROOM = """<!doctype html><html lang="en"><head><title>a room</title><style>{style}</style></head>
<body style="background: Canvas; margin: 8px"><main id="root"></main><script type="module">
import {{ Model }} from "/shared/document.js";
import view from "/view.js";
const {{ state, whole }} = {given};
const model = new Model(state, ({{ do: what }}) => setTimeout(() => {{
  if (what === "whole") model.tell("msg:custom", {{ whole }});
  if (what === "looks") model.tell("msg:custom", {{ heard: true, age: 0 }});
}}));
model.widget_manager = {{ get_model: () => new Promise(() => {{}}) }};
const head = {{ ...whole.head, count: undefined }};
globalThis.tell = (news) => model.tell("msg:custom", {{ news: {{ head, ...news }} }});
view.render({{ model, el: document.getElementById("root") }});
</script></body></html>"""


def chromium():
    """Debian's, or any that is called so; None if there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


def write_notebook(path, cells):
    """A notebook with these cells of code, for the kernel of this Python."""
    code = [
        {
            "cell_type": "code", "id": f"cell-{number}", "metadata": {}, "outputs": [],
            "execution_count": None, "source": source,
        }
        for number, source in enumerate(cells)
    ]  # fmt: skip
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    found = {"cells": code, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    Path(path).write_text(json.dumps(found))


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def quiet(folder):
    """No questions about news, and nothing fetched."""
    place = Path(folder, ".settings", "@jupyterlab", "apputils-extension")
    place.mkdir(parents=True)
    place.joinpath("notification.jupyterlab-settings").write_text('{"fetchNews": "false"}')


@contextmanager
def served(kind, folder, notebook=None):
    """``lab``, ``notebook`` or ``voila`` on that folder; gives the address of a notebook's page."""
    port = free_port()
    if kind == "voila":
        command = [
            sys.executable,
            "-m",
            "voila",
            "--no-browser",
            f"--port={port}",
            str(Path(folder, notebook)),
        ]
    else:
        command = [
            sys.executable, "-m", "jupyter", kind, "--no-browser", "--allow-root", f"--port={port}",
            "--ServerApp.port_retries=0", "--IdentityProvider.token=", "--ServerApp.password=",
            "--ServerApp.ip=127.0.0.1", f"--ServerApp.root_dir={folder}", "--LabApp.collaborative=False",
            "--ServerApp.quit_button=False", "--LabApp.news_url=None",
            "--LabApp.expose_app_in_browser=True", "--JupyterNotebookApp.expose_app_in_browser=True",
            "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        ]  # fmt: skip
        if kind == "lab":
            quiet(folder)
    # nothing of this machine's users is read or left behind
    homes = {
        name: str(Path(folder, f".{name.lower()}")) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR")
    }
    homes |= {
        "JUPYTERLAB_SETTINGS_DIR": str(Path(folder, ".settings")),
        "IPYTHONDIR": str(Path(folder, ".ipython")),
    }
    with Path(folder, f"{kind}.log").open("wb") as log:
        server = subprocess.Popen(
            command, cwd=folder, env=os.environ | homes, stdout=log, stderr=log, start_new_session=True
        )
    try:
        wait_for_answer(f"http://127.0.0.1:{port}/" + ("" if kind == "voila" else "api"), server, log.name)
        pages = {"lab": "lab/tree/", "notebook": "notebooks/", "voila": ""}
        yield f"http://127.0.0.1:{port}/{pages[kind]}" + ("" if kind == "voila" else notebook or "")
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def wait_for_answer(address, server, log, seconds=60):
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        try:
            urlopen(address, timeout=60).close()
            return
        except (URLError, ConnectionError):
            if server.poll() is not None:
                break
            time.sleep(0.2)
    raise RuntimeError(f"no answer from {address}: {Path(log).read_text()[-2000:]}")


@contextmanager
def browser(pictures, name):
    """Chromium; when a test fails, pictures of its pages stay in that folder."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chrome = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        try:
            yield chrome
        except BaseException as error:
            pages = [page for context in chrome.contexts for page in context.pages]
            for number, page in enumerate(pages):
                page.screenshot(path=Path(pictures, f"{name}-failed-{number}.png"))
                shown = page.locator("body:not(:has(.jp-Notebook)), .jp-Notebook").first.inner_text()
                error.add_note(f"page {number} complains of {page.complaints}, and shows:\n{shown}")
            raise
        finally:
            chrome.close()


def new_page(chrome, width=1400, height=1000):
    """A page of its own context, with ``complaints``: errors in its console, and those nobody caught."""
    page = chrome.new_context(viewport={"width": width, "height": height}).new_page()
    page.set_default_timeout(60_000)
    page.complaints = []

    def say(message):
        address = message.location.get("url", "")
        is_noise = any(noise in message.text for noise in NOISE) or any(map(address.__contains__, SOUGHT))
        if message.type == "error" and not is_noise:
            page.complaints.append(f"{message.text} {address}")

    page.on("console", say)

    def fail(error):
        # Notebook 7.6 does so with any notebook, in a file of its own
        if "reading 'schema'" not in error.message or "/static/notebook/notebook_core" not in (
            error.stack or ""
        ):
            page.complaints.append(str(error))

    page.on("pageerror", fail)
    return page


#: a kernel that still starts takes what it is asked, and forgets it
READY = """() => {
  const context = window.jupyterapp?.shell.currentWidget?.sessionContext;
  const kernel = context?.session?.kernel;
  const isThere = context?.isReady && kernel?.connectionStatus === "connected";
  return isThere && ["idle", "busy"].includes(kernel.status);
}"""


def run_cell(page, number):
    """Run one cell of the notebook that is open in Lab or Notebook; answers when the kernel was asked."""
    page.wait_for_function(READY)
    cell = page.locator(".jp-Notebook .jp-Cell").nth(number)
    prompt = cell.locator(".jp-InputPrompt").first
    cell.locator(".cm-content").first.click()
    page.keyboard.press("Control+Enter")  # with Shift it makes a cell below, and may scroll there
    limit = time.monotonic() + 20
    while prompt.inner_text() == "[ ]:":
        assert time.monotonic() < limit, f"cell {number} does not run"
        page.wait_for_timeout(20)


def save(page):
    """Save the notebook, so that another page finds its outputs."""
    page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")


@contextmanager
def outside(folder):
    """A manager of the notebook's cluster, from another process than its kernel."""
    from distributed import Client

    import dask_hpc

    address = Path(folder, "address")
    until(lambda: address.exists() and address.read_text(), 60)
    with Client(address.read_text()) as client:
        yield dask_hpc.manage(client)


def value_of(manager, key):
    """One line of the policy in force."""
    return re.search(rf"{key}: (.*)", manager.set()["policy"])[1]


def until(condition, seconds):
    """Seconds until it is so."""
    began = looked = time.monotonic()
    looks, longest = 0, 0.0
    while not condition():
        looks, longest = looks + 1, max(longest, time.monotonic() - looked)
        # of a machine that stands still, or somebody who does not answer, there are few looks and a long one
        told = f"it never happened, in {looks} looks, the longest of which took {longest:.2f} s"
        assert time.monotonic() - began < seconds, told
        time.sleep(0.02)
        looked = time.monotonic()
    return time.monotonic() - began


def id_of(manager, name):
    """Of the job that is called so, as soon as the scheduler knows it."""
    found = []

    def is_known():
        found[:] = [job["id"] for job in manager.status()["jobs"] if job["name"] == name]
        return found

    until(is_known, 10)
    return found[0]


@contextmanager
def cluster_apart(folder, nodes, dashboard=True):
    """A scheduler and its workers in processes of their own, configured by this environment. Its address
    is written to ``folder/address``."""
    started = []

    def start(*command):
        with Path(folder, f"{command[0]}.log").open("ab") as log:
            command = [sys.executable, "-m", f"distributed.cli.dask_{command[0]}", *command[1:]]
            started.append(subprocess.Popen(command, cwd=folder, stdout=log, stderr=log))
        return started[-1]

    address = f"tcp://127.0.0.1:{free_port()}"
    port = address.rpartition(":")[2]
    options = ["--dashboard-address=127.0.0.1:0"] if dashboard else ["--no-dashboard"]
    scheduler = start("scheduler", "--host=127.0.0.1", f"--port={port}", *options)
    for i in range(nodes):
        start("worker", address, f"--name=node{i}", "--nthreads=1", "--no-nanny", "--no-dashboard")
    Path(folder, "address").write_text(address)
    try:
        yield Apart(address, scheduler)
    finally:
        for one in started:
            if one.poll() is None:
                one.send_signal(signal.SIGCONT)
                one.kill()
            one.wait()


class Apart:
    """A scheduler in a process of its own."""

    def __init__(self, address, process):
        self.address, self._process = address, process

    def send(self, number):
        self._process.send_signal(number)

    def go_on(self):
        if self._process.poll() is None:
            self.send(signal.SIGCONT)


def served_kit(page, text, module):
    """That page, a widget's module and the kit's files beside it, without a server."""

    def answer(route):
        path = route.request.url.removeprefix("http://kit.test/")
        if not path:
            return route.fulfill(body=text, content_type="text/html; charset=utf-8")
        if path == "view.js":
            return route.fulfill(body=module, content_type="text/javascript; charset=utf-8")
        file = Path(kit.__file__).parent / path
        if not file.is_file():
            return route.fulfill(status=404)
        return route.fulfill(body=file.read_bytes(), content_type=mimetypes.guess_type(path)[0])

    page.unroute_all()
    page.route("http://kit.test/**", answer)
    page.goto("http://kit.test/")


def measured(script, *given):
    """What a script of the benchmarks found, in a process of its own, as a benchmark starts it."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", BENCHMARKS / script, *given],
        stdout=subprocess.PIPE,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0
    print(done.stdout)
    return json.loads(done.stdout)
