"""``dask-hpc demo``: competing jobs on a small live cluster, and a report of what was decided and why."""

import sys
from pathlib import Path

import click
from rich.console import Console

from dask_hpc.cli.atomic_file import atomic_file
from dask_hpc.cli.demo_run import Demo
from dask_hpc.cli.demo_view import live_view, print_summary, report_page
from dask_hpc.policy import Policy


@click.command()
@click.option("--seconds", default=60, type=click.IntRange(10, 110), help="How long the jobs take together.")
@click.option("--policy", default="urgent-first", metavar="NAME", help="Name or file of the policy.")
@click.option("--report", default="dask-hpc-demo.html", metavar="FILE.html", help="Where the report goes.")
def demo(seconds: int, policy: str, report: str) -> None:
    """Start a local cluster, let five jobs compete for its four nodes, and tell what happened.

    Malleable jobs shrink when a more urgent one comes and grow back; meanwhile a node is held, one leaves
    and one comes, and no result is lost. The simulator predicts every start before the cluster begins; the
    summary compares.

    \b
    Example:
      dask-hpc demo --seconds 30 --policy fcfs
    """
    chosen = Policy.load(policy)
    console = Console(width=None if sys.stdout.isatty() else 120)
    with atomic_file(report) as draft:
        run = Demo(chosen, seconds)
        with live_view(console, run) as update:
            run.play(update)
        print_summary(console, run)
        draft.write_text(report_page(run), encoding="utf-8")
    console.print(f"Report: {Path(report).resolve()}", soft_wrap=True)
    if run.failure:
        console.print(f"[bold red]{run.failure}[/]")
        sys.exit(1)
