"""``dask-hpc reproduce``: published against ours, claim by claim."""

import math
from dataclasses import asdict
from typing import Any

import click

from dask_hpc.cli.group import cluster_client
from dask_hpc.cli.terminal import print_json, print_table, progress_bar
from dask_hpc.model.errors import InputError
from dask_hpc.reproduce import EXPERIMENTS, Experiment, experiment
from dask_hpc.reproduce.claim import Bench, Claim, Figure


@click.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@click.option("--seeds", type=click.IntRange(1), help="Seeds, if anything is random; default: see the list.")
@click.option("--cluster", metavar="local|ADDRESS", help="Run the simulations on a Dask cluster.")
@click.option("--about", is_flag=True, help="Say how NAME is simulated and read, and run nothing.")
def reproduce(name: str | None, as_json: bool, seeds: int | None, cluster: str | None, about: bool) -> None:
    """Run the published experiment NAME and print what was claimed beside what we get.

    Without NAME: list the experiments. The exit code is 0 whether claims are reached or not.

    \b
    Example:
      dask-hpc reproduce
      dask-hpc reproduce node-stealing-toy --about
      dask-hpc reproduce node-stealing-toy
      dask-hpc reproduce esp-malleable-share --seeds 5 --json
    """
    if name is None:
        if seeds is not None or cluster is not None or about:
            raise InputError("experiment", "found none", ", ".join(EXPERIMENTS))
        _list(as_json)
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


def _run(chosen: Experiment, seeds: int, cluster: str | None, as_json: bool) -> None:
    with cluster_client(cluster) as client, progress_bar("simulations", chosen.total(seeds)) as bar:
        outcome = chosen.run(Bench(seeds, client, bar))
    if as_json:
        print_json(
            {
                "experiment": chosen.name,
                "source": chosen.source,
                "seeds": seeds,
                "claims": [_plain(one) for one in outcome.claims],
                "assumptions": outcome.assumptions,
                "beside": [_plain(one) for one in outcome.beside],
            }
        )
        return
    reached = sum(one.reached for one in outcome.claims)
    click.echo(f"{chosen.name}: {reached} of {len(outcome.claims)} claims reproduced ({chosen.source})")
    click.echo()
    rows = [
        (one.claim, _value(one.published, one.unit), _value(one.ours, one.unit, one.half_width),
         _band(one.low, one.high), "yes" if one.reached else "NO", one.note)
        for one in outcome.claims
    ]  # fmt: skip
    print_table(("claim", "published", "ours", "reproduced if", "", "note"), rows)
    click.echo("\nAssumed, because the source does not say:")
    for line in outcome.assumptions:
        click.echo(f"  - {line}")
    if outcome.beside:
        click.echo("\nBeside it, claimed by nobody:")
        print_table(
            ("figure", "ours"),
            [(one.figure, _value(one.ours, one.unit, one.half_width)) for one in outcome.beside],
        )


def _plain(one: Claim | Figure) -> dict[str, Any]:
    """As JSON has it: the half width is called an interval there."""
    found = {"interval" if key == "half_width" else key: value for key, value in asdict(one).items()}
    if isinstance(one, Claim):
        del found["direction"]
        found["reached"] = one.reached
    return found


def _value(value: float | str, unit: str, half_width: float = math.nan) -> str:
    if isinstance(value, str):
        return value
    text = _short(value) + (f" +- {_short(half_width)}" if math.isfinite(half_width) else "")
    return f"{text} {unit}".strip()


def _band(low: float, high: float) -> str:
    if low == high:
        return _short(low)
    if low == -math.inf:
        return f"at most {_short(high)}"
    return f"at least {_short(low)}" if high == math.inf else f"{_short(low)} to {_short(high)}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
