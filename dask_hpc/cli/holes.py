"""``dask-hpc holes``: what would start now, from the queue as everybody may see it."""

import asyncio
from dataclasses import asdict
from math import inf

import click

from dask_hpc.batch.slurm_queue import look_once
from dask_hpc.cli.terminal import print_json, print_table
from dask_hpc.model.errors import InputError, insist, within
from dask_hpc.model.units import finite, parse_quantity, show_duration
from dask_hpc.planning.asks.holes import holes_of


@click.command()
@click.option("--cores", type=int, default=0, help="Cores of a job on each node; whole nodes if not given.")
@click.option("--memory", default="0", help='Memory of a job on each node, "8 GiB".')
@click.option("--partition", "-p", "partitions", multiple=True, help="Only this partition (may be repeated).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def holes(cores: int, memory: str, partitions: tuple[str, ...], as_json: bool) -> None:
    """Show what would start now: jobs of so many nodes, for so long, in each partition of Slurm.

    By the walltimes of all jobs and maintenance that is announced; nobody who waits is delayed by it.

    \b
    Example:
      dask-hpc holes
      dask-hpc holes --cores 16 --memory "64 GiB" --json
    """
    insist(cores >= 0, "--cores", cores, "0 or more")
    with within("--memory"):
        size = parse_quantity(memory, "B")
        insist(0 <= size < inf, "", memory, "0 B or more")
    if size and not cores:
        raise InputError("--memory", "found it without --cores: whole nodes", "--cores N beside it")
    view = asyncio.run(look_once())
    if view is None:
        raise InputError(
            "holes", "Slurm does not show its queue here", "squeue and scontrol on PATH that answer"
        )
    for name in partitions:
        insist(name in view.partitions, "--partition", name, ", ".join(view.partitions))
    found = [hole for hole in holes_of(view, cores, size) if not partitions or hole.partition in partitions]
    if as_json:
        print_json({"holes": [finite(asdict(hole)) for hole in found], "unknown": list(view.unknown)})
        return
    if found:
        heads = ("partition", "jobs" if cores else "nodes", "for", "until")
        rows = (
            (one.partition, str(one.nodes), show_duration(one.seconds), one.until or "-") for one in found
        )
        print_table(heads, rows)
    else:
        click.echo("nothing would start now")
    for words in view.unknown:
        click.echo(f"not known: {words}", err=True)
