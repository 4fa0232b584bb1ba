"""``dask-hpc simulate``: play a workload under one or more policies and compare."""

import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pandas as pd
import xarray as xr
from rich.console import Console
from rich.table import Table

from dask_hpc.cli.atomic_file import atomic_file, atomic_folder
from dask_hpc.cli.group import cluster_client
from dask_hpc.cli.terminal import print_json, progress_bar
from dask_hpc.model.errors import InputError, one_line, shown
from dask_hpc.policy import Policy
from dask_hpc.simulator import Platform, Result, Study, Workload, load_workload, study
from dask_hpc.simulator import simulate as play
from dask_hpc.simulator.built_in import PREFIX
from dask_hpc.simulator.overlay import Overlay
from dask_hpc.simulator.platform import DECIDE, Decide, PowerSite, platform_of
from dask_hpc.simulator.readers.elastisim import STARTS
from dask_hpc.simulator.readers.yaml_workload import read_site
from dask_hpc.simulator.report import PIPELINE_HEADS, pipeline_row, report_page, worth_a_line
from dask_hpc.simulator.result import METRICS, shown_metric
from dask_hpc.simulator.study import reporting_seeds, tuning_seeds
from dask_hpc.simulator.workload import platform_for

#: pipelines, and reasons for where they run, that a terminal shows
_MOST_LINES = 60


def _print_metrics(title: str, cells: Mapping[str, Mapping[str, str]], columns: int) -> None:
    """A column for each policy, a row for each metric that any has."""
    table = Table(title=title, title_justify="left")
    table.add_column("metric", no_wrap=True)
    for policy in cells:
        table.add_column(policy, justify="right", no_wrap=True)
    for metric in next(iter(cells.values())):
        table.add_row(metric.replace("_", " "), *(found[metric] for found in cells.values()))
    _console(columns).print(table)


def print_result_table(workload: Workload, results: list[Result]) -> None:
    """A column for each policy."""
    told = [name for name in METRICS if worth_a_line(name, (one.metrics[name] for one in results))]
    cells = {
        one.policy.name: {name: shown_metric(name, one.metrics[name]) for name in told} for one in results
    }
    title = f"{workload.name}: {len(workload):,} jobs on {results[0].nodes:,} nodes"
    _print_metrics(title, cells, len(results))
    if any(result.pipelines for result in results):
        _print_pipelines(results)
    for result in results:
        limits = [row.reason for row in result.story.happenings if row.decision == "io-limit"]
        if limits:
            times = f"{len(limits)} times, last" if len(limits) > 1 else "once"
            click.echo(f"{result.policy.name}: a limit on reads was set {times}: {one_line(limits[-1])}")


def _print_pipelines(results: list[Result]) -> None:
    """A row for each in situ pipeline under each policy; then why they were divided as they were."""
    table = Table(title="in situ pipelines", title_justify="left")
    for head in PIPELINE_HEADS:
        table.add_column(head, justify="left" if head in ("pipeline", "policy", "at the end") else "right")
    runs = [(result.policy.name, run) for result in results for run in result.pipelines]
    for policy, run in runs[:_MOST_LINES]:
        table.add_row(*pipeline_row(policy, run))
    _console(7).print(table)
    reasons = [
        f"{policy}, {run.name}, iteration {change.iteration:,}: {change.reason}"
        for policy, run in runs
        for change in run.changes
    ]
    for reason in reasons[:_MOST_LINES]:
        click.echo(one_line(reason))
    left_out = max(len(runs) - _MOST_LINES, 0) + max(len(reasons) - _MOST_LINES, 0)
    if left_out:
        click.echo(f"... {left_out:,} more lines; --report and --json show everything")


def print_study_table(found: Study) -> None:
    """A column for each policy: the mean, and half the width of its 95 % confidence interval."""
    told = [metric for metric in METRICS if worth_a_line(metric, found.summary[metric])]

    def cell(metric: str, mean: float, half: float) -> str:
        return shown_metric(metric, mean) + (f" ± {shown_metric(metric, half)}" if half == half else "")

    cells = {
        str(name): {metric: cell(metric, row[metric], row[f"{metric}_ci"]) for metric in told}
        for name, row in found.summary.iterrows()
    }
    title = f"mean of {found.runs['seed'].nunique()} seeds, 95 % confidence"
    _print_metrics(title, cells, 2 * len(cells))


