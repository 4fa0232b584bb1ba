"""``dask-hpc plan reservation``: which walltimes to ask for, one after the other, and when to commit."""

import json
from collections.abc import Iterator
from getpass import getuser
from pathlib import Path
from typing import Any

import click

from dask_hpc import config
from dask_hpc.cli.atomic_file import atomic_file
from dask_hpc.cli.given_file import given_text, naming
from dask_hpc.cli.terminal import print_json, print_table
from dask_hpc.history.runs import RunHistory, durations_of, path_of
from dask_hpc.model.errors import InputError, one_line
from dask_hpc.model.units import finite, show_duration
from dask_hpc.planning.plan_reservation import plan_reservation
from dask_hpc.planning.reservation.cost import Cost, FittedCost, fit_wait, read_cost
from dask_hpc.planning.reservation.fit import FittedLaw, fit_law, read_runs
from dask_hpc.planning.reservation.law import Law, read_law
from dask_hpc.planning.reservation.methods import BEST, METHODS
from dask_hpc.planning.reservation.plan import ReservationPlan
from dask_hpc.planning.reservation.sequence import Milestone, Setting, steps
from dask_hpc.view.reservation import milestones_svg

_ROWS = 12  # requests in the table
_POINTS = 160  # of the curve in the picture


@click.command()
@click.option("--law", help='How long jobs take: "lognormal mean=21h std=20h max=80h".')
@click.option(
    "--runs",
    metavar="NAME|CSV",
    help="Past runs, to fit a law to: a name in the run history, or a file of seconds, >3600: cut off there.",
)
@click.option("--checkpoint", metavar="TIME", help="What a commit takes; default: nothing can be kept.")
@click.option("--restart", metavar="TIME", help="What going on from a commit takes; default: as a commit.")
@click.option(
    "--cost",
    default="wait",
    show_default=True,
    help="wait (in a queue), cloud, core-hours*CORES, or ALPHA,BETA,GAMMA: to ask for W and use U "
    "costs ALPHA W + BETA U + GAMMA.",
)
@click.option("--waits", metavar="CSV", help="Past jobs, to fit the wait to: seconds requested, waited.")
@click.option("--method", default=BEST, show_default=True, help=f"best, {', '.join(METHODS)}.")
@click.option("--max-walltime", metavar="TIME", help="The longest that one may ask for.")
@click.option("-o", "--output", metavar="PLAN.JSON", help="Write the plan into this file.")
@click.option("--plot", metavar="OUT.SVG", help="Draw the requests into this file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs; seconds.")
def reservation(
    law: str | None,
    runs: str | None,
    checkpoint: str | None,
    restart: str | None,
    cost: str,
    waits: str | None,
    method: str,
    max_walltime: str | None,
    output: str | None,
    plot: str | None,
    as_json: bool,
) -> None:
    """Plan which walltimes to ask for, so that a job of unknown length costs least on average.

    A request that is too short ends the job, one that is too long waits long, or is paid for nothing. The
    plan is a sequence: if the job has not ended with a request, the next one is made, from the last commit
    if there is one. All is computed exactly for the law that is given, or that is fitted to past runs.

    \b
    Example:
      dask-hpc plan reservation --law "lognormal mean=21h std=20h max=80h" --checkpoint 1h --cost cloud
      dask-hpc plan reservation --runs cfd --max-walltime 1d -o plan.json
      dask-hpc plan reservation --runs seconds.csv --cost 0.95,1,1.05h --method no-checkpoint --plot plan.svg
    """
    if (law is None) == (runs is None):
        raise InputError("--law, --runs", "found both" if law else "found none", "one of them")
    if restart is not None and checkpoint is None:
        raise InputError("--restart", f"found {restart} without a commit", "--checkpoint TIME as well")
    known: Law | FittedLaw = read_law(law) if law is not None else fitted_runs(str(runs))
    price: Cost | FittedCost = read_cost(cost)
    if waits is not None:
        if cost != "wait":
            raise InputError("--waits", f"found it beside --cost {one_line(cost)}", "--cost wait")
        price = _waited(waits)
    plan = plan_reservation(
        known,
        checkpoint,
        restart,
        price.cost if isinstance(price, FittedCost) else price,
        method,
        max_walltime,
    )
    if output is not None:
        with atomic_file(output) as file:
            file.write_text(json.dumps(finite(plan.as_plain()), indent=1) + "\n", encoding="utf-8")
    if plot is not None:
        with atomic_file(plot) as picture:
            picture.write_text(plan_svg(plan), encoding="utf-8")
    if as_json:
        print_json(plan.as_plain() | {"requests": list(_rows(plan))})
        return
    _print(plan)
    if isinstance(price, FittedCost):
        click.echo(f"note: {price.reason}")


