"""``dask-hpc bench traces FOLDER``: strategies compared on every trace of a folder."""

import click
import pandas as pd

from dask_hpc.cli.atomic_file import atomic_file
from dask_hpc.cli.group import cluster_client
from dask_hpc.cli.terminal import print_json, print_table, progress_bar
from dask_hpc.model.errors import InputError, shown
from dask_hpc.policy import Policy
from dask_hpc.simulator.result import shown_metric
from dask_hpc.simulator.traces import CELL, FIGURES, POLICIES, RULES, SHARES, TraceStudy, TraceTable

#: whom all others are compared with at the end, if it is among them
_OURS = "elastic"
#: as good as that, in per cent
_ALIKE = 2.0
_HEADS = {
    "mean_response": "response, mean",
    "mean_bounded_slowdown": "bounded slowdown, mean",
    "mean_slowdown_as_asked": "slowdown as asked, mean",
    "makespan": "all done after",
    "max_wait": "waiting, longest",
}


@click.command()
@click.argument("folder")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="NAME",
    help="Name or file; may be repeated. Default: seven.",
)
@click.option("--sizes", "rules", multiple=True, metavar="NAME", help="Sizes; default: half-double and wide.")
@click.option(
    "--shares",
    default=",".join(f"{one:g}" for one in SHARES),
    show_default=True,
    metavar="S,S,...",
    help="Of the jobs that can change size.",
)
@click.option(
    "--speedup",
    "law",
    default="linear",
    show_default=True,
    metavar="LAW",
    help="How they scale: linear, power:0.8, mixed ...",
)
@click.option("--load", type=float, help="Squeeze or stretch the time between jobs to this load.")
@click.option("--first", type=click.IntRange(1), metavar="N", help="The first N jobs of each trace only.")
@click.option("--nodes", type=click.IntRange(1), help="For traces that do not say how many there are.")
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="Choices of the jobs.")
@click.option("--cluster", metavar="local|ADDRESS", help="Run the simulations on a Dask cluster.")
@click.option("--resume", metavar="FILE", help="Keep finished simulations here, and do not run them again.")
@click.option("--csv", "csv_file", metavar="FILE", help="Write all metrics, one row for each line.")
@click.option("--json", "as_json", is_flag=True, help="Print all metrics as JSON, times in seconds.")
def traces(
    folder: str,
    policies: tuple[str, ...],
    rules: tuple[str, ...],
    shares: str,
    law: str,
    load: float | None,
    first: int | None,
    nodes: int | None,
    seeds: int,
    cluster: str | None,
    resume: str | None,
    csv_file: str | None,
    as_json: bool,
) -> None:
    """Compare strategies on every trace (.swf, .swf.gz) of FOLDER, with shares of its jobs made malleable.

    Sizes are half to double of what was asked (half-double), or 1 to the whole machine under constraints
    (wide); other rules are those of simulate. Processors count as nodes. The best of each figure has a star.
    Slowdown is response over run time, at least 10 s: that of the same run, and that on the nodes asked for,
    which is the same under every strategy.
    A long trace can take some strategies many minutes: try --first 2000 first.

    \b
    Example:
      dask-hpc bench traces archive --first 2000
      dask-hpc bench traces archive --shares 0,1 --sizes wide --load 1.1 --csv table.csv --resume done.jsonl
    """
    asked = TraceStudy(
        folder=folder,
        policies=_policies(policies or POLICIES),
        rules=rules or RULES,
        shares=_shares(shares),
        law=law,
        load=load,
        first=first,
        nodes=nodes,
        seeds=seeds,
    )
    described = asked.described
    if not as_json:
        for one in described:
            click.echo(
                f"{one['trace']}: {one['jobs']:,} jobs on {one['nodes']:,} nodes, load {one['load']:.2f}"
            )
            for note in one["notes"]:
                click.echo(f"note: {one['trace']}: {note}", err=True)
    with cluster_client(cluster) as client, progress_bar("simulations", asked.trials) as bar:
        if csv_file is None:
            found = asked.run(client, resume, bar)
        else:
            with atomic_file(csv_file) as path:
                found = asked.run(client, resume, bar)
                found.rows.to_csv(path, index=False)
    if as_json:
        print_json({"traces": described, "rows": found.rows.to_dict(orient="records")})
        return
    print_trace_table(found)
    if _OURS in set(found.rows["policy"]) and found.rows["policy"].nunique() > 1:
        print_against_best(found, _OURS)


def print_trace_table(found: TraceTable) -> None:
    """A row for each trace, sizes, share and policy."""
    rows = []
    for (trace, sizes, share), cell in found.rows.groupby(list(CELL), sort=False):
        best = {name: cell[name].min() for name in FIGURES}
        for _, row in cell.iterrows():
            figures = [
                shown_metric(name, row[name]) + (" *" if row[name] == best[name] else "  ")
                for name in FIGURES
            ]
            rows.append((trace, sizes, f"{share:.0%}", row["policy"], *figures))
    click.echo()
    print_table(("trace", "sizes", "malleable", "policy", *(_HEADS[name] for name in FIGURES)), rows)


def print_against_best(found: TraceTable, policy: str) -> None:
    """One policy against the best of the others in each cell, figure by figure, the worst cell named."""
    more, rows = found.against_best(policy), []
    for name in FIGURES:
        column: pd.Series = more[name]
        trace, sizes, share = column.idxmax()
        rows.append(
            (
                _HEADS[name],
                f"{column.min():+.1f} to {column.max():+.1f} %",
                f"{(column > _ALIKE).sum()} of {len(column)}",
                f"{trace}, {sizes}, {share:.0%}",
            )
        )
    click.echo(f"\n{policy} against the best of the others in each cell:")
    print_table(("figure", "more", f"worse by over {_ALIKE:g} % in", "worst in"), rows)


def _policies(names: tuple[str, ...]) -> list[Policy]:
    found = [Policy.load(name) for name in names]
    seen = [policy.name for policy in found]
    if len(set(seen)) < len(seen):
        raise InputError("--policy", f"found {', '.join(seen)}", "each policy once")
    return found


def _shares(text: str) -> list[float]:
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise InputError("--shares", f"found {shown(text)}", "shares from 0 to 1, such as 0,0.5,1") from None
