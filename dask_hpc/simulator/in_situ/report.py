"""What simulated pipelines did, for a table and for a page."""

from collections.abc import Iterable, Sequence
from html import escape

from dask_hpc.model.units import show_duration
from dask_hpc.report import table
from dask_hpc.report.phases import Iteration, phases_svg
from dask_hpc.simulator.in_situ.run import PipelineRun

#: columns of ``pipeline_row``
PIPELINE_HEADS = (
    "pipeline", "policy", "iterations", "partitions", "planned", "simulated", "total",
    "all in situ", "all in transit", "divided once", "at the end",
)  # fmt: skip
_MEANING = (
    "Planned and simulated: seconds of an iteration under the last partition, simulated as a median. The "
    "total is compared to the same iterations with everything in situ, everything in transit (each divided "
    "as well as it could have been, had all been known before), and divided once, from what was declared."
)


def pipeline_row(policy: str, run: PipelineRun) -> list[str]:
    """One pipeline under one policy."""
    last = run.changes[-1].partition if run.changes else None
    return [
        run.name,
        policy,
        f"{len(run.iterations):,}",
        f"{len(run.changes):,}",
        _time(last.iteration if last else float("nan")),
        _time(run.last_iteration),
        _time(run.total),
        *(_time(one) for one in (run.all_in_situ, run.all_in_transit, run.never_again)),
        run.layout,
    ]


def pipelines_html(runs: Sequence[PipelineRun]) -> str:
    """Their table, and of each its iterations as a picture and its partitions with the reasons."""
    if not runs:
        return ""
    parts = [
        "<h3>In situ pipelines</h3>",
        table(*_without_policy(runs)),
        f"<p>{_MEANING}</p>",
    ]
    for run in runs:
        reasons = [
            (str(change.iteration), show_duration(change.time), change.reason) for change in run.changes
        ]
        parts += [
            f"<h4>{escape(run.name)}</h4><p>At the end: {escape(run.layout)}.</p>",
            phases_svg(_iterations(run), {change.iteration: change.reason for change in run.changes}),
            table(("from iteration", "time", "why"), reasons),
        ]
    return "".join(parts)


def _without_policy(runs: Sequence[PipelineRun]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows without the policy, and without what is said of each below."""
    rows = [[*PIPELINE_HEADS], *(pipeline_row("", run) for run in runs)]
    heads, *others = [[row[0], *row[2:-1]] for row in rows]
    return heads, others


def _iterations(run: PipelineRun) -> Iterable[Iteration]:
    for one, seconds in zip(run.iterations, run.seconds, strict=True):
        if seconds == seconds:  # else the simulation ended before it did
            yield Iteration(one.number, seconds, one.phases, one.partition.phases, one.partition.iteration)


def _time(seconds: float) -> str:
    return "-" if seconds != seconds else show_duration(seconds)