def fitted_runs(runs: str, where: str = "--runs", may_be_file: bool = True) -> FittedLaw:
    """From a file of seconds, or from what is remembered of jobs of that name: the user's own, or if there
    are none, nobody's."""
    if may_be_file and Path(runs).is_file():
        with naming(runs):
            return fit_law(*read_runs(_numbers(runs)))
    path = path_of(config.settings()["history"])
    if path is None:
        raise InputError(where, f"found {one_line(runs)}, but hpc.history is null", "--law, or --runs FILE")
    history = RunHistory(path)
    history.learn(history.read())
    found = history.find(runs, getuser())
    if not found:
        names = ", ".join(sorted(history.runs)[:20]) or "nothing is remembered"
        allowed = f"a file of seconds, or one of: {names}"
        raise InputError(where, f"found {one_line(runs)!r}, of which no run is known", allowed)
    return fit_law(*durations_of(found))


def _numbers(file: str) -> list[str]:
    """What stands between commas and line ends; a heading is passed over."""
    words = [word.strip() for line in given_text(file).splitlines() for word in line.split(",")]
    found = [word for word in words if word]
    return found[1:] if found and found[0].isidentifier() else found


def _waited(file: str) -> FittedCost:
    found = _numbers(file)
    try:
        numbers = [float(word) for word in found if not word.isidentifier()]
    except ValueError:
        raise InputError("", "no numbers", "seconds requested, seconds waited", file=one_line(file)) from None
    if len(numbers) % 2:
        raise InputError("", "not two numbers for each job", "requested, waited", file=one_line(file))
    return fit_wait(numbers[::2], numbers[1::2])


def _rows(plan: ReservationPlan) -> Iterator[dict[str, Any]]:
    """Each request with what becomes of it."""
    setting = Setting(plan.cost, plan.checkpoint, plan.restart, plan.saved)
    milestones = [Milestone(one.work_until, one.commit) for one in plan.requests]
    done = kept = plan.saved
    made = 1.0
    for one, step in zip(plan.requests, steps(milestones, setting), strict=True):
        left = float(plan.law.sf(one.work_until))
        yield {
            "length": one.length,
            "work_until": one.work_until,
            "commit": one.commit,
            "memory": one.memory,
            "begins": kept,
            "done": done,
            "restart": step.restart,
            "takes": step.commit,
            "made": made,
            "ended": 1 - left,
        }
        kept, done, made = one.work_until if one.commit else kept, one.work_until, left


def plan_svg(plan: ReservationPlan) -> str:
    """The picture of a plan."""
    rows = [row for row in _rows(plan) if row["made"] > 1e-3]
    end = rows[-1]["work_until"]
    times = [end * number / _POINTS for number in range(_POINTS + 1)]
    first, over = show_duration(rows[0]["length"]), f"{plan.over_omniscient:.2f}"
    title = f"Ask for {first} first; {over} times what an omniscient pays"
    curve = [(time, float(plan.law.sf(time))) for time in times]
    return milestones_svg(title, one_line(plan.reason)[:110], rows, curve)


def _print(plan: ReservationPlan) -> None:
    rows = list(_rows(plan))
    shown = [
        (
            f"{number}.",
            show_duration(row["length"]),
            show_duration(row["work_until"]),
            "yes" if row["commit"] else "no",
            _share(row["made"]),
            _share(row["ended"]),
        )
        for number, row in enumerate(rows[:_ROWS], 1)
    ]
    print_table(("request", "ask for", "work done by then", "commit", "needed by", "ended by then"), shown)
    if len(rows) > _ROWS:
        click.echo(f"and {len(rows) - _ROWS} more, needed by {_share(rows[_ROWS]['made'])}")
    click.echo()
    ways = [("this plan", show_duration(plan.expected), f"{plan.over_omniscient:.3f}", "")]
    omniscient = plan.expected / plan.over_omniscient
    for name, cost in sorted(plan.others.items(), key=lambda pair: pair[1]):
        possible = cost < float("inf")
        more = f"{cost / plan.expected - 1:+.1%}" if possible else "cannot be done"
        ways.append((name, show_duration(cost) if possible else "-", f"{cost / omniscient:.3f}", more))
    print_table(("way", "mean cost", "over an omniscient's", "more"), ways)
    click.echo(f"\n{one_line(plan.reason)}")
    for warning in plan.warnings:
        click.echo(f"note: {one_line(warning)}")


def _share(value: float) -> str:
    """Of jobs; never all or none of them if it is not."""
    if value in (0, 1):
        return f"{100 * value:.0f} %"
    digits = 2 if 1e-3 <= value <= 0.999 else 5
    return f"{min(max(100 * value, 1e-5), 99.99999):.{digits}f} %"
