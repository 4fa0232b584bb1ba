"""``dask-hpc demo``: competing jobs on a small live cluster, and a report of what was decided and why."""

import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from dask_hpc.cli import demo_corridor_view, demo_view
from dask_hpc.cli.atomic_file import atomic_file
from dask_hpc.cli.demo_corridor import CorridorDemo
from dask_hpc.cli.demo_run import Demo
from dask_hpc.model.errors import InputError
from dask_hpc.policy import Policy

_SECONDS = 60, 30  # by default: of the plain demo, of that with a corridor


@click.command()
@click.option("--corridor", is_flag=True, help="Show how power is kept in a corridor that moves twice.")
@click.option(
    "--seconds",
    type=click.IntRange(10, 110),
    help=f"How long the jobs take together; {_SECONDS[0]}, or {_SECONDS[1]} with --corridor.",
)
@click.option("--policy", metavar="NAME", help="Name or file of the policy; urgent-first, or power-corridor.")
@click.option("--report", default="dask-hpc-demo.html", metavar="FILE.html", help="Where the report goes.")
def demo(corridor: bool, seconds: int | None, policy: str | None, report: str) -> None:
    """Start a local cluster, let five jobs compete for its four nodes, and tell what happened.

    Malleable jobs shrink when a more urgent one comes and grow back; meanwhile a node is held, one leaves
    and one comes, and no result is lost. The simulator predicts every start before the cluster begins; the
    summary compares.

    With --corridor, three malleable jobs share six nodes whose power is to stay between two bounds. The
    bounds move twice, once announced and once not; jobs grow, shrink and wait for it. Power is simulated, so
    no sensor is needed.

    \b
    Example:
      dask-hpc demo --seconds 30 --policy fcfs
      dask-hpc demo --corridor
    """
    chosen = Policy.load(policy or ("power-corridor" if corridor else "urgent-first"))
    if corridor and chosen.power is None:
        raise InputError(
            "--policy", f"{chosen.name} has no power strategy", "one that has, such as power-corridor"
        )
    run: Any = (CorridorDemo if corridor else Demo)(chosen, seconds or _SECONDS[corridor])
    view: Any = demo_corridor_view if corridor else demo_view
    console = Console(width=None if sys.stdout.isatty() else 120)
    with atomic_file(report) as draft:
        with view.live_view(console, run) as update:
            run.play(update)
        view.print_summary(console, run)
        draft.write_text(view.report_page(run), encoding="utf-8")
    console.print(f"Report: {Path(report).resolve()}", soft_wrap=True)
    if run.failure:
        console.print(f"[bold red]{run.failure}[/]")
        sys.exit(1)
