"""``dask-hpc plan interval``: when to commit to which level, for least time or energy."""

import sys
from collections.abc import Iterator
from dataclasses import asdict
from math import inf, isfinite, isnan
from typing import Any

import click

from dask_hpc.cli.atomic_file import atomic_file
from dask_hpc.cli.failures import FROM_FILE, fit_data, fit_of_file, print_fit
from dask_hpc.cli.terminal import print_json, print_table
from dask_hpc.model.errors import InputError, one_line, shown
from dask_hpc.model.units import show_duration
from dask_hpc.planning.interval import IntervalPlan, Way, model_plans, plan_interval
from dask_hpc.planning.interval.plan import OBJECTIVES
from dask_hpc.view.checkpoint import interval_svg

_BAR = 40  # characters
_ROWS = 5  # of the curve's points, one row each so many


@click.command()
@click.option(
    "--level",
    "levels",
    nargs=3,
    multiple=True,
    metavar="NAME COMMIT MTBF",
    help="What a commit to this level takes, those to the levels below it included, and the mean time "
    "between failures that nothing below it survives, or the word file. The cheapest level first.",
)
@click.option(
    "--failures",
    metavar="FILE",
    help="When failures came: seconds or dates, one to a line, or a table with a column time. Prints what "
    "laws they follow, and the interval they would have wanted at the level whose MTBF is the word file.",
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
@click.option(
    "--objective",
    type=click.Choice(OBJECTIVES),
    default=OBJECTIVES[0],
    show_default=True,
    help="What is to be least: time, energy, or the mean time and --deviations of it.",
)
@click.option(
    "--power", metavar="computing=W,committing=W", help="Of a node, while it does that; restarts are commits."
)
@click.option(
    "--deviations",
    type=float,
    default=1.0,
    show_default=True,
    metavar="NUMBER",
    help="With --objective steady: how many standard deviations count.",
)
@click.option("--breakdown", is_flag=True, help="Print where the time goes, and what other models plan.")
@click.option("--plot", metavar="OUT.SVG", help="Draw the efficiency of other intervals into this file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs; seconds.")
def interval(
    levels: tuple[tuple[str, str, str], ...],
    failures: str | None,
    restarts: tuple[tuple[str, str], ...],
    run: str,
    objective: str,
    power: str | None,
    deviations: float,
    breakdown: bool,
    plot: str | None,
    as_json: bool,
) -> None:
    """Plan how often to commit a checkpoint, and to which level, so that least time is wasted, or energy.

    A run that fails goes on from its last commit that survived. Commits to memory are cheap and survive
    little; those to a shared file system are dear and survive all. The efficiency is the share of the time
    that is work, exactly computed for failures that come at random. Exit code 1: hopeless, whatever one does.

    \b
    Example:
      dask-hpc plan interval --level partner 5s 10h --level disk 20s 1d --level store 150s 7d --run 24h
      dask-hpc plan interval --level store 267s 22min --run 24h --breakdown \\
        --objective energy --power computing=750W,committing=178W
      dask-hpc plan interval --failures failures.txt --level store 150s file
    """
    if not levels and failures is None:
        raise InputError("--level", "no level is there", "NAME COMMIT MTBF, or --failures FILE")
    given = {name: {"name": name, "commit": commit, "mtbf": mtbf} for name, commit, mtbf in levels}
    if len(given) < len(levels):
        raise InputError("--level", "a name is there twice", "each name once")
    for name, seconds in restarts:
        if name not in given:
            raise InputError("--restart", f"found the level {shown(name)}", ", ".join(given))
        given[name]["restart"] = seconds
    watts = None if power is None else _read_power(power)
    fit = None if failures is None else fit_of_file(failures, given)
    if fit is None and any(level["mtbf"] == FROM_FILE for level in given.values()):
        raise InputError("--level", f"found the MTBF {FROM_FILE} and no file", "--failures FILE")
    if fit is not None and not given:
        if plot:
            raise InputError("--plot", "there is no plan to draw", "--level too")
        print_json({"failures": fit_data(fit)}) if as_json else print_fit(fit)
        return
    answer = plan_interval(given.values(), run, objective=objective, power=watts, deviations=deviations)
    if plot:
        with atomic_file(plot) as picture:
            curve = [(way.work, way.efficiency) for way in answer.curve]
            others = {way.name: (way.work, way.efficiency) for way in answer.others}
            planned = (answer.pattern.work, answer.efficiency) if answer.pattern else None
            drawn = interval_svg(answer.efficiency, planned, curve, others, answer.reason)
            picture.write_text(drawn, encoding="utf-8")
    if as_json:
        found = _interval_data(answer, breakdown)
        print_json(found if fit is None else found | {"failures": fit_data(fit)})
    else:
        if fit is not None:
            print_fit(fit)
            click.echo()
        _print_interval(answer, breakdown)
    if answer.is_hopeless:
        sys.exit(1)


def _read_power(text: str) -> dict[str, str]:
    """From ``name=value,name=value``."""
    found: dict[str, str] = {}
    for part in text.split(","):
        name, is_there, value = part.partition("=")
        if not is_there or name.strip() in found:
            raise InputError("--power", f"found {shown(part)}", "computing=WATTS,committing=WATTS")
        found[name.strip()] = value.strip()
    return found


def _print_interval(plan: IntervalPlan, breakdown: bool) -> None:
    rows = []
    for level, when in zip(plan.levels, _when(plan), strict=True):
        failures = show_duration(1 / level.failures) if level.failures else "never"
        rows.append((level.name, show_duration(level.commit), show_duration(level.restart), failures, when))
    print_table(("level", "commit", "restart", "failures every", "commit every"), rows)
    click.echo()
    work = plan.pattern.work if plan.pattern else inf
    ways = [Way("this plan", work, plan.efficiency, plan.energy), *plan.others]
    energy = not isnan(plan.energy)
    cells = [(way.name, _or_never(way.work), f"{way.efficiency:.2%}", f"{way.energy:.3f}") for way in ways]
    heads = ("", "work between commits", "efficiency", "energy over that of the work")
    print_table(heads[: 3 + energy], [row[: 3 + energy] for row in cells])
    click.echo()
    if breakdown:
        _print_breakdown(plan)
    if plan.curve:
        curve = [
            (show_duration(way.work), f"{way.efficiency:.2%}", "█" * round(_BAR * way.efficiency))
            for way in plan.curve[::_ROWS]
        ]
        print_table(("work between commits", "efficiency", ""), curve)
        click.echo()
    click.echo(one_line(plan.reason))


def _or_never(seconds: float) -> str:
    return show_duration(seconds) if isfinite(seconds) else "never"


def _print_breakdown(plan: IntervalPlan) -> None:
    """Where the time goes, and what other models plan."""
    if plan.parts is not None and isfinite(total := plan.parts.total):
        rows = [
            (name.replace("_", " "), show_duration(seconds), f"{seconds / total:.2%}")
            for name, seconds in asdict(plan.parts).items()
        ]
        print_table(("of a run" if isfinite(plan.run) else "of a period", "time", "share"), rows)
        click.echo(f"{show_duration(total)} in all, with a standard deviation of {_or_never(plan.deviation)}")
        click.echo()
    models = []
    for one in model_plans(plan.levels, plan.run):
        predicted = "" if isnan(one.predicted) else f"{one.predicted:.2%}"
        work = _or_never(one.pattern.work)
        models.append((one.model, one.levels[0].name, work, predicted, f"{one.efficiency:.2%}"))
    if models:
        print_table(
            ("model, for time", "from level", "work between commits", "predicts", "efficiency"), models
        )
        click.echo()


def _when(plan: IntervalPlan) -> Iterator[str]:
    """How often each level has commits of its own."""
    counts = (*(plan.pattern.counts if plan.pattern else ()), 1)
    names = [level.name for level in plan.levels]
    for place, name in enumerate(names):
        seconds = plan.every[name]
        if not isfinite(seconds):
            yield "never"
        elif place < len(counts) and counts[place] == 0 and place + 1 < len(names):
            yield f"only with {names[place + 1]}"
        else:
            yield show_duration(seconds)


def _interval_data(plan: IntervalPlan, breakdown: bool) -> dict[str, Any]:
    found = {
        "work": plan.pattern.work if plan.pattern else None,
        "counts": list(plan.pattern.counts) if plan.pattern else None,
        "every": plan.every,
        "efficiency": plan.efficiency,
        "objective": plan.objective,
        "energy": plan.energy,
        "run": plan.run,
        "others": [asdict(way) for way in plan.others],
        "curve": [[way.work, way.efficiency] for way in plan.curve],
        "reason": plan.reason,
    }
    if breakdown:
        found["parts"] = asdict(plan.parts) if plan.parts else None
        found["deviation"] = plan.deviation
        found["models"] = [
            {
                "model": one.model,
                "levels": [level.name for level in one.levels],
                "work": one.pattern.work,
                "counts": list(one.pattern.counts),
                "predicted": one.predicted,
                "efficiency": one.efficiency,
            }
            for one in model_plans(plan.levels, plan.run)
        ]
    return found
