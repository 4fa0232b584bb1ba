"""``dask-hpc run``: an unmodified Dask script as one malleable job of a managed cluster."""

import sys
from pathlib import Path

import click
from rich.console import Console

from dask_hpc.cli.run_arguments import RunCommand, read_nodes
from dask_hpc.cli.run_child import Child
from dask_hpc.cli.run_cluster import Place, the_cluster
from dask_hpc.cli.run_summary import print_summary
from dask_hpc.model.errors import InputError, one_line
from dask_hpc.policy import Policy


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
