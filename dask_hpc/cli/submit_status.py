"""What ``dask-hpc submit`` tells of chains: what their files say, and what Slurm says, put together."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import click

from dask_hpc.cli.terminal import print_json, print_table
from dask_hpc.model.errors import InputError
from dask_hpc.model.units import show_duration
from dask_hpc.reservations.chain import JobChain, Link, minutes
from dask_hpc.reservations.slurm import QueuedJob, SlurmDesk, SlurmTrouble
from dask_hpc.reservations.state import ChainFile, all_chains

_SHOWN = 12  # rows of the story
_RESUME = "dask-hpc submit --resume NAME goes on from there"


def say(words: str) -> None:
    """Beside what is printed for programs."""
    click.echo(f"dask-hpc: {words}", err=True)


def read_chain(file: ChainFile, option: str) -> JobChain:
    """Raises ``InputError``: there is none of that name, or the file makes no sense."""
    if not file.exists():
        names = ", ".join(one.path.parent.name for one in all_chains(str(file.path.parents[2]))) or "none"
        raise InputError(option, f"found {file.path.parent.name!r}", names)
    return file.read()


def show_chain(file: ChainFile, as_json: bool) -> None:
    """How far it is."""
    told = report(read_chain(file, "--status"), _queue())
    if as_json:
        print_json(told)
        return
    state = "its jobs are gone" if told["state"] == "gone" else told["state"]
    hint = f" ({_RESUME})" if told["state"] in ("gone", "failed", "cancelled", "stuck") else ""
    click.echo(f"{told['name']}: {state}{hint}")
    if told["saved"]:
        click.echo(f"saved: {show_duration(told['saved'])} of work")
    heads = ("step", "job", "asked for", "began", "what became of it", "saved")
    print_table(heads, (_row(step) for step in told["steps"]))
    for when, words in told["story"][-_SHOWN:]:
        click.echo(f"{_clock(when)}  {words}")


def list_chains(root: str | None, as_json: bool) -> None:
    """One line for each."""
    queue = _queue()
    rows = []
    for file in all_chains(root):
        try:
            rows.append(report(file.read(), queue))
        except InputError as error:
            say(str(error))
    if as_json:
        print_json([{key: row[key] for key in ("name", "state", "why", "saved")} for row in rows])
        return
    cells = (
        (row["name"], row["state"], str(len(row["steps"])), show_duration(row["saved"]), row["why"])
        for row in rows
    )
    print_table(("name", "state", "steps", "saved", "last"), cells)


def report(chain: JobChain, queue: Mapping[str, QueuedJob] | None) -> dict[str, Any]:
    """As plain data. ``queue`` has jobs by id; None if nobody could be asked."""
    found = {link.number: _found(link, queue) for link in chain.links}
    state = chain.state
    if not chain.over and queue is not None:
        alive = [job.word != "PENDING" for job in found.values() if job is not None]
        state = "running" if any(alive) else "waiting" if alive else "gone"
    return {
        "name": chain.name,
        "state": state,
        "why": chain.story[-1][1] if chain.story else "",
        "saved": chain.saved,
        "tried": chain.tried,
        "resumable": chain.is_resumable,
        "checkpoint": chain.commit,
        "restart": chain.restore,
        "asked": queue is not None,
        "steps": [_step(link, found[link.number]) for link in chain.links],
        "plan": chain.plan.as_plain(),
        "story": [list(row) for row in chain.story],
    }


def _found(link: Link, queue: Mapping[str, QueuedJob] | None) -> QueuedJob | None:
    job = queue.get(link.job) if queue is not None and link.is_open else None
    return job if job is not None and job.is_alive else None


def _step(link: Link, job: QueuedJob | None) -> dict[str, Any]:
    left = None if job is None or job.state.left == float("inf") else job.state.left
    return {
        "number": link.number,
        "job": link.job,
        "asked": 60.0 * minutes(link.length),
        "why": link.why,
        "limit": link.limit or None,
        "commits": link.commits,
        "began": link.began,
        "ended": link.ended,
        "fate": link.fate,
        "saved": link.saved,
        "code": link.code,
        "slurm": "" if job is None else job.word,
        "reason": "" if job is None or job.reason == "None" else job.reason,
        "left": left,
    }


def _row(step: Mapping[str, Any]) -> tuple[str, ...]:
    words = step["fate"]
    if step["slurm"]:
        words = step["slurm"].lower() + (f" ({step['reason']})" if step["reason"] else "")
        words += "" if step["left"] is None else f", {show_duration(step['left'])} left"
    elif words in ("asked", "running"):
        words = "gone" if step["job"] else "not asked for yet"
    saved = show_duration(step["saved"]) if step["saved"] else "-"
    began = "-" if step["began"] is None else _clock(step["began"])
    return str(step["number"]), step["job"] or "-", show_duration(step["asked"]), began, words, saved


def _clock(when: float) -> str:
    return f"{datetime.fromtimestamp(when):%Y-%m-%d %H:%M:%S}"


def _queue() -> dict[str, QueuedJob] | None:
    try:
        return {job.id: job for job in SlurmDesk().queue()}
    except SlurmTrouble as error:
        say(f"Slurm cannot be asked: {error}")
        return None
