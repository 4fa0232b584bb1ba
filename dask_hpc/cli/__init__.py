"""The command line: ``dask-hpc`` and the same commands as ``dask hpc``."""

import sys

import click

from dask_hpc import __version__
from dask_hpc.cli.group import LazyGroup

__all__ = ["cli", "main"]

#: command -> what --help says of it; the command NAME is the object NAME of dask_hpc/cli/NAME.py
COMMANDS = {
    "bench": "Run the benchmark notebooks, at a small scale or in full.",
    "checkpoint": "List, show, verify and prune checkpoints in a store.",
    "demo": "Show on a small live cluster what a policy does.",
    "lab": "Open JupyterLab on a notebook with a cluster and the control room ready.",
    "plan": "Plan sizes within a power corridor, analyses in situ or in transit, commits of checkpoints.",
    "policies": "List, show and check policies.",
    "power": "Show what this machine can measure of its power, and watch it.",
    "reproduce": "Print what papers published beside what we get.",
    "run": "Run a Dask script under control, on this machine, on Slurm, or on a cluster there is.",
    "simulate": "Play a workload under one or more policies and compare.",
    "story": "Tell what was decided on a managed cluster, and why.",
}


@click.group(
    "hpc",
    cls=LazyGroup,
    package="dask_hpc.cli",
    table=COMMANDS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="dask-hpc")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """A malleable, power-aware Dask cluster, and the simulator of one.

    \b
    Example:
      dask-hpc policies
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main() -> None:
    """The console script ``dask-hpc``."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a letter gets its code instead of a traceback.
        getattr(stream, "reconfigure", lambda errors: None)(errors="backslashreplace")
    cli.main(prog_name="dask-hpc")
