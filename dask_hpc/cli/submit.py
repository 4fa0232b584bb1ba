"""``dask-hpc submit``: a program in one Slurm job after the other, by a plan, until it is done."""

import json
import shutil
import sys
from getpass import getuser
from math import inf, isfinite
from pathlib import Path
from time import time

import click

from dask_hpc import config
from dask_hpc.cli.plan_reservation import fitted_runs
from dask_hpc.cli.run import RunCommand
from dask_hpc.cli.submit_status import list_chains, read_chain, say, show_chain
from dask_hpc.cli.terminal import print_json
from dask_hpc.history.runs import PastRun, RunHistory, path_of
from dask_hpc.model.errors import InputError, insist, one_line
from dask_hpc.model.units import counted, parse_duration, show_duration
from dask_hpc.planning.plan_reservation import plan_reservation
from dask_hpc.planning.reservation.cost import Cost, fit_wait, read_cost
from dask_hpc.planning.reservation.plan import ReservationPlan
from dask_hpc.planning.run_times import show_hours
from dask_hpc.reservations.chain import AskFor, JobAsked, JobChain, minutes
from dask_hpc.reservations.chain_rules import first_link, shortened
from dask_hpc.reservations.slurm import SlurmDesk, SlurmTrouble, check_options
from dask_hpc.reservations.state import ChainFile, new_id
from dask_hpc.reservations.step import ChainKeeper

AUTO, NONE = "auto", "none"
_GUESS = 60.0  # seconds of a commit and of a restart of which nothing is known


@click.command(cls=RunCommand)
@click.option("--name", metavar="NAME", help="Of the job; past runs of that name say how long to ask for.")
@click.option("--law", metavar="LAW", help='How long it takes, such as "lognormal mean=21h std=20h".')
@click.option("--runs", metavar="NAME|FILE", help="Past runs: of another name, or seconds in a file.")
@click.option("--plan", "plan_file", metavar="FILE", help="What plan reservation -o wrote.")
@click.option("--cost", default="wait", show_default=True, help="Or cloud, core-hours, ALPHA,BETA,GAMMA.")
@click.option("--checkpoint", default=AUTO, show_default=True, metavar="TIME",
              help="Of a commit; none: the program makes none.")  # fmt: skip
