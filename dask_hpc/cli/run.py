"""``dask-hpc run``: an unmodified Dask script as one malleable job of a managed cluster."""

import re
import sys
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from dask_hpc.cli.run_child import Child
from dask_hpc.cli.run_cluster import Place, RunCluster, the_cluster
from dask_hpc.cli.story import clock, named_nodes
from dask_hpc.cli.terminal import print_table
from dask_hpc.cluster.request import MOST_NODES
from dask_hpc.model.errors import InputError, one_line, shown
from dask_hpc.model.units import show_duration
from dask_hpc.policy import Policy
from dask_hpc.view.course import spans


class RunCommand(click.Command):
    """Up to the script all options are ours. After it, only those that are spelled out exactly as ours
    and stand before ``--``; everything else goes to the script, untouched."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put our options first."""
        options = [one for one in self.params if isinstance(one, click.Option)]
        valued = {word for one in options if not one.is_flag for word in one.opts}
        flags = {word for one in options if one.is_flag for word in one.opts if word.startswith("--")}
        ours: list[str] = []
        script: list[str] = []
        words = deque(args)
        while words and words[0] != "--":
            word = words.popleft()
            if word in valued:
                if not words or words[0] == "--":
                    raise click.BadOptionUsage(word, f"Option {word!r} requires an argument.")
                ours += [word, words.popleft()]
            elif word in flags or word.partition("=")[0] in valued or (not script and word.startswith("-")):
                ours.append(word)
            else:
                script.append(word)
        script += list(words)[1:]
        return super().parse_args(ctx, [*ours, *(["--"] if script else []), *script])


def read_nodes(text: str) -> tuple[int, int]:
    """``MIN:MAX`` or one number for both."""
    found = re.fullmatch(r"(\d{1,9})(?::(\d{1,9}))?", text, re.ASCII)
    low, high = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 1 <= low <= high <= MOST_NODES:
        raise InputError("--nodes", f"found {shown(text)}", "MIN:MAX or a number, with 1 <= MIN <= MAX")
    return low, high


_BARS = " ▁▂▃▄▅▆▇█"
_WIDTH = 60  # characters of the picture of nodes over time
_MOST_ROWS = 20


def print_summary(console: Console, cluster: RunCluster, child: Child) -> None:
    """A few lines, and a table of the newest decisions."""
    status = cluster.status()
    forgotten, rows = cluster.story()
    mine = {job["id"] for job in status["jobs"] if job["script"] == cluster.job}
    rows = [row for row in rows if row["job"] in mine or not row["job"]]
    ended = "ended well" if child.code == 0 else f"ended with exit code {child.code}"
    console.print(Text(f"dask-hpc: {ended} after {show_duration(child.seconds)}", style="bold"))
    if not mine:
        console.print("dask-hpc: none of its work came to this cluster; does it start one itself?")
        return
    used = nodes_over_time(rows, cluster.began, status["time"])
    mean = sum(used) / len(used)
    console.print(Text(f"nodes used    {picture(used)}  {mean:.1f} on average, {most_nodes(rows)} at most"))
    counts = [sum(row["decision"] == kind for row in rows) for kind in ("grow", "shrink")]
    console.print(f"resizes       {sum(counts)} ({counts[0]} larger, {counts[1]} smaller)")
    console.print(f"results lost  {_lost(rows)}")
    for job in status["jobs"]:
        if job["id"] in mine and job["state"] in ("failed", "cancelled"):
            console.print(Text(f"{job['state']:<14}job {job['id']}: {job['reason']}", style="red"))
    if forgotten:
        console.print(f"The first {forgotten} rows of the story are forgotten.")
    _print_decisions(console, rows, cluster.began)


def nodes_over_time(rows: Iterable[Mapping[str, Any]], start: float, end: float) -> list[float]:
    """The mean number of nodes held, in ``_WIDTH`` equal parts of the time."""
    step = max(end - start, 1e-9) / _WIDTH
    used = [0.0] * _WIDTH
    for span in spans(rows):
        began, over = (span.start - start) / step, ((span.end or end) - start) / step
        for part in range(max(0, int(began)), min(_WIDTH, int(over) + 1)):
            used[part] += max(0.0, min(over, part + 1) - max(began, part))
    return used


