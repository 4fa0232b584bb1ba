"""The tables that ``dask-hpc simulate`` prints."""

import sys

import click
from rich.console import Console
from rich.table import Table

from dask_hpc.model.errors import one_line
from dask_hpc.simulator import Result, Study, Workload
from dask_hpc.simulator.in_situ.report import PIPELINE_HEADS, pipeline_row
from dask_hpc.simulator.metrics import METRICS
from dask_hpc.simulator.report import worth_a_line
from dask_hpc.simulator.result import shown_metric

#: pipelines, and reasons for where they run, that a terminal shows
_MOST_LINES = 60


def print_result_table(workload: Workload, results: list[Result]) -> None:
    """A column for each policy."""
    table = Table(
        title=f"{workload.name}: {len(workload):,} jobs on {results[0].nodes:,} nodes", title_justify="left"
    )
    table.add_column("metric", no_wrap=True)
    for result in results:
        table.add_column(result.policy.name, justify="right", no_wrap=True)
    for name in METRICS:
        if worth_a_line(name, (result.metrics[name] for result in results)):
            cells = (shown_metric(name, result.metrics[name]) for result in results)
            table.add_row(name.replace("_", " "), *cells)
    _console(len(results)).print(table)
    if any(result.pipelines for result in results):
        _print_pipelines(results)


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
    seeds = found.runs["seed"].nunique()
    table = Table(title=f"mean of {seeds} seeds, 95 % confidence", title_justify="left")
    table.add_column("metric", no_wrap=True)
    summary = found.summary
    for name in summary.index:
        table.add_column(name, justify="right", no_wrap=True)
    for metric in METRICS:
        if not worth_a_line(metric, summary[metric]):
            continue
        cells = []
        for name in summary.index:
            mean, half = summary.loc[name, metric], summary.loc[name, f"{metric}_ci"]
            interval = f" ± {shown_metric(metric, half)}" if half == half else ""
            cells.append(shown_metric(metric, mean) + interval)
        table.add_row(metric.replace("_", " "), *cells)
    _console(2 * len(summary)).print(table)


def _console(columns: int) -> Console:
    return Console(width=None if sys.stdout.isatty() else 40 + 24 * columns)
