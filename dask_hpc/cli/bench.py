"""``dask-hpc bench``: run the benchmark notebooks, at a small scale or in full; and ``traces``."""

import json
import os
import platform
import sys
from collections.abc import Iterable, Mapping
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Any

import click

from dask_hpc.cli.bench_traces import traces
from dask_hpc.cli.terminal import print_table
from dask_hpc.model.errors import InputError, one_line
from dask_hpc.model.safe_yaml import nearest
from dask_hpc.model.units import show_duration

FOLDER = Path(__file__).parents[2] / "notebooks" / "benchmarks"
NEEDED = ("papermill", "ipykernel", "matplotlib")


class _Benchmarks(click.Group):
    """A command for each notebook, beside those that are no notebooks."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A name that nobody has is complained of when it is run."""
        return super().get_command(ctx, cmd_name) or click.Command(
            cmd_name, params=_options(), callback=partial(_run, cmd_name), help=_HELP
        )


def _options() -> list[click.Parameter]:
    return [
        click.Option(
            ["--scale"],
            type=click.Choice(["small", "full"]),
            default="small",
            show_default=True,
            help="small: seconds each, to see that it works; full: what our figures were made with.",
        ),
        click.Option(
            ["--out"],
            default="bench",
            show_default=True,
            metavar="FOLDER",
            help="Where the run notebooks go.",
        ),
    ]


_HELP = """Run this benchmark. It is a notebook that ends in a table and a plot; the notebook as it ran,
outputs and all, is kept in the folder --out.

\b
Example:
  dask-hpc bench simulator --scale full --out figures
"""


@click.group(
    cls=_Benchmarks, invoke_without_command=True, subcommand_metavar="[NAME [OPTIONS]]", params=_options()
)
@click.pass_context
def bench(ctx: click.Context, scale: str, out: str) -> None:
    """Run the benchmark NAME, or all of them, or list what there is. Each is a notebook that ends in a table
    and a plot; the notebook as it ran, outputs and all, is kept in the folder --out. Only traces is none: it
    compares strategies on traces of yours.

    \b
    Example:
      dask-hpc bench
      dask-hpc bench simulator
      dask-hpc bench all --scale full --out figures
      dask-hpc bench traces archive --first 2000
    """
    if ctx.invoked_subcommand is None:
        rows = [(one, title(path)) for one, path in benchmarks().items()]
        print_table(("name", "what it measures"), [*rows, (traces.name, "your traces, under each strategy")])
    else:  # options are the same before the name
        ctx.default_map = {ctx.invoked_subcommand: {"scale": scale, "out": out}}


bench.add_command(traces)


def _run(name: str, scale: str, out: str) -> None:
    found = benchmarks()
    if name != "all" and name not in found:
        names = [*found, "all", traces.name or ""]
        raise InputError("NAME", f"found {one_line(name)!r}{nearest(name, names)}", ", ".join(names))
    for package in NEEDED:
        if find_spec(package) is None:
            raise InputError("bench", f"{package} is missing", "a clone with pip install -e '.[notebooks]'")
    folder = _writable(out)
    chosen = list(found) if name == "all" else [name]
    failed = [one for one in chosen if not _runs(found[one], folder / f"{one}.ipynb", scale)]
    if len(chosen) > 1:
        click.echo(
            f"{len(chosen) - len(failed)} of {len(chosen)} benchmarks ran; all of them are in {folder}"
        )
    if failed:
        if len(chosen) > 1:
            click.echo(f"failed: {', '.join(failed)}", err=True)
        sys.exit(1)


def benchmarks() -> dict[str, Path]:
    """The notebooks by name. Only a clone has them."""
    found = {path.stem: path for path in sorted(FOLDER.glob("*.ipynb"))}
    if not found:
        raise InputError("bench", "this installation has no benchmarks", "a clone of the repository")
    return found


def title(notebook: Path) -> str:
    """Its first heading."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return "".join(cells[0]["source"]).partition("\n")[0].lstrip("# ")


def last_table(cells: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The last output that is a table, by type; without any the last text, and without that nothing."""
    outputs = [out for cell in cells for out in cell.get("outputs", ())]
    bundles = [
        {kind: "".join(said) for kind, said in out["data"].items() if kind.startswith("text/")}
        if "data" in out
        else {"text/plain": "".join(out.get("text", ""))}
        for out in outputs
    ]
    for wanted in ("text/markdown", "text/html", "text/plain"):
        for bundle in reversed(bundles):
            if bundle.get(wanted) and not bundle.get("text/plain", "").startswith("<"):
                return bundle
    return {}


def _writable(out: str) -> Path:
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".{os.getpid()}"
        probe.touch()
        probe.unlink()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError("--out", f"{one_line(out)!r}: {why}", "a folder to write to") from None
    return folder


def _runs(notebook: Path, out: Path, scale: str) -> bool:
    """Run it in a kernel of its own and print its last table; whether it came to its end."""
    import papermill
    from jupyter_client.kernelspec import NoSuchKernel
    from nbclient.exceptions import DeadKernelError

    click.echo(f"{notebook.stem}, {scale}: {title(notebook)}")
    began = monotonic()
    try:
        ran = papermill.execute_notebook(
            notebook,
            out,
            parameters={"scale": scale},
            kernel_name="python3",
            cwd=notebook.parent,
            progress_bar=sys.stderr.isatty(),
            extra_arguments=["--log-level=ERROR"],  # of the kernel
        )
    except papermill.PapermillExecutionError as error:
        said = f"cell [{error.exec_count}]: {error.ename}: {one_line(str(error.evalue))}"
        click.echo(f"{notebook.stem} failed in {said}; see {out}", err=True)
        return False
    except (DeadKernelError, NoSuchKernel) as error:
        click.echo(f"{notebook.stem} failed: {one_line(str(error))}; see {out}", err=True)
        return False
    seconds = monotonic() - began
    ran.metadata["dask_hpc"] = {**ran.metadata.get("dask_hpc", {}), "ran": _how(scale, seconds)}
    papermill.iorw.write_ipynb(ran, str(out))
    if table := last_table(ran.cells).get("text/plain", ""):
        click.echo(table.rstrip())
    click.echo(f"{show_duration(round(seconds))}; all of it is in {out}\n")
    return True


def _how(scale: str, seconds: float) -> dict[str, Any]:
    """With what a notebook ran: for whoever reads its figures."""
    packages = ("dask", "distributed", "numpy", "dask-hpc")
    return {
        "scale": scale,
        "seconds": round(seconds, 1),
        "cores": len(os.sched_getaffinity(0)),
        "processor": _processor(),
        "versions": {"Python": platform.python_version(), **{one: version(one) for one in packages}},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
