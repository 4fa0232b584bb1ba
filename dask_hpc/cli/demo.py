"""``dask-hpc demo``: competing jobs on a small live cluster, and a report of what was decided and why."""

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import click
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from dask_hpc.cli.atomic_file import atomic_file
from dask_hpc.cli.demo_panels import PANELS, SECTIONS, grid
from dask_hpc.examples import Example
from dask_hpc.examples.checkpoint import LosesAll
from dask_hpc.examples.in_situ import SlowAnalysis
from dask_hpc.examples.jobs import Competition, MovingCorridor
from dask_hpc.model.errors import InputError
from dask_hpc.policy import Policy
from dask_hpc.view import Section, html_page

_WIDTH = 110


class Shown(NamedTuple):
    """An example, for how long it runs and by which policy if nobody says, and what that has to have."""

    example: Callable[[Policy, float], Example]
    seconds: int
    policy: str
    concern: str = "queue"


_PLAIN = Shown(Competition, 60, "urgent-first")
_EXAMPLES = {
    "corridor": Shown(MovingCorridor, 30, "power-corridor", "power"),
    "in_situ": Shown(SlowAnalysis, 60, "in-situ-async", "placement"),
    "checkpoint": Shown(LosesAll, 45, "fcfs"),
}


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
    help=f"How long it takes, about; {_PLAIN.seconds}, with --corridor {_EXAMPLES['corridor'].seconds}, "
    f"with --checkpoint {_EXAMPLES['checkpoint'].seconds}.",
)
@click.option(
    "--policy",
    metavar="NAME",
    help=f"Name or file of the policy; {', '.join(one.policy for one in (_PLAIN, *_EXAMPLES.values()))}.",
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
    asked = [name for name in _EXAMPLES if kinds[name]]
    if len(asked) > 1:
        found, other = (f"--{name.replace('_', '-')}" for name in asked[:2])
        raise InputError(found, f"found {other}, too", "one of both")
    kind = _EXAMPLES[asked[0]] if asked else _PLAIN
    chosen = Policy.load(policy or kind.policy)
    if getattr(chosen, kind.concern) is None:
        found = f"{chosen.name} has no {kind.concern} strategy"
        raise InputError("--policy", found, f"one that has, such as {kind.policy}")
    run = kind.example(chosen, seconds or kind.seconds)
    console = Console(width=None if sys.stdout.isatty() else 120)
    with atomic_file(report) as draft:
        console.print(f"{run.opening} Starting the cluster ...")
        with live_picture(console, run) as update, closing(run.play()) as steps:
            for _ in steps:
                update()
        print_end(console, run)
        draft.write_text(report_page(run), encoding="utf-8")
    console.print(f"Report: {Path(report).resolve()}", soft_wrap=True)
    console.print("To see and steer such a cluster from a notebook: dask-hpc lab", highlight=False)
    if run.failure:
        console.print(f"[bold red]{run.failure}[/]")
        sys.exit(1)


def picture(run: Example) -> Panel:
    """The panels that an example asks for, row by row."""
    rows: list[Any] = []
    for names in run.panels:
        shown = [PANELS[name](run) for name in names]
        rows += ["", shown[0] if len(shown) == 1 else grid([shown], gap=3)]
    return Panel(Group(*rows[1:]), title=run.progress(), width=_WIDTH)


@contextmanager
def live_picture(console: Console, run: Example) -> Iterator[Callable[[], None]]:
    """A picture that changes on a terminal; elsewhere a line for each thing that happens."""
    if console.is_terminal:
        with Live(console=console, refresh_per_second=8, transient=True) as live:
            yield lambda: live.update(picture(run))
        return
    told = 0

    def tell() -> None:
        nonlocal told
        lines = run.lines()
        for line in lines[told:]:
            console.print("  ".join(line), soft_wrap=True, highlight=False)
        told = len(lines)

    yield tell


def print_end(console: Console, run: Example) -> None:
    """What it came to."""
    for name in run.at_end:
        shown = PANELS[name](run)
        console.print(shown, soft_wrap=isinstance(shown, Text), highlight=False)


def report_page(run: Example) -> str:
    """Everything in one HTML page."""
    sections = [Section(title, draw(run)) for title, draw in (SECTIONS[name] for name in run.sections)]
    return html_page(run.title, run.lead(), sections)