def _console(columns: int) -> Console:
    return Console(width=None if sys.stdout.isatty() else 40 + 24 * columns)


@click.command()
@click.argument("workload")
@click.option("--nodes", type=int, help="Nodes of the machine; default: what the workload says.")
@click.option("--machine", metavar="NAME", help="Nodes and powers of a known machine, such as frontier.")
@click.option(
    "--site",
    metavar="supply=S,switches=W,pue=P",
    help="With --machine: share that power supplies pass on, what switches draw, and all over that without "
    "cooling, such as supply=96%,switches=60kW,pue=1.1; then the site's energy is told, too.",
)
@click.option("--policy", "policies", multiple=True, metavar="NAME", help="Name or file; may be repeated.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set a parameter of all policies."
)
@click.option("--sweep", "sweeps", multiple=True, metavar="KEY=V,V,...", help="Try several values of one.")
@click.option("--malleable", type=float, metavar="SHARE", help="Make this share of rigid jobs malleable.")
@click.option(
    "--sizes",
    "rule",
    metavar="NAME",
    help="Their sizes: half-double, wide, 0.5:4 ...; default: 1 node to all, as constraints allow.",
)
@click.option(
    "--speedup",
    "law",
    metavar="LAW",
    help="How they scale: linear, power:0.8, amdahl:0.05, mixed ...; default: as the workload says, else "
    "linear.",
)
@click.option(
    "--overrun",
    type=click.Choice(["keep", "kill"]),
    help="Whether jobs that run past their walltime are kept; default: killed, unless the workload says so.",
)
@click.option("--load", type=float, help="Squeeze or stretch the time between jobs to this load.")
@click.option("--first", type=click.IntRange(1), metavar="N", help="The first N jobs only.")
@click.option("--seeds", type=click.IntRange(1), help="Repeat with seeds 0 to K-1; mean and 95 % interval.")
@click.option("--reporting", is_flag=True, help="Draw the seeds that nothing is tuned on: from a million on.")
@click.option("--cluster", metavar="local|ADDRESS", help="Run the repetitions on a Dask cluster.")
@click.option("--resume", metavar="FILE", help="Keep finished repetitions here, and do not run them again.")
@click.option(
    "--processors",
    type=click.Choice(["requested", "used"]),
    default="requested",
    help="SWF: which processors count.",
)
@click.option("--per-node", type=click.IntRange(1), default=1, help="SWF: processors of one node.")
@click.option(
    "--start",
    type=click.Choice(STARTS),
    default="fewest",
    help="ElastiSim: on how many nodes jobs of several sizes start that do not say it.",
)
@click.option(
    "--decide",
    type=click.Choice(DECIDE),
    help="Once at each instant, knowing all that happens then, or on each event as ElastiSim; default: once, "
    "or what the workload says.",
)
@click.option(
    "--jobs-csv", metavar="FILE", help="Write one row per job: id,submit,start,end,wait,nodes,state."
)
@click.option("--out", metavar="FILE.nc", help="Write the trace, as netCDF or into a .zarr folder.")
@click.option("--report", metavar="FILE.html", help="Write one page with comparison, pictures and decisions.")
@click.option("--json", "as_json", is_flag=True, help="Print the metrics as JSON, times in seconds.")
def simulate(
    workload: str,
    nodes: int | None,
    machine: str | None,
    site: str | None,
    policies: tuple[str, ...],
    settings: tuple[str, ...],
    sweeps: tuple[str, ...],
    malleable: float | None,
    rule: str | None,
    law: str | None,
    overrun: str | None,
    load: float | None,
    first: int | None,
    seeds: int | None,
    reporting: bool,
    cluster: str | None,
    resume: str | None,
    processors: str,
    per_node: int,
    start: str,
    decide: Decide | None,
    jobs_csv: str | None,
    out: str | None,
    report: str | None,
    as_json: bool,
) -> None:
    """Play WORKLOAD under each policy and print what came of it.

    WORKLOAD is a file (.swf, .swf.gz, our .yaml, ElastiSim's .json) or a built-in one (builtin:esp).

    \b
    Example:
      dask-hpc simulate trace.swf.gz --nodes 512 --policy fcfs --policy easy-backfill
      dask-hpc simulate builtin:esp --malleable 0.5 --policy elastic --report esp.html
      dask-hpc simulate builtin:esp --seeds 20 --policy egs-pwma --sweep malleability.guard=0s,60s
      dask-hpc simulate trace.swf.gz --malleable 0.5 --sizes wide --speedup mixed --load 1.1 --policy elastic
      dask-hpc simulate "builtin:production?nodes=1024&load=0.9" --policy easy-backfill --policy elastic
      dask-hpc simulate trace.swf.gz --machine marconi100 --policy power-corridor --set power.upper=1MW
      dask-hpc simulate builtin:in-situ --policy in-situ-async --policy in-situ-sync --report pipelines.html
    """
    platform = None if machine is None else platform_of(machine, nodes)
    if platform is not None:
        nodes = platform.nodes
    if site is not None:
        if platform is None:
            raise InputError("--site", "no machine is there", "--machine NAME, or site in a .yaml workload")
        platform = replace(platform, site=_read_site(site))
    chosen = _policies(policies or ("easy-backfill",), settings)
    overlay = _overlay(malleable, rule, law, overrun, load, first)
    if seeds is not None or sweeps or cluster or resume or reporting:
        if jobs_csv or out or report:
            raise InputError("", "--jobs-csv, --out and --report need a single run", "no --seeds or --sweep")
        sweep = _sweep(sweeps)
        drawn = (reporting_seeds if reporting else tuning_seeds)(seeds or 1)
        source: str | Workload = workload
        as_usual = (processors, per_node, start) == ("requested", 1, "fewest")
        if decide is not None or not as_usual:
            source = load_workload(workload, processors=processors, per_node=per_node, start=start)
            platform = _deciding(decide, source, nodes, platform)
        if as_usual or workload.startswith(PREFIX):
            source = workload  # a study reads it, or draws it with each seed
        found = _study(source, chosen, nodes, platform, overlay, drawn, sweep, cluster, resume)
        if overlay is not None and overlay.malleable:
            click.echo(f"note: {overlay.told}", err=True)
        _print_study(found, as_json)
        return
    with ExitStack() as files:
        csv_path, report_path = (
            files.enter_context(atomic_file(f)) if f else None for f in (jobs_csv, report)
        )
        trace_path = (
            files.enter_context((atomic_folder if out.endswith(".zarr") else atomic_file)(out))
            if out
            else None
        )
        loaded = load_workload(workload, processors=processors, per_node=per_node, start=start)
        if overlay is not None:
            loaded = overlay.over(loaded, nodes=nodes)
        platform = _deciding(decide, loaded, nodes, platform)
        results = []
        for policy in chosen:
            with progress_bar(policy.name, len(loaded)) as progress:
                results.append(
                    play(
                        loaded,
                        nodes,
                        policy,
                        platform=platform,
                        progress=progress,
                        allotments=report is not None,
                    )
                )
        if csv_path is not None:
            _jobs_table(results).to_csv(csv_path, index=False)
        if trace_path is not None:
            _write_trace(results, trace_path)
        if report_path is not None:
            report_path.write_text(report_page(results), encoding="utf-8")
    made = (overlay.told,) if overlay is not None and overlay.malleable else ()
    for note in (*loaded.notes, *made, *(note for result in results for note in result.notes)):
        click.echo(f"note: {note}", err=True)
    if as_json:
        print_json(_as_data(loaded, results))
    else:
        print_result_table(loaded, results)


