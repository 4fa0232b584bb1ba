"""``dask-hpc plan interval --failures FILE``: the laws that failures follow, and the interval they wanted."""

from dataclasses import asdict
from math import isfinite
from typing import Any

import click

from dask_hpc.cli.failure_times import read_failure_times
from dask_hpc.cli.given_file import given_text, naming
from dask_hpc.cli.terminal import print_table
from dask_hpc.model.errors import InputError
from dask_hpc.model.units import counted, show_duration
from dask_hpc.planning.interval import FailureFit, fit_failures

#: stands for the mean time between the failures of the file, in place of an MTBF
FROM_FILE = "file"
_LARGEST = 100_000_000  # bytes


def fit_of_file(file: str, levels: dict[str, dict[str, str]]) -> FailureFit:
    """What the failures of this file say. The level whose MTBF is the word ``file`` gets it from there, and
    the intervals are for that one."""
    asking = [level for level in levels.values() if level["mtbf"] == FROM_FILE]
    if levels and len(asking) != 1:
        found = f"{counted(len(asking), 'level')} whose MTBF is the word {FROM_FILE}"
        raise InputError("--failures", found, f"one, such as --level store 150s {FROM_FILE}")
    text = given_text(file, _LARGEST)
    with naming(file):
        times = read_failure_times(text)
        fit = fit_failures(times)
    for level in asking:
        fit = fit_failures(times, commit=level["commit"], restart=level.get("restart"))
        level["mtbf"] = f"{fit.mtbf!r} s"
    return fit


def print_fit(fit: FailureFit) -> None:
    """Tables of the laws and of the intervals, and what they come to."""
    laws = [
        (
            law.name,
            show_duration(law.mean),
            f"{law.shape:.3f}",
            f"{law.log_likelihood:.1f}",
            f"{law.aic:.1f}",
            f"{law.distance:.3f}",
        )
        for law in (fit.exponential, fit.weibull)
    ]
    print_table(("law", "mean", "shape", "log-likelihood", "AIC", "Kolmogorov distance"), laws)
    click.echo()
    if fit.intervals:
        rows = [
            (
                one.name,
                show_duration(one.work) if isfinite(one.work) else "never",
                f"{one.efficiency:.2%}",
                f"{one.expected:.2%}",
            )
            for one in fit.intervals
        ]
        heads = ("interval of", "work between commits", "with these failures", "with random ones")
        print_table(heads, rows)
        click.echo()
    gaps = counted(len(fit.gaps), "gap")
    once = f", {fit.at_once} at the time of another one" if fit.at_once else ""
    click.echo(f"{gaps} between failures{once}: {fit.reason}")


def fit_data(fit: FailureFit) -> dict[str, Any]:
    """For programs; seconds."""
    return {
        "gaps": len(fit.gaps),
        "at_once": fit.at_once,
        "mtbf": fit.mtbf,
        "better": fit.better.name,
        "laws": [{**asdict(law), "mean": law.mean} for law in (fit.exponential, fit.weibull)],
        "intervals": [asdict(one) for one in fit.intervals],
        "reason": fit.reason,
    }
