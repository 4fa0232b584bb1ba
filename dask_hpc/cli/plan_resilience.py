"""``dask-hpc plan resilience``: protections against failures side by side, and which costs least."""

from collections.abc import Mapping
from math import inf, isfinite
from typing import Any, get_args

import click

from dask_hpc.cli.atomic_file import atomic_file
from dask_hpc.cli.terminal import print_json, print_table, progress_bar
from dask_hpc.model.errors import InputError, one_line, shown
from dask_hpc.model.units import show_duration, show_large
from dask_hpc.planning.plan_resilience import plan_resilience
from dask_hpc.planning.resilience.choose import ResiliencePlan
from dask_hpc.planning.resilience.prospect import Objective, Prospect
from dask_hpc.simulator.resilience import play_run
from dask_hpc.view.resilience import PARTS, protocols_svg


@click.command()
@click.option("--nodes", type=int, required=True, help="Nodes that the calculation runs on.")
@click.option("--run", required=True, metavar="TIME", help="Its work, without failures and protection.")
@click.option("--memory", required=True, metavar="SIZE", help="What each node has to keep.")
@click.option("--mtbf", default="2.5y", show_default=True, metavar="TIME", help="Between failures of a node.")
@click.option(
    "--severity",
    default="0.138,0.784,0.078",
    show_default=True,
    metavar="OWN,PARTNER,STORE",
    help="Shares of failures after which a node's own memory, a partner's, and only the store serves.",
)
@click.option("--messages", type=float, default=0.0, help="Share of the time that goes into messages.")
@click.option("--store", default="600GB/s", show_default=True, help="Speed of a port of the store.")
@click.option("--ports", type=int, default=12, show_default=True, help="Nodes that write at a time.")
@click.option("--memory-speed", default="40GB/s", show_default=True, help="Of a copy in a node's memory.")
@click.option("--commit", metavar="OWN,PARTNER,STORE", help="What commits take, instead of these speeds.")
@click.option("--restart", metavar="OWN,PARTNER,STORE", help="What restarts take; default: as --commit.")
@click.option("--speedup", type=float, default=29.04, show_default=True, help="Of recovery by many nodes.")
@click.option(
    "--redundancy",
    metavar="DEGREE,...",
    help="Compare redundancy, too: 2 runs all twice, 1.5 half of it. It takes so many times the nodes.",
)
@click.option("--all-write", is_flag=True, help="Replicas write to the store, too.")
@click.option("--machine", type=int, help="Nodes of the machine; default: enough.")
@click.option("--objective", type=click.Choice(get_args(Objective)), default="time", show_default=True)
@click.option(
    "--power",
    metavar="WHAT=WATTS,...",
    help="Of a node; default: computing=750W,committing=178.33W,idle=150W.",
)
@click.option(
    "--played", type=click.IntRange(1, 100_000), metavar="RUNS", help="Play so many, failure by failure, too."
)
@click.option("--plot", metavar="OUT.SVG", help="Draw where the time goes into this file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs; seconds and joules.")
def resilience(
    redundancy: str | None,
    power: str | None,
    played: int | None,
    plot: str | None,
    as_json: bool,
    **asked: Any,
) -> None:
    """Compare protections against failures, each at its own optimum, and say which costs least.

    restart commits to the store alone; multilevel also to a node's own memory and a partner's. With recovery,
    messages are logged, and some nodes recompute what a failed one has lost while the others wait. With
    redundancy, nodes have a second one that does the same. All is computed exactly for failures that come at
    random. What is not said is the exascale machine of the literature.

    \b
    Example:
      dask-hpc plan resilience --nodes 6000 --run 24h --memory 32GB --mtbf 2.5y
      dask-hpc plan resilience --nodes 60000 --run 24h --memory 64GB --messages 0.75 --redundancy 1.5,2
      dask-hpc plan resilience --nodes 64 --run 3d --memory 64GB --mtbf 90d --commit 2s,8s,3min
    """
    plan = plan_resilience(**asked, redundancy=_degrees(redundancy), power=_powers(power))
    if plot is not None:
        with atomic_file(plot) as picture:
            ways = {way.protocol: way.parts.as_plain() for way in plan.ranking if isfinite(way.time)}
            title = f"{plan.best.protocol} costs least {'energy' if plan.objective == 'energy' else 'time'}"
            picture.write_text(protocols_svg(title, plan.reason, ways), encoding="utf-8")
    runs = _play(plan, played) if played else {}
    if as_json:
        print_json(plan.as_plain() | {"played": {name: list(run) for name, run in runs.items()}})
    else:
        _print(plan, runs)


def _play(plan: ResiliencePlan, trials: int) -> dict[str, tuple[float, float]]:
    """Mean seconds of played runs of what can be used, and half of the 95 % interval."""
    ways = [way for way in plan.ranking if isfinite(way.time)]
    found = {}
    with progress_bar("playing", len(ways)) as progress:
        for number, way in enumerate(ways, 1):
            runs = play_run(way, trials=trials, all_write=plan.all_write)
            found[way.protocol] = (runs.mean, runs.half_width)
            if progress is not None:
                progress(number)
    return found


def _degrees(found: str | None) -> list[float]:
    try:
        return [float(word) for word in found.split(",")] if found else []
    except ValueError:
        raise InputError(
            "--redundancy", f"found {shown(found)}", "degrees from 1 to 2, as in 1.5,2"
        ) from None


def _powers(found: str | None) -> dict[str, str] | None:
    if found is None:
        return None
    words = [word.partition("=") for word in found.split(",")]
    if not all(equals for _, equals, _ in words):
        raise InputError("--power", f"found {shown(found)}", "as in computing=750W,committing=178W")
    return {name.strip(): watts for name, _, watts in words}


def _print(plan: ResiliencePlan, runs: Mapping[str, tuple[float, float]]) -> None:
    rows: list[tuple[str, ...]] = []
    for way in plan.ranking:
        share, time, energy = "-", "-", "-"
        if isfinite(way.time):
            time = f"{show_duration(way.time)} ± {show_duration(way.deviation)}"
            share, energy = f"{way.efficiency:.1%}", show_large(way.energy, "J")
        mean, half = runs.get(way.protocol, (inf, inf))
        heard = (f"{show_duration(mean)} ± {show_duration(half)}" if isfinite(half) else "-",) if runs else ()
        rows.append((way.protocol, share, time, *heard, energy, _when(way)))
    heads = ("played (95 %)",) if runs else ()
    print_table(("protocol", "efficiency", "time", *heads, "energy", "commit every"), rows)
    click.echo()
    parts = [
        (way.protocol, *(_short(getattr(way.parts, part)) for part in PARTS))
        for way in plan.ranking
        if isfinite(way.time)
    ]
    print_table(("where time goes", *(part.replace("_", " ") for part in PARTS)), parts)
    click.echo(f"\n{one_line(plan.reason)}")
    for note in plan.notes:
        click.echo(f"note: {one_line(note)}")


def _short(seconds: float) -> str:
    return show_duration(seconds) if seconds >= 0.1 else "<0.1 s" if seconds else "-"


def _when(way: Prospect) -> str:
    """How often it commits where; a place without commits of its own is left out."""
    found = []
    seconds = 0.0
    for place, every in reversed(way.every.items()):
        if isfinite(every) and every != seconds:
            found.append(f"{show_duration(every)} ({place})")
        seconds = every
    return ", ".join(reversed(found)) or "never"
