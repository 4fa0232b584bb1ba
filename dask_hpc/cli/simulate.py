"""``dask-hpc simulate``: play a workload under one or more policies and compare."""

import json
import math
import sys
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import click
import pandas as pd
import xarray as xr
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from dask_hpc.cli.atomic_file import atomic_file
from dask_hpc.model.errors import InputError, shown
from dask_hpc.policy import Policy
from dask_hpc.simulator import Result, Workload, load_workload
from dask_hpc.simulator import simulate as run
from dask_hpc.simulator.metrics import METRICS
from dask_hpc.simulator.result import shown_metric


@click.command()
@click.argument("workload")
@click.option("--nodes", type=int, help="Nodes of the machine; default: what the workload says.")
@click.option("--policy", "policies", multiple=True, metavar="NAME", help="Name or file; may be repeated.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a parameter of all policies."
)
@click.option(
    "--processors",
    type=click.Choice(["requested", "used"]),
    default="requested",
    help="SWF: which processors count.",
)
@click.option("--per-node", type=click.IntRange(1), default=1, help="SWF: processors of one node.")
@click.option(
    "--jobs-csv", metavar="FILE", help="Write one row per job: id,submit,start,end,wait,nodes,state."
)
@click.option(
    "--out", metavar="FILE.nc", help="Write the trace as netCDF (several policies: one group each)."
)
@click.option("--json", "as_json", is_flag=True, help="Print the metrics as JSON, times in seconds.")
def simulate(
    workload: str,
    nodes: int | None,
    policies: tuple[str, ...],
    settings: tuple[str, ...],
    processors: str,
    per_node: int,
    jobs_csv: str | None,
    out: str | None,
    as_json: bool,
) -> None:
    """Play WORKLOAD (.swf, .swf.gz or .yaml) under each policy and print what came of it.

    \b
    Example:
      dask-hpc simulate trace.swf.gz --nodes 512 --policy fcfs --policy easy-backfill
    """
    chosen = _policies(policies or ("easy-backfill",), settings)
    with ExitStack() as files:
        csv_path = files.enter_context(atomic_file(jobs_csv)) if jobs_csv else None
        trace_path = files.enter_context(atomic_file(out)) if out else None
        loaded = load_workload(workload, processors=processors, per_node=per_node)
        results = []
        for policy in chosen:
            with _progress(policy.name, len(loaded)) as progress:
                results.append(run(loaded, nodes, policy, progress=progress))
        if csv_path is not None:
            _jobs_table(results).to_csv(csv_path, index=False)
        if trace_path is not None:
            _write_trace(results, trace_path)
    for note in loaded.notes:
        click.echo(f"note: {note}", err=True)
    if as_json:
        click.echo(json.dumps(_as_data(loaded, results), indent=2))
    else:
        _print_table(loaded, results)


def _policies(names: tuple[str, ...], settings: tuple[str, ...]) -> list[Policy]:
    changes: dict[str, object] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise InputError("--set", f"found {shown(setting)}", "KEY=VALUE, for example queue.depth=100")
        changes[key.strip()] = value.strip()
    chosen = [Policy.load(name) for name in names]
    seen = [policy.name for policy in chosen]
    if len(set(seen)) < len(seen):
        raise InputError("--policy", f"found {', '.join(seen)}", "each policy once")
    return [policy.with_(**changes) if changes else policy for policy in chosen]


@contextmanager
def _progress(name: str, total: int) -> Any:
    """A bar on a terminal, once a second has passed."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (TextColumn(name), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=False) as bar:
        task = bar.add_task(name, total=total, visible=False)
        began = monotonic()
        update: Callable[[int], None] = lambda seen: bar.update(  # noqa: E731
            task, completed=seen, visible=monotonic() - began > 1
        )
        yield update


def _jobs_table(results: list[Result]) -> pd.DataFrame:
    if len(results) == 1:
        return results[0].jobs
    return pd.concat([result.jobs.assign(policy=result.policy.name) for result in results])


def _write_trace(results: list[Result], path: Path) -> None:
    if len(results) == 1:
        results[0].trace.to_netcdf(path, engine="netcdf4")
    else:
        tree = xr.DataTree.from_dict({result.policy.name: result.trace for result in results})
        tree.to_netcdf(path, engine="netcdf4")


def _as_data(workload: Workload, results: list[Result]) -> dict[str, Any]:
    return {
        "workload": workload.name,
        "jobs": len(workload),
        "nodes": results[0].nodes,
        "policies": {
            result.policy.name: {k: v if math.isfinite(v) else None for k, v in result.metrics.items()}
            for result in results
        },
    }


def _print_table(workload: Workload, results: list[Result]) -> None:
    title = f"{workload.name}: {len(workload):,} jobs on {results[0].nodes:,} nodes"
    table = Table(title=title, title_justify="left")
    table.add_column("metric", no_wrap=True)
    for result in results:
        table.add_column(result.policy.name, justify="right", no_wrap=True)
    for name in METRICS:
        cells = (shown_metric(name, result.metrics[name]) for result in results)
        table.add_row(name.replace("_", " "), *cells)
    Console(width=None if sys.stdout.isatty() else 40 + 24 * len(results)).print(table)
