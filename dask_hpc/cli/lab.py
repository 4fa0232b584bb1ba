"""``dask-hpc lab``: JupyterLab on a notebook that has a cluster and the control room ready."""

import os
import socket
import sys
from importlib.util import find_spec
from pathlib import Path
from shutil import copyfile

import click

from dask_hpc.model.errors import InputError, one_line

_FIRST = "1-first-steps.ipynb"
_NEEDED = ("jupyterlab", "ipykernel", "ipywidgets", "anywidget")


@click.command()
@click.option(
    "--folder", default=".", show_default=True, metavar="FOLDER", help="Where the notebook is, or goes."
)
@click.option(
    "--port", type=click.IntRange(1, 65535), help="JupyterLab's; 8888, or the next one that is free."
)
@click.option("--no-browser", is_flag=True, help="Only say the address.")
def lab(folder: str, port: int | None, no_browser: bool) -> None:
    """Open JupyterLab on a notebook with a local cluster and the control room: press Shift+Enter there.

    The notebook is copied to the folder, unless it is there already: then that one is opened, as you left
    it. Ctrl-C ends JupyterLab and the cluster. Whatever else JupyterLab is told by its own configuration
    and environment holds, too.

    \b
    Example:
      dask-hpc lab
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
    notebook = place.resolve() / _FIRST
    if not notebook.exists():
        try:
            copyfile(tutorials() / _FIRST, notebook)
        except OSError as error:
            raise InputError(
                "--folder", f"{one_line(folder)}: {error.strerror}", "a folder to write to"
            ) from None
    click.echo(f"{notebook}: press Shift+Enter in its cells. Ctrl-C here ends it.")
    sys.stdout.flush()
    os.execv(sys.executable, _command(notebook, port, no_browser))


def tutorials() -> Path:
    """The folder of the tutorials: in a wheel inside the package, in an editable install beside it."""
    here = Path(__file__).parents[1]
    for found in (here / "notebooks", here.parent / "notebooks" / "tutorials"):
        if found.is_dir():
            return found
    raise InputError("lab", "this installation has no notebooks", "a wheel, or a clone of the repository")


def _command(notebook: Path, port: int | None, no_browser: bool) -> list[str]:
    """JupyterLab that opens the notebook, and does not ask back when it is to end."""
    command = [
        *(sys.executable, "-m", "jupyter", "lab", "--ServerApp.answer_yes=True"),
        *(f"--ServerApp.root_dir={notebook.parent}", f"--LabApp.default_url=/lab/tree/{notebook.name}"),
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
