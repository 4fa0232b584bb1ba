"""``dask-hpc learn``: the run history learns from the jobs that Slurm remembers."""

from collections.abc import Iterable
from getpass import getuser
from pathlib import Path
from statistics import median
from typing import Any

import click

from dask_hpc.cli.history import on_file
from dask_hpc.cli.terminal import print_json
from dask_hpc.history.runs import PastRun, RunHistory, key_of
from dask_hpc.history.sacct import COMMAND, Imported, ask_sacct, read_sacct
from dask_hpc.model.errors import InputError, one_line, shown
from dask_hpc.model.units import counted, parse_duration, show_duration
from dask_hpc.planning.reservation.cost import fit_wait
from dask_hpc.reservations.state import all_chains

_LONGEST = 10 * 365 * 86400.0


@click.command(help=f"""Learn from your jobs that Slurm remembers: how long they took, asked for and waited.

    SOURCE is for how long to look back (90d), or a FILE of what this command prints.

    \b
    {COMMAND}

    Submit, plan reservation and walltime="auto" go by it. What was learnt before counts once. Jobs are
    remembered as USER/NAME, or as NAME if FILE has no column User. No rights of an administrator are needed.

    \b
    Example:
      dask-hpc learn --sacct 90d
      dask-hpc learn --sacct sacct.txt
    """)  # fmt: skip
@click.option("--sacct", "source", required=True, metavar="SOURCE", help="90d, or a FILE.")
@on_file
def learn(history: RunHistory, source: str, as_json: bool) -> None:
    found = _without_steps(_read(source))
    runs = [run for of_name in found.runs.values() for run in of_name]
    history.add(found.runs)
    history.write()
    told = {"names": len(found.runs), "runs": len(runs), "left_out": found.left_out, **what_they_teach(runs)}
    if as_json:
        print_json(told)
        return
    why = "not over, never begun, or steps of chains"
    left = f"; {counted(found.left_out, 'job')} left out: {why}" if found.left_out else ""
    click.echo(f"{counted(len(runs), 'run')} of {counted(len(found.runs), 'name')}{left}")
    if told["asked"] is not None:
        click.echo(
            f"walltimes: {told['asked']:.1f} times what the jobs needed (median of those that were done)"
        )
    click.echo(f"waiting: {told['wait']['reason']}")


def _without_steps(found: Imported) -> Imported:
    """Without the batch jobs of chains: the last of them was done, after the end of the work alone. A chain
    notes itself how long all of it took."""
    runs, left_out = dict(found.runs), found.left_out
    for file in all_chains(None):
        name = file.path.parent.name
        for key in runs.keys() & {name, key_of(name, getuser())}:
            kept = [run for run in runs[key] if run.when - run.seconds < file.since()]
            left_out += len(runs[key]) - len(kept)
            runs[key] = kept
    return Imported({key: of_name for key, of_name in runs.items() if of_name}, left_out)


def what_they_teach(runs: Iterable[PastRun]) -> dict[str, Any]:
    """How much too long walltimes were, and how the wait grows with them."""
    timed = [run for run in runs if run.requested]
    ratios = [run.requested / run.seconds for run in timed if run.ended == "done" and run.requested]
    waits = [(run.requested, run.waited) for run in timed if run.waited is not None]
    fitted = fit_wait([asked for asked, _ in waits if asked], [waited for _, waited in waits])
    return {
        "asked": median(ratios) if ratios else None,
        "wait": {"alpha": fitted.cost.alpha, "gamma": fitted.cost.gamma, "reason": fitted.reason},
    }


def _read(source: str) -> Imported:
    if source and Path(source).exists():
        return read_sacct(Path(source))
    try:
        seconds = parse_duration(source)
    except InputError:
        allowed = "for how long to look back (90d), or a FILE of what sacct printed"
        raise InputError("--sacct", f"found {shown(one_line(source))}", allowed) from None
    if not 0 < seconds <= _LONGEST:
        raise InputError("--sacct", f"found {show_duration(seconds)}", "more than 0 s, up to ten years")
    return ask_sacct(seconds)
