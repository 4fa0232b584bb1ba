"""``dask-hpc demo``: competing jobs on a small live cluster, and a report of what was decided and why."""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import click
from rich.console import Console

from dask_hpc.cli import demo_checkpoint_view, demo_corridor_view, demo_in_situ_view, demo_view
from dask_hpc.cli.atomic_file import atomic_file
from dask_hpc.cli.demo_checkpoint import CheckpointDemo
from dask_hpc.cli.demo_corridor import CorridorDemo
from dask_hpc.cli.demo_in_situ import InSituDemo
from dask_hpc.cli.demo_run import Demo
from dask_hpc.model.errors import InputError
from dask_hpc.policy import Policy


class _Kind(NamedTuple):
    """What is run and shown, for how long and by which policy if nobody says, and what that has to have."""

    run: Any
    view: Any
    seconds: int
    policy: str
    concern: str = "queue"


_PLAIN = _Kind(Demo, demo_view, 60, "urgent-first")
_CORRIDOR = _Kind(CorridorDemo, demo_corridor_view, 30, "power-corridor", "power")
_IN_SITU = _Kind(InSituDemo, demo_in_situ_view, 60, "in-situ-async", "placement")
_CHECKPOINT = _Kind(CheckpointDemo, demo_checkpoint_view, 45, "fcfs")
_KINDS = {"": _PLAIN, "corridor": _CORRIDOR, "in_situ": _IN_SITU, "checkpoint": _CHECKPOINT}


@click.command()
@click.option("--corridor", is_flag=True, help="Show how power is kept in a corridor that moves twice.")
@click.option(
    "--in-situ", is_flag=True, help="Show how analyses of a simulation are placed, and placed anew."
)
@click.option(
    "--checkpoint", is_flag=True, help="Show a program that loses its workers, then its cluster, and goes on."
)
@click.option(
    "--seconds",
    type=click.IntRange(10, 110),
    help=f"How long it takes, about; {_PLAIN.seconds}, with --corridor {_CORRIDOR.seconds}, "
    f"with --checkpoint {_CHECKPOINT.seconds}.",
)
@click.option(
    "--policy",
    metavar="NAME",
    help=f"Name or file of the policy; {', '.join(one.policy for one in _KINDS.values())}.",
)
@click.option("--report", default="dask-hpc-demo.html", metavar="FILE.html", help="Where the report goes.")
def demo(seconds: int | None, policy: str | None, report: str, **kinds: bool) -> None:
    """Start a local cluster, let five jobs compete for its four nodes, and tell what happened.

    Malleable jobs shrink when a more urgent one comes and grow back; meanwhile a node is held, one leaves
    and one comes, and no result is lost. The simulator predicts every start before the cluster begins; the
    summary compares.

    With --corridor, three malleable jobs share six nodes whose power is to stay between two bounds. The
    bounds move twice, once announced and once not; jobs grow, shrink and wait for it. Power is simulated, so
    no sensor is needed.

    With --in-situ, heat spreads in a plate and four analyses look at every step, beside the simulation or
    on nodes of their own. At half time one becomes ten times slower, and nodes, cores and analyses are
    divided anew. Slow cores are played, so two real ones do for sixteen.

    With --checkpoint, workers of the same plate are killed one after the other, then the whole cluster; the
    same program goes on with another number of nodes, and the plate is right to the last bit.

    \b
    Example:
      dask-hpc demo --seconds 30 --policy fcfs
      dask-hpc demo --corridor
      dask-hpc demo --in-situ --report heat.html
      dask-hpc demo --checkpoint
    """
    asked = [name for name in _KINDS if kinds.get(name)]
    if len(asked) > 1:
        found, other = (f"--{name.replace('_', '-')}" for name in asked[:2])
        raise InputError(found, f"found {other}, too", "one of both")
    kind = _KINDS[asked[0] if asked else ""]
    chosen = Policy.load(policy or kind.policy)
    if getattr(chosen, kind.concern) is None:
        found = f"{chosen.name} has no {kind.concern} strategy"
        raise InputError("--policy", found, f"one that has, such as {kind.policy}")
    run, view = kind.run(chosen, seconds or kind.seconds), kind.view
    console = Console(width=None if sys.stdout.isatty() else 120)
    with atomic_file(report) as draft:
        with view.live_view(console, run) as update:
            run.play(update)
        view.print_summary(console, run)
        draft.write_text(view.report_page(run), encoding="utf-8")
    console.print(f"Report: {Path(report).resolve()}", soft_wrap=True)
    console.print("To see and steer such a cluster from a notebook: dask-hpc lab", highlight=False)
    if run.failure:
        console.print(f"[bold red]{run.failure}[/]")
        sys.exit(1)
