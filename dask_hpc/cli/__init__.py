"""The command line: ``dask-hpc`` and the same commands as ``dask hpc``."""

import sys
from importlib import import_module
from typing import Any

import click

from dask_hpc import __version__
from dask_hpc.cli.group import one_line_complaints
from dask_hpc.cli.options import name_options

__all__ = ["cli", "main"]

#: command -> what --help says of it; the command NAME is the object NAME of dask_hpc/cli/NAME.py
COMMANDS = {
    "bench": "Run the benchmark notebooks, at a small scale or in full, or strategies on your traces.",
    "checkpoint": "List, show, verify and prune checkpoints in a store.",
    "demo": "Show on a small live cluster what a policy does.",
    "doctor": "Say what this site offers and lacks, and what to do.",
    "files": "List, show, resize and copy out scratch files in the memory of a cluster.",
    "history": "List, show and forget runs of past jobs.",
    "holes": "Show what would start now in the queue of Slurm: how many nodes for how long, and where.",
    "lab": "Open JupyterLab on a notebook with a cluster and the control room ready.",
    "learn": "Learn from the jobs that Slurm remembers: how long they took, asked for and waited.",
    "plan": "Plan sizes within a power corridor, analyses in situ or in transit, commits of checkpoints.",
    "policies": "List, show and check policies.",
    "power": "Show what this machine can measure of its power, and watch it.",
    "reproduce": "Print what papers published beside what we get.",
    "run": "Run a Dask script under control, on this machine, on Slurm, or on a cluster there is.",
    "simulate": "Play a workload under one or more policies and compare.",
    "story": "Tell what was decided on a managed cluster, and why.",
    "submit": "Run a program as a chain of Slurm jobs that goes on from its checkpoints, until it is done.",
}

#: commands that only our own batch jobs use
_HIDDEN = ("submit-step",)


class Commands(click.Group):
    """Imports a command only when it is run.

    Whatever goes wrong with the input, here or in a command below, becomes a ``Complaint``. That
    happens in ``make_context`` and ``invoke``, not in ``main``, because ``main`` is not ours when we
    run as ``dask hpc``.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Command names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command."""
        if cmd_name not in COMMANDS and cmd_name not in _HIDDEN:
            return None
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(import_module(f"dask_hpc.cli.{name}"), name)
        name_options(command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table, so that --help imports none."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the commands there are when there is no such one."""
        name = args[0]
        if name not in (*COMMANDS, *_HIDDEN) and not name.startswith("-"):
            ctx.fail(f"No such command {name!r}; there are: {', '.join(COMMANDS)}.")
        return super().resolve_command(ctx, args)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """As click does it, with complaints of one line."""
        with one_line_complaints():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """As click does it, with complaints of one line."""
        with one_line_complaints():
            return super().invoke(ctx)


@click.group(
    "hpc",
    cls=Commands,
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