def _deciding(
    decide: Decide | None, workload: Workload, nodes: int | None, platform: Platform | None
) -> Platform | None:
    """The machine, if it is to be another one than the workload's own."""
    return platform if decide is None else replace(platform_for(workload, nodes, platform), decide=decide)


def _overlay(
    malleable: float | None,
    rule: str | None,
    law: str | None,
    overrun: str | None,
    load: float | None,
    first: int | None,
) -> Overlay | None:
    """What is asked to be changed of the workload, if anything is."""
    for option, value in (("--sizes", rule), ("--speedup", law)):
        if value is not None and malleable is None:
            raise InputError(option, f"found {shown(value)} and no job that is made malleable", "--malleable")
    if malleable is None and overrun is None and load is None and first is None:
        return None
    return Overlay(
        malleable=malleable or 0.0,
        rule=rule or "constraint",
        law=law or "unchanged",
        overrun=overrun,
        load=load,
        first=first,
    )


def _policies(names: tuple[str, ...], settings: tuple[str, ...]) -> list[Policy]:
    changes: dict[str, object] = dict(_pair("--set", setting) for setting in settings)
    chosen = [Policy.load(name) for name in names]
    seen = [policy.name for policy in chosen]
    if len(set(seen)) < len(seen):
        raise InputError("--policy", f"found {', '.join(seen)}", "each policy once")
    return [policy.with_(**changes) if changes else policy for policy in chosen]