@click.option("--restart", default=AUTO, show_default=True, metavar="TIME", help="Until it works again.")
@click.option("--method", default="best", show_default=True, help="As of plan reservation.")
@click.option("--max-walltime", metavar="TIME", help="Ask for no more; by default what the partition allows.")
@click.option("--partition", metavar="NAME", help="Of Slurm.")
@click.option("--sbatch", "options", multiple=True, metavar="OPTION", help="One more option of sbatch.")
@click.option("--state", "root", metavar="DIR", help="Where chains are kept; all nodes must see it.")
@click.option("--status", metavar="NAME", help="How far a chain is.")
@click.option("--cancel", metavar="NAME", help="End a chain and all its jobs.")
@click.option("--resume", metavar="NAME", help="Go on with a chain that failed, or whose jobs are gone.")
@click.option("--list", "is_list", is_flag=True, help="All your chains.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@click.argument("script", metavar="[SCRIPT.py]", required=False)
@click.argument("arguments", metavar="[ARGS]...", nargs=-1, type=click.UNPROCESSED)
def submit(
    name: str | None,
    plan_file: str | None,
    max_walltime: str | None,
    partition: str | None,
    options: tuple[str, ...],
    root: str | None,
    status: str | None,
    cancel: str | None,
    resume: str | None,
    is_list: bool,
    as_json: bool,
    script: str | None,
    arguments: tuple[str, ...],
    **how: str | None,
) -> None:
    """Run a program as a chain of Slurm jobs that goes on from its checkpoints, until it is done.

    Each job asks for as long as a plan says that minimises what the runs to be expected cost in all. When its
    time is over, or its node is lost, the next one goes on from what dask_hpc.Checkpoint has stored; the plan
    follows what is learnt. A program that stores nothing begins anew, with more time. One that fails ends
    the chain. How long it took is remembered for the next time.

    \b
    Example:
      dask-hpc submit analysis.py --name fmri --law "lognormal mean=21h std=20h" -- --year 1999
      dask-hpc submit --status fmri
      dask-hpc submit --resume fmri --sbatch --mem=64G
    """
    asked = [one for one in (script, status, cancel, resume, is_list or None) if one is not None]
    if len(asked) != 1:
        allowed = "SCRIPT.py, --status, --cancel, --resume or --list"
        raise InputError("submit", f"found {len(asked)} of them", allowed)
    if status is not None:
        show_chain(ChainFile.of_name(status, root), as_json)
    elif cancel is not None:
        _cancel(ChainFile.of_name(cancel, root), as_json)
    elif is_list:
        list_chains(root, as_json)
    elif resume is not None:
        longest = None if max_walltime is None else _longest(max_walltime, partition)
        _resume(ChainFile.of_name(resume, root), _sbatch(partition, options), longest, as_json)
    else:
        assert script is not None
        if not Path(script).is_file():
            raise InputError("", "no such file", "a Python script", file=one_line(script) or "SCRIPT.py")
        if name is None:
            raise InputError("--name", "found none", "a name: past runs are remembered by it")
        file = ChainFile.of_name(name, root)
        longest = _longest(max_walltime, partition)
        plan = _plan(name, plan_file, **how, longest=longest)
        chain = JobChain(
            id=new_id(), name=name, user=getuser(), command=(sys.executable, script, *arguments),
            directory=str(Path.cwd()), options=_sbatch(partition, options), plan=plan, created=time(),
            longest=longest,
            planned=(plan.checkpoint, plan.restart) if isfinite(plan.checkpoint) else None,
        )  # fmt: skip
        _begin(file, chain, as_json)


def _sbatch(partition: str | None, options: tuple[str, ...]) -> tuple[str, ...]:
    return check_options([*([f"--partition={partition}"] if partition else []), *options])


def _begin(file: ChainFile, chain: JobChain, as_json: bool) -> None:
    now, slurm = time(), SlurmDesk()
    chain, (ask,) = first_link(chain, now)
    assert isinstance(ask, AskFor)
    try:
        file.create(chain)  # before there is a job: it may begin at once
        try:
            job = slurm.ask_for(chain, ask, file.path)
        except SlurmTrouble as error:
            shutil.rmtree(file.path.parent, ignore_errors=True)
            raise InputError("sbatch", f"it says: {error}", "a job that Slurm takes") from None
        chain, _ = file.follow(JobAsked(now=time(), number=1, job=job), chain.id)
    except OSError as error:
        raise InputError("", f"cannot be written: {error.strerror}", file=one_line(str(file.path))) from None
    if as_json:
        print_json({"name": chain.name, "job": job, "state": str(file.path), "plan": chain.plan.as_plain()})
        return
    click.echo(f"{chain.name}: job {job} asks for {show_hours(60 * minutes(ask.length))}")
    click.echo(f"plan: {chain.links[0].why}{f' ({chain.plan.reason})' if chain.plan.reason else ''}")
    click.echo(f"dask-hpc submit --status {chain.name} says how far it is")


def _longest(given: str | None, partition: str | None) -> float | None:
    """Seconds that a job may ask for: as said, else as Slurm says; None if there is no limit."""
    if given is None:
        return SlurmDesk().longest(partition)
    found = parse_duration(given)
    insist(found >= 60, "--max-walltime", given, "1 min or more")
    return found if found < inf else None


def _plan(
    name: str,
    plan_file: str | None,
    law: str | None = None,
    runs: str | None = None,
    cost: str | None = None,
    checkpoint: str | None = None,
    restart: str | None = None,
    method: str | None = None,
    longest: float | None = None,
) -> ReservationPlan:
    """As the options say, or as past runs do."""
    given = [word for word, one in (("--law", law), ("--runs", runs), ("--plan", plan_file)) if one]
    if len(given) > 1:
        raise InputError("submit", f"found {' and '.join(given)}", "one of --law, --runs, --plan")
    if plan_file is not None:
        return _read_plan(Path(plan_file))
    history = RunHistory(path_of(config.settings()["history"]))
    history.learn(history.read())
    known = history.find(name, getuser())
    commit = _seconds("--checkpoint", checkpoint, _newest(known, "commit"))
    restore = _seconds("--restart", restart, _newest(known, "restore") if commit is not None else None)
    is_kept = commit is not None and restore is not None  # else there is no other way than to try
    plan = plan_reservation(
        law if law is not None else fitted_runs(runs) if runs else fitted_runs(name, "--name", False),
        commit if is_kept else None,
        restore,
        _cost(cost or "wait", history),
        method or "best",
        longest if is_kept else None,
        compare=False,
    )
    insist(bool(plan.requests), "--max-walltime", longest, "more than a restart and a commit take")
    return shortened(plan)


def _read_plan(path: Path) -> ReservationPlan:
    file = one_line(str(path))
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError("", f"cannot be read: {error.strerror}", file=file) from None
    except ValueError:
        raise InputError("", "found no JSON", "what plan reservation -o writes", file=file) from None
    try:
        return shortened(ReservationPlan.of(plain))
    except InputError as error:
        raise error.in_file(file) from None


def _cost(text: str, history: RunHistory) -> Cost:
    """``wait`` is as the user's own jobs waited, if enough of them are known."""
    if text != "wait":
        return read_cost(text)
    waits = [
        (run.requested, run.waited)
        for runs in history.runs.values()
        for run in runs
        if run.requested is not None and run.waited is not None
    ]
    return fit_wait([asked for asked, _ in waits], [waited for _, waited in waits]).cost


def _newest(known: list[PastRun], what: str) -> float | None:
    """Seconds that it took the last time."""
    pairs = [getattr(run, what) for run in known if getattr(run, what) is not None]
    return pairs[-1][0] if pairs else None


def _seconds(where: str, text: str | None, known: float | None) -> float | None:
    if text in (None, AUTO):
        return _GUESS if known is None else known
    if text == NONE:
        return None
    try:
        found = parse_duration(text)
    except InputError:
        found = -1.0
    insist(0 <= found < 1e12, where, text, "a duration such as 10min, auto or none")
    return found


# a chain that there is


def _cancel(file: ChainFile, as_json: bool) -> None:
    chain = read_chain(file, "--cancel")
    keeper = ChainKeeper(file, chain.id, SlurmDesk(), say, None)
    try:
        count = keeper.cancel()
    except SlurmTrouble as error:
        found = f"the chain is over, but its jobs are not cancelled: {error}"
        raise InputError("--cancel", found, "Slurm to answer") from None
    if as_json:
        print_json({"name": chain.name, "jobs": count})
    else:
        click.echo(f"{chain.name}: {counted(count, 'job')} cancelled")


def _resume(file: ChainFile, options: tuple[str, ...], longest: float | None, as_json: bool) -> None:
    chain = read_chain(file, "--resume")
    insist(chain.over != "done", "--resume", chain.name, "a chain that is not done")
    try:
        chain = ChainKeeper(file, chain.id, SlurmDesk(), say, None).resume(options, longest)
    except SlurmTrouble as error:
        raise InputError("--resume", f"Slurm cannot be asked: {error}", "Slurm to answer") from None
    link = chain.links[-1]
    if chain.over:
        raise InputError("--resume", chain.story[-1][1], "a job that Slurm takes")
    if as_json:
        print_json({"name": chain.name, "job": link.job, "saved": chain.saved, "plan": chain.plan.as_plain()})
    else:
        click.echo(f"{chain.name}: job {link.job} goes on from {show_duration(chain.saved)} of work")
        click.echo(f"it asks for {show_hours(60 * minutes(link.length))} ({link.why})")