def most_nodes(rows: Iterable[Mapping[str, Any]]) -> int:
    """The most nodes held at one time, however short that was."""
    changes = []
    for span in spans(rows):
        changes.append((span.start, 1))
        if span.end is not None:
            changes.append((span.end, -1))
    return max(accumulate(change for _, change in sorted(changes)), default=0)


def picture(used: list[float]) -> str:
    """A line of bars; what is used at all is seen."""
    most = max(used) or 1.0
    return "".join(_BARS[0 if one <= 0 else max(1, round(one / most * (len(_BARS) - 1)))] for one in used)


def _lost(rows: list[dict[str, Any]]) -> str:
    return "; ".join(row["reason"] for row in rows if row["decision"] == "lost") or "0"


def _print_decisions(console: Console, rows: list[dict[str, Any]], began: float) -> None:
    told = [row for row in rows if row["job"] or row["decision"] in ("lost", "error", "off", "policy")]
    if len(told) > _MOST_ROWS:
        console.print(f"The last {_MOST_ROWS} of {len(told)} decisions and events:")
    lines = [
        (
            clock(max(0.0, row["time"] - began)),
            row["decision"],
            row["job"],
            named_nodes(row["nodes"]),
            row["reason"],
        )
        for row in told[-_MOST_ROWS:]
    ]
    print_table(("when", "what", "job", "nodes", "why"), lines, err=True)


@click.command(cls=RunCommand)
@click.option("--policy", metavar="NAME", help="Name or file; by default what is in force there, or elastic.")
@click.option(
    "--cluster", default="local", show_default=True, metavar="WHERE",
    help="local, slurm (as Dask's configuration jobqueue.slurm says), or the address of a scheduler.",
)  # fmt: skip
@click.option("--nodes", metavar="MIN:MAX", help="How many nodes the script can use.")
@click.option("--dry-run", is_flag=True, help="Make decisions and tell them, but do nothing.")
@click.option("-m", "is_module", is_flag=True, help="SCRIPT is a module, as for python -m.")
@click.argument("script", metavar="SCRIPT.py")
@click.argument("arguments", metavar="[ARGS]...", nargs=-1, type=click.UNPROCESSED)
def run(
    policy: str | None,
    cluster: str,
    nodes: str | None,
    dry_run: bool,
    is_module: bool,
    script: str,
    arguments: tuple[str, ...],
) -> None:
    """Run a Dask script under control: its Client() finds the cluster, its work is one malleable job.

    What the script computes inside of dask_hpc.job(...) is a job of its own. The summary goes to stderr;
    stdin, stdout, signals and the exit code are the script's. These options may also follow the script;
    what follows -- is the script's in any case. The script must not start a cluster itself: Client(),
    not Client(n_workers=4).

    \b
    Example:
      dask-hpc run analysis.py --year 1999 --policy elastic --cluster slurm --nodes 1:8
    """
    chosen = None if policy is None else Policy.load(policy)
    wanted = None if nodes is None else read_nodes(nodes)
    if not is_module and not Path(script).is_file():
        raise InputError("", "no such file", "a Python script", file=one_line(script) or "SCRIPT.py")
    command = [sys.executable, *(["-m"] if is_module else []), script, *arguments]
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    child = Child(command)
    with child.signals():
        code = _run(child, Place(cluster, chosen, wanted, dry_run), Path(script).name, console)
    sys.exit(code)


def _run(child: Child, place: Place, name: str, console: Console) -> int:
    with the_cluster(place, name) as cluster:
        console.print(f"[dim]dask-hpc: {name} on {cluster.described}, policy {cluster.policy.name}[/]")
        code = child.run(cluster.environment())
        try:
            cluster.settle()
            print_summary(console, cluster, child)
        except OSError as error:
            console.print(f"dask-hpc: no summary: {error}", markup=False)
    return code
