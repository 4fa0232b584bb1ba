"""``dask-hpc plan colocation``: who slows whom on a node, who may share one, and how many of each at once."""

import csv
from collections.abc import Iterator, Sequence
from typing import Any

import click
import numpy as np

from dask_hpc.cli.atomic_file import atomic_file
from dask_hpc.cli.given_file import given_text
from dask_hpc.cli.terminal import print_json, print_table, progress_bar
from dask_hpc.model.errors import InputError, one_line
from dask_hpc.model.units import show_duration
from dask_hpc.planning.colocation.mix import MixPhase
from dask_hpc.planning.colocation.plan import ColocationPlan
from dask_hpc.planning.plan_colocation import plan_colocation
from dask_hpc.view.colocation import slowdowns_svg

_SPLITS = 20
_PAIRS = 10  # in the table


@click.command()
@click.argument("file")
@click.option("--cores", type=int, required=True, help="Cores of a node: physical ones, not their threads.")
@click.option("--nodes", type=int, default=1, show_default=True, help="Nodes that share the work evenly.")
@click.option("--plot", metavar="OUT.SVG", help="Draw who slows whom into this file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs; seconds.")
def colocation(file: str, cores: int, nodes: int, plot: str | None, as_json: bool) -> None:
    """Plan which kinds of tasks may share a node, and how many of each to run at once.

    Tasks that use much memory slow each other. FILE is a table of runs (.csv): the kind of a task and its
    seconds; empty in the column beside where it ran alone, or what ran beside it all the while. Runs alone
    may say what the last cache counted (misses, accesses, instructions) or a class of memory use (mem_class,
    I to V); how many tasks there are to do (count), and by when (deadline). Of two kinds that were never
    measured beside each other a law of counters or classes is assumed, or else the mean of all runs. With ten
    runs beside others or more, ways to predict are compared on runs that are held out.

    Times of many tasks are those of a fluid: the last few tasks of a kind may take longer.

    \b
    Example:
      dask-hpc plan colocation tasks.csv --cores 4
      dask-hpc plan colocation tasks.csv --cores 32 --nodes 4 --plot slowdowns.svg
    \b
      tasks.csv:
        kind,seconds,beside,mem_class,count,deadline
        stream,40,,I,200,
        stream,95,3 stream,,,
        stream,52,stream + 2 count,,,
        count,30,,V,400,2h
    """
    rows = _read(file)
    with progress_bar("trying predictors", _SPLITS) as progress:
        try:
            plan = plan_colocation(rows, cores, nodes, rng=np.random.default_rng(0), progress=progress)
        except InputError as error:
            # what is wrong with a number of cores is the command line's, all else the file's
            raise (error if error.where in ("cores", "nodes") else error.in_file(one_line(file))) from None
    if plot is not None:
        with atomic_file(plot) as picture:
            picture.write_text(_picture(plan), encoding="utf-8")
    if as_json:
        print_json(plan.as_plain())
    else:
        _print(plan)


def _read(file: str) -> list[dict[str, Any]]:
    """The rows of a CSV file."""
    try:
        rows = list(csv.DictReader(given_text(file).splitlines(), skipinitialspace=True))
    except csv.Error as error:
        raise InputError("", f"not CSV: {error}", file=one_line(file)) from None
    for number, row in enumerate(rows, 2):
        if None in row or None in row.values():
            found = "not as many values as there are columns"
            raise InputError(f"line {number}", found, file=one_line(file))
    return [{key.strip(): value.strip() for key, value in row.items() if value.strip()} for row in rows]


def _picture(plan: ColocationPlan) -> str:
    title = _capital(plan.worth)
    beside = f"on a node whose other {plan.cores - 1} cores run" if plan.cores > 1 else "on one core"
    return slowdowns_svg(title, f"It rests on {plan.known.basis}.", beside, plan.slowdowns)


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _print(plan: ColocationPlan) -> None:
    kinds = plan.known.kinds
    full = plan.cores - 1
    heads = ("kind", "class", "alone", "at once", *(f"beside {full} {name}" for name in kinds))
    print_table(heads if full else heads[:4], _kind_rows(plan))
    if full and len(kinds) > 1:
        click.echo()
        shown = [(f"{pair.one}, {pair.other}", "yes" if pair.is_worth_it else "no", f"{pair.saves:.1%}",
                  _mix_words(pair.mix)) for pair in plan.sharing[:_PAIRS]]  # fmt: skip
        print_table(("two kinds", "share a node", "saves", "at first"), shown)
        if len(plan.sharing) > _PAIRS:
            click.echo(f"and {len(plan.sharing) - _PAIRS} more that save less")
    mix = plan.mix
    if mix is not None:
        click.echo()
        packed = "all tasks, on each node" if plan.nodes > 1 else "all tasks"
        print_table(
            (packed, "at once", "for"),
            [*_phases("this plan", mix.phases), *_phases("plain packing", mix.plain)],
        )
    if plan.kept:
        click.echo()
        rows = [(one.kind, show_duration(one.deadline), show_duration(one.ends), _yes(one.is_kept),
                 show_duration(one.plain_ends), _yes(one.is_kept_plainly)) for one in plan.kept]  # fmt: skip
        print_table(("kind", "due in", "ends in", "kept", "plain packing", "kept"), rows)
    click.echo(f"\n{one_line(plan.worth)}")
    click.echo(f"rests on: {one_line(plan.known.basis)}")


def _kind_rows(plan: ColocationPlan) -> Iterator[tuple[str, ...]]:
    for name, kind in plan.known.kinds.items():
        best = plan.alone[name].mix[name]
        cells = [f"{value:.2f}" for value in plan.slowdowns[name].values()] if plan.cores > 1 else []
        yield name, kind.mem_class or "-", show_duration(kind.seconds), f"{best} of {plan.cores}", *cells


def _phases(way: str, phases: Sequence[MixPhase]) -> Iterator[tuple[str, str, str]]:
    for number, phase in enumerate(phases):
        yield "" if number else way, _mix_words(phase.mix), show_duration(phase.seconds)


def _mix_words(mix: Any) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in mix.items())


def _yes(is_so: bool) -> str:
    return "yes" if is_so else "NO"
