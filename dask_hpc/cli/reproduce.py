"""``dask-hpc reproduce``: published against ours, claim by claim."""

from dataclasses import asdict
from math import inf, isfinite, nan
from typing import Any

import click

from dask_hpc.cli.group import cluster_client
from dask_hpc.cli.terminal import print_json, print_table, progress_bar
from dask_hpc.model.errors import InputError
from dask_hpc.reproduce import EXPERIMENTS, Experiment, experiment
from dask_hpc.reproduce.claim import Bench, Claim, ClaimCount, Figure, Outcome

ALL = "all"


@click.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@click.option("--seeds", type=click.IntRange(1), help="Seeds, if anything is random; default: see the list.")
@click.option("--cluster", metavar="local|ADDRESS", help="Run the simulations on a Dask cluster.")
@click.option("--about", is_flag=True, help="Say how NAME is simulated and read, and run nothing.")
def reproduce(name: str | None, as_json: bool, seeds: int | None, cluster: str | None, about: bool) -> None:
    """Run the published experiment NAME and print what was claimed beside what we get.

    Without NAME: list the experiments; "all" runs every one of them and counts. A claim is reached by
    construction where something was fitted to it, picked for it, or is what is compared. The exit code is 0
    whether claims are reached or not.

    \b
    Example:
      dask-hpc reproduce
      dask-hpc reproduce node-stealing-toy --about
      dask-hpc reproduce node-stealing-toy
      dask-hpc reproduce esp-malleable-share --seeds 5 --json
      dask-hpc reproduce all --seeds 3
    """
    if name is None:
        if seeds is not None or cluster is not None or about:
            raise InputError("experiment", "found none", ", ".join(EXPERIMENTS))
        _list(as_json)
        return
    if name == ALL:
        if about:
            raise InputError("--about", f"found {ALL}", "one experiment at a time")
        _run_all(seeds, cluster, as_json)
        return
    chosen = experiment(name)
    if about:
        click.echo(f"{chosen.summary}\n\n{chosen.about}")
        return
    if chosen.seeds == 0 and seeds is not None:
        raise InputError("--seeds", f"nothing is random in {name}", "no --seeds")
    _run(chosen, seeds or chosen.seeds, cluster, as_json)


def _list(as_json: bool) -> None:
    if as_json:
        keys = ("name", "source", "summary", "simulations", "seeds")
        print_json([{key: getattr(one, key) for key in keys} for one in EXPERIMENTS.values()])
        return
    rows = [(one.name, one.seeds or "-", one.summary, one.source) for one in EXPERIMENTS.values()]
    print_table(("name", "seeds", "summary", "source"), rows)


def _run_all(seeds: int | None, cluster: str | None, as_json: bool) -> None:
    """Every experiment, one line each, and what it comes to."""
    done: dict[str, tuple[int, Outcome]] = {}
    with cluster_client(cluster) as client:
        for one in EXPERIMENTS.values():
            drawn = (seeds or one.seeds) if one.seeds else 0
            with progress_bar(one.name, one.total(drawn)) as bar:
                done[one.name] = drawn, one.run(Bench(drawn, client, bar))
    together = sum((outcome.tally for _, outcome in done.values()), ClaimCount())
    if as_json:
        each = [_as_json(EXPERIMENTS[name], *found) for name, found in done.items()]
        print_json({"experiments": each, **asdict(together)})
        return
    rows = [
        (name, tally.reached, tally.claims, tally.by_construction)
        for name, tally in ((name, outcome.tally) for name, (_, outcome) in done.items())
    ]
    print_table(("name", "reached", "of", "by construction"), rows)
    click.echo(f"\n{together}")


def _run(chosen: Experiment, seeds: int, cluster: str | None, as_json: bool) -> None:
    with cluster_client(cluster) as client, progress_bar("simulations", chosen.total(seeds)) as bar:
        outcome = chosen.run(Bench(seeds, client, bar))
    if as_json:
        print_json(_as_json(chosen, seeds, outcome))
        return
    click.echo(f"{chosen.name}: {outcome.tally} ({chosen.source})")
    click.echo()
    rows = [
        (one.claim, _value(one.published, one.unit), _value(one.ours, one.unit, one.half_width),
         _allowed(one), "yes" if one.reached else "NO", one.by_construction, one.note)
        for one in outcome.claims
    ]  # fmt: skip
    print_table(("claim", "published", "ours", "reached if", "", "by construction", "note"), rows)
    click.echo("\nAssumed, because the source does not say:")
    for line in outcome.assumptions:
        click.echo(f"  - {line}")
    if outcome.beside:
        click.echo("\nBeside it, claimed by nobody:")
        print_table(
            ("figure", "ours"),
            [(one.figure, _value(one.ours, one.unit, one.half_width)) for one in outcome.beside],
        )


def _as_json(chosen: Experiment, seeds: int, outcome: Outcome) -> dict[str, Any]:
    return {
        "experiment": chosen.name,
        "source": chosen.source,
        "seeds": seeds,
        "reached": outcome.tally.reached,
        "by_construction": outcome.tally.by_construction,
        "claims": [_plain(one) for one in outcome.claims],
        "assumptions": outcome.assumptions,
        "beside": [_plain(one) for one in outcome.beside],
    }


def _plain(one: Claim | Figure) -> dict[str, Any]:
    """As JSON has it: the half width is called an interval there."""
    found = {"interval" if key == "half_width" else key: value for key, value in asdict(one).items()}
    if isinstance(one, Claim):
        del found["direction"]
        found |= {"strict": one.is_strict, "reached": one.reached}
    return found


def _value(value: float | str, unit: str, half_width: float = nan) -> str:
    if isinstance(value, str):
        return value
    text = _short(value) + (f" +- {_short(half_width)}" if isfinite(half_width) else "")
    return f"{text} {unit}".strip()


def _allowed(one: Claim) -> str:
    """The band; one that ends at zero is without it."""
    low, high = one.low, one.high
    if low == high:
        return _short(low)
    if high == inf:
        return "more than 0" if one.is_strict else f"at least {_short(low)}"
    most = f"less than {_short(high)}" if one.is_strict else _short(high)
    if low == -inf:
        return most if one.is_strict else f"at most {most}"
    return f"{_short(low)} to {most}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
