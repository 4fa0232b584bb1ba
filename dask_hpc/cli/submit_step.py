"""``dask-hpc submit-step``: what a batch job of ``dask-hpc submit`` runs. Nobody else needs it."""

import sys
from pathlib import Path

import click

from dask_hpc import config
from dask_hpc.cli.run_child import Child
from dask_hpc.history.runs import path_of
from dask_hpc.reservations.slurm import SlurmDesk
from dask_hpc.reservations.state import ChainFile
from dask_hpc.reservations.step import ChainStep


@click.command("submit-step", hidden=True)
@click.argument("state", metavar="STATE")
@click.option("--chain", "chain_id", required=True)
@click.option("--step", "number", required=True, type=click.IntRange(1, 1_000_000))
@click.argument("command", metavar="-- COMMAND", nargs=-1, required=True, type=click.UNPROCESSED)
def submit_step(state: str, chain_id: str, number: int, command: tuple[str, ...]) -> None:
    """Run one step of a chain, in the batch job that was asked for it."""
    child = Child(command)
    with child.signals():
        history = path_of(config.settings()["history"])
        code = ChainStep(ChainFile(Path(state)), chain_id, number, SlurmDesk(), _say, history).run(child)
    sys.exit(code)


def _say(words: str) -> None:
    click.echo(f"dask-hpc: {words}", err=True)
