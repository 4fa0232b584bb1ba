"""``dask-hpc plan interval``: how often to commit to which level, as a table, JSON and a picture."""

import json
from collections.abc import Iterator
from math import isfinite
from typing import Any

import click

from dask_hpc.cli.atomic_file import atomic_file
from dask_hpc.cli.terminal import print_table
from dask_hpc.model.errors import InputError, one_line, shown
from dask_hpc.model.units import show_duration
from dask_hpc.planning.interval.plan import IntervalPlan, Way, plan_interval
from dask_hpc.view.checkpoint import interval_svg

_BAR = 40  # characters
_ROWS = 5  # of the curve's points, one row each so many


@click.command("interval")
@click.option(
    "--level",
    "levels",
    nargs=3,
    multiple=True,
    required=True,
    metavar="NAME COMMIT MTBF",
    help="What a commit to this level takes, and the mean time between failures that nothing below it "
    "survives. The cheapest level first.",
)
@click.option(
    "--restart",
    "restarts",
    nargs=2,
    multiple=True,
    metavar="NAME TIME",
    help="What a restart from this level takes; default: as long as a commit.",
)
@click.option("--run", default="inf", metavar="TIME", help="Work to be done; default: it has no end.")
@click.option("--plot", metavar="OUT.SVG", help="Draw the efficiency of other intervals into this file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs; seconds.")
def plan_interval_command(
    levels: tuple[tuple[str, str, str], ...],
    restarts: tuple[tuple[str, str], ...],
    run: str,
    plot: str | None,
    as_json: bool,
) -> None:
    """Plan how often to commit a checkpoint, and to which level, so that least time is wasted.

    A run that fails goes on from its last commit that survived. Commits to memory are cheap and survive
    little; those to a shared file system are dear and survive all. The efficiency is the share of the time
    that is work, exactly computed for failures that come at random.

    \b
    Example:
      dask-hpc plan interval --level partner 5s 10h --level disk 20s 1d --level store 150s 7d --run 24h
    """
    given = {name: {"name": name, "commit": commit, "mtbf": mtbf} for name, commit, mtbf in levels}
    if len(given) < len(levels):
        raise InputError("--level", "a name is there twice", "each name once")
    for name, seconds in restarts:
        if name not in given:
            raise InputError("--restart", f"found the level {shown(name)}", ", ".join(given))
        given[name]["restart"] = seconds
    answer = plan_interval(given.values(), run)
    if plot:
        with atomic_file(plot) as picture:
            picture.write_text(_picture(answer), encoding="utf-8")
    if as_json:
        click.echo(json.dumps(_as_data(answer), indent=2, allow_nan=False))
    else:
        _tell(answer)


def _tell(plan: IntervalPlan) -> None:
    """The plan for a person."""
    rows = [
        (level.name, show_duration(level.commit), show_duration(level.restart), _rate(level.failures), when)
        for level, when in zip(plan.levels, _when(plan), strict=True)
    ]
    print_table(("level", "commit", "restart", "failures every", "commit every"), rows)
    click.echo()
    ways = [("this plan", _work(plan), f"{plan.efficiency:.2%}")]
    ways += [(way.name, _interval(way), f"{way.efficiency:.2%}") for way in plan.others]
    print_table(("", "work between commits", "efficiency"), ways)
    click.echo()
    if plan.curve:
        print_table(("work between commits", "efficiency", ""), _curve(plan))
        click.echo()
    click.echo(one_line(plan.reason))


def _when(plan: IntervalPlan) -> Iterator[str]:
    """How often each level has commits of its own."""
    counts = (*(plan.pattern.counts if plan.pattern else ()), 1)
    names = [level.name for level in plan.levels]
    for place, level in enumerate(plan.levels):
        seconds = plan.every[level.name]
        if not isfinite(seconds):
            yield "never"
        elif place < len(counts) and counts[place] == 0 and place + 1 < len(names):
            yield f"only with {names[place + 1]}"
        else:
            yield show_duration(seconds)


def _curve(plan: IntervalPlan) -> Iterator[tuple[str, str, str]]:
    for way in plan.curve[::_ROWS]:
        yield show_duration(way.work), f"{way.efficiency:.2%}", "█" * round(_BAR * way.efficiency)


def _work(plan: IntervalPlan) -> str:
    return show_duration(plan.pattern.work) if plan.pattern else "never"


def _interval(way: Way) -> str:
    return show_duration(way.work)


def _rate(failures: float) -> str:
    return show_duration(1 / failures) if failures else "never"


def _picture(plan: IntervalPlan) -> str:
    planned = (plan.pattern.work, plan.efficiency) if plan.pattern else None
    curve = [(way.work, way.efficiency) for way in plan.curve]
    others = {way.name: (way.work, way.efficiency) for way in plan.others}
    return interval_svg(plan.efficiency, planned, curve, others, plan.reason)


def _as_data(plan: IntervalPlan) -> dict[str, Any]:
    return {
        "work": plan.pattern.work if plan.pattern else None,
        "counts": list(plan.pattern.counts) if plan.pattern else None,
        "every": {name: seconds if isfinite(seconds) else None for name, seconds in plan.every.items()},
        "efficiency": plan.efficiency,
        "run": plan.run if isfinite(plan.run) else None,  # JSON knows no infinity
        "others": [{"name": way.name, "work": way.work, "efficiency": way.efficiency} for way in plan.others],
        "curve": [[way.work, way.efficiency] for way in plan.curve],
        "reason": plan.reason,
    }
