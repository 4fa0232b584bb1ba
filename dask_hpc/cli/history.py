"""``dask-hpc history``: what is remembered of past jobs."""

from collections.abc import Callable
from datetime import datetime
from functools import wraps
from statistics import median
from typing import Any

import click

from dask_hpc import config
from dask_hpc.cli.terminal import print_json, print_table
from dask_hpc.history.runs import PastRun, RunHistory, path_of
from dask_hpc.model.errors import InputError, one_line
from dask_hpc.model.units import counted, show_bytes, show_duration


def on_file(command: Callable[..., None]) -> Callable[..., None]:
    """What all commands take."""

    @click.option("--file", "where", help="Another history than the configured one (hpc.history).")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
    @wraps(command)
    def told(where: str | None, **given: Any) -> None:
        path = path_of(config.settings()["history"] if where is None else where)
        if path is None:
            raise InputError("configuration hpc.history", "found null: nothing is remembered", "--file PATH")
        history = RunHistory(path)
        try:
            command(history, **given)
        except OSError as error:
            file = one_line(str(path))
            raise InputError("", f"cannot be written: {error.strerror or error}", file=file) from None

    return told


@click.group()
def history() -> None:
    """List, show and forget runs of past jobs: what policies predict run times from, and walltimes follow
    from. What Slurm knows of jobs that ran before is added by dask-hpc learn.

    \b
    Example:
      dask-hpc history list
      dask-hpc history show cfd
    """


@history.command("list")
@on_file
def list_(history: RunHistory, as_json: bool) -> None:
    """List the jobs by name: how many runs are known, how many of them were done, how long those took.

    \b
    Example:
      dask-hpc history list --json
    """
    runs = history.read()
    rows = [_summary(name, runs[name]) for name in sorted(runs)]
    if as_json:
        print_json(rows)
        return
    heads = {
        "name": "name", "runs": "runs", "done": "done", "nodes": "nodes", "median": "median time",
        "longest": "longest", "io": "reads and writes", "when": "last",
    }  # fmt: skip
    print_table(tuple(heads.values()), ([_said(head, row[head]) for head in heads] for row in rows))


@history.command()
@click.argument("name")
@on_file
def show(history: RunHistory, name: str, as_json: bool) -> None:
    """Show each run of the jobs called NAME, the newest last.

    \b
    Example:
      dask-hpc history show cfd
    """
    found = _runs_of(history, name)
    rows = [run.as_row() for run in found]
    if as_json:
        print_json(rows)
        return
    heads = {
        "when": "ended", "ended": "how", "nodes": "nodes", "seconds": "time",
        "io_seconds": "reads and writes", "peak_bytes": "memory", "saved_seconds": "saved",
        "commit": "commit", "restore": "restore", "requested": "asked for", "waited": "waited",
    }  # fmt: skip
    print_table(tuple(heads.values()), ([_said(head, row.get(head)) for head in heads] for row in rows))


@history.command()
@click.argument("name")
@on_file
def forget(history: RunHistory, name: str, as_json: bool) -> None:
    """Forget all runs of the jobs called NAME.

    \b
    Example:
      dask-hpc history forget cfd
    """
    count = len(_runs_of(history, name))
    history.forget(name)
    if as_json:
        print_json({"name": name, "forgotten": count})
    else:
        click.echo(f"{counted(count, 'run')} of {one_line(name)} forgotten")


def _runs_of(history: RunHistory, name: str) -> list[PastRun]:
    runs = history.read()
    if name not in runs:
        names = ", ".join(sorted(runs)[:20]) or "nothing is remembered"
        raise InputError("NAME", f"found {one_line(name)!r}", names)
    return runs[name]


def _summary(name: str, runs: list[PastRun]) -> dict[str, Any]:
    done = [run.seconds for run in runs if run.ended == "done"]
    sizes = sorted({run.nodes for run in runs})
    shares = [run.io_seconds / run.seconds for run in runs if run.io_seconds is not None]
    return {
        "name": name,
        "runs": len(runs),
        "done": len(done),
        "nodes": [sizes[0], sizes[-1]],
        "median": median(done) if done else None,
        "longest": max(done, default=None),
        "io": shares[-1] if shares else None,
        "when": runs[-1].when,
    }


def _said(head: str, value: Any) -> str:
    if value is None:
        return "-"
    if head == "when":
        return f"{datetime.fromtimestamp(value):%Y-%m-%d %H:%M}"
    if head in ("median", "longest", "seconds", "io_seconds", "saved_seconds", "requested", "waited"):
        return show_duration(value)
    if head == "peak_bytes":
        return show_bytes(value)
    if head == "io":
        return f"{100 * value:.0f} %"
    if head in ("commit", "restore"):
        return f"{show_duration(value[0])}, {show_bytes(value[1])}"
    if head == "nodes":
        ends = value if isinstance(value, list) else [value]
        return " to ".join(dict.fromkeys(f"{one:g}" for one in ends))
    return str(value)
