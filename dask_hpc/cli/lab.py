"""``dask-hpc lab``: JupyterLab on a tutorial, with the control room beside it.

The room is drawn where the notebook's cell has it, and a page scrolls. So JupyterLab is given a workspace, a
file of its own kind that says what lies where: the notebook, and right of it a view of that cell's output.
"""

import json
import os
import socket
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from shutil import copyfile
from typing import Any

import click

from dask_hpc.model.errors import InputError, one_line

#: what a cell has that shows the room, and what the workspace is called
_ROOM, _WORKSPACE = "ControlRoom(", "dask-hpc"
_NEEDED = ("jupyterlab", "ipykernel", "ipywidgets", "anywidget")


@click.command()
@click.argument("tutorial", default="1")
@click.option(
    "--folder", default=".", show_default=True, metavar="FOLDER", help="Where the notebook is, or goes."
)
@click.option(
    "--port", type=click.IntRange(1, 65535), help="JupyterLab's; 8888, or the next one that is free."
)
@click.option("--no-browser", is_flag=True, help="Only say the address.")
def lab(tutorial: str, folder: str, port: int | None, no_browser: bool) -> None:
    """Open JupyterLab on a notebook with a local cluster, and the control room beside it: press Shift+Enter.

    TUTORIAL is the number of one, 1 if none is given. Its notebook is copied to the folder, unless it is
    there already: then that one is opened, as you left it. Ctrl-C ends JupyterLab and the cluster. Whatever
    else JupyterLab is told by its own configuration and environment holds, too.

    \b
    Example:
      dask-hpc lab
      dask-hpc lab 3
      dask-hpc lab --no-browser --port 9999
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        allowed = "pip install 'dask-hpc[widgets]', or from a clone: pip install -e '.[widgets]'"
        raise InputError("lab", f"{', '.join(missing)} is missing", allowed)
    place = Path(folder)
    if not place.is_dir():
        raise InputError("--folder", f"found {one_line(folder)!r}", "a folder that exists")
    if port is not None and _is_taken(port):
        raise InputError("--port", f"{port} is in use", "a port that is free")
    all_there = {path.name.partition("-")[0]: path for path in sorted(tutorials().glob("*.ipynb"))}
    if tutorial not in all_there:
        raise InputError("TUTORIAL", f"found {one_line(tutorial)!r}", f"one of {', '.join(all_there)}")
    notebook = place.resolve() / all_there[tutorial].name
    if not notebook.exists():
        try:
            copyfile(all_there[tutorial], notebook)
        except OSError as error:
            raise InputError(
                "--folder", f"{one_line(folder)}: {error.strerror}", "a folder to write to"
            ) from None
    opens = f"/lab/tree/{notebook.name}"
    with suppress(OSError):  # then it opens without the room beside it
        if lay_out(notebook):
            opens = f"/lab/workspaces/{_WORKSPACE}/tree/{notebook.name}"
    click.echo(f"{notebook}: press Shift+Enter in its cells. Ctrl-C here ends it.")
    sys.stdout.flush()
    os.execv(sys.executable, _command(notebook, opens, port, no_browser))


def tutorials() -> Path:
    """The folder of the tutorials: in a wheel inside the package, in an editable install beside it."""
    here = Path(__file__).parents[1]
    for found in (here / "notebooks", here.parent / "notebooks" / "tutorials"):
        if found.is_dir():
            return found
    raise InputError("lab", "this installation has no notebooks", "a wheel, or a clone of the repository")


def lay_out(notebook: Path) -> bool:
    """Write the workspace in which the room is right of this notebook; False if it shows none.

    It is written anew each time, so that a panel that was closed is there again.
    """
    from jupyterlab.commands import get_workspaces_dir
    from jupyterlab_server.workspaces_handler import WorkspacesManager

    with suppress(ValueError, KeyError, TypeError):  # whatever somebody made of the notebook
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        for number, cell in enumerate(cells):
            if cell["cell_type"] == "code" and _ROOM in "".join(cell["source"]):
                found = json.dumps(workspace(notebook.name, number))
                WorkspacesManager(get_workspaces_dir()).save(_WORKSPACE, found)
                return True
    return False


def workspace(path: str, cell: int) -> dict[str, Any]:
    """What JupyterLab remembers of a page with this notebook on the left, and the output of one of its cells
    on the right. It fills that view when the cell has run."""
    notebook, output = f"notebook:{path}", f"cloned-outputs:{path}:{cell}"
    sides = [{"type": "tab-area", "currentIndex": 0, "widgets": [one]} for one in (notebook, output)]
    dock = {"type": "split-area", "orientation": "horizontal", "sizes": [0.45, 0.55], "children": sides}
    closed = {"collapsed": True, "visible": True, "widgets": []}
    layout = {"main": {"dock": dock, "current": notebook}, "left": closed, "right": closed}
    return {
        "data": {
            "layout-restorer:data": {**layout, "relativeSizes": [0, 1, 0]},
            notebook: {"data": {"path": path, "factory": "Notebook"}},
            output: {"data": {"path": path, "index": cell}},
        },
        "metadata": {"id": _WORKSPACE},
    }


def _command(notebook: Path, opens: str, port: int | None, no_browser: bool) -> list[str]:
    """JupyterLab that opens the notebook, and does not ask back when it is to end."""
    command = [
        *(sys.executable, "-m", "jupyter", "lab", "--ServerApp.answer_yes=True"),
        *(f"--ServerApp.root_dir={notebook.parent}", f"--LabApp.default_url={opens}"),
    ]
    if port is not None:
        command += [f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
    if no_browser:
        command.append("--no-browser")
    if os.geteuid() == 0:
        command.append("--allow-root")  # it is root who asks for it
    return command


def _is_taken(port: int) -> bool:
    """Whether somebody listens there, or we may not."""
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False