def _read_site(words: str) -> PowerSite:
    values: dict[str, object] = dict(_pair("--site", word, "pue=1.1") for word in words.split(","))
    with suppress(ValueError):  # else it is said what it should be
        values["pue"] = float(str(values.get("pue", 1.0)))
    return read_site(values)


def _pair(option: str, text: str, example: str = "queue.depth=100") -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InputError(option, f"found {shown(text)}", f"KEY=VALUE, for example {example}")
    return key.strip(), value.strip()


def _sweep(texts: tuple[str, ...]) -> dict[str, list[str]]:
    pairs = (_pair("--sweep", text) for text in texts)
    return {key: [value.strip() for value in values.split(",")] for key, values in pairs}


def _study(
    workload: str | Workload,
    policies: list[Policy],
    nodes: int | None,
    platform: Platform | None,
    overlay: Overlay | None,
    seeds: Sequence[int],
    sweep: dict[str, list[str]],
    cluster: str | None,
    resume: str | None,
) -> Study:
    total = len(policies) * len(seeds) * math.prod(len(values) for values in sweep.values())
    with cluster_client(cluster) as client, progress_bar("simulations", total) as bar:
        return study(
            workload,
            policies,
            nodes=nodes,
            platform=platform,
            overlay=overlay,
            seeds=seeds,
            sweep=sweep,
            client=client,
            store=resume,
            progress=None if bar is None else lambda done, _: bar(done),
        )


def _jobs_table(results: list[Result]) -> pd.DataFrame:
    if len(results) == 1:
        return results[0].jobs
    return pd.concat([result.jobs.assign(policy=result.policy.name) for result in results])


def _write_trace(results: list[Result], path: Path) -> None:
    trace: Any = results[0].trace
    if len(results) > 1:
        trace = xr.DataTree.from_dict({result.policy.name: result.trace for result in results})
    if path.suffix == ".zarr":
        trace.to_zarr(path, mode="w", zarr_format=2)
    else:
        trace.to_netcdf(path, engine="netcdf4")


def _as_data(workload: Workload, results: list[Result]) -> dict[str, Any]:
    """Pipelines by policy and name, if there are any."""
    told = {result.policy.name: {run.name: run.told() for run in result.pipelines} for result in results}
    return {
        "workload": workload.name,
        "jobs": len(workload),
        "nodes": results[0].nodes,
        "policies": {result.policy.name: result.metrics for result in results},
        **({"pipelines": told} if any(told.values()) else {}),
    }


def _print_study(found: Study, as_json: bool) -> None:
    if as_json:
        print_json({"policies": found.summary.to_dict(orient="index")})
    else:
        print_study_table(found)
